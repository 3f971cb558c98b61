"""Covariance function and inference of deep Gaussian processes, as values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from likelier.value import Value, flag, integer, make_value, number, one_of


@dataclass(frozen=True)
class ARD(Value):
    """Covariance function with a length scale per input, as ``kernel=ARD(...)`` of deep GPs.

    Parameters
    ----------
    shape : {"rbf", "matern32", "matern52"}, default="rbf"
        Function of the scaled distance.
    length_scales : {"auto", "learned", "long"}, default="auto"
        "learned" by training; "long": fixed at four times the typical length of the rows, for
        nearly linear functions that do not overfit. "auto" compares short fits by held-out log
        density, unless rows are very few or the ``time_budget`` is under 30 seconds.
    per_node : bool, default=False
        Whether every node has length scales of its own instead of those of its layer.
    input_scale : {"column", "common"}, default="column"
        Divide inputs by their standard deviations, or all by a common scale (pixels).
    """

    kind: ClassVar[str] = "kernel"
    name: ClassVar[str] = "ard"
    shape: str = one_of("rbf", "matern32", "matern52")
    length_scales: str = one_of("auto", "learned", "long")
    per_node: bool = flag(False)
    input_scale: str = one_of("column", "common")


@dataclass(frozen=True)
class PowerEP(Value):
    """Power expectation propagation by Adam, as ``inference=PowerEP(...)`` of deep GPs.

    Parameters
    ----------
    power : float or "auto", default="auto"
        In (0, 1]; the limit zero is variational inference. "auto" is 1 for classes; for numbers
        0.5 below 3000 rows, else 1 or 0.5 by the held-out log density of short fits.
    n_samples : int, default=10
        Samples per row in training.
    n_draws : int or "auto", default="auto"
        Mixture components of a prediction; "auto" is 32 for classes and 128 for numbers.
    batch_size : int, default=256
        Rows per minibatch.
    learning_rate : float, default=0.02
        Initial rate, with a half-cosine decay to 2 % of it.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the training; "float32" takes about half the time.
    early_stopping : bool, default=False
        Whether to hold out rows and return the parameters with the best validation score.
    validation_fraction : float, default=0.1
        Fraction of the rows held out, at most 2000 rows.
    n_iter_no_change : int, default=5
        Stop after this many validations, 100 minibatches apart, without improvement.
    """

    kind: ClassVar[str] = "inference"
    name: ClassVar[str] = "power_ep"
    power: float | str = number("auto", "(0, 1]", "auto")
    n_samples: int = integer(10, "[1, inf)")
    n_draws: int | str = integer("auto", "[1, inf)", "auto")
    batch_size: int = integer(256, "[1, inf)")
    learning_rate: float = number(0.02, "(0, inf)")
    dtype: str = one_of("float64", "float32")
    early_stopping: bool = flag(False)
    validation_fraction: float = number(0.1, "(0, 1)")
    n_iter_no_change: int = integer(5, "[1, inf)")


def make_kernel(kernel: Any) -> ARD:
    """Return a covariance function from itself or the name of its shape."""
    return make_value(kernel, ARD, {s: partial(ARD, s) for s in ("rbf", "matern32", "matern52")})


def make_inference(inference: Any) -> PowerEP:
    """Return an inference from itself or its name."""
    return make_value(inference, PowerEP, {"power_ep": PowerEP})
