"""The state of SMO in a checkpoint: plain values, from which a fit resumes to the same bits.

Kernel rows are no part of it: the cache is emptied where a state is saved, in every fit alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.svm.state import ActivePart, SMOState

COUNTERS = ("drift", "n_iter", "rounds", "gap", "work", "since_newton", "since_shrink", "patience",
            "n_polished", "polished_at", "history")  # fmt: skip


@dataclass(frozen=True)
class SavedState:
    """Coefficients, residuals and active rows of a problem, and which problems come after it.

    ``C`` is that of the problem, ``later`` those of the problems that start from its solution, and
    ``exact`` says whether kernel rows are float64.
    """

    C: float
    later: tuple[float, ...]
    exact: bool
    beta: Array
    anchor: Array
    F: Array
    part: ActivePart
    counters: dict[str, Any]

    @classmethod
    def of(cls, state: SMOState, later: tuple[float, ...]) -> SavedState:
        """The state of a problem whose cache has just been emptied; arrays are not copied."""
        counters = {name: getattr(state, name) for name in COUNTERS}
        return cls(
            state.model.C, later, state.cache.dtype == np.float64, state.beta, state.anchor,
            state.F, state.part, counters,
        )  # fmt: skip

    def restore(self, state: SMOState) -> None:
        """Make a new state of the same problem this one."""
        state.beta, state.anchor, state.F, state.part = self.beta, self.anchor, self.F, self.part
        for name, value in self.counters.items():
            setattr(state, name, value)
        state.cache.empty(self.part.rows)
