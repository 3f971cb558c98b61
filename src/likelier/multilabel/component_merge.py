"""Joining components of a mixture where that raises its bound.

Coordinate ascent cannot join two components that share a cluster: moving any single row makes
the bound fall. For given responsibilities ``R`` the bound at the best parameters is, up to
constants, ``sum_k A(eta_0 + T_k) + H(R) + (weights)`` with ``A`` the log normaliser of a law and
``T_k`` a component's statistics; so from one pass over the rows the exact change by joining any
two is known, and nothing need be tried out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, xlogy

from likelier.base import Array, Batch, Engine
from likelier.multilabel.mixture import DirichletMixture, MixtureParameters, MixtureStats
from likelier.multilabel.variational import MixtureState

CERTAIN = 1.0 - 1e-12  # a row that belongs to one component so surely has no entropy to lose
LEAST_GAIN = 1e-6
TRIED = 20  # pairs of which the exact change is computed


@dataclass(frozen=True)
class JoinedRows:
    """Statistics of rows, and the entropy that joining each pair of components would lose."""

    stats: MixtureStats
    lost: Array

    def __add__(self, other: JoinedRows) -> JoinedRows:
        return JoinedRows(self.stats + other.stats, self.lost + other.lost)


def merge_components(state: MixtureState, engine: Engine) -> MixtureState | None:
    """State with pairs of components joined and the largest first, or None if none should be.

    There are fewer components afterwards, and the bound does not fall: leaving an empty one out
    takes a divergence away and nothing else, so bounds may be compared.

    Notes
    -----
    Cost: a pass over the rows, plus rows that belong to no single component times components^2,
    plus components^2 x columns.
    """
    model, params = state.model, state.params
    if params.n_components < 2:
        return None
    rows: JoinedRows = engine.reduce(
        lambda batch: joined_rows(model, params, batch), lambda left, right: left + right
    )
    joining = Joining(model, rows, params.expected_a())
    while joining.join_best():
        pass
    stats = joining.stats
    if len(stats.count) == params.n_components:
        return None
    order = np.argsort(-stats.count, kind="stable")
    stats = take(stats, order)
    model = replace(model, n_components=len(order))
    return replace(state, model=model, params=model.update(stats, params.expected_a()))


def joined_rows(model: DirichletMixture, params: MixtureParameters, batch: Batch) -> JoinedRows:
    """What a batch says about joining components."""
    log_r = model.log_joint(params, batch.X, batch.y)
    R = np.exp(log_r - logsumexp(log_r, axis=1, keepdims=True))
    weight = np.ones(len(R)) if batch.weight is None else np.asarray(batch.weight)
    stats = model.assigned(batch, R * weight[:, None])
    unsure = R.max(axis=1) < CERTAIN
    R, weight = R[unsure], weight[unsure]
    own = weight @ xlogy(R, R)
    lost = np.zeros((R.shape[1], R.shape[1]))
    for i in range(R.shape[1] - 1):
        both = R[:, i : i + 1] + R[:, i + 1 :]
        lost[i, i + 1 :] = weight @ xlogy(both, both) - own[i] - own[i + 1 :]
    return JoinedRows(stats, lost + lost.T)


class Joining:
    """Components that are joined one pair after the other, as long as the bound surely rises.

    Entropy that a joined pair loses to a third component is at most what its members would have
    lost to it, ``L(i + j, k) <= L(i, k) + L(j, k)``: from the second pair on a gain is a lower
    bound, and exact before.
    """

    def __init__(self, model: DirichletMixture, rows: JoinedRows, a: float) -> None:
        self.model, self.a = model, a
        self.stats, self.lost = rows.stats, rows.lost
        self.alone = self._evidence(slice(None))
        K = len(self.alone)
        self.laws = np.stack([self._with_others(i) for i in range(K)])
        self.value = weight_value(model, self.stats.count, a)

    def join_best(self) -> bool:
        """Join the pair by which the bound rises most; False if there is none."""
        count, gains = self.stats.count, self.gains()
        both = count[:, None] + count
        # what weights gain, but for terms of the order of a logarithm
        guess = gains + xlogy(both, both) - xlogy(count, count)[:, None] - xlogy(count, count)
        first, second = np.triu_indices(len(count), 1)
        order = np.argsort(-guess[first, second], kind="stable")[:TRIED]
        for i, j in zip(first[order], second[order], strict=True):
            value = weight_value(self.model, _joined_counts(count, i, j), self.a)
            if gains[i, j] + value - self.value > LEAST_GAIN:
                self._join(i, j)
                self.value = value
                return True
        return False

    def gains(self) -> Array:
        """Change of the bound by joining each pair, but for that of the weights."""
        return np.asarray(self.laws - self.lost)

    def _join(self, i: int, j: int) -> None:
        """Add component ``j`` to ``i``."""
        count, features, labels = (
            array.copy() for array in (self.stats.count, self.stats.features, self.stats.labels)
        )
        count[i] += count[j]
        features[:, i] += features[:, j]
        labels[:, i] += labels[:, j]
        lost = self.lost.copy()
        lost[i] = lost[:, i] = lost[i] + lost[j]
        kept = np.delete(np.arange(len(count)), j)
        self.stats = take(replace(self.stats, count=count, features=features, labels=labels), kept)
        self.lost, self.laws = lost[np.ix_(kept, kept)], self.laws[np.ix_(kept, kept)]
        self.alone = self.alone[kept]
        new = int(i) - int(j < i)
        self.alone[new] = self._evidence(slice(new, new + 1))[0]
        self.laws[new] = self.laws[:, new] = self._with_others(new)

    def _evidence(self, which: slice) -> Array:
        """Evidence of components' rows under both laws."""
        return sum_laws(self.model, self.stats.features[:, which], self.stats.labels[:, which])

    def _with_others(self, i: int) -> Array:
        """Change of the laws' evidence if component ``i`` is joined with each other one."""
        features, labels = self.stats.features, self.stats.labels
        both = sum_laws(
            self.model, features[:, i : i + 1] + features, labels[:, i : i + 1] + labels
        )
        return np.asarray(both - self.alone[i] - self.alone)


def sum_laws(model: DirichletMixture, features: Array, labels: Array) -> Array:
    """Evidence of statistics under the laws of features and labels, 0 without rows."""
    out = np.zeros(features.shape[1])
    for law, told in ((model.feature_distribution, features), (model.label_distribution, labels)):
        prior = law.prior[:, None]
        out += law.log_partition(prior + told) - law.log_partition(prior)
    return out


def weight_value(model: DirichletMixture, count: Array, a: float) -> float:
    """What the components' weights add to the bound, if they have so many rows."""
    nothing = np.zeros((1, len(count), 0))
    stats = MixtureStats(count, nothing, nothing, 0.0)
    params = model.weights(stats, a)
    return float(count @ params.expected_log_weights()) - model.stick_divergence(params)


def take(stats: MixtureStats, which: Array) -> MixtureStats:
    """Statistics of some components, in the order given."""
    return replace(
        stats, count=stats.count[which], features=stats.features[:, which],
        labels=stats.labels[:, which],
    )  # fmt: skip


def _joined_counts(count: Array, i: int, j: int) -> Array:
    """Rows of every component after joining two, the largest first."""
    joined = np.delete(count, j)
    joined[i - (j < i)] += count[j]
    return np.asarray(np.sort(joined)[::-1])
