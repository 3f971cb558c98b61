"""What an unfinished fit of a kernel machine leaves, so that a later one can go on with it.

A later fit takes the same way with the same random numbers, and only skips what has been done:
steps of the climb of the evidence, the search by held-out rows, updates of particles. So it comes
to the same model, to the last bit; weights that were cut short are where the search for them
begins, and come to the same optimum.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.estimators.kernel_words import Clock
from likelier.inference.evidence import Climb
from likelier.inference.kernel_search import Choice
from likelier.models.kernel_machine import Standard

# What is kept of stages that have been gone through, by a later fit too.
KEPT = ("climb", "choice", "weights", "strength", "particles")
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
    if left and not (left["n_rows"] == n_rows and np.array_equal(left["units"], units)):
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


def _moments(standard: Standard) -> Array:
    """Weighted means and inverse spreads of the inputs: what tells other rows, and weights."""
    return np.stack([standard.mean, standard.inverse])


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
