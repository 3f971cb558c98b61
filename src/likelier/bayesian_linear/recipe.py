"""How `BayesianLinearClassifier` is fitted: draws, and the calibration of the hinge."""

from __future__ import annotations

import warnings
from abc import ABC
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from likelier.base import Array, Engine, Matrix
from likelier.bayesian_linear.model import BayesianLinear
from likelier.bayesian_linear.parameters import make_prior
from likelier.bayesian_linear.posterior import LOSSES, DrawsPosterior
from likelier.bayesian_linear.rows import (
    finite_labels,
    label_summary,
    standard_coordinates,
)
from likelier.bayesian_linear.sampling import Draws, Rounds, draw, start_of
from likelier.bayesian_linear.settings import MCMC, make_inference
from likelier.engines.threads import one_blas_thread
from likelier.fitting.cross_fit import MAX_HELD, held_out_scores
from likelier.fitting.dataset import (
    EncodedSource,
    Summary,
    checked_rows,
    is_stream,
    local_engine,
    open_source,
    stream_classes,
    stream_engine,
)
from likelier.fitting.estimator import fitting
from likelier.fitting.extreme_cells import warn_extreme_cells, watched
from likelier.fitting.monitor import CallbackSupportMixin, Monitor, with_callbacks
from likelier.fitting.one_class import one_class_is_constant
from likelier.fitting.parameters import ValueParameters
from likelier.fitting.predictions import TableInput
from likelier.fitting.probabilities import fit_calibration
from likelier.fitting.targets import (
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
MANY_ROWS = 20_000
ROWS_PER_FEATURE = 50  # rows per feature from which on training scores are not optimistic
CALIBRATION_DRAWS = 100  # draws per chain of fits for calibration
SINGULAR = (
    "the posterior covariance is numerically singular; reduce the range of sample_weight and "
    "class_weight, standardise the columns of X, or raise prior_precision"
)


class BayesianLinearFit(TableInput, ValueParameters, CallbackSupportMixin, BaseEstimator, ABC):
    """Fitting; predictions are in the public class."""

    _values: ClassVar[Mapping[str, Any]] = {"inference": make_inference}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "loss": [StrOptions(set(LOSSES))],
        "prior_precision": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither"), list,
                            tuple, np.ndarray],
        "fit_intercept": ["boolean"],
        "probability": ["boolean"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }  # fmt: skip

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

        Notes
        -----
        A fit that fails or is interrupted leaves the model as it was; with a ``checkpoint`` it can
        be resumed.
        """
        self._validate_params()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        around = fitting(self, X, y, sample_weight)
        with around as monitor, one_blas_thread(), one_class_is_constant(self):
            try:
                if is_stream(X, y):
                    self._fit_stream(X, y, sample_weight, seed, monitor)
                else:
                    self._fit_memory(X, y, sample_weight, seed, monitor)
            except np.linalg.LinAlgError as error:
                raise ValueError(SINGULAR) from error
        return self

    def _fit_memory(self, X: Any, y: Any, sample_weight: Any, seed: int, monitor: Monitor) -> None:
        X, y, weight = self._check_rows(X, y, sample_weight)
        codes, weight = self._targets(y, weight)
        with local_engine(X, codes, weight, seed, self.n_jobs, False) as engine:
            draws = monitor.stage("draws", lambda: self._draw(engine, monitor))
            calibration = self._calibration(engine, draws, monitor)
        self._store(draws, calibration)

    def _fit_stream(self, X: Any, y: Any, sample_weight: Any, seed: int, monitor: Monitor) -> None:
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
        rows = stream_engine(source, seed, False)
        summary = monitor.stage("classes", lambda: rows.reduce(label_summary, Summary.__add__))
        classes, per_class = stream_classes(summary, self.class_weight)
        self._set_classes(classes)
        encoded = EncodedSource(source, classes, per_class, 0)
        engine = stream_engine(encoded, seed, False)
        engine.know_rows(summary.n_rows)
        draws = monitor.stage("draws", lambda: self._draw(engine, monitor))
        self._store(draws, self._calibration(engine, draws, monitor))

    # -- checks -------------------------------------------------------------------------
    def _check_X(self, X: Any, reset: bool) -> Matrix:
        return validated_rows(self, X, reset, order="C")

    def _check_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Matrix, Array, Array | None]:
        rows = checked_rows(self, X, y, sample_weight, True, finite_labels)
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
    def _draw(self, engine: Engine, monitor: Monitor) -> Draws:
        """The draws of the model; callbacks see each round of them."""
        start = partial(self._start, engine, self._value("inference"))
        return draw(start, engine, monitor, "draws", self._fitted)

    def _quick_draw(self, engine: Engine, monitor: Monitor, stage: str) -> Array:
        """Mean weights (outputs, p) of a short fit, whose scores only serve to calibrate."""
        settings = self._value("inference")
        settings = replace(settings, n_draws=min(CALIBRATION_DRAWS, settings.n_draws), thin=1)
        found = draw(partial(self._start, engine, settings), engine, monitor, stage)
        mean: Array = found.theta.mean(axis=(0, 1))
        return mean

    def _start(self, engine: Engine, settings: MCMC) -> Rounds:
        return start_of(self._models(engine), settings)

    def _models(self, engine: Engine) -> list[BayesianLinear]:
        """One model for two classes or a softmax, else one per class."""
        intercept, K = bool(self.fit_intercept), len(self.classes_)
        coordinates = standard_coordinates(engine, intercept)
        joint = self.loss == "softmax" and K > 2
        loss = "log_loss" if self.loss == "softmax" and not joint else self.loss
        outputs, d = K if joint else 1, len(coordinates.scale)
        none = np.zeros(d + int(intercept))
        linear = LinearModel(
            make_loss(loss), d, outputs, True, intercept, ElasticNet(none, none)
        )  # fmt: skip
        prior = make_prior(self, coordinates, outputs)
        positive = [1] if K == 2 or joint else range(K)
        return [BayesianLinear(linear, k, coordinates, prior) for k in positive]

    def _store(self, draws: Draws, calibration: dict[str, Any]) -> None:
        """Store fitted attributes, and warn if the chains have not converged."""
        for name, value in self._fitted(draws).items():
            setattr(self, name, value)
        self.calibration_ = calibration
        self.n_iter_ = draws.n_rounds
        self.acceptance_ = draws.acceptance
        self.sampler_ = draws.route
        self.r_hat_ = draws.max_r_hat
        self.ess_ = draws.min_ess
        if self.r_hat_ > MAX_R_HAT and self.coef_draws_.shape[1] >= CALIBRATION_DRAWS:
            warnings.warn(
                f"{type(self).__name__}: chains disagree (R-hat {self.r_hat_:.2f}, effective "
                f"sample size {self.ess_:.0f}); raise n_draws or n_warmup, or set prior_precision",
                ConvergenceWarning,
                stacklevel=5,
            )
        if draws.misses_tails and self._value("inference").sampler == "independent":
            warnings.warn(
                f"{type(self).__name__}: independent proposals cover the tails of this posterior "
                "poorly, so the ends of intervals may be wrong; use sampler='auto'",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _fitted(self, draws: Draws) -> dict[str, Any]:
        """Draws and their means, in scikit-learn's shapes."""
        found = DrawsPosterior.of(draws.theta, self.n_features_in_, False, False)
        return {
            "coef_draws_": found.coef,
            "intercept_draws_": found.intercept,
            "prior_precision_draws_": draws.precision,
            "coef_": found.mean_coef,
            "intercept_": found.mean_intercept,
        }

    # -- calibration of the hinge -------------------------------------------------------
    def _calibration(self, engine: Engine, draws: Draws, monitor: Monitor) -> dict[str, Any]:
        """Calibration on out-of-fold scores.

        With many rows per feature, training scores are not optimistic, and no further fit is
        needed.
        """
        if self.loss != "hinge" or not self.probability:
            return {}
        n_rows = engine.n_rows or 0
        if n_rows > MANY_ROWS and n_rows >= ROWS_PER_FEATURE * self.n_features_in_:
            batch = engine.sample(MAX_HELD)
            scores = self._linear_scores(batch.X, draws.theta.mean(axis=(0, 1)))
            return fit_calibration(scores, np.asarray(batch.y), batch.weight)

        def score(rest: Engine, X: Matrix, stage: str) -> Array:
            return self._linear_scores(X, self._quick_draw(rest, monitor, stage))

        held = held_out_scores(engine, len(self.classes_), monitor, score)
        if held is None:
            return {}
        return fit_calibration(np.asarray(held.X), np.asarray(held.y), held.weight)

    def _linear_scores(self, X: Matrix, theta: Array) -> Array:
        """Scores (rows, outputs) of parameters (outputs, p)."""
        d = self.n_features_in_
        ends = theta[:, -1] if self.fit_intercept else 0.0
        return np.asarray(X @ theta[:, :d].T + ends, dtype=np.float64)
