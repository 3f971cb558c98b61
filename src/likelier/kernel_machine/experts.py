"""Learning of local experts: one small convex problem each, and one choice for all of them.

What all experts share, the width of their kernel and their prior precision, is judged on rows
held out in a few regions, with the density all rows give them. An expert starts from its rows
by their optimum; later rows find its posterior as their prior, so nothing of them is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Batch
from likelier.kernel_machine.expert_model import expert_map
from likelier.kernel_machine.features import LandmarkMap
from likelier.kernel_machine.laplace import HeadPosterior, head_posterior
from likelier.kernel_machine.search import Choice, IndependentFits, output_precision, worth
from likelier.kernel_machine.softmax_weights import (
    HeadLoss,
    HeadProblem,
    Prior,
    fit_head,
    ready_features,
    ridge,
    rows_in_memory,
)
from likelier.kernel_machine.triangles import lower_inverse

PRECISION_STEP, SCALE_STEP = 4.0, 2.0
START_SCALES = (1.0, 2.0, 4.0, 8.0)  # a start between two good widths may see neither
N_ROUNDS = 6
LIMITS = (1e-3, 64.0)
JUDGE_TOL = 1e-2
NO_CONSTANT = 1e4


@dataclass(frozen=True)
class Region:
    """Rows of one region: scaled, with class numbers, weights and the common machine's scores.

    Numbers instead of classes may come with two variances of their scores, in units of the noise:
    what the common machine's weights leave open, and what its features do not carry, both as if
    the row had not been learned; and the share of its residual that learning it has left.
    """

    Z: Array
    codes: Array
    weight: Array | None
    offset: Array
    variance: Array | None = None

    @property
    def n(self) -> int:
        """How many rows."""
        return len(self.codes)

    def take(self, rows: Array) -> Region:
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        variance = None if self.variance is None else self.variance[rows]
        return Region(self.Z[rows], self.codes[rows], weight, self.offset[rows], variance)


def join_regions(parts: list[Region]) -> Region:
    """Rows of several blocks as one."""
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
    region: Region, made: LandmarkMap, loss: HeadLoss, prior: Prior
) -> tuple[HeadProblem, Array]:
    """The convex problem of an expert, and its features."""
    Phi = made(region.Z, np.float32)
    offset = region.offset.astype(np.float32, copy=False)
    reduce = rows_in_memory(Phi, region.codes, region.weight)

    def known(batch: Batch) -> Array:
        return offset[batch.start : batch.start + batch.n_rows]

    return HeadProblem(reduce, ready_features, loss, prior, known), Phi


def first_prior(made: LandmarkMap, choice: Choice, loss: HeadLoss) -> Prior:
    """Prior of an expert: no correction, and none at all far from its rows.

    The constant, which alone is left there, is held at zero: it belongs to the common machine.
    """
    zero = np.zeros((made.n_features, loss.n_outputs))
    return Prior(ridge(made.n_features, output_precision(choice, loss), NO_CONSTANT), zero)


def fit_expert(
    region: Region, made: LandmarkMap, loss: HeadLoss, choice: Choice, tol: float
) -> HeadPosterior:
    """Optimum and posterior of an expert. Costs about four times rows x landmarks^2."""
    prior = first_prior(made, choice, loss)
    problem, _ = expert_problem(region, made, loss, prior)
    fit = fit_head(problem, np.zeros_like(prior.mean), tol)
    return expert_posterior(problem, fit.W, 1.0 / output_precision(choice, loss))


def expert_posterior(problem: HeadProblem, W: Array, variance: float) -> HeadPosterior:
    """Posterior with one precision for all outputs: memory of one matrix for any classes."""
    return head_posterior(problem, W, variance, "joint" if W.shape[1] == 1 else "shared")


def absorb_rows(
    region: Region, made: LandmarkMap, loss: HeadLoss, before: HeadPosterior, tol: float
) -> HeadPosterior:
    """Posterior after more rows, that before them being their prior."""
    factor = lower_inverse(before.roots[0].astype(np.float64))
    prior = Prior(factor @ factor.T, before.mean)
    problem, _ = expert_problem(region, made, loss, prior)
    fit = fit_head(problem, before.mean, tol)
    return expert_posterior(problem, fit.W, before.prior_variance)


class ExpertJudge(IndependentFits):
    """Held-out losses of choices for the experts of a few regions."""

    limits = LIMITS

    def __init__(
        self, parts: list[tuple[Region, Region]], loss: HeadLoss, n_landmarks: int, seed: int
    ) -> None:
        self.parts, self.loss = parts, loss
        self.n_landmarks, self.seed = n_landmarks, seed
        self._maps: dict[tuple[int, float], LandmarkMap] = {}

    @property
    def omega(self) -> Array:
        """Weights of the held-out rows."""
        parts = [np.ones(h.n) if h.weight is None else h.weight for _, h in self.parts]
        return np.concatenate(parts)

    def without(self) -> Array:
        """Losses of the common machine alone."""
        return np.concatenate([self.loss.terms(h.offset, h.codes)[0] for _, h in self.parts])

    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row."""
        found = []
        for number, (inside, held) in enumerate(self.parts):
            made = self._map(number, choice.scale)
            prior = first_prior(made, choice, self.loss)
            problem, _ = expert_problem(inside, made, self.loss, prior)
            W = fit_head(problem, np.zeros_like(prior.mean), JUDGE_TOL).W
            scores = held.offset + made(held.Z, np.float32) @ W
            found.append(self.loss.terms(scores, held.codes)[0])
        return np.concatenate(found)

    def held(self, choice: Choice) -> tuple[Array, Array]:
        """Scores and variances of all held-out rows by experts alone."""
        scores, variances = [], []
        for number, (inside, held) in enumerate(self.parts):
            made = self._map(number, choice.scale)
            posterior = fit_expert(inside, made, self.loss, choice, JUDGE_TOL)
            Phi = made(held.Z, np.float32)
            scores.append(posterior.scores(Phi))
            variances.append(posterior.covariance(Phi, made.residual(Phi))[:, 0])
        return np.concatenate(scores), np.concatenate(variances)

    def _map(self, number: int, scale: float) -> LandmarkMap:
        """Landmarks of a region are the same rows for every scale."""
        if (number, scale) not in self._maps:
            rng = np.random.default_rng([self.seed, number])
            Z = self.parts[number][0].Z
            self._maps[number, scale] = expert_map(Z, scale, self.n_landmarks, rng)
        return self._maps[number, scale]


def choose_experts(
    judge: Any, precision: float, stop: Callable[[], bool] | None = None, must: bool = False
) -> Choice | None:
    """Width and precision that held-out rows like best; None where they like no experts.

    Of a few widths the best is the start. Then the kernel is tried twice as wide or narrow and
    the precision four times as large or small, again and again while the paired gain exceeds
    half its standard error. With ``must`` there are experts in any case.
    """
    omega, first = judge.omega, float(np.clip(precision, *judge.limits))
    starts: dict[Choice, Array] = {}
    for scale in START_SCALES:
        starts[Choice(first, scale)] = judge.losses(Choice(first, scale))
        if stop is not None and stop():
            break
    best = min(starts, key=lambda choice: float(omega @ starts[choice]))
    losses, tried = starts[best], set(starts)
    moves = [(1.0, SCALE_STEP), (1.0, 1 / SCALE_STEP), (PRECISION_STEP, 1.0),
             (1 / PRECISION_STEP, 1.0)]  # fmt: skip
    for _ in range(N_ROUNDS):
        before = best
        for precision_move, scale_move in moves:
            moved = float(np.clip(best.precision * precision_move, *judge.limits))
            option = Choice(moved, best.scale * scale_move)
            if option in tried:
                continue
            if stop is not None and stop():
                break
            tried.add(option)
            found = judge.losses(option)
            if worth(losses - found, omega):
                best, losses = option, found
        if best is before:
            break
    return best if must or worth(judge.without() - losses, omega) else None
