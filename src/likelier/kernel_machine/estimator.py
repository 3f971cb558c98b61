"""Shared base of the kernel estimators: parameter validation and feature relevance."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix, check_flag
from likelier.engines.threads import count_threads
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.parameters import (
    check_above,
    check_integer,
    check_number_or_auto,
    check_one_of,
)
from likelier.matrices import validated_rows

FEATURES = ("auto", "nystroem", "fourier", "identity")
INFERENCES = ("evidence", "svgd", "stein_gaussian")
N_PARTICLES = {"evidence": 1, "svgd": 20, "stein_gaussian": 4}
MIN_COMPONENTS, MAX_COMPONENTS, ROWS_PER_COMPONENT = 512, 1536, 4


class KernelEstimator(CallbackSupportMixin, BaseEstimator):
    """Constructor parameters of both kernel estimators; see the two public classes."""

    _losses: tuple[str, ...] = ()
    # Every input has its own length scale, which is infeasible for thousands of text features.
    dense_inputs: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validate_parameters(self) -> None:
        """Raise on invalid constructor parameters, naming the parameter."""
        check_one_of("loss", self.loss, self._losses)
        check_one_of("features", self.features, FEATURES)
        check_one_of("inference", self.inference, INFERENCES)
        check_number_or_auto("n_components", self.n_components, 1, integer=True)
        check_number_or_auto("alpha", self.alpha, 0.0)
        check_above("temperature", self.temperature, 0.0)
        check_above("tol", self.tol, 0.0)
        check_number_or_auto("n_particles", self.n_particles, 1, integer=True)
        check_integer("max_iter", self.max_iter, 1)
        if self.time_budget is not None:
            check_above("time_budget", self.time_budget, 0.0)
        if isinstance(self.gamma, str) and self.gamma != "auto":
            raise ValueError(
                f'gamma must be "auto", a number or one value per input, got {self.gamma!r}'
            )
        for name in ("early_stopping", "warm_start"):
            check_flag(name, getattr(self, name))
        if not isinstance(self.verbose, bool | np.bool_):
            check_integer("verbose", self.verbose, 0)
        check_above("validation_fraction", self.validation_fraction, 0.0)
        if self.validation_fraction >= 1.0:
            raise ValueError(f"validation_fraction must be below 1, got {self.validation_fraction}")
        count_threads(self.n_jobs)
        if self.inference != "evidence":
            self._validate_particle_parameters()

    def _validate_particle_parameters(self) -> None:
        """Raise on parameters that particle inference does not support."""
        wanted = f"with inference={self.inference!r}"
        if self.features == "nystroem":
            raise ValueError(
                f'features must be "auto", "fourier" or "identity" {wanted}: landmarks '
                "cannot follow length scales that change during the fit"
            )
        if not isinstance(self.gamma, str):
            raise ValueError(f'gamma must be "auto" {wanted}, which learns it')

    def _n_particles(self) -> int:
        if self.n_particles == "auto":
            return N_PARTICLES[self.inference]
        return int(self.n_particles)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_X(self, X: Any, reset: bool) -> Matrix:
        return validated_rows(self, X, reset, order="C")

    def _given_gamma(self, n_inputs: int) -> Array | None:
        """User-given scales in the units of the data; None to learn them."""
        if isinstance(self.gamma, str):
            return None
        gamma = np.asarray(self.gamma, dtype=np.float64)
        if gamma.ndim > 1 or (gamma.ndim == 1 and len(gamma) != n_inputs):
            raise ValueError(
                f"gamma must be a number or an array of {n_inputs} values, one per input, got "
                f"shape {gamma.shape}"
            )
        if not (np.isfinite(gamma) & (gamma >= 0.0)).all():
            raise ValueError("gamma must hold finite numbers >= 0")
        return np.broadcast_to(gamma, (n_inputs,)).copy()

    def _n_components(self, n_rows: int) -> int:
        """Number of features: proportional to the rows, within limits."""
        if self.n_components != "auto":
            return int(self.n_components)
        return int(np.clip(n_rows // ROWS_PER_COMPONENT, MIN_COMPONENTS, MAX_COMPONENTS))

    @property
    def feature_relevance_(self) -> Array:
        """Squared relative ``gamma_``, normalised to sum to one."""
        check_is_fitted(self, "gamma_")
        squares = (self.gamma_ * self.input_scale_) ** 2
        total = squares.sum()
        return np.asarray(squares / total if total > 0.0 else squares)

    def plot_relevance(self, n_top: int = 20, ax: Any = None) -> Any:
        """Bar plot of the most relevant inputs (needs matplotlib); returns the axes."""
        from matplotlib import pyplot as plt  # optional dependency

        relevance = self.feature_relevance_
        names = getattr(self, "feature_names_in_", np.arange(len(relevance)))
        order = np.argsort(relevance, kind="stable")[::-1][:n_top][::-1]
        axes = plt.subplots()[1] if ax is None else ax
        axes.barh([str(names[j]) for j in order], relevance[order])
        axes.set_xlabel("feature relevance")
        return axes


def by_evidence(estimator: Any) -> bool:
    """Whether methods without a particle version are available."""
    if estimator.inference == "evidence":
        return True
    raise AttributeError(
        f"inference={estimator.inference!r} supports neither partial_fit nor score_samples; use "
        "inference='evidence', or call fit (X may be a path)"
    )
