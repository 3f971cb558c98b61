"""Local experts of a regression: ridge regressions on the residual of the global model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from likelier.base import Array, Batch
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.expert_fit import Corrected, Held, Region
from likelier.kernel_machine.expert_model import expert_map
from likelier.kernel_machine.expert_noise import (
    NoiseModel,
    Residuals,
    corrected_global_variance,
    fit_noise,
)
from likelier.kernel_machine.features import LandmarkMap
from likelier.kernel_machine.regression import (
    leave_out,
    regression_sums,
    solve_weights,
)
from likelier.kernel_machine.regression_posterior import Weights
from likelier.kernel_machine.search import Choice
from likelier.kernel_machine.weight_posterior import WeightPosterior
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
        inside, outside = self._variances(Phi, self.map)
        kept = np.clip(1.0 - (1.0 if weight is None else weight) * inside, LEAST_KEPT, 1.0)
        mean = (Phi @ self.weights.mean)[:, None]
        columns = np.stack([inside / kept, outside, kept], axis=1)
        return Region(self.scaled(batch.X), y, weight, mean, columns)

    def fit(self, region: Region, feature_map: LandmarkMap, choice: Choice) -> WeightPosterior:
        """Posterior in closed form."""
        weights = self._solved(region, feature_map, feature_map(region.Z, np.float32), choice)
        variance = 1.0 / choice.precision
        return WeightPosterior(weights.mean[:, None], weights.root[None], "joint", variance)

    @staticmethod
    def _solved(region: Region, feature_map: LandmarkMap, Phi: Array, choice: Choice) -> Weights:
        """Weights; the intercept is fixed at zero, however heavy the rows are."""
        constant = FIXED_INTERCEPT * max(typical_weight(region.weight), 1.0)
        prior = Prior(ridge(feature_map.n_features, choice.precision, constant))
        sums = regression_sums(Phi, region.y - region.offset[:, 0], region.weight)
        return solve_weights(sums, choice.precision, prior)

    def trial(
        self, region: Region, n_landmarks: int, choice: Choice, rng: np.random.Generator
    ) -> Held:
        """Every row that is no landmark is left out, in closed form.

        At most half of the rows are landmarks.
        """
        m = min(n_landmarks, max(1, region.n // 2))
        feature_map, others = expert_map(region.Z, choice.scale, m, rng)
        Phi = feature_map(region.Z, np.float32)
        weights, rows = self._solved(region, feature_map, Phi, choice), region.take(others)
        targets = rows.y - rows.offset[:, 0]
        rest, variance = leave_out(weights, Phi[others], targets, rows.omega)
        variance = variance + feature_map.residual(Phi[others]) / choice.precision
        return Held(rows, (targets - rest)[:, None], variance, 1.0 / choice.precision)

    def losses(self, parts: list[Held]) -> Array:
        """Negative log density of every row, with the noise profiled out."""
        rows = self._residuals(parts)
        return fit_noise(rows, self.noise).losses(rows)

    def baseline(self, held: list[Region]) -> Array:
        rows = Region.join(held)
        inside, outside, kept = self._columns(rows)
        rest = (rows.y - rows.offset[:, 0]) / kept
        alone = Residuals(rest, np.zeros(rows.n), inside + outside, rows.omega)
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
        inside, outside, kept = self._columns(rows)
        prior = np.concatenate([np.full(part.rows.n, part.prior_variance) for part in parts])
        known = corrected_global_variance(inside, outside, variance / prior)
        return Residuals((rows.y - mean) / kept, variance, known, rows.omega)

    def _columns(self, rows: Region) -> tuple[Array, Array, Array]:
        """Columns of `Region.variance`."""
        if rows.variance is not None:
            inside, outside, kept = rows.variance.T
            return inside, outside, kept
        d = rows.Z.shape[1]
        plain = replace(self.map, centre=np.zeros(d), gamma=np.ones(d))
        inside, outside = self._variances(plain(rows.Z, np.float64), plain)
        return inside, outside, np.ones(rows.n)

    def _variances(self, Phi: Array, feature_map: LandmarkMap) -> tuple[Array, Array]:
        """Variance of the weights at rows, and outside of the features; in double precision."""
        inside = self.weights.variance(Phi, np.zeros(len(Phi)))
        return inside, feature_map.residual(Phi) / self.weights.ratio
