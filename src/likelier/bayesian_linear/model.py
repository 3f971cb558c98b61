"""The Bayesian linear model: a Gaussian prior on weights, and the sums over rows of samplers.

The posterior is ``exp(sum_i omega_i l(y_i, f_i)) N(w; mean, precision^-1)``, where ``l`` is
``log sigma(y f)`` (log loss), ``log softmax(f)[y]`` (multinomial), or ``-2 max(0, 1 - y f)``
(hinge, a pseudo-likelihood). Samplers work in *standard* coordinates: weights per standard
deviation of their column, and the intercept at the mean row. In these the prior is diagonal, one
learned precision ``tau`` has the same meaning for every column, and the posterior is invariant to
shifting or rescaling a column.

The parameters of ``K`` outputs form one vector, grouped by output, with the intercept last in each
group. Everything that touches rows is a sum over blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Matrix, Model
from likelier.bayesian_linear.loops import (
    hinge_gradients,
    hinge_sums,
    logistic_gradients,
    logistic_sums,
    smoothed_hinge,
    smoothed_logistic,
    softmax_sums,
)
from likelier.glm.model import LinearModel

INTERCEPT_PRECISION = 1e-2  # a standard deviation of 10
SHIFT_ABOVE = 1e3  # columns with |mean| > 1e3 standard deviations are shifted to preserve precision
CHUNK_VALUES = 1 << 16  # scores that fit in the cache of a core
WIDE_VALUES = 1 << 20
NO_WEIGHT = np.empty(0)


@dataclass(frozen=True)
class Coordinates:
    """Standard coordinates: ``w = v / scale``, ``b = a - centre^T w``.

    ``shift`` is subtracted from rows first: the mean of columns that need it for precision, else
    zero. The centre is relative to it.
    """

    scale: Array
    centre: Array
    shift: Array | None
    fit_intercept: bool

    @classmethod
    def of(cls, mean: Array, projected: Array, fit_intercept: bool) -> Coordinates:
        """Coordinates for columns of these means and variances."""
        scale = np.sqrt(np.where(projected > 0.0, projected, 1.0))
        centre = mean if fit_intercept else np.zeros_like(mean)
        large = np.abs(centre) > SHIFT_ABOVE * scale
        if not large.any():
            return cls(scale, centre, None, fit_intercept)
        shift = np.where(large, centre, 0.0)
        return cls(scale, centre - shift, shift, fit_intercept)

    @property
    def n_parameters(self) -> int:
        """Number of parameters of one output."""
        return len(self.scale) + int(self.fit_intercept)

    def rows(self, X: Matrix) -> Matrix:
        """Shifted rows, in double precision if they are dense."""
        if sparse.issparse(X):
            return X if self.shift is None else _shifted_rows(X, self.shift)
        X = np.asarray(X, dtype=np.float64)
        return X if self.shift is None else X - self.shift

    def raw(self, theta: Array) -> Array:
        """Parameters (..., p) in the units of `rows`."""
        d = len(self.scale)
        out = theta.copy()
        out[..., :d] /= self.scale
        if self.fit_intercept:
            out[..., d] -= out[..., :d] @ self.centre
        return out

    def in_data_units(self, theta: Array) -> Array:
        """Parameters (..., p) in the units of the original data."""
        out = self.raw(theta)
        if self.shift is not None and self.fit_intercept:
            out[..., -1] -= out[..., : len(self.scale)] @ self.shift
        return out

    def standard_gradient(self, gradient: Array) -> Array:
        """Gradient (..., p) by raw parameters as gradient by standard ones."""
        d = len(self.scale)
        out = gradient.copy()
        if self.fit_intercept:
            out[..., :d] -= self.centre * out[..., d:]
        out[..., :d] /= self.scale
        return out

    def standard_hessian(self, gram: Array) -> Array:
        """Hessian (p, p) by raw parameters as Hessian by standard ones."""
        return self.standard_gradient(self.standard_gradient(gram).T)


@dataclass(frozen=True)
class Prior:
    """A Gaussian in standard coordinates, with precision known up to a factor ``tau``.

    The precision of parameter j is ``fixed_j + tau scaled_j``; ``tau ~ Gamma(shape, rate)``, and
    samplers use ``eta = log tau``. If ``scaled`` is zero there is no ``tau``.
    """

    mean: Array
    fixed: Array
    scaled: Array
    shape: float = 1.0
    rate: float = 1.0

    @property
    def learned(self) -> bool:
        """Whether ``tau`` is learned."""
        return bool(self.scaled.any())

    @property
    def n_scaled(self) -> int:
        """Number of parameters whose precision depends on ``tau``."""
        return int(np.count_nonzero(self.scaled))

    def precision(self, eta: float) -> Array:
        """Precision of every parameter."""
        return self.fixed + np.exp(eta) * self.scaled if self.learned else self.fixed

    def log_density(self, theta: Array, eta: Array) -> Array:
        """Log density of parameters (S, P) and of ``eta`` (S,), up to a constant."""
        square = (theta - self.mean) ** 2
        value = -0.5 * (square @ self.fixed)
        if not self.learned:
            return np.asarray(value)
        tau = np.exp(eta)
        exponent = self.shape + 0.5 * self.n_scaled
        return np.asarray(value + exponent * eta - tau * (self.rate + 0.5 * square @ self.scaled))

    def derivative(self, theta: Array, eta: Array) -> Array:
        """Derivative of the log density with respect to the parameters (S, P)."""
        precision = self.fixed
        if self.learned:
            precision = precision + np.exp(eta)[:, None] * self.scaled
        return np.asarray(-precision * (theta - self.mean))

    def draw_eta(self, theta: Array, stream: np.random.Generator) -> Array:
        """Draw ``eta`` given the parameters (S, P); ``tau`` has a gamma distribution."""
        rate = self.rate + 0.5 * ((theta - self.mean) ** 2 @ self.scaled)
        draws = stream.standard_gamma(self.shape + 0.5 * self.n_scaled, size=len(theta))
        return np.asarray(np.log(np.maximum(draws, 1e-300)) - np.log(rate))


@dataclass(frozen=True)
class Expected:
    """Sums over rows of a smoothed log likelihood: value, gradient, negative Hessian."""

    value: float
    gradient: Array
    hessian: Array

    def __add__(self, other: Expected) -> Expected:
        return Expected(
            self.value + other.value, self.gradient + other.gradient, self.hessian + other.hessian
        )


@dataclass(frozen=True)
class BayesianLinear(Model):
    """A binary or a multinomial (softmax) model, with a prior.

    ``positive_class`` is the index of the positive class of a binary problem; targets of the
    engine are class indices. Methods that take rows take raw parameters (see `Coordinates`), so
    that they are converted once per pass and not once per block.
    """

    has_energy: ClassVar[bool] = True
    has_stats: ClassVar[bool] = True

    linear: LinearModel
    positive_class: int
    coordinates: Coordinates
    prior: Prior

    @property
    def joint(self) -> bool:
        """Whether the model is multinomial."""
        return self.linear.loss.coupled

    @property
    def hinge(self) -> bool:
        """Whether the likelihood is the hinge's pseudo-likelihood."""
        return self.linear.loss.name == "hinge"

    @property
    def n_parameters(self) -> int:
        """Length of the parameter vector."""
        return self.linear.n_rows_theta * self.linear.n_outputs

    def raw(self, theta: Array) -> Array:
        """Standard parameters (S, P) as raw ones."""
        return self.coordinates.raw(self._per_output(theta)).reshape(theta.shape)

    def standard_gradient(self, gradient: Array) -> Array:
        """Gradients (S, P) by raw parameters as gradients by standard ones."""
        return self.coordinates.standard_gradient(self._per_output(gradient)).reshape(
            gradient.shape
        )

    def in_data_units(self, theta: Array) -> Array:
        """Standard parameters (..., P) as (..., K, p) in the units of the data."""
        return self.coordinates.in_data_units(self._per_output(theta))

    def _per_output(self, theta: Array) -> Array:
        K, p = self.linear.n_outputs, self.linear.n_rows_theta
        return theta.reshape(*theta.shape[:-1], K, p)

    def signs(self, batch: Batch) -> Array:
        """Targets -1 and 1 of a binary problem."""
        return np.where(np.asarray(batch.y) == self.positive_class, 1.0, -1.0)

    # -- sums over the rows of a block: maps of a pass, with its state last ---------------
    def log_likelihoods(self, batch: Batch, raw: Array) -> Array:
        """Log likelihood of a block at each of S points (S, P).

        Cost: rows x nonzeros x S, as one matrix product per chunk of rows.
        """
        total = np.zeros(len(raw))
        weights = self._columns(raw)
        for part in self._chunks(batch, CHUNK_VALUES // weights.shape[1]):
            self._sum(part, self.linear.scores(weights, part.X), total)
        return total

    def gradients(self, batch: Batch, raw: Array) -> tuple[Array, Array]:
        """Log likelihoods (S,) and their gradients by the raw parameters (S, P)."""
        total, gradient = np.zeros(len(raw)), np.zeros(raw.shape)
        weights = self._columns(raw)
        for part in self._chunks(batch, CHUNK_VALUES // weights.shape[1]):
            scores = self.linear.scores(weights, part.X)
            self._sum(part, scores, total, with_gradients=True)
            gradient += self.linear.pull_back(part.X, scores).T.reshape(raw.shape)
        return total, gradient

    def expected(self, batch: Batch, mean_and_root: tuple[Array, Array]) -> Expected:
        """Smoothed sums of a binary problem for raw weights ``N(mean, root root^T)``.

        Cost: rows x features^2, about twice that of a Newton step.
        """
        mean, root = mean_and_root
        p = len(mean)
        total = Expected(0.0, np.zeros(p), np.zeros((p, p)))
        smooth = smoothed_hinge if self.hinge else smoothed_logistic
        d = self.linear.n_features
        for part in self._chunks(batch, WIDE_VALUES // p):
            scores = self.linear.scores(mean[:, None], part.X)[:, 0]
            projected = np.asarray(part.X @ root[:d])
            if self.linear.fit_intercept:
                projected += root[d]
            variance = np.einsum("ij,ij->i", projected, projected)
            by_score, curvature = np.empty_like(scores), np.empty_like(scores)
            value = smooth(scores, variance, self.signs(part), _weight(part), by_score, curvature)
            gradient = self.linear.pull_back(part.X, by_score[:, None])[:, 0]
            total = total + Expected(value, gradient, self.linear.gram(part.X, curvature))
        return total

    def largest_curvature(self, batch: Batch) -> Array:
        """Upper bound of the negative Hessian of a binary problem: its value at zero scores."""
        height = 1.0 if self.hinge else 0.25
        weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
        return self.linear.gram(self.coordinates.rows(batch.X), height * weight)

    def softmax_curvature(self, batch: Batch, raw: Array) -> Expected:
        """Log likelihood of a multinomial model at one point, gradient and negative Hessian."""
        stats = self.linear.stats(
            self._columns(raw[None]), Batch(self.coordinates.rows(batch.X), batch.y, batch.weight),
            order=2,
        )  # fmt: skip
        assert stats.gradient is not None and stats.hessian is not None
        return Expected(-float(stats.value.sum()), -stats.gradient.T.ravel(), stats.hessian[0])

    def _columns(self, raw: Array) -> Array:
        """Raw points (S, P) as the columns of one matrix (p, S K)."""
        return np.ascontiguousarray(raw.reshape(-1, self.linear.n_rows_theta).T)

    def _chunks(self, batch: Batch, n_rows: int) -> Iterator[Batch]:
        """Chunks of a block, with shifted rows."""
        n_rows = max(64, n_rows)
        for first in range(0, batch.n_rows, n_rows):
            part = slice(first, first + n_rows)
            X = batch.X if batch.n_rows <= n_rows else batch.X[part]
            weight = None if batch.weight is None else batch.weight[part]
            yield Batch(self.coordinates.rows(X), np.asarray(batch.y)[part], weight)

    def _sum(self, part: Batch, scores: Array, total: Array, with_gradients: bool = False) -> None:
        weight = _weight(part)
        if self.joint:
            cube = scores.reshape(len(scores), len(total), -1)
            softmax_sums(cube, np.asarray(part.y).astype(np.intp), weight, total, with_gradients)
            return
        if self.hinge:
            add = hinge_gradients if with_gradients else hinge_sums
        else:
            add = logistic_gradients if with_gradients else logistic_sums
        add(scores, self.signs(part), weight, total)


def add_pairs(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """Sums of log likelihoods and of their gradients."""
    return one[0] + other[0], one[1] + other[1]


def _shifted_rows(X: Matrix, shift: Array) -> Matrix:
    """CSR rows minus ``shift``; columns that need a shift are nearly dense, so this adds little."""
    ones = sparse.csr_array(np.ones((X.shape[0], 1)))
    return sparse.csr_array(X - ones @ sparse.csr_array(shift[None]))


def _weight(part: Batch) -> Array:
    return NO_WEIGHT if part.weight is None else part.weight
