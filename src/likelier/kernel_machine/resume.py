"""What an unfinished fit of a kernel machine leaves, so that a later one can go on with it.

A later fit takes the same way with the same random numbers, and only skips what has been done:
steps of the climb of the evidence, choices that held-out rows have judged, steps and sums of the
weights, updates of particles. So it comes to the same model, to the last bit. Of several fits
those that were finished are kept whole.
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
from likelier.kernel_machine.evidence import Climb
from likelier.kernel_machine.features import KernelMap, restore_map
from likelier.kernel_machine.search import Choice
from likelier.kernel_machine.weights_state import HeadState

# What is kept of stages that have been gone through, by a later fit too.
FOLD_CLIMBS = ("climb 0", "climb 1", "climb 2")  # of parts that learn scales of their own
WEIGHT_STAGES = tuple(
    name + of for name in ("start", "weights", "sums", "left out") for of in ("", " of all")
)
KEPT = (
    "climb", *FOLD_CLIMBS, "search", "choice", *WEIGHT_STAGES, "trial", "experts", "strength",
    "particles", "finished", "random",
)  # fmt: skip
# Constructor words that may change between an unfinished fit and the one that goes on with it.
FREE = ("time_budget", "warm_start", "n_jobs", "verbose", "random_state")


def parameters_of(estimator: Any) -> str:
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
    check_same_parameters(estimator, left["words"])
    return left


def check_same_parameters(estimator: Any, words: str) -> None:
    """Raise where the constructor's words are not those of the unfinished fit."""
    if words != parameters_of(estimator):
        raise ValueError(
            "warm_start goes on with an unfinished fit, and the words of the constructor have "
            f"changed since: they were {words}; fit with warm_start=False"
        )


def leave(estimator: Any, budget: TimeBudget, n_rows: int, units: Any, standard: Standard) -> None:
    """Keep what is needed to go on, as the attribute ``unfinished_``."""
    if getattr(estimator, "unfinished_", None) or budget.seed is None:
        return  # experts can go on by themselves
    estimator.unfinished_ = budget.kept | {
        "words": parameters_of(estimator), "seed": budget.seed, "n_rows": n_rows, "units": units,
        "inputs": _moments(standard),
    }  # fmt: skip


def check_same_rows(budget: TimeBudget, n_rows: int, units: Any, standard: Standard) -> None:
    """Raise where the rows are not those of the unfinished fit, as far as can be told."""
    left = budget.before
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


def finished_parts(budget: TimeBudget, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The plain form of fits that were finished; random numbers go on after the last of them."""
    parts: list[dict[str, Any]] = budget.before.get("finished", [])
    if parts:
        rng.bit_generator.state = json.loads(budget.before["random"])
    return parts


def keep_finished(budget: TimeBudget, part: dict[str, Any], rng: np.random.Generator) -> None:
    """Keep one more of several fits; what was kept of its stages is needed no longer."""
    finished = [*budget.kept.get("finished", []), part]
    budget.kept = {"finished": finished, "random": json.dumps(rng.bit_generator.state)}
    budget.before = {k: v for k, v in budget.before.items() if k not in KEPT}


class KeptClimb:
    """Tells the budget of every step of a climb, and keeps its state under a name."""

    def __init__(self, budget: TimeBudget, n_steps: int, name: str = "climb") -> None:
        self.budget, self.n_steps, self.name, self.skipped = budget, n_steps, name, 0.0
        # what follows a stage that was cut short has to be done again; nothing is before "climb"
        self.whole = not budget.cut or name == "climb"

    def before(self) -> Climb | None:
        """Where an unfinished fit had come to."""
        plain = self.budget.before.get(self.name)
        if plain is None:
            return None
        self.skipped = plain["step"] / self.n_steps
        return Climb(**(plain | {"values": tuple(plain["values"])}))

    def __call__(self, climb: Climb) -> bool:
        """One more step is done."""
        if self.whole:
            self.budget.kept[self.name] = vars(climb) | {"values": np.array(climb.values)}
        share = climb.step / self.n_steps
        return self.budget.progress("evidence", share, skipped=self.skipped)


class KeptJudge:
    """A judge of choices whose verdicts are kept, one after another."""

    def __init__(self, judge: Any, budget: TimeBudget, name: str = "search") -> None:
        self.judge, self.budget, self.name, self.whole = judge, budget, name, not budget.cut
        known = budget.before.get(name, {"choices": [], "losses": [], "fits": []})
        judge.restore(known["fits"])
        pairs = zip(known["choices"], known["losses"], strict=True)
        self.known: dict[tuple[float, float], Array] = {
            (float(p), float(s)): v for (p, s), v in pairs
        }

    def __getattr__(self, name: str) -> Any:
        """All else is the judge's own."""
        return getattr(self.judge, name)

    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row."""
        key = (choice.precision, choice.scale)
        if key not in self.known:
            self.known[key] = self.judge.losses(choice)
            if self.whole:
                self.budget.kept[self.name] = {
                    "choices": np.array(list(self.known)), "fits": self.judge.to_plain(),
                    "losses": np.array(list(self.known.values())),
                }  # fmt: skip
            self.budget.pause()
        return self.known[key]

    def stop(self, choice: Choice) -> bool:
        """Whether there is no time for this one: what is known takes none."""
        return (choice.precision, choice.scale) not in self.known and self.budget.over


class KeptWeights:
    """Looks on a search for weights, and keeps where it has come to.

    ``place`` says which problem it is: other rows or hyperparameters begin anew.
    """

    def __init__(self, budget: TimeBudget, name: str, place: list[Any]) -> None:
        self.budget, self.name, self.place, self.whole = budget, name, place, not budget.cut

    def start(self, W: Array) -> Array | HeadState:
        """Where an unfinished fit had come to, or these weights."""
        known = self.budget.before.get(self.name, {})
        if known.get("place") != self.place or known["W"].shape != W.shape:
            return W
        return HeadState.from_plain(known)

    def __call__(self, state: HeadState) -> bool:
        """One more step is done."""
        if self.whole:
            self.budget.kept[self.name] = state.to_plain() | {"place": self.place}
        return self.budget.tick("weights", f"objective {state.value:.6g}")


def kept_choice(budget: TimeBudget, rng: np.random.Generator) -> tuple[Choice, Any] | None:
    """What the search of an unfinished fit has found; random numbers go on from there."""
    plain = budget.before.get("choice")
    if plain is None:
        return None
    rng.bit_generator.state = json.loads(plain["random"])
    return Choice(**plain["choice"]), plain["found"]


def keep_choice(budget: TimeBudget, choice: Choice, found: Any, rng: np.random.Generator) -> None:
    """Keep what a whole search has found."""
    if not budget.cut:
        state = json.dumps(rng.bit_generator.state)
        budget.kept["choice"] = {"choice": asdict(choice), "found": found, "random": state}
        for name in (*FOLD_CLIMBS, "search"):  # needed no longer
            budget.kept.pop(name, None)
        budget.pause()
