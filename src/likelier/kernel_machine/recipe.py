"""Fitting of a kernel machine: hyperparameters on a sample, then weights on all rows.

Rows in memory and streams differ only in the engine that passes over them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np

from likelier.base import Array, Batch, Engine, Matrix
from likelier.engines.rows import take_rows
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import checked_rows, is_stream, local_engine
from likelier.fitting.duplicates import settle_few
from likelier.fitting.extreme_cells import warn_extreme_cells
from likelier.fitting.hold_out import held_rows
from likelier.fitting.monitor import Callbacks, with_callbacks
from likelier.fitting.one_class import one_class_is_constant
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard, StandardRows
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.cost_model import affordable_components, timed
from likelier.kernel_machine.estimator import MIN_COMPONENTS
from likelier.kernel_machine.evidence import Plan, Scales, input_groups, learn_scales
from likelier.kernel_machine.features import IdentityMap, KernelMap, fourier_map, landmark_map
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.resumable_fit import ResumableFit, previous_model
from likelier.kernel_machine.resume import (
    CHECKPOINT_KEYS,
    FOLD_STAGES,
    WEIGHT_STAGES,
    AscentCheckpoint,
    load_checkpoint,
    save_choice,
    saved_choice,
)
from likelier.kernel_machine.search import Choice, Fold

SAMPLE_ROWS = 20_000  # rows to learn hyperparameters from
HOLD_OUT_FROM, HOLD_OUT_SHARE, HOLD_OUT_MOST = 1000, 0.2, 1000
SEARCH_ROWS, SEARCH_COMPONENTS = 2500, 384
N_FOLDS = len(FOLD_STAGES)
MIN_ROWS_PER_SCALE = 10  # rows per scale above which folds share the scales of all rows
CACHE_BYTES = 1 << 30  # limit for cached features; otherwise every pass recomputes them
STREAM_CACHE_BYTES = 1 << 28  # the same for streams, whose memory must stay bounded
FIT_BLOCK_ROWS = 2048
MAX_STOP_ROWS = 2048  # limit of held-out rows for early stopping
MIN_LARGEST_WEIGHT, MAX_LARGEST_WEIGHT = 1e-30, 1e30  # limits of the largest weight


class KernelFit(ResumableFit):
    """Fitting; targets, hyperparameter search and weights are left to the two public classes.

    ``_encode`` standardises or encodes targets, ``_evidence_targets`` gives the columns for the
    evidence, ``_learn_particle`` fits one set of weights, ``_store`` sets the fitted attributes.
    """

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), path or iterator
            Training rows. A path (CSV, Parquet, libsvm) or an iterator of ``(X, y)`` or
            ``(X, y, sample_weight)`` blocks is read in bounded memory.
        y : array-like of shape (n_samples,), or the target column of a path
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; a row of weight 2 counts as two rows, of weight 0 as none. Length scales
            and prior depend on relative weights only, so a common factor above one just narrows the
            posterior. Weights below one (e.g. normalised to sum to one) do not widen probabilities
            and intervals compared with rows of weight one. Equal rows are merged as duplicates of
            one observation, unless their targets often differ or there are few distinct rows, as in
            a table of counts: then each counts, and integer weights are such counts.
        """
        self._validate_parameters()
        saved = load_checkpoint(self)
        seed = int(saved["seed"]) if saved else self._seed()
        data = (None, None) if is_stream(X) else (X, y)
        callbacks = Callbacks(self, *data)
        budget = TimeBudget(self, data, seed=seed)
        budget.before, budget.kept = saved, {k: v for k, v in saved.items() if k in CHECKPOINT_KEYS}
        # restore the estimator if the data are rejected
        with unchanged_on_failure(self, (Exception,)), one_class_is_constant(self):
            self._fit_or_resume(X, y, sample_weight, seed, budget)
        callbacks.end()
        return self

    def _fit_or_resume(
        self, X: Any, y: Any, sample_weight: Any, seed: int, budget: TimeBudget
    ) -> None:
        """Start a fit, or resume from the checkpoint, which survives early interruptions."""
        try:
            if self._resumes_experts(X):
                self._resume_experts(X, y, sample_weight, seed, budget)
                return
            budget.model = previous_model(self) if budget.before else {}
            for name in ("stream_", "maps_", "particles_", "checkpoint_"):  # of an earlier fit
                self.__dict__.pop(name, None)
            if is_stream(X):
                self._fit_stream(X, y, sample_weight, seed, budget)
            else:
                rows = self._check_rows(X, y, sample_weight, reset=True)
                self._fit_memory(*rows, seed, budget)
        except KeyboardInterrupt:
            if budget.before and not getattr(self, "checkpoint_", None):
                self.checkpoint_ = budget.before
            raise

    def _resumes_experts(self, X: Any) -> bool:
        """Whether this fit resumes the experts of an interrupted one."""
        return False

    # -- rows in memory -----------------------------------------------------------------
    def _fit_memory(
        self, X: Matrix, y: Array, weight: Array | None, seed: int, budget: TimeBudget
    ) -> None:
        rows = self._merged(self._encoded(Rows(X, y, weight)).present())
        if self._stops_early():
            rows, budget.held = self._split_held_out(rows, seed)
        rng = np.random.default_rng([seed, 0])
        sample = rows
        if rows.n > SAMPLE_ROWS:
            sample = rows.take(np.sort(rng.permutation(rows.n)[:SAMPLE_ROWS]))
        engine = local_engine(rows.X, rows.y, rows.weight, seed, self.n_jobs, True, FIT_BLOCK_ROWS)
        with engine, one_blas_thread():
            self._fit_engine(engine, sample, rows.n, Standard.of(rows.X, rows.weight), rng, budget)

    def _encoded(self, rows: Rows) -> Rows:
        """Rows with encoded targets; zero-weight rows must not affect them."""
        rows = rows.present()
        y, weight = self._encode(rows.y, rows.weight)
        return Rows(rows.X, y, weight)

    def _merged(self, rows: Rows) -> Rows:
        """Rows with duplicates merged, where this is worthwhile."""
        return settle_few(rows)

    def _split_held_out(self, rows: Rows, seed: int) -> tuple[Rows, Rows]:
        """Split into training rows and held-out rows for early stopping, stratified by class."""
        fraction = min(float(self.validation_fraction), MAX_STOP_ROWS / rows.n)
        rng = np.random.default_rng([seed, 1])
        out = held_rows(self._strata(rows.y), fraction, rng)
        return rows.take(np.flatnonzero(~out)), rows.take(np.flatnonzero(out))

    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Matrix, Array, Array | None]:
        """Validated rows, targets and weights."""
        X, y, weight = checked_rows(self, X, y, sample_weight, reset, self._check_y)
        if weight is not None and not weight.any():
            raise ValueError("sample_weight is zero for every row; at least one must be positive")
        if weight is not None and not MIN_LARGEST_WEIGHT <= weight.max() <= MAX_LARGEST_WEIGHT:
            raise ValueError(
                f"sample_weight has the maximum {weight.max():.3g}, which must be between "
                f"{MIN_LARGEST_WEIGHT:g} and {MAX_LARGEST_WEIGHT:g}; divide it by its mean"
            )
        warn_extreme_cells(self, X, weight, tiny=False)
        return X, y, weight

    # -- hyperparameters ----------------------------------------------------------------
    def _held_rows(self, sample: Rows, rng: np.random.Generator) -> Array:
        """Held-out rows of the sample; none if it is small."""
        if sample.n < HOLD_OUT_FROM:
            return np.empty(0, dtype=np.intp)
        wanted = min(HOLD_OUT_SHARE * sample.n, HOLD_OUT_MOST)
        groups = self._strata(sample.y)
        parts = []
        for group in np.unique(groups):
            inside = rng.permutation(np.flatnonzero(groups == group))
            parts.append(inside[: round(wanted * len(inside) / sample.n)])
        return np.sort(np.concatenate(parts))

    def _strata(self, y: Array) -> Array:
        return np.zeros(len(y))

    def _plan(self, n_rows: int) -> Plan:
        """Schedule for learning the scales."""
        return Plan()

    def _prepare(
        self,
        sample: Rows,
        held: Array,
        standard: Standard,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> Prepared:
        """Learn the scales on the rows that are not held out."""
        inside = np.setdiff1d(np.arange(sample.n), held)
        given = self._given_gamma(sample.X.shape[1])
        Z = StandardRows.of(sample.X, standard)
        if given is not None:  # given in the units of the data
            scales = Scales(given * standard.spread(), 0.1, 1.0)
            return Prepared(standard, scales, Z, sample, self.features == "identity")
        if self.features == "identity":
            flat = np.full(Z.shape[1], max(1, Z.shape[1]) ** -0.5)
            return Prepared(standard, Scales(flat, 0.1, 1.0), Z, sample, centred=True)
        monitor = AscentCheckpoint(budget, self._plan(sample.n).n_steps)
        scales = self._learn_scales(Z, sample, inside, rng, monitor)
        return Prepared(standard, scales, Z, sample)

    def _resumable_choice(
        self, prepared: Prepared, held: Array, rng: np.random.Generator, budget: TimeBudget
    ) -> tuple[Choice, Any]:
        """Result of ``_choose``, or its checkpoint."""
        saved = saved_choice(budget, rng)
        if saved is None:
            choice, found = saved = self._choose(prepared, held, rng, budget)
            save_choice(budget, choice, found, rng)
        return saved

    def _learns_scales(self, n_features: int) -> bool:
        return self.features != "identity" and self._given_gamma(n_features) is None

    def _learn_scales(
        self,
        Z: StandardRows,
        sample: Rows,
        inside: Array,
        rng: np.random.Generator,
        monitor: AscentCheckpoint,
    ) -> Scales:
        targets, rows = self._evidence_targets(sample.y[inside]), Z.part(inside)
        return learn_scales(
            rows,
            targets,
            None if sample.weight is None else sample.weight[inside],
            rng,
            self._plan(sample.n),
            input_groups(rows, targets),
            monitor,
        )

    def _folds(
        self, prepared: Prepared, held: Array, rng: np.random.Generator, budget: TimeBudget
    ) -> list[Fold]:
        """Training and validation rows: one hold-out, or three folds.

        Scales learned from all rows have seen the validation fold. With many rows per scale this is
        negligible, and the scales are shared; with few, validation would favour too weak a prior,
        so every fold learns its own scales.
        """
        n, d = prepared.standardised.shape
        if len(held):
            inside = rng.permutation(np.setdiff1d(np.arange(n), held))[:SEARCH_ROWS]
            return [self._fold(prepared, inside, held, rng)]
        part = rng.permutation(n) % N_FOLDS
        folds = []
        for number in range(N_FOLDS):
            inside, outside = np.flatnonzero(part != number), np.flatnonzero(part == number)
            if not len(outside) or len(np.unique(prepared.sample.y[inside])) < 2:
                return []
            fold_prepared = prepared
            if n < MIN_ROWS_PER_SCALE * d and self._learns_scales(d):
                Z, sample = prepared.standardised, prepared.sample
                monitor = AscentCheckpoint(budget, self._plan(n).n_steps, FOLD_STAGES[number])
                scales = self._learn_scales(Z, sample, inside, rng, monitor)
                fold_prepared = replace(prepared, scales=scales)
            folds.append(self._fold(fold_prepared, rng.permutation(inside), outside, rng))
        return folds

    def _fold(
        self, prepared: Prepared, inside: Array, outside: Array, rng: np.random.Generator
    ) -> Fold:
        sample, key = prepared.sample, int(rng.integers(2**31))
        Z, centre, gamma = prepared.validation_rows()
        landmarks = Z[inside[:SEARCH_COMPONENTS]]

        def make_map(scale: float) -> KernelMap:
            return self._make_map(landmarks, centre, scale * gamma, key, SEARCH_COMPONENTS)

        def some(rows: Array) -> tuple[Matrix, Array, Array | None]:
            return Z[rows], sample.y[rows], None if sample.weight is None else sample.weight[rows]

        return Fold(make_map, *some(inside), *some(outside))

    def _make_map(
        self, landmarks: Matrix, centre: Array, gamma: Array, key: int, n_components: int
    ) -> KernelMap:
        if self.features == "identity":
            return IdentityMap(centre, gamma)
        if self.features == "fourier":
            return fourier_map(n_components, centre, gamma, np.random.default_rng(key))
        return landmark_map(landmarks, centre, gamma)

    def _final_map(
        self,
        prepared: Prepared,
        scale: float,
        n_rows: int,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> tuple[KernelMap, Array]:
        """Feature map of the final fit, in the units of the data, and its landmark rows."""
        wanted = self._affordable_components(prepared, scale, n_rows, budget)
        chosen = np.sort(rng.permutation(prepared.sample.n)[:wanted])
        arguments = (prepared.centre(), prepared.gamma(scale), int(rng.integers(2**31)), wanted)
        with budget.aside(*WEIGHT_STAGES):
            feature_map = self._make_map(take_rows(prepared.sample.X, chosen), *arguments)
        return feature_map, chosen

    def _affordable_components(
        self, prepared: Prepared, scale: float, n_rows: int, budget: TimeBudget
    ) -> int:
        """Number of features, by default limited by the time budget."""
        wanted = self._n_components(n_rows)
        if self.n_components != "auto" or self.features == "identity":
            return wanted

        def try_out() -> tuple[float, float]:
            rows = take_rows(prepared.sample.X, np.arange(min(prepared.sample.n, MIN_COMPONENTS)))
            arguments = (prepared.centre(), prepared.gamma(scale), 0, MIN_COMPONENTS)
            seconds, feature_map = timed(lambda: self._make_map(rows, *arguments))
            return seconds, self._row_seconds(feature_map, prepared.sample)

        return affordable_components(budget, wanted, MIN_COMPONENTS, n_rows, try_out)

    @abstractmethod
    def _row_seconds(self, feature_map: KernelMap, sample: Rows) -> float:
        """Cost per row of learning with these features."""

    def _features(
        self, engine: Engine, feature_map: KernelMap, n_rows: int
    ) -> tuple[Engine, Callable[[Batch], Array]]:
        """Engine over cached features if memory allows, else one that recomputes them."""
        if 4 * n_rows * feature_map.n_features > (
            CACHE_BYTES if engine.in_memory else STREAM_CACHE_BYTES
        ):
            return engine, lambda batch: feature_map(batch.X, np.float32)
        whole = np.empty((n_rows, feature_map.n_features), dtype=np.float32)
        parts, done = [], 0
        for Phi, *rest in engine.map_blocks(
            lambda b: (feature_map(b.X, np.float32), b.y, b.weight)
        ):
            whole[done : done + len(Phi)] = Phi
            done += len(Phi)
            parts.append(rest)
        y = np.concatenate([np.asarray(y) for y, _ in parts])
        weight = None if parts[0][1] is None else np.concatenate([w for _, w in parts])
        cached = local_engine(whole, y, weight, 0, self.n_jobs, True, FIT_BLOCK_ROWS)
        return cached, lambda batch: np.asarray(batch.X)
