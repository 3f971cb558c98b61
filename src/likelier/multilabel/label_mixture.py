"""Fitting of the mixture for labels: bound, temperature, and out-of-fold log-odds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from likelier.base import Array, Engine, Matrix
from likelier.multilabel.combination import base_rates, log_odds
from likelier.multilabel.component_merge import merge_components
from likelier.multilabel.distributions import feature_prior, label_prior
from likelier.multilabel.mixture import DirichletMixture
from likelier.multilabel.stacking import MARGIN, log_losses
from likelier.multilabel.variational import MixtureState, VariationalMixture, prune

TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01)
GAINS = (0.25, 0.5, 1.0)
TRIAL_ROWS, TRIAL_PASSES = 1500, 15  # for the comparison of temperatures
FOLD_TOL_FACTOR = 10.0  # folds use a looser tolerance
MERGE_TOL_FACTOR = 10.0  # times tol; increase of the bound below which components are merged

# Opens an engine over rows, labels and weights; the caller says where rows live.
MakeEngine = Callable[[Matrix, Array, Array], Engine]


@dataclass(frozen=True)
class MixtureFit:
    """A fitted mixture, its bound after every pass, and whether the user interrupted the fit."""

    state: MixtureState
    bounds: list[float]
    interrupted: bool = False


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
        self, X: Matrix, Y: Array, weight: Array,
        callback: Callable[[float], bool] = lambda bound: False, merge: bool = True,
        keep_interrupted: bool = False,
    ) -> MixtureFit:  # fmt: skip
        """Fit until the bound converges; ``callback`` gets every bound and may stop the fit.

        With ``merge``, components are merged where that increases the bound, whenever it has nearly
        converged. With ``keep_interrupted``, KeyboardInterrupt returns the result of the last pass,
        if there was one; otherwise it is raised.
        """
        engine = self.make_engine(X, Y, weight)
        state = self.inference.init(self.model(X, Y, weight), engine)
        bounds: list[float] = []
        interrupted, merge_tol = False, MERGE_TOL_FACTOR
        try:
            for _ in range(self.max_iter):
                state, info = self.inference.step(state, engine)
                bounds.append(-info.objective)
                if callback(bounds[-1]):
                    break
                nearly_converged = (
                    merge and _last_gain(bounds, len(Y)) < merge_tol * self.inference.tol
                )
                if not (nearly_converged or info.converged):
                    continue
                merged = merge_components(state, engine) if merge else None
                if merged is None and info.converged:
                    break
                state, merge_tol = (state, 0.0) if merged is None else (merged, MERGE_TOL_FACTOR)
        except KeyboardInterrupt:
            if not (keep_interrupted and bounds):
                raise
            interrupted = True
        params = prune(state.params, float(weight.sum()))
        model = replace(state.model, n_components=params.n_components)
        return MixtureFit(replace(state, model=model, params=params), bounds, interrupted)

    def with_temperature(
        self, X: Matrix, Y: Array, weight: Array, held: Array, rng: np.random.Generator
    ) -> LabelMixture:
        """Choose the temperature by the loss of held-out labels, unless it is given.

        The default is one, the exact likelihood, unless a lower temperature is better by more than
        noise.
        """
        if self.temperature is not None:
            return self
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
        return replace(self, temperature=TEMPERATURES[first_not_worse(candidates)])

    def out_of_fold(self, X: Matrix, Y: Array, weight: Array, fold: Array) -> Array:
        """Log-odds ratios from mixtures fitted without the rows; fold -1 is part of every fit."""
        out = np.zeros(Y.shape)
        inference = replace(self.inference, tol=FOLD_TOL_FACTOR * self.inference.tol)
        loose = replace(self, inference=inference)
        for f in range(int(fold.max()) + 1):
            held = fold == f
            rows = np.flatnonzero(~held)
            state = loose.fit(X[rows], Y[rows], weight[rows]).state
            base = base_rates(Y[rows], weight[rows])
            out[held] = log_odds(state.model, state.params, X[held], base)
        return out


def _last_gain(bounds: list[float], n_rows: int) -> float:
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
