"""Predictions for rows with a level that training never saw: mixtures over levels that it did.

A model knows nothing of such a level but that it is one, so what it predicts is what it
would predict not knowing the level: as uncertain as the levels of training differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from likelier.base import Array, Matrix, Uncertainty
from likelier.predictive import Categorical
from likelier.tables.column import N_DRAWS

# So many quantiles stand for the distribution of each copy of a row; more for wide intervals.
N_QUANTILES = 20
MOST_QUANTILES = 100


def mixed_probability(estimator: Any, copies: Matrix) -> Array:
    """Return class probabilities, averaged over the copies of each row."""
    probability = np.asarray(estimator.predict_proba(copies))
    mixed: Array = probability.reshape(-1, N_DRAWS, probability.shape[1]).mean(axis=1)
    return mixed


def mixed_prediction(estimator: Any, copies: Matrix) -> Array:
    """Return predicted numbers, averaged over the copies of each row."""
    mixed: Array = np.asarray(estimator.predict(copies)).reshape(-1, N_DRAWS).mean(axis=1)
    return mixed


def mixed_labels(estimator: Any, copies: Matrix) -> Array:
    """Return indicators of the labels that more than half of the copies of each row have."""
    found = np.asarray(estimator.predict(copies))
    mixed: Array = found.reshape(-1, N_DRAWS, found.shape[1]).mean(axis=1) > 0.5
    return mixed


def mixed_interval(estimator: Any, copies: Matrix, coverage: float) -> Array:
    """Return central intervals of the mixture of the copies' distributions, ``(n, 2)``."""
    return mixed_quantiles(estimator, copies, [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])


def mixed_quantiles(estimator: Any, copies: Matrix, alpha: npt.ArrayLike) -> Array:
    """Return quantiles of the mixture of the copies' distributions, ``(n, len(alpha))``.

    Each copy is represented by quantiles at equally spaced levels.
    """
    levels = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    tail = float(min(levels.min(), 1.0 - levels.max()))
    half = int(np.clip(np.ceil(1.0 / tail), N_QUANTILES, MOST_QUANTILES)) // 2
    points = _quantiles(estimator, copies, half).reshape(-1, N_DRAWS * 2 * half)
    found: Array = np.quantile(points, levels, axis=1, method="inverted_cdf").T
    return found


def mixed_class_uncertainty(probability: Array) -> Uncertainty:
    """Return the entropies of the mixture of the copies' class probabilities ``(copies, K)``.

    Not knowing the level is part of the epistemic uncertainty.
    """
    return Categorical(probability.reshape(-1, N_DRAWS, probability.shape[1])).uncertainty()


def mixed_variance(point: Array, parts: Uncertainty) -> Uncertainty:
    """Return the variance of the mixture of the copies' distributions, of mean ``point``."""
    by_row = point.reshape(-1, N_DRAWS)
    total = parts.total.reshape(-1, N_DRAWS).mean(axis=1) + by_row.var(axis=1)
    aleatoric = parts.aleatoric.reshape(-1, N_DRAWS).mean(axis=1)
    return Uncertainty(total, aleatoric, total - aleatoric)


def _quantiles(estimator: Any, copies: Matrix, half: int) -> Array:
    """Return twice so many quantiles of each row; where there are none, ends of intervals are."""
    coverages = (np.arange(half) + 0.5) / half
    if hasattr(estimator, "predict_quantiles"):  # optional, as scikit-learn's methods are
        alpha = 0.5 + 0.5 * np.concatenate([-coverages[::-1], coverages])
        return np.asarray(estimator.predict_quantiles(copies, alpha=alpha))
    ends = [np.asarray(estimator.predict_interval(copies, coverage=float(c))) for c in coverages]
    return np.concatenate(ends, axis=1)
