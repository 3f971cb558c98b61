"""What an unfinished fit of a kernel machine leaves, so that a later one can go on with it.

A later fit takes the same way with the same random numbers, and only skips what has been done:
steps of the climb of the evidence, the search by held-out rows, updates of particles. So it comes
to the same model, to the last bit; weights that were cut short are where the search for them
begins, and come to the same optimum. Of several fits those that were finished are kept whole.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, fields
from typing import Any, ClassVar, Self

import numpy as np

from likelier.base import Array
from likelier.estimators.kernel_words import Clock
from likelier.inference.evidence import Climb
from likelier.inference.kernel_search import Choice
from likelier.models.kernel_machine import KernelMap, Standard, restore_map

# What is kept of stages that have been gone through, by a later fit too.
KEPT = ("climb", "choice", "weights", "strength", "particles", "finished", "random")
# Constructor words that may change between an unfinished fit and the one that goes on with it.
FREE = ("time_budget", "warm_start", "n_jobs", "verbose", "random_state")


def words_of(estimator: Any) -> str:
    """The constructor words that must stay what they were, as text."""
    words = estimator.get_params(deep=False)
    with np.printoptions(  # arrays whole and to the last digit, whatever the user prefers
        threshold=sys.maxsize, floatmode="unique", linewidth=75, suppress=False, sign="-",
        formatter=None,
    ):  # fmt: skip
        return repr({name: words[name] for name in sorted(words) if name not in FREE})


def left_over(estimator: Any) -> dict[str, Any]:
    """What an unfinished fit has left to go on with; nothing where this fit begins anew."""
    left: dict[str, Any] = getattr(estimator, "unfinished_", {})
    if not estimator.warm_start or "words" not in left:
        return {}
    check_same_words(estimator, left["words"])
    return left


def check_same_words(estimator: Any, words: str) -> None:
    """Raise where the constructor's words are not those of the unfinished fit."""
    if words != words_of(estimator):
        raise ValueError(
            "warm_start goes on with an unfinished fit, and the words of the constructor have "
            f"changed since: they were {words}; fit with warm_start=False"
        )


def leave(estimator: Any, clock: Clock, n_rows: int, units: Any, standard: Standard) -> None:
    """Keep what is needed to go on, as the attribute ``unfinished_``."""
    if getattr(estimator, "unfinished_", None) or clock.seed is None:
        return  # experts can go on by themselves
    estimator.unfinished_ = clock.kept | {
        "words": words_of(estimator), "seed": clock.seed, "n_rows": n_rows, "units": units,
        "inputs": _moments(standard),
    }  # fmt: skip


def check_same_rows(clock: Clock, n_rows: int, units: Any, standard: Standard) -> None:
    """Raise where the rows are not those of the unfinished fit, as far as can be told."""
    left = clock.before
    if left and not (left["n_rows"] == n_rows and same_units(left["units"], units)):
        raise ValueError(
            f"warm_start goes on with the rows of the unfinished fit, {left['n_rows']} of them "
            f"and with the same targets, got {n_rows} rows; fit with warm_start=False"
        )
    now = _moments(standard)
    known = np.asarray(left["inputs"]) if left else now
    if known.shape != now.shape or not np.allclose(known, now, rtol=1e-9, atol=0.0):
        raise ValueError(
            "warm_start goes on with the rows of the unfinished fit, and X or sample_weight is "
            "another one now; fit with warm_start=False"
        )


def same_units(known: Array, units: Array) -> bool:
    """Whether targets are classes or in units that are known, as far as sums in blocks tell."""
    if known.dtype.kind != "f" or units.dtype.kind != "f":
        return np.array_equal(known, units)
    within = 1e-9 * float(np.abs(known).max(initial=0.0))
    return known.shape == units.shape and bool(np.allclose(known, units, rtol=0.0, atol=within))


def _moments(standard: Standard) -> Array:
    """Weighted means and inverse spreads of the inputs: what tells other rows, and weights."""
    return np.stack([standard.mean, standard.inverse])


class PlainPart:
    """One of several fits, with a plain form: its map as arrays, ``records`` by their fields."""

    map: KernelMap
    records: ClassVar[dict[str, Any]]

    def to_plain(self) -> dict[str, Any]:
        """Plain form."""
        found = {name: _fields_of(getattr(self, name)) for name in self.records}
        return vars(self) | found | {"map": self.map.to_arrays()}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """From the plain form."""
        found: dict[str, Any] = {"map": restore_map(plain["map"])}
        for name, kind in cls.records.items():
            found[name] = None if plain[name] is None else kind(**plain[name])
        return cls(**(plain | found))


def _fields_of(record: Any) -> dict[str, Any] | None:
    if record is None:
        return None
    return {item.name: getattr(record, item.name) for item in fields(record)}


def finished_parts(clock: Clock, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The plain form of fits that were finished; random numbers go on after the last of them."""
    parts: list[dict[str, Any]] = clock.before.get("finished", [])
    if parts:
        rng.bit_generator.state = json.loads(clock.before["random"])
    return parts


def keep_finished(clock: Clock, part: dict[str, Any], rng: np.random.Generator) -> None:
    """Keep one more of several fits; what was kept of its stages is needed no longer."""
    finished = [*clock.kept.get("finished", []), part]
    clock.kept = {"finished": finished, "random": json.dumps(rng.bit_generator.state)}
    clock.before = {k: v for k, v in clock.before.items() if k not in KEPT}


class KeptClimb:
    """Tells the clock of every step of a climb, and keeps its state."""

    def __init__(self, clock: Clock, n_steps: int) -> None:
        self.clock, self.n_steps, self.skipped = clock, n_steps, 0.0

    def before(self) -> Climb | None:
        """Where an unfinished fit had come to."""
        plain = self.clock.before.get("climb")
        if plain is None:
            return None
        self.skipped = plain["step"] / self.n_steps
        return Climb(**(plain | {"values": tuple(plain["values"])}))

    def __call__(self, climb: Climb) -> bool:
        """One more step is done."""
        self.clock.kept["climb"] = vars(climb) | {"values": np.array(climb.values)}
        share = climb.step / self.n_steps
        return self.clock.progress("evidence", share, skipped=self.skipped)


class PlainClimb(KeptClimb):
    """The same for a climb that is short and nobody keeps."""

    def before(self) -> Climb | None:
        """Nothing: it begins anew."""
        return None

    def __call__(self, climb: Climb) -> bool:
        """One more step is done."""
        return self.clock.progress("evidence", climb.step / self.n_steps)


def kept_choice(clock: Clock, rng: np.random.Generator) -> tuple[Choice, Any] | None:
    """What the search of an unfinished fit has found; random numbers go on from there."""
    plain = clock.before.get("choice")
    if plain is None:
        return None
    rng.bit_generator.state = json.loads(plain["random"])
    return Choice(**plain["choice"]), plain["found"]


def keep_choice(clock: Clock, choice: Choice, found: Any, rng: np.random.Generator) -> None:
    """Keep what a whole search has found."""
    if not clock.cut:
        state = json.dumps(rng.bit_generator.state)
        clock.kept["choice"] = {"choice": asdict(choice), "found": found, "random": state}
