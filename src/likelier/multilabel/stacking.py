"""Out-of-fold scores of labels, and the choice of prior precisions and stacking weights.

Prior precisions are tried from the strongest down, all labels and folds side by side, until weaker
ones no longer help, or there are too few examples of the rarer values to support them. A label
deviates from the precision that is best for all labels only for a gain well above its noise. Scores
of several feature maps and of the mixture are added with weights that all labels share, estimated
on the labels whose out-of-fold scores are informative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from likelier.base import Array, Matrix
from likelier.fitting.monitor import Monitor
from likelier.multilabel.logistic import LabelWeights, fit_labels

PRECISIONS = tuple(10.0 ** (k / 2.0) for k in range(1, -5, -1))  # 3.2 down to 0.01
PATIENCE = 1  # weaker priors candidates after the best one
MARGIN = 0.5  # standard errors by which a label's own precision must be better
FOLD_TOL, FOLD_ITER = 1e-2, 20  # looser than for the final fit
MAX_STACK_CELLS = 2_000_000
PRIOR_SD = 1.0  # of the stacking weights


@dataclass(frozen=True)
class OutOfFoldScores:
    """Out-of-fold scores ``(n, L)`` at the chosen precision of every label ``(L,)``.

    ``start`` is the average of the folds' last weights, a start for the fit to all rows.
    """

    scores: Array
    alpha: Array
    start: LabelWeights | None = None


@dataclass(frozen=True)
class SearchState:
    """Scores and losses of the precisions tried so far, from the strongest prior down.

    Of each fold, ``starts`` are where the next fit begins, and ``fitted`` the last weights.
    """

    starts: tuple[LabelWeights | None, ...]
    fitted: tuple[LabelWeights | None, ...]
    scores: tuple[Array, ...] = ()
    losses: tuple[float, ...] = ()

    def is_done(self, n_precisions: int) -> bool:
        """Whether all precisions were tried, or weaker priors no longer help."""
        n = len(self.losses)
        return n == n_precisions or (n > 0 and n - 1 - int(np.argmin(self.losses)) >= PATIENCE)


@dataclass(frozen=True)
class FoldRows:
    """Rows to train on without a fold, and features of that fold's rows to score."""

    train: tuple[Matrix, Array, Array]
    held: Array
    scoring: Matrix


def out_of_fold(
    Z: Matrix, Y: Array, weight: Array, fold: Array, held_out: Matrix | None = None,
    monitor: Monitor | None = None, stage: str = "precisions",
) -> OutOfFoldScores:  # fmt: skip
    """Scores of rows by weights fitted without them.

    ``held_out`` are features of the rows for scoring, if different from those for training;
    ``stage`` is what the state is recorded as in a checkpoint. Cost: about ten products of ``Z``
    with ``L`` columns per precision.
    """
    monitor = Monitor() if monitor is None else monitor
    scoring = Z if held_out is None else held_out
    folds = []
    for f in range(int(fold.max()) + 1):
        rest, held = fold != f, fold == f
        train = Z[rest], np.ascontiguousarray(Y[rest]), weight[rest]
        folds.append(FoldRows(train, held, scoring[held]))
    precisions = _supported_precisions(Y, weight)
    none = (None,) * len(folds)
    state: SearchState = monitor.state(stage) or SearchState(none, none)
    while not state.is_done(len(precisions)):
        state = _try_precision(state, precisions[len(state.losses)], folds, Y, weight)
        monitor.keep(stage, state)
    chosen = _choose(state, Y, weight, precisions)
    return replace(chosen, start=_average([w for w in state.fitted if w is not None]))


def _try_precision(
    state: SearchState, alpha: float, folds: list[FoldRows], Y: Array, weight: Array
) -> SearchState:
    """Fit every fold under a prior of this precision."""
    scores, starts, fitted = np.empty_like(Y), [], []
    for rows, start, before in zip(folds, state.starts, state.fitted, strict=True):
        now = fit_labels(*rows.train, np.full(Y.shape[1], alpha), start, FOLD_ITER, FOLD_TOL)
        starts.append(_extrapolate(before, now))
        fitted.append(now)
        scores[rows.held] = now.scores(rows.scoring)
    loss = float(log_losses(scores, Y, weight).sum())
    return SearchState(tuple(starts), tuple(fitted), (*state.scores, scores), (*state.losses, loss))


def _supported_precisions(Y: Array, weight: Array) -> tuple[float, ...]:
    """Leading precisions that are at least one over the number of examples of the rarer values.

    Scores have the prior variance ``1 / alpha``. Otherwise a handful of rows that a weak prior
    happens to predict well would select it, and make new predictions overconfident. With a hundred
    such examples, over all labels together, all precisions are allowed.
    """
    known = np.isfinite(Y)
    positive, count = weight @ np.where(known, Y, 0.0), weight @ known
    rarer = float(np.minimum(positive, count - positive).sum())
    n_supported = sum(alpha * rarer >= 1.0 for alpha in PRECISIONS)
    return PRECISIONS[: max(1, n_supported)]


def _extrapolate(before: LabelWeights | None, now: LabelWeights) -> LabelWeights:
    """Start for the next, weaker prior: precisions decrease by a constant factor."""
    if before is None:
        return now
    return replace(
        now,
        coef=now.coef + (now.coef - before.coef),
        intercept=now.intercept + (now.intercept - before.intercept),
    )


def _average(posteriors: list[LabelWeights]) -> LabelWeights:
    plain = [posterior.to_arrays() for posterior in posteriors]
    return LabelWeights(**{
        name: np.mean([part[name] for part in plain], axis=0, dtype=plain[0][name].dtype)
        for name in plain[0]
    })  # fmt: skip


def _choose(
    state: SearchState, Y: Array, weight: Array, precisions: tuple[float, ...]
) -> OutOfFoldScores:
    """Precision of every label: the common best, unless its own is clearly better."""
    candidates = state.scores
    common = int(np.argmin(state.losses))
    reference = log_losses(candidates[common], Y, weight)
    best = np.full(Y.shape[1], common)
    gain = np.zeros(Y.shape[1])
    for k, scores in enumerate(candidates):
        change = log_losses(scores, Y, weight) - reference
        cost = change.sum(axis=0) + MARGIN * np.sqrt((change**2).sum(axis=0))
        better = cost < gain
        best[better], gain[better] = k, cost[better]
    chosen = candidates[common].copy()
    for k in np.unique(best):
        chosen[:, best == k] = candidates[k][:, best == k]
    return OutOfFoldScores(chosen, np.array([precisions[k] for k in best]))


def log_losses(scores: Array, Y: Array, weight: Array) -> Array:
    """Weighted log loss of every row and label; 0 where the label is unknown."""
    known = np.isfinite(Y)
    sign = np.where(Y > 0.0, -1.0, 1.0)
    return np.asarray(np.where(known, np.logaddexp(0.0, sign * scores), 0.0) * weight[:, None])


def scorable_labels(Y: Array, fold: Array) -> Array:
    """Mask ``(L,)`` of labels known in some fold whose other folds have both of their values.

    For any other label the folds only know its frequency: its scores do not depend on the features.

    Parameters
    ----------
    Y : array of shape (n, L)
        Labels 0 and 1; NaN where unknown.
    fold : array of shape (n,)
        Fold of every row; negative for rows in no fold.
    """
    folds = np.arange(int(fold.max()) + 1)
    has_positive, has_negative = (
        np.stack([(Y[fold == f] == value).any(axis=0) for f in folds]) for value in (1.0, 0.0)
    )
    # each fold is trained on the rows of all other folds
    both = (has_positive.sum(axis=0) - has_positive > 0) & (
        has_negative.sum(axis=0) - has_negative > 0
    )
    return np.asarray((both & (has_positive | has_negative)).any(axis=0))


def stack_weights(
    scores: list[Array], Y: Array, weight: Array, rng: np.random.Generator, n_log_odds: int
) -> Array:
    """Non-negative weights whose weighted sum of scores has the smallest log loss over all labels.

    Without any labels one would average the scores that are log-odds, and ignore those that are
    corrections to be added. This is the centre of a Gaussian prior: the sum of the weights of
    log-odds is one, every other weight is zero, with standard deviation `PRIOR_SD`. The prior is
    worth about one observation, so it matters only where labels are few or scores uninformative.

    Parameters
    ----------
    scores : list of arrays of shape (n, L)
        Out-of-fold scores of the labels to fit on; there may be no labels.
    Y : array of shape (n, L)
        Labels 0 and 1; NaN where unknown.
    weight : array of shape (n,)
        Weights of rows.
    rng : Generator
        Draws a subset of the rows where there are very many.
    n_log_odds : int
        How many scores, the first ones, are log-odds; the others are corrections.
    """
    rows = np.arange(len(Y))
    if Y.size > MAX_STACK_CELLS:
        rows = np.sort(rng.permutation(len(Y))[: max(1, MAX_STACK_CELLS // Y.shape[1])])
    known = np.isfinite(Y[rows])
    y, w = Y[rows][known], np.broadcast_to(weight[rows][:, None], known.shape)[known]
    S = np.stack([s[rows][known] for s in scores]).astype(np.float64)
    n = max(float(w.sum()), 1e-300)
    is_log_odds = (np.arange(len(S)) < n_log_odds).astype(np.float64)

    def objective(g: Array) -> tuple[float, Array]:
        f = g @ S
        deviation, corrections = float(is_log_odds @ g) - 1.0, (1.0 - is_log_odds) * g
        value = float(w @ np.logaddexp(0.0, np.where(y > 0.0, -f, f)))
        value += 0.5 * (deviation**2 + float(corrections @ corrections)) / PRIOR_SD**2
        gradient = S @ (w * (expit(f) - y)) + (deviation * is_log_odds + corrections) / PRIOR_SD**2
        return value / n, gradient / n

    neutral = is_log_odds / n_log_odds
    if not len(y):
        return neutral
    fitted = minimize(
        objective, neutral, jac=True, method="L-BFGS-B", bounds=[(0.0, 4.0)] * len(S),
        options={"maxiter": 200, "ftol": 1e-10},
    )  # fmt: skip
    return np.asarray(fitted.x)
