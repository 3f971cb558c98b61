"""Averages of the iterates of stochastic passes: the plain mean, or a tail average."""

from __future__ import annotations

from likelier.jit import njit


@njit(cache=True, nogil=True)
def add_pending(weights, average, summed):
    """Add the pending ``summed * weights`` to a sum of iterates; returns the new ``summed``, 0."""
    if summed != 0.0:
        for j in range(len(weights)):
            average[j] += summed * weights[j]
    return 0.0


@njit(cache=True, nogil=True)
def forget(weights, average, summed):
    """Set all weights to zero after adding their pending part to the sum."""
    summed = add_pending(weights, average, summed)
    for j in range(len(weights)):
        weights[j] = 0.0
    return summed


@njit(cache=True, nogil=True)
def take_average(weights, intercept, scale, average, average_intercept, k):
    """Update a running average whose k-th term has a weight like k^3."""
    rate = 4.0 / (k + 3.0)
    for j in range(len(weights)):
        average[j] += rate * (scale * weights[j] - average[j])
    for j in range(len(intercept)):
        average_intercept[j] += rate * (intercept[j] - average_intercept[j])
