"""Posteriors of the two deep Gaussian processes, on the scale of the caller's rows and targets.

``fitted`` has the parameters and fitted attributes by their names: an estimator, or what a model
file holds. All of it is NumPy, but for the probabilities of three or more classes, whose quadrature
is a compiled program of JAX.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.deep_gp.propagation import DeepPosterior
from likelier.files.declared import check_array, check_number
from likelier.fitting.standardize import Standard
from likelier.predictive import Bernoulli, Categorical, ClassPredictive, Gaussian

MOST_ROWS = 2000  # standardised at a time
# Standard deviations; beyond, kernels are zero and squared distances may overflow.
MAX_STANDARDISED = 1e100
SCORE_VALUES = 40_960  # rows times classes per call of the compiled quadrature
MIN_SCORE_ROWS, MAX_SCORE_ROWS = 32, 4096
SMALLEST = 1e-300


def require_jax() -> None:
    """Raise if JAX, an optional dependency, is not installed."""
    if importlib.util.find_spec("jax") is None:
        raise ImportError(
            'deep Gaussian processes require JAX; install it with pip install "likelier[jax]"'
        )


@dataclass(frozen=True)
class Outputs:
    """The outputs of the last layer for rows in the caller's units."""

    function: DeepPosterior
    standard: Standard

    @property
    def n_outputs(self) -> int:
        """Nodes of the last layer."""
        return len(self.function.layers[-1]["mean"])

    @property
    def most_rows(self) -> int:
        """Rows whose moments are held at a time."""
        return min(MOST_ROWS, self.function.held_rows)

    def blocks(self, X: Matrix) -> Iterator[Matrix]:
        """Rows, as many at a time as moments should be held of."""
        for start in range(0, max(1, X.shape[0]), self.most_rows):
            yield X[start : start + self.most_rows]

    def moments(self, X: Matrix) -> tuple[Array, Array]:
        """Mean and variance of the outputs, ``(rows, S, P)`` each.

        Those of a row do not depend on the other rows, bit for bit.
        """
        with np.errstate(over="ignore"):
            Z = self.standard.apply(X, np.float64)
        Z = np.clip(Z, -MAX_STANDARDISED, MAX_STANDARDISED)
        parts = list(self.function.moments(Z))
        if len(parts) == 1:
            return parts[0]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, variance

    def check(self, n_features: int, n_outputs: int) -> None:
        """Raise unless all parts belong together."""
        check_array("input_mean_", self.standard.mean, (n_features,))
        check_array("input_inverse_", self.standard.inverse, (n_features,), low=0.0)
        self.function.check(n_features, None)
        if self.n_outputs != n_outputs:
            raise ValueError(f"layers_ have {self.n_outputs} outputs, not {n_outputs}")


@dataclass(frozen=True)
class ClassifierPosterior(Posterior):
    """Scores of the classes (one for two classes), and the probability of a wrong label."""

    outputs: Outputs
    n_classes: int
    label_noise: float

    @property
    def most_rows(self) -> int:
        return self.outputs.most_rows

    def predictive(self, X: Matrix) -> ClassPredictive:
        mean, variance = self.outputs.moments(X)
        if self.n_classes == 2:
            p = ndtr(mean[..., 0] / np.sqrt(1.0 + variance[..., 0]))
            return Bernoulli(label_probabilities(p, self.label_noise, 2))
        p = _class_probabilities(mean, variance)
        return Categorical(label_probabilities(p, self.label_noise, self.n_classes))

    def probabilities(self, X: Matrix) -> Array:
        """Probability of every class, for any number of rows."""
        parts = map(self.predictive, self.outputs.blocks(X))
        return np.concatenate([part.probabilities() for part in parts])

    def point(self, X: Matrix) -> Array:
        return np.asarray(self.probabilities(X).argmax(axis=1))

    def uncertainty(self, X: Matrix) -> Uncertainty:
        return joined([self.predictive(rows).uncertainty() for rows in self.outputs.blocks(X)])

    def log_probability(self, X: Matrix, codes: Array) -> Array:
        """Log probability of class numbers, computed in logarithms so that it cannot underflow."""
        return _with_targets(self.outputs, X, codes, self._log_probability)

    def _log_probability(self, X: Matrix, codes: Array) -> Array:
        mean, variance = self.outputs.moments(X)
        mine = codes[:, None]
        if self.n_classes == 2:
            sign = 2.0 * mine - 1.0
            log_p = log_ndtr(sign * mean[..., 0] / np.sqrt(1.0 + variance[..., 0]))
        else:
            log_p = _log_class_probability(mine, mean, variance)
        mixture = logsumexp(log_p, axis=1) - np.log(log_p.shape[1])
        return log_label_probabilities(mixture, self.label_noise, self.n_classes)

    def validation_score(self, X: Matrix, y: Array) -> Array:
        """Log probability of targets as training has them: signs of two classes, else numbers.

        Computed from probabilities, whose program prediction needs anyway: the lost digits of tiny
        probabilities do not matter for a comparison.
        """
        p = self.probabilities(X)
        codes = 0.5 * (y + 1.0) if self.n_classes == 2 else y
        mine = p[np.arange(len(p)), codes.astype(np.intp)]
        return np.asarray(np.log(np.maximum(mine, SMALLEST)))

    def check(self, n_features: int, n_classes: int | None) -> None:
        self.outputs.check(n_features, 1 if n_classes == 2 else n_classes or 0)
        check_number("label_noise_", self.label_noise, 0.0, 1.0 - 1.0 / (n_classes or 1))


@dataclass(frozen=True)
class RegressorPosterior(Posterior):
    """The function, the units of the targets, and the noise.

    Attributes
    ----------
    outputs : Outputs
        A second one is the logarithm of the noise variance.
    target_mean, target_scale : float
        Mean and scale of the standardised targets.
    noise : float
        Standard deviation in the units of the target, unless there is an output for it.
    noise_floor : float
        Minimum variance of that output, in units of ``target_scale**2``.
    """

    outputs: Outputs
    target_mean: float
    target_scale: float
    noise: float
    noise_floor: float

    @property
    def learns_noise(self) -> bool:
        """Whether the noise depends on the inputs."""
        return self.outputs.n_outputs == 2

    @property
    def most_rows(self) -> int:
        return self.outputs.most_rows

    def parts(self, X: Matrix) -> tuple[Array, Array, Array]:
        """Mean, function variance and noise variance, ``(rows, S)`` each."""
        mean, variance = self.outputs.moments(X)
        square = self.target_scale**2
        if self.learns_noise:
            draws = self.outputs.function.normals[:, -1]
            log_noise = mean[..., 1] + np.sqrt(variance[..., 1]) * draws
            noise = square * (self.noise_floor + np.exp(log_noise))
        else:
            noise = np.full(mean.shape[:2], self.noise**2)
        return (
            self.target_mean + self.target_scale * mean[..., 0],
            square * variance[..., 0],
            noise,
        )

    def predictive(self, X: Matrix) -> Gaussian:
        mean, inside, noise = self.parts(X)
        return Gaussian(mean, np.sqrt(inside + noise))

    def point(self, X: Matrix) -> Array:
        return np.concatenate([self.predictive(rows).mean() for rows in self.outputs.blocks(X)])

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Variance of the target: of the noise (aleatoric) and of the function (epistemic)."""
        return joined([self._uncertainty(rows) for rows in self.outputs.blocks(X)])

    def _uncertainty(self, X: Matrix) -> Uncertainty:
        mean, inside, noise = self.parts(X)
        aleatoric, epistemic = noise.mean(axis=1), inside.mean(axis=1) + mean.var(axis=1)
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)

    def log_density(self, X: Matrix, y: Array) -> Array:
        """Log density of targets."""

        def of_block(rows: Matrix, targets: Array) -> Array:
            return self.predictive(rows).log_density(targets)

        return _with_targets(self.outputs, X, y, of_block)

    def validation_score(self, X: Matrix, y: Array) -> Array:
        """Log density of targets as training has them: standardised."""
        return self.log_density(X, self.target_mean + self.target_scale * y)

    def check(self, n_features: int, n_classes: int | None) -> None:
        if n_classes is not None:
            raise ValueError("a regression has no classes")
        self.outputs.check(n_features, 2 if self.learns_noise else 1)
        check_number("target_mean_", self.target_mean)
        check_number("target_scale_", self.target_scale, 0.0)
        check_number("noise_floor_", self.noise_floor, 0.0)
        if not self.learns_noise:
            check_number("noise_", self.noise, 0.0)
        elif self.outputs.function.normals.shape[1] <= self.outputs.function.n_hidden:
            raise ValueError("normals_ hold no draws for the noise")


def joined(parts: list[Uncertainty]) -> Uncertainty:
    """Uncertainties of consecutive blocks of rows."""
    return Uncertainty(
        np.concatenate([part.total for part in parts]),
        np.concatenate([part.aleatoric for part in parts]),
        np.concatenate([part.epistemic for part in parts]),
    )


def label_probabilities(p: Array, label_noise: float, n_classes: int) -> Array:
    """Label probabilities ``e/(K-1) + (1 - e - e/(K-1)) p`` from class probabilities ``p``."""
    other = label_noise / (n_classes - 1)
    return np.asarray(other + (1.0 - label_noise - other) * p)


def log_label_probabilities(log_p: Array, label_noise: float, n_classes: int) -> Array:
    """`label_probabilities` in logarithms; the noise may be zero."""
    other = label_noise / (n_classes - 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(np.log(other), np.log1p(-label_noise - other) + log_p))


def _with_targets(
    outputs: Outputs, X: Matrix, y: Array, compute: Callable[[Matrix, Array], Array]
) -> Array:
    """A function of rows and their targets, a block at a time."""
    out, start = [], 0
    for rows in outputs.blocks(X):
        out.append(compute(rows, y[start : start + rows.shape[0]]))
        start += rows.shape[0]
    return np.concatenate(out)


def _class_probabilities(mean: Array, variance: Array) -> Array:
    """Probability that each class has the largest score, in blocks of one compiled size."""
    require_jax()
    from likelier.deep_gp.scores import class_probabilities

    return class_probabilities(mean, variance, _score_rows(mean.shape[-1]))


def _log_class_probability(codes: Array, mean: Array, variance: Array) -> Array:
    """Log probability that one class has the largest score, in blocks of one compiled size."""
    require_jax()
    from likelier.deep_gp.scores import log_class_probability

    return log_class_probability(codes, mean, variance, _score_rows(mean.shape[-1]))


def _score_rows(n_classes: int) -> int:
    """Rows per call of the compiled quadrature."""
    rows = 2 ** int(np.log2(SCORE_VALUES / n_classes))
    return int(np.clip(rows, MIN_SCORE_ROWS, MAX_SCORE_ROWS))


# -- from what a fit has stored ---------------------------------------------------------------
def _outputs(fitted: Any) -> Outputs:
    function = DeepPosterior(
        fitted.layers_, fitted.projections_, fitted.kernel_, fitted.normals_, fitted.removed_
    )
    return Outputs(function, Standard(fitted.input_mean_, fitted.input_inverse_))


def classifier(fitted: Any) -> ClassifierPosterior:
    """Posterior of a `DeepGPClassifier`."""
    return ClassifierPosterior(_outputs(fitted), len(fitted.classes_), fitted.label_noise_)


def regressor(fitted: Any) -> RegressorPosterior:
    """Posterior of a `DeepGPRegressor`."""
    return RegressorPosterior(
        _outputs(fitted), fitted.target_mean_, fitted.target_scale_, fitted.noise_,
        fitted.noise_floor_,
    )  # fmt: skip
