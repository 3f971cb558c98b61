"""What defines the sums and the weights of a one-pass model, as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Matrix
from likelier.features.fourier import RandomFourier


@dataclass(frozen=True)
class Settings:
    """Parameters of the estimator, and the seed of its features."""

    update: str
    n_features: int
    fit_intercept: bool
    features: str | None = None
    n_components: int = 1
    gamma: Any = "scale"
    prior: float | None = None  # precision; None for "auto"
    half_life: float | None = None
    seed: int = 0

    @classmethod
    def of(cls, fitted: Any) -> Settings:
        """Settings of an estimator that has been reset, or of what a model file holds."""
        fixed, prior = fitted.fixed_params_, fitted.prior_precision
        return cls(
            n_features=fitted.n_features_in_, seed=fitted.seed_, half_life=fitted.half_life,
            prior=None if isinstance(prior, str) else float(prior), **fixed,
        )  # fmt: skip

    @property
    def streaming(self) -> bool:
        """Whether weights are those of a softmax, learned block by block."""
        return self.update == "streaming"

    @property
    def width(self) -> int:
        """Number of features of the linear model."""
        return self.n_components if self.features == "fourier" else self.n_features

    def draw_features(self, X: Matrix) -> dict[str, Array]:
        """Random Fourier frequencies; of the rows, only the scale is used. Empty without them."""
        if self.features != "fourier":
            return {}
        fourier = RandomFourier(self.n_components, gamma=self.gamma)
        return dict(fourier.init(np.random.default_rng([self.seed, 0]), X))

    def age_weights(self, n: int) -> Array:
        """Decayed weights of ``n`` rows at the time the last one is learned."""
        if self.half_life is None:
            return np.ones(n)
        return np.asarray(0.5 ** (np.arange(n - 1, -1, -1) / float(self.half_life)))

    def decay_factor(self, n: int) -> float:
        """Factor of the weight of all rows before the last ``n``."""
        return 1.0 if self.half_life is None else float(0.5 ** (n / float(self.half_life)))


def apply_features(frequencies: dict[str, Array], X: Matrix) -> Matrix:
    """Fourier features of the rows, or the rows themselves."""
    return RandomFourier().apply(frequencies, X) if frequencies else X
