"""Which rows are held out together when `MultilabelClassifier` judges its parts."""

from __future__ import annotations

import numpy as np

from likelier.base import Array
from likelier.engines.rows import take_rows
from likelier.multilabel.features import MAX_ROTATED
from likelier.multilabel.rows import Rows

# rows x columns x labels from which on fewer folds must do: more give better thresholds
MANY_CELLS, MANY_FOLDS = 1_000_000_000, 3
FEW_GROUPS = 10  # different rows per fold below which folds of whole groups lack some kinds of row
MIXED = 0.25  # share of repeated rows that answer differently from which on they are no copies
MAX_UNITS = 1 << 20  # observations dealt out one by one


def fold_rows(rows: Rows, n_folds: int, seed: int) -> tuple[Rows, Array]:
    """Rows in the form in which they are held out, and the fold of each; -1 without labels.

    Rows of equal features are held out together, so that nothing is judged by a copy of what it
    has learned: copies and large weights are often made on purpose. But where features take few
    values, equal rows are observations of their own that answer differently, and what is learned
    from the others' answers is just what has to be judged. Such rows are dealt out one by one,
    a weight ``w`` as ``w`` rows, at random: a row may come back in several parts, whose weights
    add up to its own. (Holding out all rows of equal features *and* labels would leave only the
    other answers to learn from.)

    Parameters
    ----------
    rows : Rows
        Distinct rows, in random order.
    n_folds : int
        Folds wanted.
    seed : int
        Seeds the dealing.
    """
    labelled = np.flatnonzero(np.isfinite(rows.Y).any(axis=1))
    wanted = count_folds(len(labelled), rows.X.shape[1], rows.Y.shape[1], n_folds)
    if len(labelled) and _observed_again(rows, labelled, wanted):
        return _dealt(rows, labelled, wanted, np.random.default_rng([seed, 9]))
    fold = np.full(len(rows.Y), -1)
    if len(labelled):
        _, first, group = np.unique(
            rows.group[labelled], return_index=True, return_inverse=True
        )  # numbered in the order of the rows
        number = np.empty(len(first), dtype=np.intp)
        number[np.argsort(first)] = np.arange(len(first))
        fold[labelled] = number[group] % min(wanted, len(first))
    return rows, fold


def count_folds(n_labelled: int, n_columns: int, n_labels: int, n_folds: int) -> int:
    """Folds to use; fewer where many cells make them dear."""
    cells = n_labelled * min(n_columns, MAX_ROTATED) * n_labels
    return min(n_folds, MANY_FOLDS) if cells > MANY_CELLS else n_folds


def _observed_again(rows: Rows, labelled: Array, n_folds: int) -> bool:
    """Whether rows of equal features are several observations rather than copies.

    They are if they often answer differently, or if there are so few different rows, each of
    them so often, that holding all of a kind out would leave a gap. What is asked is asked of all
    rows together: a rule that looked at the answers of each kind of row would bias them.
    """
    _, group = np.unique(rows.group[labelled], return_inverse=True)
    total = np.bincount(group, weights=rows.weight[labelled])
    if len(total) == 1:  # there is nothing else to hold out
        return True
    mixed = _mixed(rows.Y[labelled], group, len(total))
    often = total[mixed | (total >= 2.0)].sum()
    few = len(total) <= FEW_GROUPS * n_folds and total.sum() >= n_folds * len(total)
    return bool(few or (often > 0.0 and total[mixed].sum() >= MIXED * often))


def _mixed(Y: Array, group: Array, n_groups: int) -> Array:
    """Groups in which some label is both 0 and 1."""
    out = np.zeros(n_groups, dtype=bool)
    several = np.flatnonzero(np.bincount(group, minlength=n_groups)[group] > 1)
    if len(several):
        several = several[np.argsort(group[several], kind="stable")]
        which, start = np.unique(group[several], return_index=True)
        ones = np.logical_or.reduceat(Y[several] == 1.0, start, axis=0)
        zeros = np.logical_or.reduceat(Y[several] == 0.0, start, axis=0)
        out[which] = (ones & zeros).any(axis=1)
    return out


def _dealt(
    rows: Rows, labelled: Array, n_folds: int, rng: np.random.Generator
) -> tuple[Rows, Array]:
    """Rows split over folds, as many copies of weight one would have been."""
    weight = rows.weight[labelled]
    size = max(1.0, float(weight.sum()) / MAX_UNITS)
    units = np.ceil(weight / size).astype(np.intp)
    n_folds = min(n_folds, int(units.sum()))
    places = np.repeat(np.arange(len(labelled)) * n_folds, units)
    places += rng.permutation(len(places)) % n_folds
    table = np.bincount(places, minlength=len(labelled) * n_folds).reshape(-1, n_folds)
    row, fold = np.nonzero(table)
    rest = np.setdiff1d(np.arange(len(rows.Y)), labelled)
    source = np.concatenate([labelled[row], rest])
    order = np.argsort(source, kind="stable")
    share = np.concatenate([table[row, fold] / units[row], np.ones(len(rest))])[order]
    fold = np.concatenate([fold, np.full(len(rest), -1)])[order]
    source = source[order]
    return Rows(
        take_rows(rows.X, source), np.ascontiguousarray(rows.Y[source]),
        share * rows.weight[source], rows.group[source],
    ), fold  # fmt: skip
