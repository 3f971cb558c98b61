"""Local experts of a regression: ridge regressions on the residual of the global model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from likelier.base import Array, Batch
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.expert_fit import Corrected, Held, Region
from likelier.kernel_machine.expert_noise import (
    NoiseModel,
    Residuals,
    corrected_global_variance,
    fit_noise,
)
from likelier.kernel_machine.features import LandmarkMap
from likelier.kernel_machine.laplace import WeightPosterior
from likelier.kernel_machine.regression import Weights, regression_sums, solve_weights
from likelier.kernel_machine.search import Choice
from likelier.kernel_machine.weights import Prior, ridge

FIXED_INTERCEPT = 1e4
LEAST_KEPT = 1e-6


@dataclass(frozen=True)
class CorrectedNumbers(Corrected):
    """Global model of a regression.

    Attributes
    ----------
    weights : Weights
    noise : float
        Noise variance of this model alone.
    row : float
        Weight that counts as one row.
    learned : bool
        Whether it has learned all rows of the engine: residuals are then those of leaving a row
        out.
    """

    weights: Weights
    noise: float
    row: float
    learned: bool

    @property
    def n_outputs(self) -> int:
        return 1

    def region(self, batch: Batch) -> Region:
        y = np.asarray(batch.y, dtype=np.float64)
        weight = None if batch.weight is None else batch.weight / self.row
        if not self.learned:
            mean = self.map.scores(batch.X, self.weights.mean[:, None], np.float64)
            return Region(self.scaled(batch.X), y, weight, mean)
        Phi = self.map(batch.X, np.float64)
        inside = self.weights.variance(Phi, np.zeros(len(Phi)))
        omega = np.ones(len(y)) if weight is None else weight
        kept = np.clip(1.0 - omega * inside, LEAST_KEPT, 1.0)
        mean = (Phi @ self.weights.mean)[:, None]
        return Region(self.scaled(batch.X), y, weight, mean, kept)

    def fit(self, region: Region, feature_map: LandmarkMap, choice: Choice) -> WeightPosterior:
        """Posterior in closed form; the intercept is fixed at zero, however heavy the rows are."""
        constant = FIXED_INTERCEPT * max(typical_weight(region.weight), 1.0)
        prior = Prior(ridge(feature_map.n_features, choice.precision, constant))
        Phi = feature_map(region.Z, np.float32)
        sums = regression_sums(Phi, region.y - region.offset[:, 0], region.weight)
        weights = solve_weights(sums, choice.precision, prior)
        variance = 1.0 / choice.precision
        return WeightPosterior(weights.mean[:, None], weights.root[None], "joint", variance)

    def losses(self, parts: list[Held]) -> Array:
        """Negative log density of every row, with the noise profiled out."""
        rows = self._residuals(parts)
        return fit_noise(rows, self.noise).losses(rows)

    def baseline(self, held: list[Region]) -> Array:
        rows = Region.join(held)
        inside, outside = self._global_variance(rows)
        zeros = np.zeros(rows.n)
        rest = _left_out(rows, rows.offset[:, 0])
        alone = Residuals(rest, zeros, inside + outside, rows.omega)
        return fit_noise(alone).losses(alone)

    def prior_variance(self, choice: Choice) -> float:
        """In units of the noise variance."""
        return 1.0 / choice.precision

    def calibrate(self, parts: list[Held]) -> NoiseModel:
        """Noise model with these experts."""
        return fit_noise(self._residuals(parts), self.noise)

    def _residuals(self, parts: list[Held]) -> Residuals:
        rows = Region.join([part.rows for part in parts])
        mean = rows.offset[:, 0] + np.concatenate([part.scores[:, 0] for part in parts])
        variance = np.concatenate([part.variance for part in parts])
        inside, outside = self._global_variance(rows)
        prior = np.concatenate([np.full(part.rows.n, part.prior_variance) for part in parts])
        known = corrected_global_variance(inside, outside, variance / prior)
        return Residuals(_left_out(rows, mean), variance, known, rows.omega)

    def _global_variance(self, rows: Region) -> tuple[Array, Array]:
        """Variance of the weights, as if the row had been left out, and outside of the features."""
        d = rows.Z.shape[1]
        plain = replace(self.map, centre=np.zeros(d, np.float32), gamma=np.ones(d, np.float32))
        Phi = plain(rows.Z, np.float32)
        inside = self.weights.variance(Phi, np.zeros(len(Phi)))
        if rows.kept is not None:
            inside = inside / rows.kept
        return inside, plain.residual(Phi) / self.weights.ratio


def _left_out(rows: Region, mean: Array) -> Array:
    """Residuals as if the global model had not learned the rows."""
    rest = rows.y - mean
    return rest if rows.kept is None else np.asarray(rest / rows.kept)
