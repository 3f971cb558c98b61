"""Sufficient statistics of rows with missing counts: events and rows per missingness pattern.

The pattern of a row is the set of its missing terms. Given their sum, the known counts of a row are
multinomial with the probabilities of the known terms, normalised to sum to one, whatever the
length of the complete row. Beyond the counts of the terms, the likelihood therefore depends only on
the number of events and of rows of each pattern. Both are additive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.naive_bayes.model import scatter_rows

CELL = np.dtype(np.int32)


@dataclass(frozen=True)
class Patterns:
    """Number of events and rows of every pattern of missing terms, per class.

    ``found`` maps the sorted indices of the missing terms (as bytes) to an array of shape
    (n_classes, 2): number of events and weight of the rows. Memory per pattern: 4 bytes per missing
    term and 16 per class.
    """

    found: Mapping[bytes, Array] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.found)

    def __add__(self, other: Self) -> Self:
        found = dict(self.found)
        for key, sums in other.found.items():
            found[key] = found[key] + sums if key in found else sums
        return type(self)(found)

    def __sub__(self, other: Self) -> Self:
        found = dict(self.found)
        for key, sums in other.found.items():
            # fractional weights can leave tiny negative rounding errors
            found[key] = np.maximum(found[key] - sums, 0.0)
            if not found[key].any():
                del found[key]
        return type(self)(found)

    def reindex(self, positions: Array, n_classes: int) -> Self:
        """Return the sums over more classes; class ``k`` becomes ``positions[k]``."""
        return type(self)(
            {key: scatter_rows(sums, positions, n_classes) for key, sums in self.found.items()}
        )

    def to_arrays(self) -> dict[str, Array]:
        """Arrays by name, for saving; empty if no count was missing."""
        if not self.found:
            return {}
        sums = np.stack([self.found[key] for key in sorted(self.found)], axis=1)
        cells, ends = self._cells()
        return {
            "missing_terms": cells, "missing_ends": ends,
            "missing_events": sums[:, :, 0], "missing_rows": sums[:, :, 1],
        }  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Inverse of `to_arrays`."""
        if not arrays:
            return cls()
        bounds = np.concatenate([[0], arrays["missing_ends"]])
        cells = np.asarray(arrays["missing_terms"], dtype=CELL)
        sums = np.stack([arrays["missing_events"], arrays["missing_rows"]], axis=2)
        keys = [cells[start:stop].tobytes() for start, stop in pairwise(bounds)]
        return cls({key: sums[:, p] for p, key in enumerate(keys)})

    def events(self) -> Array:
        """Number of events of every class and pattern."""
        return np.stack([self.found[key][:, 0] for key in sorted(self.found)], axis=1)

    def rows(self) -> Array:
        """Weight of the rows of every class and pattern."""
        return np.stack([self.found[key][:, 1] for key in sorted(self.found)], axis=1)

    def missing(self, n_terms: int) -> Any:
        """CSR matrix of shape (n_patterns, n_terms) with ones at missing terms."""
        cells, ends = self._cells()
        starts = np.concatenate([[0], ends])
        return sparse.csr_array((np.ones(len(cells)), cells, starts), (len(ends), n_terms))

    def _cells(self) -> tuple[Array, Array]:
        """Missing terms of all patterns, concatenated, and the end of each pattern."""
        keys = sorted(self.found)
        lengths = np.array([len(key) // CELL.itemsize for key in keys])
        return np.frombuffer(b"".join(keys), dtype=CELL), np.cumsum(lengths)


def find_patterns(
    X: Matrix, lengths: Array, codes: Array, weight: Array, n_classes: int
) -> Patterns:
    """Patterns of a block of rows whose known counts sum to ``lengths``.

    Cost: one visit to every stored value, plus a little per row with missing counts.
    """
    d = int(X.shape[1])
    if sparse.issparse(X):
        entries = np.flatnonzero(np.isnan(X.data))
        owner = np.searchsorted(X.indptr, entries, side="right") - 1
        positions = owner.astype(np.int64) * d + X.indices[entries]
        if (np.diff(positions) <= 0).any():  # unsorted or duplicate entries
            positions = np.unique(positions)
    else:
        positions = np.flatnonzero(np.isnan(X))
    owner, cells = positions // d, (positions % d).astype(CELL)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    rows, bounds = owner[starts], pairwise([*starts.tolist(), len(cells)])
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(cells[a:b].tobytes(), len(numbers)) for a, b in bounds])
    w = weight[rows] if len(weight) else np.ones(len(rows))
    place, n = which * n_classes + codes[rows], len(numbers) * n_classes
    sums = [np.bincount(place, value, n) for value in (w * lengths[rows], w)]
    parts = np.stack(sums, axis=1).reshape(len(numbers), n_classes, 2)
    return Patterns(dict(zip(numbers, parts, strict=True)))
