"""How `MultilabelClassifier` is fitted: maps, out-of-fold scores, mixture, weights, thresholds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from likelier.base import Array, Engine, Matrix
from likelier.calibration import best_thresholds
from likelier.engines import LocalEngine
from likelier.fitting.time_budget import TimeBudget
from likelier.multilabel.distributions import guess_law
from likelier.multilabel.features import (
    LabelMap,
    column_moments,
    fit_map,
    sharpened,
    sharpened_unseen,
)
from likelier.multilabel.label_mixture import (
    LabelMixture,
    base_rates,
    first_as_good,
    log_odds,
    product_scores,
)
from likelier.multilabel.logistic import LabelWeights, fit_labels, prior_weights
from likelier.multilabel.rows import MATRIX, Rows, known_counts
from likelier.multilabel.stacking import (
    FoldedScores,
    judged_labels,
    log_losses,
    out_of_fold,
    stack_weights,
)
from likelier.multilabel.variational import MixtureState, VariationalMixture
from likelier.thresholds import OBJECTIVES

MAX_KERNEL_ROWS = {True: 30_000, False: 4_000}  # dense rows; sparse ones gain less by kernels
MAX_ROWS = 30_000  # with and without labels up to which kernels are cheap
MIN_UNLABELLED = 0.25  # share of rows from which on their clusters are worth a look
DENSE_SCALES, SPARSE_SCALES = (0.5, 1.0, 2.0), (1.0,)
DOUBLE_CELLS = 20_000_000  # rows x columns x labels up to which double precision is cheap
FULL_TOL = 3e-3
BATCH_ROWS, STOCHASTIC_ROWS = 1024, 20_000


@dataclass
class Parts:
    """What is fitted, and the scores by which it is put together.

    ``scores`` holds one array ``(n, L)`` per map: out of fold where a row has labels, plain
    where it has none.
    """

    maps: list[LabelMap] = field(default_factory=list)
    weights: list[LabelWeights] = field(default_factory=list)
    scores: list[Array] = field(default_factory=list)
    alphas: list[Array] = field(default_factory=list)
    interrupted: bool = False

    def add(self, part: LabelMap, weights: LabelWeights, scores: Array, alpha: Array) -> None:
        """Add a map and what has been fitted to its features."""
        self.maps.append(part)
        self.weights.append(weights)
        self.scores.append(scores)
        self.alphas.append(alpha)


def map_kinds(X: Matrix, n_labelled: int, kernel: Any) -> list[tuple[str, float]]:
    """Kinds and scales of the maps to be combined."""
    dense = isinstance(X, np.ndarray)
    kinds = [("linear", 1.0)]
    if not dense and not bool((np.asarray(X.data) < 0).any()):
        kinds.append(("weighted", 1.0))
    few = n_labelled <= MAX_KERNEL_ROWS[dense] and X.shape[0] <= MAX_ROWS
    wanted = few if kernel == "auto" else bool(kernel)
    if wanted:
        kinds += [("rbf", scale) for scale in (DENSE_SCALES if dense else SPARSE_SCALES)]
    return kinds


def fit_classifiers(rows: Rows, fold: Array, kernel: Any, seed: int, budget: TimeBudget) -> Parts:
    """Per-label classifiers on every map; stopping early keeps the maps that are done.

    With many unlabelled rows every map comes in two versions: as it is, and sharpened by what
    all rows say about clusters.
    """
    parts = Parts()
    size = rows.Y.shape[0] * min(rows.X.shape[1], 1000) * rows.Y.shape[1]
    dtype = np.float64 if size <= DOUBLE_CELLS else np.float32
    sharpen = bool((fold < 0).mean() >= MIN_UNLABELLED)
    for number, (kind, scale) in enumerate(map_kinds(rows.X, int((fold >= 0).sum()), kernel)):
        try:
            rng = np.random.default_rng([seed, 6, number])
            part = fit_map(kind, rows.X, rows.weight, rng, scale, dtype)
            Z = part.apply(rows.X)
            parts.add(part, *_fit_map_weights(Z, rows, fold))
            if sharpen and part.rotation.size:
                unseen = sharpened_unseen(Z, rows.weight)
                sharp, Z = sharpened(part, Z, rows.weight)
                parts.add(sharp, *_fit_map_weights(Z, rows, fold, unseen))
        except KeyboardInterrupt:
            if not parts.maps:
                raise
            parts.interrupted = True
            break
        if budget.tick("map", f"{kind} features, scale {scale:g}"):
            break
    return parts


def _fit_map_weights(
    Z: Any, rows: Rows, fold: Array, unseen: Any = None
) -> tuple[LabelWeights, Array, Array]:
    """Weights of all labels, out-of-fold scores, and precisions of the priors.

    ``unseen`` are features by which rows are judged, if other than those they are learned by.
    """
    labelled = fold >= 0
    judged = Z if unseen is None else unseen
    known = Z[labelled]
    Y = np.ascontiguousarray(rows.Y[labelled], dtype=Z.dtype)
    weight = rows.weight[labelled].astype(Z.dtype)
    if fold.max() < 1:  # a single row has no other rows to be judged by
        base = prior_weights(Z.shape[1], Y, weight, np.ones(Y.shape[1])).scores(known)
        folded = FoldedScores(base, np.ones(Y.shape[1]))
    else:
        folded = out_of_fold(known, Y, weight, fold[labelled], unseen=judged[labelled])
    weights = fit_labels(known, Y, weight, folded.alpha, folded.start, tol=FULL_TOL)
    scores = np.empty(rows.Y.shape)
    scores[labelled] = folded.scores
    if not labelled.all():
        scores[~labelled] = weights.scores(judged[~labelled])
    return weights, scores, folded.alpha


@dataclass(frozen=True)
class MixtureInput:
    """Rows as the mixture takes them: numbers in units of their spread."""

    centre: Array
    scale: Array

    @classmethod
    def learn(cls, X: Matrix, weight: Array, law: str) -> MixtureInput:
        """Means and spreads of Gaussian columns; nothing for other laws."""
        if law != "gaussian":
            return cls(np.zeros(0), np.zeros(0))
        centre, spread = column_moments(X, weight / weight.sum())
        scale = 1.0 / np.where(spread > 0.0, spread, 1.0)
        return cls(centre if isinstance(X, np.ndarray) else np.zeros(0), scale)

    def apply(self, X: Matrix) -> Any:
        """Rows in these units, in double precision."""
        if not len(self.scale):
            return X.astype(np.float64)
        if len(self.centre):
            return (X - self.centre) * self.scale
        return sparse.csr_array(sparse.csr_array(X).multiply(self.scale[None])).astype(np.float64)


def mixture_settings(estimator: Any, X: Matrix, law: str, seed: int) -> LabelMixture:
    """Words of the estimator as settings of the mixture."""
    stochastic = estimator.batch_size is not None or X.shape[0] > STOCHASTIC_ROWS
    block = (estimator.batch_size or BATCH_ROWS) if stochastic else None

    def make_engine(X: Matrix, Y: Array, weight: Array) -> Engine:
        return LocalEngine(X, Y, weight, seed=seed, n_jobs=estimator.n_jobs, block_rows=block)

    auto = isinstance(estimator.feature_temperature, str)
    return LabelMixture(
        int(estimator.n_components), law, estimator.label_distribution, make_engine,
        VariationalMixture(stochastic, decay=estimator.learning_decay, tol=estimator.tol),
        int(estimator.max_iter), None if auto else float(estimator.feature_temperature),
    )  # fmt: skip


@dataclass(frozen=True)
class FittedMixture:
    """A fitted mixture, its input, and what it says about the rows it was fitted to."""

    state: MixtureState
    input: MixtureInput
    odds: Array
    bounds: list[float]
    interrupted: bool = False


def try_mixture(
    estimator: Any, parts: Parts, rows: Rows, fold: Array, seed: int, budget: TimeBudget
) -> FittedMixture | None:
    """Mixture, as far as the keyboard lets it come; ``parts`` are told if it was interrupted."""
    if parts.interrupted:
        return None
    try:
        mixture = fit_mixture(estimator, parts, rows, fold, seed, budget)
    except KeyboardInterrupt:  # what it says cannot be judged yet, but the classifiers are done
        parts.interrupted = True
        return None
    parts.interrupted = mixture is not None and mixture.interrupted
    return mixture


def fit_mixture(
    estimator: Any, parts: Parts, rows: Rows, fold: Array, seed: int, budget: TimeBudget
) -> FittedMixture | None:
    """Mixture of rows and labels; None if it is not wanted or cannot be judged.

    Many rows without labels may draw patterns away from what tells labels apart. So the mixture of
    labelled rows alone is tried too, and taken if it adds more to the classifiers.
    """
    if not estimator.n_components or fold.max() < 1 or budget.over:
        return None
    law = guess_law(rows.X) if estimator.features == "auto" else estimator.features
    enter = MixtureInput.learn(rows.X, rows.weight, law)
    X, Y, weight = enter.apply(rows.X), rows.Y, rows.weight
    settings = mixture_settings(estimator, X, law, seed)
    unlabelled = fold < 0
    offered = [_judged_mixture(settings, X, rows, fold, np.arange(len(Y)), seed)]
    if unlabelled.mean() >= MIN_UNLABELLED:
        labelled = np.flatnonzero(~unlabelled)
        offered.append(_judged_mixture(settings, X, rows, fold, labelled, seed))
    chosen = offered[_most_helpful([one.odds for one in offered], parts, rows, fold, seed)]
    found = chosen.settings.fit(
        X[chosen.used], Y[chosen.used], weight[chosen.used],
        lambda bound: budget.tick("mixture", f"bound {bound:.6g}"), keep=True,
    )  # fmt: skip
    state, odds = found.state, chosen.odds
    if unlabelled.any():
        base = base_rates(Y, weight)
        odds[unlabelled] = log_odds(state.model, state.params, X[unlabelled], base)
    return FittedMixture(state, enter, odds, found.bounds, found.interrupted)


@dataclass(frozen=True)
class _JudgedMixture:
    """How to fit a mixture to the rows ``used``, and out-of-fold log-odds of labelled rows."""

    settings: LabelMixture
    used: Array
    odds: Array


def _judged_mixture(
    settings: LabelMixture, X: Any, rows: Rows, fold: Array, used: Array, seed: int
) -> _JudgedMixture:
    part, Y, weight, of_fold = X[used], rows.Y[used], rows.weight[used], fold[used]
    rng = np.random.default_rng([seed, 7])
    settings = settings.with_temperature(part, Y, weight, of_fold == 0, rng)
    odds = np.zeros(rows.Y.shape)
    odds[used] = settings.out_of_fold(part, Y, weight, of_fold)
    return _JudgedMixture(settings, used, odds)


def _most_helpful(
    offered: list[Array], parts: Parts, rows: Rows, fold: Array, seed: int
) -> int:  # fmt: skip
    """The first of several log-odds beside which none makes labels clearly more probable."""
    if len(offered) == 1:
        return 0
    labelled = np.flatnonzero(fold >= 0)
    cells = np.ix_(labelled, judged_labels(rows.Y, fold))
    Y, weight = rows.Y[cells], rows.weight[labelled]

    def stacked(scores: list[Array], n_whole: int) -> Array:
        g = stack_weights(scores, Y, weight, np.random.default_rng([seed, 10]), n_whole)
        return np.asarray(sum(w * one for w, one in zip(g, scores, strict=True)))

    alone = stacked([scores[cells] for scores in parts.scores], len(parts.scores))
    return first_as_good([
        log_losses(stacked([alone, odds[cells]], 1), Y, weight).sum(axis=1) for odds in offered
    ])  # fmt: skip


def conclude(
    parts: Parts, mixture: FittedMixture | None, rows: Rows, fold: Array, kind: str, rule: str,
    seed: int,
) -> tuple[Array, dict[str, Array]]:  # fmt: skip
    """Weights of the parts and thresholds; this short last part takes one interruption."""

    def once() -> tuple[Array, dict[str, Array]]:
        weights, scores = combine(parts, mixture, rows, fold, rule, seed)
        return weights, choose_thresholds(scores, rows, kind, judged=bool(fold.max() > 0))

    try:
        return once()
    except KeyboardInterrupt:  # without it all that is done would be lost
        parts.interrupted = True
        return once()


def warn_interrupted(n_maps: int, has_mixture: bool) -> None:
    """Say what a fit that the keyboard has ended consists of."""
    warnings.warn(
        f"the keyboard ended the fit: the model has {n_maps} feature map(s) and "
        f"{'a' if has_mixture else 'no'} mixture; fit again for all of it",
        ConvergenceWarning, stacklevel=5,
    )  # fmt: skip


def combine(
    parts: Parts, mixture: FittedMixture | None, rows: Rows, fold: Array, rule: str, seed: int
) -> tuple[Array, Array]:
    """Weights of the maps and of the mixture (last), and the combined scores of all rows."""
    labelled = np.flatnonzero(fold >= 0)
    cells = np.ix_(labelled, judged_labels(rows.Y, fold))
    offered = list(parts.scores)
    if mixture is not None and rule == "log_odds":
        offered.append(mixture.odds)
    g = stack_weights(
        [scores[cells] for scores in offered], rows.Y[cells], rows.weight[labelled],
        np.random.default_rng([seed, 8]), len(parts.scores),
    )  # fmt: skip
    total = np.asarray(sum(w * scores for w, scores in zip(g, offered, strict=True)))
    base = base_rates(rows.Y, rows.weight)
    if rule == "product" and mixture is not None:
        total = product_scores(total, mixture.odds, base)
    keep_base_rates(total, base, known_counts(rows.Y, rows.weight))
    return np.append(g, np.zeros(len(parts.scores) + 1 - len(g))), total


def keep_base_rates(scores: Array, base: Array, counts: Array) -> None:
    """Give labels that every row has, or none, the log-odds of their smoothed frequency.

    Nothing else is known about them. Weights of parts, which are found from other labels, would
    only make them more or less sure than the number of rows allows; a label that no row knows
    has even odds.

    Parameters
    ----------
    scores : array of shape (n, L)
        Log-odds; changed in place.
    base : array of shape (L,)
        Smoothed frequencies.
    counts : array of shape (L,)
        Weight of the rows in which each label is known.
    """
    rarer = np.minimum(base, 1.0 - base) * (counts + 1.0) - 0.5  # weight of the rarer value
    alone = rarer <= 1e-12 * (counts + 1.0)  # 0, but for rounding
    scores[:, alone] = np.log(base[alone] / (1.0 - base[alone]))


def choose_thresholds(scores: Array, rows: Rows, kind: str, judged: bool) -> dict[str, Array]:
    """Thresholds of a label matrix for every objective; classes compete, and need none."""
    if kind != MATRIX or not judged:
        return dict.fromkeys(OBJECTIVES, np.zeros(rows.Y.shape[1]))
    out = {name: np.zeros(rows.Y.shape[1]) for name in OBJECTIVES}
    known = np.isfinite(rows.Y).any(axis=0)  # other labels have no say in a common threshold
    weight = _balanced(rows)
    for name, thresholds in out.items():
        thresholds[known] = best_thresholds(scores[:, known], rows.Y[:, known], name, weight)
    return out


def _balanced(rows: Rows) -> Array:
    """Weights with which unlabelled rows together count no more than labelled ones.

    Unlabelled rows only repeat what scores say; the rows by which these are checked must not
    drown in them.
    """
    labelled = np.isfinite(rows.Y).any(axis=1)
    rest = float(rows.weight[~labelled].sum())
    if rest == 0.0:
        return rows.weight
    share = min(1.0, float(rows.weight[labelled].sum()) / rest)
    return np.where(labelled, rows.weight, share * rows.weight)
