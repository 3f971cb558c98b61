"""Mixing of scores of classes that were not seen together, fitted on a sample of all rows.

Sites of rows that came in the order of their classes, or to models that knew other classes, give
every class weights that separate it from those it was seen with. The comparison of scores across
such groups is missing. It takes few parameters: a matrix that mixes the scores and an offset per
class, found as the posterior mode over a sample of rows of all classes. The mixing is applied only
if it improves the loss on a held-out fifth of the sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from likelier.base import Array
from likelier.one_pass.initial_batch import softmax_terms

Rows = tuple[Array, Array, Array]

MAX_STEPS = 20
REFIT_STEPS = 6  # with the validation rows included
LBFGS_MEMORY = 20
MIX_PRECISION = 3.0  # prior precision of what a typical score of one class adds to another
OFFSET_PRECISION = 0.01
FOLDS = 5  # one row of the sample in five validates
MAX_DIRECTIONS = 64  # directions of the scores that are mixed
MAX_ENTRIES = 8192  # directions x classes
MIN_VARIANCE_RATIO = 1e-9  # relative to the largest; smaller variances are rounding errors


def find_mixing(mean: Array, known: Array, rows: Rows, factor: float, has_intercept: bool) -> Array:
    """Mixing matrix with the offsets as last row; empty if the scores are to stay as they are.

    Costs a product of rows x coordinates x classes, one of rows x classes^2, and at most some 30
    steps of rows x (classes + 8,192), or of rows x classes x min(classes, coordinates, 64) if that
    is less.

    Parameters
    ----------
    mean : ndarray of shape (n_coordinates, n_classes)
        Weights.
    known : ndarray
        Indices of the classes that have rows, two or more.
    rows : ndarray of shape (n_rows, n_coordinates), (n_rows,) and (n_rows,)
        Coordinates of the sample, class of every row, and importance weights.
    factor : float
        Scale of the scores.
    has_intercept : bool
        Whether the last coordinate is constant.
    """
    Z, codes, weight = rows
    output = np.searchsorted(known, codes)
    row_weight = weight * (len(weight) / weight.sum())  # mean one
    problem = mixing_problem(
        factor * (Z @ _centred(mean[:, known])), output, row_weight, has_intercept
    )
    # rows are sorted by class, so the split is stratified
    held_out = np.arange(len(output)) % FOLDS == FOLDS - 1
    point = problem.subset(~held_out).solve(problem.start(), MAX_STEPS)
    if not _improves(problem.subset(held_out), point):
        return np.zeros((0, len(known)))
    return np.vstack(problem.mixture(problem.solve(point, REFIT_STEPS)))


def apply_mixing(mixing: Array, mean: Array, known: Array, rows: float, factor: float) -> Array:
    """Weights after mixing; classes without rows get log-odds below those of one in ``rows``."""
    if not len(mixing):
        return mean
    out = np.empty_like(mean)
    mixed = _centred(mean[:, known]) @ mixing[:-1]
    mixed[-1] += mixing[-1] / factor
    out[:, known] = mixed
    absent = np.setdiff1d(np.arange(mean.shape[1]), known)
    out[:, absent] = mixed.mean(axis=1, keepdims=True)  # never above the largest
    if mixing[-1].any():
        out[-1, absent] -= np.log(2.0 * rows) / factor
    return out


@dataclass(frozen=True)
class MixingProblem:
    """Scores to be mixed, in coordinates in which the posterior of the mixing is well conditioned.

    The directions in which scores vary most are mixed; all directions, if there are few classes.
    The prior is invariant under rotations.
    """

    scores: Array  # (classes, rows)
    inputs: Array  # (rows, directions), followed by ones if there are offsets
    codes: Array
    weight: Array
    directions: Array  # (classes, directions): scores times these are the inputs
    prior: Array  # precisions of the inputs' coefficients
    root: Array  # Cholesky factor of the inputs' curvature
    unit: float  # step of the scale of the scores

    def subset(self, rows: Array) -> MixingProblem:
        """The same problem for some of the rows."""
        return replace(self, scores=np.ascontiguousarray(self.scores[:, rows]),
                       inputs=self.inputs[rows], codes=self.codes[rows],
                       weight=self.weight[rows])  # fmt: skip

    def start(self) -> Array:
        """The point that leaves the scores unchanged."""
        return np.zeros(1 + self.inputs.shape[1] * len(self.scores))

    def change(self, point: Array) -> tuple[float, Array]:
        """Scale of the scores, and coefficients of what the inputs add to every class."""
        shape = (self.inputs.shape[1], len(self.scores))
        added = solve_triangular(self.root, point[1:].reshape(shape), lower=True, trans=1)
        return 1.0 + self.unit * float(point[0]), np.asarray(added)

    def outputs(self, point: Array) -> Array:
        """Mixed scores, classes x rows."""
        scale, added = self.change(point)
        outputs = added.T @ self.inputs.T
        outputs += scale * self.scores
        return np.asarray(outputs)

    def energy(self, point: Array) -> tuple[float, Array]:
        """Negative log posterior and its gradient."""
        _, added = self.change(point)
        loss, residual = softmax_terms(self.outputs(point), self.codes)
        residual *= self.weight
        value = float(self.weight @ loss) + 0.5 * float((self.prior @ added**2).sum())
        gradient = (residual @ self.inputs).T + self.prior[:, None] * added
        inner = solve_triangular(self.root, gradient, lower=True).ravel()
        return value, np.append(self.unit * float(np.vdot(residual, self.scores)), inner)

    def solve(self, start: Array, steps: int) -> Array:
        """Approximate posterior mode with a non-negative scale."""
        options: Any = {"maxiter": steps, "maxcor": LBFGS_MEMORY}
        bounds = [(-1.0 / self.unit, None)] + [(None, None)] * (len(start) - 1)
        result = minimize(self.energy, start, jac=True, method="L-BFGS-B", bounds=bounds,
                         options=options)  # fmt: skip
        return np.asarray(result.x)

    def mixture(self, point: Array) -> tuple[Array, Array]:
        """Mixing matrix and offsets of a point."""
        scale, added = self.change(point)
        n_directions = self.directions.shape[1]
        matrix = scale * np.eye(len(self.scores)) + self.directions @ added[:n_directions]
        return matrix, added[n_directions:].sum(axis=0)


def mixing_problem(
    scores: Array, codes: Array, weight: Array, has_intercept: bool
) -> MixingProblem:
    """The problem for scores (rows x classes); its prior mean is proportional to the scores."""
    directions = _directions(scores, weight)
    inputs = np.hstack([scores @ directions, np.ones((len(scores), int(has_intercept)))])
    prior = np.append(
        np.full(directions.shape[1], MIX_PRECISION), np.full(int(has_intercept), OFFSET_PRECISION)
    )
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    row_curvature = weight * (p * (1.0 - p)).mean(axis=1)  # mean over the classes
    curvature = (inputs * row_curvature[:, None]).T @ inputs + np.diag(prior)
    centred = scores - (p * scores).sum(axis=1, keepdims=True)
    scale_curvature = float(weight @ (p * centred**2).sum(axis=1))
    return MixingProblem(
        np.ascontiguousarray(scores.T), inputs, codes, weight, directions, prior,
        cholesky(curvature, lower=True), 1.0 / np.sqrt(max(scale_curvature, 1.0)),
    )  # fmt: skip


def _directions(scores: Array, weight: Array) -> Array:
    """Principal directions of the scores, each class scaled to unit mean square."""
    scale = np.sqrt(weight @ scores**2 / weight.sum())
    scale[scale == 0.0] = 1.0
    n_classes = scores.shape[1]
    rooted = scores * np.sqrt(weight)[:, None] / scale
    variance, axes = np.linalg.eigh(rooted.T @ rooted)
    most = max(1, min(MAX_DIRECTIONS, MAX_ENTRIES // n_classes, n_classes))
    kept = np.flatnonzero(variance > MIN_VARIANCE_RATIO * variance[-1])[-most:]
    return np.asarray(axes[:, kept] / scale[:, None])


def _improves(problem: MixingProblem, point: Array) -> bool:
    """Whether mixing lowers the loss on these rows without adding errors."""
    old, new = (
        _loss_and_errors(outputs, problem) for outputs in (problem.scores, problem.outputs(point))
    )
    return bool(new[0] < old[0] and new[1] <= old[1])


def _loss_and_errors(outputs: Array, problem: MixingProblem) -> Array:
    """Weighted loss and weight of errors."""
    wrong = outputs.argmax(axis=0) != problem.codes
    loss, _ = softmax_terms(outputs.copy(), problem.codes)
    return np.array([problem.weight @ loss, problem.weight @ wrong])


def _centred(mean: Array) -> Array:
    return np.asarray(mean - mean.mean(axis=1, keepdims=True))
