"""Fitting of a local expert, and validation of the hyperparameters shared by all of them.

Kernel width and prior precision are validated on held-out rows of a few regions, at full density.
An expert is first fitted to its optimum; later rows update its posterior as their prior, so no
rows need to be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Batch
from likelier.kernel_machine.expert_model import expert_map
from likelier.kernel_machine.features import LandmarkMap
from likelier.kernel_machine.laplace import WeightPosterior, laplace_posterior
from likelier.kernel_machine.search import Choice, IndependentFits, is_significant, output_precision
from likelier.kernel_machine.softmax_weights import (
    ClassLoss,
    Prior,
    WeightProblem,
    fit_output_weights,
    in_memory_reduction,
    ridge,
    stored_features,
)
from likelier.kernel_machine.triangles import lower_inverse

PRECISION_STEP, SCALE_STEP = 4.0, 2.0
START_SCALES = (1.0, 2.0, 4.0, 8.0)  # a coarse grid, since the loss may have several minima
N_ROUNDS = 6
LIMITS = (1e-3, 64.0)
VALIDATION_TOL = 1e-2
FIXED_INTERCEPT = 1e4


@dataclass(frozen=True)
class Region:
    """Rows of one region: scaled, with class codes, weights and scores of the global model.

    In a regression ``codes`` are the targets, and ``variance`` may hold two variances of the global
    scores, in units of the noise and as if the row had been left out: that of the weights, and that
    outside of the features; and the ratio of the in-sample to the leave-one-out residual.
    """

    Z: Array
    codes: Array
    weight: Array | None
    offset: Array
    variance: Array | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.codes)

    def take(self, rows: Array) -> Region:
        """Subset of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        variance = None if self.variance is None else self.variance[rows]
        return Region(self.Z[rows], self.codes[rows], weight, self.offset[rows], variance)


def join_regions(parts: list[Region]) -> Region:
    """Concatenate the rows of several blocks."""
    weights = [part.weight for part in parts if part.weight is not None]
    variances = [part.variance for part in parts if part.variance is not None]
    return Region(
        np.concatenate([part.Z for part in parts]),
        np.concatenate([part.codes for part in parts]),
        np.concatenate(weights) if weights else None,
        np.concatenate([part.offset for part in parts]),
        np.concatenate(variances) if variances else None,
    )


def expert_problem(
    region: Region, feature_map: LandmarkMap, loss: ClassLoss, prior: Prior
) -> tuple[WeightProblem, Array]:
    """Convex problem of an expert, and its features."""
    Phi = feature_map(region.Z, np.float32)
    offset = region.offset.astype(np.float32, copy=False)
    reduce = in_memory_reduction(Phi, region.codes, region.weight)

    def known(batch: Batch) -> Array:
        return offset[batch.start : batch.start + batch.n_rows]

    return WeightProblem(reduce, stored_features, loss, prior, known), Phi


def first_prior(feature_map: LandmarkMap, choice: Choice, loss: ClassLoss) -> Prior:
    """Prior of an expert: zero correction, vanishing far from its rows.

    The intercept, which would remain there, is fixed at zero: it belongs to the global model.
    """
    zero = np.zeros((feature_map.n_features, loss.n_outputs))
    return Prior(
        ridge(feature_map.n_features, output_precision(choice, loss), FIXED_INTERCEPT), zero
    )


def fit_expert(
    region: Region, feature_map: LandmarkMap, loss: ClassLoss, choice: Choice, tol: float
) -> WeightPosterior:
    """Optimum and posterior of an expert. Costs about four times rows x landmarks^2."""
    prior = first_prior(feature_map, choice, loss)
    problem, _ = expert_problem(region, feature_map, loss, prior)
    fit = fit_output_weights(problem, np.zeros_like(prior.mean), tol)
    return expert_posterior(problem, fit.W, 1.0 / output_precision(choice, loss))


def expert_posterior(problem: WeightProblem, W: Array, variance: float) -> WeightPosterior:
    """Posterior with one precision for all outputs, which bounds its memory."""
    return laplace_posterior(problem, W, variance, "joint" if W.shape[1] == 1 else "shared")


def absorb_rows(
    region: Region, feature_map: LandmarkMap, loss: ClassLoss, before: WeightPosterior, tol: float
) -> WeightPosterior:
    """Posterior after more rows; the previous posterior is their prior."""
    factor = lower_inverse(before.roots[0].astype(np.float64))
    prior = Prior(factor @ factor.T, before.mean)
    problem, _ = expert_problem(region, feature_map, loss, prior)
    fit = fit_output_weights(problem, before.mean, tol)
    return expert_posterior(problem, fit.W, before.prior_variance)


class ClassExpertValidator(IndependentFits):
    """Held-out losses of expert hyperparameters on a few regions."""

    limits = LIMITS

    def __init__(
        self, parts: list[tuple[Region, Region]], loss: ClassLoss, n_landmarks: int, seed: int
    ) -> None:
        self.parts, self.loss = parts, loss
        self.n_landmarks, self.seed = n_landmarks, seed
        self._maps: dict[tuple[int, float], LandmarkMap] = {}

    @property
    def omega(self) -> Array:
        """Weights of the held-out rows."""
        parts = [np.ones(h.n) if h.weight is None else h.weight for _, h in self.parts]
        return np.concatenate(parts)

    def baseline(self) -> Array:
        """Losses of the global model alone."""
        return np.concatenate([self.loss.terms(h.offset, h.codes)[0] for _, h in self.parts])

    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row."""
        found = []
        for number, (inside, held) in enumerate(self.parts):
            feature_map = self._map(number, choice.scale)
            prior = first_prior(feature_map, choice, self.loss)
            problem, _ = expert_problem(inside, feature_map, self.loss, prior)
            W = fit_output_weights(problem, np.zeros_like(prior.mean), VALIDATION_TOL).W
            scores = held.offset + feature_map(held.Z, np.float32) @ W
            found.append(self.loss.terms(scores, held.codes)[0])
        return np.concatenate(found)

    def held(self, choice: Choice) -> tuple[Array, Array]:
        """Scores and variances of all held-out rows by the experts alone."""
        scores, variances = [], []
        for number, (inside, held) in enumerate(self.parts):
            feature_map = self._map(number, choice.scale)
            posterior = fit_expert(inside, feature_map, self.loss, choice, VALIDATION_TOL)
            Phi = feature_map(held.Z, np.float32)
            scores.append(posterior.scores(Phi))
            variances.append(posterior.covariance(Phi, feature_map.residual(Phi))[:, 0])
        return np.concatenate(scores), np.concatenate(variances)

    def _map(self, number: int, scale: float) -> LandmarkMap:
        """Feature map of a region; its landmarks are the same rows for every scale."""
        if (number, scale) not in self._maps:
            rng = np.random.default_rng([self.seed, number])
            Z = self.parts[number][0].Z
            self._maps[number, scale] = expert_map(Z, scale, self.n_landmarks, rng)
        return self._maps[number, scale]


def choose_experts(
    validator: Any, precision: float, stop: Callable[[], bool] | None = None, required: bool = False
) -> Choice | None:
    """Kernel width and precision with the smallest held-out loss; None for no experts.

    Starts from the best of a few widths. Then doubles or halves the width and quadruples or
    quarters the precision while the paired gain exceeds half its standard error. With ``required``
    there are experts in any case.
    """
    omega, first = validator.omega, float(np.clip(precision, *validator.limits))
    starts: dict[Choice, Array] = {}
    for scale in START_SCALES:
        starts[Choice(first, scale)] = validator.losses(Choice(first, scale))
        if stop is not None and stop():
            break
    best = min(starts, key=lambda choice: float(omega @ starts[choice]))
    losses, tried = starts[best], set(starts)
    moves = [(1.0, SCALE_STEP), (1.0, 1 / SCALE_STEP), (PRECISION_STEP, 1.0),
             (1 / PRECISION_STEP, 1.0)]  # fmt: skip
    for _ in range(N_ROUNDS):
        before = best
        for precision_move, scale_move in moves:
            moved = float(np.clip(best.precision * precision_move, *validator.limits))
            option = Choice(moved, best.scale * scale_move)
            if option in tried:
                continue
            if stop is not None and stop():
                break
            tried.add(option)
            found = validator.losses(option)
            if is_significant(losses - found, omega):
                best, losses = option, found
        if best is before:
            break
    return best if required or is_significant(validator.baseline() - losses, omega) else None
