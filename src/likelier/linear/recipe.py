"""Fitting of the linear estimators, from rows in memory or streams."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from likelier.base import Array, Batch, Loss, Matrix
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import (
    LARGEST,
    Dataset,
    Summary,
    check_squares,
    checked_rows,
    checked_targets,
    is_stream,
    local_engine,
    open_source,
    require_targets,
    stream_engine,
)
from likelier.fitting.estimator import fitting
from likelier.fitting.extreme_cells import warn_extreme_cells, watched
from likelier.fitting.hold_out import held_rows
from likelier.fitting.monitor import Monitor, with_callbacks
from likelier.fitting.one_class import one_class_is_constant
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.targets import OneClassError
from likelier.glm.certificate import Certificate
from likelier.glm.route import Solution, interrupted, solve
from likelier.glm.sgd import NEVER, AdaptiveSGD, ScheduledSGD
from likelier.linear.early_stopping import EarlyStopping
from likelier.linear.estimator import LinearEstimator
from likelier.linear.partial_state import StreamLearner
from likelier.linear.problem import Problem, Spec, make_problem
from likelier.loops.rows import column_squares

QUICK_TOL, QUICK_ITER = 1e-2, 100  # of cross-fits for calibration


class LinearFit(LinearEstimator, ABC):
    """Fitting; the two public classes add what depends on the type of the targets.

    ``_memory_targets`` and ``_stream_targets`` encode targets, ``_outputs`` is the number of
    outputs (None for regression), ``_fitted`` shapes the coefficients, ``_finish`` estimates
    calibration or noise, ``_learn`` learns one batch.
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
            Non-negative; rows of weight 0 are ignored.

        Notes
        -----
        A fit that fails leaves the model unchanged. Ctrl-C keeps the current coefficients, without
        other attributes of a previous fit; before the first iteration it keeps the previous fit.
        """
        self._validate_params()
        loss, seed = self._checked_loss(), self._seed()
        around = fitting(self, X, y, sample_weight, unless_new="coef_")
        with around as monitor, one_class_is_constant(self):
            self.__dict__.pop("stream_", None)
            if not is_stream(X, y):
                data, held = self._from_arrays(X, y, sample_weight, loss, seed)
            elif (streamed := self._streamed(X, y, sample_weight, loss, seed)) is None:
                return self
            else:
                data, held = streamed, None
            problem = make_problem(data, self._spec(loss), self._outputs(loss))
            solution = self._solve(problem, monitor, held)
            self._store(problem, solution, solution.certificate)
            self._finish(data, loss, seed, monitor)
        return self

    def _from_arrays(
        self, X: Any, y: Any, sample_weight: Any, loss: Loss, seed: int
    ) -> tuple[Dataset, Batch | None]:
        """Rows in memory, and the validation rows of early stopping."""
        X, total = self._measured(X, reset=True)
        y, weight = checked_targets(X, y, sample_weight, self._check_y)
        targets, weight = self._memory_targets(y, weight, loss)
        held, rest = self._hold_out(X, targets, weight, seed)
        data = self._dataset(X, targets, rest, loss, seed)
        self._check_squares(X, data.summary, total)
        warn_extreme_cells(self, X, weight)
        validation = None
        if held is not None:
            omega = None if weight is None else weight[held]
            validation = Batch(X[held], targets[held], omega)
        return replace(data, batch=Batch(X, targets, weight)), validation

    def _dataset(
        self, X: Matrix, targets: Array, weight: Array | None, loss: Loss, seed: int
    ) -> Dataset:
        """Rows with encoded targets, without those of weight zero."""
        engine = local_engine(X, targets, weight, seed, self.n_jobs, self._sgd.shuffle)
        summarise = self._spec(loss).summarise()
        if summarise.squares or summarise.targets is not None or weight is not None:
            summary = engine.reduce(summarise, Summary.__add__)
        else:  # only the shape is needed
            summary = summarise(Batch(X, targets))
        return Dataset(engine, summary, X.dtype, Batch(X, targets, weight))

    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Matrix, Array, Array | None]:
        """Validated rows, targets and weights, copied only if necessary."""
        rows = checked_rows(self, X, y, sample_weight, reset, self._check_y)
        warn_extreme_cells(self, rows[0], rows[2])
        return rows

    def _check_squares(self, X: Matrix, summary: Summary, total: float) -> None:
        """Raise if sums of squares overflow, which float32 data cannot.

        Columns are checked individually only if the sum over all of them may be too large.
        """
        weight = max(1.0, summary.weight)
        if total * weight * weight <= LARGEST:
            return
        squares = summary.squares
        if squares.strides == (0,) and X.dtype == np.float64:  # not computed
            squares = column_squares(X)
        check_squares(squares, summary.weight, getattr(self, "feature_names_in_", None))

    def _spec(self, loss: Loss) -> Spec:
        standardizes = self._sgd.learning_rate == "auto"  # a given rate depends on the scale
        return Spec(loss, self._penalty(), bool(self.fit_intercept), standardizes)

    def _hold_out(
        self, X: Matrix, targets: Array, weight: Array | None, seed: int
    ) -> tuple[Array | None, Array | None]:
        """Validation rows of early stopping, and weights with zeros for them."""
        if not self._sgd.early_stopping:
            return None, weight
        n = X.shape[0]
        full = np.ones(n) if weight is None else weight
        present = np.flatnonzero(full)
        chosen = np.zeros(n, dtype=bool)  # independent of zero-weight rows
        groups = targets[present] if "binary" in self._tasks else np.zeros(len(present))
        rng = np.random.default_rng([seed, 1])
        chosen[present] = held_rows(groups, self._sgd.validation_fraction, rng)
        held = np.flatnonzero(chosen)
        return held, np.where(chosen, 0.0, full)

    def _streamed(
        self, X: Any, y: Any, sample_weight: Any, loss: Loss, seed: int
    ) -> Dataset | None:
        """Rows of a stream; None if it can be read only once, after learning it in one pass."""
        if sample_weight is not None:
            raise ValueError(
                "sample_weight of a stream must be part of its blocks: yield (X, y, weight)"
            )
        if self._sgd.early_stopping:
            raise ValueError("solver.early_stopping does not support streams; pass rows in memory")
        source = watched(open_source(self, X, y), self)
        if not source.repeatable:
            self._fit_once(source)
            return None
        encoded, summary = self._stream_targets(source, self._spec(loss).summarise(), loss)
        names = getattr(self, "feature_names_in_", None)
        check_squares(summary.squares, summary.weight, names)
        engine = stream_engine(encoded, seed, self._sgd.shuffle)
        engine.know_rows(summary.n_rows)
        return Dataset(engine, summary, np.dtype(np.float64))

    def _fit_once(self, source: Any) -> None:
        """Learn an iterator that cannot be restarted in one pass."""
        for name in ("coef_", "classes_", "n_iter_", "n_rows_seen_", "noise_", "residual_sums_"):
            self.__dict__.pop(name, None)
        for batch in stream_engine(source, 0, False).blocks():
            with unchanged_on_failure(self):  # Ctrl-C keeps whole blocks
                self._learn(batch.X, self._check_y(require_targets(batch)), batch.weight)
        if not hasattr(self, "coef_"):
            raise OneClassError(self.arrival_)

    def _solve(self, problem: Problem, monitor: Monitor, held: Batch | None) -> Solution:
        """Run the inference under the monitor; Ctrl-C keeps the coefficients reached so far."""
        monitor.attributes = lambda posterior: {
            **self._fitted(problem, posterior.theta),
            "n_iter_": monitor.n_steps,
        }
        stopping = None
        if held is not None:
            stopping = EarlyStopping(problem.model, problem.standard(held), self.tol or 0.0)
            monitor.stop = stopping.after_step
        try:
            with one_blas_thread():
                solution = solve(
                    problem.model, problem.engine, self._settings(), problem.n_nonzeros,
                    problem.start(), monitor,
                )  # fmt: skip
        except KeyboardInterrupt:
            if monitor.posterior is not None:
                self._store(problem, interrupted(monitor), None)
            raise
        finally:
            problem.engine.close()
        if stopping is not None and stopping.best is not None:
            solution = replace(
                solution, theta=stopping.best, converged=True, certificate=None, message=""
            )
        if not solution.converged and not monitor.stopped and self.tol is not None:
            why = f"in max_iter={self.max_iter} iterations; raise max_iter or tol"
            warnings.warn(
                f"{type(self).__name__} did not reach tol={self.tol:g} {solution.message or why}",
                ConvergenceWarning,
                stacklevel=4,
            )
        return solution

    def _quick(self, data: Dataset, loss: Loss) -> tuple[Problem, Array]:
        """A fit to a low tolerance, for cross-fitted scores."""
        problem = make_problem(data, self._spec(loss), self._outputs(loss))
        settings = self._settings()
        settings = replace(settings, tol=QUICK_TOL, max_iter=min(settings.max_iter, QUICK_ITER))
        start = problem.start() if problem.model.loss.task in ("regression", "count") else None
        with one_blas_thread():
            found = solve(
                problem.model, problem.engine, settings, problem.n_nonzeros, start, Monitor()
            )
        problem.engine.close()
        return problem, found.theta

    def _store(self, problem: Problem, solution: Solution, certificate: Any) -> None:
        """Set the fitted attributes from a solution; ``coef_`` last, which marks a fitted model."""
        standard = problem.standard
        fitted = self._fitted(problem, solution.theta)
        for name in ("calibration_", "noise_", "residual_sums_"):  # of a previous fit
            self.__dict__.pop(name, None)
        self.n_iter_ = solution.n_iter
        self.n_rows_seen_ = int(problem.engine.n_rows or 0)
        self.route_ = solution.route
        self.objective_ = float(solution.objective) * standard.scale**standard.degree
        self.converged_ = bool(solution.converged)
        if certificate is not None:
            covariance = standard.covariance(certificate.covariance, bool(self.fit_intercept))
            certificate = replace(certificate, covariance=covariance)
        self._store_certificate(certificate)
        self.__dict__.update(fitted)

    @abstractmethod
    def _fitted(self, problem: Problem, theta: Array) -> dict[str, Any]:
        """``coef_`` and ``intercept_`` in scikit-learn's shapes."""

    def _store_certificate(self, certificate: Certificate | None) -> None:
        """Store the covariance, or the reason why it is not available."""
        if certificate is None:
            self.covariance_ = np.empty(0)
            self.refusal_ = (
                f"route_={self.route_!r} does not certify convergence"
                if self.route_ != "newton"
                else "the fit did not reach its tolerance, or its loss has no second derivative"
            )
            return
        self.covariance_ = certificate.covariance
        self.refusal_ = certificate.reason
        self.n_rows_ = certificate.n_rows

    def _learner(self, loss: Loss) -> StreamLearner:
        sgd = self._sgd
        implicit = sgd.update == "implicit"
        inference: Any = AdaptiveSGD(implicit)
        if sgd.learning_rate != "auto":
            start = NEVER if sgd.average is False else (0 if sgd.average is True else sgd.average)
            power = 0.0 if sgd.learning_rate == "constant" else 0.5
            inference = ScheduledSGD(float(sgd.eta0), power, implicit, int(start))
        classification, fit_intercept = "binary" in self._tasks, bool(self.fit_intercept)
        parameters = {
            "loss": loss.name,
            "learning_rate": sgd.learning_rate,
            "average": sgd.average if isinstance(sgd.average, bool) else int(sgd.average),
            "fit_intercept": fit_intercept,
        }
        learner = StreamLearner(
            inference, loss, self._penalty(), fit_intercept, classification, parameters
        )
        if hasattr(self, "stream_"):
            learner.require_same_kind(self.stream_)
        return learner
