"""Shares of terms from rows of counts of which some are unknown.

With ``c_j`` the counts of a term (pseudocounts included), ``n_p`` the events in rows of pattern
``p``, and ``s_p`` the sum of the shares ``theta_j`` of the terms known in it, the shares maximise

    sum_j c_j log theta_j - sum_p n_p log s_p,

the log probability of all rows given how many events were seen in each. Pseudocounts belong to
the pattern in which all is known. The function is concave in ``log theta``, and the gradient
``c_j - theta_j sum_{p knows j} n_p / s_p`` vanishes at its maximum: with one pattern that is
``c_j / n``. Newton's method finds it, by conjugate gradients on the curvature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from likelier.base import Array
from likelier.naive_bayes.missing import Patterns

MAX_STEPS = 100
MAX_PRODUCTS = 1000  # with the curvature, per step
LONGEST = 3.0  # step in log shares: without smoothing some may have no end
SMALL = 1 << 20  # patterns x terms, up to which sums are spelled out
SURE = 1e-6  # a step in log shares so small that Newton's method needs no guard
SMALLEST = 1e-140  # sum of shares, whose square is still a number
DONE = 1e-9  # after a step so small, what is left is below rounding


@dataclass(frozen=True)
class KnownSums:
    """Sums over the terms known in every pattern.

    A small table lists the known terms (entries 1). A large one lists the unknown terms (entries
    -1, with ``whole`` one), usually fewer, to be taken off the sum of all: that costs a few
    digits where they hold nearly all of it.
    """

    lists: Any
    whole: Array

    @classmethod
    def of(cls, unknown: Any) -> KnownSums:
        """Sums of a CSR matrix of unknown terms."""
        n_patterns, d = unknown.shape
        if n_patterns * d > SMALL:
            return cls(-unknown, np.ones(n_patterns))
        return cls(sparse.csr_array(1.0 - unknown.toarray()), np.zeros(n_patterns))

    def part(self, patterns: Array, terms: Array) -> KnownSums:
        """Sums of some patterns over some terms, after one pattern that knows all of them."""
        lists = self.lists[patterns][:, terms]
        first = sparse.csr_array((1, lists.shape[1]))
        whole = np.concatenate([[1.0], self.whole[patterns]])
        return KnownSums(sparse.vstack([first, lists], format="csr"), whole)

    def over_terms(self, values: Array) -> Array:
        """For every pattern the sum of the values of its known terms."""
        return np.asarray(self.whole * values.sum() + self.lists @ values)

    def over_patterns(self, values: Array) -> Array:
        """For every term the sum of the values of the patterns in which it is known."""
        return np.asarray(self.whole @ values + self.lists.T @ values)


def known_log_shares(counts: Array, alpha: Array, patterns: Patterns, table: Array) -> Array:
    """Log shares of the terms in every class, one row per term.

    Parameters
    ----------
    counts : array of shape (n_classes, n_terms)
        Known counts.
    alpha : array of shape (1,) or (n_terms,)
        Pseudocounts.
    patterns : Patterns
        Unknown terms of the rows behind the counts.
    table : array of shape (n_terms, n_classes)
        Log shares as if nothing were unknown: where to start, and the answer for classes of
        which all counts are known.

    Notes
    -----
    Cost: a handful of Newton steps per class, each of about as many products with the lists of
    unknown terms as there are clearly different patterns, at most `MAX_PRODUCTS`.
    """
    out = table.copy()
    pseudo = np.broadcast_to(alpha, counts.shape[1:])
    events = patterns.events()
    sums = KnownSums.of(patterns.unknown(counts.shape[1]))
    for k in np.flatnonzero(events.any(axis=1)):
        some = np.flatnonzero(events[k])
        terms = np.flatnonzero(counts[k] + pseudo)  # without smoothing, others have no share
        n_known = max(counts[k].sum() - events[k].sum(), 0.0) + pseudo.sum()
        n = np.concatenate([[n_known], events[k, some]])
        concave = ConditionalCounts((counts[k] + pseudo)[terms], n, sums.part(some, terms))
        out[terms, k] = concave.maximum(table[terms, k])
    return out


class Point(NamedTuple):
    """Shares, their sums over known terms, and the counts they lead one to expect."""

    share: Array
    known: Array
    expected: Array
    gradient: Array


@dataclass(frozen=True)
class ConditionalCounts:
    """The function above for one class: counts ``c``, events ``n`` and the patterns' sums."""

    c: Array
    n: Array
    known: KnownSums

    def maximum(self, start: Array) -> Array:
        """Log shares at the maximum, from a start; shares sum to one."""
        log_share, here = start, self._at(start)
        for _ in range(MAX_STEPS):
            step = self._newton_step(here)
            step *= min(1.0, LONGEST / max(abs(step).max(), LONGEST))
            rise = here.gradient @ step
            if not rise > 0.0:  # no way up that rounding would show
                break
            there = self._at(log_share + step)
            # the slope along the step falls: not far below zero, the step is no overshoot
            while abs(step).max() > SURE and there.gradient @ step < -0.5 * rise:
                step, rise = 0.5 * step, 0.5 * rise
                there = self._at(log_share + step)
            log_share, here = log_share + step, there
            if abs(step).max() <= DONE:
                break
        return np.asarray(np.log(here.share))

    def _at(self, log_share: Array) -> Point:
        share = np.exp(log_share - log_share.max())
        share /= share.sum()
        known = np.maximum(self.known.over_terms(share), SMALLEST)
        expected = share * self.known.over_patterns(self.n / known)
        return Point(share, known, expected, self.c - expected)

    def _newton_step(self, at: Point) -> Array:
        """Solve with the curvature; a common factor of all shares, which is free, stays one."""
        slope = self.n / at.known**2

        def product(v: Array) -> Array:
            inner = slope * self.known.over_terms(at.share * v)
            return np.asarray(at.expected * v - at.share * self.known.over_patterns(inner))

        target = at.gradient - at.expected * (at.gradient.sum() / at.expected.sum())
        # in units of `expected` the curvature is one, less as many products as there are patterns
        most = min(2 * min(len(target), len(self.n)) + 10, MAX_PRODUCTS)
        return _conjugate_gradients(product, target, at.expected, most)


def _conjugate_gradients(
    product: Callable[[Array], Array], target: Array, scale: Array, most: int
) -> Array:
    """Solve a symmetric system in ``most`` products; directions without curvature are left out."""
    solution, residual = np.zeros_like(target), target
    direction = residual / scale
    size = residual @ direction
    enough = 1e-20 * size
    for _ in range(most):
        image = product(direction)
        bend = direction @ image
        if size <= enough or not bend > 0.0:
            break
        solution = solution + size / bend * direction
        residual = residual - size / bend * image
        scaled = residual / scale
        before, size = size, residual @ scaled
        direction = scaled + size / before * direction
    return solution
