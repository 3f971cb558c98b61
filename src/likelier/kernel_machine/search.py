"""The last hyperparameters of a kernel classifier, judged on rows that were held out.

The evidence of a Gaussian process gives a good start: scales, and from noise and amplitude a
prior precision. Its Gaussian likelihood is not that of classes, so precision and common scale
may still move, each by a fixed factor either way, and only where the paired gain on held-out
rows exceeds half its standard error: noise alone should not steer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from likelier.base import Array, Matrix
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.laplace import head_posterior
from likelier.kernel_machine.softmax_weights import (
    HeadFit,
    HeadLoss,
    HeadProblem,
    Prior,
    fit_head,
    ready_features,
    ridge,
    rows_in_memory,
)

# Precision in the units of the evidence: a Gaussian likelihood with noise s on targets of unit
# variance bends like a softmax whose weights have about five times the precision s / a.
PRECISION_FACTOR, PRECISION_RANGE = 0.2, (0.005, 0.5)
# Few rows cannot tell a weak prior from a weaker one, but rows unlike them would suffer.
SEARCH_RANGE = (0.0015, 5.0)
FEW_ROWS_RANGE = (PRECISION_RANGE[0], SEARCH_RANGE[1])
PRECISION_MOVE, SCALE_MOVE = 3.0, 1.5
N_ROUNDS = 2
FEW_ROWS_ROUNDS = 4  # tries are cheap there, and the evidence can be far off
WORTH = 0.5  # standard errors
LOCAL_CONSTANT = 0.1  # precision of the constants where all other features vanish far away
SEARCH_TOL, SEARCH_ITER = 2e-3, 25
# A search that begins near its end must go closer: else a weaker prior, begun with the weights of
# a stronger one, would look better by what it has not learned yet.
NEAR_TOL = 0.25 * SEARCH_TOL
SPREAD_DIRECTIONS = 192  # variances to some 10%: the spread is one of a few that differ twofold


@dataclass(frozen=True)
class Choice:
    """Hyperparameters: prior precision of class weights, common scale, posterior spread."""

    precision: float
    scale: float = 1.0
    spread: float = 0.0


@dataclass(frozen=True)
class Fold:
    """Rows to learn from and rows to judge by; features are made from a common scale."""

    make_map: Callable[[float], KernelMap]
    rows: Matrix
    codes: Array
    weight: Array | None
    held_rows: Matrix
    held_codes: Array
    held_weight: Array | None
    cache: dict[float, tuple[KernelMap, Array, Array]] = field(default_factory=dict, repr=False)

    def features(self, scale: float) -> tuple[KernelMap, Array, Array]:
        """Features of both kinds of rows; those of the last few scales are kept."""
        if scale not in self.cache:
            if len(self.cache) > 3:
                self.cache.pop(next(iter(self.cache)))
            made = self.make_map(scale)
            self.cache[scale] = (
                made, made(self.rows, np.float32), made(self.held_rows, np.float32),
            )  # fmt: skip
        return self.cache[scale]


def start_choice(noise: float, amplitude: float) -> Choice:
    """What the evidence says about the prior precision."""
    return Choice(float(np.clip(PRECISION_FACTOR * noise / amplitude, *PRECISION_RANGE)))


def output_precision(choice: Choice, loss: HeadLoss) -> float:
    """Precision of the weights of one output; the only score of two classes is a difference."""
    return 0.5 * choice.precision if loss.n_outputs == 1 else choice.precision


def head_prior(made: KernelMap, precision: float, start: Array) -> Prior:
    """Prior of the weights: around zero, and for the constants around the classes' shares.

    Where features vanish far from the data the constants are all that is left there. Many rows
    move them to where the fit is best, so predictions take them back to the shares far away.
    """
    constant = LOCAL_CONSTANT if made.local else None
    return Prior(ridge(made.n_features, precision, constant), start)


def class_shares(codes: Array, weight: Array | None, n_classes: int) -> Array:
    """Shares of the classes, smoothed by one row of each that weighs as others do, at most one."""
    one_row = min(typical_weight(weight), 1.0)
    counts = np.bincount(codes.astype(np.intp), weight, n_classes) + one_row
    return np.asarray(counts / counts.sum())


@dataclass(frozen=True)
class Held:
    """What a fit says about rows it has not seen: scores, their covariance, the truth."""

    scores: Array
    covariance: Array
    codes: Array
    weight: Array | None


class IndependentFits:
    """A judge whose fits do not depend on each other: there is nothing of them to keep."""

    def to_plain(self) -> list[dict[str, Any]]:
        """Nothing."""
        return []

    def restore(self, plain: list[dict[str, Any]]) -> None:
        """Nothing to know."""


class Judge:
    """Held-out losses of choices, over one or more folds."""

    def __init__(self, folds: list[Fold], loss: HeadLoss) -> None:
        self.folds, self.loss = folds, loss
        self._found: dict[tuple[int, float], dict[float, HeadFit]] = {}  # by fold and scale

    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row."""
        parts = []
        for number, fold in enumerate(self.folds):
            _, W = self._fit(number, choice)
            _, _, held = fold.features(choice.scale)
            scores = (held @ W.astype(held.dtype)).astype(np.float64)
            parts.append(self.loss.terms(scores, fold.held_codes)[0])
        return np.concatenate(parts)

    def held(self, choice: Choice) -> Held:
        """Scores of all held-out rows with the covariance of their posterior."""
        parts = [self._held(number, choice) for number in range(len(self.folds))]
        weights = [part.weight for part in parts if part.weight is not None]
        return Held(
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.covariance for part in parts]),
            np.concatenate([part.codes for part in parts]),
            np.concatenate(weights) if weights else None,
        )

    def _fit(self, number: int, choice: Choice) -> tuple[HeadProblem, Array]:
        """Weights of one fold, from where another precision has led if one was tried."""
        fold = self.folds[number]
        made, Phi, _ = fold.features(choice.scale)
        shares = class_shares(fold.codes, fold.weight, self.loss.n_classes)
        start = self.loss.start(Phi.shape[1], shares)
        prior = head_prior(made, output_precision(choice, self.loss), start)
        reduce = rows_in_memory(Phi, fold.codes, fold.weight)
        problem = HeadProblem(reduce, ready_features, self.loss, prior)
        found = self._found.setdefault((number, choice.scale), {})
        if choice.precision not in found:
            before = min(found, key=lambda tried: abs(np.log(tried / choice.precision)), default=0)
            if before:
                W, gram, tol = found[before].W, found[before].gram, NEAR_TOL
            else:
                W, gram, tol = start, None, SEARCH_TOL
            fit = fit_head(problem, W, tol, SEARCH_ITER, gram=gram, near=bool(before))
            found[choice.precision] = fit
        return problem, found[choice.precision].W

    def _held(self, number: int, choice: Choice) -> Held:
        fold = self.folds[number]
        problem, W = self._fit(number, choice)
        made, _, held = fold.features(choice.scale)
        variance = 1.0 / output_precision(choice, self.loss)
        posterior = head_posterior(problem, W, variance, n_directions=SPREAD_DIRECTIONS)
        covariance = posterior.covariance(held, made.residual(held))
        return Held(posterior.scores(held), covariance, fold.held_codes, fold.held_weight)

    def to_plain(self) -> list[dict[str, Any]]:
        """Plain form of the fits so far: later ones begin with theirs."""
        return [
            {
                "fold": number, "scale": scale, "precisions": np.array(list(fits)),
                "W": np.array([fit.W for fit in fits.values()]),
                "gram": next(iter(fits.values())).gram,  # fits that begin near keep it
            }
            for (number, scale), fits in self._found.items() if fits
        ]  # fmt: skip

    def restore(self, plain: list[dict[str, Any]]) -> None:
        """Know fits from their plain form."""
        for part in plain:
            self._found[part["fold"], part["scale"]] = {
                float(precision): HeadFit(W, np.nan, 0, True, gram=part["gram"])
                for precision, W in zip(part["precisions"], part["W"], strict=True)
            }

    @property
    def omega(self) -> Array:
        """Weights of the held-out rows."""
        parts = [
            np.ones(len(f.held_codes)) if f.held_weight is None else f.held_weight
            for f in self.folds
        ]
        return np.concatenate(parts)


def search(
    judge: Any,
    start: Choice,
    move_precision: bool,
    move_scale: bool,
    stop: Callable[[Choice], bool] | None = None,
    n_rounds: int = N_ROUNDS,
    limits: tuple[float, float] = SEARCH_RANGE,
) -> Choice:
    """Move precision and scale while held-out rows gain; each try costs one small fit.

    ``stop`` is asked before each of them, the first excepted; True ends the search.
    """
    moves = []
    if move_precision:
        moves += [(1.0 / PRECISION_MOVE, 1.0), (PRECISION_MOVE, 1.0)]
    if move_scale:
        moves += [(1.0, 1.0 / SCALE_MOVE), (1.0, SCALE_MOVE)]
    if not moves:
        return start
    omega = judge.omega
    best, best_losses = start, judge.losses(start)
    tried = {(round(best.precision, 12), round(best.scale, 12))}
    worse: list[Choice] = []
    least, most = min(limits[0], start.precision), max(limits[1], start.precision)
    for _ in range(n_rounds):
        before = best
        for precision, scale in moves:
            moved = min(max(best.precision * precision, least), most)
            option = Choice(moved, best.scale * scale)
            key = (round(option.precision, 12), round(option.scale, 12))
            if key in tried or any(is_between(other, best, option) for other in worse):
                continue
            if stop is not None and stop(option):
                return best
            tried.add(key)
            losses = judge.losses(option)
            if worth(best_losses - losses, omega):
                worse.append(best)
                best, best_losses = option, losses
            else:
                worse.append(option)
        if best is before:
            break
    return best


def is_between(other: Choice, one: Choice, two: Choice) -> bool:
    """Whether a choice has a precision between those of two others, and their scale.

    Where it was worse than one of them, nothing better lies behind it.
    """
    least, most = sorted((one.precision, two.precision))
    return one.scale == other.scale == two.scale and least < other.precision < most


def worth(gains: Array, omega: Array) -> bool:
    """Whether a mean gain exceeds `WORTH` standard errors."""
    mean = float(omega @ gains / omega.sum())
    error = float(np.sqrt((omega**2) @ (gains - mean) ** 2)) / float(omega.sum())
    return mean > WORTH * error
