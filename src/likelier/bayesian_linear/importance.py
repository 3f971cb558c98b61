"""Proposal distributions, and diagnostics of how well they cover the tails of the posterior.

An independence sampler stays for long at points where the posterior is large relative to the
proposal. A single such point can take as many draws as a whole tail of the posterior, and shift the
end of an interval as much: so the coverage of the tails matters more than that of the bulk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp

from likelier.base import Array

WIDTH = 1.25
TAIL_QUANTILES = (0.05, 0.95)  # quantiles whose estimates are assessed
SMALLEST = 1e-300


@dataclass(frozen=True)
class Tails:
    """Mixture distribution of ``xi``: standard normal, a wider normal and a Student-t.

    The Student-t component bounds the importance weights.
    """

    wide: float  # mixture weights of the wider normal and the Student-t
    heavy: float
    stretch: float = 1.0  # scale factor of the proposal of eta
    df: float = 5.0  # degrees of freedom of the Student-t, and its scale
    scale: float = 1.0

    def draw(self, n: int, size: int, stream: np.random.Generator) -> Array:
        """Draw ``n`` vectors."""
        xi = stream.standard_normal((n, size))
        part = stream.random(n)
        radius = self.scale * np.sqrt(self.df / stream.chisquare(self.df, n))
        xi *= np.select([part < self.heavy, part < self.heavy + self.wide], [radius, WIDTH], 1.0)[
            :, None
        ]
        return xi

    def log_density(self, xi: Array) -> Array:
        """Log density of `draw`, up to the constant of the normal density."""
        size, square = xi.shape[1], np.einsum("ij,ij->i", xi, xi)
        constant = gammaln(0.5 * (self.df + size)) - gammaln(0.5 * self.df)
        constant -= size * (0.5 * np.log(0.5 * self.df) + np.log(self.scale))
        ratio = square / (self.df * self.scale**2)
        parts = [
            np.log1p(-self.heavy - self.wide) - 0.5 * square,
            np.log(self.heavy) + constant - 0.5 * (self.df + size) * np.log1p(ratio),
        ]
        if self.wide > 0.0:
            parts.append(np.log(self.wide) - 0.5 * square / WIDTH**2 - size * np.log(WIDTH))
        return np.asarray(logsumexp(parts, axis=0))


DEFAULT_TAILS = Tails(0.0, 0.05)
WIDE_TAILS = Tails(0.35, 0.1, stretch=1.4)
# With few parameters and rows, posteriors may be skew, and a large heavy component covers the long
# tail at the cost of its mixture weight. With many parameters it would propose nothing useful.
HEAVY_TAILS = Tails(0.0, 0.2, df=3.0, scale=2.0)
FEW_PARAMETERS = 10
# Largest tail indices of the importance weights with which the independence sampler is used. Their
# variance is infinite from 1/2 on; with few parameters the heavy component nearly bounds them.
MAX_TAIL_INDEX, MAX_TAIL_INDEX_OF_FEW = 0.5, 0.2


def default_tails(n_parameters: int) -> Tails:
    """Proposal distribution to start with."""
    return HEAVY_TAILS if n_parameters <= FEW_PARAMETERS else DEFAULT_TAILS


def max_tail_index(n_parameters: int) -> float:
    """Largest tail index of the weights with which the independence sampler continues."""
    return MAX_TAIL_INDEX_OF_FEW if n_parameters <= FEW_PARAMETERS else MAX_TAIL_INDEX


def sampling_efficiency(log_weight: Array) -> float:
    """Effective sample size of weighted proposals, as a fraction of their number."""
    weight = np.exp(log_weight - log_weight.max())
    return float(weight.sum() ** 2 / (weight @ weight)) / len(weight)


def tail_index(log_weight: Array) -> float:
    """Tail index of the importance weights by Hill's estimator; zero if there are too few.

    From one half on their variance is infinite: parts of the posterior are then hardly ever
    proposed, and chains may agree only because all of them have missed those parts.
    """
    ordered = np.sort(log_weight)
    m = int(min(len(ordered) / 5, 3.0 * np.sqrt(len(ordered))))
    if m < 1 or not np.isfinite(ordered[-m - 1]):
        return 0.0 if m < 1 else np.inf
    return float((ordered[-m:] - ordered[-m - 1]).mean())


def tail_efficiency(points: Array, log_weight: Array) -> float:
    """Efficiency of weighted points relative to independent draws, for the worst of all tails.

    ``points`` has shape (n, parameters). The estimate of a tail probability ``p`` has the variance
    ``sum_i W_i^2 (I_i - p)^2``, where the ``W`` sum to one, and ``p (1 - p) / n`` for independent
    draws; the result is the smallest ratio over both tails of every parameter. Cost: n log n per
    parameter.
    """
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    ordered = weight[np.argsort(points, axis=0)]
    below, squares = ordered.cumsum(axis=0), (ordered**2).cumsum(axis=0)
    columns, worst = np.arange(points.shape[1]), np.inf
    for end in TAIL_QUANTILES:
        last = np.minimum((below < end).sum(axis=0), len(points) - 1)
        p, inside = below[last, columns], squares[last, columns]
        variance = (1.0 - p) ** 2 * inside + p**2 * (squares[-1] - inside)
        efficiency = p * (1.0 - p) / np.maximum(variance, SMALLEST) / len(points)
        worst = min(worst, float(efficiency.min()))
    return worst
