"""`LinearRegressor`: any regression loss, with confidence and prediction intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Batch, Engine, Loss, Matrix, Uncertainty
from likelier.engines.rows import take_rows
from likelier.fitting.cross_fit import FOLDS, KEY, ONE_FOLD_ROWS
from likelier.fitting.dataset import (
    CheckedSource,
    Dataset,
    Summarise,
    Summary,
    check_large_targets,
    local_engine,
    stream_engine,
)
from likelier.fitting.monitor import Monitor
from likelier.fitting.rollback import unchanged_on_failure
from likelier.linear.posterior import regressor
from likelier.linear.problem import Problem
from likelier.linear.recipe import LinearFit
from likelier.linear.solver import Solver
from likelier.losses import make_loss
from likelier.predictive import NumberPredictive

STREAM_SAMPLE = 20_000
FEW_ROWS = 2  # per parameter, below which in-sample residuals are not used


def _has_distribution(model: Any) -> bool:
    """Whether the distribution of the targets is known; before a fit, whether it will be."""
    loss = make_loss(model.loss)
    if not loss.probabilistic:
        raise AttributeError(
            f"loss={loss.name!r} does not define a distribution of the targets; use "
            'loss="squared_error", or two fits with Quantile losses for an interval'
        )
    noisy = loss.task == "regression"
    if noisy and hasattr(model, "coef_") and not hasattr(model, "noise_"):
        raise AttributeError(
            "the fit was interrupted before the noise of the targets was estimated"
        )
    return True


class LinearRegressor(RegressorMixin, LinearFit):
    """Linear regression for any loss, without a learning rate to tune.

    Parameters
    ----------
    loss : str or Loss, default="squared_error"
        "squared_error" (half of the square), "squared", "huber", "epsilon_insensitive",
        "squared_epsilon_insensitive", "quantile", "poisson", or an object of `likelier.losses`
        such as ``Quantile(tau=0.9)``.
    alpha, l1_ratio, fit_intercept, solver, max_iter, tol, checkpoint, n_jobs, random_state
        As for `LinearClassifier`.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_features,) and (1,)
    noise_ : float
        Standard deviation of the targets around the prediction (squared losses).
    coef_stderr_, n_iter_, objective_, converged_, route_
        As for `LinearClassifier`.

    Notes
    -----
    The objective is that of `LinearClassifier`. Targets are standardised inside the fit, so
    ``alpha="auto"`` does not depend on their unit; it is smaller for Huber's loss and for rare
    counts, in proportion to the information of a row.

    With ``loss="poisson"`` intervals, quantiles and uncertainty are those of Poisson counts, whose
    variance is their mean; of counts that vary more, intervals hold less than their coverage.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from likelier import LinearRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LinearRegressor(random_state=0).fit(X, y)
    >>> model.coef_interval(0.95).shape
    (10, 2)
    """

    _tasks = ("regression", "count")

    def __init__(
        self,
        loss: str | Loss = "squared_error",
        *,
        alpha: float | str = "auto",
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        solver: str | Solver = "auto",
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.positive_only = make_loss(self.loss).task == "count"
        return tags

    def _check_y(self, y: Array) -> Array:
        try:
            y = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                "y must hold numbers for regression; for labels use LinearClassifier"
            ) from None
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity; leave those rows out")
        check_large_targets(y)
        if make_loss(self.loss).task == "count" and (y < 0.0).any():
            raise ValueError(f"loss={make_loss(self.loss).name!r} needs counts: y must be >= 0")
        return y

    def _memory_targets(
        self, y: Array, weight: Array | None, loss: Loss
    ) -> tuple[Array, Array | None]:
        return y, weight

    def _stream_targets(
        self, source: Any, summarise: Summarise, loss: Loss
    ) -> tuple[CheckedSource, Summary]:
        checked = CheckedSource(source, self._check_y)
        summarise = replace(summarise, squares=True)
        return checked, stream_engine(checked, 0, False).reduce(summarise, Summary.__add__)

    def _outputs(self, loss: Loss) -> None:
        """None: regression has one score and no classes."""

    def _finish(self, data: Dataset, loss: Loss, seed: int, monitor: Monitor) -> None:
        """Estimate the standard deviation of the targets around the prediction."""
        batch = data.batch
        if batch is None:
            batch = data.engine.sample(STREAM_SAMPLE, iteration=2)
        self._store_noise(batch.X, np.asarray(batch.y), batch.weight, loss, seed, monitor)

    def _store_noise(
        self, X: Matrix, targets: Array, weight: Array | None, loss: Loss, seed: int,
        monitor: Monitor,
    ) -> None:  # fmt: skip
        if weight is not None and not weight.all():  # bit-identical to a fit without them
            present = np.flatnonzero(weight)
            X, targets, weight = take_rows(X, present), targets[present], weight[present]
        n_parameters, n = self.n_features_in_ + int(self.fit_intercept), len(targets)
        if loss.degree == 2 and n < FEW_ROWS * n_parameters:
            held = self._out_of_fold(Batch(X, targets, weight), loss, seed, monitor)
            self.noise_ = _root_mean_square(np.asarray(held.X), held.weight)
        else:
            correction = np.sqrt(n / max(1, n - n_parameters))
            self.noise_ = float(correction) * _root_mean_square(
                targets - regressor(self).scores(X), weight
            )
        total = float(n if weight is None else weight.sum())
        self.residual_sums_ = np.array([total, 0.5 * total, 0.5 * total * self.noise_**2])

    def _out_of_fold(self, data: Batch, loss: Loss, seed: int, monitor: Monitor) -> Batch:
        """Out-of-fold residuals with weights; in-sample ones are too small with many parameters."""
        targets, n = np.asarray(data.y), data.n_rows
        if n < 2 * FOLDS:
            return Batch(targets - np.average(targets, weights=data.weight), None, data.weight)
        engine = local_engine(data.X, targets, data.weight, seed, self.n_jobs, self._sgd.shuffle)
        found: list[Batch] = []
        for number, (rest, held) in enumerate(engine.folds(FOLDS, KEY)):
            if number and n >= ONE_FOLD_ROWS:
                break

            def residuals(rest: Engine = rest, held: Engine = held) -> Batch:
                summary = rest.reduce(self._spec(loss).summarise(), Summary.__add__)
                problem, theta = self._quick(Dataset(rest, summary, data.X.dtype), loss)
                few = held.sample(n)
                scores = problem.model.scores(theta, problem.standard.rows(few.X))[:, 0]
                return Batch(few.y - problem.standard.scores(scores), None, few.weight)

            found.append(monitor.stage(f"fold {number}", residuals))
        weights = [part.weight for part in found if part.weight is not None]
        return Batch(
            np.concatenate([np.asarray(part.X) for part in found]), None,
            np.concatenate(weights) if weights else None,
        )  # fmt: skip

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn a batch of rows, once, in the given order."""
        self._validate_params()
        self._check_batches()
        with unchanged_on_failure(self):
            X, y, weight = self._check_rows(X, y, sample_weight, not hasattr(self, "coef_"))
            return self._learn(X, y, weight)

    def _learn(self, X: Matrix, y: Array, weight: Array | None) -> Self:
        loss = self._checked_loss()
        learner, d = self._learner(loss), X.shape[1]
        if weight is not None:
            X, y, weight = X[weight > 0.0], y[weight > 0.0], weight[weight > 0.0]
        if not hasattr(self, "stream_"):
            start = self._theta() if hasattr(self, "coef_") else None
            seen = getattr(self, "n_rows_seen_", 0)
            self.stream_ = learner.remember(learner.start(d, 1, start), Batch(X, y, weight), seen)
        self.n_features_in_ = d
        self._follow_noise(X, y, weight)
        self.stream_ = learner.learn(self.stream_, Batch(X, y, weight), 1)
        theta = learner.theta(self.stream_, d, 1)
        self.coef_ = theta[:d, 0].astype(X.dtype)
        self.intercept_ = (theta[d] if self.fit_intercept else np.zeros(1)).astype(X.dtype)
        self.n_features_in_ = d
        self.n_iter_ = getattr(self, "n_iter_", 0) + 1
        self.route_, self.converged_ = "partial_fit", False
        self._store_certificate(None)
        if self.n_iter_ == 1 and len(y) > FEW_ROWS * (d + 1):
            self._store_noise(X, y, weight, loss, 0, Monitor())
        return self

    def _follow_noise(self, X: Matrix, y: Array, weight: Array | None) -> None:
        """Update the noise by residuals before learning; about the last half of all rows counts."""
        omega = np.ones(len(y)) if weight is None else weight
        total = float(omega.sum())
        if not total:
            return
        known = hasattr(self, "coef_")
        # before the first batch: around its mean, or zero for a single row
        centre = omega @ y / total if len(y) > 1 else 0.0
        residuals = y - regressor(self).scores(X) if known else y - centre
        # weight of all rows, discounted weight, discounted sum of squares
        sums = getattr(self, "residual_sums_", np.zeros(3))
        discount = max(0.0, 1.0 - 2.0 * total / (sums[0] + total))
        new = np.array([total, float(omega @ residuals**2)])
        self.residual_sums_ = np.array([sums[0] + total, *(discount * sums[1:] + new)])
        self.noise_ = float(np.sqrt(self.residual_sums_[2] / self.residual_sums_[1]))

    def _theta(self) -> Array:
        parts = [self.coef_, self.intercept_] if self.fit_intercept else [self.coef_]
        return np.concatenate(parts).astype(np.float64)[:, None]

    def _fitted(self, problem: Problem, theta: Array) -> dict[str, Any]:
        d = problem.model.n_features
        theta = problem.standard.outer(theta, problem.model.fit_intercept)
        b = theta[d] if problem.model.fit_intercept else np.zeros(1)
        return {
            "coef_": np.ascontiguousarray(theta[:d, 0], dtype=problem.dtype),
            "intercept_": np.asarray(b, dtype=problem.dtype),
        }

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean (squared losses, Poisson), or the quantile or location of the loss.

        With ``return_std`` (squared losses, Poisson), also the standard deviation of the target.
        """
        check_is_fitted(self, "coef_")
        std = self._predictive(X).std() if return_std else None
        point = regressor(self).point(self._check_X(X, reset=False))
        return point if std is None else (point.astype(np.float64), std)

    @available_if(_has_distribution)
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central prediction interval of each row, ``(n, 2)``; for squared losses, Poisson."""
        return self._predictive(X).interval(coverage)

    @available_if(_has_distribution)
    def predict_quantiles(self, X: Any, alpha: Any = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of the target of each row; for squared losses and Poisson."""
        return self._predictive(X).quantiles(alpha)

    @available_if(_has_distribution)
    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Variance of the target, of noise and coefficients; for squared losses and Poisson."""
        check_is_fitted(self, "coef_")
        return regressor(self).uncertainty(self._check_X(X, reset=False))

    def _predictive(self, X: Any) -> NumberPredictive:
        check_is_fitted(self, "coef_")
        try:
            _has_distribution(self)
        except AttributeError as error:  # predict(..., return_std=True)
            raise ValueError(str(error)) from None
        return regressor(self).predictive(self._check_X(X, reset=False))


def _root_mean_square(values: Array, weight: Array | None) -> float:
    return float(np.sqrt(np.average(values**2, weights=weight)))
