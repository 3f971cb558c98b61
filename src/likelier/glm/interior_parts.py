"""Variables of the interior point method: hinges of rows and L1 penalties, and the duality gap.

``l1_j |w_j|`` is the hinge ``max(-u, u)`` with ``u = -w_j`` and weight ``N l1_j``. An L1 penalty is
therefore equivalent to additional rows with one feature each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array
from likelier.glm.penalty import ElasticNet

ZEROS_TOL = 1e-9  # relative gap at which the zero weights are identified
STALLED = 0.9  # of the previous gap: a smaller reduction is rounding

PartMove = tuple[Array, Array, Array]  # changes of g, v and s


@dataclass(frozen=True)
class Hinges:
    """``max(low u, high u)`` with ``u = a - sign f``; dual variables between low and high."""

    a: Array
    sign: Array
    low: float
    high: float


@dataclass
class Part:
    """One set of hinges with its variables; ``f`` are scores, or the weights at ``positions``.

    The dual variable ``g`` is stored by its distances to both bounds, so that both are precise.
    """

    hinges: Hinges
    weight: Array
    above: Array
    below: Array
    v: Array
    s: Array
    positions: Array | None = None
    previous: tuple[Array, Array, Array, Array] | None = None  # before the last step

    @classmethod
    def initial(cls, hinges: Hinges, weight: Array, f: Array) -> Part:
        """Every dual variable in the middle of its interval."""
        u = hinges.a - hinges.sign * f
        slack = max(float(np.abs(u).mean()), 1e-3)
        half = np.full(len(u), 0.5 * (hinges.high - hinges.low))
        v, s = np.maximum(u, 0.0) + slack, np.maximum(-u, 0.0) + slack
        return cls(hinges, weight, half, half, v, s)

    @property
    def g(self) -> Array:
        """The dual variables."""
        return self.hinges.low + self.below

    def u(self, f: Array) -> Array:
        """The argument of the hinges."""
        return np.asarray(self.hinges.a - self.hinges.sign * f)

    def stiffness(self) -> Array:
        """Change of ``u`` per unit change of the dual variable."""
        return np.asarray(self.v / self.above + self.s / self.below)

    def residuals(
        self, f: Array, target: float, predictor: PartMove | None
    ) -> tuple[Array, Array, Array]:
        """Residuals of both complementarity products, and of ``u`` after elimination."""
        first, second = target - self.v * self.above, target - self.s * self.below
        if predictor is not None:
            dg, dv, ds = predictor
            first, second = first + dg * dv, second - dg * ds
        q = self.u(f) - self.v + self.s - first / self.above + second / self.below
        return first, second, q

    def move(self, residuals: tuple[Array, Array, Array], df: Array) -> PartMove:
        """Change of all variables for a change of the scores."""
        first, second, q = residuals
        dg = (q - self.hinges.sign * df) / self.stiffness()
        return dg, (first + self.v * dg) / self.above, (second - self.s * dg) / self.below

    def advance(self, move: PartMove, step: float) -> None:
        """Take a step of the given length."""
        dg, dv, ds = (step * d for d in move)
        self.previous = self.above, self.below, self.v, self.s
        self.above, self.below = self.above - dg, self.below + dg
        self.v, self.s = self.v + dv, self.s + ds

    def products(self, move: PartMove | None = None, step: float = 0.0) -> float:
        """Weighted sum of the complementarity products, here or after a step."""
        above, below, v, s = self.above, self.below, self.v, self.s
        if move is not None:
            dg, dv, ds = (step * d for d in move)
            above, below, v, s = above - dg, below + dg, v + dv, s + ds
        return float(self.weight @ (v * above + s * below))

    def shrink(self, move: PartMove) -> float:
        """The largest relative decrease of a variable."""
        dg, dv, ds = move
        pairs = ((self.above, -dg), (self.below, dg), (self.v, dv), (self.s, ds))
        return max(float((-change / value).max()) for value, change in pairs)

    def gap(self, f: Array, scale: Array | float = 1.0) -> float:
        """Weighted sum of ``loss - scale g u``, without cancellation."""
        u, reduced = self.u(f), (1.0 - scale) * self.g
        terms = np.where(u > 0.0, (self.above + reduced) * u, (reduced - self.below) * u)
        return float(self.weight @ terms)

    def loss(self, f: Array) -> float:
        """Weighted sum of the hinges."""
        u = self.u(f)
        return float(self.weight @ np.maximum(self.hinges.low * u, self.hinges.high * u))


def penalty_part(l1: Array, n_rows: int, w: Array, product: float) -> Part | None:
    """Hinges of an L1 penalty, with complementarity products like those of the rows."""
    positions = np.flatnonzero(l1)
    if not len(positions):
        return None
    one, u = np.ones(len(positions)), -w[positions]
    v, s = np.maximum(u, 0.0) + product, np.maximum(-u, 0.0) + product
    hinges = Hinges(0.0 * one, one, -1.0, 1.0)
    return Part(hinges, n_rows * l1[positions], one, one.copy(), v, s, positions)


def with_exact_zeros(part: Part, w: Array) -> Array:
    """Weights with those set to zero that converge to zero.

    Of each complementary pair, the distance of the dual variable to its bound and the weight, the
    one that vanishes at the optimum shrinks faster (Tapia's indicators, which are scale-free).
    """
    assert part.positions is not None and part.previous is not None
    above, below, v, s = part.previous
    zero = (part.v * above < part.above * v) & (part.s * below < part.below * s)
    out = w.copy()
    out[part.positions[zero]] = 0.0
    return out


def penalty_gap(penalty: ElasticNet, w: Array, gradient: Array) -> float:
    """``penalty(w) + conjugate(gradient) - w gradient``; infinite if the conjugate is.

    With ``gradient = l2 t + l1 k``, ``|k| <= 1``, it is ``l2 (w - t)^2 / 2 + l1 (|w| - k w)`` for
    every weight. Without a penalty the conjugate is finite only at ``gradient = 0``;
    ``|w gradient|`` is used instead.
    """
    l1, l2 = penalty.l1, penalty.l2
    over = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    if ((l2 == 0.0) & (l1 > 0.0) & (over != 0.0)).any():
        return np.inf
    t = np.divide(over, l2, out=np.zeros_like(over), where=l2 > 0.0)
    inside = np.divide(gradient, l1, out=np.zeros_like(over), where=l1 > 0.0)
    gaps = 0.5 * l2 * (w - t) ** 2 + l1 * (np.abs(w) - np.clip(inside, -1.0, 1.0) * w)
    return float(np.where((l1 == 0.0) & (l2 == 0.0), np.abs(gradient * w), gaps).sum())


def dual_scales(penalty: ElasticNet, gradient: Array) -> list[float]:
    """Factors of all dual variables: one, and the largest that satisfies the L1 constraints."""
    kinked = penalty.l1 > 0.0
    if not kinked.any():
        return [1.0]
    excess = float((np.abs(gradient[kinked]) / penalty.l1[kinked]).max())
    return [1.0, (1.0 - 1e-15) / max(excess, 1.0)]


def is_done(
    tol: float, sparse: bool, gaps: tuple[float, float], previous: float, value: float
) -> bool:
    """Whether to stop at this ``value``; ``gaps`` are those with and without exact zeros.

    With an L1 penalty a few further steps identify the zero weights.
    """
    converged = gaps[0] <= (min(tol, ZEROS_TOL) if sparse else tol) * abs(value)
    stalled = min(gaps) <= tol * abs(value) and gaps[1] > STALLED * previous
    return converged or (sparse and stalled)
