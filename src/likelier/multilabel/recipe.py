"""Fitting of `MultilabelClassifier`: maps, out-of-fold scores, mixture, stacking, thresholds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from likelier.base import Array, Engine, Matrix
from likelier.calibration import best_thresholds
from likelier.engines import LocalEngine
from likelier.fitting.time_budget import TimeBudget
from likelier.multilabel.combination import (
    MixtureScaling,
    base_rates,
    log_odds,
    product_scores,
    use_base_rates,
)
from likelier.multilabel.distributions import infer_distribution
from likelier.multilabel.features import (
    FeatureMap,
    fit_map,
    square_kernel,
    square_kernel_held_out,
)
from likelier.multilabel.label_mixture import LabelMixture, first_not_worse
from likelier.multilabel.logistic import LabelWeights, fit_labels, prior_weights
from likelier.multilabel.posterior import MATRIX
from likelier.multilabel.rows import Rows, known_counts
from likelier.multilabel.stacking import (
    OutOfFoldScores,
    log_losses,
    out_of_fold,
    scorable_labels,
    stack_weights,
)
from likelier.multilabel.variational import MixtureState, VariationalMixture
from likelier.thresholds import OBJECTIVES

MAX_KERNEL_ROWS = {True: 30_000, False: 4_000}  # dense, sparse; sparse rows gain less
MAX_ROWS = 30_000  # labelled or not, up to which kernels are cheap
MIN_UNLABELLED = 0.25  # fraction of rows; above it semi-supervised variants are tried
DENSE_SCALES, SPARSE_SCALES = (0.5, 1.0, 2.0), (1.0,)
DOUBLE_CELLS = 20_000_000  # rows x columns x labels up to which double precision is cheap
FULL_TOL = 3e-3
BATCH_ROWS, STOCHASTIC_ROWS = 1024, 20_000


@dataclass
class Parts:
    """Fitted classifiers, and the scores used to combine them.

    ``scores`` holds one array ``(n, L)`` per map: out of fold for labelled rows, from the final
    weights for the others.
    """

    maps: list[FeatureMap] = field(default_factory=list)
    weights: list[LabelWeights] = field(default_factory=list)
    scores: list[Array] = field(default_factory=list)
    alphas: list[Array] = field(default_factory=list)
    interrupted: bool = False

    def add(self, part: FeatureMap, weights: LabelWeights, scores: Array, alpha: Array) -> None:
        """Add a map, the weights fitted to its features, and their scores."""
        self.maps.append(part)
        self.weights.append(weights)
        self.scores.append(scores)
        self.alphas.append(alpha)


def map_kinds(X: Matrix, n_labelled: int, kernel: Any) -> list[tuple[str, float]]:
    """Kinds and scales of the feature maps."""
    dense = isinstance(X, np.ndarray)
    kinds = [("linear", 1.0)]
    if not dense and not bool((np.asarray(X.data) < 0).any()):
        kinds.append(("weighted", 1.0))
    few = n_labelled <= MAX_KERNEL_ROWS[dense] and X.shape[0] <= MAX_ROWS
    use_kernel = few if kernel == "auto" else bool(kernel)
    if use_kernel:
        kinds += [("rbf", scale) for scale in (DENSE_SCALES if dense else SPARSE_SCALES)]
    return kinds


def fit_classifiers(rows: Rows, fold: Array, kernel: Any, seed: int, budget: TimeBudget) -> Parts:
    """Per-label classifiers on every map; stopping early keeps the completed maps.

    With many unlabelled rows, every map is also used with the squared kernel, which reflects the
    clusters of all rows.
    """
    parts = Parts()
    size = rows.Y.shape[0] * min(rows.X.shape[1], 1000) * rows.Y.shape[1]
    dtype = np.float64 if size <= DOUBLE_CELLS else np.float32
    squared = bool((fold < 0).mean() >= MIN_UNLABELLED)
    for number, (kind, scale) in enumerate(map_kinds(rows.X, int((fold >= 0).sum()), kernel)):
        try:
            rng = np.random.default_rng([seed, 6, number])
            part = fit_map(kind, rows.X, rows.weight, rng, scale, dtype)
            Z = part.apply(rows.X)
            parts.add(part, *_fit_map_weights(Z, rows, fold))
            if squared and part.rotation.size:
                held_out = square_kernel_held_out(Z, rows.weight)
                part, Z = square_kernel(part, Z, rows.weight)
                parts.add(part, *_fit_map_weights(Z, rows, fold, held_out))
        except KeyboardInterrupt:
            if not parts.maps:
                raise
            parts.interrupted = True
            break
        if budget.tick("map", f"{kind} features, scale {scale:g}"):
            break
    return parts


def _fit_map_weights(
    Z: Any, rows: Rows, fold: Array, held_out: Any = None
) -> tuple[LabelWeights, Array, Array]:
    """Weights of all labels, out-of-fold scores, and prior precisions.

    ``held_out`` are features of the rows for scoring, if different from those for training.
    """
    labelled = fold >= 0
    scoring = Z if held_out is None else held_out
    known = Z[labelled]
    Y = np.ascontiguousarray(rows.Y[labelled], dtype=Z.dtype)
    weight = rows.weight[labelled].astype(Z.dtype)
    if fold.max() < 1:  # a single fold cannot be validated
        base = prior_weights(Z.shape[1], Y, weight, np.ones(Y.shape[1])).scores(known)
        folded = OutOfFoldScores(base, np.ones(Y.shape[1]))
    else:
        folded = out_of_fold(known, Y, weight, fold[labelled], held_out=scoring[labelled])
    weights = fit_labels(known, Y, weight, folded.alpha, folded.start, tol=FULL_TOL)
    scores = np.empty(rows.Y.shape)
    scores[labelled] = folded.scores
    if not labelled.all():
        scores[~labelled] = weights.scores(scoring[~labelled])
    return weights, scores, folded.alpha


def mixture_settings(estimator: Any, X: Matrix, kind: str, seed: int) -> LabelMixture:
    """Settings of the mixture from the parameters of the estimator."""
    stochastic = estimator.batch_size is not None or X.shape[0] > STOCHASTIC_ROWS
    block = (estimator.batch_size or BATCH_ROWS) if stochastic else None

    def make_engine(X: Matrix, Y: Array, weight: Array) -> Engine:
        return LocalEngine(X, Y, weight, seed=seed, n_jobs=estimator.n_jobs, block_rows=block)

    auto = isinstance(estimator.feature_temperature, str)
    return LabelMixture(
        int(estimator.n_components), kind, estimator.label_distribution, make_engine,
        VariationalMixture(stochastic, decay=estimator.learning_decay, tol=estimator.tol),
        int(estimator.max_iter), None if auto else float(estimator.feature_temperature),
    )  # fmt: skip


@dataclass(frozen=True)
class FittedMixture:
    """A fitted mixture, its scaling, and its log-odds ratios for the training rows."""

    state: MixtureState
    scaling: MixtureScaling
    odds: Array
    bounds: list[float]
    interrupted: bool = False


def try_mixture(
    estimator: Any, parts: Parts, rows: Rows, fold: Array, seed: int, budget: TimeBudget
) -> FittedMixture | None:
    """Mixture, or None after an interruption, which is recorded in ``parts``."""
    if parts.interrupted:
        return None
    try:
        mixture = fit_mixture(estimator, parts, rows, fold, seed, budget)
    except KeyboardInterrupt:  # the mixture is not validated, but the classifiers are complete
        parts.interrupted = True
        return None
    parts.interrupted = mixture is not None and mixture.interrupted
    return mixture


def fit_mixture(
    estimator: Any, parts: Parts, rows: Rows, fold: Array, seed: int, budget: TimeBudget
) -> FittedMixture | None:
    """Mixture of rows and labels; None if it is disabled or cannot be validated.

    Many unlabelled rows may draw components away from the labels. Therefore a mixture of the
    labelled rows alone is tried too, and used if it improves the classifiers more.
    """
    if not estimator.n_components or fold.max() < 1 or budget.over:
        return None
    kind = infer_distribution(rows.X) if estimator.features == "auto" else estimator.features
    scaling = MixtureScaling.fit(rows.X, rows.weight, kind)
    X, Y, weight = scaling.apply(rows.X), rows.Y, rows.weight
    settings = mixture_settings(estimator, X, kind, seed)
    unlabelled = fold < 0
    candidates = [_evaluate_mixture(settings, X, rows, fold, np.arange(len(Y)), seed)]
    if unlabelled.mean() >= MIN_UNLABELLED:
        labelled = np.flatnonzero(~unlabelled)
        candidates.append(_evaluate_mixture(settings, X, rows, fold, labelled, seed))
    chosen = candidates[
        _best_candidate([candidate.odds for candidate in candidates], parts, rows, fold, seed)
    ]
    result = chosen.settings.fit(
        X[chosen.used], Y[chosen.used], weight[chosen.used],
        lambda bound: budget.tick("mixture", f"bound {bound:.6g}"), keep_interrupted=True,
    )  # fmt: skip
    state, odds = result.state, chosen.odds
    if unlabelled.any():
        base = base_rates(Y, weight)
        odds[unlabelled] = log_odds(state.model, state.params, X[unlabelled], base)
    return FittedMixture(state, scaling, odds, result.bounds, result.interrupted)


@dataclass(frozen=True)
class _MixtureCandidate:
    """Settings of a mixture of the rows ``used``, and its out-of-fold log-odds ratios."""

    settings: LabelMixture
    used: Array
    odds: Array


def _evaluate_mixture(
    settings: LabelMixture, X: Any, rows: Rows, fold: Array, used: Array, seed: int
) -> _MixtureCandidate:
    part, Y, weight, of_fold = X[used], rows.Y[used], rows.weight[used], fold[used]
    rng = np.random.default_rng([seed, 7])
    settings = settings.with_temperature(part, Y, weight, of_fold == 0, rng)
    odds = np.zeros(rows.Y.shape)
    odds[used] = settings.out_of_fold(part, Y, weight, of_fold)
    return _MixtureCandidate(settings, used, odds)


def _best_candidate(
    candidates: list[Array], parts: Parts, rows: Rows, fold: Array, seed: int
) -> int:  # fmt: skip
    """First of several log-odds ratios that no other one beats clearly when stacked."""
    if len(candidates) == 1:
        return 0
    labelled = np.flatnonzero(fold >= 0)
    cells = np.ix_(labelled, scorable_labels(rows.Y, fold))
    Y, weight = rows.Y[cells], rows.weight[labelled]

    def stacked(scores: list[Array], n_log_odds: int) -> Array:
        g = stack_weights(scores, Y, weight, np.random.default_rng([seed, 10]), n_log_odds)
        return np.asarray(sum(w * one for w, one in zip(g, scores, strict=True)))

    alone = stacked([scores[cells] for scores in parts.scores], len(parts.scores))
    return first_not_worse([
        log_losses(stacked([alone, odds[cells]], 1), Y, weight).sum(axis=1) for odds in candidates
    ])  # fmt: skip


def fit_combination(
    parts: Parts, mixture: FittedMixture | None, rows: Rows, fold: Array, kind: str, rule: str,
    seed: int,
) -> tuple[Array, dict[str, Array]]:  # fmt: skip
    """Stacking weights and thresholds; this short last stage is repeated once if interrupted."""

    def run() -> tuple[Array, dict[str, Array]]:
        weights, scores = combine(parts, mixture, rows, fold, rule, seed)
        return weights, choose_thresholds(scores, rows, kind, validated=bool(fold.max() > 0))

    try:
        return run()
    except KeyboardInterrupt:  # otherwise the whole fit would be lost
        parts.interrupted = True
        return run()


def warn_interrupted(n_maps: int, has_mixture: bool) -> None:
    """Warn that the fit was interrupted, and what the model consists of."""
    warnings.warn(
        f"fit was interrupted: the model has {n_maps} feature map(s) and "
        f"{'a' if has_mixture else 'no'} mixture; fit again for the complete model",
        ConvergenceWarning, stacklevel=5,
    )  # fmt: skip


def combine(
    parts: Parts, mixture: FittedMixture | None, rows: Rows, fold: Array, rule: str, seed: int
) -> tuple[Array, Array]:
    """Weights of the maps and of the mixture (last), and the combined scores of all rows."""
    labelled = np.flatnonzero(fold >= 0)
    cells = np.ix_(labelled, scorable_labels(rows.Y, fold))
    candidates = list(parts.scores)
    if mixture is not None and rule == "log_odds":
        candidates.append(mixture.odds)
    g = stack_weights(
        [scores[cells] for scores in candidates], rows.Y[cells], rows.weight[labelled],
        np.random.default_rng([seed, 8]), len(parts.scores),
    )  # fmt: skip
    total = np.asarray(sum(w * scores for w, scores in zip(g, candidates, strict=True)))
    base = base_rates(rows.Y, rows.weight)
    if rule == "product" and mixture is not None:
        total = product_scores(total, mixture.odds, base)
    use_base_rates(total, base, known_counts(rows.Y, rows.weight))
    return np.append(g, np.zeros(len(parts.scores) + 1 - len(g))), total


def choose_thresholds(scores: Array, rows: Rows, kind: str, validated: bool) -> dict[str, Array]:
    """Thresholds of a label matrix for every objective; zeros for classes."""
    if kind != MATRIX or not validated:
        return dict.fromkeys(OBJECTIVES, np.zeros(rows.Y.shape[1]))
    out = {name: np.zeros(rows.Y.shape[1]) for name in OBJECTIVES}
    known = np.isfinite(rows.Y).any(axis=0)  # unknown labels must not affect shared thresholds
    weight = _balanced(rows)
    for name, thresholds in out.items():
        thresholds[known] = best_thresholds(scores[:, known], rows.Y[:, known], name, weight)
    return out


def _balanced(rows: Rows) -> Array:
    """Weights with which unlabelled rows in total count no more than labelled ones.

    Expected counts of unlabelled rows only repeat the scores; they must not outweigh the rows with
    known labels.
    """
    labelled = np.isfinite(rows.Y).any(axis=1)
    unlabelled = float(rows.weight[~labelled].sum())
    if unlabelled == 0.0:
        return rows.weight
    factor = min(1.0, float(rows.weight[labelled].sum()) / unlabelled)
    return np.where(labelled, rows.weight, factor * rows.weight)
