"""How a kernel regression learns by particles, in bounded time and from streams.

Batch by batch, the first rows are kept until there are enough to learn scales and landmarks
from; then a batch only adds to the sums that the weights are solved from, or teaches experts.
After a fit of many rows it goes on like that; the rows of a small one are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from likelier.base import Array, Batch, Engine, Loss, Matrix
from likelier.engines import LocalEngine, StreamEngine
from likelier.engines.rows import take_rows
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import NumberSource, require_targets
from likelier.fitting.duplicates import settle_many
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.estimator import by_evidence
from likelier.kernel_machine.evidence import Scales
from likelier.kernel_machine.expert_fit import COMMON_SAMPLE, MAX_INPUTS, common_rows
from likelier.kernel_machine.extrapolation import FarRows
from likelier.kernel_machine.features import KernelMap, restore_map
from likelier.kernel_machine.kept_rows import (
    GROWTH,
    START_ROWS,
    RowKeeper,
    of_one_kind,
    precision_of,
)
from likelier.kernel_machine.laplace import FAR_ROWS, far_share
from likelier.kernel_machine.noise import GAUSSIAN_SHAPE, NoiseShape
from likelier.kernel_machine.number_expert_fit import NumberExperts
from likelier.kernel_machine.pace import affordable_rows, sums_pace
from likelier.kernel_machine.particle_course import ParticleState
from likelier.kernel_machine.particles import Strength
from likelier.kernel_machine.recipe import HEAD_BLOCK
from likelier.kernel_machine.regression import (
    NOISE_LEAST,
    Sums,
    Weights,
    batch_sums,
    solve_weights,
)
from likelier.kernel_machine.softmax_weights import ridge
from likelier.losses import EpsilonInsensitive, SquaredError


class NumberStream(RowKeeper, NumberExperts):
    """Streams of numbers to predict."""

    sums_weight_: float
    far_spread_: Array
    far_known_: Array

    def _set_units(self, mean: float, spread: float) -> None:
        self.target_mean_ = mean
        constant = not spread > 1e-12 * abs(mean)
        self.target_spread_ = 1.0 if constant else spread

    def _light_row(self, unit: float) -> float:
        """What counts as one row where all weigh less than one, typically ``unit``.

        Weights that add up to one are shares: they say nothing of how sure the rows make. With a
        given ``alpha`` they are taken as they are.
        """
        return min(unit, 1.0) if self.alpha == "auto" else 1.0

    def _least_noise(self, sample: Rows) -> float:
        """One row says nothing about the noise: its own size stands for it, or one."""
        n_rows = sample.n if sample.weight is None else max(sample.n, float(sample.weight.sum()))
        if n_rows < 2.0 and not sample.y.any():  # constant, so in the units of the target
            return max(self.target_mean_**2, 1.0)
        return NOISE_LEAST

    def _merged(self, rows: Rows) -> Rows:
        """Copies are one row that weighs more, also of many rows.

        The noise is learned from rows left out, which would find themselves in their copies.
        """
        few = super()._merged(rows)
        return settle_many(rows) if few is rows else few

    # -- particles ----------------------------------------------------------------------
    def _particle_loss(self) -> Loss:
        gaussian = self.loss == "gaussian"
        return SquaredError() if gaussian else EpsilonInsensitive(float(self.epsilon))

    def _particle_strength(self, scales: Scales) -> Strength:
        return self._strength(scales.noise, 1.0 / scales.amplitude)

    def _strength(self, noise: float, precision: float) -> Strength:
        """A tube's loss is linear, so it counts in standard deviations."""
        dispersion = noise if self.loss == "gaussian" else np.sqrt(noise)
        alpha = precision if self.alpha == "auto" else float(self.alpha) / dispersion
        return Strength(alpha, dispersion, noise)

    def _judge(self, posterior: ParticleState, held: Rows, strength: Strength) -> Strength:
        """Noise is the mean square of held-out residuals.

        It includes what few rows leave open of the function, so intervals are rather too wide
        than too narrow: particles, not being draws, cannot be trusted to make up for it.
        """
        scores = posterior.scores(held.X)[..., 0]
        square = (held.y - scores.mean(axis=0)) ** 2
        noise = float(np.average(square, weights=held.weight))
        return self._strength(max(noise, NOISE_LEAST), strength.alpha)

    def _store_particles(self, strength: Strength) -> None:
        self.noise_ = np.sqrt([strength.noise]) * self.target_spread_
        self._store_shapes([GAUSSIAN_SHAPE])

    def _store_shapes(self, shapes: list[NoiseShape]) -> None:
        self.noise_centres_ = [shape.centres for shape in shapes]
        self.noise_widths_ = [shape.widths for shape in shapes]
        self.noise_shares_ = [shape.shares for shape in shapes]

    # -- streams ------------------------------------------------------------------------
    def _open_encoded(self, source: Any, seed: int) -> tuple[Any, int, Standard]:
        """One pass for the spreads of inputs and targets."""

        def look(batch: Batch) -> tuple[int, ColumnMoments, ColumnMoments]:
            y = self._check_y(require_targets(batch))
            moments = ColumnMoments.of(batch.X, batch.weight)
            return batch.n_rows, moments, ColumnMoments.of(y[:, None], batch.weight)

        engine = StreamEngine(source, seed=seed, shuffle=False)
        n_rows, inputs, targets = engine.reduce(look, _added)
        mean = float(targets.mean[0])
        self._set_units(mean, float(np.sqrt(targets.squares[0] / targets.weight)))
        standard = Standard.from_moments(inputs)
        return _UnitSource(source, mean, self.target_spread_), n_rows, standard

    def _in_time(
        self, engine: Engine, sample: Rows, made: KernelMap, n_rows: int, budget: TimeBudget
    ) -> tuple[Engine, Rows]:
        """Rows for the sums, and those the noise is learned from: all, or as time allows."""
        if budget.left is None:
            return engine, sample
        pace = sums_pace(made, sample) if budget.left else np.inf
        most = affordable_rows(budget, n_rows + sample.n, pace)
        if most >= n_rows + sample.n:
            return engine, sample
        n_few = max(most - sample.n, most // 2)
        if not engine.in_memory:
            n_few = min(n_few, common_rows(self.n_features_in_))
        batch = engine.sample(n_few, COMMON_SAMPLE)
        few = LocalEngine(batch.X, batch.y, batch.weight, n_jobs=self.n_jobs, block_rows=HEAD_BLOCK)
        return few, sample.take(np.arange(min(sample.n, most - n_few)))

    @available_if(by_evidence)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn some rows, once.

        Up to 4,000 rows are kept and learned together, anew as they grow by half, and before the
        model predicts or is saved: predictions always know all rows, while fitted attributes
        may wait for them. After that a batch adds to the sums the weights are solved from,
        ``rows x features^2``. Rows are kept for local experts, at most 2^25 numbers, and these
        are made anew whenever the rows have doubled, from 8,192 on; then rows are let go, and
        up to 128 rows of a region wait before its expert learns them.

        After `fit` it goes on from there. Below 4,000 rows (and 2^22 numbers) in memory they
        have been kept and are learned together with the new ones; else features stay as they
        are, and new rows add to the sums of the fit, or are learned by its experts.
        """
        self._validate_parameters()
        fresh = not hasattr(self, "stream_")
        X, y, weight = self._check_rows(X, y, sample_weight, fresh and not hasattr(self, "maps_"))
        return self._learn(X, y, weight, self._seed() if fresh else self.stream_["seed"])

    def _batch_words(self) -> str | None:
        if self._n_particles() == 1 and self.loss == "gaussian" and self.inference == "evidence":
            return None
        return 'batch by batch needs n_particles=1 and loss="gaussian"'

    def _new_stream(self, seed: int) -> dict[str, Any]:
        return super()._new_stream(seed) | {"absorbing": False}

    def _learn(self, X: Matrix, y: Array, weight: Array | None, seed: int) -> Self:
        with self._batch(seed) as state:
            X = of_one_kind(X, state)
            omega = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
            if not omega.all():  # absent rows neither wait nor count
                present = np.flatnonzero(omega)
                X, y, omega = take_rows(X, present), y[present], omega[present]
            if state["absorbing"]:
                self._absorb(X, y, omega)
            else:
                self._keep(X, y, omega)
        return self

    def _keep(self, X: Matrix, y: Array, omega: Array) -> None:
        state = self.stream_
        self._add_rows(X, y, omega)
        n_kept = len(state["y"])
        if state["learned"] and n_kept < min(START_ROWS, GROWTH * state["learned"]):
            return
        self._learn_kept()
        if n_kept >= START_ROWS:
            state["absorbing"] = True
            if self.n_features_in_ <= MAX_INPUTS:
                state["kept"] = [[state["X"], state["y"], state["omega"]]]
            for name in ("X", "y", "omega"):
                del state[name]

    def _end_stream(self) -> None:
        self._settle()
        if self.stream_["absorbing"]:
            self._end_experts()

    def _stream_of_fit(self, seed: int) -> dict[str, Any]:
        """The sums, from the posterior: they need not be stored with every model."""
        A = precision_of(self.roots_[0][None], len(self.weights_[0]), 1)[0]
        cross = A @ self.weights_[0]
        A[np.diag_indices_from(A)] -= ridge(len(A), float(self.ratio_[0]))
        sums = {"gram": A, "cross": cross, "weight": float(self.sums_weight_)}
        return self._new_stream(seed) | {"absorbing": True, "sums": sums}

    def _absorb(self, X: Matrix, y: Array, omega: Array) -> None:
        """Add to the sums, or teach the experts."""
        with one_blas_thread():
            if self.experts_[0]:
                mean, inside, noise = self._moments_of(0, X)[:3]
                self._update_noise((y - mean) ** 2 / (inside + noise), omega / self.row_weight_)
                self._teach_experts(X, y, omega)
            else:
                self._absorb_common(X, self._targets(y), omega / self.row_weight_)
        self._remember(X, y, omega)

    def _absorb_common(self, X: Matrix, targets: Array, omega: Array) -> None:
        made, state = restore_map(self.maps_[0]), self.stream_
        Phi = made(X, np.float64)
        old = Weights(self.weights_[0], self.roots_[0], float(self.ratio_[0]))
        sums = Sums(**state["sums"]) + batch_sums(Batch(X, targets, omega), Phi)
        weights = solve_weights(sums, old.ratio)
        noise = (self.noise_[0] / self.target_spread_) ** 2
        far, constant = FarRows(made.residual(Phi), 1.0 - self.far_known_[0]), float(old.mean[-1])
        expected = noise * (1.0 + old.variance(Phi, far.residual))
        prior = np.asarray(noise * (1.0 + 1.0 / old.ratio))
        expected += far.variance(constant, float(self.far_spread_[0]), prior)
        rest = targets - Phi @ old.mean + far.fading(constant)
        self._update_noise(rest**2 / expected, omega)
        # landmarks cannot follow: what the constant has learned far from them is known there
        state["far"] = state.get("far", 0.0) + float(omega @ far_share(far.residual))
        self.far_known_ = np.array([state["far"] / (state["far"] + FAR_ROWS)])
        self.common_noise_ = (self.noise_ / self.target_spread_) ** 2
        self.weights_, self.roots_ = [weights.mean], [weights.root]
        state["sums"] = vars(sums).copy()

    def _update_noise(self, squares: Array, omega: Array) -> None:
        """A running mean of squares, standardised, of rows before they are learned."""
        before, more = float(self.stream_["sums"]["weight"]), float(omega.sum())
        share = (before + float(omega @ squares)) / max(before + more, 1e-300)
        self.noise_ = self.noise_ * np.sqrt(share)
        self.stream_["sums"] = self.stream_["sums"] | {"weight": before + more}


@dataclass(frozen=True)
class _UnitSource(NumberSource):
    """A source whose targets have mean zero and unit variance."""

    mean: float
    spread: float

    def _encode(self, batch: Batch) -> Batch:
        return replace(
            batch, y=(require_targets(batch).astype(np.float64) - self.mean) / self.spread
        )


def _added(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one + other for one, other in zip(a, b, strict=True))
