"""The constructor's words of `BayesianLinearClassifier`, checked, as the parts they stand for."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from likelier.base import Array
from likelier.bayesian_linear.model import INTERCEPT_PRECISION, Coordinates, Prior
from likelier.bayesian_linear.sampling import SAMPLERS, Settings
from likelier.fitting.parameters import check_one_of, check_within


def check_parameters(words: Any) -> None:
    """Raise for constructor words that make no sense, naming the word."""
    check_one_of("loss", words.loss, ("log_loss", "hinge"))
    check_one_of("multi_class", words.multi_class, ("ovr", "multinomial"))
    check_one_of("sampler", words.sampler, SAMPLERS)
    if words.loss == "hinge" and words.multi_class == "multinomial":
        raise ValueError('multi_class="multinomial" needs loss="log_loss"; use "ovr" with "hinge"')
    for name in ("n_chains", "n_draws", "thin"):
        _whole(name, getattr(words, name), 1)
    if words.n_warmup is not None:
        _whole("n_warmup", words.n_warmup, 0)
    if isinstance(words.prior_precision, str) and words.prior_precision != "auto":
        raise ValueError(
            f'prior_precision must be "auto", a number or an array, got {words.prior_precision!r}'
        )
    check_within("prior_shape", words.prior_shape, 0.0, strict=True)
    check_within("prior_rate", words.prior_rate, 0.0, strict=True)


def _whole(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")


def settings_of(words: Any) -> Settings:
    """How to sample."""
    n_warmup = None if words.n_warmup is None else int(words.n_warmup)
    return Settings(
        words.sampler, int(words.n_chains), int(words.n_draws), n_warmup, int(words.thin)
    )


def make_prior(words: Any, coordinates: Coordinates, n_outputs: int) -> Prior:
    """The prior in standard coordinates, the same for every output."""
    scale = coordinates.scale
    d, ends = len(scale), [0.0] * int(coordinates.fit_intercept)
    mean = _per_feature("prior_mean", words.prior_mean, d)
    fixed, scaled = np.zeros(d), np.ones(d)
    if not isinstance(words.prior_precision, str):
        precision = _per_feature("prior_precision", words.prior_precision, d)
        if not (precision > 0.0).all():
            raise ValueError("prior_precision must be > 0: a flat prior may have no posterior")
        fixed, scaled = precision / scale**2, np.zeros(d)
    weak = [INTERCEPT_PRECISION] * int(coordinates.fit_intercept)
    return Prior(
        np.tile(np.concatenate([mean * scale, ends]), n_outputs),
        np.tile(np.concatenate([fixed, weak]), n_outputs),
        np.tile(np.concatenate([scaled, ends]), n_outputs),
        float(words.prior_shape), float(words.prior_rate),
    )  # fmt: skip


def _per_feature(name: str, value: ArrayLike, d: int) -> Array:
    """One finite number per feature."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number or an array of numbers, got {value!r}") from None
    if array.shape not in ((), (1,), (d,)):
        raise ValueError(f"{name} must be a number or one per feature ({d}), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {value!r}")
    return np.broadcast_to(array, (d,))
