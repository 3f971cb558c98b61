"""How a kernel machine is fitted: hyperparameters on a sample, then weights on all rows.

What depends on the kind of target is a `Task`; rows in memory and rows of a stream differ only
in the engine that passes over them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.callback import with_callbacks

from likelier.base import Array, Batch, Engine, Matrix
from likelier.engines import LocalEngine
from likelier.engines.rows import take_rows
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import checked_rows, is_stream
from likelier.fitting.duplicates import settle_few
from likelier.fitting.extreme_cells import warn_extreme_cells
from likelier.fitting.hold_out import held_rows
from likelier.fitting.one_class import one_class_is_constant
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard, StandardRows
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.estimator import MIN_COMPONENTS
from likelier.kernel_machine.evidence import Plan, Scales, input_groups, learn_scales
from likelier.kernel_machine.features import IdentityMap, KernelMap, fourier_map, landmark_map
from likelier.kernel_machine.going_on import GoingOn, earlier_model
from likelier.kernel_machine.pace import components_in_time, timed
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.resume import (
    FOLD_CLIMBS,
    KEPT,
    WEIGHT_STAGES,
    KeptClimb,
    keep_choice,
    kept_choice,
    left_over,
)
from likelier.kernel_machine.search import Choice, Fold

SAMPLE_ROWS = 20_000  # rows that hyperparameters are learned from
HOLD_OUT_FROM, HOLD_OUT_SHARE, HOLD_OUT_MOST = 1000, 0.2, 1000
SEARCH_ROWS, SEARCH_COMPONENTS = 2500, 384
SMALL_FOLDS = len(FOLD_CLIMBS)
SHARED_SCALES = 10  # rows for each scale from which on the parts share the scales of all rows
KEEP_BYTES = 1 << 30  # features that are kept in memory; beyond, every pass makes them again
KEEP_STREAM = 1 << 28  # and those of a stream, whose memory must stay bounded
HEAD_BLOCK = 2048
STOP_ROWS = 2048  # largest number of rows that are held out to stop by
LEAST_WEIGHT, MOST_WEIGHT = 1e-30, 1e30  # of the heaviest row


class KernelFit(GoingOn):
    """Fitting; targets, search and weights are left to the two public classes.

    ``_encode`` turns targets into numbers and sets what is known of them, ``_evidence_targets``
    gives the columns the evidence explains, ``_learn_particle`` finds the weights of one
    particle, ``_begin`` and ``_store`` frame the particles.
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
            Non-negative; a row of weight 2 counts as two rows, of weight 0 as none. Scales and
            prior are learned from rows as such: a common factor of all weights makes the
            weights of the model surer, not others. Weights below one, such as shares that add
            up to one, leave probabilities and intervals what rows of weight one make them.
            Equal rows are copies of one observation unless they often answer differently or
            there are few different ones, as in a table of counts: then each counts, and weights
            that are whole numbers are such counts.
        """
        self._validate_parameters()
        left = left_over(self)
        seed = int(left["seed"]) if left else self._seed()
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        budget = TimeBudget(self, (None, None) if is_stream(X) else (X, y), seed=seed)
        budget.before, budget.kept = left, {k: v for k, v in left.items() if k in KEPT}
        # data that are refused, and all else
        with unchanged_on_failure(self, (Exception,)), one_class_is_constant(self):
            self._fit_or_go_on(X, y, sample_weight, seed, budget)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _fit_or_go_on(
        self, X: Any, y: Any, sample_weight: Any, seed: int, budget: TimeBudget
    ) -> None:
        """Begin, or take up what an unfinished fit has left; interrupted early, that stays."""
        try:
            if self._goes_on(X):
                self._go_on(X, y, sample_weight, seed, budget)
                return
            budget.model = earlier_model(self) if budget.before else {}
            for name in ("stream_", "maps_", "particles_", "unfinished_"):  # of an earlier fit
                self.__dict__.pop(name, None)
            if is_stream(X):
                self._fit_stream(X, y, sample_weight, seed, budget)
            else:
                rows = self._check_rows(X, y, sample_weight, reset=True)
                self._fit_memory(*rows, seed, budget)
        except KeyboardInterrupt:
            if budget.before and not getattr(self, "unfinished_", None):
                self.unfinished_ = budget.before
            raise

    def _goes_on(self, X: Any) -> bool:
        """Whether this fit takes up an unfinished one, by ``_go_on``."""
        return False

    # -- rows in memory -----------------------------------------------------------------
    def _fit_memory(
        self, X: Matrix, y: Array, weight: Array | None, seed: int, budget: TimeBudget
    ) -> None:
        rows = self._merged(self._encoded(Rows(X, y, weight)).present())
        if self._stops_early():
            rows, budget.held = self._held_apart(rows, seed)
        rng = np.random.default_rng([seed, 0])
        sample = rows
        if rows.n > SAMPLE_ROWS:
            sample = rows.take(np.sort(rng.permutation(rows.n)[:SAMPLE_ROWS]))
        engine = LocalEngine(
            rows.X, rows.y, rows.weight, seed=seed, n_jobs=self.n_jobs, block_rows=HEAD_BLOCK
        )
        with engine, one_blas_thread():
            self._fit_engine(engine, sample, rows.n, Standard.of(rows.X, rows.weight), rng, budget)

    def _encoded(self, rows: Rows) -> Rows:
        """Rows with their targets as numbers; absent ones must not change a bit of these."""
        rows = rows.present()
        y, weight = self._encode(rows.y, rows.weight)
        return Rows(rows.X, y, weight)

    def _merged(self, rows: Rows) -> Rows:
        """Rows of which copies are one, as far as that is worth it."""
        return settle_few(rows)

    def _held_apart(self, rows: Rows, seed: int) -> tuple[Rows, Rows]:
        """Rows to learn from, and some of every class to stop by."""
        fraction = min(float(self.validation_fraction), STOP_ROWS / rows.n)
        rng = np.random.default_rng([seed, 1])
        out = held_rows(self._strata(rows.y), fraction, rng)
        return rows.take(np.flatnonzero(~out)), rows.take(np.flatnonzero(out))

    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Matrix, Array, Array | None]:
        """Validated rows, targets and weights."""
        X, y, weight = checked_rows(self, X, y, sample_weight, reset, self._check_y)
        if weight is not None and not weight.any():
            raise ValueError("sample_weight is zero for every row: there is nothing to learn from")
        if weight is not None and not LEAST_WEIGHT <= weight.max() <= MOST_WEIGHT:
            raise ValueError(
                f"sample_weight goes up to {weight.max():.3g}, where numbers lose their digits: "
                "divide it by its mean"
            )
        warn_extreme_cells(self, X, weight, tiny=False)
        return X, y, weight

    # -- hyperparameters ----------------------------------------------------------------
    def _held_rows(self, sample: Rows, rng: np.random.Generator) -> Array:
        """Rows of the sample to judge by; none where rows are few or nothing is chosen."""
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
        """How long scales are learned."""
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
        if given is not None:  # in the units of the data, where nothing is standardised
            scales = Scales(given * standard.spread(), 0.1, 1.0)
            return Prepared(standard, scales, Z, sample, self.features == "identity")
        if self.features == "identity":
            flat = np.full(Z.shape[1], max(1, Z.shape[1]) ** -0.5)
            return Prepared(standard, Scales(flat, 0.1, 1.0), Z, sample, centred=True)
        watch = KeptClimb(budget, self._plan(sample.n).n_steps)
        scales = self._learn_scales(Z, sample, inside, rng, watch)
        return Prepared(standard, scales, Z, sample)

    def _chosen(
        self, prepared: Prepared, held: Array, rng: np.random.Generator, budget: TimeBudget
    ) -> tuple[Choice, Any]:
        """What ``_choose`` finds, or has found for an unfinished fit."""
        known = kept_choice(budget, rng)
        if known is None:
            choice, found = known = self._choose(prepared, held, rng, budget)
            keep_choice(budget, choice, found, rng)
        return known

    def _learns_scales(self, n_features: int) -> bool:
        return self.features != "identity" and self._given_gamma(n_features) is None

    def _learn_scales(
        self,
        Z: StandardRows,
        sample: Rows,
        inside: Array,
        rng: np.random.Generator,
        watch: KeptClimb,
    ) -> Scales:
        targets, rows = self._evidence_targets(sample.y[inside]), Z.part(inside)
        return learn_scales(
            rows,
            targets,
            None if sample.weight is None else sample.weight[inside],
            rng,
            self._plan(sample.n),
            input_groups(rows, targets),
            watch,
        )

    def _folds(
        self, prepared: Prepared, held: Array, rng: np.random.Generator, budget: TimeBudget
    ) -> list[Fold]:
        """Rows to learn from and to judge by: one hold-out, or three parts in turn.

        Scales learned from all rows have seen the part that judges. With many rows for each
        scale that hardly shows, and the scales serve all parts; with few, rows that the scales
        were fitted to would call any prior too strong, so every part learns its own.
        """
        n, d = prepared.standardised.shape
        if len(held):
            inside = rng.permutation(np.setdiff1d(np.arange(n), held))[:SEARCH_ROWS]
            return [self._fold(prepared, inside, held, rng)]
        part = rng.permutation(n) % SMALL_FOLDS
        folds = []
        for number in range(SMALL_FOLDS):
            inside, outside = np.flatnonzero(part != number), np.flatnonzero(part == number)
            if not len(outside) or len(np.unique(prepared.sample.y[inside])) < 2:
                return []
            judged = prepared
            if n < SHARED_SCALES * d and self._learns_scales(d):
                Z, sample = prepared.standardised, prepared.sample
                watch = KeptClimb(budget, self._plan(n).n_steps, FOLD_CLIMBS[number])
                scales = self._learn_scales(Z, sample, inside, rng, watch)
                judged = replace(prepared, scales=scales)
            folds.append(self._fold(judged, rng.permutation(inside), outside, rng))
        return folds

    def _fold(
        self, prepared: Prepared, inside: Array, outside: Array, rng: np.random.Generator
    ) -> Fold:
        sample, key = prepared.sample, int(rng.integers(2**31))
        Z, centre, gamma = prepared.judged()
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
        """The map of all rows, in the units of the data, and the rows of the sample in it."""
        wanted = self._components_in_time(prepared, scale, n_rows, budget)
        chosen = np.sort(rng.permutation(prepared.sample.n)[:wanted])
        place = (prepared.centre(), prepared.gamma(scale), int(rng.integers(2**31)), wanted)
        with budget.aside(*WEIGHT_STAGES):
            made = self._make_map(take_rows(prepared.sample.X, chosen), *place)
        return made, chosen

    def _components_in_time(
        self, prepared: Prepared, scale: float, n_rows: int, budget: TimeBudget
    ) -> int:
        """Features as many as there are to be, or by default as many as there is time for."""
        wanted = self._n_components(n_rows)
        if self.n_components != "auto" or self.features == "identity":
            return wanted

        def try_out() -> tuple[float, float]:
            rows = take_rows(prepared.sample.X, np.arange(min(prepared.sample.n, MIN_COMPONENTS)))
            place = (prepared.centre(), prepared.gamma(scale), 0, MIN_COMPONENTS)
            seconds, made = timed(lambda: self._make_map(rows, *place))
            return seconds, self._row_seconds(made, prepared.sample)

        return components_in_time(budget, wanted, MIN_COMPONENTS, n_rows, try_out)

    @abstractmethod
    def _row_seconds(self, made: KernelMap, sample: Rows) -> float:
        """Seconds a row takes with such features until it has been learned."""

    def _features(
        self, engine: Engine, made: KernelMap, n_rows: int
    ) -> tuple[Engine, Callable[[Batch], Array]]:
        """An engine over the features where memory allows, else one that makes them each time."""
        if 4 * n_rows * made.n_features > (KEEP_BYTES if engine.in_memory else KEEP_STREAM):
            return engine, lambda batch: made(batch.X, np.float32)
        whole = np.empty((n_rows, made.n_features), dtype=np.float32)
        parts, done = [], 0
        for Phi, *rest in engine.map_blocks(lambda b: (made(b.X, np.float32), b.y, b.weight)):
            whole[done : done + len(Phi)] = Phi
            done += len(Phi)
            parts.append(rest)
        y = np.concatenate([np.asarray(y) for y, _ in parts])
        weight = None if parts[0][1] is None else np.concatenate([w for _, w in parts])
        kept = LocalEngine(whole, y, weight, n_jobs=self.n_jobs, block_rows=HEAD_BLOCK)
        return kept, lambda batch: np.asarray(batch.X)
