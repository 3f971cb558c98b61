"""Fitting of a deep Gaussian process: from memory or a stream, new or resumed."""

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
from likelier.deep_gp.checkpoint import Checkpoint, fingerprint
from likelier.deep_gp.estimator import DeepGPEstimator, require_jax
from likelier.deep_gp.monitor import TrainingMonitor
from likelier.deep_gp.posterior import DeepPosterior, cavity_fraction, shared_normals
from likelier.deep_gp.start import LONG, FixedKernel
from likelier.deep_gp.target_scale import NOISE_FLOOR
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
MAX_STANDARDISED = (
    1e100  # standard deviations; beyond, kernels are zero and squared distances may overflow
)


@dataclass(frozen=True)
class Task:
    """Everything that training needs besides the estimator's parameters."""

    engine: Engine
    standard: Standard
    total: float
    n_rows: int
    seed: int
    held: Rows | None = None
    checkpoint: Checkpoint | None = None
    fingerprint: str = ""
    kernel: FixedKernel | None = None
    power: float = 1.0


class DeepFit(DeepGPEstimator):
    """Fitting; the two public classes implement everything that depends on the kind of target.

    ``_encode`` makes targets numeric, ``_standardise`` scales them, ``_open_encoded`` does both for
    a stream, ``_outputs`` returns the likelihood and its number of outputs, ``_store_likelihood``
    stores its parameter, ``_log_density`` scores held-out rows, ``_find_power`` and
    ``_find_kernel`` choose the power and, optionally, a fixed kernel.
    """

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), path or list of blocks
            Training rows. A path (CSV, Parquet, libsvm) or a list of ``(X, y)`` or ``(X, y,
            sample_weight)`` blocks, or a function that returns an iterator of them, is streamed
            in bounded memory, once per pass.
        y : array-like of shape (n_samples,), or the target column of a path
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights; weight 2 is equivalent to two rows, weight 0 to none.
        """
        require_jax()
        self._validate_parameters()
        checkpoint = None if self.checkpoint is None else Checkpoint(Path(self.checkpoint))
        found = None if checkpoint is None else checkpoint.read()
        if checkpoint is not None:
            checkpoint.check_writable()
        resumed = bool(self.warm_start) and hasattr(self, "training_")
        seed = int(self.training_["seed"]) if resumed else self._seed()
        seed = int(found["training"]["seed"]) if found else seed
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        budget = TimeBudget(self, (None, None) if is_stream(X) else (X, y))
        # a fit that fails, or is interrupted before training, leaves an earlier one unchanged;
        # the threads of BLAS and LAPACK would slow the compiled loop down many times
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
                    task = self._keep_standardisation(task, earlier)
                if checkpoint is not None:
                    task = replace(task, checkpoint=checkpoint, fingerprint=self._fingerprint(task))
                    if found:
                        checkpoint.check(found, task.fingerprint)
                        self._restore(found)
                task = self._choose_power_and_kernel(task, resumed or bool(found), budget)
            self._train(task, resumed or bool(found), budget)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _keep_standardisation(self, task: Task, earlier: dict[str, Any]) -> Task:
        """The task of a resumed fit, with the standardisation of the earlier one.

        Raise if classes or kernels differ, because the learned parameters would be meaningless.
        """
        known, found = (list(one.get("classes_", ())) for one in (earlier, vars(self)))
        if known != found:
            raise ValueError(
                f"warm_start cannot change the classes: the earlier fit has {known}, but y has "
                f"{found}; fit with warm_start=False"
            )
        for name in ("kernel", "node_kernels"):
            if getattr(self, name) != earlier[f"{name}_"]:
                raise ValueError(
                    f"warm_start cannot change {name} from {earlier[f'{name}_']!r} to "
                    f"{getattr(self, name)!r}; restore it, or fit with warm_start=False"
                )
        standard = Standard(earlier["input_mean_"], earlier["input_inverse_"])
        return replace(task, standard=standard)

    # -- data ------------------------------------------------------------------------------
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
        """Encoded rows; duplicates are merged if there are few rows."""
        codes, weight = self._encode(y, weight)  # classes with zero total weight are kept
        if weight is not None and not weight.all():
            present = np.flatnonzero(weight)
            X, codes, weight = take_rows(X, present), codes[present], weight[present]
        rows, held = settle_few(Rows(X, codes, weight)), None
        if self.early_stopping:  # no duplicates of held-out rows in the training rows
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
                "sample_weight is not supported for a stream; yield blocks (X, y, sample_weight)"
            )
        source = watched(open_source(self, X, y), self)
        if not source.repeatable:
            raise ValueError(
                "X can be read only once, but training needs several passes; pass a path, a list "
                "of blocks or a function that returns a new iterator"
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
        """Fraction to hold out; at most `VALIDATION_ROWS` rows."""
        return min(float(self.validation_fraction), VALIDATION_ROWS / n_rows)

    # -- training --------------------------------------------------------------------------
    def _train(self, task: Task, resumed: bool, budget: TimeBudget) -> None:
        from likelier.deep_gp.adam import DeepAdam  # loads JAX

        inference = DeepAdam(
            task.standard, task.total, task.power, self._n_steps(task.n_rows),
            int(self.batch_size), float(self.learning_rate), int(self.n_draws),
            self._noise_floor(), task.seed, task.kernel,
        )  # fmt: skip
        state = self._first_state(inference, task, resumed)
        monitor = TrainingMonitor(self, inference, task, budget, state.step)
        try:
            if resumed:
                monitor.restore(state, self.training_)
            steps = _steps(inference, state, task.engine, budget)
            while not monitor.should_stop and (step := next(steps, None)) is not None:
                monitor(*step)
        except KeyboardInterrupt:  # save the state for a resumed fit
            if monitor.latest is not None or resumed:
                monitor.save(monitor.latest or state)
                self._store_energy(monitor)
                self._write_checkpoint(task)
            raise
        monitor.finish(state)
        self._store_energy(monitor)
        if task.checkpoint is not None:
            task.checkpoint.remove()
        if monitor.latest is not None and not np.isfinite(monitor.energy):
            self._report_divergence()

    def _store_energy(self, monitor: TrainingMonitor) -> None:
        # a fit without any step keeps the earlier energy
        if monitor.latest is not None or not hasattr(self, "energy_"):
            self.energy_ = monitor.energy

    def _report_divergence(self) -> None:
        """Warn, or raise if predictions are not finite."""
        text = (
            f"training diverged with learning_rate={self.learning_rate}: the energy is not finite; "
            "choose a smaller learning_rate"
        )
        if not self._posterior().is_finite():
            raise ValueError(text)
        # the caller of fit, beyond the wrapper of callbacks
        warnings.warn(text, ConvergenceWarning, stacklevel=5)

    def _choose_power_and_kernel(self, task: Task, resumed: bool, budget: TimeBudget) -> Task:
        """The task with its power and fixed kernel, if any; a resumed fit keeps its own."""
        if resumed:
            power = self.training_["power"] if self.power == "auto" else self.power
            kernel = LONG if self.training_.get("long", False) else None
            self._check_resumed(kernel)
            return replace(task, power=float(power), kernel=kernel)
        budget.say("choosing power and length_scales by held-out log density")
        task = replace(task, power=self._find_power(task))
        return replace(task, kernel=self._find_kernel(task))

    def _check_resumed(self, kernel: FixedKernel | None) -> None:
        """Raise if ``length_scales`` does not match the kernel of the fit to resume."""
        known = "learned" if kernel is None else "long"
        if self.length_scales not in ("auto", known):
            raise ValueError(
                f"warm_start cannot change length_scales from {known!r} to "
                f"{self.length_scales!r}; restore it, or fit with warm_start=False"
            )

    def _noise_floor(self) -> float:
        """Minimum noise variance of standardised targets."""
        return NOISE_FLOOR

    def _fingerprint(self, task: Task) -> str:
        """Hash of the parameters and of the moments and cross moments of rows and targets."""

        def moments(batch: Batch) -> Array:
            weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
            y = np.asarray(require_targets(batch), dtype=np.float64)
            return np.concatenate([[weight @ y, weight @ y**2], batch.X.T @ (weight * y)])

        standard, known = task.standard, self.__dict__
        params = {**self.get_params(deep=False), "classes": list(known.get("classes_", ()))}
        data = (
            task.n_rows, task.total, standard.mean, standard.inverse,
            known.get("target_mean_", 0.0), known.get("target_scale_", 0.0),
            task.engine.reduce(moments, np.add),
        )  # fmt: skip
        return fingerprint(params, data)

    def _write_checkpoint(self, task: Task) -> None:
        """Write the attributes that a resumed fit needs to the file."""
        if task.checkpoint is not None:
            content = {"layers": self.layers_, "projections": self.projections_,
                       "likelihood": self.likelihood_, "training": self.training_,
                       "fingerprint": task.fingerprint}  # fmt: skip
            task.checkpoint.write(content)

    def _restore(self, found: dict[str, Any]) -> None:
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
                f"warm_start cannot change the numbers of inputs, nodes and outputs from {found} "
                f"to {model.widths}; fit with warm_start=False"
            )
        model = replace(model, n_inducing=len(self.layers_[0]["inducing"]))
        start = Start(self.layers_, self.projections_)
        return inference.resume(model, start, self.likelihood_, self.training_, task.engine)

    def _store(self, state: Any, task: Task) -> None:
        """Store a state as fitted attributes, which are NumPy arrays."""
        from likelier.deep_gp.adam import plain_state

        plain = plain_state(state)
        self.layers_, self.likelihood_ = plain.pop("layers"), plain.pop("likelihood")
        self.projections_ = [np.asarray(B) for B in state.projections]
        self.kernel_, self.node_kernels_ = state.model.kernel, state.model.per_node
        self.training_ = {**plain, "seed": task.seed, "power": task.power}
        self.power_, self.removed_ = task.power, cavity_fraction(task.power, task.total)
        if task.kernel is not None:
            self.training_["long"] = True
        self.input_mean_, self.input_inverse_ = task.standard.mean, task.standard.inverse
        # heteroscedastic log noise is sampled like hidden nodes
        n_sampled = sum(state.model.widths[1:-1]) + (state.model.likelihood == "heteroscedastic")
        self.normals_ = shared_normals(int(self.n_draws), n_sampled, task.seed)
        self.n_iter_ = state.step
        self._store_likelihood()

    # -- prediction ------------------------------------------------------------------------
    def _posterior(self) -> DeepPosterior:
        check_is_fitted(self, "layers_")
        removed = self.__dict__.get("removed_", 0.0)  # models of earlier versions store q itself
        return DeepPosterior(self.layers_, self.projections_, self.kernel_, self.normals_, removed)

    def _moments(self, X: Any) -> Generator[tuple[Array, Array], None, None]:
        """Mean and variance of the outputs of validated rows, ``(rows, S, P)``, block by block."""
        posterior = self._posterior()
        standard = Standard(self.input_mean_, self.input_inverse_)
        for start in range(0, X.shape[0], VALIDATION_ROWS):
            with np.errstate(over="ignore"):
                Z = standard.apply(X[start : start + VALIDATION_ROWS], np.float64)
            yield from posterior.moments(np.clip(Z, -MAX_STANDARDISED, MAX_STANDARDISED))


@dataclass(frozen=True)
class _Opened:
    """Context manager of a task that closes its engine."""

    task: Task
    close: Callable[[], None]

    def __enter__(self) -> Task:
        return self.task

    def __exit__(self, *error: object) -> None:
        self.close()


def _steps(
    inference: Any, state: Any, engine: Engine, budget: TimeBudget
) -> Generator[tuple[Any, Any], None, None]:
    """Steps up to the end of the schedule, which a time budget may shorten."""
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
        if (remaining := budget.left) is not None:
            step_time = (now - since) / n_done if n_done else 0.0
            more = int(remaining / step_time) if step_time > 0.0 else state.horizon
            horizon = min(inference.max_iter, state.step + more) if remaining > 0.0 else state.step
            state = replace(state, horizon=horizon)
