"""What depends on the kind of targets: the interface between the recipe and its two tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from likelier.base import Array, Engine, Loss, Posterior
from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import Rows
from likelier.kernel_machine.evidence import Plan, Scales
from likelier.kernel_machine.expert_fit import Corrected
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.search import Choice, Fold


@dataclass(frozen=True)
class Chosen:
    """Validated hyperparameters, and what the held-out rows say of the uncertainty."""

    choice: Choice
    uncertainty: Any = None


@dataclass(frozen=True)
class Problem:
    """What the weights are learned from.

    Attributes
    ----------
    engine : Engine
        Rows with encoded targets.
    sample : Rows
        Some of the rows, at hand.
    unit : float
        Weight of a typical row.
    map : KernelMap
    landmarks : array
        Numbers of the rows of the sample that are landmarks.
    chosen : Chosen
    stage : str
        Name of the stage, for the checkpoint.
    """

    engine: Engine
    sample: Rows
    unit: float
    map: KernelMap
    landmarks: Array
    chosen: Chosen
    stage: str = "weights"


class Task(ABC):
    """A kind of targets: classes, or numbers of mean zero and unit variance."""

    min_expert_rows: ClassVar[int]  # from which on experts are tried

    alpha: float | None  # prior precision; None to choose it
    n_classes: int  # 0 in a regression

    @property
    @abstractmethod
    def particle_loss(self) -> Loss:
        """Loss of particles."""

    @abstractmethod
    def merged(self, rows: Rows) -> Rows:
        """Rows with duplicates merged, where these are copies of one observation."""

    @abstractmethod
    def strata(self, y: Array) -> Array:
        """Groups that held-out rows are balanced over."""

    @abstractmethod
    def columns(self, y: Array) -> Array:
        """Targets as columns for the evidence."""

    @abstractmethod
    def plan(self, n_rows: int) -> Plan:
        """Schedule of the evidence ascent."""

    @abstractmethod
    def choose(
        self, folds: list[Fold], scales: Scales, unit: float, move_scale: bool, monitor: Monitor
    ) -> Chosen:
        """Precision and common scale by validation on the folds; without folds, the evidence's."""

    @abstractmethod
    def learn(self, problem: Problem, monitor: Monitor) -> Posterior:
        """Weights from all rows of the engine, and their posterior."""

    @abstractmethod
    def row_seconds(self, feature_map: KernelMap, rows: Rows) -> float:
        """Measured cost of learning a row with these features."""

    @property
    @abstractmethod
    def allows_experts(self) -> bool:
        """Whether local experts have the same loss."""

    @abstractmethod
    def corrected(self, posterior: Any, problem: Problem, learned: bool) -> Corrected:
        """The fitted model as experts see it; ``learned`` says that it has seen all rows."""

    @abstractmethod
    def with_experts(self, posterior: Any, experts: Experts, uncertainty: Any) -> Posterior:
        """The posterior with experts."""

    @abstractmethod
    def continued(self, posterior: Any) -> dict[str, Any]:
        """State in which a posterior learns further rows, as plain values."""

    @abstractmethod
    def absorb(
        self, posterior: Any, state: dict[str, Any], rows: Rows
    ) -> tuple[Posterior, dict[str, Any]]:
        """Posterior and state after more rows; the posterior before is their prior."""
