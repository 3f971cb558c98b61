r"""Term weights: from counts in documents to the entries of the matrix.

An entry is ``tf * idf``, and rows may be normalised. ``tf`` is the count of a term in the document,
or 1, or the logarithm of the count plus one, each optionally divided by the number of terms of the
document. With ``N`` documents, ``df`` of which contain the term, ``idf`` is

==============  ==================================================
smooth          ``log((1 + N) / (1 + df)) + 1``: never negative
unsmoothed      ``log(N / df) + 1``
plain           ``log(N / df)``: zero for a term in all documents
plain_plus_one  ``log(N / (1 + df))``: negative for such a term
==============  ==================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array
from likelier.text.loops.term_rows import weigh_rows

IDF = ("smooth", "unsmoothed", "plain", "plain_plus_one")
NORMS = {None: 0, "l1": 1, "l2": 2}
FLOAT64: np.dtype[Any] = np.dtype(np.float64)
_NONE = np.zeros(0)


@dataclass(frozen=True)
class Weighting:
    """Settings of the term weights, with the parameters of `TextFeatures`."""

    tf: str = "count"
    binary: bool = False
    sublinear_tf: bool = False
    idf: str | None = "smooth"
    norm: str | None = "l2"
    dtype: np.dtype[Any] = FLOAT64

    def __post_init__(self) -> None:
        whole = self.tf == "count" and not self.sublinear_tf
        if self.dtype.kind in "iu" and not (whole and self.idf is None and self.norm is None):
            raise ValueError(
                f"dtype {self.dtype} supports only counts: use it with idf=None, norm=None, "
                "tf='count' and sublinear_tf=False, or use a float dtype"
            )

    def matrix(self, counts: sparse.csr_array, lengths: Array, idf: Array | None) -> Any:
        """Return the weighted matrix of some documents.

        Parameters
        ----------
        counts : csr_array of int32
            Count of each term in each document.
        lengths : ndarray
            Number of terms of each document, including those without a column.
        idf : ndarray or None
            Factor of each column.
        """
        if self.dtype.kind in "iu":
            data = np.ones(counts.nnz, self.dtype) if self.binary else counts.data
            data = data.astype(self.dtype)
        else:
            data = np.empty(counts.nnz, dtype=self.dtype)
            weigh_rows(
                counts.indptr,
                counts.indices,
                counts.data,
                lengths.astype(np.float64) if self.tf == "frequency" else _NONE,
                _NONE if idf is None else idf,
                self.binary,
                self.sublinear_tf,
                NORMS[self.norm],
                data,
            )
        return sparse.csr_array((data, counts.indices, counts.indptr), shape=counts.shape)


def idf_weights(kind: str, df: Array, n_documents: int) -> Array:
    """Return the inverse document frequency of terms with document frequency ``df``.

    If the formula divides by ``df``, a document frequency of 0 is replaced by 1, to avoid infinite
    weights in later documents.
    """
    if kind == "smooth":
        return np.log((1 + n_documents) / (1 + df)) + 1.0
    if kind == "plain_plus_one":
        return np.log(n_documents / (1 + df))
    ratio = np.log(n_documents / np.maximum(df, 1))
    return ratio if kind == "plain" else ratio + 1.0
