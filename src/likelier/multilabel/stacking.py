"""Out-of-fold scores of labels, and what is chosen by them: prior precisions and weights.

Prior precisions are tried from the strongest down, all labels and folds side by side, until
weaker ones no longer help, or there are too few answers to judge them by. A label leaves the
precision that is best for all labels only for a gain well above its noise. Scores of several
feature maps and of the mixture are added with weights that are the same for all labels, found
from those labels by which they can be judged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from likelier.base import Array, Matrix
from likelier.multilabel.logistic import LabelWeights, fit_labels

PRECISIONS = tuple(10.0 ** (k / 2.0) for k in range(1, -5, -1))  # 3.2 down to 0.01
PATIENCE = 1  # weaker priors tried after the best one
MARGIN = 0.5  # standard errors by which a label's own precision must win
FOLD_TOL, FOLD_ITER = 1e-2, 20  # folds only compare; what is kept is fitted further
MAX_STACK_CELLS = 2_000_000
PRIOR_SD = 1.0  # of the weights of scores, around what one would give without labels


@dataclass(frozen=True)
class FoldedScores:
    """Out-of-fold scores ``(n, L)`` at the chosen precision of every label ``(L,)``.

    ``start`` is the average of the folds' last weights, near those of all rows.
    """

    scores: Array
    alpha: Array
    start: LabelWeights | None = None


def out_of_fold(
    Z: Matrix, Y: Array, weight: Array, fold: Array, precisions: tuple[float, ...] = PRECISIONS,
    unseen: Matrix | None = None,
) -> FoldedScores:  # fmt: skip
    """Scores of rows by weights that have not seen them.

    ``unseen`` are features of the rows where they are judged, if other than where they are
    learned from. Cost: about ten products of ``Z`` with ``L`` columns per precision.
    """
    judged = Z if unseen is None else unseen
    n_folds = int(fold.max()) + 1
    parts = [(fold != f, fold == f) for f in range(n_folds)]
    train = [(Z[a], np.ascontiguousarray(Y[a]), weight[a]) for a, _ in parts]
    starts: list[LabelWeights | None] = [None] * n_folds
    found: list[LabelWeights | None] = [None] * n_folds
    tried: list[Array] = []
    losses: list[float] = []
    for alpha in _judgeable(precisions, Y, weight):
        scores = np.empty_like(Y)
        for f, (_, held) in enumerate(parts):
            law = fit_labels(*train[f], np.full(Y.shape[1], alpha), starts[f], FOLD_ITER, FOLD_TOL)
            starts[f], found[f] = _ahead(found[f], law), law
            scores[held] = law.scores(judged[held])
        tried.append(scores)
        losses.append(float(log_losses(scores, Y, weight).sum()))
        if len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE:
            break
    chosen = _choose(tried, losses, Y, weight, precisions)
    return replace(chosen, start=_average([law for law in found if law is not None]))


def _judgeable(precisions: tuple[float, ...], Y: Array, weight: Array) -> tuple[float, ...]:
    """Precisions, from the first on, that are not below one over the number of rarer answers.

    Scores have the prior variance ``1 / alpha``. A handful of rows that a weak prior happens to
    get right would otherwise choose it, and make new rows all but certain; from a hundred rarer
    answers on, of all labels together, nothing is left out.
    """
    known = np.isfinite(Y)
    positive, count = weight @ np.where(known, Y, 0.0), weight @ known
    rarer = float(np.minimum(positive, count - positive).sum())
    n_tried = sum(alpha * rarer >= 1.0 for alpha in precisions)
    return precisions[: max(1, n_tried)]


def _ahead(before: LabelWeights | None, now: LabelWeights) -> LabelWeights:
    """Where the next, weaker prior may lead: precisions fall by the same factor every time."""
    if before is None:
        return now
    return replace(
        now,
        coef=now.coef + (now.coef - before.coef),
        intercept=now.intercept + (now.intercept - before.intercept),
    )


def _average(laws: list[LabelWeights]) -> LabelWeights:
    plain = [law.to_arrays() for law in laws]
    return LabelWeights(**{
        name: np.mean([part[name] for part in plain], axis=0, dtype=plain[0][name].dtype)
        for name in plain[0]
    })  # fmt: skip


def _choose(
    tried: list[Array], losses: list[float], Y: Array, weight: Array, precisions: tuple[float, ...]
) -> FoldedScores:
    """Precision of every label: the common best, unless its own is clearly better."""
    common = int(np.argmin(losses))
    reference = log_losses(tried[common], Y, weight)
    best = np.full(Y.shape[1], common)
    gain = np.zeros(Y.shape[1])
    for k, scores in enumerate(tried):
        change = log_losses(scores, Y, weight) - reference
        cost = change.sum(axis=0) + MARGIN * np.sqrt((change**2).sum(axis=0))
        better = cost < gain
        best[better], gain[better] = k, cost[better]
    chosen = tried[common].copy()
    for k in np.unique(best):
        chosen[:, best == k] = tried[k][:, best == k]
    return FoldedScores(chosen, np.array([precisions[k] for k in best]))


def log_losses(scores: Array, Y: Array, weight: Array) -> Array:
    """Weighted log loss of every row and label; 0 where the label is unknown."""
    known = np.isfinite(Y)
    sign = np.where(Y > 0.0, -1.0, 1.0)
    return np.asarray(np.where(known, np.logaddexp(0.0, sign * scores), 0.0) * weight[:, None])


def judged_labels(Y: Array, fold: Array) -> Array:
    """Labels ``(L,)`` known in a row of some fold whose other folds have both their values.

    Of any other label the folds know no more than a frequency: its scores do not tell rows
    apart, and how far they are from zero says how many rows there are, nothing about features.

    Parameters
    ----------
    Y : array of shape (n, L)
        Labels 0 and 1; NaN where unknown.
    fold : array of shape (n,)
        Fold of every row; negative for rows that are in none.
    """
    there = np.arange(int(fold.max()) + 1)
    having, lacking = (
        np.stack([(Y[fold == f] == value).any(axis=0) for f in there]) for value in (1.0, 0.0)
    )
    # a fold learns from the rows of all other folds
    both = (having.sum(axis=0) - having > 0) & (lacking.sum(axis=0) - lacking > 0)
    return np.asarray((both & (having | lacking)).any(axis=0))


def stack_weights(
    scores: list[Array], Y: Array, weight: Array, rng: np.random.Generator, n_whole: int
) -> Array:
    """Weights >= 0 of several scores whose sum has the smallest log loss over all labels.

    Without having seen a label one would average scores that are log-odds, and trust nothing
    that is to be added to them. This is what a Gaussian prior is centred at: of the sum of the
    first weights at one, of every other weight at zero, with standard deviation `PRIOR_SD`. It
    counts about as much as one observation, which holds the weights where labels are few or
    scores say nothing, and is not felt otherwise; which scores are averaged is left to the data.

    Parameters
    ----------
    scores : list of arrays of shape (n, L)
        Out-of-fold scores of labels by which weights can be judged; there may be no labels.
    Y : array of shape (n, L)
        Labels 0 and 1; NaN where unknown.
    weight : array of shape (n,)
        Weights of rows.
    rng : Generator
        Draws the rows to look at where there are very many.
    n_whole : int
        How many scores, the first ones, are log-odds; others are to be added to these.
    """
    rows = np.arange(len(Y))
    if Y.size > MAX_STACK_CELLS:
        rows = np.sort(rng.permutation(len(Y))[: max(1, MAX_STACK_CELLS // Y.shape[1])])
    known = np.isfinite(Y[rows])
    y, w = Y[rows][known], np.broadcast_to(weight[rows][:, None], known.shape)[known]
    S = np.stack([s[rows][known] for s in scores]).astype(np.float64)
    n = max(float(w.sum()), 1e-300)
    whole = (np.arange(len(S)) < n_whole).astype(np.float64)

    def objective(g: Array) -> tuple[float, Array]:
        f = g @ S
        away, added = float(whole @ g) - 1.0, (1.0 - whole) * g
        value = float(w @ np.logaddexp(0.0, np.where(y > 0.0, -f, f)))
        value += 0.5 * (away**2 + float(added @ added)) / PRIOR_SD**2
        slope = S @ (w * (expit(f) - y)) + (away * whole + added) / PRIOR_SD**2
        return value / n, slope / n

    neutral = whole / n_whole
    if not len(y):
        return neutral
    found = minimize(
        objective, neutral, jac=True, method="L-BFGS-B", bounds=[(0.0, 4.0)] * len(S),
        options={"maxiter": 200, "ftol": 1e-10},
    )  # fmt: skip
    return np.asarray(found.x)
