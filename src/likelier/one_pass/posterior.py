"""Posterior of a fitted one-pass model: Gaussian weights of every class that share one covariance.

``fitted`` has the parameters and fitted attributes by their names: an estimator, or what a model
file holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.engines.blocks import block_rows
from likelier.engines.rows import slice_rows
from likelier.features import fourier
from likelier.files.declared import check_array, check_number
from likelier.fitting.probabilities import (
    SMALLEST,
    class_probabilities,
    never_certain,
    split_entropy,
)
from likelier.losses import make_loss
from likelier.one_pass.inference import coordinates
from likelier.one_pass.model import Weights
from likelier.one_pass.settings import Settings, apply_features
from likelier.one_pass.stored import check_learned
from likelier.one_pass.streaming import Finished, Learned, finish_stream
from likelier.predictive import Categorical

DRAWS = 32  # of the scores, for the epistemic uncertainty
MACKAY = np.pi / 8.0  # E sigma(f) is about sigma(mean / sqrt(1 + MACKAY variance))
SHORTEST, LARGEST = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class OnePassPosterior(Posterior):
    """Coefficients, and what the variance of a score takes.

    ``coef`` and ``intercept`` are in the units of the features, one row per class, or a single one
    for two classes. ``root`` is the Cholesky factor of the precision in coordinates
    ``((x - centre) / scale, 1)``, each multiplied by its ``scaling``.
    """

    n_classes: int
    softmax: bool  # scores of a softmax, or one-vs-rest
    coef: Array
    intercept: Array
    root: Array
    scaling: Array
    centre: Array
    scale: Array
    factor: float  # of the scores
    frequencies: dict[str, Array] = field(default_factory=dict)
    seed: int = 0

    @classmethod
    def of(cls, found: Finished, softmax: bool, seed: int = 0) -> OnePassPosterior:
        """From weights as inference has them."""
        weights, n_classes = found.weights, len(found.classes)
        coef, intercept = coefficients(weights, n_classes, softmax)
        return cls(
            n_classes, softmax, coef, intercept, weights.root, weights.scaling, weights.centre,
            weights.scale, found.factor, found.frequencies, seed,
        )  # fmt: skip

    # -- scores -------------------------------------------------------------------------
    def scores(self, X: Matrix) -> Array:
        """Score of every class, or a column for the second of two."""
        return self._in_blocks(X, self._scores)

    def variance(self, X: Matrix) -> Array:
        """Variance of the score of one class (with two classes: of their difference)."""
        return self._in_blocks(X, self._variance)

    @property
    def difference_variance(self) -> float:
        """Factor from the variance of one output to that of a difference between two classes."""
        return 2.0 if self.softmax else 1.0

    def coef_covariance(self) -> Array:
        """Covariance of the coefficients of a class, in the units of the features."""
        d, p = len(self.scale), len(self.scaling)
        to_rows = np.diag(np.append(1.0 / self.scale, np.ones(p - d)))
        if p > d:
            to_rows[d, :d] = -self.centre / self.scale
        half = solve_triangular(
            self.root, (to_rows * self.scaling).T, lower=True, check_finite=False
        )
        factor = self.difference_variance if self.n_classes == 2 else 1.0
        return np.asarray(half.T @ half * factor)

    def _in_blocks(self, X: Matrix, compute: Callable[[Matrix], Array]) -> Array:
        """Compute something of the features, in bounded memory: these may be many more than X."""
        size, n_rows = block_rows(int(X.shape[1]), not isinstance(X, np.ndarray)), int(X.shape[0])
        if n_rows <= size:
            return compute(apply_features(self.frequencies, X))
        blocks = (slice_rows(X, a, min(a + size, n_rows)) for a in range(0, n_rows, size))
        return np.concatenate([compute(apply_features(self.frequencies, X)) for X in blocks])

    def _scores(self, Phi: Matrix) -> Array:
        return np.asarray(Phi @ self.coef.T + self.intercept)

    def _variance(self, Phi: Matrix) -> Array:
        has_intercept = len(self.scaling) > len(self.scale)
        Z = coordinates(Phi, self.centre, self.scale, has_intercept)
        scaled = Z.astype(np.float64, copy=False) * self.scaling
        half = solve_triangular(self.root, scaled.T, lower=True, check_finite=False)
        return np.asarray((half**2).sum(axis=0) * self.difference_variance)

    # -- predictions --------------------------------------------------------------------
    def point(self, X: Matrix) -> Array:
        """Number of the class of the largest score."""
        scores = self.scores(X)
        if self.n_classes == 2:
            return (scores[:, 0] > 0.0).astype(np.intp)
        return np.asarray(scores.argmax(axis=1))

    def predictive(self, X: Matrix) -> Categorical:
        """Averaged over the weights; no class is impossible."""
        return Categorical(np.maximum(self._in_blocks(X, self._moderated), SMALLEST))

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Entropy in nats; epistemic is what draws of the scores disagree about.

        All rows share the random numbers.
        """
        both = self._in_blocks(X, self._entropy_parts)
        return split_entropy(both[:, :-1], both[:, -1])

    def _moderated(self, Phi: Matrix) -> Array:
        """Probabilities of scores moderated by their variance (MacKay, 1992)."""
        variance = self.factor**2 * self._variance(Phi)
        scale = self.factor / np.sqrt(1.0 + MACKAY * variance)
        return self._probabilities(self._scores(Phi) * scale[:, None])

    def _probabilities(self, scores: Array) -> Array:
        if self.n_classes == 1:
            return np.ones_like(scores)
        if self.n_classes == 2:
            scores = scores[:, 0]
        loss = make_loss("softmax" if self.softmax else "log_loss")
        return class_probabilities(loss, scores, {})

    def _entropy_parts(self, Phi: Matrix) -> Array:
        """Probabilities of every class, and the epistemic part of their entropy."""
        scores, std = self._scores(Phi), np.sqrt(self._variance(Phi))
        if len(self.coef) > 1:  # of a single class, not of a difference
            std = std / np.sqrt(self.difference_variance)
        noise = np.random.default_rng([self.seed, 2]).standard_normal((DRAWS, len(self.coef)))
        draws = [self._probabilities(self.factor * (scores + std[:, None] * e)) for e in noise]
        stacked = np.stack([never_certain(p) for p in draws], axis=1)
        epistemic = Categorical(stacked).uncertainty().epistemic
        return np.column_stack([never_certain(self._moderated(Phi)), epistemic])

    # -- what a file may hold -----------------------------------------------------------
    def check(self, n_features: int, n_classes: int | None) -> None:
        d, n_outputs = n_features, 1 if n_classes == 2 else n_classes
        if self.frequencies:
            check_array("map_", self.frequencies["frequencies"], (n_features, None))
            check_array("map_", self.frequencies["phase"], (None,))
            d = fourier.n_features(self.frequencies)
        check_array("coef_", self.coef, (n_outputs, d))
        check_array("intercept_", self.intercept, (n_outputs,))
        check_array("scaling", self.scaling, (None,), low=SHORTEST)
        p = len(self.scaling)
        if p not in (d, d + 1):
            raise ValueError(f"scaling has {p} entries, for {d} features")
        check_array("root", self.root, (p, p))
        check_array("root", np.diag(self.root), (p,), low=SHORTEST)
        check_array("centre", self.centre, (d,))
        check_array("scale", self.scale, (d,), low=SHORTEST)
        check_number("factor", self.factor, 0.0, LARGEST)


@dataclass(frozen=True)
class DeferredPosterior(Posterior):
    """Of a stream that was saved before its weights were computed: done when first needed."""

    learned: Learned
    settings: Settings
    seed: int = 0
    mixing: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def weights(self) -> OnePassPosterior:
        """Posterior of all rows."""
        found = finish_stream(self.learned, self.settings, self.mixing)
        return OnePassPosterior.of(found, True, self.seed)

    def point(self, X: Matrix) -> Array:
        """Number of the class of the largest score."""
        return self.weights.point(X)

    def predictive(self, X: Matrix) -> Categorical:
        """Averaged over the weights."""
        return self.weights.predictive(X)

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Entropy in nats; epistemic is what draws of the scores disagree about."""
        return self.weights.uncertainty(X)

    def check(self, n_features: int, n_classes: int | None) -> None:
        check_learned(self.learned, self.settings, n_classes or 0)


def coefficients(weights: Weights, n_classes: int, softmax: bool) -> tuple[Array, Array]:
    """Coefficients and intercepts in the units of the features; a single row for two classes."""
    coef, intercept = weights.raw()
    if n_classes != 2:
        return coef, intercept
    if softmax:
        return coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    return coef[1:], intercept[1:]


def one_pass(fitted: Any) -> OnePassPosterior | DeferredPosterior:
    """Posterior of a `OnePassClassifier`."""
    seed = int(fitted.seed_)
    known: dict[str, Any] | None = getattr(fitted, "posterior_", None)
    if known is None:
        settings, mixing = Settings.of(fitted), getattr(fitted, "mixing_", {})
        return DeferredPosterior(Learned.of(fitted), settings, seed, mixing)
    softmax = fitted.fixed_params_["update"] == "streaming"
    coef = np.asarray(fitted.coef_, dtype=np.float64)
    return OnePassPosterior(
        len(fitted.classes_), softmax, coef, fitted.intercept_, known["root"], known["scaling"],
        known["centre"], known["scale"], known["factor"], fitted.map_, seed,
    )  # fmt: skip
