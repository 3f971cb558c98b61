"""Uncertainty of labels with a known probability and a Gaussian score of known standard deviation.

The score is Gaussian, ``f = m + s z``, with ``m`` such that ``E sigma(f)`` is the predicted
probability. The total entropy is that of the prediction; the aleatoric part is the mean entropy
over ``f``, and the epistemic part is the difference.
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
MAX_STD = 1e6  # beyond it the probability is practically 0 or 1

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(NODES)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def split_entropy(p: Array, std: Array) -> Uncertainty:
    """Entropy of labels in nats and its parts, in the shape of ``p``.

    Parameters
    ----------
    p : array
        Probability of every label.
    std : array
        Standard deviation of its score.

    Notes
    -----
    Cost: some tens of sigmoids per label.
    """
    flat_p, flat_s = np.ravel(p), np.minimum(np.ravel(std), MAX_STD)
    parts = []
    for start in range(0, max(1, len(flat_p)), CELLS):
        chosen = slice(start, start + CELLS)
        middle = matching_mean(flat_p[chosen], flat_s[chosen])
        draws = expit(middle[:, None] + flat_s[chosen][:, None] * _POINTS)
        parts.append(Bernoulli(draws, weights=_WEIGHTS).uncertainty())
    return Uncertainty(
        *(np.concatenate([getattr(part, name) for part in parts]).reshape(np.shape(p))
          for name in ("total", "aleatoric", "epistemic"))
    )  # fmt: skip


def matching_mean(p: Array, std: Array) -> Array:
    """``m`` with ``E sigma(m + std z) = p``: bracketed Newton steps in log-odds."""
    target = logit(np.clip(p, TINY, 1.0 - TINY))
    width = std * _POINTS[-1]  # brackets the solution
    low, high = target - width, target + width
    m = np.clip(target * np.sqrt(1.0 + np.pi / 8.0 * std**2), low, high)
    for _ in range(MAX_STEPS):
        draws = expit(m[:, None] + std[:, None] * _POINTS)
        mean = np.clip(draws @ _WEIGHTS, TINY, 1.0 - TINY)
        gap = logit(mean) - target
        if (abs(gap) <= 1e-12 * (1.0 + abs(target))).all():
            break
        low, high = np.where(gap < 0.0, m, low), np.where(gap > 0.0, m, high)
        derivative = (draws * (1.0 - draws)) @ _WEIGHTS / (mean * (1.0 - mean))
        step = m - gap / np.maximum(derivative, 1e-12)
        m = np.where((step > low) & (step < high), step, 0.5 * (low + high))
    return np.asarray(m)
