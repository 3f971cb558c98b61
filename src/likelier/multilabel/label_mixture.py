"""What the mixture says about labels: its bound, its temperature, and out-of-fold log-odds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from likelier.base import Array, Engine, Matrix
from likelier.multilabel.component_merge import merge_components
from likelier.multilabel.distributions import feature_prior, label_prior
from likelier.multilabel.mixture import DirichletMixture, MixtureParameters
from likelier.multilabel.stacking import MARGIN, log_losses
from likelier.multilabel.variational import MixtureState, VariationalMixture, prune

TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01)
GAINS = (0.25, 0.5, 1.0)
TRIAL_ROWS, TRIAL_PASSES = 1500, 15  # with which temperatures are compared
FOLD_TOL = 10.0  # times the tolerance: folds only say how far the mixture can be trusted
CALM = 10.0  # times the tolerance: a rise of the bound below which components may be joined
MAX_SHARE = 1.0 - 1e-9

# Opens an engine over rows, labels and weights; the caller says where rows live.
MakeEngine = Callable[[Matrix, Array, Array], Engine]


@dataclass(frozen=True)
class MixtureFit:
    """A fitted mixture, its bound after every pass, and whether the keyboard ended the fit."""

    state: MixtureState
    bounds: list[float]
    interrupted: bool = False


@dataclass(frozen=True)
class LabelMixture:
    """How to fit the mixture; ``temperature`` None means to be found."""

    n_components: int
    features: str
    labels: str
    make_engine: MakeEngine
    inference: VariationalMixture
    max_iter: int = 100
    temperature: float | None = None

    def model(self, X: Matrix, Y: Array, weight: Array) -> DirichletMixture:
        """Model with weak priors that are like all rows; at most one component per row."""
        return DirichletMixture(
            feature_prior(self.features, X),
            label_prior(self.labels, Y, weight),
            min(self.n_components, X.shape[0]),
            1.0 if self.temperature is None else self.temperature,
        )

    def fit(
        self, X: Matrix, Y: Array, weight: Array,
        watch: Callable[[float], bool] = lambda bound: False, merge: bool = True,
        keep: bool = False,
    ) -> MixtureFit:  # fmt: skip
        """Fit until the bound no longer rises; ``watch`` sees every bound and may stop.

        With ``merge`` components are joined where that raises the bound, whenever it has nearly
        come to rest. With ``keep`` an interruption by the keyboard leaves what the last pass has
        found, if there was one; else it goes on to the caller.
        """
        engine = self.make_engine(X, Y, weight)
        state = self.inference.init(self.model(X, Y, weight), engine)
        bounds: list[float] = []
        interrupted, calm = False, CALM
        try:
            for _ in range(self.max_iter):
                state, info = self.inference.step(state, engine)
                bounds.append(-info.objective)
                if watch(bounds[-1]):
                    break
                slow = merge and _rise(bounds, len(Y)) < calm * self.inference.tol
                if not (slow or info.converged):
                    continue
                merged = merge_components(state, engine) if merge else None
                if merged is None and info.converged:
                    break
                state, calm = (state, 0.0) if merged is None else (merged, CALM)
        except KeyboardInterrupt:
            if not (keep and bounds):
                raise
            interrupted = True
        params = prune(state.params, float(weight.sum()))
        model = replace(state.model, n_components=params.n_components)
        return MixtureFit(replace(state, model=model, params=params), bounds, interrupted)

    def with_temperature(
        self, X: Matrix, Y: Array, weight: Array, held: Array, rng: np.random.Generator
    ) -> LabelMixture:
        """Choose the temperature by the labels of held-out rows, where it is not given.

        It is one, which makes the bound that of a probability, unless a lower one is better by
        more than noise.
        """
        if self.temperature is not None:
            return self
        rows = np.flatnonzero(~held)
        if len(rows) > TRIAL_ROWS:
            rows = np.sort(rng.permutation(rows)[:TRIAL_ROWS])
        tried = []
        for value in TEMPERATURES:
            trial = replace(self, temperature=value, max_iter=min(self.max_iter, TRIAL_PASSES))
            state = trial.fit(X[rows], Y[rows], weight[rows], merge=False).state
            base = base_rates(Y[rows], weight[rows])
            odds = log_odds(state.model, state.params, X[held], base)
            start = np.log(base / (1.0 - base))
            losses = [
                log_losses(start + gain * odds, Y[held], weight[held]).sum(axis=1) for gain in GAINS
            ]
            tried.append(min(losses, key=lambda loss: float(loss.sum())))
        return replace(self, temperature=TEMPERATURES[first_as_good(tried)])

    def out_of_fold(self, X: Matrix, Y: Array, weight: Array, fold: Array) -> Array:
        """Log-odds by mixtures that have not seen the rows; rows of fold -1 are in all."""
        out = np.zeros(Y.shape)
        rough = replace(self.inference, tol=FOLD_TOL * self.inference.tol)
        short = replace(self, inference=rough)
        for f in range(int(fold.max()) + 1):
            held = fold == f
            rows = np.flatnonzero(~held)
            state = short.fit(X[rows], Y[rows], weight[rows]).state
            base = base_rates(Y[rows], weight[rows])
            out[held] = log_odds(state.model, state.params, X[held], base)
        return out


def _rise(bounds: list[float], n_rows: int) -> float:
    """How far the bound has risen in the last pass, per row."""
    return (bounds[-1] - bounds[-2]) / n_rows if len(bounds) > 1 else np.inf


def first_as_good(losses: list[Array]) -> int:
    """First of several losses, per row, that the best one does not beat by more than noise."""
    best = losses[int(np.argmin([loss.sum() for loss in losses]))]
    for k, loss in enumerate(losses):
        worse = loss - best
        if worse.sum() <= MARGIN * np.sqrt((worse**2).sum()):
            return k
    return len(losses) - 1  # unreachable but for numbers that are not finite


def base_rates(Y: Array, weight: Array) -> Array:
    """Smoothed frequency of every label."""
    known = np.isfinite(Y)
    positive = weight @ np.where(known, Y, 0.0)
    return np.asarray((positive + 0.5) / (weight @ known + 1.0))


def cardinality(base: Array) -> float:
    """Labels an average row has."""
    return float(base.sum())


def label_probabilities(
    model: DirichletMixture, params: MixtureParameters, X: Matrix, base: Array
) -> Array:
    """``pbar_c = sum_k r_k(x) E psi_kc``, with ``r`` from features alone."""
    table = model.label_table(params, cardinality(base))
    return np.asarray(model.responsibilities(params, X) @ table)


def log_odds(model: DirichletMixture, params: MixtureParameters, X: Matrix, base: Array) -> Array:
    """``logit pbar - logit base``: what the mixture adds to the log-odds of labels."""
    p = np.clip(label_probabilities(model, params, X, base), 1.0 - MAX_SHARE, MAX_SHARE)
    return np.asarray(np.log(p / (1.0 - p)) - np.log(base / (1.0 - base)))


def product_scores(scores: Array, odds: Array, base: Array) -> Array:
    """Log-odds of the product ``pbar sigma(score)``: the rule that is not normalised."""
    pbar = expit(odds + np.log(base / (1.0 - base)))
    p = np.clip(pbar * expit(scores), 1.0 - MAX_SHARE, MAX_SHARE)
    return np.asarray(np.log(p / (1.0 - p)))
