"""Where to put the nodes of a one-dimensional integral over a product of normal distributions.

The integrand is ``exp(L(t))``, ``L(t) = -t^2/2 + sum_k log Phi(z_k)``, ``z_k = a_k + b_k t``. Nodes
of Gauss-Hermite fail where some ``b_k`` is large: the integrand then has a cliff that they step
over. A safe rule is possible because ``L`` is concave *and* its curvature ``-L''`` decreases
from left to right, because that of ``log Phi`` does. Therefore

- ``L'`` is convex: Halley's steps find the mode, from the left and without a bracket;
- ``y = sqrt(2 (L* - L))`` is convex left of the mode: Newton's steps on it approach the point where
  the integrand has dropped by a given factor from outside, and for a Gaussian one step is exact;
- at distance ``d`` from the left end the integrand varies on a scale no smaller than a fixed
  fraction of ``d``: nodes whose spacing grows geometrically from the left resolve every cliff.

The nodes are equally spaced in ``u`` of ``t = left + width expm1(kappa u)/expm1(kappa)``, with
``kappa`` from the scale at the cliff, near zero if there is none. The integrand vanishes at both
ends, so the midpoint rule converges exponentially. The distribution function of the largest of
many scores, ``exp(F)``, has the same properties and gets its nodes in the same way.

The searches need no accuracy: they run in float32 whatever the dtype, about 15 evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from likelier.deep_gp.normal import ROUGH, bend, factor_and_hazard

_MAX_STEPS = 24
_MODE_TOLERANCE = 0.05  # of the integrand's own scale
_LEFT_TOLERANCE = 0.25  # of ``y``
_RIGHT_TOLERANCE = 4.0  # of the drop, before the last step
_LEFT_SPACING = 10.0  # scales per unit of u at the left end
_SMALL = 1e-30  # keeps divisions defined where float32 has lost everything


class Rule(NamedTuple):
    """A quadrature rule: hashable, so that it can be a static argument.

    Attributes
    ----------
    nodes : int
        How often the integrand is evaluated.
    drop : float
        The interval ends where the logarithm of the integrand has dropped by so much.
    cliff : float
        The spacing at the left end suits the scale found where it has dropped by so much.
    """

    nodes: int
    drop: float
    cliff: float


# Errors of log p for one class, where no variance is more than 1e4 times another, and of the sum
# of all chances for WHOLE. Slopes of FAST, per standard deviation, are right to 4e-4, and to 1e-5
# where variances differ by less than a hundred.
PRECISE = Rule(nodes=60, drop=24.0, cliff=16.0)  # 3e-9
FAST = Rule(nodes=32, drop=13.0, cliff=9.0)  # 2e-5, and 1e-6 up to a hundred
WHOLE = Rule(nodes=72, drop=24.0, cliff=20.0)  # 1e-9: narrow peaks, not only cliffs


class Grid(NamedTuple):
    """Nodes, around a centre; all arrays are per row, ``(R,)`` or ``(nodes, R)``."""

    centre: jax.Array
    offset: jax.Array
    log_weight: jax.Array


def grid_of_one(rule: Rule, a: jax.Array, b: jax.Array) -> Grid:
    """Nodes around the mode of the integrand."""
    mode, curvature = _mode(a, b)
    z, rough_b, lean = (x.astype(jnp.float32) for x in (a + b * mode, b, mode))
    gain = _gain(z, rough_b)

    def profile(tau: jax.Array) -> Profile:
        others = gain(tau)
        return Profile(
            tau * (lean + 0.5 * tau) - others.drop,
            others.slope - lean - tau,
            1.0 + others.curvature,
        )

    # to the left of the mode the curvature is larger, so this is far enough
    left = _left_end(rule, profile, -jnp.sqrt(2.0 * rule.cliff / curvature))
    # the curvature of L is at least one, so this is far enough
    right = _right_end(rule, profile, jnp.full_like(lean, math.sqrt(2.0 * rule.drop)))
    offset, log_step = _graded(rule, left, right, a.dtype)
    return Grid(mode, offset, log_step - offset * (mode + 0.5 * offset))


def grid_of_all(rule: Rule, mean: jax.Array, sd: jax.Array) -> Grid:
    """Nodes for the distribution of the maximum."""
    # to the left of this point one class alone makes exp(F) drop by more than `cliff`
    centre = (mean - math.sqrt(2.0 * rule.cliff) * sd).max(0)
    z = ((centre - mean) / sd).astype(jnp.float32)
    gain = _gain(z, (1.0 / sd).astype(jnp.float32))
    level = _log_product(z)

    def profile(tau: jax.Array) -> Profile:
        here = gain(tau)
        return Profile(-level - here.drop, here.slope, here.curvature)

    left = _left_end(rule, profile, jnp.zeros_like(centre, jnp.float32))
    # around the cliff, from where exp(F) can only grow by exp(cliff), whatever the classes
    centre = centre + left.cliff.astype(mean.dtype)
    left = left._replace(end=left.end - left.cliff)
    right = (mean + math.sqrt(2.0 * rule.drop) * sd).max(0) - centre
    offset, log_step = _graded(rule, left, right, mean.dtype)
    return Grid(centre, offset, log_step)


# -- where the integrand is -----------------------------------------------------------------
class Profile(NamedTuple):
    """How far the logarithm of an integrand has dropped, its slope, and minus its curvature."""

    drop: jax.Array
    slope: jax.Array
    curvature: jax.Array


def _log_product(z: jax.Array) -> jax.Array:
    """``sum_k log Phi(z_k)``, roughly."""
    below = jnp.minimum(z, 0.0)
    return (jnp.log(factor_and_hazard(z, ROUGH)[0]) - 0.5 * below * below).sum(0)


def _gain(z0: jax.Array, b: jax.Array) -> Callable[[jax.Array], Profile]:
    """``sum_k log Phi(z0_k + b_k tau) - log Phi(z0_k)`` (not minus it) and its derivatives."""
    factor0 = factor_and_hazard(z0, ROUGH)[0]
    below0 = jnp.minimum(z0, 0.0)

    def at(tau: jax.Array) -> Profile:
        z = z0 + b * tau
        factor, rate = factor_and_hazard(z, ROUGH)
        below = jnp.minimum(z, 0.0)
        gain = jnp.log(factor / factor0) - 0.5 * (below - below0) * (below + below0)
        return Profile(gain.sum(0), (b * rate).sum(0), (b * b * bend(z, rate)).sum(0))

    return at


Search = tuple[jax.Array, ...]  # place, whether to go on, what was found there


def _search(step: Callable[[jax.Array], Search], start: jax.Array) -> Search:
    """``step`` of places, repeated until no row goes on.

    A row that is done stays as it is, or other rows of a block would change its last bits.
    """

    def moving(state: tuple[jax.Array, Search]) -> jax.Array:
        return (state[0] < _MAX_STEPS) & state[1][1].any()

    def move(state: tuple[jax.Array, Search]) -> tuple[jax.Array, Search]:
        count, here = state
        there = step(here[0])
        kept = tuple(jnp.where(here[1], new, old) for new, old in zip(there, here, strict=True))
        return count + 1, kept

    return jax.lax.while_loop(moving, move, (jnp.asarray(1), step(start)))[1]


def _mode(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where ``L' = sum_k b_k hazard(z_k) - t`` is zero, and ``-L''`` there.

    ``hazard(z) >= -z`` puts the root of every single class, and so the start, to the left of the
    mode. Halley's correction is capped: at most four times a step of Newton.
    """
    rough_b = b.astype(jnp.float32)
    squared = rough_b * rough_b

    def step(t: jax.Array) -> Search:
        z = (a + b * t).astype(jnp.float32)
        rate = factor_and_hazard(z, ROUGH)[1]
        curve = jnp.clip(bend(z, rate), 0.0, 1.0)
        slope = (rough_b * rate).sum(0) - t.astype(jnp.float32)
        curvature = 1.0 + (squared * curve).sum(0)
        # hazard'' = hazard ((hazard + z)(2 hazard + z) - 1), which is positive and small far left
        second = jnp.where(z < -30.0, 0.0, rate * ((rate + z) * (2.0 * rate + z) - 1.0))
        third = (squared * rough_b * second).sum(0)
        newton = slope / curvature
        move = newton / jnp.maximum(1.0 - 0.5 * newton * third / curvature, 0.25)
        far = jnp.abs(move) * jnp.sqrt(curvature) > _MODE_TOLERANCE
        return t + move.astype(t.dtype), far, curvature

    t, _, curvature = _search(step, jnp.maximum((-a * b / (1.0 + b * b)).max(0), 0.0))
    return t, curvature


class LeftEnd(NamedTuple):
    """Where the drop is ``rule.cliff``, the scale there, and where it is ``rule.drop``."""

    cliff: jax.Array
    scale: jax.Array
    end: jax.Array


def _left_end(rule: Rule, profile: Callable[[jax.Array], Profile], tau: jax.Array) -> LeftEnd:
    """Both points, or ones a little farther, from a point that is farther."""
    target = math.sqrt(2.0 * rule.cliff)

    def step(tau: jax.Array) -> Search:
        here = profile(tau)
        y = jnp.sqrt(2.0 * jnp.maximum(here.drop, 0.0))
        there = tau + (y - target) * y / jnp.maximum(here.slope, _SMALL)
        far = (y > target + _LEFT_TOLERANCE) & (there != tau)
        return jnp.where(far, there, tau), far, *here

    tau, _, *found = _search(step, tau)
    here = Profile(*found)
    # farther left the curvature is larger: a parabola reaches the drop too late
    missing = jnp.maximum(rule.drop - here.drop, 0.0)
    slope = jnp.maximum(here.slope, _SMALL)
    more = 2.0 * missing / (slope + jnp.sqrt(slope * slope + 2.0 * here.curvature * missing))
    return LeftEnd(tau, 1.0 / jnp.sqrt(jnp.maximum(here.curvature, _SMALL)), tau - more)


def _right_end(rule: Rule, profile: Callable[[jax.Array], Profile], tau: jax.Array) -> jax.Array:
    """Where the drop is ``rule.drop``, or a little farther, from a point that is farther."""

    def step(tau: jax.Array) -> Search:
        here = profile(tau)
        excess = jnp.maximum(here.drop - rule.drop, 0.0)
        fall = jnp.maximum(-here.slope, _SMALL)
        # farther left the curvature is larger: a parabola goes back too little
        root = jnp.sqrt(jnp.maximum(fall * fall - 2.0 * here.curvature * excess, 0.0))
        there = tau - 2.0 * excess / (fall + root)
        return there, (excess > _RIGHT_TOLERANCE) & (there != tau)

    return _search(step, tau)[0]


def _graded(
    rule: Rule, left: LeftEnd, right: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    """Nodes ``(nodes, R)`` and the logarithm of their weights."""
    end, scale, right = (x.astype(dtype) for x in (left.end, left.scale, right))
    width = right - end
    wanted = jnp.maximum(width / (_LEFT_SPACING * scale), 1.0)
    kappa = jnp.log1p(wanted)
    for _ in range(6):  # expm1(kappa)/kappa = wanted, roughly
        kappa = jnp.log1p(kappa * wanted)
    kappa = jnp.maximum(kappa, 0.1)
    u = ((jnp.arange(rule.nodes, dtype=dtype) + 0.5) / rule.nodes)[:, None]
    unit = width / jnp.expm1(kappa)
    return end + unit * jnp.expm1(kappa * u), jnp.log(unit * kappa / rule.nodes) + kappa * u
