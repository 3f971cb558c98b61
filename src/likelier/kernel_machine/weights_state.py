"""State of the optimisation of output weights, complete enough to resume bit-identically."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array

MEMORY = 10  # L-BFGS history length


@dataclass(frozen=True)
class SolverState:
    """Optimiser state: everything that the next steps depend on.

    ``changes`` are the recent L-BFGS steps: change of the weights, of the gradient, and their
    product.
    """

    W: Array
    value: float
    gradient: Array
    gram: Array
    changes: tuple[tuple[Array, Array, float], ...] = ()
    step: int = 0
    values: tuple[float, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Dict of plain values."""
        moved = [np.array([change[i] for change in self.changes]) for i in range(3)]
        return vars(self) | {"changes": moved, "values": np.array(self.values)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> SolverState:
        """Inverse of `to_plain`."""
        names = ("W", "value", "gradient", "gram", "step")
        changes = tuple((a, b, float(c)) for a, b, c in zip(*plain["changes"], strict=True))
        found = {name: plain[name] for name in names}
        return cls(**found, changes=changes, values=tuple(plain["values"].tolist()))

    def after(self, moved: tuple[Array, float, Array]) -> SolverState:
        """State one step later, from (weights, objective, gradient)."""
        W, value, gradient = moved
        change, gradient_change = W - self.W, gradient - self.gradient
        product, changes = float(np.vdot(change, gradient_change)), self.changes
        if product > 0.0:
            changes = (*changes[1 - MEMORY :], (change, gradient_change, product))
        values = (*self.values, value)
        return SolverState(W, value, gradient, self.gram, changes, self.step + 1, values)
