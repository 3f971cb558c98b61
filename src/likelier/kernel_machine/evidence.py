"""Length scales by the evidence of an exact Gaussian process on small random subsets.

For rows ``x``, targets ``t`` (centred, of unit variance) and weights ``omega``:
``t ~ N(0, a R + s diag(1/omega))``, ``R_ij = exp(-1/2 sum_j gamma_j^2 (x_ij - x_kj)^2)``. The
logarithms of ``gamma = exp(level + relative)``, ``s`` and ``a`` climb the marginal likelihood,
averaged over the columns of the targets, plus a prior ``N(0, 1)`` of each relative scale: an
input has to earn being above or below the common level. Subsets are fresh in every step, so
what is learned is not the accident of one of them.

A row of weight omega counts as omega equal rows, exactly. The climb itself takes weights for how
much a row is to be believed beside the others, and never for more than one row: equal rows with
equal targets would call the noise zero, whatever it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.linalg import blas, lapack

from likelier.base import Array
from likelier.fitting.standardize import StandardRows
from likelier.kernel_machine.features import kernel_of
from likelier.kernel_machine.triangles import lower_inverse

START_NOISE, NOISE_FLOOR = 0.3, 1e-3
# The kernel matrix of the first step has a typical entry of exp(-1.5^2 / 2) = 0.32: neither
# all rows alike nor all apart, from where both directions have a slope.
START_DISTANCE = 1.5
RATE, FIRST_DECAY, SECOND_DECAY = 0.2, 0.8, 0.95
WARM_UP, DECAY_SHARE = 5, 0.4
MAX_INDEPENDENT = 3  # columns of one-hot targets are not that many independent measurements
MEDIAN_ROWS = 300
STEP_WORK = 1.5e9  # products of one step; wide data get smaller subsets
MIN_SUBSET = 100
MAX_SCALES = 2000  # inputs with a scale of their own; beyond, groups of them share one
N_GROUPS = 64
ALIKE, LEAST_SHARE = 1e-9, 1e-6  # of weights: rounding, and as good as nothing
HEAVIER, ABSENT = 0.2, 0.01  # which rows say what a typical weight is, see there


@dataclass(frozen=True)
class Plan:
    """Steps of the climb: how many on how many rows, first few rows and then more."""

    stages: tuple[tuple[int, int], ...] = ((20, 300), (16, 640))

    @property
    def n_steps(self) -> int:
        """Number of all steps."""
        return sum(steps for steps, _ in self.stages)


@dataclass(frozen=True)
class Scales:
    """Hyperparameters of the kernel; all in the units of the rows they were learned on.

    Attributes
    ----------
    gamma : array of shape (n_features,)
        Inverse length scales.
    noise, amplitude : float
        Variances of the noise and of the function, of targets with unit variance.
    values : tuple of float
        Minus log evidence per row of every step, for diagnostics.
    """

    gamma: Array
    noise: float
    amplitude: float
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Climb:
    """State of the climb: the point and Adam's moments."""

    theta: Array
    first: Array
    second: Array
    step: int = 0
    values: tuple[float, ...] = ()


class ClimbWatch(Protocol):
    """Who looks on a climb, and knows where an earlier one had come to."""

    def before(self) -> Climb | None:
        """State of an unfinished climb by the same rows and random numbers, if there is one."""

    def __call__(self, climb: Climb) -> bool:
        """One more step is done; True ends the climb."""


def negative_log_joint(
    theta: Array, X: Array, targets: Array, weight: Array | None, n_independent: float
) -> tuple[float, Array]:
    """Minus log evidence (times ``n_independent``) minus log prior, and its gradient.

    Parameters
    ----------
    theta : array of shape (3 + n_features,)
        Logarithms of level, noise above its floor and amplitude, then the relative scales.
    X : array of shape (n, n_features)
        Rows, float32 or float64: the precision of the work. In float32 the relative error is
        about 1e-4, which noise floor and subset size keep bounded.
    targets : array of shape (n, m)
        Every column is one draw of the process; the evidence is their mean.
    weight : array of shape (n,), optional
        How many equal rows each row stands for.
    n_independent : float
        How many independent columns the evidence counts for against the prior.

    Notes
    -----
    Costs ``n^3 + 2 n^2 d`` multiplications: a Cholesky factor, the inverse from it, and two
    products with the rows. Raises ``LinAlgError`` where the matrix is not positive definite
    in this precision.
    """
    (n, m), kind = targets.shape, X.dtype.type
    routines = _routines(X.dtype)
    relative = theta[3:]
    gamma, spread, amplitude = np.exp(theta[0] + relative), np.exp(theta[1]), np.exp(theta[2])
    own = np.full(n, spread + NOISE_FLOOR) / (1.0 if weight is None else weight)
    Z = np.ones((n, X.shape[1] + 1), dtype=X.dtype)  # the ones sum the rows of a matrix
    np.multiply(X, gamma.astype(kind), out=Z[:, :-1])
    kernel = kind(amplitude) * rbf_matrix(Z[:, :-1])
    matrix = np.array(kernel.T, order="F")
    matrix.ravel(order="K")[:: n + 1] += own.astype(kind)
    factor, failed = routines.potrf(matrix, lower=1, overwrite_a=1, clean=0)
    if failed:
        raise np.linalg.LinAlgError("the kernel matrix of a subset is not positive definite")
    alpha, _ = routines.potrs(factor, targets.astype(kind), lower=1)
    half_log_det = float(np.log(np.diagonal(factor), dtype=np.float64).sum())
    value = 0.5 * float((targets * alpha).sum()) / m + half_log_det
    # the inverse, in its lower triangle
    inverse, _ = routines.lauum(lower_inverse(factor), lower=1, overwrite_c=1)
    pull = routines.syrk(-1.0 / m, alpha, beta=1.0, c=inverse, lower=1, overwrite_c=1)
    noise_slope = 0.5 * float(np.diagonal(pull) @ (own * spread / (spread + NOISE_FLOOR)))
    if weight is not None:  # equal rows would share their noise (omega - 1) more times
        extra = 0.5 * float((weight - 1.0).sum())
        value += extra * np.log(spread + NOISE_FLOOR) + 0.5 * float(np.log(weight).sum())
        noise_slope += extra * spread / (spread + NOISE_FLOOR)
    pull *= kernel.T
    sums = routines.symm(1.0, pull, Z, lower=1)
    slopes = np.einsum("ij,ij->j", Z[:, :-1], sums[:, :-1], dtype=np.float64)
    slopes -= np.einsum("i,ij,ij->j", sums[:, -1], Z[:, :-1], Z[:, :-1])
    amplitude_slope = 0.5 * float(sums[:, -1].sum(dtype=np.float64))
    gradient = np.concatenate([[slopes.sum(), noise_slope, amplitude_slope], slopes])
    gradient *= n_independent
    gradient[3:] += relative
    return n_independent * value + 0.5 * float(relative @ relative), gradient


def rbf_matrix(Z: Array, others: Array | None = None) -> Array:
    """``exp(-1/2 |z_i - z_j|^2)`` of the rows of one matrix, or of two. NumPy only."""
    others = Z if others is None else others
    half = Z.dtype.type(0.5)
    # a copy: of a matrix with itself NumPy makes one half and mirrors it, which takes longer
    products: Array = Z @ (others.copy() if others is Z else others).T
    products -= half * np.einsum("ij,ij->i", Z, Z)[:, None]
    products -= half * np.einsum("ij,ij->i", others, others)
    return kernel_of(products)


def start_climb(X: Array, n_features: int) -> Climb:
    """First state: one scale for all, from the median distance of some rows."""
    theta = np.zeros(3 + n_features)
    theta[0] = np.log(START_DISTANCE / median_distance(X))
    theta[1] = np.log(START_NOISE)
    return Climb(theta, np.zeros_like(theta), np.zeros_like(theta))


def climb_step(
    climb: Climb,
    n_steps: int,
    data: tuple[Array, Array, Array | None],
    groups: Array | None = None,
) -> Climb:
    """One Adam step on one subset; a subset that says nothing changes nothing.

    Targets are centred and scaled here; a column that is constant on the subset is left out.
    """
    rows, targets, weight = data
    omega = np.ones(len(rows)) if weight is None else weight
    centred = targets - omega @ targets / omega.sum()
    spread = np.sqrt(omega @ centred**2 / omega.sum())
    telling = spread > 1e-12
    step = climb.step + 1
    if not telling.any():
        return replace(climb, step=step)
    centred = centred[:, telling] / spread[telling]
    n_independent = float(np.clip(telling.sum() - 1, 1, MAX_INDEPENDENT))  # one-hot sums to one
    rest = (centred, weight, n_independent)
    try:
        value, slope = _grouped(climb.theta, rows, rest, groups)
    except np.linalg.LinAlgError:  # single precision was not enough for this subset
        value, slope = _grouped(climb.theta, rows.astype(np.float64), rest, groups)
    first = FIRST_DECAY * climb.first + (1.0 - FIRST_DECAY) * slope
    second = SECOND_DECAY * climb.second + (1.0 - SECOND_DECAY) * slope**2
    left = (n_steps - step + 1) / (DECAY_SHARE * n_steps)
    rate = RATE * min(1.0, step / WARM_UP) * min(1.0, left)
    change = first / (1.0 - FIRST_DECAY**step)
    change /= np.sqrt(second / (1.0 - SECOND_DECAY**step)) + 1e-12
    values = (*climb.values, value / (n_independent * omega.sum()))
    return Climb(climb.theta - rate * change, first, second, step, values)


def _grouped(
    theta: Array, X: Array, rest: tuple[Array, Array | None, float], groups: Array | None
) -> tuple[float, Array]:
    """`negative_log_joint` of scales that inputs share in groups."""
    if groups is None:
        return negative_log_joint(theta, X, *rest)
    every = np.concatenate([theta[:3], theta[3:][groups]])
    value, slope = negative_log_joint(every, X, *rest)
    members = np.bincount(groups, minlength=len(theta) - 3)
    sums: Array = np.bincount(groups, slope[3:], len(theta) - 3)
    # the prior counts once for a group, not once for each of its inputs
    sums += (1.0 - members) * theta[3:]
    value -= 0.5 * float(((members - 1.0) * theta[3:] ** 2).sum())
    return value, np.concatenate([slope[:3], sums])


def typical_weight(weight: Array | None) -> float:
    """Geometric mean of positive weights; one where there are none.

    Rows that are as good as absent have no say, however many they are: those that weigh less
    than a hundredth of ``u``, which makes ``sum_i min(omega_i / u, 1) u^(1/5)`` largest. That
    is as many whole rows as there can be, but a few huge ones are no reason to take all others
    for nothing.
    """
    if weight is None:
        return 1.0
    ordered = np.sort(weight[weight > 0.0])
    whole = np.arange(len(ordered), 0, -1)  # rows that weigh as much as this one, or more
    counted = whole + (np.cumsum(ordered) - ordered) / ordered
    bulk = ordered[np.argmax(np.log(counted) + HEAVIER * np.log(ordered))]
    return float(np.exp(np.log(ordered[ordered >= ABSENT * bulk]).mean()))


def relative_weights(weight: Array | None) -> Array | None:
    """Weights as shares of one row: by their geometric mean, at most one; None where all are one.

    A common factor of all weights says nothing about the scales, and a row that weighs as much
    as many is still one row. The geometric mean is moved neither by a few huge weights nor by
    many that are nearly zero.
    """
    if weight is None:
        return None
    shares = np.minimum(weight / typical_weight(weight), 1.0)
    if (shares > 1.0 - ALIKE).all():
        return None
    return np.asarray(np.maximum(shares, LEAST_SHARE))


def learn_scales(
    X: Array | StandardRows,
    targets: Array,
    weight: Array | None,
    rng: np.random.Generator,
    plan: Plan,
    groups: Array | None = None,
    watch: ClimbWatch | None = None,
) -> Scales:
    """Climb the evidence on random subsets of the rows.

    Parameters
    ----------
    X : array of shape (n, n_features)
        Standardised rows, float32 or float64.
    targets : array of shape (n, m)
        One column per function: ``+-1``, one-hot, or a number.
    weight : array of shape (n,), optional
        Positive weights, taken by `relative_weights`.
    watch : ClimbWatch, optional
        Called after each step; True ends the climb. One that had ended goes on from its state,
        and with the same random numbers comes to the same scales, to the last bit.
    groups : array of shape (n_features,), optional
        Number of the group of each input; inputs of a group share a scale.

    Notes
    -----
    Costs ``steps x (size^3 + 2 size^2 d)`` whatever the number of rows.
    """
    n, d = X.shape
    weight = relative_weights(weight)
    n_scales = d if groups is None else int(groups.max()) + 1
    climb = start_climb(X[rng.permutation(n)[:MEDIAN_ROWS]], n_scales)
    before = None if watch is None else watch.before()
    order, used = rng.permutation(n), 0
    n_steps = 0
    widest = max(MIN_SUBSET, int(np.sqrt(STEP_WORK / max(d, 1))))
    for steps, size in plan.stages:
        size = min(size, n, widest)
        for _ in range(steps):
            if used + size > n:
                order, used = rng.permutation(n), 0
            rows = order[used : used + size]
            used += size
            n_steps += 1
            if before is not None and n_steps <= before.step:  # only the subsets are drawn again
                climb = before
                continue
            omega = None if weight is None else weight[rows]
            data = (X[rows], targets[rows], omega)
            climb = climb_step(climb, plan.n_steps, data, groups)
            if watch is not None and watch(climb):
                return scales_of(climb, groups)
    return scales_of(climb, groups)


def input_groups(Z: StandardRows, targets: Array) -> Array | None:
    """Which inputs share a scale; None where each has its own.

    Thousands of scales cannot be learned from hundreds of rows: inputs that tell about as much
    of the targets by themselves (by their largest correlation) share one.
    """
    n, d = Z.shape
    if d <= MAX_SCALES:
        return None
    centred = targets - targets.mean(axis=0)
    told = np.abs(Z.products(centred / (centred.std(axis=0) + 1e-12))) / n
    order = np.argsort(told.max(axis=1), kind="stable")
    groups = np.empty(d, dtype=np.intp)
    groups[order] = np.arange(d) * N_GROUPS // d
    return groups


def scales_of(climb: Climb, groups: Array | None = None) -> Scales:
    """Hyperparameters of the state, one scale for every input."""
    theta = climb.theta
    relative = theta[3:] if groups is None else theta[3:][groups]
    return Scales(
        np.exp(theta[0] + relative),
        float(np.exp(theta[1]) + NOISE_FLOOR),
        float(np.exp(theta[2])),
        climb.values,
    )


def median_distance(X: Array) -> float:
    """Median distance of distinct rows; one where all rows are equal."""
    X = X.astype(np.float64)
    squares = np.einsum("ij,ij->i", X, X)
    pairs = (squares[:, None] + squares - 2.0 * X @ X.T)[np.triu_indices(len(X), 1)]
    apart = pairs[pairs > 1e-12 * max(float(squares.max(initial=0.0)), 1e-300)]
    return float(np.sqrt(np.median(apart))) if len(apart) else 1.0


@dataclass(frozen=True)
class _Routines:
    """The BLAS and LAPACK routines of one precision."""

    syrk: Any
    symm: Any
    potrf: Any
    potrs: Any
    lauum: Any


_SINGLE = _Routines(blas.ssyrk, blas.ssymm, lapack.spotrf, lapack.spotrs, lapack.slauum)
_DOUBLE = _Routines(blas.dsyrk, blas.dsymm, lapack.dpotrf, lapack.dpotrs, lapack.dlauum)


def _routines(dtype: Any) -> _Routines:
    return _SINGLE if dtype == np.float32 else _DOUBLE
