"""Columns of which a fit would see next to nothing: a few cells dwarf the rest, or squares vanish.

A damaged cell of 1e8 among values of size one makes nearly the whole variance of its column: after
standardization all other values are nearly one point, and a prior on standardized inputs keeps
their effect at zero. Such cells lie apart by a gap (``GAP`` times as far from the median as any
other cell), which the tails of ordinary data do not have, and the others keep less than the share
of the spread that a fit of so many rows can still use. A column whose other values are all the
same loses nothing: a rare category is no damage.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Matrix
from likelier.fitting.loops.ranges import dense_ranges, sparse_ranges

GAP = 100.0  # a tail of Student's t with two degrees of freedom has such a gap once in 10,000
CHANCE = 1e6  # m ordinary numbers leave a gap of the factor g below one more in g**m columns
FEW = 10  # cells of a column
FEW_SHARE = 0.05  # of those that differ from the median
FEWEST_ROWS = 5
# A prior of one on standardized weights weighs as much as one row: n rows overrule it unless the
# others keep less than 1 / sqrt(n) of the spread. Kernels, which start at lengths of one, lose a
# column sooner where rows are many.
KERNEL_SHARE = 1.0 / 200.0
TINY = 1e-149  # squares of smaller deviations are lost beside 1e-300, the least variance told
SAMPLE_ROWS = 1024
BLOCK_VALUES, PIECE = 1 << 20, 1 << 16
SHOWN = 3  # columns in a message
OWN_SCALE, SHARED_SCALE, NO_SCALE = "own", "shared", "none"


@dataclass(frozen=True)
class Cells:
    """The extreme cells of a column.

    Attributes
    ----------
    count : int
    value : float
        The furthest of them.
    length : float
        Root of the sum of their squared distances from the median.
    rest : float
        Root of the mean squared distance of the other cells.
    """

    count: int
    value: float
    length: float
    rest: float

    def __add__(self, other: Cells) -> Cells:
        value = max(self.value, other.value, key=abs)
        length = float(np.hypot(self.length, other.length))
        return Cells(self.count + other.count, value, length, max(self.rest, other.rest))

    def dominate(self, n_rows: int) -> bool:
        """Whether so few of the column's spread is left to the others that it is lost."""
        share = max(n_rows**-0.5, KERNEL_SHARE)
        return bool(self.rest * n_rows**0.5 < share * self.length)


@dataclass(frozen=True)
class ExtremeCells:
    """What blocks of rows tell of the extreme cells of their columns; blocks add up.

    Attributes
    ----------
    n_rows : int
    cells : dict of column number to Cells
    tiny, sized : array of shape (n_features,)
        Whether a column holds different numbers below `TINY`, and whether any beyond it.
    """

    n_rows: int
    cells: dict[int, Cells]
    tiny: Array
    sized: Array

    @classmethod
    def of(cls, X: Matrix, weight: Array | None = None) -> ExtremeCells:
        """Of dense rows, or CSR rows without duplicates; rows of weight zero are absent.

        Cost: one reading of the numbers, and a closer look at columns that may be meant.
        """
        if weight is not None and not weight.all():
            X = X[np.flatnonzero(weight)]
        n, d = X.shape
        if not n:
            return cls(0, {}, np.zeros(d, dtype=bool), np.zeros(d, dtype=bool))
        low, high, suspects = _sparse_look(X) if sparse.issparse(X) else _dense_look(X)
        size = np.maximum(high, -low)
        cells = _cells(X, suspects) if n >= FEWEST_ROWS else {}
        return cls(n, cells, (low < high) & (size < TINY), size >= TINY)

    def __add__(self, other: ExtremeCells) -> ExtremeCells:
        cells = dict(self.cells)
        for column, found in other.cells.items():
            cells[column] = cells[column] + found if column in cells else found
        return ExtremeCells(
            self.n_rows + other.n_rows, cells, self.tiny | other.tiny, self.sized | other.sized
        )

    def warn(self, names: Any = None) -> None:
        """Warn, once, of all columns that would be ignored."""
        cells = {j: found for j, found in self.cells.items() if found.dominate(self.n_rows)}
        tiny = np.flatnonzero(self.tiny & ~self.sized)
        parts = []
        if cells:
            parts.append(_about_cells(cells, names))
        if len(tiny):
            parts.append(_about_tiny(tiny.tolist(), names))
        if parts:
            warnings.warn("; ".join(parts), UserWarning, stacklevel=3)


def warn_extreme_cells(
    estimator: Any,
    X: Matrix,
    weight: Array | None = None,
    scale: str = OWN_SCALE,
    tiny: bool = True,
) -> None:
    """Warn of columns of rows in memory that a fit of the estimator would in effect ignore.

    ``scale`` says what the fit divides columns by: `OWN_SCALE` each by its standard deviation,
    `SHARED_SCALE` all by the same one, where a cell of one column hides all others as well, and
    `NO_SCALE` by nothing that an outlier changes. Without ``tiny``, columns whose squares vanish
    are left to a fit that refuses them.
    """
    if weight is not None and not weight.all():
        X = X[np.flatnonzero(weight)]
    found = ExtremeCells.of(X)
    if scale == SHARED_SCALE and X.shape[0] >= FEWEST_ROWS:
        found = replace(found, cells=_cells_of_rows(X) | found.cells)
    elif scale == NO_SCALE:
        found = replace(found, cells={})
    if not tiny:
        found = replace(found, tiny=np.zeros_like(found.tiny))
    found.warn(getattr(estimator, "feature_names_in_", None))


class WatchedSource:
    """A source of blocks that warns of extreme cells at the end of its first whole pass."""

    def __init__(self, source: Any, names: Any) -> None:
        self._source, self._names, self._told = source, names, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_source"], name)

    def __call__(self) -> Generator[Batch, None, None]:
        """Yield the blocks."""
        found: ExtremeCells | None = None
        for batch in self._source():
            if not self._told:
                block = ExtremeCells.of(batch.X, batch.weight)
                found = block if found is None else found + block
            yield batch
        if found is not None and not self._told:
            self._told = True
            found.warn(self._names)


def watched(source: Any, estimator: Any) -> Any:
    """A source that warns, with the names the estimator knows its columns by."""
    return WatchedSource(source, getattr(estimator, "feature_names_in_", None))


# -- which columns to look at -------------------------------------------------------------------
def _dense_look(X: Any) -> tuple[Array, Array, Array]:
    """Range of every column, and which may hold a few cells beyond a gap."""
    d = X.shape[1]
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    if X.flags.c_contiguous:
        dense_ranges(X.reshape(-1), d, low, high)
    else:
        low, high = (found.reduce(X, axis=0).astype(np.float64) for found in (np.fmin, np.fmax))
    suspects = np.flatnonzero((low < high) & ~_spread_out(_some_rows(X), low, high))
    return low, high, suspects[_third_values(X, suspects, low, high)]


def _some_rows(X: Any) -> Any:
    return X[:: -(-X.shape[0] // SAMPLE_ROWS)]


def _spread_out(some: Array, low: Array, high: Array) -> Array:
    """Columns of which more than a few cells of a sample are far from its median: no gap."""
    some = np.sort(some.astype(np.float64), axis=0)
    centre = some[(len(some) - 1) // 2]  # NaN comes last: where a centre is NaN, so are most
    with np.errstate(over="ignore", invalid="ignore"):
        reach = np.maximum(high - centre, centre - low)
        far = np.abs(some - centre) > (2.0 / GAP) * reach  # twice: it is not the median of all
    return np.asarray(far.sum(axis=0) > FEW)


def _third_values(X: Any, columns: Array, low: Array, high: Array) -> Array:
    """Which columns hold more than two numbers: indicators are many, and lose nothing."""
    found = np.zeros(len(columns), dtype=bool)
    low, high = low[columns], high[columns]
    step = max(1, BLOCK_VALUES // max(1, len(columns)))
    for start in range(0, X.shape[0], step):
        rest = np.flatnonzero(~found)
        if not len(rest):
            break
        part = X[start : start + step][:, columns[rest]]
        found[rest] = ((part > low[rest]) & (part < high[rest])).any(axis=0)
    return found


def _sparse_look(X: Any) -> tuple[Array, Array, Array]:
    """The same of CSR rows, whose zeros count as cells."""
    n, d = X.shape
    counts, least, most = np.zeros(d, dtype=np.int64), np.inf, 0.0
    for values, indices in _pieces(X):
        counts += np.bincount(indices, minlength=d)
        sizes = np.abs(values)
        least, most = min(least, float(sizes.min())), max(most, float(sizes.max()))
    mostly = np.flatnonzero(2 * counts > n)  # the median is no zero
    if not len(mostly) and least >= TINY and most <= GAP * least:
        return np.zeros(d), np.where(counts, most, 0.0), mostly
    ranges = np.tile([np.inf, -np.inf, np.inf], d)
    sparse_ranges(X.data, X.indices, ranges)
    low, high, least_sizes = ranges.reshape(d, 3).T
    size = np.maximum(high, -low)
    apart = _few_apart(X, counts, np.where(size > GAP * least_sizes, size / GAP, np.inf))
    part = counts < n
    low[part], high[part] = np.minimum(low[part], 0.0), np.maximum(high[part], 0.0)
    if len(mostly):
        some = _some_rows(X)[:, mostly].toarray()
        apart[mostly] = ~_spread_out(some, low[mostly], high[mostly])
    return low, high, np.flatnonzero(apart & (low < high))


def _few_apart(X: Any, counts: Array, limit: Array) -> Array:
    """Columns of which a few stored numbers are beyond a limit: of more there is no gap."""
    beyond = np.zeros(len(limit), dtype=np.int64)
    if np.isfinite(limit).any():
        for values, indices in _pieces(X):
            far = np.abs(values) > limit[indices]
            beyond += np.bincount(indices[far], minlength=len(limit))
    return np.asarray((beyond > 0) & (beyond <= _few(counts)))


def _pieces(X: Any) -> Generator[tuple[Array, Array], None, None]:
    """Stored numbers and their columns, some at a time, so that no copy grows with the rows."""
    for start in range(0, len(X.data), PIECE):
        yield X.data[start : start + PIECE], X.indices[start : start + PIECE]


# -- what is in them ----------------------------------------------------------------------------
def _cells(X: Matrix, columns: Array) -> dict[int, Cells]:
    """Extreme cells of the columns that have some."""
    pairs = ((column, _beyond_gap(*values)) for column, values in _values_of(X, columns))
    return {column: found for column, found in pairs if found is not None}


def _values_of(X: Any, columns: Array) -> Generator[tuple[int, tuple[Array, int]], None, None]:
    """Some columns one by one: numbers, and how many zeros there are beside them."""
    is_sparse = sparse.issparse(X)
    if is_sparse:
        part = X[:, columns].tocsc()
        for k, column in enumerate(columns.tolist()):
            values = part.data[part.indptr[k] : part.indptr[k + 1]]
            yield column, (values.astype(np.float64), X.shape[0] - len(values))
        return
    for column in columns.tolist():
        yield column, (X[:, column].astype(np.float64), 0)


def _cells_of_rows(X: Any) -> dict[int, Cells]:
    """Cells that carry a few rows beyond a gap, in distance from the middle of all."""
    is_sparse = sparse.issparse(X)
    size = float(np.abs(X.data if is_sparse else X).max(initial=0.0))
    if not size:
        return {}
    away: Any = X / size
    if is_sparse:
        squares = away.multiply(away)
    else:
        away -= np.median(away, axis=0)
        squares = away * away
    lengths = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    found = _beyond_gap(lengths)
    if found is None:
        return {}
    first = int(np.argmax(lengths))
    row = away[[first]].toarray() if is_sparse else away[[first]]
    column = int(np.argmax(np.abs(row)))
    value = float(X[first, column])
    return {column: Cells(found.count, value, found.length * size, found.rest * size)}


def _beyond_gap(values: Array, n_zeros: int = 0) -> Cells | None:
    """The few cells that lie beyond a gap, if there are any and the others are not all one."""
    values = values[~np.isnan(values)]
    n = len(values) + n_zeros
    if n < FEWEST_ROWS:
        return None
    if 2 * n_zeros < n:  # zero need not be the median
        values = np.concatenate([values, np.zeros(n_zeros)])
        centre = float(np.partition(values, (n - 1) // 2)[(n - 1) // 2])
    else:
        centre = 0.0
    half = np.abs(0.5 * values - 0.5 * centre)  # of the distances, which may overflow
    half[half <= 4.0 * np.finfo(np.float64).eps * abs(centre)] = 0.0
    k = _group(half)
    if not k:
        return None
    first = np.argpartition(half, len(half) - k)[len(half) - k :]
    others = np.delete(half, first)
    furthest = float(values[first[np.argmax(half[first])]])
    return Cells(k, furthest, 2.0 * _length(half[first]), 2.0 * _length(others) * n**-0.5)


def _group(away: Array) -> int:
    """How many of the largest distances lie beyond a gap; none where all others are zero."""
    m = int(np.count_nonzero(away))
    most = int(_few(m))
    if m < 2:
        return 0
    top = -np.sort(np.partition(-away, most)[: most + 1])
    numbers = np.arange(1, most + 1)
    wanted = np.maximum(GAP, CHANCE ** (1.0 / np.maximum(1, m - numbers)))
    gaps = numbers[(top[:-1] >= wanted * top[1:]) & (top[1:] > 0.0)]
    return int(gaps[-1]) if len(gaps) else 0


def _few(n_differing: Any) -> Any:
    """Cells that are a few among so many that differ from the median."""
    return np.clip(np.asarray(FEW_SHARE * n_differing, dtype=np.intp), 1, FEW)


def _length(numbers: Array) -> float:
    """Root of the sum of squares, which themselves may under- or overflow."""
    unit = numbers.max()
    return float(unit * np.sqrt(np.sum((numbers / unit) ** 2)))


# -- what is said of them -----------------------------------------------------------------------
def _named(columns: list[int], names: Any) -> str:
    told = [str(j) if names is None else repr(str(names[j])) for j in columns[:SHOWN]]
    more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(told)}{more}"


def _about_cells(cells: dict[int, Cells], names: Any) -> str:
    columns = sorted(cells)
    furthest = max((found.value for found in cells.values()), key=abs)
    count = sum(found.count for found in cells.values())
    what, verb = ("a cell", "squeezes") if count == 1 else (f"{count} cells", "squeeze")
    return (
        f"{_named(columns, names)} of X: {what} as far out as {furthest:.3g} {verb} all other "
        "values to nearly one point, from which little can be learned; check for damage, and "
        "correct or clip such outliers, or leave their rows out"
    )


def _about_tiny(columns: list[int], names: Any) -> str:
    return (
        f"{_named(columns, names)} of X: all values are below {TINY:g}, where squares underflow, "
        "and tell a fit next to nothing; rescale by a constant factor"
    )
