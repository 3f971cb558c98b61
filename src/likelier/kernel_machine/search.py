"""Final hyperparameters, validated on held-out rows.

The evidence of a Gaussian process provides initial scales, and a prior precision from noise and
amplitude. Its Gaussian likelihood is not that of classes, so precision and common scale may move by
fixed factors, but only if the paired gain on held-out rows exceeds half its standard error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from likelier.base import Array, Engine, RowValues
from likelier.fitting.dataset import local_engine
from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import Rows
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.laplace import laplace_posterior
from likelier.kernel_machine.weights import (
    ClassLoss,
    FeatureRows,
    Prior,
    SolverState,
    WeightProblem,
    fit_weights,
    ridge,
)

# A Gaussian likelihood with noise s on targets of unit variance has the curvature of a softmax with
# about a fifth of the prior precision s / a.
PRECISION_FACTOR, PRECISION_RANGE = 0.2, (0.005, 0.5)
PRECISION_MOVE, SCALE_MOVE = 3.0, 1.5
SIGNIFICANCE = 0.5  # standard errors
LOCAL_CONSTANT = 0.1  # precision of intercepts if the other features vanish out of support
SEARCH_TOL, SEARCH_ITER = 2e-3, 25
# Warm-started fits need a tighter tolerance: otherwise a weaker prior, started from the weights of
# a stronger one, would look better because it has not converged.
WARM_START_TOL = 0.25 * SEARCH_TOL
SCALE_DIRECTIONS = 192  # variances to about 10% suffice for a coarse grid of posterior scales
CACHED_SCALES = 3
BLOCK_ROWS = 2048


@dataclass(frozen=True)
class Choice:
    """Hyperparameters: prior precision of class weights (noise ratio of a regression), scale."""

    precision: float
    scale: float = 1.0


@dataclass(frozen=True)
class Fold:
    """Training and validation rows; features depend on a common scale."""

    make_map: Callable[[float], KernelMap]
    inside: Rows
    held: Rows
    _cache: dict[float, tuple[KernelMap, RowValues, Array]] = field(
        default_factory=dict, repr=False
    )

    @cached_property
    def engine(self) -> Engine:
        """Engine over the training rows."""
        rows = self.inside
        return local_engine(rows.X, rows.y, rows.weight, 0, 1, False, BLOCK_ROWS)

    def features(self, scale: float) -> tuple[KernelMap, RowValues, Array]:
        """Map, features of the training rows and of the held rows, cached for the last scales."""
        if scale not in self._cache:
            if len(self._cache) >= CACHED_SCALES:
                self._cache.pop(next(iter(self._cache)))
            feature_map = self.make_map(scale)
            Phi = self.engine.map_rows(FeatureRows(feature_map))
            self._cache[scale] = (feature_map, Phi, feature_map(self.held.X, np.float32))
        return self._cache[scale]


class Validator(ABC):
    """Held-out losses of hyperparameters."""

    @property
    @abstractmethod
    def omega(self) -> Array:
        """Weights of the held-out rows."""

    @abstractmethod
    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row."""


def start_precision(noise: float, amplitude: float) -> float:
    """Prior precision of class weights implied by the evidence."""
    return float(np.clip(PRECISION_FACTOR * noise / amplitude, *PRECISION_RANGE))


def output_precision(precision: float, loss: ClassLoss) -> float:
    """Precision of the weights of one output; for two classes the score is a difference."""
    return 0.5 * precision if loss.n_outputs == 1 else precision


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


class ClassValidator(Validator):
    """Held-out losses of a classifier, over one or more folds."""

    def __init__(self, folds: list[Fold], loss: ClassLoss) -> None:
        self.folds, self.loss = folds, loss
        self._found: dict[tuple[int, float], dict[float, SolverState]] = {}  # by fold and scale

    @property
    def omega(self) -> Array:
        return held_weights(self.folds)

    def losses(self, choice: Choice) -> Array:
        parts = []
        for number, fold in enumerate(self.folds):
            _, state = self._fit(number, choice)
            _, _, held = fold.features(choice.scale)
            scores = (held @ state.W.astype(held.dtype)).astype(np.float64)
            parts.append(self.loss.terms(scores, fold.held.y)[0])
        return np.concatenate(parts)

    def held(self, choice: Choice) -> HeldOut:
        """Held-out scores of all folds with their posterior covariance."""
        scores, covariance = [], []
        for number, fold in enumerate(self.folds):
            problem, state = self._fit(number, choice)
            feature_map, _, Phi = fold.features(choice.scale)
            variance = 1.0 / output_precision(choice.precision, self.loss)
            posterior = laplace_posterior(problem, state.W, variance, n_directions=SCALE_DIRECTIONS)
            scores.append(posterior.scores(Phi))
            covariance.append(posterior.covariance(Phi, feature_map.residual(Phi)))
        weighted = any(fold.held.weight is not None for fold in self.folds)
        codes = np.concatenate([fold.held.y for fold in self.folds])
        weight = self.omega if weighted else None
        return HeldOut(np.concatenate(scores), np.concatenate(covariance), codes, weight)

    def _fit(self, number: int, choice: Choice) -> tuple[WeightProblem, SolverState]:
        """Weights of one fold, warm-started from the nearest precision tried."""
        fold = self.folds[number]
        feature_map, Phi, _ = fold.features(choice.scale)
        frequencies = class_frequencies(fold.inside.y, fold.inside.weight, self.loss.n_classes)
        start = self.loss.start(feature_map.n_features, frequencies)
        prior = weight_prior(feature_map, output_precision(choice.precision, self.loss), start)
        problem = WeightProblem(fold.engine, Phi, self.loss, prior)
        found = self._found.setdefault((number, choice.scale), {})
        if choice.precision not in found:
            W, gram, tol = start, None, SEARCH_TOL
            if found:
                nearest = min(found, key=lambda tried: abs(np.log(tried / choice.precision)))
                W, gram, tol = found[nearest].W, found[nearest].gram, WARM_START_TOL
            state = fit_weights(problem, W, tol, SEARCH_ITER, gram, near_optimum=bool(found))
            found[choice.precision] = state
        return problem, found[choice.precision]


def held_weights(folds: list[Fold]) -> Array:
    """Weights of the held-out rows of all folds."""
    parts = [np.ones(f.held.n) if f.held.weight is None else f.held.weight for f in folds]
    return np.concatenate(parts)


@dataclass(frozen=True)
class Search:
    """What may move, how often, and between which precisions."""

    move_precision: bool
    move_scale: bool
    n_rounds: int
    limits: tuple[float, float]


def search(validator: Validator, start: Choice, options: Search, monitor: Monitor) -> Choice:
    """Move precision and scale while the held-out loss improves; each trial is one small fit."""
    moves = []
    if options.move_precision:
        moves += [(1.0 / PRECISION_MOVE, 1.0), (PRECISION_MOVE, 1.0)]
    if options.move_scale:
        moves += [(1.0, 1.0 / SCALE_MOVE), (1.0, SCALE_MOVE)]
    if not moves:
        return start
    omega, limits = validator.omega, options.limits
    best, best_losses = start, validator.losses(start)
    tried = {_key(best)}
    worse: list[Choice] = []
    least, most = min(limits[0], start.precision), max(limits[1], start.precision)
    for _ in range(options.n_rounds):
        before = best
        for precision, scale in moves:
            moved = min(max(best.precision * precision, least), most)
            option = Choice(moved, best.scale * scale)
            key = _key(option)
            if key in tried or any(is_between(other, best, option) for other in worse):
                continue
            text = f"precision {option.precision:.3g}, scale {option.scale:.3g}"
            if monitor.tick("search", text, lambda: None):
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


def _key(choice: Choice) -> tuple[str, str]:
    """The same for choices that are equal up to rounding, whatever the unit of the weights."""
    return f"{choice.precision:.11e}", f"{choice.scale:.11e}"


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
