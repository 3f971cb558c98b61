"""Where the search for the weights of a head has come to: enough to go on to the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array

MEMORY = 10  # of L-BFGS, in steps


@dataclass(frozen=True)
class HeadState:
    """Where a search for weights has come to, with all that its next steps depend on.

    ``changes`` are the last steps of L-BFGS: of the weights, of the gradient, their product.
    """

    W: Array
    value: float
    gradient: Array
    gram: Array
    changes: tuple[tuple[Array, Array, float], ...] = ()
    step: int = 0
    values: tuple[float, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Plain form."""
        moved = [np.array([change[i] for change in self.changes]) for i in range(3)]
        return vars(self) | {"changes": moved, "values": np.array(self.values)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> HeadState:
        """From the plain form."""
        names = ("W", "value", "gradient", "gram", "step")
        changes = tuple((a, b, float(c)) for a, b, c in zip(*plain["changes"], strict=True))
        found = {name: plain[name] for name in names}
        return cls(**found, changes=changes, values=tuple(plain["values"].tolist()))

    def after(self, moved: tuple[Array, float, Array]) -> HeadState:
        """The state one step later, at these weights with their objective and gradient."""
        W, value, gradient = moved
        change, bend = W - self.W, gradient - self.gradient
        curve, changes = float(np.vdot(change, bend)), self.changes
        if curve > 0.0:
            changes = (*changes[1 - MEMORY :], (change, bend, curve))
        values = (*self.values, value)
        return HeadState(W, value, gradient, self.gram, changes, self.step + 1, values)
