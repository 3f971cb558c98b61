"""Row buffer of a kernel machine, whose scales and landmarks depend on all rows.

Few rows are not learned one batch at a time: they are buffered and refitted together, whenever
the buffer has grown by half and before any prediction, so that predictions always include all
rows. A small in-memory fit buffers its rows too and refits them together with later ones.
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
GROWTH = 1.5  # refit when the buffered rows have grown by this factor
BUFFERED_VALUES = 1 << 22  # values in the buffered rows of a fit; about the size of a model


class RowBuffer(KernelFit):
    """Buffers rows in ``stream_`` and refits when due."""

    stream_: dict[str, Any]

    def _fit_memory(
        self, X: Matrix, y: Array, weight: Array | None, seed: int, budget: TimeBudget
    ) -> None:
        super()._fit_memory(X, y, weight, seed, budget)
        omega = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        present = np.flatnonzero(omega)
        is_small = len(present) < START_ROWS and len(present) * X.shape[1] <= BUFFERED_VALUES
        saved = getattr(self, "checkpoint_", {})
        whole = not hasattr(self, "stream_") and (not saved or "parameters" in saved)
        if is_small and whole and self._batch_conflict() is None:
            rows = Rows(X, y, omega).take(present)  # a copy, since the caller may change theirs
            self.stream_ = self._new_stream(seed) | {"X": rows.X, "y": rows.y, "omega": rows.weight}
            self.stream_["learned"] = self.stream_["n_rows"] = rows.n

    @abstractmethod
    def _batch_conflict(self) -> str | None:
        """Reason why the constructor parameters rule out learning in batches, or None."""

    def _new_stream(self, seed: int) -> dict[str, Any]:
        """Initial stream state."""
        return {"seed": seed, "n_rows": 0, "learned": 0}

    @abstractmethod
    def _stream_from_fit(self, seed: int) -> dict[str, Any]:
        """Stream state after a fit, for later rows."""

    @contextmanager
    def _learning_batch(self, seed: int) -> Iterator[dict[str, Any]]:
        """Stream state while a batch is learned; rolled back on failure or interruption.

        Learning replaces values and never changes them in place. If rows are buffered, an
        interrupted batch stays in the buffer and is learned before the next prediction.
        """
        conflict = self._batch_conflict()
        if self.early_stopping:
            conflict = "early_stopping must be False for partial_fit and one-pass iterators"
        if conflict is not None:
            raise ValueError(conflict)
        buffers = "X" in getattr(self, "stream_", {}) or not hasattr(self, "maps_")
        with unchanged_on_failure(self, (Exception,) if buffers else (BaseException,)):
            if hasattr(self, "stream_"):
                self.stream_ = dict(self.stream_)
            else:
                fitted = hasattr(self, "maps_")
                self.stream_ = self._stream_from_fit(seed) if fitted else self._new_stream(seed)
            self.__dict__.pop("checkpoint_", None)  # the checkpoint does not cover the new rows
            yield self.stream_

    def _add_rows(self, X: Matrix, y: Array, omega: Array) -> None:
        """Append rows to the buffer."""
        state = self.stream_
        state["n_rows"] += len(y)
        if "X" in state:
            X = stack_rows([state["X"], X])
            y, omega = np.concatenate([state["y"], y]), np.concatenate([state["omega"], omega])
        state.update(X=X, y=y, omega=omega)

    def _has_pending_rows(self) -> bool:
        """Whether the buffer holds rows that have not been learned."""
        state = getattr(self, "stream_", {})
        return "X" in state and state["learned"] < len(state["y"])

    def _learn_buffered(self) -> None:
        """Refit to all buffered rows."""
        state = self.stream_
        rows = state["X"], state["y"]
        self._fit_memory(*rows, state["omega"], state["seed"], TimeBudget(self, rows))
        state["learned"] = len(state["y"])

    def _missing_reason(self) -> str | None:
        """Reason why the buffered rows cannot be learned yet, or None."""
        return None

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the model can predict: an interrupted fit may have kept a checkpoint only."""
        if self._has_pending_rows():
            return self._missing_reason() is None
        return any(hasattr(self, name) for name in ("maps_", "particles_", "constant_"))

    def _learn_pending(self) -> None:
        """Learn pending rows; called before the fitted model is read."""
        if not self._has_pending_rows():
            return
        missing = self._missing_reason()
        if missing is not None:
            raise NotFittedError(f"{missing}; call partial_fit with more rows first")
        self._learn_buffered()

    def _before_saving(self) -> None:
        """Learn pending rows if possible, so that a loaded model can predict."""
        if self._missing_reason() is None:
            self._learn_pending()

    def __getstate__(self) -> Any:
        self._before_saving()
        return super().__getstate__()


def same_format(X: Matrix, state: dict[str, Any]) -> Matrix:
    """Convert rows to the format of the first batch, dense or CSR."""
    is_sparse = bool(sparse.issparse(state.get("X", X)))
    wanted = state.setdefault("sparse", is_sparse)
    if wanted == bool(sparse.issparse(X)):
        return X
    sparse_rows = sparse.csr_matrix(X)
    return sparse_rows if wanted else sparse_rows.toarray()


def precision_of(roots: Array, n_features: int, n_outputs: int) -> Array:
    """Precision blocks ``(n_outputs, D, D)`` from inverse Cholesky factors.

    Costs features^3 per factor.
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
    """Precision blocks ``(n_outputs, D, D)`` from bases and a scalar outside of each.

    Costs features^2 x directions per output.
    """
    C, D, r = bases.shape
    whole = []
    for basis, block, precision in zip(
        bases.astype(np.float64), precision_of(root[None], r, C), outside, strict=True
    ):
        block[np.diag_indices(r)] -= precision
        whole.append(basis @ block @ basis.T + precision * np.eye(D))
    return np.stack(whole)
