"""How the two linear estimators are fitted: in memory, from a stream, batch by batch."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning

from likelier.base import Array, Batch, Loss, Matrix
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import (
    LARGEST,
    Summary,
    check_squares,
    checked_rows,
    checked_targets,
    is_stream,
    local_engine,
    open_source,
    require_targets,
    stream_engine,
    summarise,
)
from likelier.fitting.extreme_cells import warn_extreme_cells, watched
from likelier.fitting.hold_out import held_rows
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.one_class import one_class_is_constant
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.targets import OneClassError
from likelier.glm.certificate import Certificate
from likelier.glm.route import Solution, solve
from likelier.glm.sgd import NEVER, AdaptiveSGD, ScheduledSGD
from likelier.linear.estimator import LinearEstimator
from likelier.linear.partial_state import StreamLearner
from likelier.linear.problem import MovedSource, Problem, Wanted, make_problem
from likelier.linear.standardize import PLAIN, Frame, far_columns, far_means, suspicious
from likelier.linear.watch import Watch
from likelier.loops.rows import column_squares

QUIET_TOL, QUIET_ITER = 1e-2, 100
START_ROWS = 1000


class LinearFit(LinearEstimator, ABC):
    """Fitting; what depends on the kind of target is left to the two public classes.

    ``_memory_targets`` and ``_stream_targets`` encode targets, ``_outputs`` says how many outputs
    there are (None for regression), ``_fitted`` shapes the coefficients, ``_finish`` adds what
    needs the data once more, ``_learn`` learns one batch.
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
            Non-negative; a row of weight 0 is as good as absent.

        Notes
        -----
        A fit that fails leaves the model as it was. Ctrl-C keeps the coefficients as far as they
        have come, and nothing of an older fit beside them; before there are any, the older fit.
        """
        self._validate_parameters()
        loss, seed = self._checked_loss(), self._seed()
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        with unchanged_on_failure(self, unless_new="coef_"), one_class_is_constant(self):
            self.__dict__.pop("stream_", None)
            if is_stream(X):
                self._fit_stream(X, y, sample_weight, loss, seed)
            else:
                self._fit_memory(X, y, sample_weight, loss, seed)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _fit_memory(self, X: Any, y: Any, sample_weight: Any, loss: Loss, seed: int) -> None:
        data = (X, y)
        X, squares = self._measured(X, reset=True)
        y, weight = checked_targets(X, y, sample_weight, self._check_y)
        targets, weight = self._memory_targets(y, weight, loss)
        held, kept = self._hold_out(X, targets, weight, seed)
        problem = self._local(X, targets, kept, loss, seed, squares)
        warn_extreme_cells(self, X, weight)
        validation = None
        if held is not None:
            frame = problem.frame
            omega = None if weight is None else weight[held]
            validation = Batch(frame.rows(X[held]), frame.targets(targets[held]), omega)
        solution = self._solve(problem, self._start(problem), validation, data)
        self._store(problem, solution, solution.certificate)
        self._finish(X, targets, weight, loss, seed)

    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Matrix, Array, Array | None]:
        """Validated rows, targets and weights; nothing is copied that need not be."""
        rows = checked_rows(self, X, y, sample_weight, reset, self._check_y)
        warn_extreme_cells(self, rows[0], rows[2])
        return rows

    def _local(
        self, X: Matrix, targets: Array, weight: Array | None, loss: Loss, seed: int,
        total_square: float = 0.0,
    ) -> Problem:  # fmt: skip
        """Model and engine for rows in memory, in units that suit them.

        ``total_square`` is the sum of the squares of all numbers of rows that are new.
        """
        moves = self.fit_intercept and self.learning_rate == "auto"
        squares = moves or self._penalty().alpha == "auto"
        engine = local_engine(X, targets, weight, seed, self.n_jobs, self.shuffle)
        if squares or weight is not None:
            summary = engine.reduce(lambda batch: summarise(batch, squares), Summary.__add__)
        else:  # nothing but the shape is wanted
            summary = summarise(Batch(X, targets), squares)
        self._check_squares(X, summary, total_square)
        frame = self._frame(targets, weight, loss)
        if moves:
            shift = far_columns(X, summary.sums, summary.squares, weight)
            frame = replace(frame, shift=shift)
        if frame.degree or frame.shift is not None:
            X = frame.rows(X)
            engine = local_engine(
                X, frame.targets(targets), weight, seed, self.n_jobs, self.shuffle
            )
        if frame.shift is not None:
            summary = engine.reduce(lambda batch: summarise(batch, squares), Summary.__add__)
        return make_problem(engine, summary, self._wanted(loss, X.dtype), frame)

    def _check_squares(self, X: Matrix, summary: Summary, total: float) -> None:
        """Raise where sums of squares overflow; single precision has no such numbers.

        Columns are looked at one by one only where the sum over all of them may be too large.
        """
        weight = max(1.0, summary.weight)
        if total * weight * weight <= LARGEST:
            return
        squares = summary.squares
        if squares.strides == (0,) and X.dtype == np.float64:  # not summed up
            squares = column_squares(X)
        check_squares(squares, summary.weight, getattr(self, "feature_names_in_", None))

    def _wanted(self, loss: Loss, dtype: Any) -> Wanted:
        return Wanted(loss, self._penalty(), bool(self.fit_intercept), self._outputs(loss), dtype)

    def _frame(self, targets: Array, weight: Array | None, loss: Loss) -> Frame:
        """Units for the targets; classes have none."""
        return PLAIN

    def _hold_out(
        self, X: Matrix, targets: Array, weight: Array | None, seed: int
    ) -> tuple[Array | None, Array | None]:
        """Which rows validate early stopping, and weights that leave them out of the rest."""
        if not self.early_stopping:
            return None, weight
        n = X.shape[0]
        full = np.ones(n) if weight is None else weight
        present = np.flatnonzero(full)
        chosen = np.zeros(n, dtype=bool)  # absent rows must not change who is chosen
        groups = targets[present] if "binary" in self._tasks else np.zeros(len(present))
        rng = np.random.default_rng([seed, 1])
        chosen[present] = held_rows(groups, self.validation_fraction, rng)
        held = np.flatnonzero(chosen)
        return held, np.where(chosen, 0.0, full)

    def _fit_stream(self, X: Any, y: Any, sample_weight: Any, loss: Loss, seed: int) -> None:
        if sample_weight is not None:
            raise ValueError(
                "sample_weight of a stream comes with its blocks: yield (X, y, weight)"
            )
        if self.early_stopping:
            raise ValueError(
                "early_stopping needs rows in memory; a stream has no rows to hold out"
            )
        source = watched(open_source(self, X, y), self)
        if not source.repeatable:
            self._fit_once(source)
            return
        summary = stream_engine(source, seed, False).reduce(self._summarise, Summary.__add__)
        names = getattr(self, "feature_names_in_", None)
        check_squares(summary.squares, summary.weight, names)
        encoded = self._stream_targets(source, summary, loss)
        engine = stream_engine(encoded, seed, self.shuffle)
        if getattr(self, "class_weight", None) is not None:  # which were not known before
            summary = engine.reduce(lambda batch: summarise(batch, True), Summary.__add__)
        engine.know_rows(summary.n_rows)
        frame = getattr(encoded, "frame", PLAIN)
        shift, inner = self._stream_shift(engine, summary), engine
        if shift is not None:
            frame = replace(frame, shift=shift)
            inner = stream_engine(MovedSource(encoded, frame), seed, self.shuffle)
            summary = inner.reduce(lambda batch: summarise(batch, True), Summary.__add__)
            inner.know_rows(summary.n_rows)
        problem = make_problem(inner, summary, self._wanted(loss, np.float64), frame)
        solution = self._solve(problem, self._start(problem))
        self._store(problem, solution, solution.certificate)
        self._finish_stream(engine, loss, seed, frame)

    def _stream_shift(self, engine: Any, summary: Summary) -> Array | None:
        """What to take off the columns of a stream; one more pass where there may be something."""
        if not self.fit_intercept or self.learning_rate != "auto":
            return None
        if not len(suspicious(summary.sums, summary.squares, summary.weight)):
            return None
        moments = engine.reduce(
            lambda batch: ColumnMoments.of(batch.X, batch.weight), ColumnMoments.__add__
        )
        shift = far_means(moments)
        return shift if shift.any() else None

    def _fit_once(self, source: Any) -> None:
        """One pass over an iterator that cannot be restarted."""
        for name in ("coef_", "classes_", "n_iter_", "n_rows_seen_", "noise_", "residual_sums_"):
            self.__dict__.pop(name, None)
        for batch in stream_engine(source, 0, False).blocks():
            with unchanged_on_failure(self):  # stopped at the keyboard, it has whole blocks
                self._learn(batch.X, self._check_y(require_targets(batch)), batch.weight)
        if not hasattr(self, "coef_"):
            raise OneClassError(self.arrival_)

    def _solve(
        self,
        problem: Problem,
        start: Array | None,
        validation: Batch | None = None,
        data: tuple[Any, Any] = (None, None),
        quiet: bool = False,
    ) -> Solution:
        """Run the inference under the callbacks, the validation rows and the keyboard."""
        watch = Watch(self, problem, validation, data, quiet)
        settings = self._settings()
        if quiet:  # a fit whose scores only serve to calibrate need not be exact
            settings = replace(settings, tol=QUIET_TOL, max_iter=min(settings.max_iter, QUIET_ITER))
        try:
            with one_blas_thread():
                solution = solve(
                    problem.model, problem.engine, settings, problem.n_nonzeros, start, watch
                )
        except KeyboardInterrupt:
            if watch.latest is not None and not quiet:  # keep what has been learned so far
                self._store(problem, watch.interrupted(), None)
            raise
        finally:
            close = getattr(problem.engine, "close", None)
            if close is not None:
                close()
        if watch.best is not None:
            solution = watch.with_best(solution)
        if not solution.converged and not watch.stopped and self.tol is not None and not quiet:
            why = f"in max_iter={self.max_iter} iterations; raise max_iter or tol"
            warnings.warn(
                f"{type(self).__name__} did not reach tol={self.tol:g} {solution.message or why}",
                ConvergenceWarning,
                stacklevel=4,
            )
        return solution

    def _start(self, problem: Problem) -> Array | None:
        """Parameters to start from: the last ones if ``warm_start`` and they fit."""
        if not (self.warm_start and hasattr(self, "coef_")):
            return problem.start()
        n_outputs = problem.model.n_outputs
        theta = np.atleast_2d(self.coef_).T.astype(np.float64)
        if self.fit_intercept:
            theta = np.vstack([theta, np.atleast_1d(self.intercept_)])
        if theta.shape[1] == 1 and n_outputs == 2:  # a coupled loss, stored as a difference
            theta = np.hstack([-0.5 * theta, 0.5 * theta])
        p = self.n_features_in_ + int(self.fit_intercept)
        if theta.shape != (p, n_outputs):
            return problem.start()
        theta = problem.frame.inner(theta, bool(self.fit_intercept))
        return theta if self._makes_sense(problem, theta) else problem.start()

    @staticmethod
    def _makes_sense(problem: Problem, theta: Array) -> bool:
        """Whether a start is no worse than zero: for exp, that of another loss may be infinite."""
        model = problem.model
        if np.isfinite(model.loss.max_curvature):
            return True
        some = problem.engine.sample(START_ROWS)
        return model.energy(theta, some) <= model.energy(model.zeros(), some)

    def _store(self, problem: Problem, solution: Solution, certificate: Any) -> None:
        """Fitted attributes from a solution, all at once; ``coef_`` says that they are there."""
        frame = problem.frame
        fitted = self._fitted(problem, solution.theta)
        for name in ("calibration_", "noise_", "residual_sums_"):  # of an earlier fit, if any
            self.__dict__.pop(name, None)
        self.n_iter_ = solution.n_iter
        self.n_rows_seen_ = int(problem.engine.n_rows or 0)
        self.route_ = solution.route
        self.objective_ = float(solution.objective) * frame.unit**frame.degree
        self.converged_ = bool(solution.converged)
        if certificate is not None:
            covariance = frame.covariance(certificate.covariance, bool(self.fit_intercept))
            certificate = replace(certificate, covariance=covariance)
        self._store_certificate(certificate)
        self.__dict__.update(fitted)

    @abstractmethod
    def _fitted(self, problem: Problem, theta: Array) -> dict[str, Any]:
        """``coef_`` and ``intercept_`` in the shapes scikit-learn has."""

    def _store_certificate(self, certificate: Certificate | None) -> None:
        """Keep the covariance, or the reason why there is none."""
        if certificate is None:
            self.covariance_ = np.empty(0)
            self.refusal_ = (
                f"the route {self.route_!r} does not certify convergence"
                if self.route_ != "newton"
                else "the fit did not reach its tolerance, or its loss has no second derivative"
            )
            return
        self.covariance_ = certificate.covariance
        self.refusal_ = certificate.reason
        self.n_rows_ = certificate.n_rows

    def _learner(self, loss: Loss) -> StreamLearner:
        implicit = self.update == "implicit"
        inference: Any = AdaptiveSGD(implicit)
        if self.learning_rate != "auto":
            start = (
                NEVER if self.average is False else (0 if self.average is True else self.average)
            )
            power = 0.0 if self.learning_rate == "constant" else 0.5
            inference = ScheduledSGD(float(self.eta0), power, implicit, int(start))
        classification, fit_intercept = "binary" in self._tasks, bool(self.fit_intercept)
        words = {
            "loss": loss.name,
            "learning_rate": self.learning_rate,
            "average": self.average if isinstance(self.average, bool) else int(self.average),
            "fit_intercept": fit_intercept,
        }
        learner = StreamLearner(
            inference, loss, self._penalty(), fit_intercept, classification, words
        )
        if hasattr(self, "stream_"):
            learner.require_same_kind(self.stream_)
        return learner
