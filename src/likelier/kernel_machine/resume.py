"""Checkpoints of interrupted fits of a kernel machine.

A resumed fit repeats the same computation with the same random numbers and skips what is in the
checkpoint: evidence ascent steps, validated hyperparameters, optimiser steps and sums of the
weights, particle updates. It reaches the bit-identical model. Completed ensemble members are saved
whole.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, fields
from typing import Any, ClassVar, Self

import numpy as np

from likelier.base import Array
from likelier.fitting.standardize import Standard
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.evidence import AscentState
from likelier.kernel_machine.features import KernelMap, restore_map
from likelier.kernel_machine.search import Choice
from likelier.kernel_machine.weights_state import SolverState

# Checkpoint keys of the stages of a fit.
FOLD_STAGES = ("fold 0", "fold 1", "fold 2")  # folds that learn their own scales
WEIGHT_STAGES = tuple(
    name + of for name in ("start", "weights", "sums", "residuals") for of in ("", " of all")
)
CHECKPOINT_KEYS = (
    "evidence", *FOLD_STAGES, "search", "choice", *WEIGHT_STAGES, "trial", "experts", "strength",
    "particles", "finished", "random",
)  # fmt: skip
# Constructor parameters that may change when a fit is resumed.
CHANGEABLE = ("time_budget", "warm_start", "n_jobs", "verbose", "random_state")


def parameters_of(estimator: Any) -> str:
    """Text form of the constructor parameters that a resumed fit must not change."""
    parameters = estimator.get_params(deep=False)
    with np.printoptions(  # full arrays and digits, whatever the user's print options
        threshold=sys.maxsize, floatmode="unique", linewidth=75, suppress=False, sign="-",
        formatter=None,
    ):  # fmt: skip
        return repr(
            {name: parameters[name] for name in sorted(parameters) if name not in CHANGEABLE}
        )


def load_checkpoint(estimator: Any) -> dict[str, Any]:
    """Checkpoint to resume from; empty if the fit starts anew."""
    saved: dict[str, Any] = getattr(estimator, "checkpoint_", {})
    if not estimator.warm_start or "parameters" not in saved:
        return {}
    check_same_parameters(estimator, saved["parameters"])
    return saved


def check_same_parameters(estimator: Any, parameters: str) -> None:
    """Raise if the constructor parameters differ from those of the interrupted fit."""
    if parameters != parameters_of(estimator):
        raise ValueError(
            "warm_start resumes an interrupted fit, but constructor parameters have changed since; "
            f"restore {parameters}, or set warm_start=False"
        )


def save_checkpoint(
    estimator: Any, budget: TimeBudget, n_rows: int, encoding: Any, standard: Standard
) -> None:
    """Save the checkpoint as the attribute ``checkpoint_``."""
    if getattr(estimator, "checkpoint_", None) or budget.seed is None:
        return  # experts have their own checkpoint
    estimator.checkpoint_ = budget.kept | {
        "parameters": parameters_of(estimator), "seed": budget.seed, "n_rows": n_rows,
        "encoding": encoding,
        "inputs": _moments(standard),
    }  # fmt: skip


def check_same_rows(budget: TimeBudget, n_rows: int, encoding: Any, standard: Standard) -> None:
    """Raise if the rows differ from those of the interrupted fit, as far as can be detected."""
    saved = budget.before
    if saved and not (saved["n_rows"] == n_rows and same_encoding(saved["encoding"], encoding)):
        raise ValueError(
            f"warm_start resumes an interrupted fit and needs the same {saved['n_rows']} rows and "
            f"targets, got {n_rows} rows; pass them again, or set warm_start=False"
        )
    now = _moments(standard)
    known = np.asarray(saved["inputs"]) if saved else now
    if known.shape != now.shape or not np.allclose(known, now, rtol=1e-9, atol=0.0):
        raise ValueError(
            "warm_start resumes an interrupted fit, but X or sample_weight has changed since; pass "
            "the same rows, or set warm_start=False"
        )


def same_encoding(known: Array, encoding: Array) -> bool:
    """Whether classes, or mean and scale of the targets, agree up to summation order."""
    if known.dtype.kind != "f" or encoding.dtype.kind != "f":
        return np.array_equal(known, encoding)
    within = 1e-9 * float(np.abs(known).max(initial=0.0))
    return known.shape == encoding.shape and bool(
        np.allclose(known, encoding, rtol=0.0, atol=within)
    )


def _moments(standard: Standard) -> Array:
    """Weighted means and inverse scales of the inputs, to detect other rows or weights."""
    return np.stack([standard.mean, standard.inverse])


class SavedPart:
    """An ensemble member that converts to plain values; ``records`` are its dataclass fields."""

    map: KernelMap
    records: ClassVar[dict[str, Any]]

    def to_plain(self) -> dict[str, Any]:
        """Dict of plain values."""
        found = {name: _fields_of(getattr(self, name)) for name in self.records}
        return vars(self) | found | {"map": self.map.to_arrays()}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Inverse of `to_plain`."""
        found: dict[str, Any] = {"map": restore_map(plain["map"])}
        for name, kind in cls.records.items():
            found[name] = None if plain[name] is None else kind(**plain[name])
        return cls(**(plain | found))


def _fields_of(record: Any) -> dict[str, Any] | None:
    if record is None:
        return None
    return {item.name: getattr(record, item.name) for item in fields(record)}


def saved_parts(budget: TimeBudget, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Completed ensemble members; restores the random state after the last of them."""
    parts: list[dict[str, Any]] = budget.before.get("finished", [])
    if parts:
        rng.bit_generator.state = json.loads(budget.before["random"])
    return parts


def save_finished(budget: TimeBudget, part: dict[str, Any], rng: np.random.Generator) -> None:
    """Save a completed ensemble member; the checkpoints of its stages are dropped."""
    finished = [*budget.kept.get("finished", []), part]
    budget.kept = {"finished": finished, "random": json.dumps(rng.bit_generator.state)}
    budget.before = {k: v for k, v in budget.before.items() if k not in CHECKPOINT_KEYS}


class AscentCheckpoint:
    """Reports every ascent step to the budget, and checkpoints its state."""

    def __init__(self, budget: TimeBudget, n_steps: int, name: str = "evidence") -> None:
        self.budget, self.n_steps, self.name, self.skipped = budget, n_steps, name, 0.0
        # stages after a truncated one are not checkpointed; "evidence" is the first stage
        self.whole = not budget.cut or name == "evidence"

    def before(self) -> AscentState | None:
        """State of the interrupted ascent."""
        plain = self.budget.before.get(self.name)
        if plain is None:
            return None
        self.skipped = plain["step"] / self.n_steps
        return AscentState(**(plain | {"values": tuple(plain["values"])}))

    def __call__(self, state: AscentState) -> bool:
        """Called after each step."""
        if self.whole:
            self.budget.kept[self.name] = vars(state) | {"values": np.array(state.values)}
        fraction = state.step / self.n_steps
        return self.budget.progress("evidence", fraction, skipped=self.skipped)


class CachedValidator:
    """A validator that caches its losses, and checkpoints them."""

    def __init__(self, validator: Any, budget: TimeBudget, name: str = "search") -> None:
        self.validator, self.budget, self.name, self.whole = validator, budget, name, not budget.cut
        known = budget.before.get(name, {"choices": [], "losses": [], "fits": []})
        validator.restore(known["fits"])
        pairs = zip(known["choices"], known["losses"], strict=True)
        self.known: dict[tuple[float, float], Array] = {
            (float(p), float(s)): v for (p, s), v in pairs
        }

    def __getattr__(self, name: str) -> Any:
        """Delegate to the validator."""
        return getattr(self.validator, name)

    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row."""
        key = (choice.precision, choice.scale)
        if key not in self.known:
            self.known[key] = self.validator.losses(choice)
            if self.whole:
                self.budget.kept[self.name] = {
                    "choices": np.array(list(self.known)), "fits": self.validator.to_plain(),
                    "losses": np.array(list(self.known.values())),
                }  # fmt: skip
            self.budget.pause()
        return self.known[key]

    def stop(self, choice: Choice) -> bool:
        """Whether there is no time for this choice; cached ones take none."""
        return (choice.precision, choice.scale) not in self.known and self.budget.over


class WeightsCheckpoint:
    """Monitors an optimisation of weights, and checkpoints its state.

    ``signature`` is the signature of the problem: other rows or hyperparameters start anew.
    """

    def __init__(self, budget: TimeBudget, name: str, signature: list[Any]) -> None:
        self.budget, self.name, self.signature, self.whole = budget, name, signature, not budget.cut

    def start(self, W: Array) -> Array | SolverState:
        """State of the interrupted optimisation, else these weights."""
        known = self.budget.before.get(self.name, {})
        if known.get("signature") != self.signature or known["W"].shape != W.shape:
            return W
        return SolverState.from_plain(known)

    def __call__(self, state: SolverState) -> bool:
        """Called after each step."""
        if self.whole:
            self.budget.kept[self.name] = state.to_plain() | {"signature": self.signature}
        return self.budget.tick("weights", f"objective {state.value:.6g}")


def saved_choice(budget: TimeBudget, rng: np.random.Generator) -> tuple[Choice, Any] | None:
    """Checkpointed result of the search; restores the random state."""
    plain = budget.before.get("choice")
    if plain is None:
        return None
    rng.bit_generator.state = json.loads(plain["random"])
    return Choice(**plain["choice"]), plain["found"]


def save_choice(budget: TimeBudget, choice: Choice, found: Any, rng: np.random.Generator) -> None:
    """Checkpoint the result of a completed search."""
    if not budget.cut:
        state = json.dumps(rng.bit_generator.state)
        budget.kept["choice"] = {"choice": asdict(choice), "found": found, "random": state}
        for name in (*FOLD_STAGES, "search"):  # superseded
            budget.kept.pop(name, None)
        budget.pause()
