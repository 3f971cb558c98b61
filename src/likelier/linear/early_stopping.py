"""Early stopping: the parameters of the lowest loss on rows that were held out."""

from __future__ import annotations

from typing import Any

from likelier.base import Array, Batch
from likelier.glm.model import LinearModel

PATIENCE = 5  # iterations without a lower validation loss


class EarlyStopping:
    """Asks the validation loss after every iteration, and remembers the best parameters."""

    def __init__(self, model: LinearModel, batch: Batch, tol: float) -> None:
        self._model, self._batch, self._tol = model, batch, tol
        self.least, self._waited = float("inf"), 0
        self.best: Array | None = None

    def after_step(self, posterior: Any) -> bool:
        """Whether the loss has not fallen for some iterations."""
        loss = float(self._model.stats(posterior.theta, self._batch).value.sum())
        loss /= self._batch.n_rows
        if self.best is None or loss < self.least - self._tol * abs(self.least):
            self.least, self.best, self._waited = loss, posterior.theta, 0
        else:
            self._waited += 1
        return self._waited >= PATIENCE
