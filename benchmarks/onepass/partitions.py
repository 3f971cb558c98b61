"""Partitions of the rows over models that are merged afterwards."""

from __future__ import annotations

import numpy as np

from benchmarks.onepass.problem import Array

ASTRAY = 0.02  # fraction of the rows assigned to a random model, whatever their class
ODD = ("3 groups of classes", "3 groups, 2% of rows astray", "one class against the rest",
       "one class each")  # fmt: skip


def even_parts(y: Array) -> dict[str, list[Array]]:
    """Rows of two and of eight models of the same classes, and of two of every other class."""
    everywhere = np.arange(len(y))
    cuts = {str(n): np.array_split(everywhere, n) for n in (2, 8)}
    cuts["2, every other class"] = _by_class(y, [np.unique(y)[::2], np.unique(y)[1::2]])
    return cuts


def odd_parts(y: Array, seed: int) -> dict[str, list[Array]]:
    """Rows of models of which each has classes of its own, assigned at random."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(y))
    thirds = _by_class(y, np.array_split(classes, 3))
    model = np.empty(len(y), dtype=np.intp)
    for number, rows in enumerate(thirds):
        model[rows] = number
    astray = rng.random(len(y)) < ASTRAY
    model[astray] = rng.integers(len(thirds), size=int(astray.sum()))
    parts = (
        thirds,
        [np.flatnonzero(model == number) for number in range(len(thirds))],
        _by_class(y, [classes[:1], classes[1:]]),
        _by_class(y, [classes[k : k + 1] for k in range(len(classes))]),
    )
    return dict(zip(ODD, parts, strict=True))


def _by_class(y: Array, groups: list[Array]) -> list[Array]:
    return [np.flatnonzero(np.isin(y, group)) for group in groups]
