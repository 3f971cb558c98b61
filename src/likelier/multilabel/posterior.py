"""Uncertainty of labels whose probability is known and whose score is known up to a spread.

The score is Gaussian, ``f = m + s z``, with ``m`` such that ``E sigma(f)`` is the probability
that is predicted. So the total entropy is that of the prediction, and what the spread adds to
it is the epistemic part: the entropy less its mean over ``f``.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from likelier.base import Array, Uncertainty
from likelier.predictive import Bernoulli

NODES = 15  # of the quadrature over a Gaussian score
CELLS = 1 << 16  # rows times labels at once
MAX_STEPS = 60
TINY = 1e-15
WIDE = 1e6  # beyond it a score is on one side or the other, and nothing in between

_POINTS, _SHARES = np.polynomial.hermite_e.hermegauss(NODES)
_SHARES = _SHARES / _SHARES.sum()


def split_entropy(p: Array, spread: Array) -> Uncertainty:
    """Entropy of labels in nats, and its parts, in the shape of ``p``.

    Parameters
    ----------
    p : array
        Probability of every label.
    spread : array
        Standard deviation of its score.

    Notes
    -----
    Cost: some tens of sigmoids per label.
    """
    flat_p, flat_s = np.ravel(p), np.minimum(np.ravel(spread), WIDE)
    parts = []
    for start in range(0, max(1, len(flat_p)), CELLS):
        chosen = slice(start, start + CELLS)
        middle = matching_mean(flat_p[chosen], flat_s[chosen])
        draws = expit(middle[:, None] + flat_s[chosen][:, None] * _POINTS)
        parts.append(Bernoulli(draws, weights=_SHARES).uncertainty())
    return Uncertainty(
        *(np.concatenate([getattr(part, name) for part in parts]).reshape(np.shape(p))
          for name in ("total", "aleatoric", "epistemic"))
    )  # fmt: skip


def matching_mean(p: Array, spread: Array) -> Array:
    """``m`` with ``E sigma(m + spread z) = p``: Newton's steps in log-odds inside a bracket."""
    wanted = logit(np.clip(p, TINY, 1.0 - TINY))
    reach = spread * _POINTS[-1]  # with all points on one side the mean is, too
    low, high = wanted - reach, wanted + reach
    m = np.clip(wanted * np.sqrt(1.0 + np.pi / 8.0 * spread**2), low, high)
    for _ in range(MAX_STEPS):
        draws = expit(m[:, None] + spread[:, None] * _POINTS)
        mean = np.clip(draws @ _SHARES, TINY, 1.0 - TINY)
        gap = logit(mean) - wanted
        if (abs(gap) <= 1e-12 * (1.0 + abs(wanted))).all():
            break
        low, high = np.where(gap < 0.0, m, low), np.where(gap > 0.0, m, high)
        slope = (draws * (1.0 - draws)) @ _SHARES / (mean * (1.0 - mean))
        step = m - gap / np.maximum(slope, 1e-12)
        m = np.where((step > low) & (step < high), step, 0.5 * (low + high))
    return np.asarray(m)
