"""The state of SMO: coefficients, residuals, the active rows, and what can be told from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from likelier.base import Array
from likelier.svm.kernel_cache import RowCache
from likelier.svm.loops.small import intercept_of
from likelier.svm.loops.smo import likely_rows, marks, may_move, on_bounds, subtract_rows
from likelier.svm.model import Box, KernelExpansion, Subset, block_rows
from likelier.svm.newton import MAX_FREE, newton_cost, newton_move

SINGLE_ERROR = 1e-5  # relative error of a float32 kernel value that is hardly ever exceeded
COARSE = 1e-4  # error, as a share of what tells rows apart, from which on float32 is no use at all
EPS = float(np.finfo(np.float32).eps)
SAMPLE = 64  # rows whose kernel values show the error where that could matter
SEVERAL = 12.0  # typical errors that the extreme rows and a common bias may add up to
ROOMY = 8  # blocks of rows in memory from which on one more does not drive out what is used
SLACK = 0.25  # of the tolerance: a smaller violation does not make a row take part in a Newton step
# Ridge of a Newton step, in the size at which a residual as large as the violation moves a
# coefficient by as much as coefficients are: without one, steps are long where the kernel matrix
# hardly tells rows apart, and most of them end at bounds where they should not.
DAMPING = 0.05
MARGIN = 0.1  # share of the tolerance that rounding of the kernel rows may use


@dataclass
class ActivePart:
    """The active rows of the problem: positions, and what belongs to each."""

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
    """Coefficients and residuals of all rows, the active part, and the kernel rows held."""

    model: KernelExpansion
    box: Box
    rows: Subset
    cache: RowCache
    beta: Array  # of all rows, up to date for rows that are not active
    anchor: Array  # the coefficients that ``F`` belongs to
    F: Array
    part: ActivePart
    tol: float
    drift: float = 0.0  # length of the moves that float32 kernel rows have made in ``F``
    n_iter: int = 0
    rounds: int = 0
    gap: float = np.inf
    work: float = 0.0  # nanoseconds, roughly: decisions must not depend on a budget
    since_newton: float = 0.0
    since_shrink: int = 0
    patience: float = 1.0  # work of pair updates, in `solve_places`, before that is tried
    n_polished: int = 0
    polished_at: int = -1
    done: bool = False
    message: str = ""
    history: list[float] = field(default_factory=list)

    def coefficients(self) -> Array:
        """Coefficients of all rows as they are now."""
        beta = self.beta.copy()
        beta[self.part.rows] = self.part.beta
        return beta


def whole_part(box: Box, beta: Array, F: Array) -> ActivePart:
    """All rows of a problem as the active ones."""
    up, down = marks(beta, box.lower, box.upper, box.eps)
    return ActivePart(np.arange(len(beta)), F.copy(), beta.copy(), box.lower, box.upper, up, down)


def begin_at(state: SMOState, beta: Array) -> None:
    """Set the coefficients of a State that has not begun."""
    scale = abs(beta).sum()
    if abs(beta.sum()) > 1e-9 * max(scale, 1e-300):
        return  # weights or bounds have changed: not a point of this problem
    F = residuals(state, beta, exact=False)
    state.part.beta = beta
    state.drift = moved_length(state)
    state.beta, state.anchor, state.F = beta, beta.copy(), F
    state.part = whole_part(state.box, beta, F)


def moved_length(state: SMOState) -> float:
    """Length of all moves since the residuals were exact, as far as float32 rows made them."""
    if state.cache.dtype == np.float64:
        return state.drift
    moved = state.part.beta - state.anchor[state.part.rows]
    return state.drift + float(np.sqrt(moved @ moved))


def rounding_matters(state: SMOState) -> bool:
    """Whether float32 kernel rows could spoil the residuals at the tolerance asked for.

    Where even a large error of kernel values would not matter nothing is measured.
    """
    cache, limit, length = state.cache, MARGIN * state.tol, moved_length(state)
    if cache.dtype == np.float64:
        return False
    close = distance_error(state.rows)
    if max(SINGLE_ERROR * cache.scale, close) * length <= limit:
        return False
    if cache.error is None:
        cache.error = _measured_error(state)
        if close > SINGLE_ERROR:  # seen at rows close to each other only, of which there are few
            cache.error = max(cache.error, close)
    return cache.error * length > limit


def _measured_error(state: SMOState) -> float:
    """What rounding may do to a kernel value: several times what it does to some of them."""
    some = _some_rows(len(state.beta))
    off = state.cache.values(some, some) - state.rows.square(some)
    np.fill_diagonal(off, 0.0)
    typical = float(np.sqrt((off * off).mean()))
    return max(SEVERAL * typical, EPS * state.cache.scale)


def _some_rows(n: int) -> Array:
    return np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.intp))


def too_coarse(rows: Subset) -> bool:
    """Whether float32 kernel values can hardly tell the rows apart.

    Then pairs chase the rounding, and the residuals that are exact at the end of a round say that
    all was in vain: kernel rows must be float64 from the start.
    """
    if rows.exact.kernel.stationary:
        return distance_error(rows) > COARSE
    K = rows.square(_some_rows(rows.n_rows))
    apart = np.add.outer(K.diagonal(), K.diagonal()) - 2.0 * K
    return bool(EPS * abs(K).max() > COARSE * abs(apart).mean())


def distance_error(rows: Subset) -> float:
    """Largest error of a float32 kernel value of rows close to each other, by their distance.

    That is a difference of squared lengths, which may be large where ``gamma`` is.
    """
    kernel, norms = rows.exact.kernel, rows.exact.norms
    if not kernel.stationary or norms is None or not len(norms):
        return 0.0
    gamma = getattr(kernel, "gamma", 1.0)
    scale = 1.0 if isinstance(gamma, tuple) else float(gamma)  # scaled features have theirs
    return 4.0 * EPS * scale * float(norms.max())


def rows_to_fetch(part: ActivePart, cache: RowCache, wanted: int) -> Array:
    """The row that is lacking, and those most likely to be lacking next."""
    free, count = cache.n_slots - cache.n_used, cache.block
    if free < count:
        count = cache.fewer
        if cache.n_slots < ROOMY * count:  # rows fetched unasked would drive out used ones
            count = min(count, max(4, free))
    if count < 3:  # very few rows: nothing to guess
        return np.array([wanted])
    return np.asarray(likely_rows(part.F, part.up, part.down, cache.slot_of, wanted, count - 1))


def gap_of(part: ActivePart) -> float:
    """Largest violation of the optimality conditions among the active rows."""
    return float((part.F + part.up).max() - (part.F + part.down).min())


def movable_rows(part: ActivePart, eps: float) -> Array:
    """Positions that are free, or whose bound the residuals do not hold them to for sure."""
    return np.asarray(may_move_at_all(part, eps)[0].nonzero()[0])


def free_rows(part: ActivePart, eps: float) -> Array:
    """Positions of the coefficients that lie between their bounds (and kinks)."""
    return np.asarray(may_move_at_all(part, eps)[1].nonzero()[0])


def may_move_at_all(part: ActivePart, eps: float) -> tuple[Array, Array]:
    """Which rows are movable, and which are free: see `movable_rows` and `free_rows`."""
    found = may_move(part.F, part.up, part.down, part.beta, part.lower, part.upper, eps > 0.0)
    return found[0], found[1]


def newton_step(state: SMOState, free: Array) -> bool:
    """Try a Newton step on the free coefficients of the active rows; whether it was a whole one.

    Those whose bound does not hold them take part: else pairs would have to find out, one by one,
    which of them become free.
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
        return False  # more rows than there is room for
    moved = np.where(move <= low, beta + low, np.where(move >= high, beta + high, beta + move))
    moved = on_bounds(moved, part.lower[some], part.upper[some])
    subtract_rows(part.F, cache.slots, cache.slot_of[some], moved - beta)
    part.beta[some] = moved
    part.up, part.down = marks(part.beta, part.lower, part.upper, eps)
    state.gap = gap_of(part)
    return whole


def _with_violators(part: ActivePart, eps: float, free: Array, slack: float) -> tuple[Array, Array]:
    """Free rows and those that their residuals move off a bound or zero; the sign each shall have.

    Signs are zero where there is no ``eps``. No more than half as many rows are added.
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
    """``F = t - K beta`` of all rows, from the last exact (or last) ones and what has moved."""
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
    """``K amounts`` of all rows, where ``make`` gives kernel values of rows with columns."""
    n = cache.n_rows
    out = np.zeros(n)
    step = block_rows(max(len(columns), 1), 8)

    def block(k: int) -> None:
        some = np.arange(k * step, min((k + 1) * step, n))
        out[some] = make(some, columns) @ amounts

    cache.each(block, -(-n // step))
    return out


def intercept(box: Box, beta: Array, F: Array) -> float:
    """Mean over free support vectors of what they ask for, else the middle of the interval."""
    return float(intercept_of(F, beta, box.lower, box.upper, box.eps))
