"""One optimisation problem, the same for every tool: data, loss and penalty."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.common import CACHE, ROOT
from benchmarks.datasets import Array, Dataset, load

SETS = (
    "a9a",
    "w8a",
    "ijcnn1",
    "covtype",
    "kddcup99_10pct",
    "sector",
    "20newsgroups",
    "mnist",
)
PENALTIES = (1.0, 0.01)
LOSSES = ("log_loss", "hinge")
# "within 1% of the optimal objective"
CLOSE = 0.01


@dataclass
class Problem:
    """Minimise ``(1/N) sum_i sum_k loss(y_ik x_i^T w_k) + (alpha/2) |W|^2``, no intercept.

    ``penalty`` is ``alpha N``. With two classes there is one weight vector, otherwise one per
    class against the rest; ``coef`` has shape (number of weight vectors, features).
    """

    data: Dataset
    loss: str
    penalty: float
    optimum: float = float("nan")
    targets: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.targets = self.data.signs()

    @property
    def key(self) -> str:
        return f"{self.data.name}/{self.loss}/{self.penalty:g}"

    @property
    def reference(self) -> Path:
        """Folder that remembers the optimum and the peers' best settings.

        Facts about the full data sets do not change from run to run and stay in the repository,
        so that a benchmark measures and need not search; delete the files to search again.
        """
        if self.data.name in SETS:
            return ROOT / "benchmarks" / "linear" / "reference"
        return CACHE

    @property
    def alpha(self) -> float:
        return self.penalty / self.data.n_rows

    @property
    def n_problems(self) -> int:
        return int(self.targets.shape[1])

    def objective(self, coef: Array) -> float:
        """Objective of a weight matrix; infinite when a weight is not finite."""
        coef = np.asarray(coef, dtype=np.float64).reshape(self.n_problems, -1)
        if not np.isfinite(coef).all():
            return float("inf")
        with np.errstate(over="ignore"):
            margins = self.targets * np.asarray(self.data.X @ coef.T)
            total = row_losses(self.loss, margins).sum() / self.data.n_rows
            return float(total + 0.5 * self.alpha * np.sum(coef * coef))

    def gap(self, coef: Array) -> float:
        """How far above the optimum, relative to it."""
        return self.objective(coef) / self.optimum - 1

    def reached(self, coef: Array) -> bool:
        return self.gap(coef) <= CLOSE


def row_losses(loss: str, margins: Array) -> Array:
    """Loss of each margin ``y f``."""
    if loss == "log_loss":
        return np.logaddexp(0.0, -margins)
    return np.maximum(1.0 - margins, 0.0)


def problem(name: str, loss: str, penalty: float, rows: int | None = None) -> Problem:
    """Build the problem of one table cell; ``rows`` cuts large data for quick runs."""
    data = load(name)
    if rows is not None and data.n_rows > rows:
        data = data.head(rows)
    return Problem(data, loss, penalty)
