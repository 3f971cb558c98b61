"""The state of SMO: coefficients, residuals and active rows, with derived quantities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from likelier.base import Array
from likelier.svm.kernel_cache import RowCache
from likelier.svm.loops.small import intercept_of
from likelier.svm.loops.smo import likely_rows, may_move, move_terms, on_bounds, subtract_rows
from likelier.svm.model import Box, KernelExpansion, Subset, block_rows
from likelier.svm.newton import MAX_FREE, newton_cost, newton_move

FLOAT32_ERROR = 1e-5  # practical upper bound of the relative error of a float32 kernel value
MAX_RELATIVE_ERROR = 1e-4  # error relative to the distances of rows above which float32 is useless
EPS = float(np.finfo(np.float32).eps)
SAMPLE = 64  # rows for the measurement of errors of kernel values
ERROR_FACTOR = 12.0  # factor on the typical error for extreme rows and a common bias
PREFETCH_BLOCKS = (
    8  # capacity of the cache in blocks above which prefetching does not evict used rows
)
SLACK = 0.25  # of the tolerance: rows with a smaller violation are not part of a Newton step
# Ridge of a Newton step, relative to that at which a residual equal to the violation moves a
# coefficient by the mean size of coefficients. Without it, steps are too long if the kernel matrix
# is nearly singular, and most coefficients end on wrong bounds.
DAMPING = 0.05
ROUNDING_FRACTION = 0.1  # fraction of the tolerance allowed for rounding errors of kernel rows


@dataclass
class ActivePart:
    """The active rows of the problem, with their residuals, coefficients and bounds."""

    rows: Array
    F: Array
    beta: Array
    lower: Array
    upper: Array
    up: Array
    down: Array

    def take(self, keep: Array) -> ActivePart:
        return ActivePart(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))


@dataclass
class SMOState:
    """Coefficients and residuals of all rows, the active part, and the cache of kernel rows."""

    model: KernelExpansion
    box: Box
    rows: Subset
    cache: RowCache
    beta: Array  # of all rows, up to date for inactive rows only
    anchor: Array  # the coefficients at which ``F`` was computed
    F: Array
    part: ActivePart
    tol: float
    drift: float = 0.0  # length of the moves applied to ``F`` with float32 kernel rows
    n_iter: int = 0
    rounds: int = 0
    gap: float = np.inf
    work: float = 0.0  # estimated nanoseconds; decisions must not depend on measured time
    since_newton: float = 0.0
    since_shrink: int = 0
    patience: float = (
        1.0  # work of pair updates, relative to `solve_active_set`, before it is tried
    )
    n_polished: int = 0
    polished_at: int = -1
    done: bool = False
    message: str = ""
    since_emptied: float = 0.0  # work since the cache was last emptied for a checkpoint
    history: list[float] = field(default_factory=list)

    def coefficients(self) -> Array:
        """Current coefficients of all rows."""
        beta = self.beta.copy()
        beta[self.part.rows] = self.part.beta
        return beta


def whole_part(box: Box, beta: Array, F: Array) -> ActivePart:
    """Active part with all rows of a problem."""
    up, down = move_terms(beta, box.lower, box.upper, box.eps)
    return ActivePart(np.arange(len(beta)), F.copy(), beta.copy(), box.lower, box.upper, up, down)


def set_coefficients(state: SMOState, beta: Array) -> None:
    """Set the coefficients of an initial state, if they are feasible."""
    scale = abs(beta).sum()
    if abs(beta.sum()) > 1e-9 * max(scale, 1e-300):
        return  # not feasible, because weights or bounds have changed
    F = residuals(state, beta, exact=False)
    state.part.beta = beta
    state.drift = moved_length(state)
    state.beta, state.anchor, state.F = beta, beta.copy(), F
    state.part = whole_part(state.box, beta, F)


def moved_length(state: SMOState) -> float:
    """Length of all moves with float32 rows since the residuals were exact."""
    if state.cache.dtype == np.float64:
        return state.drift
    moved = state.part.beta - state.anchor[state.part.rows]
    return state.drift + float(np.sqrt(moved @ moved))


def rounding_matters(state: SMOState) -> bool:
    """Whether rounding of float32 kernel rows could matter at the tolerance.

    The error is measured only if a pessimistic bound is not sufficient.
    """
    cache, limit, length = state.cache, ROUNDING_FRACTION * state.tol, moved_length(state)
    if cache.dtype == np.float64:
        return False
    close = distance_error(state.rows)
    if max(FLOAT32_ERROR * cache.scale, close) * length <= limit:
        return False
    if cache.error is None:
        cache.error = _measured_error(state)
        if close > FLOAT32_ERROR:  # only affects the few rows that are close to each other
            cache.error = max(cache.error, close)
    return cache.error * length > limit


def _measured_error(state: SMOState) -> float:
    """Estimated largest rounding error of a kernel value, from a sample."""
    some = _some_rows(len(state.beta))
    off = state.cache.values(some, some) - state.rows.square(some)
    np.fill_diagonal(off, 0.0)
    typical = float(np.sqrt((off * off).mean()))
    return max(ERROR_FACTOR * typical, EPS * state.cache.scale)


def _some_rows(n: int) -> Array:
    return np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.intp))


def float32_too_coarse(rows: Subset) -> bool:
    """Whether float32 kernel values are too inaccurate to distinguish the rows.

    Pair updates would then follow rounding errors and make no real progress: kernel rows must be
    float64 from the start.
    """
    if rows.exact.kernel.stationary:
        return distance_error(rows) > MAX_RELATIVE_ERROR
    K = rows.square(_some_rows(rows.n_rows))
    apart = np.add.outer(K.diagonal(), K.diagonal()) - 2.0 * K
    return bool(EPS * abs(K).max() > MAX_RELATIVE_ERROR * abs(apart).mean())


def distance_error(rows: Subset) -> float:
    """Largest error of a float32 kernel value of close rows, by cancellation in their distance.

    The distance is a difference of squared norms, and its error is multiplied by ``gamma``.
    """
    kernel, norms = rows.exact.kernel, rows.exact.norms
    if not kernel.stationary or norms is None or not len(norms):
        return 0.0
    gamma = getattr(kernel, "gamma", 1.0)
    scale = 1.0 if isinstance(gamma, tuple) else float(gamma)  # a tuple is applied to the features
    return 4.0 * EPS * scale * float(norms.max())


def rows_to_fetch(part: ActivePart, cache: RowCache, wanted: int) -> Array:
    """The missing row, and those most likely to be needed next."""
    free, count = cache.n_slots - cache.n_used, cache.block
    if free < count:
        count = cache.evicting_block
        if cache.n_slots < PREFETCH_BLOCKS * count:  # prefetched rows would evict used ones
            count = min(count, max(4, free))
    if count < 3:  # nothing to prefetch
        return np.array([wanted])
    return np.asarray(likely_rows(part.F, part.up, part.down, cache.slot_of, wanted, count - 1))


def gap_of(part: ActivePart) -> float:
    """Largest violation of the optimality conditions among the active rows."""
    return float((part.F + part.up).max() - (part.F + part.down).min())


def movable_rows(part: ActivePart, eps: float) -> Array:
    """Positions of rows that are free, or could leave their bound."""
    return np.asarray(movable_and_free(part, eps)[0].nonzero()[0])


def free_rows(part: ActivePart, eps: float) -> Array:
    """Positions of the coefficients that lie between their bounds (and kinks)."""
    return np.asarray(movable_and_free(part, eps)[1].nonzero()[0])


def movable_and_free(part: ActivePart, eps: float) -> tuple[Array, Array]:
    """Which rows are movable, and which are free: see `movable_rows` and `free_rows`."""
    found = may_move(part.F, part.up, part.down, part.beta, part.lower, part.upper, eps > 0.0)
    return found[0], found[1]


def newton_step(state: SMOState, free: Array) -> bool:
    """Try a Newton step on the free coefficients of the active rows; whether it was a full one.

    It includes rows on a bound that violate optimality: otherwise pair updates would have to free
    them one by one.
    """
    part, eps, cache = state.part, state.box.eps, state.cache
    if not 2 <= len(free) <= min(MAX_FREE, cache.n_slots):
        return False
    state.work += newton_cost(len(free), len(part.F))
    some, sign = _with_violators(part, eps, free, SLACK * state.tol)
    beta = part.beta[some]
    low = np.where(sign > 0.0, np.maximum(part.lower[some], 0.0), part.lower[some]) - beta
    high = np.where(sign < 0.0, np.minimum(part.upper[some], 0.0), part.upper[some]) - beta
    ridge = DAMPING * state.gap / (float(abs(beta).mean()) or 1.0)
    K = state.rows.square(part.rows[some])
    found = newton_move(K, part.F[some] - eps * sign, low, high, ridge)
    if found is None:
        return False
    move, whole = found
    absent = some[cache.slot_of[some] < 0]
    if len(absent):
        cache.fetch(absent)
    if (cache.slot_of[some] < 0).any():
        return False  # more rows than the cache can hold
    moved = np.where(move <= low, beta + low, np.where(move >= high, beta + high, beta + move))
    moved = on_bounds(moved, part.lower[some], part.upper[some])
    subtract_rows(part.F, cache.slots, cache.slot_of[some], moved - beta)
    part.beta[some] = moved
    part.up, part.down = move_terms(part.beta, part.lower, part.upper, eps)
    state.gap = gap_of(part)
    return whole


def _with_violators(part: ActivePart, eps: float, free: Array, slack: float) -> tuple[Array, Array]:
    """Free rows and those that would leave a bound or zero; and the sign of each coefficient.

    Signs are zero without ``eps``. At most half as many rows as free ones are added.
    """
    level = float((part.F - eps * np.sign(part.beta))[free].mean())
    gain, saving = part.F + part.up - level, level - part.F - part.down
    violation = np.maximum(gain, saving)
    violation[free] = 0.0
    more = np.flatnonzero(violation > slack)
    most = min(len(free) // 2, MAX_FREE - len(free))
    if len(more) > most:
        more = more[np.argpartition(-violation[more], most)[:most]]
    some = np.sort(np.concatenate([free, more]))
    if eps == 0.0:
        return some, np.zeros(len(some))
    sign = np.sign(part.beta[some])
    return some, np.where(sign == 0.0, np.where(gain[some] > saving[some], 1.0, -1.0), sign)


def residuals(state: SMOState, beta: Array, exact: bool = True) -> Array:
    """``F = t - K beta`` of all rows, updated from the last exact (or last) residuals."""
    afresh = exact and state.drift > 0.0
    anchor = np.zeros(len(beta)) if afresh else state.anchor
    F = state.box.target.copy() if afresh else state.F.copy()
    if exact and state.rows.held is not None:
        return np.asarray(state.box.target - state.rows.held @ beta)
    changed = np.flatnonzero(beta != anchor)
    if not len(changed):
        return F
    amounts = beta[changed] - anchor[changed]
    if not exact and state.cache.whole is not None:
        subtract_rows(F, state.cache.whole, changed, amounts)
        return F
    make = state.rows.block if exact else state.cache.values
    F -= blockwise_product(state.cache, make, changed, amounts)
    return F


def blockwise_product(
    cache: RowCache, make: Callable[[Array, Array], Array], columns: Array, amounts: Array
) -> Array:
    """``K amounts`` of all rows, where ``make`` computes kernel values of rows and columns."""
    n = cache.n_rows
    out = np.zeros(n)
    step = block_rows(max(len(columns), 1), 8)

    def block(k: int) -> None:
        some = np.arange(k * step, min((k + 1) * step, n))
        out[some] = make(some, columns) @ amounts

    cache.each(block, -(-n // step))
    return out


def intercept(box: Box, beta: Array, F: Array) -> float:
    """Mean residual of free support vectors, else the midpoint of the feasible interval."""
    return float(intercept_of(F, beta, box.lower, box.upper, box.eps))
