"""Fitting of `MultilabelClassifier`: maps, out-of-fold scores, mixture, stacking, thresholds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from likelier.base import Array, Matrix
from likelier.calibration import best_thresholds
from likelier.fitting.dataset import local_engine
from likelier.fitting.monitor import Monitor
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
from likelier.multilabel.settings import Mixture
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


@dataclass(frozen=True)
class Settings:
    """Parameters of a fit, as the constructor of the estimator has them, and its seed."""

    kind: str  # of the labels
    seed: int
    mixture: Mixture
    combine: str
    kernel: Any
    n_jobs: int | None

    def label_mixture(self, n_rows: int, features: str) -> LabelMixture:
        """The mixture of so many rows, and how it is fitted."""
        given = self.mixture
        stochastic = given.batch_size is not None or n_rows > STOCHASTIC_ROWS
        block = (given.batch_size or BATCH_ROWS) if stochastic else None
        temperature = given.feature_temperature
        return LabelMixture(
            int(given.n_components), features, given.label_distribution,
            partial(
                local_engine, seed=self.seed, n_jobs=self.n_jobs, shuffle=True, block_rows=block
            ),
            VariationalMixture(stochastic, decay=given.learning_decay, tol=given.tol),
            int(given.max_iter), None if isinstance(temperature, str) else float(temperature),
        )  # fmt: skip


@dataclass(frozen=True)
class FittedMap:
    """A map, the weights fitted to its features, and the prior precisions of these.

    ``scores`` ``(n, L)`` are out of fold for labelled rows, from the weights for the others.
    """

    map: FeatureMap
    weights: LabelWeights
    scores: Array
    alpha: Array


@dataclass(frozen=True)
class FittedMixture:
    """A fitted mixture, its scaling, and its log-odds ratios for the training rows."""

    state: MixtureState
    scaling: MixtureScaling
    odds: Array
    bounds: tuple[float, ...]


@dataclass(frozen=True)
class Fitted:
    """All parts of the model, and how they are combined."""

    maps: list[FittedMap]
    mixture: FittedMixture | None
    stack: Array
    thresholds: dict[str, Array]


def fit(rows: Rows, fold: Array, settings: Settings, monitor: Monitor) -> Fitted:
    """Classifiers on every feature map, a mixture of rows and labels, and their combination.

    Where time is over, no further map or mixture is begun; the combination is always fitted.
    """
    maps = fit_maps(rows, fold, settings, monitor)
    mixture = None
    if settings.mixture.n_components and fold.max() >= 1 and not monitor.over:
        mixture = fit_mixture([part.scores for part in maps], rows, fold, settings, monitor)

    def combination() -> tuple[Array, dict[str, Array]]:
        scores = [part.scores for part in maps]
        weights, total = combine(scores, mixture, rows, fold, settings)
        validated = bool(fold.max() > 0)
        return weights, choose_thresholds(total, rows, settings.kind, validated)

    return Fitted(maps, mixture, *monitor.stage("combination", combination))


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


def fit_maps(rows: Rows, fold: Array, settings: Settings, monitor: Monitor) -> list[FittedMap]:
    """Per-label classifiers on every map.

    With many unlabelled rows, every map is also used with the squared kernel, which reflects the
    clusters of all rows.
    """
    found: list[FittedMap] = []
    size = rows.Y.shape[0] * min(rows.X.shape[1], 1000) * rows.Y.shape[1]
    dtype = np.float64 if size <= DOUBLE_CELLS else np.float32
    squared = bool((fold < 0).mean() >= MIN_UNLABELLED)
    kinds = map_kinds(rows.X, int((fold >= 0).sum()), settings.kernel)
    for number, (kind, scale) in enumerate(kinds):
        name = f"{kind} features, scale {scale:g}"
        rng = np.random.default_rng([settings.seed, 6, number])
        part = monitor.stage(name, partial(fit_map, kind, rows.X, rows.weight, rng, scale, dtype))
        found += _fit_map_weights(part, rows, fold, squared, (monitor, name))
        if monitor.tick("map", name, lambda: None):
            break
    return found


def _fit_map_weights(
    part: FeatureMap, rows: Rows, fold: Array, squared: bool, stage: tuple[Monitor, str]
) -> list[FittedMap]:
    """Classifiers on a map and, if ``squared``, on that of the squared kernel."""
    monitor, name = stage
    features = cache(lambda: part.apply(rows.X))  # not needed where results are recorded

    def plain() -> FittedMap:
        return fit_weights(part, (features(), features()), rows, fold, (monitor, names[0]))

    def of_square() -> FittedMap:
        Z = features()
        held_out = square_kernel_held_out(Z, rows.weight)
        square, Z = square_kernel(part, Z, rows.weight)
        return fit_weights(square, (Z, held_out), rows, fold, (monitor, names[1]))

    names = f"weights of {name}", f"weights of squared {name}"
    found = [monitor.stage(names[0], plain)]
    if squared and part.rotation.size:
        found.append(monitor.stage(names[1], of_square))
    return found


def fit_weights(
    part: FeatureMap, features: tuple[Any, Any], rows: Rows, fold: Array,
    stage: tuple[Monitor, str],
) -> FittedMap:  # fmt: skip
    """Weights of all labels, out-of-fold scores, and prior precisions.

    ``features`` of the rows are those for training and those for scoring; ``stage`` is a monitor
    and what it records the state as.
    """
    labelled = fold >= 0
    Z, scoring = features
    known = Z[labelled]
    Y = np.ascontiguousarray(rows.Y[labelled], dtype=Z.dtype)
    weight = rows.weight[labelled].astype(Z.dtype)
    if fold.max() < 1:  # a single fold cannot be validated
        base = prior_weights(Z.shape[1], Y, weight, np.ones(Y.shape[1])).scores(known)
        folded = OutOfFoldScores(base, np.ones(Y.shape[1]))
    else:
        folded = out_of_fold(known, Y, weight, fold[labelled], scoring[labelled], *stage)
    weights = fit_labels(known, Y, weight, folded.alpha, folded.start, tol=FULL_TOL)
    scores = np.empty(rows.Y.shape)
    scores[labelled] = folded.scores
    if not labelled.all():
        scores[~labelled] = weights.scores(scoring[~labelled])
    return FittedMap(part, weights, scores, folded.alpha)


def fit_mixture(
    maps: list[Array], rows: Rows, fold: Array, settings: Settings, monitor: Monitor
) -> FittedMixture | None:
    """Mixture of rows and labels; None if there was no time for it.

    Many unlabelled rows may draw components away from the labels. Therefore a mixture of the
    labelled rows alone is tried too, and used if it improves the classifiers, whose scores are
    ``maps``, more.
    """
    kind = infer_distribution(rows.X)
    if settings.mixture.features != "auto":
        kind = settings.mixture.features
    scaling = MixtureScaling.fit(rows.X, rows.weight, kind)
    X, Y, weight = scaling.apply(rows.X), rows.Y, rows.weight
    attempt = partial(_try_mixture, settings, kind, replace(rows, X=X), fold, monitor)
    candidates, unlabelled = [attempt("all rows")], fold < 0
    if unlabelled.mean() >= MIN_UNLABELLED:
        candidates.append(attempt("labelled rows"))
    odds = [candidate.odds for candidate in candidates]
    chosen = candidates[_best_candidate(odds, maps, rows, fold, settings.seed)]
    monitor.attributes = lambda posterior: None  # nothing predicts before the combination
    used = chosen.used
    result = monitor.stage("mixture", lambda: chosen.mixture.fit(
        X[used], Y[used], weight[used], monitor, stage="mixture"
    ))  # fmt: skip
    if not result.bounds:
        return None
    state, odds_of_rows = result.state, chosen.odds.copy()
    if unlabelled.any():
        base = base_rates(Y, weight)
        odds_of_rows[unlabelled] = log_odds(state.model, state.params, X[unlabelled], base)
    return FittedMixture(state, scaling, odds_of_rows, result.bounds)


@dataclass(frozen=True)
class _Candidate:
    """A mixture of the rows ``used``, and its out-of-fold log-odds ratios."""

    mixture: LabelMixture
    used: Array
    odds: Array


def _try_mixture(
    settings: Settings, kind: str, rows: Rows, fold: Array, monitor: Monitor, which: str
) -> _Candidate:
    """Temperature and out-of-fold log-odds ratios of a mixture of all or of labelled rows."""
    used = np.arange(len(fold)) if which == "all rows" else np.flatnonzero(fold >= 0)
    X, Y, weight, of_fold = rows.X[used], rows.Y[used], rows.weight[used], fold[used]
    mixture = settings.label_mixture(rows.X.shape[0], kind)
    rng = np.random.default_rng([settings.seed, 7])
    temperature = monitor.stage(
        f"temperature of the mixture of {which}",
        lambda: mixture.choose_temperature(X, Y, weight, of_fold == 0, rng),
    )
    mixture = replace(mixture, temperature=temperature)
    odds = np.zeros(rows.Y.shape)
    odds[used] = mixture.out_of_fold(X, Y, weight, of_fold, monitor, f"mixture of {which}")
    return _Candidate(mixture, used, odds)


def _best_candidate(
    candidates: list[Array], maps: list[Array], rows: Rows, fold: Array, seed: int
) -> int:
    """First of several log-odds ratios that no other one beats clearly when stacked."""
    if len(candidates) == 1:
        return 0
    labelled = np.flatnonzero(fold >= 0)
    cells = np.ix_(labelled, scorable_labels(rows.Y, fold))
    Y, weight = rows.Y[cells], rows.weight[labelled]

    def stacked(scores: list[Array], n_log_odds: int) -> Array:
        g = stack_weights(scores, Y, weight, np.random.default_rng([seed, 10]), n_log_odds)
        return np.asarray(sum(w * one for w, one in zip(g, scores, strict=True)))

    alone = stacked([scores[cells] for scores in maps], len(maps))
    return first_not_worse([
        log_losses(stacked([alone, odds[cells]], 1), Y, weight).sum(axis=1) for odds in candidates
    ])  # fmt: skip


def combine(
    maps: list[Array], mixture: FittedMixture | None, rows: Rows, fold: Array, settings: Settings
) -> tuple[Array, Array]:
    """Weights of the maps and of the mixture (last), and the combined scores of all rows."""
    labelled = np.flatnonzero(fold >= 0)
    cells = np.ix_(labelled, scorable_labels(rows.Y, fold))
    candidates = list(maps)
    if mixture is not None and settings.combine == "log_odds":
        candidates.append(mixture.odds)
    g = stack_weights(
        [scores[cells] for scores in candidates], rows.Y[cells], rows.weight[labelled],
        np.random.default_rng([settings.seed, 8]), len(maps),
    )  # fmt: skip
    total = np.asarray(sum(w * scores for w, scores in zip(g, candidates, strict=True)))
    base = base_rates(rows.Y, rows.weight)
    if settings.combine == "product" and mixture is not None:
        total = product_scores(total, mixture.odds, base)
    use_base_rates(total, base, known_counts(rows.Y, rows.weight))
    return np.append(g, np.zeros(len(maps) + 1 - len(g))), total


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
