"""How a deep Gaussian process is fitted: rows in memory or from a stream, resumed or anew."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Batch, Engine, Matrix
from likelier.deep_gp.checkpoint import Checkpoint, mark_of
from likelier.deep_gp.estimator import DeepGPEstimator, require_jax
from likelier.deep_gp.posterior import DeepPosterior, removed_share, shared_normals
from likelier.deep_gp.start import LONG, KernelStart
from likelier.deep_gp.units import NOISE_FLOOR
from likelier.deep_gp.watch import Watch
from likelier.engines import LocalEngine, StreamEngine
from likelier.engines.rows import take_rows
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import checked_rows, is_stream, open_source, require_targets
from likelier.fitting.duplicates import settle_few, settle_many
from likelier.fitting.extreme_cells import warn_extreme_cells, watched
from likelier.fitting.hold_out import split_stream
from likelier.fitting.one_class import store_constant
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard
from likelier.fitting.targets import OneClassError
from likelier.fitting.time_budget import TimeBudget

VALIDATION_ROWS = 2000
FAR = 1e100  # spreads: from there on all kernels are zero, and squared distances may overflow


@dataclass(frozen=True)
class Task:
    """Everything the training needs besides the words."""

    engine: Engine
    standard: Standard
    total: float
    n_rows: int
    seed: int
    held: Rows | None = None
    checkpoint: Checkpoint | None = None
    mark: str = ""
    kernel: KernelStart | None = None
    power: float = 1.0


class DeepFit(DeepGPEstimator):
    """Fitting; what depends on the kind of target is left to the two public classes.

    ``_encode`` turns targets into numbers, ``_standardise`` gives them their units,
    ``_open_encoded`` does both for a stream, ``_outputs`` names the likelihood and how many
    outputs it has, ``_store_likelihood`` keeps its parameter, ``_log_density`` judges held-out
    rows, ``_find_power`` and ``_find_kernel`` say which power to train with and whether to keep a
    kernel instead of learning it.
    """

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), path or list of blocks
            Training rows. A path (CSV, Parquet, libsvm) or a list of ``(X, y)`` or ``(X, y,
            sample_weight)`` blocks (or a function that returns an iterator of them) is read in
            bounded memory, once for every pass.
        y : array-like of shape (n_samples,), or the target column of a path
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; a row of weight 2 counts as two rows, of weight 0 as none.
        """
        require_jax()
        self._validate_parameters()
        checkpoint = None if self.checkpoint is None else Checkpoint(Path(self.checkpoint))
        found = None if checkpoint is None else checkpoint.read()
        if checkpoint is not None:
            checkpoint.check_place()
        resumed = bool(self.warm_start) and hasattr(self, "training_")
        seed = int(self.training_["seed"]) if resumed else self._seed()
        seed = int(found["training"]["seed"]) if found else seed
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        budget = TimeBudget(self, (None, None) if is_stream(X) else (X, y))
        # a fit that fails, or is stopped before training, leaves an earlier one as it was;
        # LAPACK's own threads slow the compiled loop down many times
        refused = unchanged_on_failure(self, unless_new="training_")
        with ExitStack() as stack, refused, one_blas_thread():
            with unchanged_on_failure(self):
                earlier = dict(vars(self)) if resumed else {}
                try:
                    opened = self._open(X, y, sample_weight, not resumed, seed)
                except OneClassError as error:
                    if resumed:
                        raise
                    store_constant(self, error.classes)
                    context.call_on_fit_task_end(estimator=self, X=X, y=y)
                    return self
                task = stack.enter_context(opened)
                if resumed:
                    task = self._same_units(task, earlier)
                if checkpoint is not None:
                    task = replace(task, checkpoint=checkpoint, mark=self._mark(task))
                    if found:
                        checkpoint.check(found, task.mark)
                        self._take_up(found)
                task = self._chosen(task, resumed or bool(found), budget)
            self._train(task, resumed or bool(found), budget)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _same_units(self, task: Task, earlier: dict[str, Any]) -> Task:
        """The task for a fit that goes on: other classes, kernels or units would make it nonsense.

        So rows and targets are measured as those of the earlier fit were, even if they are others.
        """
        known, found = (list(one.get("classes_", ())) for one in (earlier, vars(self)))
        if known != found:
            raise ValueError(
                f"warm_start goes on with the classes {known}, but y now holds {found}; fit with "
                "warm_start=False"
            )
        for word in ("kernel", "node_kernels"):
            if getattr(self, word) != earlier[f"{word}_"]:
                raise ValueError(
                    f"warm_start goes on with {word}={earlier[f'{word}_']!r}, but it is now "
                    f"{getattr(self, word)!r}; set it back, or fit with warm_start=False"
                )
        standard = Standard(earlier["input_mean_"], earlier["input_inverse_"])
        return replace(task, standard=standard)

    # -- where the rows come from ----------------------------------------------------------
    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Matrix, Array, Array | None]:
        """Validated rows, targets and weights."""
        rows = checked_rows(self, X, y, sample_weight, reset, self._check_y)
        warn_extreme_cells(self, rows[0], rows[2], tiny=False)
        return rows

    def _open(self, X: Any, y: Any, sample_weight: Any, reset: bool, seed: int) -> _Opened:
        self.__dict__.pop("constant_", None)
        if is_stream(X):
            return _Opened(self._open_stream(X, y, sample_weight, seed), lambda: None)
        return self._open_memory(*self._check_rows(X, y, sample_weight, reset=reset), seed)

    def _open_memory(self, X: Matrix, y: Array, weight: Array | None, seed: int) -> _Opened:
        """Encoded rows, copies merged where they are few."""
        codes, weight = self._encode(y, weight)  # classes whose rows weigh nothing are classes
        if weight is not None and not weight.all():
            present = np.flatnonzero(weight)
            X, codes, weight = take_rows(X, present), codes[present], weight[present]
        rows, held = settle_few(Rows(X, codes, weight)), None
        if self.early_stopping:  # a row held out must not find itself in a copy
            rows = settle_many(rows)
        rows = replace(rows, y=self._standardise(rows.y, rows.weight))
        if self.early_stopping and rows.n > 1:
            order = np.random.default_rng([seed, 3]).permutation(rows.n)
            n_held = min(max(1, round(self._held_fraction(rows.n) * rows.n)), rows.n - 1)
            held, rows = rows.take(order[:n_held]), rows.take(order[n_held:])
        total = float(rows.n if rows.weight is None else rows.weight.sum())
        engine = LocalEngine(rows.X, rows.y, rows.weight, seed=seed)
        standard = self._scaling(Standard.of(rows.X, rows.weight))
        return _Opened(Task(engine, standard, total, rows.n, seed, held), engine.close)

    def _open_stream(self, X: Any, y: Any, sample_weight: Any, seed: int) -> Task:
        if sample_weight is not None:
            raise ValueError(
                "sample_weight of a stream comes with its blocks: yield (X, y, weight)"
            )
        source = watched(open_source(self, X, y), self)
        if not source.repeatable:
            raise ValueError(
                "training passes over the data many times, and X can be read once only: give a "
                "path, a list of blocks or a function that returns a fresh iterator"
            )
        encoded, n_rows, total, standard = self._open_encoded(source, seed)
        held = None
        if self.early_stopping:
            fraction = self._held_fraction(n_rows)
            encoded, n_rows, total, held = split_stream(encoded, fraction, VALIDATION_ROWS, seed)
        engine = StreamEngine(encoded, seed=seed)
        engine.know_rows(n_rows)
        return Task(engine, self._scaling(standard), total, n_rows, seed, held)

    def _held_fraction(self, n_rows: int) -> float:
        """Share to hold out: rows that judging does not need are learned from."""
        return min(float(self.validation_fraction), VALIDATION_ROWS / n_rows)

    # -- training --------------------------------------------------------------------------
    def _train(self, task: Task, resumed: bool, budget: TimeBudget) -> None:
        from likelier.deep_gp.adam import DeepAdam  # loads JAX

        inference = DeepAdam(
            task.standard, task.total, task.power, self._n_steps(task.n_rows),
            int(self.batch_size), float(self.learning_rate), int(self.n_draws),
            self._least_noise(), task.seed, task.kernel,
        )  # fmt: skip
        state = self._first_state(inference, task, resumed)
        watch = Watch(self, inference, task, budget, state.step)
        try:
            if resumed:
                watch.recall(state, self.training_)
            steps = _steps(inference, state, task.engine, budget)
            while not watch.enough and (step := next(steps, None)) is not None:
                watch(*step)
        except KeyboardInterrupt:  # keep what has been learned so far, if anything has
            if watch.latest is not None or resumed:
                watch.store(watch.latest or state)
                self._store_energy(watch)
                self._write_checkpoint(task)
            raise
        watch.finish(state)
        self._store_energy(watch)
        if task.checkpoint is not None:
            task.checkpoint.remove()
        if watch.latest is not None and not np.isfinite(watch.energy):
            self._report_divergence()

    def _store_energy(self, watch: Watch) -> None:
        if watch.latest is not None or not hasattr(self, "energy_"):  # no step, no new energy
            self.energy_ = watch.energy

    def _report_divergence(self) -> None:
        """Warn, or raise where nothing can be predicted."""
        text = (
            f"training diverged with learning_rate={self.learning_rate}: the energy is not finite; "
            "choose a smaller one"
        )
        if not self._posterior().is_finite():
            raise ValueError(text)
        # who called fit, past the wrapper of callbacks
        warnings.warn(text, ConvergenceWarning, stacklevel=5)

    def _chosen(self, task: Task, resumed: bool, budget: TimeBudget) -> Task:
        """The task with the power and a kernel to keep; a fit that goes on keeps its own."""
        if resumed:
            power = self.training_["power"] if self.power == "auto" else self.power
            kernel = LONG if self.training_.get("long", False) else None
            self._check_resumed(kernel)
            return replace(task, power=float(power), kernel=kernel)
        budget.say("choosing by rows held out what the words leave open")
        task = replace(task, power=self._find_power(task))
        return replace(task, kernel=self._find_kernel(task))

    def _check_resumed(self, kernel: KernelStart | None) -> None:
        """Raise where the word asks for another kernel than the one that a fit goes on with."""
        known = "learned" if kernel is None else "long"
        if self.length_scales not in ("auto", known):
            raise ValueError(
                f"warm_start goes on with length_scales={known!r}, but it is now "
                f"{self.length_scales!r}; set it back, or fit with warm_start=False"
            )

    def _least_noise(self) -> float:
        """Least noise variance of numbers, in the units of the targets."""
        return NOISE_FLOOR

    def _mark(self, task: Task) -> str:
        """Mark of the words and of the moments of rows and targets, each and together."""

        def moments(batch: Batch) -> Array:
            weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
            y = np.asarray(require_targets(batch), dtype=np.float64)
            return np.concatenate([[weight @ y, weight @ y**2], batch.X.T @ (weight * y)])

        standard, known = task.standard, self.__dict__
        words = {**self.get_params(deep=False), "classes": list(known.get("classes_", ()))}
        data = (
            task.n_rows, task.total, standard.mean, standard.inverse,
            known.get("target_mean_", 0.0), known.get("target_spread_", 0.0),
            task.engine.reduce(moments, np.add),
        )  # fmt: skip
        return mark_of(words, data)

    def _write_checkpoint(self, task: Task) -> None:
        """What `_store` keeps, to the file."""
        if task.checkpoint is not None:
            content = {"layers": self.layers_, "projections": self.projections_,
                       "likelihood": self.likelihood_, "training": self.training_,
                       "mark": task.mark}  # fmt: skip
            task.checkpoint.write(content)

    def _take_up(self, found: dict[str, Any]) -> None:
        self.layers_, self.projections_ = found["layers"], found["projections"]
        self.likelihood_, self.training_ = found["likelihood"], found["training"]

    def _first_state(self, inference: Any, task: Task, resumed: bool) -> Any:
        from likelier.deep_gp.model import DeepGP
        from likelier.deep_gp.start import Start

        likelihood, n_outputs = self._outputs()
        model = DeepGP(
            self._widths(len(task.standard.mean), n_outputs), self._n_inducing(task.n_rows),
            int(self.n_samples), self.kernel, bool(self.node_kernels), likelihood, self.dtype,
        )  # fmt: skip
        if not resumed:
            return inference.init(model, task.engine)
        found = (self.layers_[0]["inducing"].shape[1], *(len(p["mean"]) for p in self.layers_))
        if found != model.widths:
            raise ValueError(
                f"warm_start goes on with {found} nodes, but the words and data now ask for "
                f"{model.widths}; fit with warm_start=False"
            )
        model = replace(model, n_inducing=len(self.layers_[0]["inducing"]))
        start = Start(self.layers_, self.projections_)
        return inference.resume(model, start, self.likelihood_, self.training_, task.engine)

    def _store(self, state: Any, task: Task) -> None:
        """Fitted attributes: plain arrays."""
        from likelier.deep_gp.adam import plain_state

        plain = plain_state(state)
        self.layers_, self.likelihood_ = plain.pop("layers"), plain.pop("likelihood")
        self.projections_ = [np.asarray(B) for B in state.projections]
        self.kernel_, self.node_kernels_ = state.model.kernel, state.model.per_node
        self.training_ = {**plain, "seed": task.seed, "power": task.power}
        self.power_, self.removed_ = task.power, removed_share(task.power, task.total)
        if task.kernel is not None:
            self.training_["long"] = True
        self.input_mean_, self.input_inverse_ = task.standard.mean, task.standard.inverse
        # the logarithm of a noise that depends on the inputs is sampled as hidden nodes are
        n_sampled = sum(state.model.widths[1:-1]) + (state.model.likelihood == "heteroscedastic")
        self.normals_ = shared_normals(int(self.n_draws), n_sampled, task.seed)
        self.n_iter_ = state.step
        self._store_likelihood()

    # -- prediction ------------------------------------------------------------------------
    def _posterior(self) -> DeepPosterior:
        check_is_fitted(self, "layers_")
        removed = self.__dict__.get("removed_", 0.0)  # models of earlier versions hold q itself
        return DeepPosterior(self.layers_, self.projections_, self.kernel_, self.normals_, removed)

    def _moments(self, X: Any) -> Generator[tuple[Array, Array], None, None]:
        """Mean and variance of the outputs of validated rows, ``(rows, S, P)``, by blocks."""
        posterior = self._posterior()
        standard = Standard(self.input_mean_, self.input_inverse_)
        for start in range(0, X.shape[0], VALIDATION_ROWS):
            with np.errstate(over="ignore"):
                Z = standard.apply(X[start : start + VALIDATION_ROWS], np.float64)
            yield from posterior.moments(np.clip(Z, -FAR, FAR))


@dataclass(frozen=True)
class _Opened:
    """A task whose engine is closed at the end."""

    task: Task
    close: Callable[[], None]

    def __enter__(self) -> Task:
        return self.task

    def __exit__(self, *error: object) -> None:
        self.close()


def _steps(
    inference: Any, state: Any, engine: Engine, budget: TimeBudget
) -> Generator[tuple[Any, Any], None, None]:
    """Steps up to the end of the schedule, which a time budget may bring nearer."""
    n_done, since = 0, 0.0
    while state.step < state.horizon:
        before = state.step
        state, info = inference.step(state, engine)
        yield state, info
        now = time.perf_counter()
        if n_done == 0 and not since:  # the first call may have compiled
            since = now
        else:
            n_done += state.step - before
        if (left := budget.left) is not None:
            pace = (now - since) / n_done if n_done else 0.0
            more = int(left / pace) if pace > 0.0 else state.horizon
            horizon = min(inference.max_iter, state.step + more) if left > 0.0 else state.step
            state = replace(state, horizon=horizon)
