"""Validation of the parameters of `BayesianLinearClassifier`, and their conversion."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from likelier.base import Array
from likelier.bayesian_linear.model import INTERCEPT_PRECISION, Coordinates, Prior
from likelier.bayesian_linear.sampling import SAMPLERS, Settings
from likelier.fitting.parameters import check_one_of, check_within


def check_parameters(estimator: Any) -> None:
    """Raise for the first invalid parameter."""
    check_one_of("loss", estimator.loss, ("log_loss", "hinge"))
    check_one_of("multi_class", estimator.multi_class, ("ovr", "multinomial"))
    check_one_of("sampler", estimator.sampler, SAMPLERS)
    if estimator.loss == "hinge" and estimator.multi_class == "multinomial":
        raise ValueError(
            'multi_class="multinomial" requires loss="log_loss"; use "ovr" with "hinge"'
        )
    for name in ("n_chains", "n_draws", "thin"):
        _check_integer(name, getattr(estimator, name), 1)
    if estimator.n_warmup is not None:
        _check_integer("n_warmup", estimator.n_warmup, 0)
    if isinstance(estimator.prior_precision, str) and estimator.prior_precision != "auto":
        raise ValueError(
            'prior_precision must be "auto", a float or an array, got '
            f"{estimator.prior_precision!r}"
        )
    check_within("prior_shape", estimator.prior_shape, 0.0, strict=True)
    check_within("prior_rate", estimator.prior_rate, 0.0, strict=True)


def _check_integer(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")


def settings_of(estimator: Any) -> Settings:
    """Sampling settings."""
    n_warmup = None if estimator.n_warmup is None else int(estimator.n_warmup)
    return Settings(
        estimator.sampler,
        int(estimator.n_chains),
        int(estimator.n_draws),
        n_warmup,
        int(estimator.thin),
    )


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
        float(estimator.prior_shape), float(estimator.prior_rate),
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
