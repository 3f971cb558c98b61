"""Base class of the linear estimators: parameter validation and confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Loss, Matrix, check_flag
from likelier.engines.threads import count_threads
from likelier.fitting.finite import check_finite
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.parameters import ValueParameters, check_one_of, check_within
from likelier.fitting.predictions import TableInput
from likelier.glm.route import Settings
from likelier.linear.penalty import Penalty
from likelier.losses import make_loss
from likelier.matrices import validated_rows


class UncertifiedError(ValueError, AttributeError):
    """Raised if intervals are requested without certified convergence."""


class LinearEstimator(TableInput, ValueParameters, CallbackSupportMixin, BaseEstimator):
    """Linear model with any loss; see the two public classes."""

    _values: ClassVar[Mapping[str, Any]] = {"loss": make_loss}
    _tasks: tuple[str, ...] = ()
    loss: str | Loss

    # -- checks -------------------------------------------------------------------------
    def _checked_loss(self) -> Loss:
        loss = make_loss(self.loss)
        if loss.task not in self._tasks:
            raise ValueError(
                f"loss={loss.name!r} is for {loss.task} targets; {type(self).__name__} needs a "
                f"loss for {' or '.join(self._tasks)} targets"
            )
        return loss

    def _validate_parameters(self) -> None:
        """Raise for invalid constructor parameters, by name."""
        check_one_of("update", self.update, ("implicit", "explicit"))
        check_one_of("learning_rate", self.learning_rate, ("auto", "constant", "invscaling"))
        check_one_of("penalty", self.penalty, ("l2", "l1", "elasticnet", None))
        if isinstance(self.alpha, str) and self.alpha != "auto":
            raise ValueError(f'alpha must be a number or "auto", got {self.alpha!r}')
        if not isinstance(self.alpha, str):
            check_within("alpha", self.alpha, 0.0)
        check_within("eta0", self.eta0, 0.0, strict=True)
        check_within("l1_ratio", self.l1_ratio, 0.0, 1.0)
        check_within("validation_fraction", self.validation_fraction, 0.0, 1.0, strict=True)
        if self.tol is not None:
            check_within("tol", self.tol, 0.0)
        if isinstance(self.max_iter, bool) or not isinstance(self.max_iter, Integral):
            raise TypeError(f"max_iter must be an integer, got {self.max_iter!r}")
        if self.max_iter < 1:
            raise ValueError(f"max_iter must be at least 1, got {self.max_iter}")
        if isinstance(self.average, float) or (not isinstance(self.average, bool | Integral)):
            raise TypeError(f"average must be a bool or a number of rows, got {self.average!r}")
        if self.average < 0:
            raise ValueError(f"average must not be negative, got {self.average}")
        for name in ("fit_intercept", "shuffle", "early_stopping", "warm_start", "probability"):
            check_flag(name, getattr(self, name, False))  # a regressor has no probability
        if not isinstance(self.verbose, bool | np.bool_ | Integral):
            raise TypeError(f"verbose must be an integer or a bool, got {self.verbose!r}")
        if self.penalty in ("l1", "elasticnet") and self.learning_rate != "auto":
            raise ValueError(f'penalty={self.penalty!r} needs learning_rate="auto"')

    def _check_batches(self) -> None:
        """Raise for parameters that `partial_fit` does not support."""
        if self.early_stopping:
            raise ValueError(
                "partial_fit does not support early_stopping, since it holds out no rows; use fit"
            )

    def _settings(self) -> Settings:
        return Settings(
            self.update, self.learning_rate, float(self.eta0),
            self.average if isinstance(self.average, bool) else int(self.average),
            int(self.max_iter), self.tol, count_threads(self.n_jobs), bool(self.early_stopping),
        )  # fmt: skip

    def _penalty(self) -> Penalty:
        alpha = self.alpha
        if alpha == "auto" and self.learning_rate != "auto":
            # plain SGD needs the same penalty for all features
            alpha = 1e-4
        return Penalty(self.penalty, alpha, float(self.l1_ratio))

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_X(self, X: Any, reset: bool) -> Matrix:
        return self._measured(X, reset)[0]

    def _measured(self, X: Any, reset: bool) -> tuple[Matrix, float]:
        """Validated rows, and the sum of the squares of their entries."""
        X = validated_rows(self, X, reset, order="C", ensure_all_finite=False)
        return X, check_finite(X, count_threads(self.n_jobs), self)

    # -- intervals ----------------------------------------------------------------------
    def _covariance(self) -> Array:
        check_is_fitted(self, "coef_")
        covariance = getattr(self, "covariance_", np.empty(0))
        if not covariance.size:
            why = getattr(self, "refusal_", "the model was fitted by partial_fit")
            raise UncertifiedError(
                f"confidence intervals are not available: {why}. They need a smooth loss, an L2 "
                'penalty (or none), learning_rate="auto", few features, tol <= 1e-3 and convergence'
            )
        return np.asarray(covariance)

    def _theta_stderr(self) -> Array:
        """Standard errors in the shape of ``theta`` transposed: (outputs, p)."""
        covariance = self._covariance()
        p = covariance.shape[1] // (self._n_outputs() if len(covariance) == 1 else 1)
        diagonal = np.diagonal(covariance, axis1=1, axis2=2).reshape(-1, p)
        # rounding can make the variance of a constant column negative
        return np.asarray(np.sqrt(np.maximum(diagonal, 0.0)))

    def _n_outputs(self) -> int:
        return 1

    @property
    def coef_stderr_(self) -> Array:
        """Standard error of every coefficient, by the sandwich covariance."""
        errors = self._theta_stderr()[:, : self.n_features_in_]
        return np.asarray(errors.reshape(np.shape(self.coef_)))

    def coef_interval(self, level: float = 0.95) -> Array:
        """Confidence interval of every coefficient.

        Parameters
        ----------
        level : float
            Coverage probability.

        Returns
        -------
        array of shape (..., n_features, 2)
            Lower and upper end.

        Raises
        ------
        UncertifiedError
            If convergence was not certified.

        Notes
        -----
        The target is the minimiser of the expected loss plus the penalty, which for ``alpha > 0``
        is shrunk towards zero. With the default ``alpha="auto"`` the shrinkage is about that of one
        row of data. It is small compared to a standard error if rows are many, features are not
        nearly collinear and the noise is not tiny (with n rows, at least 1 / sqrt(n) of the
        standard deviation of the targets). It is not if the classes are nearly separable, where
        each row has little information: with 200 rows, 95% intervals cover coefficients of 3 in 59%
        of cases. Set ``alpha=0`` there, and for inference on unpenalised coefficients.

        Coverage is asymptotic in the number of rows. Weights scale the loss of a row, not the
        number of independent rows: for a table of counts, repeat the rows.
        """
        check_within("level", level, 0.0, 1.0, strict=True)
        error = self.coef_stderr_
        free = max(1, self.n_rows_ - self.n_features_in_ - int(self.fit_intercept))
        half_width = stats.t.ppf(0.5 + 0.5 * level, free) * error
        return np.stack([self.coef_ - half_width, self.coef_ + half_width], axis=-1)
