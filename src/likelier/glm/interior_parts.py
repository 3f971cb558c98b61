"""Hinges as an interior point method sees them, of rows and of L1 penalties, and the duality gap.

``l1_j |w_j|`` is a hinge of its own: ``max(-u, u)`` with ``u = -w_j``, and it weighs ``N l1_j``. So
a penalty with kinks adds some rows with one feature each, and nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array
from likelier.glm.penalty import ElasticNet

FINE = 1e-9  # relative gap at which it is clear which weights are zero
SLOW = 0.9  # of the gap before: a step that leaves more has come as far as rounding lets it

PartMove = tuple[Array, Array, Array]  # of the slopes, of v and of s


@dataclass(frozen=True)
class Hinges:
    """``max(low u, high u)`` with ``u = a - sign f``; slopes between low and high."""

    a: Array
    sign: Array
    low: float
    high: float


@dataclass
class Part:
    """One set of hinges with its unknowns; ``f`` are scores, or the weights at ``places``.

    The slope is kept as its distances from both ends: the smaller one keeps all its digits.
    """

    hinges: Hinges
    weight: Array
    above: Array
    below: Array
    v: Array
    s: Array
    places: Array | None = None
    before: tuple[Array, Array, Array, Array] | None = None  # unknowns before the last step

    @classmethod
    def started(cls, hinges: Hinges, weight: Array, f: Array) -> Part:
        """Every slope in the middle of its box."""
        u = hinges.a - hinges.sign * f
        slack = max(float(np.abs(u).mean()), 1e-3)
        half = np.full(len(u), 0.5 * (hinges.high - hinges.low))
        v, s = np.maximum(u, 0.0) + slack, np.maximum(-u, 0.0) + slack
        return cls(hinges, weight, half, half, v, s)

    @property
    def g(self) -> Array:
        """The slopes."""
        return self.hinges.low + self.below

    def u(self, f: Array) -> Array:
        """How far a score is on the costly side."""
        return np.asarray(self.hinges.a - self.hinges.sign * f)

    def stiffness(self) -> Array:
        """How much ``u`` has to change per unit of a slope."""
        return np.asarray(self.v / self.above + self.s / self.below)

    def wanted(self, f: Array, target: float, ahead: PartMove | None) -> tuple[Array, Array, Array]:
        """What products lack of their target, and what that means for ``u``."""
        first, second = target - self.v * self.above, target - self.s * self.below
        if ahead is not None:
            dg, dv, ds = ahead
            first, second = first + dg * dv, second - dg * ds
        q = self.u(f) - self.v + self.s - first / self.above + second / self.below
        return first, second, q

    def move(self, wanted: tuple[Array, Array, Array], df: Array) -> PartMove:
        """Change of all unknowns for a change of the scores."""
        first, second, q = wanted
        dg = (q - self.hinges.sign * df) / self.stiffness()
        return dg, (first + self.v * dg) / self.above, (second - self.s * dg) / self.below

    def advance(self, move: PartMove, reach: float) -> None:
        """Go a part of the way."""
        dg, dv, ds = (reach * d for d in move)
        self.before = self.above, self.below, self.v, self.s
        self.above, self.below = self.above - dg, self.below + dg
        self.v, self.s = self.v + dv, self.s + ds

    def products(self, move: PartMove | None = None, reach: float = 0.0) -> float:
        """Weighted sum of the complementarity products, here or a step ahead."""
        above, below, v, s = self.above, self.below, self.v, self.s
        if move is not None:
            dg, dv, ds = (reach * d for d in move)
            above, below, v, s = above - dg, below + dg, v + dv, s + ds
        return float(self.weight @ (v * above + s * below))

    def shrink(self, move: PartMove) -> float:
        """The largest part of an unknown that a move takes away."""
        dg, dv, ds = move
        pairs = ((self.above, -dg), (self.below, dg), (self.v, dv), (self.s, ds))
        return max(float((-change / room).max()) for room, change in pairs)

    def left(self, f: Array, share: Array | float = 1.0) -> float:
        """Weighted sum of ``loss - share g u``, without cancellation."""
        u, less = self.u(f), (1.0 - share) * self.g
        gaps = np.where(u > 0.0, (self.above + less) * u, (less - self.below) * u)
        return float(self.weight @ gaps)

    def loss(self, f: Array) -> float:
        """Weighted sum of the hinges."""
        u = self.u(f)
        return float(self.weight @ np.maximum(self.hinges.low * u, self.hinges.high * u))


def penalty_part(l1: Array, n_rows: int, w: Array, product: float) -> Part | None:
    """Hinges of the weights under an L1 penalty, with products as large as those of the rows."""
    places = np.flatnonzero(l1)
    if not len(places):
        return None
    one, u = np.ones(len(places)), -w[places]
    v, s = np.maximum(u, 0.0) + product, np.maximum(-u, 0.0) + product
    hinges = Hinges(0.0 * one, one, -1.0, 1.0)
    return Part(hinges, n_rows * l1[places], one, one.copy(), v, s, places)


def rounded(part: Part, w: Array) -> Array:
    """Weights, those that the slopes of their penalty say are zero made exactly that.

    Of the distance of a slope from its end and the weight one vanishes at the optimum, so it
    shrinks faster: at a zero it is the weight (Tapia's indicator, the same in all units).
    """
    assert part.places is not None and part.before is not None
    above, below, v, s = part.before
    zero = (part.v * above < part.above * v) & (part.s * below < part.below * s)
    out = w.copy()
    out[part.places[zero]] = 0.0
    return out


def penalty_gap(penalty: ElasticNet, w: Array, pull: Array) -> float:
    """What a penalty and its conjugate have over ``w pull``; infinite where there is no conjugate.

    With ``pull = l2 t + l1 k``, ``|k| <= 1``, that is ``l2 (w - t)^2 / 2 + l1 (|w| - k w)`` for
    every weight. Without a penalty there is no dual value until nothing pulls: what does, times
    the weight, stands in for it.
    """
    l1, l2 = penalty.l1, penalty.l2
    over = np.sign(pull) * np.maximum(np.abs(pull) - l1, 0.0)
    if ((l2 == 0.0) & (l1 > 0.0) & (over != 0.0)).any():
        return np.inf
    t = np.divide(over, l2, out=np.zeros_like(over), where=l2 > 0.0)
    inside = np.divide(pull, l1, out=np.zeros_like(over), where=l1 > 0.0)
    gaps = 0.5 * l2 * (w - t) ** 2 + l1 * (np.abs(w) - np.clip(inside, -1.0, 1.0) * w)
    return float(np.where((l1 == 0.0) & (l2 == 0.0), np.abs(pull * w), gaps).sum())


def shares_of_slopes(penalty: ElasticNet, pull: Array) -> list[float]:
    """By how much to shrink all slopes: not at all, and until no L1 penalty is exceeded."""
    kinked = penalty.l1 > 0.0
    if not kinked.any():
        return [1.0]
    excess = float((np.abs(pull[kinked]) / penalty.l1[kinked]).max())
    return [1.0, (1.0 - 1e-15) / max(excess, 1.0)]


def is_done(
    tol: float, sparse: bool, gaps: tuple[float, float], before: float, value: float
) -> bool:
    """Whether to stop with this ``value``; ``gaps`` are with and without zeros made exact.

    It takes few more steps than the tolerance asks for to see which weights are zero.
    """
    fine = gaps[0] <= (min(tol, FINE) if sparse else tol) * abs(value)
    stuck = min(gaps) <= tol * abs(value) and gaps[1] > SLOW * before
    return fine or (sparse and stuck)
