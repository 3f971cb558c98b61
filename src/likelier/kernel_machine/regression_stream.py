"""Kernel regressions by particles, within a time budget and on streams.

In `partial_fit` the first rows are buffered until there are enough to learn scales and landmarks;
after that a batch only adds to the sums of the normal equations, or updates experts. A large fit
continues in the same way; a small one buffers its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from likelier.base import Array, Batch, Engine, Loss, Matrix
from likelier.engines.rows import take_rows
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import (
    NumberSource,
    local_engine,
    require_targets,
    stream_engine,
)
from likelier.fitting.duplicates import settle_many
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.cost_model import affordable_rows, sums_cost
from likelier.kernel_machine.estimator import by_evidence
from likelier.kernel_machine.evidence import Scales
from likelier.kernel_machine.expert_fit import GLOBAL_SAMPLE, MAX_INPUTS, global_rows
from likelier.kernel_machine.extrapolation import OutOfSupport
from likelier.kernel_machine.features import KernelMap, restore_map
from likelier.kernel_machine.laplace import TRUST_ROWS, extrapolation_degree
from likelier.kernel_machine.noise import GAUSSIAN_SHAPE, NoiseShape
from likelier.kernel_machine.particle_posterior import ParticleState, number_loss
from likelier.kernel_machine.particles import Strength
from likelier.kernel_machine.posterior import regressor
from likelier.kernel_machine.recipe import FIT_BLOCK_ROWS
from likelier.kernel_machine.regression import (
    MIN_NOISE,
    Sums,
    Weights,
    batch_sums,
    solve_weights,
)
from likelier.kernel_machine.regression_expert_fit import RegressionExperts
from likelier.kernel_machine.regression_posterior import RegressionPosterior
from likelier.kernel_machine.row_buffer import (
    GROWTH,
    START_ROWS,
    RowBuffer,
    precision_of,
    same_format,
)
from likelier.kernel_machine.softmax_weights import ridge


class RegressionStream(RowBuffer, RegressionExperts):
    """Streams of continuous targets."""

    sums_weight_: float
    extrapolation_std_: Array
    extrapolation_trust_: Array

    def _set_target_scale(self, mean: float, std: float) -> None:
        self.target_mean_ = mean
        constant = not std > 1e-12 * abs(mean)
        self.target_scale_ = 1.0 if constant else std

    def _row_unit(self, unit: float) -> float:
        """Weight that counts as one row if typical weights ``unit`` are below one.

        Weights that sum to one are relative and carry no information about the sample size. With a
        given ``alpha`` they are taken at face value.
        """
        return min(unit, 1.0) if self.alpha == "auto" else 1.0

    def _min_noise(self, sample: Rows) -> float:
        """Lower bound of the noise; a single constant target uses its own size."""
        n_rows = sample.n if sample.weight is None else max(sample.n, float(sample.weight.sum()))
        if n_rows < 2.0 and not sample.y.any():  # constant target, which is not rescaled
            return max(self.target_mean_**2, 1.0)
        return MIN_NOISE

    def _merged(self, rows: Rows) -> Rows:
        """Merge duplicates into one heavier row, also for many rows.

        Otherwise leave-one-out residuals would be predicted from duplicates.
        """
        few = super()._merged(rows)
        return settle_many(rows) if few is rows else few

    # -- particles ----------------------------------------------------------------------
    def _particle_loss(self) -> Loss:
        return number_loss(self)

    def _particle_strength(self, scales: Scales) -> Strength:
        return self._strength(scales.noise, 1.0 / scales.amplitude)

    def _strength(self, noise: float, precision: float) -> Strength:
        """The epsilon-insensitive loss is linear, so its dispersion is a standard deviation."""
        dispersion = noise if self.loss == "gaussian" else np.sqrt(noise)
        alpha = precision if self.alpha == "auto" else float(self.alpha) / dispersion
        return Strength(alpha, dispersion, noise)

    def _calibrated_strength(
        self, posterior: ParticleState, held: Rows, strength: Strength
    ) -> Strength:
        """Noise is the mean squared held-out residual.

        It includes the uncertainty of the function, so intervals are conservative: particles are
        not draws and may underestimate that uncertainty.
        """
        scores = posterior.scores(held.X)[..., 0]
        square = (held.y - scores.mean(axis=0)) ** 2
        noise = float(np.average(square, weights=held.weight))
        return self._strength(max(noise, MIN_NOISE), strength.alpha)

    def _store_particles(self, strength: Strength) -> None:
        self.noise_ = np.sqrt([strength.noise]) * self.target_scale_
        self._store_shapes([GAUSSIAN_SHAPE])

    def _store_shapes(self, shapes: list[NoiseShape]) -> None:
        self.noise_centres_ = [shape.centres for shape in shapes]
        self.noise_widths_ = [shape.widths for shape in shapes]
        self.noise_weights_ = [shape.weights for shape in shapes]

    # -- streams ------------------------------------------------------------------------
    def _open_encoded(self, source: Any, seed: int) -> tuple[Any, int, Standard]:
        """One pass for the moments of inputs and targets."""

        def map_block(batch: Batch) -> tuple[int, ColumnMoments, ColumnMoments]:
            y = self._check_y(require_targets(batch))
            moments = ColumnMoments.of(batch.X, batch.weight)
            return batch.n_rows, moments, ColumnMoments.of(y[:, None], batch.weight)

        engine = stream_engine(source, seed, False)
        n_rows, inputs, targets = engine.reduce(map_block, _add_tuples)
        mean = float(targets.mean[0])
        self._set_target_scale(mean, float(np.sqrt(targets.squares[0] / targets.weight)))
        standard = Standard.from_moments(inputs)
        return _StandardisedSource(source, mean, self.target_scale_), n_rows, standard

    def _affordable_data(
        self, engine: Engine, sample: Rows, feature_map: KernelMap, n_rows: int, budget: TimeBudget
    ) -> tuple[Engine, Rows]:
        """Rows for the sums and for the noise: all, or what time allows."""
        if budget.left is None:
            return engine, sample
        row_cost = sums_cost(feature_map, sample) if budget.left else np.inf
        most = affordable_rows(budget, n_rows + sample.n, row_cost)
        if most >= n_rows + sample.n:
            return engine, sample
        n_few = max(most - sample.n, most // 2)
        if not engine.in_memory:
            n_few = min(n_few, global_rows(self.n_features_in_))
        batch = engine.sample(n_few, GLOBAL_SAMPLE)
        few = local_engine(batch.X, batch.y, batch.weight, 0, self.n_jobs, True, FIT_BLOCK_ROWS)
        return few, sample.take(np.arange(min(sample.n, most - n_few)))

    @available_if(by_evidence)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Update the model with a batch of rows.

        Up to 4,000 rows are buffered and refitted together, whenever their number has grown by half
        and before the model predicts or is saved. Predictions always include all rows; fitted
        attributes may lag behind. After that a batch adds to the sums of the normal equations, at
        ``rows x features^2``. Rows are also buffered for local experts (at most 2^25 values), which
        are refitted whenever the rows have doubled, from 8,192 rows on. Then the buffer is
        released, and up to 128 rows of a region wait until its expert is updated.

        After `fit`: below 4,000 rows (and 2^22 values) in memory, the rows were buffered and are
        refitted together with the new ones; otherwise features are fixed, and new rows add to the
        sums of the fit or update its experts.
        """
        self._validate_parameters()
        fresh = not hasattr(self, "stream_")
        X, y, weight = self._check_rows(X, y, sample_weight, fresh and not hasattr(self, "maps_"))
        return self._learn(X, y, weight, self._seed() if fresh else self.stream_["seed"])

    def _batch_conflict(self) -> str | None:
        if self._n_particles() == 1 and self.loss == "gaussian" and self.inference == "evidence":
            return None
        return (
            'partial_fit and one-pass iterators need loss="gaussian", inference="evidence" and '
            "n_particles=1"
        )

    def _new_stream(self, seed: int) -> dict[str, Any]:
        return super()._new_stream(seed) | {"absorbing": False}

    def _learn(self, X: Matrix, y: Array, weight: Array | None, seed: int) -> Self:
        with self._learning_batch(seed) as state:
            X = same_format(X, state)
            omega = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
            if not omega.all():  # drop zero-weight rows
                present = np.flatnonzero(omega)
                X, y, omega = take_rows(X, present), y[present], omega[present]
            if state["absorbing"]:
                self._absorb(X, y, omega)
            else:
                self._buffer_rows(X, y, omega)
        return self

    def _buffer_rows(self, X: Matrix, y: Array, omega: Array) -> None:
        state = self.stream_
        self._add_rows(X, y, omega)
        n_buffered = len(state["y"])
        if state["learned"] and n_buffered < min(START_ROWS, GROWTH * state["learned"]):
            return
        self._learn_buffered()
        if n_buffered >= START_ROWS:
            state["absorbing"] = True
            if self.n_features_in_ <= MAX_INPUTS:
                state["expert_rows"] = [[state["X"], state["y"], state["omega"]]]
            for name in ("X", "y", "omega"):
                del state[name]

    def _finish_stream(self) -> None:
        self._learn_pending()
        if self.stream_["absorbing"]:
            self._finish_experts()

    def _stream_from_fit(self, seed: int) -> dict[str, Any]:
        """Stream state whose sums are recovered from the posterior."""
        A = precision_of(self.roots_[0][None], len(self.weights_[0]), 1)[0]
        cross = A @ self.weights_[0]
        A[np.diag_indices_from(A)] -= ridge(len(A), float(self.ratio_[0]))
        sums = {"gram": A, "cross": cross, "weight": float(self.sums_weight_)}
        return self._new_stream(seed) | {"absorbing": True, "sums": sums}

    def _absorb(self, X: Matrix, y: Array, omega: Array) -> None:
        """Add to the sums, or update the experts."""
        with one_blas_thread():
            if self.experts_[0]:
                posterior = regressor(self)
                assert isinstance(posterior, RegressionPosterior)
                found = posterior.moments(X)
                ratio = (y - found.mean[:, 0]) ** 2 / (found.variance + found.noise)[:, 0]
                self._update_noise(ratio, omega / self.row_weight_)
                self._update_experts(X, y, omega)
            else:
                self._absorb_global(X, self._targets(y), omega / self.row_weight_)
        self._buffer_for_experts(X, y, omega)

    def _absorb_global(self, X: Matrix, targets: Array, omega: Array) -> None:
        feature_map, state = restore_map(self.maps_[0]), self.stream_
        Phi = feature_map(X, np.float64)
        old = Weights(self.weights_[0], self.roots_[0], float(self.ratio_[0]))
        sums = Sums(**state["sums"]) + batch_sums(Batch(X, targets, omega), Phi)
        weights = solve_weights(sums, old.ratio)
        noise = (self.noise_[0] / self.target_scale_) ** 2
        support = OutOfSupport(feature_map.residual(Phi), 1.0 - self.extrapolation_trust_[0])
        constant = float(old.mean[-1])
        expected = noise * (1.0 + old.variance(Phi, support.residual))
        prior = np.asarray(noise * (1.0 + 1.0 / old.ratio))
        expected += support.variance(constant, float(self.extrapolation_std_[0]), prior)
        residual = targets - Phi @ old.mean + support.mean_correction(constant)
        self._update_noise(residual**2 / expected, omega)
        # the landmarks are fixed, so the intercept gains trust for rows out of their support
        state["outside_weight"] = state.get("outside_weight", 0.0) + float(
            omega @ extrapolation_degree(support.residual)
        )
        self.extrapolation_trust_ = np.array(
            [state["outside_weight"] / (state["outside_weight"] + TRUST_ROWS)]
        )
        self.global_noise_ = (self.noise_ / self.target_scale_) ** 2
        self.weights_, self.roots_ = [weights.mean], [weights.root]
        state["sums"] = vars(sums).copy()

    def _update_noise(self, squares: Array, omega: Array) -> None:
        """Running mean of standardised squared residuals of rows before they are learned."""
        before, more = float(self.stream_["sums"]["weight"]), float(omega.sum())
        ratio = (before + float(omega @ squares)) / max(before + more, 1e-300)
        self.noise_ = self.noise_ * np.sqrt(ratio)
        self.stream_["sums"] = self.stream_["sums"] | {"weight": before + more}


@dataclass(frozen=True)
class _StandardisedSource(NumberSource):
    """A source with targets standardised to mean zero and unit variance."""

    mean: float
    std: float

    def _encode(self, batch: Batch) -> Batch:
        return replace(batch, y=(require_targets(batch).astype(np.float64) - self.mean) / self.std)


def _add_tuples(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one + other for one, other in zip(a, b, strict=True))
