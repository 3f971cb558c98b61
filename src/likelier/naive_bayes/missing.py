"""Rows of counts of which some are unknown: what to keep of them.

Which counts of a row are unknown is its pattern. Given how many events were seen at all, the
known counts of a row are multinomial with the shares of the known terms, scaled to sum to one,
whatever its whole length was. Summed over rows, this needs of every pattern just the number of
events and of rows: these add up, and are kept here beside the counts of the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.naive_bayes.model import place_rows

CELL = np.dtype(np.int32)


@dataclass(frozen=True)
class Patterns:
    """Events and rows of every pattern of unknown terms, per class.

    ``found`` leads from the numbers of the unknown terms (in order, as bytes) to an array of
    shape (n_classes, 2): events counted, and weight of the rows. Memory: 4 bytes per unknown
    term of a pattern and 16 per class, however many rows share the pattern.
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
            # rounding of fractional weights can leave tiny negatives
            found[key] = np.maximum(found[key] - sums, 0.0)
            if not found[key].any():
                del found[key]
        return type(self)(found)

    def spread(self, places: Array, n_classes: int) -> Self:
        """Return the same sums among more classes; class ``k`` becomes ``places[k]``."""
        return type(self)(
            {key: place_rows(sums, places, n_classes) for key, sums in self.found.items()}
        )

    def to_arrays(self) -> dict[str, Array]:
        """Plain form, for saving; nothing if no count was ever unknown."""
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
        """Return the patterns whose plain form this is."""
        if not arrays:
            return cls()
        bounds = np.concatenate([[0], arrays["missing_ends"]])
        cells = np.asarray(arrays["missing_terms"], dtype=CELL)
        sums = np.stack([arrays["missing_events"], arrays["missing_rows"]], axis=2)
        keys = [cells[start:stop].tobytes() for start, stop in pairwise(bounds)]
        return cls({key: sums[:, p] for p, key in enumerate(keys)})

    def events(self) -> Array:
        """Events counted in the rows of every class and pattern."""
        return np.stack([self.found[key][:, 0] for key in sorted(self.found)], axis=1)

    def rows(self) -> Array:
        """Weight of the rows of every class and pattern."""
        return np.stack([self.found[key][:, 1] for key in sorted(self.found)], axis=1)

    def unknown(self, n_terms: int) -> Any:
        """CSR matrix with a one for every unknown term of every pattern."""
        cells, ends = self._cells()
        starts = np.concatenate([[0], ends])
        return sparse.csr_array((np.ones(len(cells)), cells, starts), (len(ends), n_terms))

    def _cells(self) -> tuple[Array, Array]:
        """Unknown terms of all patterns in a row, and where each pattern ends."""
        keys = sorted(self.found)
        lengths = np.array([len(key) // CELL.itemsize for key in keys])
        return np.frombuffer(b"".join(keys), dtype=CELL), np.cumsum(lengths)


def find_patterns(
    X: Matrix, lengths: Array, codes: Array, weight: Array, n_classes: int
) -> Patterns:
    """Patterns of a block of rows, whose known counts sum to ``lengths``.

    Cost: one visit to every stored value, and a little per row with unknown counts.
    """
    d = int(X.shape[1])
    if sparse.issparse(X):
        entries = np.flatnonzero(np.isnan(X.data))
        owner = np.searchsorted(X.indptr, entries, side="right") - 1
        places = owner.astype(np.int64) * d + X.indices[entries]
        if (np.diff(places) <= 0).any():  # rows that came unsorted, or with a term twice
            places = np.unique(places)
    else:
        places = np.flatnonzero(np.isnan(X))
    owner, cells = places // d, (places % d).astype(CELL)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    rows, bounds = owner[starts], pairwise([*starts.tolist(), len(cells)])
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(cells[a:b].tobytes(), len(numbers)) for a, b in bounds])
    w = weight[rows] if len(weight) else np.ones(len(rows))
    place, n = which * n_classes + codes[rows], len(numbers) * n_classes
    sums = [np.bincount(place, value, n) for value in (w * lengths[rows], w)]
    parts = np.stack(sums, axis=1).reshape(len(numbers), n_classes, 2)
    return Patterns(dict(zip(numbers, parts, strict=True)))
