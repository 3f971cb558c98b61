"""Final hyperparameters of a kernel classifier, validated on held-out rows.

The evidence of a Gaussian process provides initial scales, and a prior precision from noise and
amplitude. Its Gaussian likelihood is not that of classes, so precision and common scale may move by
fixed factors, but only if the paired gain on held-out rows exceeds half its standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from likelier.base import Array, Matrix
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.laplace import laplace_posterior
from likelier.kernel_machine.softmax_weights import (
    ClassLoss,
    Prior,
    WeightFit,
    WeightProblem,
    fit_output_weights,
    in_memory_reduction,
    ridge,
    stored_features,
)

# A Gaussian likelihood with noise s on targets of unit variance has the curvature of a softmax with
# about a fifth of the prior precision s / a.
PRECISION_FACTOR, PRECISION_RANGE = 0.2, (0.005, 0.5)
# Few rows cannot distinguish weak priors, which would hurt on rows unlike them.
SEARCH_RANGE = (0.0015, 5.0)
FEW_ROWS_RANGE = (PRECISION_RANGE[0], SEARCH_RANGE[1])
PRECISION_MOVE, SCALE_MOVE = 3.0, 1.5
N_ROUNDS = 2
FEW_ROWS_ROUNDS = 4  # trials are cheap there, and the evidence can be far off
SIGNIFICANCE = 0.5  # standard errors
LOCAL_CONSTANT = 0.1  # precision of intercepts if the other features vanish out of support
SEARCH_TOL, SEARCH_ITER = 2e-3, 25
# Warm-started fits need a tighter tolerance: otherwise a weaker prior, started from the weights of
# a stronger one, would look better because it has not converged.
WARM_START_TOL = 0.25 * SEARCH_TOL
SCALE_DIRECTIONS = 192  # variances to about 10% suffice for a coarse grid of posterior scales


@dataclass(frozen=True)
class Choice:
    """Hyperparameters: prior precision of class weights, common scale, posterior scale."""

    precision: float
    scale: float = 1.0
    posterior_scale: float = 0.0


@dataclass(frozen=True)
class Fold:
    """Training and validation rows; features depend on a common scale."""

    make_map: Callable[[float], KernelMap]
    rows: Matrix
    codes: Array
    weight: Array | None
    held_rows: Matrix
    held_codes: Array
    held_weight: Array | None
    cache: dict[float, tuple[KernelMap, Array, Array]] = field(default_factory=dict, repr=False)

    def features(self, scale: float) -> tuple[KernelMap, Array, Array]:
        """Features of training and validation rows, cached for the last few scales."""
        if scale not in self.cache:
            if len(self.cache) > 3:
                self.cache.pop(next(iter(self.cache)))
            feature_map = self.make_map(scale)
            self.cache[scale] = (
                feature_map, feature_map(self.rows, np.float32), feature_map(self.held_rows,
                np.float32),
            )  # fmt: skip
        return self.cache[scale]


def start_choice(noise: float, amplitude: float) -> Choice:
    """Prior precision implied by the evidence."""
    return Choice(float(np.clip(PRECISION_FACTOR * noise / amplitude, *PRECISION_RANGE)))


def output_precision(choice: Choice, loss: ClassLoss) -> float:
    """Precision of the weights of one output; for two classes the score is a difference."""
    return 0.5 * choice.precision if loss.n_outputs == 1 else choice.precision


def weight_prior(feature_map: KernelMap, precision: float, start: Array) -> Prior:
    """Prior of the weights: zero mean, and intercepts around the class frequencies.

    Out of support only the intercepts remain. The data move them to the best fit, so predictions
    revert them to the class frequencies there.
    """
    constant = LOCAL_CONSTANT if feature_map.local else None
    return Prior(ridge(feature_map.n_features, precision, constant), start)


def class_frequencies(codes: Array, weight: Array | None, n_classes: int) -> Array:
    """Class frequencies, smoothed by one typical row per class (of weight at most one)."""
    one_row = min(typical_weight(weight), 1.0)
    counts = np.bincount(codes.astype(np.intp), weight, n_classes) + one_row
    return np.asarray(counts / counts.sum())


@dataclass(frozen=True)
class HeldOut:
    """Held-out scores, their covariance, and the true classes."""

    scores: Array
    covariance: Array
    codes: Array
    weight: Array | None


class IndependentFits:
    """A validator whose fits do not depend on each other, so none are checkpointed."""

    def to_plain(self) -> list[dict[str, Any]]:
        """No fits."""
        return []

    def restore(self, plain: list[dict[str, Any]]) -> None:
        """Nothing to restore."""


class ClassValidator:
    """Held-out losses of hyperparameters, over one or more folds."""

    def __init__(self, folds: list[Fold], loss: ClassLoss) -> None:
        self.folds, self.loss = folds, loss
        self._found: dict[tuple[int, float], dict[float, WeightFit]] = {}  # by fold and scale

    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row."""
        parts = []
        for number, fold in enumerate(self.folds):
            _, W = self._fit(number, choice)
            _, _, held = fold.features(choice.scale)
            scores = (held @ W.astype(held.dtype)).astype(np.float64)
            parts.append(self.loss.terms(scores, fold.held_codes)[0])
        return np.concatenate(parts)

    def held(self, choice: Choice) -> HeldOut:
        """Held-out scores of all folds with their posterior covariance."""
        parts = [self._held(number, choice) for number in range(len(self.folds))]
        weights = [part.weight for part in parts if part.weight is not None]
        return HeldOut(
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.covariance for part in parts]),
            np.concatenate([part.codes for part in parts]),
            np.concatenate(weights) if weights else None,
        )

    def _fit(self, number: int, choice: Choice) -> tuple[WeightProblem, Array]:
        """Weights of one fold, warm-started from the nearest precision tried."""
        fold = self.folds[number]
        feature_map, Phi, _ = fold.features(choice.scale)
        frequencies = class_frequencies(fold.codes, fold.weight, self.loss.n_classes)
        start = self.loss.start(Phi.shape[1], frequencies)
        prior = weight_prior(feature_map, output_precision(choice, self.loss), start)
        reduce = in_memory_reduction(Phi, fold.codes, fold.weight)
        problem = WeightProblem(reduce, stored_features, self.loss, prior)
        found = self._found.setdefault((number, choice.scale), {})
        if choice.precision not in found:
            before = min(found, key=lambda tried: abs(np.log(tried / choice.precision)), default=0)
            if before:
                W, gram, tol = found[before].W, found[before].gram, WARM_START_TOL
            else:
                W, gram, tol = start, None, SEARCH_TOL
            fit = fit_output_weights(
                problem, W, tol, SEARCH_ITER, gram=gram, near_optimum=bool(before)
            )
            found[choice.precision] = fit
        return problem, found[choice.precision].W

    def _held(self, number: int, choice: Choice) -> HeldOut:
        fold = self.folds[number]
        problem, W = self._fit(number, choice)
        feature_map, _, held = fold.features(choice.scale)
        variance = 1.0 / output_precision(choice, self.loss)
        posterior = laplace_posterior(problem, W, variance, n_directions=SCALE_DIRECTIONS)
        covariance = posterior.covariance(held, feature_map.residual(held))
        return HeldOut(posterior.scores(held), covariance, fold.held_codes, fold.held_weight)

    def to_plain(self) -> list[dict[str, Any]]:
        """Dicts of the fits so far, from which later ones are warm-started."""
        return [
            {
                "fold": number, "scale": scale, "precisions": np.array(list(fits)),
                "W": np.array([fit.W for fit in fits.values()]),
                "gram": next(iter(fits.values())).gram,  # shared by warm-started fits
            }
            for (number, scale), fits in self._found.items() if fits
        ]  # fmt: skip

    def restore(self, plain: list[dict[str, Any]]) -> None:
        """Inverse of `to_plain`."""
        for part in plain:
            self._found[part["fold"], part["scale"]] = {
                float(precision): WeightFit(W, np.nan, 0, True, gram=part["gram"])
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
    validator: Any,
    start: Choice,
    move_precision: bool,
    move_scale: bool,
    stop: Callable[[Choice], bool] | None = None,
    n_rounds: int = N_ROUNDS,
    limits: tuple[float, float] = SEARCH_RANGE,
) -> Choice:
    """Move precision and scale while the held-out loss improves; each trial is one small fit.

    ``stop`` is called before each trial except the first; True ends the search.
    """
    moves = []
    if move_precision:
        moves += [(1.0 / PRECISION_MOVE, 1.0), (PRECISION_MOVE, 1.0)]
    if move_scale:
        moves += [(1.0, 1.0 / SCALE_MOVE), (1.0, SCALE_MOVE)]
    if not moves:
        return start
    omega = validator.omega
    best, best_losses = start, validator.losses(start)
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
            losses = validator.losses(option)
            if is_significant(best_losses - losses, omega):
                worse.append(best)
                best, best_losses = option, losses
            else:
                worse.append(option)
        if best is before:
            break
    return best


def is_between(other: Choice, one: Choice, two: Choice) -> bool:
    """Whether a choice has the scale of two others and a precision between theirs.

    If it was worse than one of them, the other one is unlikely to be better.
    """
    least, most = sorted((one.precision, two.precision))
    return one.scale == other.scale == two.scale and least < other.precision < most


def is_significant(gains: Array, omega: Array) -> bool:
    """Whether the mean gain exceeds `SIGNIFICANCE` standard errors."""
    mean = float(omega @ gains / omega.sum())
    error = float(np.sqrt((omega**2) @ (gains - mean) ** 2)) / float(omega.sum())
    return mean > SIGNIFICANCE * error
