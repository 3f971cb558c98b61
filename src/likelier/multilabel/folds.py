"""Cross-validation folds of `MultilabelClassifier`."""

from __future__ import annotations

import numpy as np

from likelier.base import Array
from likelier.engines.rows import take_rows
from likelier.multilabel.features import MAX_ROTATED
from likelier.multilabel.rows import Rows

# rows x columns x labels above which fewer folds are used; more folds give better thresholds
MAX_FOLD_CELLS, FEWER_FOLDS = 1_000_000_000, 3
MIN_GROUPS_PER_FOLD = 10  # with fewer groups of equal rows, group folds leave gaps
MIN_CONFLICTING = 0.25  # fraction of repeated rows whose labels differ; above it, no duplicates
MAX_OBSERVATIONS = 1 << 20  # that are assigned to folds individually


def fold_rows(rows: Rows, n_folds: int, seed: int) -> tuple[Rows, Array]:
    """Rows as they are held out, and the fold of each; -1 without labels.

    Rows of equal features share a fold, so that no row is scored by a model trained on its
    duplicate: duplicates and large weights are often added on purpose. But where features take few
    values, equal rows are separate observations with different labels, and predicting these from
    the other observations is the task. Such rows are assigned to folds individually and at random,
    a weight ``w`` as ``w`` rows: a row may then be returned in several parts, whose weights add up
    to its own. (Grouping by equal features *and* labels would bias training folds towards the other
    labels.)

    Parameters
    ----------
    rows : Rows
        Distinct rows, in random order.
    n_folds : int
        Number of folds.
    seed : int
        Seed of the random assignment.
    """
    labelled = np.flatnonzero(np.isfinite(rows.Y).any(axis=1))
    wanted = count_folds(len(labelled), rows.X.shape[1], rows.Y.shape[1], n_folds)
    if len(labelled) and _are_observations(rows, labelled, wanted):
        return _split_rows(rows, labelled, wanted, np.random.default_rng([seed, 9]))
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
    """Number of folds; reduced for large data."""
    cells = n_labelled * min(n_columns, MAX_ROTATED) * n_labels
    return min(n_folds, FEWER_FOLDS) if cells > MAX_FOLD_CELLS else n_folds


def _are_observations(rows: Rows, labelled: Array, n_folds: int) -> bool:
    """Whether rows of equal features are separate observations rather than duplicates.

    They are if their labels often differ, or if there are so few distinct rows, each repeated so
    often, that holding out a whole group would leave a gap. The rule is applied to all rows
    together: deciding per group, by its labels, would bias these.
    """
    _, group = np.unique(rows.group[labelled], return_inverse=True)
    total = np.bincount(group, weights=rows.weight[labelled])
    if len(total) == 1:  # a single group cannot be held out
        return True
    conflicting = _conflicting(rows.Y[labelled], group, len(total))
    repeated = total[conflicting | (total >= 2.0)].sum()
    few = len(total) <= MIN_GROUPS_PER_FOLD * n_folds and total.sum() >= n_folds * len(total)
    return bool(few or (repeated > 0.0 and total[conflicting].sum() >= MIN_CONFLICTING * repeated))


def _conflicting(Y: Array, group: Array, n_groups: int) -> Array:
    """Groups in which some label takes both values."""
    out = np.zeros(n_groups, dtype=bool)
    several = np.flatnonzero(np.bincount(group, minlength=n_groups)[group] > 1)
    if len(several):
        several = several[np.argsort(group[several], kind="stable")]
        which, start = np.unique(group[several], return_index=True)
        ones = np.logical_or.reduceat(Y[several] == 1.0, start, axis=0)
        zeros = np.logical_or.reduceat(Y[several] == 0.0, start, axis=0)
        out[which] = (ones & zeros).any(axis=1)
    return out


def _split_rows(
    rows: Rows, labelled: Array, n_folds: int, rng: np.random.Generator
) -> tuple[Rows, Array]:
    """Rows split over folds in proportion to their weight, as repeated rows would be."""
    weight = rows.weight[labelled]
    size = max(1.0, float(weight.sum()) / MAX_OBSERVATIONS)
    units = np.ceil(weight / size).astype(np.intp)
    n_folds = min(n_folds, int(units.sum()))
    cells = np.repeat(np.arange(len(labelled)) * n_folds, units)
    cells += rng.permutation(len(cells)) % n_folds
    table = np.bincount(cells, minlength=len(labelled) * n_folds).reshape(-1, n_folds)
    row, fold = np.nonzero(table)
    unlabelled = np.setdiff1d(np.arange(len(rows.Y)), labelled)
    source = np.concatenate([labelled[row], unlabelled])
    order = np.argsort(source, kind="stable")
    fraction = np.concatenate([table[row, fold] / units[row], np.ones(len(unlabelled))])[order]
    fold = np.concatenate([fold, np.full(len(unlabelled), -1)])[order]
    source = source[order]
    return Rows(
        take_rows(rows.X, source), np.ascontiguousarray(rows.Y[source]),
        fraction * rows.weight[source], rows.group[source],
    ), fold  # fmt: skip
