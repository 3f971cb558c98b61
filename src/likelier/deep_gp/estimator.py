"""Base class of the two deep Gaussian processes: parameters and their validation."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from likelier.base import Matrix, check_flag
from likelier.deep_gp.kernels import KERNELS
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.parameters import (
    check_above,
    check_integer,
    check_number_or_auto,
    check_one_of,
)
from likelier.fitting.predictions import TableInput
from likelier.fitting.standardize import Standard
from likelier.matrices import validated_rows

DTYPES = ("float64", "float32")
INPUT_SCALES = ("column", "common")
LENGTH_SCALES = ("auto", "learned", "long")
MAX_HIDDEN = 30
FEW_ROWS, FEW_INDUCING, MANY_INDUCING = 250, 50, 100
STEPS_PER_ROW, MIN_STEPS, MAX_STEPS = 8, 1000, 2000


class DeepGPEstimator(TableInput, CallbackSupportMixin, BaseEstimator):
    """Parameters of both deep Gaussian processes; see the two public classes."""

    # Every input has a length scale, which does not suit thousands of text features.
    dense_inputs: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validate_parameters(self) -> None:
        """Raise for the first invalid parameter."""
        check_integer("layers", self.layers, 1)
        check_number_or_auto("hidden_dim", self.hidden_dim, 1, integer=True)
        check_number_or_auto("n_inducing", self.n_inducing, 1, integer=True)
        check_one_of("kernel", self.kernel, KERNELS)
        check_one_of("input_scale", self.input_scale, INPUT_SCALES)
        check_one_of("length_scales", self.length_scales, LENGTH_SCALES)
        check_number_or_auto("power", self.power, 0.0)
        if self.power != "auto" and self.power > 1.0:
            raise ValueError(f"power must lie in (0, 1], got {self.power}")
        for name in ("n_samples", "n_draws", "batch_size", "n_iter_no_change"):
            check_integer(name, getattr(self, name), 1)
        check_number_or_auto("max_iter", self.max_iter, 1, integer=True)
        check_above("learning_rate", self.learning_rate, 0.0)
        check_above("validation_fraction", self.validation_fraction, 0.0)
        if self.validation_fraction >= 1.0:
            raise ValueError(
                f"validation_fraction must lie in (0, 1), got {self.validation_fraction}"
            )
        if self.time_budget is not None:
            check_above("time_budget", self.time_budget, 0.0)
        check_one_of("dtype", self.dtype, DTYPES)
        if not isinstance(self.verbose, bool | np.bool_):
            check_integer("verbose", self.verbose, 0)
        for name in ("node_kernels", "early_stopping", "warm_start"):
            check_flag(name, getattr(self, name))

    def _seed(self) -> int:
        try:
            rng = check_random_state(self.random_state)
        except ValueError:
            raise ValueError(
                "random_state must be None, an integer from 0 to 2**32 - 1 or a RandomState, got "
                f"{self.random_state!r}"
            ) from None
        return int(rng.randint(2**31 - 1))

    def _check_X(self, X: Any, reset: bool) -> Matrix:
        return validated_rows(self, X, reset, order="C")

    def _scaling(self, standard: Standard) -> Standard:
        """Scale inputs each by its standard deviation, or all by their root mean square."""
        varies = standard.inverse > 0.0
        if self.input_scale == "column" or not varies.any():
            return standard
        common = 1.0 / np.sqrt(np.mean(standard.spread()[varies] ** 2))
        return Standard(standard.mean, np.where(varies, common, 0.0))

    def _widths(self, n_inputs: int, n_outputs: int) -> tuple[int, ...]:
        """Number of inputs, of nodes of every hidden layer, and of outputs."""
        hidden = min(n_inputs, MAX_HIDDEN) if self.hidden_dim == "auto" else int(self.hidden_dim)
        return (n_inputs, *(hidden for _ in range(int(self.layers) - 1)), n_outputs)

    def _n_inducing(self, n_rows: int) -> int:
        if self.n_inducing != "auto":
            return int(self.n_inducing)
        return FEW_INDUCING if n_rows <= FEW_ROWS else MANY_INDUCING

    def _n_steps(self, n_rows: int) -> int:
        """Number of minibatches, by default proportional to the number of rows."""
        if self.max_iter != "auto":
            return int(self.max_iter)
        return int(np.clip(STEPS_PER_ROW * n_rows, MIN_STEPS, MAX_STEPS))
