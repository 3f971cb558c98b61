"""Standardisation of the targets of a deep Gaussian process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array
from likelier.fitting.moments import ColumnMoments

NOISE_FLOOR = 1e-5  # minimum noise variance, in units of the targets' variance
CONSTANT = 1e-12  # relative standard deviation that is rounding: the targets are constant
TINY = 1e-6  # scale of constant targets, relative to their absolute value
# within these limits, squares and the minimum noise variance are normal floating-point numbers
SMALLEST, LARGEST = 1e-140, 1e150


@dataclass(frozen=True)
class TargetScale:
    """Shift and scale of the targets, and their minimum noise variance after both."""

    mean: float
    scale: float
    noise_floor: float


@dataclass(frozen=True)
class TargetMoments:
    """Number of rows of positive weight, their largest absolute target, and target moments."""

    n_rows: int
    largest: float
    moments: ColumnMoments

    @classmethod
    def of(cls, y: Array, weight: Array | None) -> TargetMoments:
        """Moments of a block of rows, ignoring those of weight zero."""
        if weight is not None and not weight.all():
            y, weight = y[weight > 0.0], weight[weight > 0.0]
        largest = float(np.abs(y).max(initial=0.0))
        return cls(len(y), largest, ColumnMoments.of(y[:, None], weight))

    def __add__(self, other: TargetMoments) -> TargetMoments:
        largest = max(self.largest, other.largest)
        return TargetMoments(self.n_rows + other.n_rows, largest, self.moments + other.moments)

    def target_scale(self) -> TargetScale:
        """Mean, scale and noise floor.

        The scale is the standard deviation. For constant targets it is a millionth of their
        absolute value, for a single row, which carries no information about the noise, its
        absolute value; the absolute value of zero is taken as one.
        """
        mean = float(self.moments.mean[0])
        scale = float(np.sqrt(self.moments.squares[0] / self.moments.weight))
        size = abs(mean) or 1.0
        if self.largest > LARGEST or not np.isfinite(scale):
            raise ValueError(
                f"y is too large (max {LARGEST:.0e} in absolute value); divide it by a constant"
            )
        if max(self.n_rows, self.moments.weight) < 2.0:
            scale, noise_floor = size, 1.0
        else:
            constant = not scale > CONSTANT * abs(mean)
            scale, noise_floor = TINY * size if constant else scale, NOISE_FLOOR
        if 0.0 < self.largest < SMALLEST or scale < TINY * SMALLEST:
            raise ValueError(
                f"y is too small (min {SMALLEST:.0e} in absolute value); multiply it by a constant"
            )
        return TargetScale(mean, scale, noise_floor)
