"""Early stopping: the parameters with the lowest validation loss."""

from __future__ import annotations

from typing import Any

from likelier.base import Array, Batch
from likelier.glm.model import LinearModel

PATIENCE = 5  # iterations without a lower validation loss


class EarlyStopping:
    """Evaluates the validation loss after every iteration and keeps the best parameters."""

    def __init__(self, model: LinearModel, batch: Batch, tol: float) -> None:
        self._model, self._batch, self._tol = model, batch, tol
        self.best_loss, self._waited = float("inf"), 0
        self.best: Array | None = None

    def after_step(self, posterior: Any) -> bool:
        """Whether the loss has not improved for `PATIENCE` iterations."""
        loss = float(self._model.stats(posterior.theta, self._batch).value.sum())
        loss /= self._batch.n_rows
        if self.best is None or loss < self.best_loss - self._tol * abs(self.best_loss):
            self.best_loss, self.best, self._waited = loss, posterior.theta, 0
        else:
            self._waited += 1
        return self._waited >= PATIENCE
