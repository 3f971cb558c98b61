"""Fitting of the mixture for labels: bound, temperature, and out-of-fold log-odds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from likelier.base import Array, Engine, Inference, Info, Matrix
from likelier.fitting.monitor import Monitor
from likelier.fitting.run import run
from likelier.multilabel.combination import base_rates, log_odds
from likelier.multilabel.component_merge import merge_components
from likelier.multilabel.distributions import feature_prior, label_prior
from likelier.multilabel.mixture import DirichletMixture
from likelier.multilabel.stacking import MARGIN, log_losses
from likelier.multilabel.variational import (
    MixturePosterior,
    MixtureState,
    VariationalMixture,
    mixture_rows,
    prune,
)

TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01)
GAINS = (0.25, 0.5, 1.0)
TRIAL_ROWS, TRIAL_PASSES = 1500, 15  # for the comparison of temperatures
FOLD_TOL_FACTOR = 10.0  # folds use a looser tolerance
MERGE_TOL_FACTOR = 10.0  # times tol; increase of the bound below which components are merged

# Opens an engine over rows, labels and weights; the caller says where rows live.
MakeEngine = Callable[[Matrix, Array, Array], Engine]


@dataclass(frozen=True)
class MixtureFit:
    """A fitted mixture, and its bound after every pass."""

    state: MixtureState
    bounds: tuple[float, ...]


@dataclass(frozen=True)
class AscentState:
    """State of the mixture, its bound after every pass, and below which increase merging is tried.

    ``merge_tol`` is relative to the tolerance of the passes.
    """

    mixture: MixtureState
    bounds: tuple[float, ...] = ()
    merge_tol: float = MERGE_TOL_FACTOR


@dataclass(frozen=True)
class MergingAscent(Inference):
    """Passes of a mixture; components are merged where that increases the bound, if ``merge``.

    Merging is tried whenever the bound has nearly converged, which costs one more pass.
    """

    passes: VariationalMixture
    merge: bool = True
    resumable: ClassVar[bool] = True

    def init(self, model: DirichletMixture, engine: Engine) -> AscentState:
        """As the passes begin."""
        return AscentState(self.passes.init(model, engine))

    def step(self, state: AscentState, engine: Engine) -> tuple[AscentState, Info]:
        """One pass, and merging where it is time."""
        mixture, info = self.passes.step(state.mixture, engine)
        bounds = (*state.bounds, -info.objective)
        new = replace(state, mixture=mixture, bounds=bounds)
        gain = _last_gain(bounds, mixture_rows(engine))
        nearly_converged = gain < state.merge_tol * self.passes.tol
        if not self.merge or not (nearly_converged or info.converged):
            return new, info
        merged = merge_components(mixture, engine)
        if merged is None:
            return replace(new, merge_tol=0.0), info
        new = replace(new, mixture=merged, merge_tol=MERGE_TOL_FACTOR)
        return new, replace(info, converged=False)

    def posterior(self, state: AscentState) -> MixturePosterior:
        """Posterior of the current state."""
        return self.passes.posterior(state.mixture)


@dataclass(frozen=True)
class LabelMixture:
    """Settings of the mixture; a ``temperature`` of None is chosen by validation."""

    n_components: int
    features: str
    labels: str
    make_engine: MakeEngine
    inference: VariationalMixture
    max_iter: int = 100
    temperature: float | None = None

    def model(self, X: Matrix, Y: Array, weight: Array) -> DirichletMixture:
        """Model with weak priors at the averages of all rows; at most one component per row."""
        return DirichletMixture(
            feature_prior(self.features, X),
            label_prior(self.labels, Y, weight),
            min(self.n_components, X.shape[0]),
            1.0 if self.temperature is None else self.temperature,
        )

    def fit(
        self, X: Matrix, Y: Array, weight: Array, monitor: Monitor | None = None,
        stage: str = "mixture", merge: bool = True,
    ) -> MixtureFit:  # fmt: skip
        """Fit until the bound converges, or the monitor ends the fit.

        ``stage`` is what the state is recorded as in a checkpoint. Without ``merge`` no components
        are merged.
        """
        monitor = Monitor() if monitor is None else monitor
        ascent = MergingAscent(self.inference, merge)
        with closing(self.make_engine(X, Y, weight)) as engine:
            start = ascent.init(self.model(X, Y, weight), engine)
            most = monitor.n_steps + self.max_iter
            found = run(ascent, start, engine, monitor, stage=stage, max_steps=most).state
        params = prune(found.mixture.params, float(weight.sum()))
        model = replace(found.mixture.model, n_components=params.n_components)
        return MixtureFit(replace(found.mixture, model=model, params=params), found.bounds)

    def choose_temperature(
        self, X: Matrix, Y: Array, weight: Array, held: Array, rng: np.random.Generator
    ) -> float:
        """The temperature, chosen by the loss of held-out labels, unless it is given.

        The default is one, the exact likelihood, unless a lower temperature is better by more than
        noise.
        """
        if self.temperature is not None:
            return self.temperature
        rows = np.flatnonzero(~held)
        if len(rows) > TRIAL_ROWS:
            rows = np.sort(rng.permutation(rows)[:TRIAL_ROWS])
        candidates = []
        for value in TEMPERATURES:
            trial = replace(self, temperature=value, max_iter=min(self.max_iter, TRIAL_PASSES))
            state = trial.fit(X[rows], Y[rows], weight[rows], merge=False).state
            base = base_rates(Y[rows], weight[rows])
            log_odds_ratio = log_odds(state.model, state.params, X[held], base)
            start = np.log(base / (1.0 - base))
            losses = [
                log_losses(start + gain * log_odds_ratio, Y[held], weight[held]).sum(axis=1)
                for gain in GAINS
            ]
            candidates.append(min(losses, key=lambda loss: float(loss.sum())))
        return TEMPERATURES[first_not_worse(candidates)]

    def out_of_fold(
        self, X: Matrix, Y: Array, weight: Array, fold: Array, monitor: Monitor | None = None,
        name: str = "mixture",
    ) -> Array:  # fmt: skip
        """Log-odds ratios from mixtures fitted without the rows; fold -1 is part of every fit.

        Each fold is a stage of the ``monitor``, called by the ``name`` and its number.
        """
        monitor = Monitor() if monitor is None else monitor
        out = np.zeros(Y.shape)
        inference = replace(self.inference, tol=FOLD_TOL_FACTOR * self.inference.tol)
        loose = replace(self, inference=inference)
        for f in range(int(fold.max()) + 1):
            stage, held = f"{name}, fold {f}", fold == f
            score = partial(loose.scores_without, X, Y, weight, held, monitor.silent(), stage)
            out[held] = monitor.stage(stage, score)
        return out

    def scores_without(
        self, X: Matrix, Y: Array, weight: Array, held: Array, monitor: Monitor, stage: str
    ) -> Array:
        """Log-odds ratios of the rows that are ``held`` out."""
        rows = np.flatnonzero(~held)
        state = self.fit(X[rows], Y[rows], weight[rows], monitor, stage).state
        base = base_rates(Y[rows], weight[rows])
        return log_odds(state.model, state.params, X[held], base)


def _last_gain(bounds: tuple[float, ...], n_rows: int) -> float:
    """Increase of the bound in the last pass, per row."""
    return (bounds[-1] - bounds[-2]) / n_rows if len(bounds) > 1 else np.inf


def first_not_worse(losses: list[Array]) -> int:
    """First of several losses per row that is not worse than the best one by more than noise."""
    best = losses[int(np.argmin([loss.sum() for loss in losses]))]
    for k, loss in enumerate(losses):
        worse = loss - best
        if worse.sum() <= MARGIN * np.sqrt((worse**2).sum()):
            return k
    return len(losses) - 1  # only reached with non-finite losses
