"""Dirichlet-process mixture of rows and their labels, truncated at ``K`` components.

``v_k ~ Beta(1, a)``, ``v_K = 1``, ``z_i ~ Cat(pi(v))``, ``x_i | z ~ F^temperature``, labels ``y_i |
z`` Bernoulli (or multinomial); ``a ~ Gamma(s1, s2)``. Everything but ``z`` is conjugate, so a pass
over rows gives additive statistics, and the next parameters are the prior plus statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import digamma, gammaln, logsumexp

from likelier.base import Array, Batch, Matrix, Model
from likelier.multilabel.distributions import ColumnDistribution, beta_divergence


@dataclass(frozen=True)
class MixtureStats:
    """Additive statistics of rows: counts of the components, their features and labels.

    ``evidence`` is the sum over rows of ``log sum_k exp(...)``, their contribution to the bound.
    """

    count: Array
    features: Array
    labels: Array
    evidence: float

    def __add__(self, other: Self) -> Self:
        return replace(self, **{f.name: getattr(self, f.name) + getattr(other, f.name)
                                for f in fields(self)})  # fmt: skip

    def scaled(self, factor: float) -> Self:
        """Statistics of ``factor`` times as many rows of the same kind."""
        return replace(self, **{f.name: factor * getattr(self, f.name) for f in fields(self)})


@dataclass(frozen=True)
class MixtureParameters:
    """Natural parameters of all global variables; see `DirichletMixture`.

    ``sticks`` is ``(2, K - 1)``, ``concentration`` shape and rate of ``a``; ``features`` and
    ``labels`` are those of the two column distributions.
    """

    sticks: Array
    concentration: Array
    features: Array
    labels: Array

    @property
    def n_components(self) -> int:
        """Number of components."""
        return int(self.sticks.shape[1]) + 1

    def blend(self, target: Self, rho: float) -> Self:
        """``(1 - rho) eta + rho eta_target``: a natural-gradient step of length ``rho``."""
        return replace(self, **{
            f.name: (1.0 - rho) * getattr(self, f.name) + rho * getattr(target, f.name)
            for f in fields(self)
        })  # fmt: skip

    def take(self, components: Array) -> Self:
        """Select components, in the order given; sticks are recomputed from expected counts."""
        if self.n_components == 1:
            return self
        first, second = self.sticks
        count = np.append(first - 1.0, max(0.0, float(second[-1]) - self.expected_a()))
        sticks = stick_parameters(count[components], self.expected_a())
        return replace(
            self, sticks=sticks,
            features=self.features[:, components], labels=self.labels[:, components],
        )  # fmt: skip

    def expected_a(self) -> float:
        """Expected concentration."""
        return float(self.concentration[0] / self.concentration[1])

    def expected_log_weights(self) -> Array:
        """``E log pi_k`` of the stick-breaking weights."""
        both = digamma(self.sticks.sum(axis=0))
        log_fraction = np.append(digamma(self.sticks[0]) - both, 0.0)
        log_remaining = np.concatenate([[0.0], np.cumsum(digamma(self.sticks[1]) - both)])
        return np.asarray(log_fraction + log_remaining)

    def expected_weights(self) -> Array:
        """``E pi_k``."""
        fraction = np.append(self.sticks[0] / self.sticks.sum(axis=0), 1.0)
        remaining = np.concatenate([[1.0], np.cumprod(1.0 - fraction[:-1])])
        return np.asarray(fraction * remaining)

    def to_arrays(self) -> dict[str, Array]:
        """Plain form, for saving."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Return the parameters whose plain form this is."""
        return cls(**arrays)


def stick_parameters(count: Array, a: float) -> Array:
    """``(1 + n_k, a + sum_{j > k} n_j)`` for all components but the last."""
    after = np.cumsum(count[::-1])[::-1]
    return np.stack([1.0 + count[:-1], a + after[1:]])


@dataclass(frozen=True)
class DirichletMixture(Model):
    """The mixture model; parameters are stored separately.

    Attributes
    ----------
    feature_distribution, label_distribution : ColumnDistribution
        Distributions of the columns of ``Batch.X`` and ``Batch.y`` (labels, NaN where unknown).
    n_components : int
        Truncation ``K``.
    temperature : float
        Power of the features' likelihood, in (0, 1]: it multiplies their log density and
        their statistics alike, otherwise the bound could decrease.
    prior_concentration : (float, float)
        Shape and rate of the Gamma prior of ``a``.
    """

    feature_distribution: ColumnDistribution
    label_distribution: ColumnDistribution
    n_components: int
    temperature: float = 1.0
    prior_concentration: tuple[float, float] = (1.0, 1.0)
    has_stats: ClassVar[bool] = True

    # -- rows ---------------------------------------------------------------------------
    def log_joint(self, params: MixtureParameters, X: Matrix, Y: Array | None) -> Array:
        """Unnormalised log responsibilities, ``(n, K)``; labels may be unknown."""
        out = self.temperature * self.feature_distribution.expected_log(params.features, X)
        out += params.expected_log_weights()
        if Y is not None:
            out += self.label_distribution.expected_log(params.labels, Y)
        return np.asarray(out)

    def responsibilities(
        self, params: MixtureParameters, X: Matrix, Y: Array | None = None
    ) -> Array:
        """Probability that a row belongs to each component."""
        log_r = self.log_joint(params, X, Y)
        return np.asarray(np.exp(log_r - logsumexp(log_r, axis=1, keepdims=True)))

    def stats(self, params: MixtureParameters, batch: Batch) -> MixtureStats:
        """Statistics of a batch under its responsibilities (E-step)."""
        log_r = self.log_joint(params, batch.X, batch.y)
        total = logsumexp(log_r, axis=1, keepdims=True)
        R = np.exp(log_r - total)
        weight = np.ones(len(R)) if batch.weight is None else np.asarray(batch.weight)
        return self.stats_given(batch, R * weight[:, None], float(weight @ total[:, 0]))

    def stats_given(self, batch: Batch, R: Array, evidence: float = 0.0) -> MixtureStats:
        """Statistics of rows under given responsibilities (times weights)."""
        assert batch.y is not None
        return MixtureStats(
            R.sum(axis=0),
            self.temperature * self.feature_distribution.stats(batch.X, R),
            self.label_distribution.stats(batch.y, R),
            evidence,
        )

    # -- parameters -----------------------------------------------------------------------
    def update(self, stats: MixtureStats, a: float) -> MixtureParameters:
        """Optimal parameters given statistics of all rows (M-step)."""
        return replace(
            self.weights(stats, a),
            features=self.feature_distribution.prior[:, None] + stats.features,
            labels=self.label_distribution.prior[:, None] + stats.labels,
        )

    def weights(self, stats: MixtureStats, a: float) -> MixtureParameters:
        """Update of the component weights only; the other statistics are copied."""
        sticks = stick_parameters(stats.count, a)
        return MixtureParameters(sticks, self._concentration(sticks), stats.features, stats.labels)

    def _concentration(self, sticks: Array) -> Array:
        """Posterior of ``a`` given the sticks: Gamma(s1 + K - 1, s2 - sum E log(1 - v))."""
        shape, rate = self.prior_concentration
        log_remaining = digamma(sticks[1]) - digamma(sticks.sum(axis=0))
        return np.array([shape + sticks.shape[1], rate - log_remaining.sum()])

    def bound(self, params: MixtureParameters, evidence: float) -> float:
        """Evidence lower bound, given the rows' expected log evidence under these parameters."""
        return float(
            evidence
            - self.feature_distribution.divergence(params.features)
            - self.label_distribution.divergence(params.labels)
            - self.stick_divergence(params)
        )

    def stick_divergence(self, params: MixtureParameters) -> float:
        """Divergence of ``q(v) q(a)`` from ``p(v | a) p(a)``."""
        shape, rate = params.concentration
        shape0, rate0 = self.prior_concentration
        mean, log_mean = shape / rate, digamma(shape) - np.log(rate)
        first, second = params.sticks
        # KL from Beta(1, 1), whose density is 1, then the term of p(v | a) = a (1 - v)^(a - 1)
        out = beta_divergence(first, second, np.ones_like(first), np.ones_like(first)).sum()
        log_remaining = digamma(second) - digamma(first + second)
        out -= len(first) * log_mean + (mean - 1.0) * log_remaining.sum()
        out += shape * np.log(rate) - shape0 * np.log(rate0) - gammaln(shape) + gammaln(shape0)
        out += (shape - shape0) * log_mean - (rate - rate0) * mean
        return float(out)

    # -- labels ---------------------------------------------------------------------------
    def label_table(self, params: MixtureParameters, cardinality: float) -> Array:
        """Probability of every label per component, ``(K, L)``.

        For multinomial labels, the probability that ``cardinality`` draws include the label.
        """
        mean = self.label_distribution.mean(params.labels)
        if self.label_distribution.name == "bernoulli":
            return mean
        return np.asarray(-np.expm1(cardinality * np.log1p(-np.minimum(mean, 1.0 - 1e-12))))


def to_plain(distribution: ColumnDistribution) -> dict[str, Any]:
    """Plain form of a distribution, for saving."""
    return {"name": distribution.name, "prior": distribution.prior}
