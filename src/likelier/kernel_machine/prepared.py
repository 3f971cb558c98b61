"""Rows of a fit, with their targets and weights, and what is known of them before the weights."""

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
    """What is known before the weights: how inputs are scaled, and the learned scales."""

    standard: Standard
    scales: Scales
    standardised: StandardRows  # the sample
    sample: Rows
    centred: bool = False  # in all columns, also of sparse rows

    def centre(self) -> Array:
        """What to subtract from rows in their own units.

        Distances are the same whatever it is. A linear function is not: beside columns that are
        not centred its constant would have to make up for them, against its prior.
        """
        if self.centred:
            return self.standard.mean
        return self.standard.centre(bool(sparse.issparse(self.sample.X)))

    @property
    def unit(self) -> float:
        """Weight of a typical row: the scales were told of rows that weigh one."""
        return typical_weight(self.sample.weight)

    def judged(self) -> tuple[Matrix, Array, Array]:
        """Rows for small fits, with their centre and scales: standardised where they are dense."""
        Z = self.standardised
        if Z.standard is None:
            return Z.X, np.zeros(Z.shape[1]), self.scales.gamma
        return self.sample.X, self.centre(), self.gamma()

    def gamma(self, scale: float = 1.0) -> Array:
        """Scales in the units of the data."""
        return scale * self.scales.gamma * self.standard.inverse
