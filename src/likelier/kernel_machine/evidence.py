"""Length scales by maximising the evidence of an exact Gaussian process on random subsets.

For rows ``x``, targets ``t`` (centred, of unit variance) and weights ``omega``:
``t ~ N(0, a R + s diag(1/omega))``, ``R_ij = exp(-1/2 sum_j gamma_j^2 (x_ij - x_kj)^2)``. Adam
ascends the marginal likelihood in the logarithms of ``gamma = exp(level + relative)``, ``s`` and
``a``, averaged over the target columns, with a prior ``N(0, 1)`` on each relative scale: an input
needs evidence to deviate from the common level. Every step uses a fresh subset, which avoids
overfitting any of them.

The likelihood treats a row of weight omega exactly as omega equal rows. The ascent itself uses
relative weights of at most one: duplicates with equal targets would drive the noise to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import blas, lapack

from likelier.base import Array, Engine, Inference, Info, Matrix
from likelier.fitting.standardize import StandardRows
from likelier.kernel_machine.features import kernel_of
from likelier.kernel_machine.triangles import lower_inverse

START_NOISE, NOISE_FLOOR = 0.3, 1e-3
# A typical initial kernel value is exp(-1.5^2 / 2) = 0.32: neither all rows similar nor all
# dissimilar, where the gradient would vanish.
START_DISTANCE = 1.5
RATE, FIRST_DECAY, SECOND_DECAY = 0.2, 0.8, 0.95
WARM_UP, DECAY_FRACTION = 5, 0.4
MAX_INDEPENDENT = 3  # one-hot columns are not independent
MEDIAN_ROWS = 300
STEP_WORK = 1.5e9  # multiplications per step; wide data get smaller subsets
MIN_SUBSET = 100
MAX_SCALES = 2000  # above this number of inputs, groups share a scale
N_GROUPS = 64
TOLERANCE, MIN_RELATIVE_WEIGHT = 1e-9, 1e-6  # relative weights: equal up to rounding, and the floor
SIZE_EXPONENT, NEGLIGIBLE = 0.2, 0.01  # see typical_weight


@dataclass(frozen=True)
class Plan:
    """Schedule of the ascent: (number of steps, subset size) per stage."""

    stages: tuple[tuple[int, int], ...] = ((20, 300), (16, 640))

    @property
    def n_steps(self) -> int:
        """Total number of steps."""
        return sum(steps for steps, _ in self.stages)

    def size(self, step: int) -> int:
        """Subset size of a step."""
        for steps, size in self.stages:
            if step < steps:
                return size
            step -= steps
        return self.stages[-1][1]


@dataclass(frozen=True)
class Scales:
    """Kernel hyperparameters, in the units of the rows they were learned on.

    Attributes
    ----------
    gamma : array of shape (n_features,)
        Inverse length scales.
    noise, amplitude : float
        Variances of the noise and of the function, for targets of unit variance.
    values : tuple of float
        Negative log evidence per row at every step, for diagnostics.
    """

    gamma: Array
    noise: float
    amplitude: float
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class AscentState:
    """State of the ascent: the parameters and Adam's moments."""

    theta: Array
    first: Array
    second: Array
    step: int = 0
    values: tuple[float, ...] = ()


def negative_log_joint(
    theta: Array, X: Array, targets: Array, weight: Array | None, n_independent: float
) -> tuple[float, Array]:
    """Negative log evidence (times ``n_independent``) minus log prior, and its gradient.

    Parameters
    ----------
    theta : array of shape (3 + n_features,)
        Logarithms of level, noise above its floor and amplitude, then the relative scales.
    X : array of shape (n, n_features)
        Rows, float32 or float64, which sets the working precision. In float32 the relative error
        is about 1e-4, bounded by the noise floor and the subset size.
    targets : array of shape (n, m)
        Every column is one draw of the process; the evidence is their mean.
    weight : array of shape (n,), optional
        Number of equal rows each row represents.
    n_independent : float
        Effective number of independent columns, which weighs the evidence against the prior.

    Notes
    -----
    Costs ``n^3 + 2 n^2 d`` multiplications: a Cholesky factor, its inverse, and two products with
    the rows. Raises ``LinAlgError`` if the matrix is not positive definite in this precision.
    """
    (n, m), kind = targets.shape, X.dtype.type
    routines = _routines(X.dtype)
    relative = theta[3:]
    gamma, excess_noise, amplitude = np.exp(theta[0] + relative), np.exp(theta[1]), np.exp(theta[2])
    diagonal = np.full(n, excess_noise + NOISE_FLOOR) / (1.0 if weight is None else weight)
    Z = np.ones((n, X.shape[1] + 1), dtype=X.dtype)  # the column of ones yields row sums
    np.multiply(X, gamma.astype(kind), out=Z[:, :-1])
    kernel = kind(amplitude) * rbf_matrix(Z[:, :-1])
    matrix = np.array(kernel.T, order="F")
    matrix.ravel(order="K")[:: n + 1] += diagonal.astype(kind)
    factor, failed = routines.potrf(matrix, lower=1, overwrite_a=1, clean=0)
    if failed:
        raise np.linalg.LinAlgError("the kernel matrix of a subset is not positive definite")
    alpha, _ = routines.potrs(factor, targets.astype(kind), lower=1)
    half_log_det = float(np.log(np.diagonal(factor), dtype=np.float64).sum())
    value = 0.5 * float((targets * alpha).sum()) / m + half_log_det
    # lower triangle of the inverse
    inverse, _ = routines.lauum(lower_inverse(factor), lower=1, overwrite_c=1)
    sensitivity = routines.syrk(-1.0 / m, alpha, beta=1.0, c=inverse, lower=1, overwrite_c=1)
    noise_gradient = 0.5 * float(
        np.diagonal(sensitivity) @ (diagonal * excess_noise / (excess_noise + NOISE_FLOOR))
    )
    if weight is not None:  # likelihood terms of the (omega - 1) additional equal rows
        extra = 0.5 * float((weight - 1.0).sum())
        value += extra * np.log(excess_noise + NOISE_FLOOR) + 0.5 * float(np.log(weight).sum())
        noise_gradient += extra * excess_noise / (excess_noise + NOISE_FLOOR)
    sensitivity *= kernel.T
    sums = routines.symm(1.0, sensitivity, Z, lower=1)
    scale_gradients = np.einsum("ij,ij->j", Z[:, :-1], sums[:, :-1], dtype=np.float64)
    scale_gradients -= np.einsum("i,ij,ij->j", sums[:, -1], Z[:, :-1], Z[:, :-1])
    amplitude_gradient = 0.5 * float(sums[:, -1].sum(dtype=np.float64))
    gradient = np.concatenate(
        [[scale_gradients.sum(), noise_gradient, amplitude_gradient], scale_gradients]
    )
    gradient *= n_independent
    gradient[3:] += relative
    return n_independent * value + 0.5 * float(relative @ relative), gradient


def rbf_matrix(Z: Array, others: Array | None = None) -> Array:
    """``exp(-1/2 |z_i - z_j|^2)`` between the rows of one or two matrices, in NumPy."""
    others = Z if others is None else others
    half = Z.dtype.type(0.5)
    # copied: NumPy's symmetric product (one half, mirrored) is slower
    products: Array = Z @ (others.copy() if others is Z else others).T
    products -= half * np.einsum("ij,ij->i", Z, Z)[:, None]
    products -= half * np.einsum("ij,ij->i", others, others)
    return kernel_of(products)


def start_ascent(X: Array, n_features: int) -> AscentState:
    """Initial state: one common scale, from the median distance of some rows."""
    theta = np.zeros(3 + n_features)
    theta[0] = np.log(START_DISTANCE / median_distance(X))
    theta[1] = np.log(START_NOISE)
    return AscentState(theta, np.zeros_like(theta), np.zeros_like(theta))


def ascent_step(
    state: AscentState,
    n_steps: int,
    data: tuple[Array, Array, Array | None],
    groups: Array | None = None,
) -> AscentState:
    """One Adam step on one subset.

    Targets are centred and scaled here. Columns that are constant on the subset are dropped; if all
    are, only the step counter changes.
    """
    rows, targets, weight = data
    omega = np.ones(len(rows)) if weight is None else weight
    centred = targets - omega @ targets / omega.sum()
    std = np.sqrt(omega @ centred**2 / omega.sum())
    varying = std > 1e-12
    step = state.step + 1
    if not varying.any():
        return replace(state, step=step)
    centred = centred[:, varying] / std[varying]
    # one-hot columns sum to one
    n_independent = float(np.clip(varying.sum() - 1, 1, MAX_INDEPENDENT))
    arguments = (centred, weight, n_independent)
    try:
        value, gradient = _grouped(state.theta, rows, arguments, groups)
    except np.linalg.LinAlgError:  # single precision was insufficient for this subset
        value, gradient = _grouped(state.theta, rows.astype(np.float64), arguments, groups)
    first = FIRST_DECAY * state.first + (1.0 - FIRST_DECAY) * gradient
    second = SECOND_DECAY * state.second + (1.0 - SECOND_DECAY) * gradient**2
    remaining = (n_steps - step + 1) / (DECAY_FRACTION * n_steps)
    rate = RATE * min(1.0, step / WARM_UP) * min(1.0, remaining)
    change = first / (1.0 - FIRST_DECAY**step)
    change /= np.sqrt(second / (1.0 - SECOND_DECAY**step)) + 1e-12
    values = (*state.values, value / (n_independent * omega.sum()))
    return AscentState(state.theta - rate * change, first, second, step, values)


def _grouped(
    theta: Array, X: Array, arguments: tuple[Array, Array | None, float], groups: Array | None
) -> tuple[float, Array]:
    """`negative_log_joint` with scales shared by groups of inputs."""
    if groups is None:
        return negative_log_joint(theta, X, *arguments)
    every = np.concatenate([theta[:3], theta[3:][groups]])
    value, gradient = negative_log_joint(every, X, *arguments)
    members = np.bincount(groups, minlength=len(theta) - 3)
    sums: Array = np.bincount(groups, gradient[3:], len(theta) - 3)
    # the prior counts once per group
    sums += (1.0 - members) * theta[3:]
    value -= 0.5 * float(((members - 1.0) * theta[3:] ** 2).sum())
    return value, np.concatenate([gradient[:3], sums])


def typical_weight(weight: Array | None) -> float:
    """Geometric mean of the positive weights, negligible ones excluded; one if there are none.

    Weights below a hundredth of ``u`` are excluded, where ``u`` maximises
    ``sum_i min(omega_i / u, 1) u^(1/5)``: the effective number of rows, with a mild preference for
    larger ``u`` so that neither many tiny weights nor a few huge ones dominate.
    """
    if weight is None:
        return 1.0
    ordered = np.sort(weight[weight > 0.0])
    n_heavier = np.arange(len(ordered), 0, -1)  # number of rows of at least this weight
    effective_size = n_heavier + (np.cumsum(ordered) - ordered) / ordered
    bulk = ordered[np.argmax(np.log(effective_size) + SIZE_EXPONENT * np.log(ordered))]
    return float(np.exp(np.log(ordered[ordered >= NEGLIGIBLE * bulk]).mean()))


def relative_weights(weight: Array | None) -> Array | None:
    """Weights relative to `typical_weight`, clipped at one; None if all are one.

    A common factor of all weights carries no information about the scales, and a heavy row is still
    one row.
    """
    if weight is None:
        return None
    relative = np.minimum(weight / typical_weight(weight), 1.0)
    if (relative > 1.0 - TOLERANCE).all():
        return None
    return np.asarray(np.maximum(relative, MIN_RELATIVE_WEIGHT))


@dataclass(frozen=True)
class EvidenceAscent(Inference):
    """Adam on the log evidence of random subsets of standardised rows.

    Costs ``steps x (size^3 + 2 size^2 d)``, independently of the number of rows.

    Parameters
    ----------
    columns : callable
        From encoded targets to one column per function: ``+-1``, one-hot or continuous.
    plan : Plan
    groups : array of shape (n_features,), optional
        Group index of each input; inputs of a group share a scale.
    dense : callable
        From some rows of the engine to standardised dense rows.
    """

    resumable: ClassVar[bool] = True

    columns: Callable[[Array], Array]
    plan: Plan
    groups: Array | None = None
    dense: Callable[[Matrix], Array] = np.asarray

    def init(self, model: Any, engine: Engine) -> AscentState:
        """State with one common scale; ``model`` is not needed."""
        few = self.dense(engine.draw(MEDIAN_ROWS).compact().X)
        n_scales = engine.n_features if self.groups is None else int(self.groups.max()) + 1
        return start_ascent(few, n_scales)

    def step(self, state: AscentState, engine: Engine) -> tuple[AscentState, Info]:
        """One step on a fresh subset.

        Subsets do not overlap until all rows have been used: that halves the spread of the result.
        """
        n = int(engine.n_rows or 1)
        largest = max(MIN_SUBSET, int(np.sqrt(STEP_WORK / max(engine.n_features, 1))))
        epoch = start = size = 0
        for step in range(state.step + 1):
            start += size
            size = min(self.plan.size(step), n, largest)
            if start + size > n:
                epoch, start = epoch + 1, 0
        rows = engine.stream(epoch, 0).permutation(n)[start : start + size]
        batch = replace(engine.draw(1), rows=rows).compact()  # which shares the rows
        data = (self.dense(batch.X), self.columns(np.asarray(batch.y)), batch.weight)
        state = ascent_step(state, self.plan.n_steps, data, self.groups)
        value = state.values[-1] if state.values else np.nan
        return state, Info(value, converged=state.step >= self.plan.n_steps)

    def posterior(self, state: AscentState) -> Any:
        """The scales."""
        return scales_of(state, self.groups)


def input_groups(Z: StandardRows, targets: Array) -> Array | None:
    """Groups of inputs that share a scale; None if each has its own.

    Thousands of scales cannot be learned from hundreds of rows. Inputs are grouped by their largest
    absolute correlation with the targets.
    """
    n, d = Z.shape
    if d <= MAX_SCALES:
        return None
    centred = targets - targets.mean(axis=0)
    correlation = np.abs(Z.products(centred / (centred.std(axis=0) + 1e-12))) / n
    order = np.argsort(correlation.max(axis=1), kind="stable")
    groups = np.empty(d, dtype=np.intp)
    groups[order] = np.arange(d) * N_GROUPS // d
    return groups


def scales_of(state: AscentState, groups: Array | None = None) -> Scales:
    """Hyperparameters of a state, with one scale per input."""
    theta = state.theta
    relative = theta[3:] if groups is None else theta[3:][groups]
    return Scales(
        np.exp(theta[0] + relative),
        float(np.exp(theta[1]) + NOISE_FLOOR),
        float(np.exp(theta[2])),
        state.values,
    )


def median_distance(X: Array) -> float:
    """Median distance of distinct rows; one if all rows are equal."""
    X = X.astype(np.float64)
    squares = np.einsum("ij,ij->i", X, X)
    pairs = (squares[:, None] + squares - 2.0 * X @ X.T)[np.triu_indices(len(X), 1)]
    distinct = pairs[pairs > 1e-12 * max(float(squares.max(initial=0.0)), 1e-300)]
    return float(np.sqrt(np.median(distinct))) if len(distinct) else 1.0


@dataclass(frozen=True)
class _Routines:
    """BLAS and LAPACK routines of one precision."""

    syrk: Any
    symm: Any
    potrf: Any
    potrs: Any
    lauum: Any


_SINGLE = _Routines(blas.ssyrk, blas.ssymm, lapack.spotrf, lapack.spotrs, lapack.slauum)
_DOUBLE = _Routines(blas.dsyrk, blas.dsymm, lapack.dpotrf, lapack.dpotrs, lapack.dlauum)


def _routines(dtype: Any) -> _Routines:
    return _SINGLE if dtype == np.float32 else _DOUBLE
