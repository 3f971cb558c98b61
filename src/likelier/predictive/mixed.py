"""Mixtures of predictives of any kind, which stacks and ensembles need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from likelier.base import Array, Uncertainty
from likelier.predictive.classes import ClassPredictive
from likelier.predictive.mixture import average, log, mixture_weights
from likelier.predictive.numbers import NumberPredictive, smallest


def _checked(parts: Any, kind: type, weights: Array) -> dict[str, Any]:
    parts = tuple(parts)
    if not all(isinstance(part, kind) for part in parts):
        raise TypeError(f"parts must be of the kind {kind.__name__}")
    rows = {part.n_rows for part in parts} or {0}
    if len(rows) > 1:
        raise ValueError(f"parts must have the same rows, and have {sorted(rows)}")
    return {"parts": parts, "weights": mixture_weights(weights, rows.pop(), len(parts))}


def _join(weights: Array, parts: Sequence[Uncertainty], apart: Array) -> Uncertainty:
    """Average of the members' uncertainties; what they disagree about is epistemic too."""
    aleatoric = average(weights, np.stack([part.aleatoric for part in parts], axis=1))
    epistemic = apart + average(weights, np.stack([part.epistemic for part in parts], axis=1))
    return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)


@dataclass(frozen=True, eq=False)
class MixedClasses(ClassPredictive):
    """Mixture of distributions over the same classes.

    Parameters
    ----------
    parts : sequence of ClassPredictive
        The components.
    """

    parts: tuple[ClassPredictive, ...]

    def __post_init__(self) -> None:
        self._set(**_checked(self.parts, ClassPredictive, self.weights))

    def uncertainty(self) -> Uncertainty:
        """Entropy in nats of the mixture, mean aleatoric part of the members, their difference."""
        return self.joined([part.uncertainty() for part in self.parts])

    def joined(self, members: Sequence[Uncertainty]) -> Uncertainty:
        """Uncertainty of the mixture from the uncertainties of its members."""
        return _join(self.weights, members, super().uncertainty().epistemic)

    def _components(self) -> Array:
        each = [part.probabilities() for part in self.parts]
        if len({p.shape[1] for p in each}) > 1:
            raise ValueError(f"parts must have the same classes, not {[p.shape[1] for p in each]}")
        return np.stack(each, axis=1)


def _float(order: Array) -> Array:
    """Floating point number from its place in their order; its own inverse on the bits."""
    return np.where(order < 0, np.iinfo(np.int64).min - order, order).view(np.float64)


def _order(value: Array) -> Array:
    bits = np.ascontiguousarray(value, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


@dataclass(frozen=True, eq=False)
class MixedNumbers(NumberPredictive):
    """Mixture of distributions of numbers, which may be of different kinds.

    Parameters
    ----------
    parts : sequence of NumberPredictive
        The components.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier.predictive import Counts, Gaussian, MixedNumbers
    >>> both = MixedNumbers([Counts(np.array([2.0])), Gaussian(np.array([9.0]), np.ones(1))])
    >>> both.quantiles([0.25, 0.75]).round(3)
    array([[2., 9.]])
    """

    parts: tuple[NumberPredictive, ...]

    def __post_init__(self) -> None:
        self._set(**_checked(self.parts, NumberPredictive, self.weights))

    @property
    def discrete(self) -> bool:
        return all(part.discrete for part in self.parts)

    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log density, or log probability of counts, of one number per row.

        Counts have probabilities, other numbers densities: a mixture of both has neither.
        """
        if len({part.discrete for part in self.parts}) > 1:
            raise ValueError("a mixture of counts and other numbers has no density; use cdf")
        parts = np.stack([part.log_density(y) for part in self.parts], axis=1)
        return np.asarray(logsumexp(log(self.weights) + parts, axis=1))

    def cdf(self, y: npt.ArrayLike) -> Array:
        """Probability that the target is at most ``y``, one number per row."""
        return average(self.weights, np.stack([part.cdf(y) for part in self.parts], axis=1))

    def uncertainty(self) -> Uncertainty:
        """Law of total variance: what the members say, and the variance of their means."""
        return self.joined([part.uncertainty() for part in self.parts])

    def joined(self, members: Sequence[Uncertainty]) -> Uncertainty:
        """Uncertainty of the mixture from the uncertainties of its members."""
        return _join(self.weights, members, super().uncertainty().epistemic)

    def _component_moments(self) -> tuple[Array, Array]:
        mean = np.stack([part.mean() for part in self.parts], axis=1)
        return mean, np.zeros_like(mean)  # variances are those of `uncertainty`

    def _quantile(self, alpha: float) -> Array:
        # bisects floating point numbers, so that it is exact where the cdf jumps
        each = _order(np.stack([part.quantiles(alpha) for part in self.parts], axis=1))
        return smallest(
            lambda x: self.cdf(x) >= alpha, each.min(axis=1) - 1, each.max(axis=1), _float
        )
