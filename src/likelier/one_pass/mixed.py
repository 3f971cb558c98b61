"""Classes that were not seen together: their scores, made comparable with a sample of all rows.

Sites of rows that came in the order of their classes, or to models that knew other classes, give
every class weights that separate it from those it was seen with. What is missing is how scores of
classes compare that never met. That is little: a matrix that mixes the scores and a level for each,
found as the largest posterior over the sample of rows of all classes. It is used if it predicts
a fifth of the sample, which it was not learned from, no worse than the scores as they are.
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

MAX_STEPS = 20  # from the scores as they are, in the metric of the rows
MORE_STEPS = 6  # once the rows that judged it are learned from too
MEMORY = 20  # changes that L-BFGS remembers
MIX_PRECISION = 3.0  # of the prior of what an ordinary score of one class adds to another's
LEVEL_PRECISION = 0.01
FOLDS = 5  # one in so many rows of the sample judges
MAX_DIRECTIONS = 64  # of the scores, that are mixed
MAX_ENTRIES = 8192  # of directions x classes: with many classes there are fewer directions
NO_DIRECTION = 1e-9  # of the largest variance: what rounding leaves


def find_mixing(mean: Array, known: Array, rows: Rows, factor: float, has_level: bool) -> Array:
    """Matrix of the scores and, below it, the levels; no rows at all if `mean` is to stay.

    Costs a product of rows x coordinates x classes, one of rows x classes^2, and at most some 30
    steps of rows x (classes + 8,192), or of rows x classes x min(classes, coordinates, 64) if that
    is less.

    Parameters
    ----------
    mean : ndarray of shape (n_coordinates, n_classes)
        Weights.
    known : ndarray
        Numbers of the classes that have rows, two or more.
    rows : ndarray of shape (n_rows, n_coordinates), (n_rows,) and (n_rows,)
        Coordinates of the sample, class of every row, and the weight it stands for.
    factor : float
        Scale of the scores.
    has_level : bool
        Whether the last coordinate is constant.
    """
    Z, codes, weight = rows
    output = np.searchsorted(known, codes)
    share = weight * (len(weight) / weight.sum())  # as much information as there are rows
    problem = mixing_problem(factor * (Z @ _centred(mean[:, known])), output, share, has_level)
    judge = np.arange(len(output)) % FOLDS == FOLDS - 1  # rows are sorted by class: some of each
    point = problem.part(~judge).solved(problem.start(), MAX_STEPS)
    if not _predicts(problem.part(judge), point):
        return np.zeros((0, len(known)))
    return np.vstack(problem.mixture(problem.solved(point, MORE_STEPS)))


def apply_mixing(mixing: Array, mean: Array, known: Array, rows: float, factor: float) -> Array:
    """Weights whose scores are mixed; classes without rows are put below those of ``rows`` rows."""
    if not len(mixing):
        return mean
    out = np.empty_like(mean)
    found = _centred(mean[:, known]) @ mixing[:-1]
    found[-1] += mixing[-1] / factor
    out[:, known] = found
    absent = np.setdiff1d(np.arange(mean.shape[1]), known)
    out[:, absent] = found.mean(axis=1, keepdims=True)  # never above the largest
    if mixing[-1].any():
        out[-1, absent] -= np.log(2.0 * rows) / factor
    return out


@dataclass(frozen=True)
class MixingProblem:
    """Scores to be mixed, and coordinates of the mixture in which its posterior is about round.

    Mixed are the directions in which scores vary most, all of them for few classes. A rotation
    leaves the prior as it is.
    """

    scores: Array  # (classes, rows)
    inputs: Array  # (rows, directions and, with levels, one)
    codes: Array
    weight: Array
    directions: Array  # (classes, directions): scores times these are the inputs
    prior: Array  # of the inputs
    root: Array  # of the curvature of the inputs
    unit: float  # of the scale of the scores

    def part(self, rows: Array) -> MixingProblem:
        """The same for some of the rows."""
        return replace(self, scores=np.ascontiguousarray(self.scores[:, rows]),
                       inputs=self.inputs[rows], codes=self.codes[rows],
                       weight=self.weight[rows])  # fmt: skip

    def start(self) -> Array:
        """The scores as they are."""
        return np.zeros(1 + self.inputs.shape[1] * len(self.scores))

    def change(self, point: Array) -> tuple[float, Array]:
        """Scale, and what the inputs add to every class."""
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
        """Negative logarithm of the posterior, and its slope."""
        _, added = self.change(point)
        loss, residual = softmax_terms(self.outputs(point), self.codes)
        residual *= self.weight
        value = float(self.weight @ loss) + 0.5 * float((self.prior @ added**2).sum())
        slope = (residual @ self.inputs).T + self.prior[:, None] * added
        inner = solve_triangular(self.root, slope, lower=True).ravel()
        return value, np.append(self.unit * float(np.vdot(residual, self.scores)), inner)

    def solved(self, start: Array, steps: int) -> Array:
        """A point close to the largest posterior, of a scale that is not negative."""
        options: Any = {"maxiter": steps, "maxcor": MEMORY}
        bounds = [(-1.0 / self.unit, None)] + [(None, None)] * (len(start) - 1)
        found = minimize(self.energy, start, jac=True, method="L-BFGS-B", bounds=bounds,
                         options=options)  # fmt: skip
        return np.asarray(found.x)

    def mixture(self, point: Array) -> tuple[Array, Array]:
        """Matrix and levels of a point."""
        scale, added = self.change(point)
        n_directions = self.directions.shape[1]
        matrix = scale * np.eye(len(self.scores)) + self.directions @ added[:n_directions]
        return matrix, added[n_directions:].sum(axis=0)


def mixing_problem(scores: Array, codes: Array, weight: Array, has_level: bool) -> MixingProblem:
    """The problem for scores (rows x classes); the scores in proportion are its prior mean."""
    directions = _directions(scores, weight)
    inputs = np.hstack([scores @ directions, np.ones((len(scores), int(has_level)))])
    prior = np.append(
        np.full(directions.shape[1], MIX_PRECISION), np.full(int(has_level), LEVEL_PRECISION)
    )
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    doubt = weight * (p * (1.0 - p)).mean(axis=1)  # curvature of a class, on average
    curvature = (inputs * doubt[:, None]).T @ inputs + np.diag(prior)
    centred = scores - (p * scores).sum(axis=1, keepdims=True)
    of_scale = float(weight @ (p * centred**2).sum(axis=1))
    return MixingProblem(
        np.ascontiguousarray(scores.T), inputs, codes, weight, directions, prior,
        cholesky(curvature, lower=True), 1.0 / np.sqrt(max(of_scale, 1.0)),
    )  # fmt: skip


def _directions(scores: Array, weight: Array) -> Array:
    """Directions of the scores, each class in units of its own, that have the largest variance."""
    spread = np.sqrt(weight @ scores**2 / weight.sum())
    spread[spread == 0.0] = 1.0
    n_classes = scores.shape[1]
    rooted = scores * np.sqrt(weight)[:, None] / spread
    variance, axes = np.linalg.eigh(rooted.T @ rooted)
    most = max(1, min(MAX_DIRECTIONS, MAX_ENTRIES // n_classes, n_classes))
    kept = np.flatnonzero(variance > NO_DIRECTION * variance[-1])[-most:]
    return np.asarray(axes[:, kept] / spread[:, None])


def _predicts(problem: MixingProblem, point: Array) -> bool:
    """Whether mixed scores of these rows have a lower loss, and no more errors, than the old."""
    old, new = (_judged(outputs, problem) for outputs in (problem.scores, problem.outputs(point)))
    return bool(new[0] < old[0] and new[1] <= old[1])


def _judged(outputs: Array, problem: MixingProblem) -> Array:
    """Weighted loss and number of errors."""
    wrong = outputs.argmax(axis=0) != problem.codes
    loss, _ = softmax_terms(outputs.copy(), problem.codes)
    return np.array([problem.weight @ loss, problem.weight @ wrong])


def _centred(mean: Array) -> Array:
    return np.asarray(mean - mean.mean(axis=1, keepdims=True))
