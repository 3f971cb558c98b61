"""Fitting of `BayesianLinearClassifier`: models of the classes and round-robin sampling."""

from __future__ import annotations

import warnings
from abc import ABC
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    assert_all_finite,
)

from likelier.base import Array, Batch, Engine, Matrix
from likelier.bayesian_linear.model import BayesianLinear
from likelier.bayesian_linear.parameters import check_parameters, make_prior, settings_of
from likelier.bayesian_linear.posterior import effective_size, r_hat
from likelier.bayesian_linear.rows import FoldSource, standard_coordinates
from likelier.bayesian_linear.sampling import Sampling, Settings
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import (
    EncodedSource,
    Summary,
    checked_rows,
    is_stream,
    local_engine,
    open_source,
    require_targets,
    stream_classes,
    stream_engine,
    summarise,
)
from likelier.fitting.extreme_cells import warn_extreme_cells, watched
from likelier.fitting.one_class import one_class_is_constant
from likelier.fitting.probabilities import enough_to_calibrate, fit_calibration
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.targets import (
    check_labels,
    class_codes,
    class_weights,
    combine_weights,
    require_two_classes,
    unique_labels,
)
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.losses import make_loss
from likelier.matrices import validated_rows

MAX_R_HAT = 1.05  # R-hat above which a fit warns
FOLDS = 5
ONE_FOLD_ROWS = 2000  # from so many rows on, one held-out fold suffices for calibration
STREAM_SAMPLE = 20_000  # rows of a stream in memory for calibration
ROWS_PER_FEATURE = 50  # rows per feature from which on training scores are not optimistic
CALIBRATION_DRAWS = 100  # draws per chain of fits for calibration
MIN_DRAWS = 4  # draws below which an interrupted fit stores nothing


@dataclass(frozen=True)
class Draws:
    """Draws of a fit, arrays of shape (chains, draws, ...), and diagnostics."""

    theta: Array  # (..., outputs, parameters per output), units of the data
    precision: Array  # (..., problems): learned prior precision; no problems if it is given
    max_r_hat: float
    min_ess: float
    acceptance: float
    route: str


class RoundRobin:
    """Round-robin scheduling of several `Sampling`, with progress and callbacks every round."""

    def __init__(self, estimator: Any, problems: list[Sampling], data: tuple[Any, Any]) -> None:
        self.estimator, self.problems, self.data = estimator, problems, data
        self.n_iter = 0

    def run(self, quiet: bool = False) -> None:
        """Advance every problem in turn until all are done or a callback asks to stop."""
        waiting = list(self.problems)
        while waiting:
            waiting = [problem for problem in waiting if not problem.advance()]
            self.n_iter += 1
            if not quiet and self._report_progress() and self.n_draws >= MIN_DRAWS:
                return

    @property
    def n_draws(self) -> int:
        """Draws per chain that all problems have."""
        done = min(problem.n_done for problem in self.problems)
        return min(done // self.problems[0].settings.thin, self.problems[0].settings.n_draws)

    def draws(self) -> Draws:
        """The draws that all problems have, with diagnostics."""
        n = self.n_draws
        found = [problem.posterior() for problem in self.problems]
        standard = [posterior.theta[:, :n] for posterior in found]
        etas = [posterior.eta[:, :n] for posterior in found]
        learned = self.problems[0].model.prior.learned
        precision = np.exp(np.stack(etas, axis=2)) if learned else np.empty((*etas[0].shape, 0))
        return Draws(
            np.concatenate([posterior.in_data_units()[:, :n] for posterior in found], axis=2),
            precision,
            max(float(np.max(r_hat(theta))) for theta in standard),
            min(float(np.min(effective_size(theta))) for theta in standard),
            float(np.mean([problem.acceptance for problem in self.problems])),
            "+".join(sorted({problem.route for problem in self.problems})),
        )

    def _report_progress(self) -> bool:
        fraction = float(np.mean([problem.fraction_done for problem in self.problems]))
        if self.estimator.verbose:
            print(f"round {self.n_iter}: {fraction:.0%} done, {self.n_draws} draws per chain")
        context = getattr(self.estimator, "_callback_fit_ctx", None)
        if context is None or not getattr(self.estimator, "_skl_callbacks", None):
            return False
        X, y = self.data
        sub = context.subcontext(task_name="round")
        sub.call_on_fit_task_begin(estimator=self.estimator, X=X, y=y)
        ready = self.n_draws >= MIN_DRAWS
        fitted = self.estimator._fitted(self.draws()) if ready else None
        return bool(
            sub.call_on_fit_task_end(
                estimator=self.estimator, X=X, y=y, reconstruction_attributes=fitted
            )
        )


SINGULAR = (
    "the posterior covariance is numerically singular; reduce the range of sample_weight and "
    "class_weight, standardise the columns of X, or raise prior_precision"
)


class BayesianLinearFit(CallbackSupportMixin, BaseEstimator, ABC):
    """Fitting; predictions are in the public class."""

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Draw from the posterior.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), path or blocks
            Training rows. A path (CSV, Parquet, libsvm) or a source of ``(X, y)`` blocks that can
            be read repeatedly is streamed in bounded memory.
        y : array-like of shape (n_samples,), or the target column of a path
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative powers of the likelihood; weight 2 is equivalent to two rows, 0 to none.
        """
        check_parameters(self)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        refused = unchanged_on_failure(self, unless_new="coef_draws_")
        with one_blas_thread(), refused, one_class_is_constant(self):
            try:
                if is_stream(X):
                    self._fit_stream(X, y, sample_weight, seed)
                else:
                    self._fit_memory(X, y, sample_weight, seed)
            except np.linalg.LinAlgError as error:
                raise ValueError(SINGULAR) from error
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _fit_memory(self, X: Any, y: Any, sample_weight: Any, seed: int) -> None:
        data = (X, y)
        X, y, weight = self._check_rows(X, y, sample_weight)
        codes, weight = self._targets(y, weight)
        engine = local_engine(X, codes, weight, seed, self.n_jobs, False)
        try:
            self._store(self._draw(engine, data))
            if self.loss == "hinge" and self.probability:
                self._calibrate(X, codes, weight, seed)
        finally:
            engine.close()

    def _fit_stream(self, X: Any, y: Any, sample_weight: Any, seed: int) -> None:
        if sample_weight is not None:
            raise ValueError(
                "sample_weight is not supported for a stream; yield blocks (X, y, sample_weight)"
            )
        source = watched(open_source(self, X, y), self)
        if not source.repeatable:
            raise ValueError(
                "X can be read only once, but sampling needs many passes; pass a path, arrays, or "
                "a function that returns a new iterator"
            )
        summary = stream_engine(source, seed, False).reduce(_label_summary, Summary.__add__)
        classes, per_class = stream_classes(summary, self.class_weight)
        self._set_classes(classes)
        encoded = EncodedSource(source, classes, per_class, 0)
        engine = stream_engine(encoded, seed, False)
        engine.know_rows(summary.n_rows)
        self._store(self._draw(engine, (X, y)))
        if self.loss == "hinge" and self.probability:
            self._calibrate_stream(encoded, seed, engine.n_rows or 0)

    # -- checks -------------------------------------------------------------------------
    def _check_X(self, X: Any, reset: bool) -> Matrix:
        return validated_rows(self, X, reset, order="C")

    def _check_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Matrix, Array, Array | None]:
        rows = checked_rows(self, X, y, sample_weight, True, _finite_labels)
        warn_extreme_cells(self, rows[0], rows[2])
        return rows

    def _targets(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Class indices, and weights multiplied by class weights."""
        self._set_classes(unique_labels(y))  # including classes of zero total weight
        codes = class_codes(self.classes_, y)
        per_class = class_weights(self.class_weight, self.classes_, codes, weight)
        return codes, combine_weights(weight, per_class, codes)

    def _set_classes(self, classes: Array) -> None:
        self.classes_ = require_two_classes(classes)

    # -- sampling -----------------------------------------------------------------------
    def _draw(
        self, engine: Engine, data: tuple[Any, Any], settings: Settings | None = None
    ) -> RoundRobin:
        """Sample all problems; store the draws of an interrupted fit unless ``settings`` is given.

        There is one problem for two classes or a multinomial model, else one per class.
        """
        quiet = settings is not None
        settings = settings or settings_of(self)
        models = self._models(engine)
        rounds = RoundRobin(self, [Sampling(model, engine, settings) for model in models], data)
        try:
            rounds.run(quiet)
        except KeyboardInterrupt:
            if not quiet and rounds.n_draws >= MIN_DRAWS:
                self._store(rounds, complete=False)
            raise
        return rounds

    def _models(self, engine: Engine) -> list[BayesianLinear]:
        intercept, K = bool(self.fit_intercept), len(self.classes_)
        coordinates = standard_coordinates(engine, intercept)
        joint = self.multi_class == "multinomial" and K > 2
        outputs, d = K if joint else 1, len(coordinates.scale)
        none = np.zeros(d + int(intercept))
        linear = LinearModel(
            make_loss("softmax" if joint else self.loss), d, outputs, True, intercept,
            ElasticNet(none, none),
        )  # fmt: skip
        prior = make_prior(self, coordinates, outputs)
        positive = [1] if K == 2 or joint else range(K)
        return [BayesianLinear(linear, k, coordinates, prior) for k in positive]

    def _store(self, rounds: RoundRobin, complete: bool = True) -> None:
        """Store fitted attributes, and warn if the chains have not converged."""
        draws = rounds.draws()
        self.calibration_: dict[str, Any] = {}  # that of an earlier fit is not valid any more
        for name, value in self._fitted(draws).items():
            setattr(self, name, value)
        self.n_iter_ = rounds.n_iter
        self.acceptance_ = draws.acceptance
        self.sampler_ = draws.route
        self.r_hat_ = draws.max_r_hat
        self.ess_ = draws.min_ess
        if complete and self.r_hat_ > MAX_R_HAT and self.coef_draws_.shape[1] >= CALIBRATION_DRAWS:
            warnings.warn(
                f"{type(self).__name__}: chains disagree (R-hat {self.r_hat_:.2f}, effective "
                f"sample size {self.ess_:.0f}); raise n_draws or n_warmup, or set prior_precision",
                ConvergenceWarning,
                stacklevel=5,
            )
        missed = any(problem.misses_tails for problem in rounds.problems)
        if complete and missed and self.sampler == "independent":
            warnings.warn(
                f"{type(self).__name__}: independent proposals cover the tails of this posterior "
                "poorly, so the ends of intervals may be wrong; use sampler='auto'",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _fitted(self, draws: Draws) -> dict[str, Any]:
        """Draws and their means, in scikit-learn's shapes."""
        d, intercept = self.n_features_in_, bool(self.fit_intercept)
        coef = np.ascontiguousarray(draws.theta[..., :d])
        ends = draws.theta[..., -1] if intercept else np.zeros(draws.theta.shape[:3])
        return {
            "coef_draws_": coef,
            "intercept_draws_": np.ascontiguousarray(ends),
            "prior_precision_draws_": draws.precision,
            "coef_": coef.mean(axis=(0, 1)),
            "intercept_": ends.mean(axis=(0, 1)),
        }

    # -- calibration of the hinge -------------------------------------------------------
    def _calibrate(self, X: Matrix, codes: Array, weight: Array | None, seed: int) -> None:
        """Calibrate on out-of-fold scores."""
        full = np.ones(len(codes)) if weight is None else weight
        present = np.flatnonzero(full)
        folds = np.full(len(codes), -1)  # zero-weight rows must not affect the folds
        folds[present] = np.random.default_rng([seed, 2]).integers(0, FOLDS, len(present))
        quick, n_present = self._calibration_settings(), len(np.unique(codes[present]))
        scores: list[Array] = []
        rows: list[Array] = []
        try:
            for fold in range(FOLDS):
                if len(present) >= ONE_FOLD_ROWS and enough_to_calibrate(
                    codes, rows, len(self.classes_)
                ):
                    break
                held_out = np.flatnonzero(folds == fold)
                rest = np.where(folds == fold, 0.0, full)
                if not len(held_out) or len(np.unique(codes[rest > 0.0])) < n_present:
                    continue  # a class would have no training rows
                scores.append(self._held_out_scores(Batch(X, codes, rest), held_out, seed, quick))
                rows.append(held_out)
        finally:  # an interrupted calibration uses the folds done so far
            if scores:
                found = np.concatenate(rows)
                known = None if weight is None else weight[found]
                self._fit_calibration(np.concatenate(scores), codes[found], known)

    def _held_out_scores(
        self, data: Batch, held_out: Array, seed: int, settings: Settings
    ) -> Array:
        """Scores of the rows ``held_out``, by a fit in which their weight is zero."""
        X = data.X
        engine = local_engine(X, np.asarray(data.y), data.weight, seed, self.n_jobs, False)
        try:
            rounds = self._draw(engine, (None, None), settings)
        finally:
            engine.close()
        return self._linear_scores(X[held_out], rounds.draws().theta.mean(axis=(0, 1)))

    def _calibrate_stream(self, source: Any, seed: int, n_rows: int) -> None:
        """The same for a stream; a short stream is treated as in memory.

        With many rows per feature, training scores are not optimistic, and no further fit is
        needed; else one fold is held out.
        """
        one_fold = STREAM_SAMPLE < n_rows < ROWS_PER_FEATURE * self.n_features_in_
        rest = stream_engine(FoldSource(source, FOLDS, seed, inside=False), seed, False)
        # every class needs training rows
        one_fold = one_fold and bool(rest.reduce(self._class_weights, np.add).all())
        part = FoldSource(source, FOLDS, seed, inside=True) if one_fold else source
        batch = stream_engine(part, seed, False).sample(STREAM_SAMPLE, iteration=0)
        codes = np.asarray(batch.y)
        if n_rows <= STREAM_SAMPLE:
            self._calibrate(batch.X, codes, batch.weight, seed)
            return
        theta = np.column_stack([self.coef_, self.intercept_])
        if one_fold:
            rounds = self._draw(rest, (None, None), self._calibration_settings())
            theta = rounds.draws().theta.mean(axis=(0, 1))
        self._fit_calibration(self._linear_scores(batch.X, theta), codes, batch.weight)

    def _class_weights(self, batch: Batch) -> Array:
        """Total weight of every class in a block."""
        codes = np.asarray(batch.y).astype(np.intp)
        return np.bincount(codes, batch.weight, minlength=len(self.classes_))

    def _calibration_settings(self) -> Settings:
        return replace(settings_of(self), n_draws=min(CALIBRATION_DRAWS, int(self.n_draws)), thin=1)

    def _linear_scores(self, X: Matrix, theta: Array) -> Array:
        """Scores (rows, outputs) of parameters (outputs, p)."""
        d = self.n_features_in_
        ends = theta[:, -1] if self.fit_intercept else 0.0
        return np.asarray(X @ theta[:, :d].T + ends, dtype=np.float64)

    def _mean_scores(self, X: Matrix) -> Array:
        return np.asarray(X @ self.coef_.T + self.intercept_, dtype=np.float64)

    def _fit_calibration(self, scores: Array, codes: Array, weight: Array | None) -> None:
        self.calibration_ = fit_calibration(scores, codes, weight)


def _finite_labels(labels: Array) -> Array:
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    check_labels(labels)
    return labels


def _label_summary(batch: Batch) -> Summary:
    _finite_labels(require_targets(batch))
    return summarise(batch, with_squares=False, with_labels=True)
