"""Training sample with its statistics, before the weights are fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard, StandardRows
from likelier.kernel_machine.evidence import Scales, typical_weight


@dataclass(frozen=True)
class Prepared:
    """Statistics gathered before the weights: standardisation, sample and length scales."""

    standard: Standard
    scales: Scales
    standardised: StandardRows  # the sample
    sample: Rows
    centred: bool = False  # also for all columns of sparse rows

    def centre(self) -> Array:
        """Centre to subtract from rows in their own units.

        Distances do not depend on it. A linear function does: with uncentred columns its intercept
        would have to compensate against its prior.
        """
        if self.centred:
            return self.standard.mean
        return self.standard.centre(bool(sparse.issparse(self.sample.X)))

    @property
    def unit(self) -> float:
        """Weight of a typical row; scales are learned from relative weights."""
        return typical_weight(self.sample.weight)

    def validation_rows(self) -> tuple[Matrix, Array, Array]:
        """Rows for validation fits with their centre and scales, standardised if dense."""
        Z = self.standardised
        if Z.standard is None:
            return Z.X, np.zeros(Z.shape[1]), self.scales.gamma
        return self.sample.X, self.centre(), self.gamma()

    def gamma(self, scale: float = 1.0) -> Array:
        """Inverse length scales in the units of the data."""
        return scale * self.scales.gamma * self.standard.inverse
