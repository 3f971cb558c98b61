"""Fitting of a deep Gaussian process: data, choices, first state, training."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from contextlib import closing
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Engine, Matrix
from likelier.deep_gp.estimator import DeepGPEstimator
from likelier.deep_gp.posterior import ClassifierPosterior, RegressorPosterior, require_jax
from likelier.deep_gp.propagation import cavity_fraction
from likelier.deep_gp.start import FixedKernel, shared_normals
from likelier.deep_gp.target_scale import NOISE_FLOOR
from likelier.engines.rows import take_rows
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import (
    checked_rows,
    is_stream,
    local_engine,
    open_source,
    stream_engine,
)
from likelier.fitting.duplicates import settle_few, settle_many
from likelier.fitting.estimator import fitting
from likelier.fitting.extreme_cells import warn_extreme_cells, watched
from likelier.fitting.hold_out import StreamPart, split_stream
from likelier.fitting.monitor import Monitor, with_callbacks
from likelier.fitting.one_class import one_class_is_constant
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard

VALIDATION_ROWS = 2000


@dataclass(frozen=True)
class StreamTargets:
    """What a pass over a stream has found, and the stream with encoded targets.

    Attributes
    ----------
    source : callable
    n_rows : int
    total : float
        Sum of the weights.
    standard : Standard
        Of the inputs.
    """

    source: Any
    n_rows: int
    total: float
    standard: Standard


@dataclass(frozen=True)
class Task:
    """Everything that training needs besides the estimator's parameters."""

    engine: Engine
    standard: Standard
    total: float
    n_rows: int
    seed: int
    held: Rows | None = None
    kernel: FixedKernel | None = None
    power: float = 1.0


class DeepFit(DeepGPEstimator):
    """Fitting; the two public classes implement everything that depends on the kind of target."""

    _default_draws: ClassVar[int]

    # -- what a subclass says ----------------------------------------------------------------
    @abstractmethod
    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Make checked targets numbers; class weights multiply the others."""

    @abstractmethod
    def _standardise(self, y: Array, weight: Array | None) -> Array:
        """Scale encoded targets."""

    @abstractmethod
    def _stream_targets(self, source: Any, seed: int, monitor: Monitor) -> StreamTargets:
        """Encode and scale the targets of a stream, by a pass over it."""

    @abstractmethod
    def _outputs(self) -> tuple[str, int]:
        """The likelihood, and its number of outputs."""

    @abstractmethod
    def _noise(self, likelihood: Array) -> dict[str, Any]:
        """Fitted attributes from the parameter of the likelihood."""

    @abstractmethod
    def _find_power(self, task: Task, monitor: Monitor) -> float:
        """Choose the power."""

    @abstractmethod
    def _find_kernel(self, task: Task, monitor: Monitor) -> FixedKernel | None:
        """Choose a fixed kernel, or None to learn it."""

    @abstractmethod
    def _posterior_of(self, fitted: Any) -> ClassifierPosterior | RegressorPosterior:
        """Make the posterior of attributes."""

    # -- fitting -----------------------------------------------------------------------------
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

        Notes
        -----
        A fit that fails or is interrupted leaves the model as it was.
        """
        require_jax()
        self._validate_params()
        seed = self._seed()
        around = fitting(self, X, y, sample_weight)
        # the threads of BLAS and LAPACK would slow the compiled loop down many times
        with around as monitor, one_class_is_constant(self), one_blas_thread():
            task = self._open(X, y, sample_weight, seed, monitor)
            with closing(task.engine):
                task = replace(task, power=self._find_power(task, monitor))
                task = replace(task, kernel=self._find_kernel(task, monitor))
                training = self._train(task, monitor)
            self.__dict__.update(self._attributes(training.chosen, task), energy_=training.energy)
        return self

    # -- data ------------------------------------------------------------------------------
    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Matrix, Array, Array | None]:
        """Validated rows, targets and weights."""
        rows = checked_rows(self, X, y, sample_weight, reset, self._check_y)
        warn_extreme_cells(self, rows[0], rows[2], tiny=False)
        return rows

    def _open(self, X: Any, y: Any, sample_weight: Any, seed: int, monitor: Monitor) -> Task:
        """The rows of the fit."""
        if is_stream(X, y):
            return self._open_stream(X, y, sample_weight, seed, monitor)
        return self._open_memory(*self._check_rows(X, y, sample_weight, reset=True), seed)

    def _open_memory(self, X: Matrix, y: Array, weight: Array | None, seed: int) -> Task:
        """Encoded rows; duplicates are merged if there are few rows."""
        codes, weight = self._encode(y, weight)  # classes with zero total weight are kept
        if weight is not None and not weight.all():
            present = np.flatnonzero(weight)
            X, codes, weight = take_rows(X, present), codes[present], weight[present]
        rows, held = settle_few(Rows(X, codes, weight)), None
        if self._power_ep.early_stopping:  # no duplicates of held-out rows in the training rows
            rows = settle_many(rows)
        rows = replace(rows, y=self._standardise(rows.y, rows.weight))
        if self._power_ep.early_stopping and rows.n > 1:
            order = np.random.default_rng([seed, 3]).permutation(rows.n)
            n_held = min(max(1, round(self._held_fraction(rows.n) * rows.n)), rows.n - 1)
            held, rows = rows.take(order[:n_held]), rows.take(order[n_held:])
        total = float(rows.n if rows.weight is None else rows.weight.sum())
        engine = local_engine(rows.X, rows.y, rows.weight, seed, 1, True)
        standard = self._scaling(Standard.of(rows.X, rows.weight))
        return Task(engine, standard, total, rows.n, seed, held)

    def _open_stream(self, X: Any, y: Any, sample_weight: Any, seed: int, monitor: Monitor) -> Task:
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
        found = self._stream_targets(source, seed, monitor)
        encoded, n_rows, total, held = found.source, found.n_rows, found.total, None
        if self._power_ep.early_stopping:
            fraction = self._held_fraction(n_rows)
            n_rows, total, held = monitor.stage(
                "held-out rows",
                lambda: split_stream(found.source, fraction, VALIDATION_ROWS, seed)[1:],
            )
            encoded = StreamPart(found.source, fraction, seed, False)
        engine = stream_engine(encoded, seed, True)
        engine.know_rows(n_rows)
        return Task(engine, self._scaling(found.standard), total, n_rows, seed, held)

    def _held_fraction(self, n_rows: int) -> float:
        """Fraction to hold out; at most `VALIDATION_ROWS` rows."""
        return min(float(self._power_ep.validation_fraction), VALIDATION_ROWS / n_rows)

    # -- training --------------------------------------------------------------------------
    def _train(self, task: Task, monitor: Monitor) -> Any:
        """The `Training` of a task; nothing is stored."""
        from likelier.deep_gp.adam import DeepAdam  # loads JAX
        from likelier.deep_gp.training import Validation, train

        settings = self._power_ep
        inference = DeepAdam(
            task.standard, task.total, task.power, self._n_steps(task.n_rows),
            int(settings.batch_size), float(settings.learning_rate), self._n_draws(),
            self._noise_floor(), task.seed, task.kernel,
        )  # fmt: skip
        state = monitor.stage("start", lambda: self._first_state(inference, task))
        validation = None
        if task.held is not None:
            patience = int(settings.n_iter_no_change)
            validation = Validation(task.held, lambda s: self._posterior(s, task), patience)
        monitor.attributes = lambda state: self._attributes(state, task)
        training = train(inference, state, task.engine, monitor, validation)
        if not np.isfinite(training.energy):
            self._report_divergence(self._posterior(training.chosen, task))
        return training

    def _report_divergence(self, posterior: ClassifierPosterior | RegressorPosterior) -> None:
        """Warn, or raise if predictions are not finite."""
        text = (
            f"training diverged with inference.learning_rate={self._power_ep.learning_rate}: the "
            "energy is not finite; choose a smaller one"
        )
        if not posterior.outputs.function.is_finite():
            raise ValueError(text)
        # the caller of fit, beyond the wrapper of callbacks
        warnings.warn(text, ConvergenceWarning, stacklevel=5)

    def _noise_floor(self) -> float:
        """Minimum noise variance of standardised targets."""
        return NOISE_FLOOR

    def _first_state(self, inference: Any, task: Task) -> Any:
        from likelier.deep_gp.model import DeepGP

        likelihood, n_outputs = self._outputs()
        kernel, settings = self._ard, self._power_ep
        model = DeepGP(
            self._widths(len(task.standard.mean), n_outputs), self._n_inducing(task.n_rows),
            int(settings.n_samples), kernel.shape, bool(kernel.per_node), likelihood,
            settings.dtype,
        )  # fmt: skip
        return inference.init(model, task.engine)

    def _n_draws(self) -> int:
        """Mixture components of a prediction."""
        n_draws = self._power_ep.n_draws
        return self._default_draws if n_draws == "auto" else int(n_draws)

    def _attributes(self, state: Any, task: Task) -> dict[str, Any]:
        """Fitted attributes of a state, which are NumPy arrays."""
        from likelier.deep_gp.adam import plain_layers

        likelihood = np.asarray(state.adam_state.parameters.likelihood)
        # heteroscedastic log noise is sampled like hidden nodes
        n_sampled = sum(state.model.widths[1:-1]) + (state.model.likelihood == "heteroscedastic")
        return {
            "layers_": plain_layers(state),
            "likelihood_": likelihood,
            "projections_": [np.asarray(B) for B in state.projections],
            "kernel_": state.model.kernel,
            "length_scales_": "learned" if task.kernel is None else "long",
            "power_": task.power,
            "removed_": cavity_fraction(task.power, task.total),
            "input_mean_": task.standard.mean,
            "input_inverse_": task.standard.inverse,
            "normals_": shared_normals(self._n_draws(), n_sampled, task.seed),
            "n_iter_": state.step,
            **self._noise(likelihood),
        }

    def _posterior(self, state: Any, task: Task) -> ClassifierPosterior | RegressorPosterior:
        """Posterior of a state of a training under way."""
        known = {**vars(self), **self._attributes(state, task)}
        return self._posterior_of(SimpleNamespace(**known))

    # -- prediction ------------------------------------------------------------------------
    def _fitted_rows(self, X: Any) -> Matrix:
        """Validated rows to predict."""
        check_is_fitted(self, "layers_")
        return self._check_X(X, reset=False)
