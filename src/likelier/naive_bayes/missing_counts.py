"""Term probabilities from rows with missing counts.

With ``c_j`` the counts of a term (pseudocounts included), ``n_p`` the events in rows of pattern
``p``, and ``s_p`` the sum of the probabilities ``theta_j`` of the terms known in it, maximise

    sum_j c_j log theta_j - sum_p n_p log s_p,

the log likelihood of all rows given the number of events in each. Pseudocounts belong to the
pattern without missing terms. The function is concave in ``log theta``; its gradient is
``c_j - theta_j sum_{p knows j} n_p / s_p``, so a single pattern gives ``theta_j = c_j / n``. It is
maximised by Newton's method with conjugate gradients.
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
MAX_PRODUCTS = 1000  # Hessian-vector products per step
MAX_STEP = 3.0  # in log probability: unbounded for some terms without smoothing
DENSE_SIZE = 1 << 20  # patterns x terms up to which known terms are listed
SAFE_STEP = 1e-6  # in log probability: below it no line search is needed
SMALLEST = 1e-140  # probability whose square does not underflow
TOL = 1e-9  # length of the last step


@dataclass(frozen=True)
class KnownSums:
    """Sums over the known terms of every pattern.

    A small matrix lists the known terms (entries 1). A large one lists the missing terms (entries
    -1, ``whole`` one), usually fewer, which are subtracted from the total; that loses a few digits
    if they make up nearly all of it.
    """

    lists: Any
    whole: Array

    @classmethod
    def of(cls, missing: Any) -> KnownSums:
        """Sums for a CSR matrix of missing terms."""
        n_patterns, d = missing.shape
        if n_patterns * d > DENSE_SIZE:
            return cls(-missing, np.ones(n_patterns))
        return cls(sparse.csr_array(1.0 - missing.toarray()), np.zeros(n_patterns))

    def part(self, patterns: Array, terms: Array) -> KnownSums:
        """Sums for some patterns and terms; a first pattern without missing terms is added."""
        lists = self.lists[patterns][:, terms]
        first = sparse.csr_array((1, lists.shape[1]))
        whole = np.concatenate([[1.0], self.whole[patterns]])
        return KnownSums(sparse.vstack([first, lists], format="csr"), whole)

    def over_terms(self, values: Array) -> Array:
        """Sum of the values of the known terms of every pattern."""
        return np.asarray(self.whole * values.sum() + self.lists @ values)

    def over_patterns(self, values: Array) -> Array:
        """Sum of the values of the patterns in which each term is known."""
        return np.asarray(self.whole @ values + self.lists.T @ values)


def known_log_probabilities(counts: Array, alpha: Array, patterns: Patterns, table: Array) -> Array:
    """Log probabilities of the terms in every class, one row per term.

    Parameters
    ----------
    counts : array of shape (n_classes, n_terms)
        Known counts.
    alpha : array of shape (1,) or (n_terms,)
        Pseudocounts.
    patterns : Patterns
        Patterns of missing terms of the rows.
    table : array of shape (n_terms, n_classes)
        Log probabilities that ignore missing counts: the starting point, and the result for
        classes without missing counts.

    Notes
    -----
    Cost: a few Newton steps per class; the number of products per step is about that of clearly
    different patterns, and at most `MAX_PRODUCTS`.
    """
    out = table.copy()
    pseudo = np.broadcast_to(alpha, counts.shape[1:])
    events = patterns.events()
    sums = KnownSums.of(patterns.missing(counts.shape[1]))
    for k in np.flatnonzero(events.any(axis=1)):
        some = np.flatnonzero(events[k])
        terms = np.flatnonzero(
            counts[k] + pseudo
        )  # without smoothing, others have probability zero
        n_known = max(counts[k].sum() - events[k].sum(), 0.0) + pseudo.sum()
        n = np.concatenate([[n_known], events[k, some]])
        concave = ConditionalCounts((counts[k] + pseudo)[terms], n, sums.part(some, terms))
        out[terms, k] = concave.maximum(table[terms, k])
    return out


class Point(NamedTuple):
    """Probabilities, their sums over known terms, expected counts and the gradient."""

    prob: Array
    known: Array
    expected: Array
    gradient: Array


@dataclass(frozen=True)
class ConditionalCounts:
    """The log likelihood of one class: counts ``c``, events ``n`` and the patterns' sums."""

    c: Array
    n: Array
    known: KnownSums

    def maximum(self, start: Array) -> Array:
        """Log probabilities at the maximum, which sum to one."""
        log_prob, here = start, self._at(start)
        for _ in range(MAX_STEPS):
            step = self._newton_step(here)
            step *= min(1.0, MAX_STEP / max(abs(step).max(), MAX_STEP))
            rise = here.gradient @ step
            if not rise > 0.0:  # converged up to rounding
                break
            there = self._at(log_prob + step)
            # concave: a directional derivative that is not far below zero means no overshoot
            while abs(step).max() > SAFE_STEP and there.gradient @ step < -0.5 * rise:
                step, rise = 0.5 * step, 0.5 * rise
                there = self._at(log_prob + step)
            log_prob, here = log_prob + step, there
            if abs(step).max() <= TOL:
                break
        return np.asarray(np.log(here.prob))

    def _at(self, log_prob: Array) -> Point:
        prob = np.exp(log_prob - log_prob.max())
        prob /= prob.sum()
        known = np.maximum(self.known.over_terms(prob), SMALLEST)
        expected = prob * self.known.over_patterns(self.n / known)
        return Point(prob, known, expected, self.c - expected)

    def _newton_step(self, at: Point) -> Array:
        """Solve the Newton system; the common factor of all probabilities is fixed."""
        curvature = self.n / at.known**2

        def product(v: Array) -> Array:
            inner = curvature * self.known.over_terms(at.prob * v)
            return np.asarray(at.expected * v - at.prob * self.known.over_patterns(inner))

        target = at.gradient - at.expected * (at.gradient.sum() / at.expected.sum())
        # scaled by `expected`, the Hessian is the identity minus a matrix of rank n_patterns
        most = min(2 * min(len(target), len(self.n)) + 10, MAX_PRODUCTS)
        return _conjugate_gradients(product, target, at.expected, most)


def _conjugate_gradients(
    product: Callable[[Array], Array], target: Array, scale: Array, most: int
) -> Array:
    """Solve a symmetric system with at most ``most`` products; stop at a lack of curvature."""
    solution, residual = np.zeros_like(target), target
    direction = residual / scale
    size = residual @ direction
    tolerance = 1e-20 * size
    for _ in range(most):
        image = product(direction)
        curvature = direction @ image
        if size <= tolerance or not curvature > 0.0:
            break
        solution = solution + size / curvature * direction
        residual = residual - size / curvature * image
        scaled = residual / scale
        before, size = size, residual @ scaled
        direction = scaled + size / before * direction
    return solution
