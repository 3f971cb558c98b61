"""The argmax likelihood with mpmath: slow, with 20 digits, and nothing shared with the library."""

from __future__ import annotations

from dataclasses import dataclass

import mpmath as mp
import numpy as np
from scipy.special import log_ndtr

DIGITS = 20


@dataclass(frozen=True)
class Contest:
    """One score ``N(mean, sd^2)`` against groups of ``count`` equal ones each."""

    mean: float
    sd: float
    others: tuple[tuple[float, float, int], ...]  # mean, sd, count

    @property
    def n_classes(self) -> int:
        return 1 + sum(count for _, _, count in self.others)

    def arrays(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of all classes, the own one at ``place``."""
        means = np.concatenate([np.full(count, mean) for mean, _, count in self.others])
        sds = np.concatenate([np.full(count, sd) for _, sd, count in self.others])
        return np.insert(means, place, self.mean), np.insert(sds, place, self.sd) ** 2

    def log_integrand(self, h: np.ndarray) -> np.ndarray:
        """In float64, to find out where to integrate."""
        value = -0.5 * ((h - self.mean) / self.sd) ** 2
        return value + sum(count * log_ndtr((h - m) / s) for m, s, count in self.others)


def log_win(contest: Contest) -> float:
    """``log P(own score is the largest)`` by Gauss-Legendre panels with `DIGITS` digits."""
    low, top, high = _interval(contest, 60.0)
    # cliffs are on the left: panels that become narrow towards it, on both sides of the mode
    ends = {low, high, top}
    ends |= {low + (high - low) * 0.5**j for j in range(1, 14)}
    with mp.workdps(DIGITS):
        own, sd = mp.mpf(contest.mean), mp.mpf(contest.sd)
        others = [(mp.mpf(m), mp.mpf(s), count) for m, s, count in contest.others]
        peak = mp.mpf(float(contest.log_integrand(np.asarray(top))))

        def integrand(h):
            value = -(((h - own) / sd) ** 2) / 2 - peak
            for m, s, count in others:
                value += count * mp.log(mp.ncdf((h - m) / s))
            return mp.exp(value)

        area, error = mp.quad(
            integrand, sorted(ends), method="gauss-legendre", maxdegree=5, error=True
        )
        assert error <= mp.mpf(10) ** -11 * area
        return float(mp.log(area) + peak - mp.log(sd) - mp.log(2 * mp.pi) / 2)


def _interval(contest: Contest, drop: float) -> tuple[float, float, float]:
    """Mode, and both points where the logarithm has dropped by ``drop``, by plain bisection."""
    spread = max(contest.sd, *(s for _, s, _ in contest.others))
    centres = [contest.mean, *(m for m, _, _ in contest.others)]
    low, high = min(centres) - 60.0 * spread, max(centres) + 60.0 * spread
    left, right = low, high
    for _ in range(300):  # golden enough: the function is concave
        a, b = left + (right - left) / 3.0, right - (right - left) / 3.0
        if contest.log_integrand(np.asarray(a)) < contest.log_integrand(np.asarray(b)):
            left = a
        else:
            right = b
    top = 0.5 * (left + right)
    level = contest.log_integrand(np.asarray(top)) - drop
    return _crossing(contest, level, low, top), top, _crossing(contest, level, high, top)


def _crossing(contest: Contest, level: float, outside: float, inside: float) -> float:
    for _ in range(200):
        middle = 0.5 * (outside + inside)
        if contest.log_integrand(np.asarray(middle)) < level:
            outside = middle
        else:
            inside = middle
    return float(outside)
