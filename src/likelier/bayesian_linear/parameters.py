"""The prior of `BayesianLinearClassifier` from its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from likelier.base import Array
from likelier.bayesian_linear.model import INTERCEPT_PRECISION, Coordinates, Prior

# Of the gamma distribution of a learned precision: the prior of a weight is then Student-t with
# four degrees of freedom and scale 0.3 per standard deviation of its column.
SHAPE, RATE = 2.0, 0.2


def make_prior(estimator: Any, coordinates: Coordinates, n_outputs: int) -> Prior:
    """The prior in standard coordinates, the same for every output."""
    scale = coordinates.scale
    d, intercept = len(scale), [0.0] * int(coordinates.fit_intercept)
    mean = _per_feature("prior_mean", estimator.prior_mean, d)
    fixed, scaled = np.zeros(d), np.ones(d)
    if not isinstance(estimator.prior_precision, str):
        precision = _per_feature("prior_precision", estimator.prior_precision, d)
        if not (precision > 0.0).all():
            raise ValueError(
                "prior_precision must be > 0: a flat prior may lead to an improper posterior"
            )
        fixed, scaled = precision / scale**2, np.zeros(d)
    intercept_precision = [INTERCEPT_PRECISION] * int(coordinates.fit_intercept)
    return Prior(
        np.tile(np.concatenate([mean * scale, intercept]), n_outputs),
        np.tile(np.concatenate([fixed, intercept_precision]), n_outputs),
        np.tile(np.concatenate([scaled, intercept]), n_outputs),
        SHAPE, RATE,
    )  # fmt: skip


def _per_feature(name: str, value: ArrayLike, d: int) -> Array:
    """One finite number per feature."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a float or an array of floats, got {value!r}") from None
    if array.shape not in ((), (1,), (d,)):
        raise ValueError(
            f"{name} must be a float or have one value per feature ({d}), got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {value!r}")
    return np.broadcast_to(array, (d,))
