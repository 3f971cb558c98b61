"""Laws that proposals are drawn from, and how well their tails cover those of the posterior.

A chain that moves by independent proposals stays long where the posterior is large and proposals
are rare. One such point can hold as many draws as a whole tail of the posterior, and moves the end
of an interval by as much: so what decides is not how well the middle is covered, but the tails.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp

from likelier.base import Array

WIDTH = 1.25
ENDS = (0.05, 0.95)  # whose estimates are judged
SMALLEST = 1e-300


@dataclass(frozen=True)
class Tails:
    """The law of ``xi``: mostly standard normal, partly wider, partly Student-t.

    The Student-t part bounds what any point can weigh: no region is too rare to be proposed.
    """

    wide: float  # shares of the two other parts
    heavy: float
    stretch: float = 1.0  # of the law of eta
    df: float = 5.0  # of the Student-t part, and its scale
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
        """Log density of `draw`, up to the constant of the normal law."""
        size, square = xi.shape[1], np.einsum("ij,ij->i", xi, xi)
        constant = gammaln(0.5 * (self.df + size)) - gammaln(0.5 * self.df)
        constant -= size * (0.5 * np.log(0.5 * self.df) + np.log(self.scale))
        far = square / (self.df * self.scale**2)
        parts = [
            np.log1p(-self.heavy - self.wide) - 0.5 * square,
            np.log(self.heavy) + constant - 0.5 * (self.df + size) * np.log1p(far),
        ]
        if self.wide > 0.0:
            parts.append(np.log(self.wide) - 0.5 * square / WIDTH**2 - size * np.log(WIDTH))
        return np.asarray(logsumexp(parts, axis=0))


USUAL = Tails(0.0, 0.05)
CAUTIOUS = Tails(0.35, 0.1, stretch=1.4)
# A few parameters of few rows have skew posteriors, and a wide part finds their long side. It
# costs its share of the proposals; among many parameters it would find nothing.
GUARDED = Tails(0.0, 0.2, df=3.0, scale=2.0)
FEW_PARAMETERS = 10
# Indices of the tail of the weights of proposals beyond which these are given up. The variance of
# weights is infinite from one half on; the wide part nearly bounds them where it covers the tails.
HEAVY_TAIL, HEAVY_TAIL_OF_FEW = 0.5, 0.2


def usual_tails(n_parameters: int) -> Tails:
    """The law to begin with."""
    return GUARDED if n_parameters <= FEW_PARAMETERS else USUAL


def heaviest_tail(n_parameters: int) -> float:
    """Largest index of the tail of the weights with which independent moves go on."""
    return HEAVY_TAIL_OF_FEW if n_parameters <= FEW_PARAMETERS else HEAVY_TAIL


def effective_share(log_weight: Array) -> float:
    """Share of independent draws that weighted proposals are worth."""
    weight = np.exp(log_weight - log_weight.max())
    return float(weight.sum() ** 2 / (weight @ weight)) / len(weight)


def tail_shape(log_weight: Array) -> float:
    """Index of the tail of the weights of proposals, by Hill's estimator; nothing without any.

    From one half on their variance is infinite: then the posterior has parts that are hardly ever
    proposed, and chains agree with each other because all of them have missed those.
    """
    ordered = np.sort(log_weight)
    m = int(min(len(ordered) / 5, 3.0 * np.sqrt(len(ordered))))
    if m < 1 or not np.isfinite(ordered[-m - 1]):
        return 0.0 if m < 1 else np.inf
    return float((ordered[-m:] - ordered[-m - 1]).mean())


def tail_share(points: Array, log_weight: Array) -> float:
    """Share of independent draws that weighted points are worth for the worst of all tails.

    ``points`` has shape (n, parameters). The probability ``p`` beyond an end has the variance
    ``sum_i W_i^2 (I_i - p)^2``, where the ``W`` sum to one, and ``p (1 - p) / n`` by independent
    draws; the share is the smallest ratio over both ends of every parameter. Cost: n log n for
    each parameter.
    """
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    ordered = weight[np.argsort(points, axis=0)]
    below, squares = ordered.cumsum(axis=0), (ordered**2).cumsum(axis=0)
    each, worst = np.arange(points.shape[1]), np.inf
    for end in ENDS:
        last = np.minimum((below < end).sum(axis=0), len(points) - 1)
        p, inside = below[last, each], squares[last, each]
        variance = (1.0 - p) ** 2 * inside + p**2 * (squares[-1] - inside)
        share = p * (1.0 - p) / np.maximum(variance, SMALLEST) / len(points)
        worst = min(worst, float(share.min()))
    return worst
