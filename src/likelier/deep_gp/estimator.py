"""Base class of the two deep Gaussian processes: parameters and their validation."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from likelier.base import Matrix
from likelier.deep_gp.settings import ARD, PowerEP, make_inference, make_kernel
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.parameters import ValueParameters
from likelier.fitting.predictions import TableInput
from likelier.fitting.standardize import Standard
from likelier.matrices import validated_rows

AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")
MAX_HIDDEN = 30
FEW_ROWS, FEW_INDUCING, MANY_INDUCING = 250, 50, 100
STEPS_PER_ROW, MIN_STEPS, MAX_STEPS = 8, 1000, 2000


class DeepGPEstimator(TableInput, ValueParameters, CallbackSupportMixin, BaseEstimator):
    """Parameters of both deep Gaussian processes; see the two public classes."""

    _values: ClassVar[Mapping[str, Any]] = {"kernel": make_kernel, "inference": make_inference}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "layers": [AT_LEAST_ONE],
        "hidden_dim": [StrOptions({"auto"}), AT_LEAST_ONE],
        "n_inducing": [StrOptions({"auto"}), AT_LEAST_ONE],
        "heteroscedastic": ["boolean"],
        "max_iter": [StrOptions({"auto"}), AT_LEAST_ONE],
        "time_budget": [Interval(Real, 0, None, closed="neither"), None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    # Every input has a length scale, which does not suit thousands of text features.
    dense_inputs: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _ard(self) -> ARD:
        kernel: ARD = self._value("kernel")
        return kernel

    @property
    def _power_ep(self) -> PowerEP:
        inference: PowerEP = self._value("inference")
        return inference

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_X(self, X: Any, reset: bool) -> Matrix:
        return validated_rows(self, X, reset, order="C")

    def _scaling(self, standard: Standard) -> Standard:
        """Scale inputs each by its standard deviation, or all by their root mean square."""
        varies = standard.inverse > 0.0
        if self._ard.input_scale == "column" or not varies.any():
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
