"""Merging of mixture components where that increases the bound.

Coordinate ascent cannot merge two components that share a cluster: moving any single row decreases
the bound. For given responsibilities ``R`` the bound at the best parameters is, up to constants,
``sum_k A(eta_0 + T_k) + H(R) + (weights)`` with ``A`` the log normaliser of a distribution and
``T_k`` a component's statistics. One pass over the rows therefore gives the exact change of the
bound for every pair, without trial fits.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, xlogy

from likelier.base import Array, Batch, Engine
from likelier.multilabel.mixture import DirichletMixture, MixtureParameters, MixtureStats
from likelier.multilabel.variational import MixtureState

CERTAIN = 1.0 - 1e-12  # rows with a larger responsibility have no entropy to lose
MIN_GAIN = 1e-6
MAX_CANDIDATES = 20  # pairs for which the exact change is computed


@dataclass(frozen=True)
class MergeStats:
    """Statistics of rows, and the entropy that merging each pair of components would lose."""

    stats: MixtureStats
    entropy_loss: Array

    def __add__(self, other: MergeStats) -> MergeStats:
        return MergeStats(self.stats + other.stats, self.entropy_loss + other.entropy_loss)


def merge_components(state: MixtureState, engine: Engine) -> MixtureState | None:
    """State with pairs of components merged, largest first, or None if no merge helps.

    The result has fewer components and a bound that is not smaller: removing an empty component
    only removes a divergence, so bounds are comparable.

    Notes
    -----
    Cost: a pass over the rows, plus rows that belong to no single component times components^2,
    plus components^2 x columns.
    """
    model, params = state.model, state.params
    if params.n_components < 2:
        return None
    rows: MergeStats = engine.reduce(_block_stats, operator.add, state=(model, params))
    merger = ComponentMerger(model, rows, params.expected_a())
    while merger.merge_best():
        pass
    stats = merger.stats
    if len(stats.count) == params.n_components:
        return None
    order = np.argsort(-stats.count, kind="stable")
    stats = select_components(stats, order)
    model = replace(model, n_components=len(order))
    return replace(state, model=model, params=model.update(stats, params.expected_a()))


def _block_stats(batch: Batch, state: tuple[DirichletMixture, MixtureParameters]) -> MergeStats:
    return merge_stats(*state, batch)


def merge_stats(model: DirichletMixture, params: MixtureParameters, batch: Batch) -> MergeStats:
    """Statistics of a batch for merging components."""
    log_r = model.log_joint(params, batch.X, batch.y)
    R = np.exp(log_r - logsumexp(log_r, axis=1, keepdims=True))
    weight = np.ones(len(R)) if batch.weight is None else np.asarray(batch.weight)
    stats = model.stats_given(batch, R * weight[:, None])
    uncertain = R.max(axis=1) < CERTAIN
    R, weight = R[uncertain], weight[uncertain]
    own = weight @ xlogy(R, R)
    entropy_loss = np.zeros((R.shape[1], R.shape[1]))
    for i in range(R.shape[1] - 1):
        both = R[:, i : i + 1] + R[:, i + 1 :]
        entropy_loss[i, i + 1 :] = weight @ xlogy(both, both) - own[i] - own[i + 1 :]
    return MergeStats(stats, entropy_loss + entropy_loss.T)


class ComponentMerger:
    """Greedy merging of component pairs while the bound is sure to increase.

    The entropy that a merged pair loses to a third component is at most the sum of what its members
    would have lost, ``L(i + j, k) <= L(i, k) + L(j, k)``. The gain is therefore exact for the first
    pair, and a lower bound from the second on.
    """

    def __init__(self, model: DirichletMixture, rows: MergeStats, a: float) -> None:
        self.model, self.a = model, a
        self.stats, self.entropy_loss = rows.stats, rows.entropy_loss
        self.evidence = self._evidence(slice(None))
        K = len(self.evidence)
        self.evidence_gains = np.stack([self._merge_gains(i) for i in range(K)])
        self.value = weight_bound(model, self.stats.count, a)

    def merge_best(self) -> bool:
        """Merge the pair with the largest gain; False if there is none."""
        count, gains = self.stats.count, self.gains()
        both = count[:, None] + count
        # gain of the weights up to logarithmic terms
        guess = gains + xlogy(both, both) - xlogy(count, count)[:, None] - xlogy(count, count)
        first, second = np.triu_indices(len(count), 1)
        order = np.argsort(-guess[first, second], kind="stable")[:MAX_CANDIDATES]
        for i, j in zip(first[order], second[order], strict=True):
            value = weight_bound(self.model, _merged_counts(count, i, j), self.a)
            if gains[i, j] + value - self.value > MIN_GAIN:
                self._merge(i, j)
                self.value = value
                return True
        return False

    def gains(self) -> Array:
        """Change of the bound by merging each pair, except for that of the weights."""
        return np.asarray(self.evidence_gains - self.entropy_loss)

    def _merge(self, i: int, j: int) -> None:
        """Merge component ``j`` into ``i``."""
        count, features, labels = (
            array.copy() for array in (self.stats.count, self.stats.features, self.stats.labels)
        )
        count[i] += count[j]
        features[:, i] += features[:, j]
        labels[:, i] += labels[:, j]
        entropy_loss = self.entropy_loss.copy()
        entropy_loss[i] = entropy_loss[:, i] = entropy_loss[i] + entropy_loss[j]
        kept = np.delete(np.arange(len(count)), j)
        self.stats = select_components(
            replace(self.stats, count=count, features=features, labels=labels), kept
        )
        self.entropy_loss, self.evidence_gains = (
            entropy_loss[np.ix_(kept, kept)],
            self.evidence_gains[np.ix_(kept, kept)],
        )
        self.evidence = self.evidence[kept]
        new = int(i) - int(j < i)
        self.evidence[new] = self._evidence(slice(new, new + 1))[0]
        self.evidence_gains[new] = self.evidence_gains[:, new] = self._merge_gains(new)

    def _evidence(self, which: slice) -> Array:
        """Log evidence of components' rows under both distributions."""
        return total_evidence(
            self.model, self.stats.features[:, which], self.stats.labels[:, which]
        )

    def _merge_gains(self, i: int) -> Array:
        """Change of the evidence if component ``i`` is merged with each other one."""
        features, labels = self.stats.features, self.stats.labels
        both = total_evidence(
            self.model, features[:, i : i + 1] + features, labels[:, i : i + 1] + labels
        )
        return np.asarray(both - self.evidence[i] - self.evidence)


def total_evidence(model: DirichletMixture, features: Array, labels: Array) -> Array:
    """Log evidence of statistics under the feature and label distributions, 0 without rows."""
    out = np.zeros(features.shape[1])
    for distribution, stats in (
        (model.feature_distribution, features),
        (model.label_distribution, labels),
    ):
        prior = distribution.prior[:, None]
        out += distribution.log_partition(prior + stats) - distribution.log_partition(prior)
    return out


def weight_bound(model: DirichletMixture, count: Array, a: float) -> float:
    """Contribution of the component weights to the bound, for given counts."""
    empty = np.zeros((1, len(count), 0))
    stats = MixtureStats(count, empty, empty, 0.0)
    params = model.weights(stats, a)
    return float(count @ params.expected_log_weights()) - model.stick_divergence(params)


def select_components(stats: MixtureStats, which: Array) -> MixtureStats:
    """Statistics of some components, in the order given."""
    return replace(
        stats, count=stats.count[which], features=stats.features[:, which],
        labels=stats.labels[:, which],
    )  # fmt: skip


def _merged_counts(count: Array, i: int, j: int) -> Array:
    """Counts of the components after merging two, in descending order."""
    merged = np.delete(count, j)
    merged[i - (j < i)] += count[j]
    return np.asarray(np.sort(merged)[::-1])
