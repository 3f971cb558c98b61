"""The units in which a deep Gaussian process measures its targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array
from likelier.fitting.moments import ColumnMoments

NOISE_FLOOR = 1e-5  # least noise variance, in units of the targets' variance
CONSTANT = 1e-12  # a spread of so little of the mean is rounding
TINY = 1e-6  # unit of constant targets, of their size
# between them squares, and the least noise in their units, have all their digits
SMALLEST, LARGEST = 1e-140, 1e150


@dataclass(frozen=True)
class Units:
    """What is subtracted from targets, what they are divided by, and their least noise variance."""

    mean: float
    spread: float
    noise_floor: float


@dataclass(frozen=True)
class TargetSizes:
    """Rows that count, their largest target, and the moments of the targets."""

    n_rows: int
    largest: float
    moments: ColumnMoments

    @classmethod
    def of(cls, y: Array, weight: Array | None) -> TargetSizes:
        """Of a block of rows; those of weight zero are absent."""
        if weight is not None and not weight.all():
            y, weight = y[weight > 0.0], weight[weight > 0.0]
        largest = float(np.abs(y).max(initial=0.0))
        return cls(len(y), largest, ColumnMoments.of(y[:, None], weight))

    def __add__(self, other: TargetSizes) -> TargetSizes:
        largest = max(self.largest, other.largest)
        return TargetSizes(self.n_rows + other.n_rows, largest, self.moments + other.moments)

    def units(self) -> Units:
        """Mean and spread of the targets.

        Constant ones have no spread, and are told to a millionth of their size. One row says
        nothing about the noise: the size of its target stands for it. The size of zero is one.
        """
        mean = float(self.moments.mean[0])
        spread = float(np.sqrt(self.moments.squares[0] / self.moments.weight))
        size = abs(mean) or 1.0
        if self.largest > LARGEST or not np.isfinite(spread):
            raise ValueError("y is so large that its squares overflow; divide it by its size")
        if max(self.n_rows, self.moments.weight) < 2.0:
            spread, noise_floor = size, 1.0
        else:
            constant = not spread > CONSTANT * abs(mean)
            spread, noise_floor = TINY * size if constant else spread, NOISE_FLOOR
        if 0.0 < self.largest < SMALLEST or spread < TINY * SMALLEST:
            raise ValueError("y is so small that its squares underflow; divide it by its size")
        return Units(mean, spread, noise_floor)
