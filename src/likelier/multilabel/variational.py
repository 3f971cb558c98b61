"""Variational inference of a mixture: coordinate ascent, or natural-gradient steps on batches.

With all rows, a step is exact coordinate ascent and the bound never decreases. With a batch of
``|B|`` of ``N`` rows, the statistics are scaled by ``N / |B|`` and the natural parameters are
moved by ``rho_t = (t + delay)^-decay`` towards the optimum they imply.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix, Posterior
from likelier.multilabel.distributions import squared
from likelier.multilabel.mixture import DirichletMixture, MixtureParameters, MixtureStats
from likelier.predictive import Categorical

SEED_ROWS = 2000  # rows used to initialise the components


@dataclass(frozen=True)
class MixtureState:
    """Model, its parameters, the number of batches seen, and the current bound."""

    model: DirichletMixture
    params: MixtureParameters
    step: int = 0
    bound: float = float("-inf")


@dataclass(frozen=True)
class MixturePosterior(Posterior):
    """Posterior of the components after inference."""

    model: DirichletMixture
    params: MixtureParameters

    def predictive(self, X: Matrix) -> Categorical:
        """Component of every row, from its features alone."""
        return Categorical(self.model.responsibilities(self.params, X))


@dataclass(frozen=True)
class VariationalMixture(Inference):
    """Coordinate ascent on all rows, or stochastic steps on batches.

    Parameters
    ----------
    stochastic : bool
        Whether a step is a pass in batches (the engine's blocks) or one update with all rows.
    delay, decay : float
        ``rho_t = (t + delay)^-decay``; ``decay`` in (0.5, 1], ``t + delay >= 1``.
    tol : float
        Converged when the bound per row increases by less than this.

    Notes
    -----
    Cost of a step: rows x columns x components, either way. Stochastic steps visit the blocks one
    after another, on one machine: each begins where the one before has ended.
    """

    stochastic: bool = False
    delay: float = 1.0
    decay: float = 0.7
    tol: float = 1e-4

    resumable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0.5 < self.decay <= 1.0:
            raise ValueError(f"decay must lie in (0.5, 1], got {self.decay!r}")
        if not self.delay >= 1.0:
            raise ValueError(f"delay must be at least 1, got {self.delay!r}")

    def init(self, model: DirichletMixture, engine: Engine) -> MixtureState:
        """Initialise components around rows that are far from each other, largest first."""
        sample = engine.sample(SEED_ROWS)
        R = seed_responsibilities(sample, model, engine.stream(0, 0))
        R = R[:, np.argsort(-R.sum(axis=0), kind="stable")]
        weight = np.ones(len(R)) if sample.weight is None else np.asarray(sample.weight)
        stats = model.stats_given(sample, R * weight[:, None])
        shape, rate = model.prior_concentration
        return MixtureState(model, model.update(stats, shape / rate))

    def step(self, state: MixtureState, engine: Engine) -> tuple[MixtureState, Info]:
        """One pass over all rows."""
        if self.stochastic:
            return self._pass(state, engine)
        model, params = state.model, state.params
        stats: MixtureStats = engine.reduce(block_stats, operator.add, state=(model, params))
        bound = model.bound(params, stats.evidence)
        gain = (bound - state.bound) / mixture_rows(engine)
        new = replace(
            state, params=model.update(stats, params.expected_a()), step=state.step + 1, bound=bound
        )
        return new, Info(objective=-bound, passes=1.0, converged=bool(gain < self.tol))

    def _pass(self, state: MixtureState, engine: Engine) -> tuple[MixtureState, Info]:
        """Natural-gradient steps, one per block of shuffled rows."""
        evidence, params = 0.0, state.params
        for batch in engine.blocks(state.step):
            batch = batch.compact()
            state, evidence_part = self.learn(state, batch, mixture_rows(engine) / batch.n_rows)
            evidence += evidence_part
        bound = state.model.bound(params, evidence)
        gain = (bound - state.bound) / mixture_rows(engine)
        new = replace(state, bound=bound)
        return new, Info(objective=-bound, passes=1.0, converged=bool(gain < self.tol))

    def learn(
        self, state: MixtureState, batch: Batch, scale: float, known: Array | None = None
    ) -> tuple[MixtureState, float]:
        """One natural-gradient step; also returns the expected log evidence of the batch before it.

        Parameters
        ----------
        state : MixtureState
            Current state.
        batch : Batch
            Rows and labels.
        scale : float
            ``N / |B|``, the factor by which the statistics are multiplied.
        known : array of shape (L,), optional
            How often each label is known in the batch, relative to all rows. Scales the step of
            every label and the weight of its statistics, so that a batch in which a label is
            unknown leaves its parameters unchanged. Not needed for random batches of all rows,
            whose steps are unbiased.
        """
        model, params = state.model, state.params
        stats = model.stats(params, batch)
        target = model.update(stats.scaled(scale), params.expected_a())
        rho = (state.step + self.delay) ** -self.decay
        blended = params.blend(target, rho)
        if known is not None:
            steps = np.minimum(rho * known, 1.0)
            prior = model.label_distribution.prior[:, None]
            label_stats = scale / np.maximum(known, 1e-300) * stats.labels
            labels = (1.0 - steps) * params.labels + steps * (prior + label_stats)
            blended = replace(blended, labels=labels)
        return replace(state, params=blended, step=state.step + 1), stats.evidence

    def posterior(self, state: MixtureState) -> MixturePosterior:
        """Posterior of the current state."""
        return MixturePosterior(state.model, state.params)


def block_stats(batch: Batch, state: tuple[DirichletMixture, MixtureParameters]) -> MixtureStats:
    """The map of a pass: statistics of a block under a model and its parameters."""
    model, params = state
    return model.stats(params, batch)


def mixture_rows(engine: Engine) -> int:
    """Number of rows, which the bound per row and stochastic steps need."""
    if engine.n_rows is None:
        raise ValueError("the mixture requires data with a known number of rows")
    return engine.n_rows


def prune(params: MixtureParameters, n_rows: float, least: float = 1.0) -> MixtureParameters:
    """Remove components with an expected number of rows below ``least``."""
    expected = params.expected_weights() * n_rows
    kept = np.flatnonzero(expected >= least)
    if len(kept) < 2:
        kept = np.sort(np.argsort(-expected, kind="stable")[: min(2, len(expected))])
    return params.take(kept)


def seed_responsibilities(batch: Batch, model: DirichletMixture, rng: np.random.Generator) -> Array:
    """Assign rows to the nearest of k-means++ centres.

    The squared distance is the sum of those in features and labels, each divided by its mean.
    """
    X, Y = batch.X, np.asarray(batch.y, dtype=np.float64)
    labels = np.nan_to_num(
        Y - np.nan_to_num(model.label_distribution.mean(model.label_distribution.prior[:, None]))
    )
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    norms = np.asarray(squared(X).sum(axis=1), dtype=np.float64).ravel()
    scale = 1.0 / max(float(norms.mean() - mean @ mean), 1e-300)
    labels /= max(float(np.sqrt((labels**2).sum(axis=1).mean())), 1e-300)
    norms = scale * norms + (labels**2).sum(axis=1)

    def distance(row: int) -> Array:
        one = X[[row]].toarray()[0] if not isinstance(X, np.ndarray) else X[row]
        cross = X @ (scale * np.asarray(one, dtype=np.float64)) + labels @ labels[row]
        return np.asarray(np.maximum(norms + norms[row] - 2.0 * cross, 0.0))

    n, K = len(Y), model.n_components
    nearest = distance(int(rng.integers(n)))
    owner = np.zeros(n, dtype=np.intp)
    for k in range(1, min(K, n)):
        total = float(nearest.sum())
        if total <= 0.0:
            break
        squared_distance = distance(int(rng.choice(n, p=nearest / total)))
        owner[squared_distance < nearest] = k
        nearest = np.minimum(nearest, squared_distance)
    return np.asarray(0.05 / K + 0.95 * (owner[:, None] == np.arange(K)))
