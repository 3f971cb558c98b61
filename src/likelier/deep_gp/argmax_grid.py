"""Nodes of a one-dimensional integral over a product of normal distribution functions.

The integrand is ``exp(L(t))``, ``L(t) = -t^2/2 + sum_k log Phi(z_k)``, ``z_k = a_k + b_k t``.
Gauss-Hermite quadrature fails where some ``b_k`` is large: the integrand then has a cliff between
two nodes. A reliable rule exists because ``L`` is concave *and* its curvature ``-L''`` decreases
from left to right, as that of ``log Phi`` does. Therefore

- ``L'`` is convex: Halley's method finds the mode, from the left and without a bracket;
- ``y = sqrt(2 (L* - L))`` is convex left of the mode: Newton's method on it approaches, from
  outside, the point where the integrand has dropped by a given factor; for a Gaussian one step is
  exact;
- at distance ``d`` from the left end the integrand varies on a scale no smaller than a fixed
  fraction of ``d``: nodes whose spacing grows geometrically from the left resolve every cliff.

The nodes are equally spaced in ``u`` of ``t = left + width expm1(kappa u)/expm1(kappa)``, with
``kappa`` from the scale at the cliff, near zero if there is none. The integrand vanishes at both
ends, so the midpoint rule converges exponentially. The distribution function of the largest of
many scores, ``exp(F)``, has the same properties and gets its nodes in the same way.

The searches need little accuracy: they run in float32 for every dtype, about 15 evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from likelier.deep_gp.normal import ROUGH, factor_and_hazard, log_cdf_curvature

_MAX_STEPS = 24
_MODE_TOLERANCE = 0.05  # relative to the scale of the integrand
_LEFT_TOLERANCE = 0.25  # in ``y``
_RIGHT_TOLERANCE = 4.0  # in the drop, before the last step
_LEFT_SPACING = 10.0  # scales per unit of u at the left end
_SMALL = 1e-30  # avoids division by zero after underflow in float32


class Rule(NamedTuple):
    """A quadrature rule: hashable, so that it can be a static argument.

    Attributes
    ----------
    nodes : int
        Number of evaluations of the integrand.
    drop : float
        Drop of the log integrand at both ends of the interval.
    cliff : float
        Drop of the log integrand at which the scale for the spacing at the left end is taken.
    """

    nodes: int
    drop: float
    cliff: float


# Errors of log p for one class if no variance is more than 1e4 times another, and of the sum of all
# probabilities for WHOLE. The derivatives of FAST, per standard deviation, have an error of 4e-4,
# and of 1e-5 if the variances differ by a factor of less than 100.
PRECISE = Rule(nodes=60, drop=24.0, cliff=16.0)  # 3e-9
FAST = Rule(nodes=32, drop=13.0, cliff=9.0)  # 2e-5; 1e-6 for variance ratios up to 100
WHOLE = Rule(nodes=72, drop=24.0, cliff=20.0)  # 1e-9; the integrands also have narrow peaks


class Grid(NamedTuple):
    """Nodes, around a centre; all arrays are per row, ``(R,)`` or ``(nodes, R)``."""

    centre: jax.Array
    offset: jax.Array
    log_weight: jax.Array


def grid_of_one(rule: Rule, a: jax.Array, b: jax.Array) -> Grid:
    """Nodes around the mode of the integrand."""
    mode, curvature = _mode(a, b)
    z, rough_b, rough_mode = (x.astype(jnp.float32) for x in (a + b * mode, b, mode))
    gain = _gain(z, rough_b)

    def profile(tau: jax.Array) -> Profile:
        others = gain(tau)
        return Profile(
            tau * (rough_mode + 0.5 * tau) - others.drop,
            others.derivative - rough_mode - tau,
            1.0 + others.curvature,
        )

    # the curvature grows to the left of the mode, so this start is outside
    left = _left_end(rule, profile, -jnp.sqrt(2.0 * rule.cliff / curvature))
    # the curvature of L is at least one, so this start is outside
    right = _right_end(rule, profile, jnp.full_like(rough_mode, math.sqrt(2.0 * rule.drop)))
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
        return Profile(-level - here.drop, here.derivative, here.curvature)

    left = _left_end(rule, profile, jnp.zeros_like(centre, jnp.float32))
    # centred at the cliff, from where exp(F) grows by at most exp(cliff)
    centre = centre + left.cliff.astype(mean.dtype)
    left = left._replace(end=left.end - left.cliff)
    right = (mean + math.sqrt(2.0 * rule.drop) * sd).max(0) - centre
    offset, log_step = _graded(rule, left, right, mean.dtype)
    return Grid(centre, offset, log_step)


# -- support of the integrand ---------------------------------------------------------------
class Profile(NamedTuple):
    """Drop of a log integrand below its peak, its derivative, and minus its second derivative."""

    drop: jax.Array
    derivative: jax.Array
    curvature: jax.Array


def _log_product(z: jax.Array) -> jax.Array:
    """``sum_k log Phi(z_k)``, roughly."""
    below = jnp.minimum(z, 0.0)
    return (jnp.log(factor_and_hazard(z, ROUGH)[0]) - 0.5 * below * below).sum(0)


def _gain(z0: jax.Array, b: jax.Array) -> Callable[[jax.Array], Profile]:
    """``sum_k log Phi(z0_k + b_k tau) - log Phi(z0_k)`` (as ``drop``) and its derivatives."""
    factor0 = factor_and_hazard(z0, ROUGH)[0]
    below0 = jnp.minimum(z0, 0.0)

    def at(tau: jax.Array) -> Profile:
        z = z0 + b * tau
        factor, rate = factor_and_hazard(z, ROUGH)
        below = jnp.minimum(z, 0.0)
        gain = jnp.log(factor / factor0) - 0.5 * (below - below0) * (below + below0)
        return Profile(gain.sum(0), (b * rate).sum(0), (b * b * log_cdf_curvature(z, rate)).sum(0))

    return at


Search = tuple[jax.Array, ...]  # position, whether to continue, values at the position


def _search(step: Callable[[jax.Array], Search], start: jax.Array) -> Search:
    """Repeat ``step`` until every row has converged.

    Converged rows are frozen: otherwise the last bits of a row would depend on the other rows.
    """

    def any_active(state: tuple[jax.Array, Search]) -> jax.Array:
        return (state[0] < _MAX_STEPS) & state[1][1].any()

    def advance(state: tuple[jax.Array, Search]) -> tuple[jax.Array, Search]:
        count, here = state
        there = step(here[0])
        merged = tuple(jnp.where(here[1], new, old) for new, old in zip(there, here, strict=True))
        return count + 1, merged

    return jax.lax.while_loop(any_active, advance, (jnp.asarray(1), step(start)))[1]


def _mode(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Root of ``L' = sum_k b_k hazard(z_k) - t``, and ``-L''`` there.

    By ``hazard(z) >= -z`` the roots of the single classes, the largest of which is the start, lie
    to the left of the mode. Halley's step is capped at four times Newton's.
    """
    rough_b = b.astype(jnp.float32)
    squared = rough_b * rough_b

    def step(t: jax.Array) -> Search:
        z = (a + b * t).astype(jnp.float32)
        rate = factor_and_hazard(z, ROUGH)[1]
        curve = jnp.clip(log_cdf_curvature(z, rate), 0.0, 1.0)
        derivative = (rough_b * rate).sum(0) - t.astype(jnp.float32)
        curvature = 1.0 + (squared * curve).sum(0)
        # hazard'' = hazard ((hazard + z)(2 hazard + z) - 1), positive and small in the left tail
        second = jnp.where(z < -30.0, 0.0, rate * ((rate + z) * (2.0 * rate + z) - 1.0))
        third = (squared * rough_b * second).sum(0)
        newton = derivative / curvature
        move = newton / jnp.maximum(1.0 - 0.5 * newton * third / curvature, 0.25)
        active = jnp.abs(move) * jnp.sqrt(curvature) > _MODE_TOLERANCE
        return t + move.astype(t.dtype), active, curvature

    t, _, curvature = _search(step, jnp.maximum((-a * b / (1.0 + b * b)).max(0), 0.0))
    return t, curvature


class LeftEnd(NamedTuple):
    """Position of the drop ``rule.cliff``, the scale there, and position of ``rule.drop``."""

    cliff: jax.Array
    scale: jax.Array
    end: jax.Array


def _left_end(rule: Rule, profile: Callable[[jax.Array], Profile], tau: jax.Array) -> LeftEnd:
    """Both positions, or slightly outside of them, starting from a position outside."""
    target = math.sqrt(2.0 * rule.cliff)

    def step(tau: jax.Array) -> Search:
        here = profile(tau)
        y = jnp.sqrt(2.0 * jnp.maximum(here.drop, 0.0))
        there = tau + (y - target) * y / jnp.maximum(here.derivative, _SMALL)
        active = (y > target + _LEFT_TOLERANCE) & (there != tau)
        return jnp.where(active, there, tau), active, *here

    tau, _, *found = _search(step, tau)
    here = Profile(*found)
    # the curvature grows to the left, so the parabola overshoots
    missing = jnp.maximum(rule.drop - here.drop, 0.0)
    rise = jnp.maximum(here.derivative, _SMALL)
    more = 2.0 * missing / (rise + jnp.sqrt(rise * rise + 2.0 * here.curvature * missing))
    return LeftEnd(tau, 1.0 / jnp.sqrt(jnp.maximum(here.curvature, _SMALL)), tau - more)


def _right_end(rule: Rule, profile: Callable[[jax.Array], Profile], tau: jax.Array) -> jax.Array:
    """Position of the drop ``rule.drop``, or slightly outside, starting from outside."""

    def step(tau: jax.Array) -> Search:
        here = profile(tau)
        excess = jnp.maximum(here.drop - rule.drop, 0.0)
        fall = jnp.maximum(-here.derivative, _SMALL)
        # the curvature grows to the left, so the parabola undershoots
        root = jnp.sqrt(jnp.maximum(fall * fall - 2.0 * here.curvature * excess, 0.0))
        there = tau - 2.0 * excess / (fall + root)
        return there, (excess > _RIGHT_TOLERANCE) & (there != tau)

    return _search(step, tau)[0]


def _graded(
    rule: Rule, left: LeftEnd, right: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    """Geometrically graded nodes ``(nodes, R)`` and the logarithm of their weights."""
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
