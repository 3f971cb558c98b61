"""Fits in one run or in several resumed ones.

A new fit skips what its time budget does not allow. A resumed fit completes the remaining work
piece by piece until the time is over, and meanwhile predicts with the previous model, so that
repeated fits converge to the result of one fit without a budget. Only when a stage has been
completed since is an intermediate model fitted, to as few rows as possible.
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
    CHECKPOINT_KEYS,
    check_same_rows,
    save_checkpoint,
    save_finished,
    saved_parts,
)


class ResumableFit(KernelParticles):
    """From rows and a sample of them to a fitted model, in one or several fits."""

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
        """Hyperparameters from the sample and weights from the engine, for every particle."""
        self.n_rows_seen_ = n_rows  # also if the fit is interrupted
        check_same_rows(budget, n_rows, self._target_encoding(), standard)
        learn = self._fit_evidence if self.inference == "evidence" else self._fit_particles
        # particle updates are short and can stop at any time
        budget.thorough = bool(budget.before) and self.inference == "evidence"
        random_state, out_of_time = rng.bit_generator.state, False
        try:
            try:
                learn(engine, sample, n_rows, standard, rng, budget)
            except OutOfTime:
                out_of_time, budget.cut, budget.thorough = True, True, False
            if out_of_time and not self._restore_previous_model(budget):
                rng.bit_generator.state = random_state
                budget.before = {
                    k: v for k, v in budget.before.items() if k not in CHECKPOINT_KEYS
                } | budget.kept
                learn(engine, sample, n_rows, standard, rng, budget)
        except KeyboardInterrupt:
            budget.cut = True
            if not (hasattr(self, "maps_") or hasattr(self, "particles_")):
                self.__dict__.update(budget.model)
            raise
        finally:
            if budget.cut:
                save_checkpoint(self, budget, n_rows, self._target_encoding(), standard)

    def _fit_evidence(
        self,
        engine: Engine,
        sample: Rows,
        n_rows: int,
        standard: Standard,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> None:
        """Fit the ensemble members in turn, each with its own hyperparameters."""
        parts = [self._particle_type.from_plain(part) for part in saved_parts(budget, rng)]
        n_particles = self._n_particles()
        try:
            while len(parts) < n_particles:
                held = self._held_rows(sample, rng)
                prepared = self._prepare(sample, held, standard, rng, budget)
                parts.append(self._learn_particle(engine, prepared, held, n_rows, rng, budget))
                if n_particles > 1 and not budget.cut:
                    save_finished(budget, parts[-1].to_plain(), rng)
                if len(parts) < n_particles:
                    budget.pause()
                    if budget.over:
                        break  # fewer members are a valid model
        except KeyboardInterrupt:
            self._store_parts(parts, standard, budget)
            raise
        except OutOfTime:
            if not parts:
                raise
            budget.cut = True
        self._store_parts(parts, standard, budget)

    def _store_parts(self, parts: list[Any], standard: Standard, budget: TimeBudget) -> None:
        if parts:
            self._store(parts, standard)
            self.n_iter_ = budget.n_iter

    def _restore_previous_model(self, budget: TimeBudget) -> bool:
        """Restore the previous model if it is still the best one; return whether it is.

        It is not if a stage has been completed since, which may improve scales or prior.
        """
        if not budget.model or _n_stages(budget.kept) > _n_stages(budget.before):
            return False
        self.__dict__.update(budget.model)
        self.n_iter_ += budget.n_iter
        return True

    # -- implemented by subclasses -------------------------------------------------------
    @abstractmethod
    def _target_encoding(self) -> Array: ...

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


def previous_model(estimator: Any) -> dict[str, Any]:
    """Fitted attributes of an interrupted fit that can predict."""
    fitted = {k: v for k, v in vars(estimator).items() if k[-1] == "_" and k[0] != "_"}
    fitted = {k: v for k, v in fitted.items() if k not in ("checkpoint_", "stream_")}
    return fitted if "maps_" in fitted or "particles_" in fitted else {}


def _n_stages(checkpoint: dict[str, Any]) -> int:
    """Number of completed stages before the weights: the scales, then the search."""
    return 2 if "choice" in checkpoint else int("search" in checkpoint)
