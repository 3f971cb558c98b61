"""How a kernel machine goes on with an unfinished fit: first what the whole fit needs.

A fit that begins leaves out what its time budget does not pay for. One that goes on does what is
left to do, piece by piece, until time is over, and predicts meanwhile by the model that it found.
So fits that are repeated come to an end, and to the model of one fit without a budget. Only where
a stage has been finished since is there another model in between, of as few rows as can be.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from likelier.base import Array, Engine
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard
from likelier.fitting.time_budget import OutOfTime, TimeBudget
from likelier.kernel_machine.particles import KernelParticles
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.resume import (
    KEPT,
    check_same_rows,
    finished_parts,
    keep_finished,
    leave,
)


class GoingOn(KernelParticles):
    """From rows and a sample of them to a fitted model, in one fit or in several."""

    _particle_type: Any

    def _fit_engine(
        self,
        engine: Engine,
        sample: Rows,
        n_rows: int,
        standard: Standard,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> None:
        """Hyperparameters from the sample, weights from the engine, for every particle."""
        self.n_rows_seen_ = n_rows  # also of a fit that is interrupted
        check_same_rows(budget, n_rows, self._target_units(), standard)
        learn = self._fit_evidence if self.inference == "evidence" else self._fit_particles
        # updates of particles are short, and a model at every moment
        budget.thorough = bool(budget.before) and self.inference == "evidence"
        random, late = rng.bit_generator.state, False
        try:
            try:
                learn(engine, sample, n_rows, standard, rng, budget)
            except OutOfTime:
                late, budget.cut, budget.thorough = True, True, False
            if late and not self._goes_back(budget):
                rng.bit_generator.state = random
                budget.before = {
                    k: v for k, v in budget.before.items() if k not in KEPT
                } | budget.kept
                learn(engine, sample, n_rows, standard, rng, budget)
        except KeyboardInterrupt:
            budget.cut = True
            if not (hasattr(self, "maps_") or hasattr(self, "particles_")):
                self.__dict__.update(budget.model)
            raise
        finally:
            if budget.cut:
                leave(self, budget, n_rows, self._target_units(), standard)

    def _fit_evidence(
        self,
        engine: Engine,
        sample: Rows,
        n_rows: int,
        standard: Standard,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> None:
        """One machine after another, each with hyperparameters of its own."""
        parts = [self._particle_type.from_plain(part) for part in finished_parts(budget, rng)]
        n_particles = self._n_particles()
        try:
            while len(parts) < n_particles:
                held = self._held_rows(sample, rng)
                prepared = self._prepare(sample, held, standard, rng, budget)
                parts.append(self._learn_particle(engine, prepared, held, n_rows, rng, budget))
                if n_particles > 1 and not budget.cut:
                    keep_finished(budget, parts[-1].to_plain(), rng)
                if len(parts) < n_particles:
                    budget.pause()
                    if budget.over:
                        break  # fewer particles are a model all the same
        except KeyboardInterrupt:
            self._keep_parts(parts, standard, budget)
            raise
        except OutOfTime:
            if not parts:
                raise
            budget.cut = True
        self._keep_parts(parts, standard, budget)

    def _keep_parts(self, parts: list[Any], standard: Standard, budget: TimeBudget) -> None:
        if parts:
            self._store(parts, standard)
            self.n_iter_ = budget.n_iter

    def _goes_back(self, budget: TimeBudget) -> bool:
        """Whether the model of the unfinished fit is still the one to predict by; it is put back.

        It is not where a stage has been finished since: its scales or its prior can be better.
        """
        if not budget.model or _n_stages(budget.kept) > _n_stages(budget.before):
            return False
        self.__dict__.update(budget.model)
        self.n_iter_ += budget.n_iter
        return True

    # -- what the public classes and their other halves say -------------------------------
    @abstractmethod
    def _target_units(self) -> Array: ...

    @abstractmethod
    def _held_rows(self, sample: Rows, rng: np.random.Generator) -> Array: ...

    @abstractmethod
    def _learn_particle(
        self,
        engine: Engine,
        prepared: Prepared,
        held: Array,
        n_rows: int,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> Any: ...

    @abstractmethod
    def _store(self, parts: list[Any], standard: Standard) -> None: ...


def earlier_model(estimator: Any) -> dict[str, Any]:
    """Fitted attributes of an unfinished fit that can predict."""
    fitted = {k: v for k, v in vars(estimator).items() if k[-1] == "_" and k[0] != "_"}
    fitted = {k: v for k, v in fitted.items() if k not in ("unfinished_", "stream_")}
    return fitted if "maps_" in fitted or "particles_" in fitted else {}


def _n_stages(kept: dict[str, Any]) -> int:
    """How many stages before the weights have been finished: the scales, then the search."""
    return 2 if "choice" in kept else int("search" in kept)
