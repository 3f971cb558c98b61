"""Distributions of counts and of binary features: linear in the row, or Dirichlet-multinomial.

A missing binary feature (NaN) is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import entr, logit

from likelier.base import Array, Matrix
from likelier.files.declared import check_array, check_number
from likelier.loops.rows import as_rows
from likelier.naive_bayes.loops.counts import (
    dirichlet_scores,
    log_coefficients,
    mark_presence,
    sparse_scores,
)
from likelier.naive_bayes.model import ClassDistributions

CERTAIN = 1e-15  # probabilities are clipped to this distance from zero and one
# Sums of such counts, times a logarithm, do not overflow. np.float64, since a Python float would
# be cast to the precision of the counts.
LARGEST = np.float64(1e290)


@dataclass(frozen=True)
class LinearDistributions(ClassDistributions):
    """Log probabilities linear in the row: ``x^T table_k + base_k``, ``table`` of shape (d, K).

    With ``alpha=0`` entries can be infinite: minus infinity for a term of probability zero, plus
    infinity for a feature of probability one. ``forbids`` is False if there are none.

    ``log_present`` computes the log probabilities of a 1, for Bernoulli features only; ``length``
    is the mean row length per class, for multinomial ones only.
    """

    table: Array
    base: Array
    log_present: Callable[[], Array] | None = None
    threshold: float | None = None
    length: Array | None = None
    forbids: bool = True

    def check(self, n_features: int, n_classes: int) -> None:
        check_array("table of log probabilities", self.table, (n_features, n_classes), finite=False)
        check_array("log probabilities of empty rows", self.base, (n_classes,), finite=False)
        if np.isnan(self.table).any() or np.isnan(self.base).any():
            raise ValueError("the table of log probabilities holds NaN")
        if not self.forbids and not np.isfinite(self.table).all():
            raise ValueError("the table of log probabilities holds infinity, and alpha is positive")
        if self.length is not None:
            check_array("mean_length_", self.length, (n_classes,), low=0.0)
        if self.threshold is not None:
            check_number("binarize", self.threshold)

    @property
    def n_classes(self) -> int:
        return len(self.base)

    def log_density(self, X: Matrix) -> Array:
        """Log probability of every row under every class. Cost: stored values x classes."""
        if self.log_present is None:
            return self._table_product(X)
        values, missing = self._features(X)
        mask = mark_missing(X) if missing else None
        out = self._table_product(values, mask)
        if self.base.any():
            out += self.base
        if mask is not None:
            out -= self._missing_contribution(mask)
        return out

    def _table_product(self, values: Matrix, mask: Matrix | None = None) -> Array:
        if self.forbids and not np.isfinite(self.table).all():
            return self._product_with_zeros(values, mask)
        return product(values, self.table)

    def _features(self, X: Matrix) -> tuple[Matrix, bool]:
        """Binary features with 0 for missing ones, and whether values are missing."""
        if self.threshold is None:
            missing = has_missing(X)
            return zero_for_missing(X) if missing else X, missing
        values, total = presence(X, self.threshold)
        return values, not np.isfinite(total) and has_missing(X)

    def _product_with_zeros(self, values: Matrix, mask: Matrix | None) -> Array:
        never, must = np.isneginf(self.table), np.isposinf(self.table)
        out = product(values, np.where(never | must, 0.0, self.table))
        if self.log_present is not None:  # a feature of probability one
            out += product(values, np.where(must, self.log_present(), 0.0))
        violations = product(presence(values, 0.0)[0], never.astype(float) - must.astype(float))
        violations += must.sum(axis=0)
        if mask is not None:  # a missing value is not a violation
            violations -= product(mask, must.astype(float))
        out[violations > 0.5] = -np.inf
        return out

    def _missing_contribution(self, mask: Matrix) -> Array:
        """Contribution of missing features, counted as 0, to ``base``, which must be subtracted.

        Zero for features whose probability is zero, one or unknown: ``base`` leaves them out.
        """
        assert self.log_present is not None
        present = self.log_present()
        usual = np.isfinite(self.table) & np.isfinite(present)
        absent = np.subtract(present, self.table, out=np.zeros(present.shape), where=usual)
        return product(mask, absent)

    def log_measure(self, X: Matrix) -> Array:
        """Multinomial coefficient ``n! / prod x_j!`` of rows of counts."""
        if self.log_present is not None:
            if self.threshold is None:
                check_binary(X)
            return np.zeros(X.shape[0])
        return multinomial_coefficients(X)

    def size(self, X: Matrix) -> Array:
        """Length of rows of counts, with which their log probability falls; one for binary rows."""
        return np.ones(X.shape[0]) if self.log_present is not None else row_lengths(X)

    def feature_scores(self) -> tuple[Array, Array] | None:
        if self.log_present is None:
            return None
        # features with a certain or unknown value have hardly any variance
        p = np.clip(np.nan_to_num(np.exp(self.log_present()).T), CERTAIN, 1.0 - CERTAIN)
        return -entr(p) - entr(1.0 - p), p * (1.0 - p) * logit(p) ** 2

    def sample(self, codes: Array, rng: np.random.Generator) -> Matrix:
        if self.log_present is not None:
            p = np.exp(self.log_present()).T
            return (rng.random((len(codes), p.shape[1])) < p[codes]).astype(np.float64)
        assert self.length is not None
        lengths = rng.poisson(self.length[codes])
        return sample_counts(np.exp(self.table).T, codes, lengths, rng)


@dataclass(frozen=True)
class DirichletDistributions(ClassDistributions):
    """Dirichlet-multinomial distributions with parameters ``pseudo``, (n_classes, n_terms).

    ``total`` is their sum per class, and may include terms that ``pseudo`` leaves out.
    """

    pseudo: Array
    total: Array
    length: Array

    def check(self, n_features: int, n_classes: int) -> None:
        check_array("pseudocounts", self.pseudo, (n_classes, n_features), low=0.0)
        check_array("total of pseudocounts", self.total, (n_classes,), low=0.0)
        check_array("mean_length_", self.length, (n_classes,), low=0.0)

    @property
    def n_classes(self) -> int:
        return len(self.pseudo)

    def log_density(self, X: Matrix) -> Array:
        """Log probability without the coefficient. Cost: stored values x classes."""
        check_counts(X)
        out = np.empty((X.shape[0], self.n_classes))
        dirichlet_scores(*as_rows(X), self.pseudo, self.total, out)
        return out

    def log_measure(self, X: Matrix) -> Array:
        """Multinomial coefficient of the rows."""
        return multinomial_coefficients(X)

    def size(self, X: Matrix) -> Array:
        """Length of the rows, with which their log probability falls."""
        return row_lengths(X)

    def sample(self, codes: Array, rng: np.random.Generator) -> Matrix:
        lengths = rng.poisson(self.length[codes])
        parts = []
        for code, length in zip(codes, lengths, strict=True):  # probabilities are drawn per row
            prob = rng.standard_gamma(self.pseudo[code])
            one = np.array([0])
            parts.append(sample_counts(prob[None], one, np.array([length]), rng))
        return sparse.csr_array(sparse.vstack(parts, format="csr"))


def sample_counts(
    prob: Array, codes: Array, lengths: Array, rng: np.random.Generator
) -> sparse.csr_array:
    """Draw rows of counts with the given lengths, row ``i`` from ``prob[codes[i]]``."""
    bounds = np.cumsum(prob, axis=1)
    owner = np.repeat(np.arange(len(codes)), lengths)
    terms = np.empty(len(owner), dtype=np.intp)
    draws = rng.random(len(owner))
    for k in np.unique(codes):
        mine = codes[owner] == k
        place = np.searchsorted(bounds[k], draws[mine] * bounds[k, -1], side="right")
        terms[mine] = np.minimum(place, prob.shape[1] - 1)
    shape = (len(codes), prob.shape[1])
    rows = sparse.csr_array((np.ones(len(owner)), (owner, terms)), shape=shape)
    rows.sum_duplicates()
    return rows


def row_lengths(X: Matrix) -> Array:
    """Sum of the counts of every row, at least one."""
    return np.maximum(np.asarray(X.sum(axis=1), dtype=np.float64).reshape(-1), 1.0)


def product(X: Matrix, table: Array) -> Array:
    """``X @ table`` in double precision; a dense float32 matrix is copied, so pass blocks."""
    if sparse.issparse(X):
        out = np.empty((X.shape[0], table.shape[1]))
        data, indices, indptr, _ = as_rows(X)
        sparse_scores(data, indices, indptr, np.ascontiguousarray(table).reshape(-1), out)
        return out
    dense: Array = np.asarray(X, dtype=np.float64)
    # Few classes: BLAS is faster with the long side of the result last. Missing and infinite values
    # are checked later; whether they cause warnings here depends on the processor.
    with np.errstate(invalid="ignore"):
        return np.asarray((table.T @ dense.T).T)


def presence(X: Matrix, threshold: float) -> tuple[Matrix, float]:
    """Indicator of values above the threshold (0 if missing), and the sum of all values.

    The sum is finite if no value is missing or infinite.
    """
    data = as_rows(X).data
    out = np.empty(len(data))
    total = float(mark_presence(data, threshold, out))
    return (_with_data(X, out) if sparse.issparse(X) else out.reshape(X.shape)), total


def multinomial_coefficients(X: Matrix) -> Array:
    """Logarithm of ``n! / prod x_j!``; raise if a count is negative."""
    check_counts(X)
    out = np.empty(X.shape[0])
    log_coefficients(*as_rows(X), out)
    return out


def check_counts(X: Matrix) -> None:
    """Raise if a count is negative or missing, or so large that sums overflow."""
    values = stored_values(X)
    if not values.size or (values.min() >= 0.0 and values.max() <= LARGEST):
        return
    large = (values > LARGEST) & (values < np.inf)
    if large.any():
        raise ValueError(
            f"X is too large in column {column_of(X, large)} (max {LARGEST:g}); rescale it"
        )
    negative = values < 0.0
    if negative.any():
        raise ValueError(
            f"Negative values in data passed to MultinomialNB (input X), column "
            f"{column_of(X, negative)}: counts must not be negative"
        )
    missing = np.isnan(values)
    if missing.any():
        raise ValueError(
            f"Input X contains NaN, in column {column_of(X, missing)}: MultinomialNB needs all "
            "counts; fill in missing ones"
        )


def column_of(X: Any, bad: Array) -> int:
    """Column of the first marked value."""
    place = int(np.argmax(bad))
    return int(X.indices[place]) if bad.ndim == 1 else place % int(X.shape[1])


def check_binary(X: Matrix) -> None:
    """Raise unless all known values are between zero and one."""
    values = stored_values(X)
    if ((values < 0.0) | (values > 1.0)).any():
        raise ValueError("binarize=None needs X of zeros and ones; set binarize to a threshold")


def stored_values(X: Any) -> Array:
    """All values of a dense matrix, stored values of a sparse one."""
    return np.asarray(X.data) if hasattr(X, "indptr") else np.asarray(X)


def _with_data(X: Any, data: Array) -> Any:
    """Sparse matrix of the same structure with other values."""
    out = type(X)(X.shape, dtype=data.dtype)
    out.data, out.indices, out.indptr = data, X.indices, X.indptr
    return out


def zero_for_missing(X: Any) -> Any:
    """Rows with zero in place of missing values."""
    if sparse.issparse(X):
        return _with_data(X, np.where(np.isnan(stored_values(X)), 0.0, stored_values(X)))
    return np.where(np.isnan(X), 0.0, X)


def mark_missing(X: Any) -> Any:
    """Indicator of missing values."""
    marks = np.isnan(stored_values(X)).astype(np.float64)
    return _with_data(X, marks) if sparse.issparse(X) else marks


def has_missing(X: Matrix) -> bool:
    """Whether a value is missing (NaN); raise for infinity."""
    values = stored_values(X)
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum(dtype=np.float64)
    if np.isfinite(total):
        return False
    if np.isinf(values).any():
        raise ValueError("Input X contains infinity; only NaN, for missing values, is allowed")
    return bool(np.isnan(values).any())


def narrow(X: Matrix) -> tuple[Matrix, Any]:
    """Rows restricted to columns with stored values, and the indices of these columns."""
    if not sparse.issparse(X):
        return X, slice(None)
    used = np.zeros(X.shape[1], dtype=bool)
    used[X.indices] = True
    columns = np.flatnonzero(used)
    positions = np.cumsum(used, dtype=X.indices.dtype) - 1
    out: Any = type(X)((X.shape[0], len(columns)), dtype=X.dtype)
    out.data, out.indices, out.indptr = (
        X.data,
        positions[X.indices].astype(X.indices.dtype),
        X.indptr,
    )
    return out, columns
