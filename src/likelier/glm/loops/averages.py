"""Averages of the iterates of stochastic passes: the mean of all, or one that prefers the last."""

from __future__ import annotations

from likelier.jit import njit


@njit(cache=True, nogil=True)
def add_owed(weights, average, summed):
    """Complete a sum of iterates, which lacks ``summed * weights``; returns what it lacks then."""
    if summed != 0.0:
        for j in range(len(weights)):
            average[j] += summed * weights[j]
    return 0.0


@njit(cache=True, nogil=True)
def forget(weights, average, summed):
    """Let all weights be zero from now on; what they were stays in the sum."""
    summed = add_owed(weights, average, summed)
    weights[:] = 0.0
    return summed


@njit(cache=True, nogil=True)
def take_average(weights, intercept, scale, average, average_intercept, k):
    """Running average whose k-th term counts like k^3: an average of the tail, at any time."""
    rate = 4.0 / (k + 3.0)
    for j in range(len(weights)):
        average[j] += rate * (scale * weights[j] - average[j])
    for j in range(len(intercept)):
        average_intercept[j] += rate * (intercept[j] - average_intercept[j])
