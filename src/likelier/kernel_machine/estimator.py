"""What the two kernel machines share apart from fitting: words, checks, and one fitted part."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix, check_flag
from likelier.engines.threads import count_threads
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
    """Constructor words of both kernel machines; see the two public classes."""

    _losses: tuple[str, ...] = ()
    # Every input gets a scale of its own, which thousands of words are too many for.
    dense_inputs: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validate_parameters(self) -> None:
        """Raise for constructor words that make no sense, naming the word."""
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
            raise ValueError(f'gamma must be "auto", a number or one per input, got {self.gamma!r}')
        for word in ("early_stopping", "warm_start"):
            check_flag(word, getattr(self, word))
        if not isinstance(self.verbose, bool | np.bool_):
            check_integer("verbose", self.verbose, 0)
        check_above("validation_fraction", self.validation_fraction, 0.0)
        if self.validation_fraction >= 1.0:
            raise ValueError(f"validation_fraction must be below 1, got {self.validation_fraction}")
        count_threads(self.n_jobs)
        if self.inference != "evidence":
            self._validate_particle_parameters()

    def _validate_particle_parameters(self) -> None:
        """Raise for words that particles cannot follow."""
        wanted = f"with inference={self.inference!r}"
        if self.features == "nystroem":
            raise ValueError(
                f'features must be "fourier" or "identity" {wanted}: landmarks cannot follow '
                "scales that move"
            )
        if not isinstance(self.gamma, str):
            raise ValueError(f'gamma must be "auto" {wanted}: its scales are learned')

    def _n_particles(self) -> int:
        if self.n_particles == "auto":
            return N_PARTICLES[self.inference]
        return int(self.n_particles)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_X(self, X: Any, reset: bool) -> Matrix:
        return validated_rows(self, X, reset, order="C")

    def _given_gamma(self, n_inputs: int) -> Array | None:
        """Scales the caller chose, in the units of the data; None to learn them."""
        if isinstance(self.gamma, str):
            return None
        gamma = np.asarray(self.gamma, dtype=np.float64)
        if gamma.ndim > 1 or (gamma.ndim == 1 and len(gamma) != n_inputs):
            raise ValueError(
                f"gamma must be one number or one for each of {n_inputs} inputs, got shape "
                f"{gamma.shape}"
            )
        if not (np.isfinite(gamma) & (gamma >= 0.0)).all():
            raise ValueError("gamma must hold finite numbers >= 0")
        return np.broadcast_to(gamma, (n_inputs,)).copy()

    def _n_components(self, n_rows: int) -> int:
        """Features: some for every so many rows, so that cost grows no faster than needed."""
        if self.n_components != "auto":
            return int(self.n_components)
        return int(np.clip(n_rows // ROWS_PER_COMPONENT, MIN_COMPONENTS, MAX_COMPONENTS))

    @property
    def feature_relevance_(self) -> Array:
        """Share of every input in the learned scales: squares of the relative ``gamma_``."""
        check_is_fitted(self, "gamma_")
        squares = (self.gamma_ * self.input_spread_) ** 2
        total = squares.sum()
        return np.asarray(squares / total if total > 0.0 else squares)

    def plot_relevance(self, n_top: int = 20, ax: Any = None) -> Any:
        """Bars of the most relevant inputs; needs matplotlib. Returns the axes."""
        from matplotlib import pyplot as plt  # an optional package, only where it is used

        relevance = self.feature_relevance_
        names = getattr(self, "feature_names_in_", np.arange(len(relevance)))
        order = np.argsort(relevance, kind="stable")[::-1][:n_top][::-1]
        axes = plt.subplots()[1] if ax is None else ax
        axes.barh([str(names[j]) for j in order], relevance[order])
        axes.set_xlabel("share of the learned scales")
        return axes


def by_evidence(estimator: Any) -> bool:
    """Whether a method is there that particles do not have."""
    if estimator.inference == "evidence":
        return True
    raise AttributeError(
        f"this method needs inference='evidence'; inference={estimator.inference!r} has neither "
        "partial_fit nor score_samples: use fit, whose X may be a path"
    )
