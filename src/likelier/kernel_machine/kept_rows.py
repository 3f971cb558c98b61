"""Rows that a kernel machine keeps, because scales and landmarks are learned from all of them.

Few rows are not learned one batch at a time: they are kept, and learned together. That is due
when they have grown by half, and at the latest when somebody asks for a prediction, so nobody
sees a model that has not learned all it was given. A fit in memory keeps its rows too, if they
are few: rows that come later are then learned together with them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from sklearn.exceptions import NotFittedError

from likelier.base import Array, Matrix
from likelier.engines.rows import stack_rows
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.rows import Rows
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.recipe import KernelFit

START_ROWS = 4000  # rows that scales and landmarks are learned from
GROWTH = 1.5  # the kept rows are learned anew when they have grown by this factor
KEEP_VALUES = 1 << 22  # numbers in the rows of a fit that are kept; a model has about as many


class RowKeeper(KernelFit):
    """Keeps rows in ``stream_``, and learns them in time."""

    stream_: dict[str, Any]

    def _fit_memory(
        self, X: Matrix, y: Array, weight: Array | None, seed: int, budget: TimeBudget
    ) -> None:
        super()._fit_memory(X, y, weight, seed, budget)
        omega = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        present = np.flatnonzero(omega)
        few = len(present) < START_ROWS and len(present) * X.shape[1] <= KEEP_VALUES
        left = getattr(self, "unfinished_", {})
        whole = not hasattr(self, "stream_") and (not left or "words" in left)
        if few and whole and self._batch_words() is None:
            rows = Rows(X, y, omega).take(present)  # a copy: the caller's may change
            self.stream_ = self._new_stream(seed) | {"X": rows.X, "y": rows.y, "omega": rows.weight}
            self.stream_["learned"] = self.stream_["n_rows"] = rows.n

    @abstractmethod
    def _batch_words(self) -> str | None:
        """What constructor words stand against learning batch by batch, if any."""

    def _new_stream(self, seed: int) -> dict[str, Any]:
        """What is known before the first row."""
        return {"seed": seed, "n_rows": 0, "learned": 0}

    @abstractmethod
    def _stream_of_fit(self, seed: int) -> dict[str, Any]:
        """What a fit has learned, for rows that come later."""

    @contextmanager
    def _batch(self, seed: int) -> Iterator[dict[str, Any]]:
        """State of the stream while a batch is learned; as before where that fails or is stopped.

        What learning replaces it never changes in place. Where rows are kept, those of a batch that
        is stopped are kept too, and learned when somebody asks.
        """
        wrong = self._batch_words()
        if self.early_stopping:
            wrong = "early_stopping must be False for partial_fit and iterators; use fit"
        if wrong is not None:
            raise ValueError(wrong)
        keeps = "X" in getattr(self, "stream_", {}) or not hasattr(self, "maps_")
        with unchanged_on_failure(self, (Exception,) if keeps else (BaseException,)):
            if hasattr(self, "stream_"):
                self.stream_ = dict(self.stream_)
            else:
                fitted = hasattr(self, "maps_")
                self.stream_ = self._stream_of_fit(seed) if fitted else self._new_stream(seed)
            self.__dict__.pop("unfinished_", None)  # the rows of that fit are not all there is now
            yield self.stream_

    def _add_rows(self, X: Matrix, y: Array, omega: Array) -> None:
        """Keep more rows."""
        state = self.stream_
        state["n_rows"] += len(y)
        if "X" in state:
            X = stack_rows([state["X"], X])
            y, omega = np.concatenate([state["y"], y]), np.concatenate([state["omega"], omega])
        state.update(X=X, y=y, omega=omega)

    def _waits(self) -> bool:
        """Whether rows are kept that have not been learned."""
        state = getattr(self, "stream_", {})
        return "X" in state and state["learned"] < len(state["y"])

    def _learn_kept(self) -> None:
        """Learn all rows that are kept."""
        state = self.stream_
        rows = state["X"], state["y"]
        self._fit_memory(*rows, state["omega"], state["seed"], TimeBudget(self, rows))
        state["learned"] = len(state["y"])

    def _missing(self) -> str | None:
        """What the kept rows lack to be learned, if anything."""
        return None

    def _settle(self) -> None:
        """Learn what waits; whatever looks at the fitted model does this first."""
        if not self._waits():
            return
        missing = self._missing()
        if missing is not None:
            raise NotFittedError(f"{missing}; give more rows to partial_fit first")
        self._learn_kept()

    def _before_saving(self) -> None:
        """Learn what waits, where it can be: whoever loads a model wants to use it."""
        if self._missing() is None:
            self._settle()

    def __getstate__(self) -> Any:
        self._before_saving()
        return super().__getstate__()


def of_one_kind(X: Matrix, state: dict[str, Any]) -> Matrix:
    """Rows as those of the first batch were, dense or CSR."""
    thin = bool(sparse.issparse(state.get("X", X)))
    wanted = state.setdefault("sparse", thin)
    if wanted == bool(sparse.issparse(X)):
        return X
    thin_rows = sparse.csr_matrix(X)
    return thin_rows if wanted else thin_rows.toarray()


def precision_of(roots: Array, n_features: int, n_outputs: int) -> Array:
    """Blocks ``(n_outputs, D, D)`` of the matrix whose inverse Cholesky factors are known.

    Cost features^3 for each factor.
    """
    whole = []
    for root in roots:
        eye = np.eye(len(root))
        factor = solve_triangular(root.astype(np.float64), eye, lower=True)
        whole.append(factor @ factor.T)
    size = len(whole[0])
    if size == n_features:
        return np.stack(whole * (n_outputs if len(whole) < n_outputs else 1))
    D = n_features
    return np.stack([whole[0][s : s + D, s : s + D] for s in range(0, size, D)])


def precision_outside(root: Array, bases: Array, outside: Array) -> Array:
    """Blocks ``(n_outputs, D, D)`` of a matrix known in bases, and by one number outside of them.

    Cost features^2 x directions for each output.
    """
    C, D, r = bases.shape
    whole = []
    for basis, block, precision in zip(
        bases.astype(np.float64), precision_of(root[None], r, C), outside, strict=True
    ):
        block[np.diag_indices(r)] -= precision
        whole.append(basis @ block @ basis.T + precision * np.eye(D))
    return np.stack(whole)
