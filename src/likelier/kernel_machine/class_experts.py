"""Local experts of a classifier: each adds to the scores of the global model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from likelier.base import Array, Batch
from likelier.fitting.dataset import local_engine
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.expert_fit import Corrected, Held, Region
from likelier.kernel_machine.expert_model import expert_map
from likelier.kernel_machine.features import LandmarkMap
from likelier.kernel_machine.integrate import choose_posterior_scale
from likelier.kernel_machine.laplace import laplace_posterior
from likelier.kernel_machine.search import BLOCK_ROWS, Choice, output_precision
from likelier.kernel_machine.weight_posterior import WeightPosterior, add_variance
from likelier.kernel_machine.weights import (
    ClassLoss,
    FeatureRows,
    Prior,
    WeightProblem,
    fit_weights,
    ridge,
)

TOL, MAX_ITER = 1e-3, 100
FIXED_INTERCEPT, HOLD_OUT_FRACTION = 1e4, 0.25


@dataclass(frozen=True)
class _RowsOf:
    """The map to values that one machine holds, such as the scores of a global model."""

    values: Array

    def __call__(self, batch: Batch) -> Array:
        return self.values[batch.start : batch.start + batch.n_rows]


@dataclass(frozen=True)
class CorrectedClasses(Corrected):
    """Global model of a classifier."""

    weights: WeightPosterior
    loss: ClassLoss

    @property
    def n_outputs(self) -> int:
        return self.loss.n_outputs

    def region(self, batch: Batch) -> Region:
        offset = self.map.scores(batch.X, self.weights.mean)
        return Region(self.scaled(batch.X), np.asarray(batch.y), batch.weight, offset)

    def fit(self, region: Region, feature_map: LandmarkMap, choice: Choice) -> WeightPosterior:
        """Optimum and posterior, with one precision for all outputs to bound its memory.

        The prior is zero correction. The intercept, which would remain far from the rows of the
        expert, is fixed at zero: it belongs to the global model.
        """
        precision, D = output_precision(choice.precision, self.loss), feature_map.n_features
        zero = np.zeros((D, self.n_outputs))
        constant = FIXED_INTERCEPT * max(typical_weight(region.weight), 1.0)
        prior = Prior(ridge(D, precision, constant), zero)
        engine = local_engine(region.Z, region.y, region.weight, 0, 1, False, BLOCK_ROWS)
        Phi = engine.map_rows(FeatureRows(feature_map))
        offset = engine.map_rows(_RowsOf(region.offset))
        problem = WeightProblem(engine, Phi, self.loss, prior, offset)
        W = fit_weights(problem, zero, TOL, MAX_ITER).W
        layout = "joint" if self.n_outputs == 1 else "shared"
        return laplace_posterior(problem, W, 1.0 / precision, layout)

    def trial(
        self, region: Region, n_landmarks: int, choice: Choice, rng: np.random.Generator
    ) -> Held:
        """A quarter of the rows is held out."""
        n_held = max(1, int(HOLD_OUT_FRACTION * region.n))
        rows = np.arange(region.n)  # in random order
        inside, held = region.take(rows[n_held:]), region.take(rows[:n_held])
        feature_map, _ = expert_map(inside.Z, choice.scale, n_landmarks, rng)
        posterior = self.fit(inside, feature_map, choice)
        Phi = feature_map(held.Z, np.float32)
        variance = posterior.covariance(Phi, feature_map.residual(Phi))[:, 0]
        return Held(held, posterior.scores(Phi), variance, posterior.prior_variance)

    def losses(self, parts: list[Held]) -> Array:
        found = [self.loss.terms(part.rows.offset + part.scores, part.rows.y)[0] for part in parts]
        return np.concatenate(found)

    def baseline(self, held: list[Region]) -> Array:
        return np.concatenate([self.loss.terms(rows.offset, rows.y)[0] for rows in held])

    def prior_variance(self, choice: Choice) -> float:
        """Prior variance of one score."""
        return 1.0 / output_precision(choice.precision, self.loss)

    def calibrate(self, parts: list[Held]) -> float:
        """Posterior scale with the smallest held-out loss."""
        rows = Region.join([part.rows for part in parts])
        scores = rows.offset + np.concatenate([part.scores for part in parts])
        variance = np.concatenate([part.variance for part in parts])
        d = rows.Z.shape[1]
        plain = replace(self.map, centre=np.zeros(d, np.float32), gamma=np.ones(d, np.float32))
        Phi = plain(rows.Z, np.float32)
        covariance = add_variance(self.weights.covariance(Phi, plain.residual(Phi)), variance)
        return choose_posterior_scale(scores, covariance, rows.y, rows.weight)
