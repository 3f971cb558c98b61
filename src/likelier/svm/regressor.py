"""`SVR`: support vector regression by the exact dual, with optional prediction intervals."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length

from likelier.base import Array
from likelier.fitting.monitor import Monitor
from likelier.losses import EpsilonInsensitive
from likelier.matrices import checked_matrix
from likelier.svm.checks import as_input_format, as_vector, check_finite
from likelier.svm.estimator import SVMEstimator, weights_of_features
from likelier.svm.fitted_kernel import dense
from likelier.svm.hard_margin import finite_penalties, reaches
from likelier.svm.posterior import regressor
from likelier.svm.recipe import Recipe
from likelier.svm.rows import Rows
from likelier.svm.solution import Solution

HELD_OUT = 0.2  # fraction of rows held out to measure residuals
MIN_HELD_OUT = 50


def _has_intervals(model: Any) -> bool:
    if not model._wants_probabilities():
        raise AttributeError("predict_interval is not available when probability=False")
    return True


class SVR(RegressorMixin, SVMEstimator):
    """Support vector regression by the exact dual, with scikit-learn's API and results.

    Minimises ``C sum_i omega_i max(0, |y_i - f(x_i)| - epsilon) + 1/2 |f|^2``.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        "rbf", "linear", "poly", "sigmoid", "precomputed", "laplacian", "matern32", "matern52", or a
        function of two matrices.
    degree, gamma, coef0 : int, {"scale", "auto"} or float, float
        Kernel parameters. "scale" is ``1 / (n_features v)``, where ``v`` is the variance of all
        entries of ``X``, weighted by ``sample_weight`` (not weighted in scikit-learn).
    tol : float, default=1e-3
        Tolerance of the optimality conditions.
    C : float, default=1.0
        Penalty of errors. Infinity allows no errors above ``epsilon``; the fit warns if there is no
        such solution.
    epsilon : float, default=0.1
        Errors up to this size are not penalised.
    shrinking : bool, default=True
        Whether to use the shrinking heuristic; the solution is the same.
    probability : bool, default=False
        Whether to measure residuals for `predict_interval` by a second fit without a fifth of the
        rows.
    cache_size : float, default=200
        Memory for kernel rows, in MB.
    checkpoint : path-like or None, default=None
        Folder where a fit under way is recorded every few seconds; the same fit, run again after
        it was killed, resumes there and ends with the same bits. Needs an int ``random_state``.
    verbose : bool, default=False
        Print the number of updates and the final gap.
    max_iter : int or None, default=None
        Maximum number of pair updates. None is ten million, or 100 per row if that is more; -1 is
        unlimited.
    n_jobs : int or None, default=None
        Threads for blocks of kernel rows.
    random_state : int, RandomState or None, default=None
        Seed of the choice of held-out rows.

    Attributes
    ----------
    support_, support_vectors_, n_support_ : arrays
        Indices of the support vectors in the data, their rows, and their number.
    dual_coef_ : ndarray of shape (1, n_SV)
    intercept_ : ndarray of shape (1,)
    n_iter_ : int
        Pair updates.
    fit_status_ : int
        0 if the fit converged.
    shape_fit_ : tuple
    residuals_, residual_weight_ : ndarray
        Sorted absolute errors on held-out rows, and their weights; empty unless
        ``probability=True``.
    held_out_fit_ : SVR or None
        The fit without those rows.

    Notes
    -----
    Cost: updates x rows, and kernel values of the updated rows with all rows. Memory:
    ``cache_size``, and a few numbers per row; the process keeps up to 80 MB for the next fit.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import SVR
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = SVR(C=10.0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.11)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SVMEstimator._parameter_constraints,
        "epsilon": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: Any = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        C: float = 1.0,
        epsilon: float = 0.1,
        shrinking: bool = True,
        probability: bool = False,
        cache_size: float = 200,
        checkpoint: Any = None,
        verbose: bool = False,
        max_iter: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.C = C
        self.epsilon = epsilon
        self.shrinking = shrinking
        self.probability = probability
        self.cache_size = cache_size
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_models(
        self, models: list[SVR], X: Any, y: Any, sample_weight: Any, monitor: Monitor
    ) -> None:
        """Fit models that differ in C (ascending) on the same rows."""
        self._validate_params()
        X = self._check_X(X, reset=True)
        check_consistent_length(X, checked_matrix(y, "y"))
        y = _validated_targets(y)
        weight = self._check_weight(sample_weight, X)
        rows = self._prepare(X, weight)
        self._warn_extremes(X, weight)
        self._fit_rows(models, X, y[rows.indices], rows, monitor, "coefficients")
        for model in models:
            if model._wants_probabilities() and not monitor.over:
                model._fit_residuals(X, y, weight, monitor)

    def _fit_rows(
        self, models: list[SVR], X: Any, y: Array, rows: Rows, monitor: Monitor, stage: str
    ) -> None:
        """Fit models that differ in C (ascending) on the same prepared rows."""
        loss, Cs = EpsilonInsensitive(float(self.epsilon)), [model.C for model in models]
        with self._threads() as team:
            recipe = Recipe(self._inference, team, self.tol, monitor)
            found = recipe.regression(stage, rows, y, loss, Cs)
            for model, solution in zip(models, found, strict=True):
                for name in ("n_features_in_", "feature_names_in_", "_gamma", "_fitted_rows"):
                    if name in self.__dict__:
                        setattr(model, name, getattr(self, name))
                model._store(X, rows, solution, monitor.over)

    def _store(self, X: Any, rows: Rows, solution: Solution, quiet: bool) -> None:
        support = np.flatnonzero(solution.beta)
        self.held_out_fit_: Any = None
        self.residuals_ = self.residual_weight_ = np.empty(0)
        self._store_support(X, rows.indices[support])
        self.dual_coef_ = as_input_format(solution.beta[support][None], self.support_vectors_)
        self.n_support_ = np.array([len(support)], dtype=np.int32)
        self.intercept_ = np.array([solution.intercept])
        self.n_iter_ = solution.n_iter
        limit = finite_penalties([self.C], rows, self.tol)[0]
        diverged = np.isinf(self.C) and reaches(solution.beta, limit, rows.weight)
        self._report(solution.converged, solution.gap, diverged, quiet)

    # -- held-out residuals --------------------------------------------------------------
    def _fit_residuals(self, X: Any, y: Array, weight: Array | None, monitor: Monitor) -> None:
        """Store residuals of held-out rows, and the second fit that they belong to."""
        present = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0.0)
        count = min(max(MIN_HELD_OUT, round(HELD_OUT * len(present))), len(present) // 2)
        if count < 1:
            return
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        order = present[np.random.default_rng([seed, 2]).permutation(len(present))]
        outside, inside = np.sort(order[:count]), np.sort(order[count:])
        weights = np.ones(len(y)) if weight is None else weight
        X_inside, X_outside = _safe_indexing(X, inside), _safe_indexing(X, outside)
        if self._is_given():
            X_inside, X_outside = X_inside[:, inside], X_outside[:, inside]
        second = clone(self).set_params(probability=False, checkpoint=None)
        X_inside = second._check_X(X_inside, reset=True)
        rows = second._prepare(X_inside, weights[inside])
        second._fit_rows([second], X_inside, y[inside], rows, monitor, "held-out fit")
        self.held_out_fit_ = second
        self._held_out_columns = inside
        errors = abs(y[outside] - second.predict(X_outside))
        order = np.argsort(errors, kind="stable")
        self.residuals_, self.residual_weight_ = errors[order], weights[outside][order]

    # -- predictions ---------------------------------------------------------------------
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Prediction for every row.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
        return_std : bool, default=False
            Also return the standard deviation of the target around the prediction: the root mean
            square of the held-out errors, the same for every row.
        """
        rows = self._rows(X)
        posterior = regressor(self)
        mean = posterior.point(rows)
        return (mean, np.full(len(mean), posterior.errors().std)) if return_std else mean

    @available_if(_has_intervals)
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Prediction interval of probability ``coverage``, of shape (n_rows, 2).

        By split conformal prediction: the interval is centred at the prediction of a fit on four
        fifths of the rows, and its width is a quantile of the errors of that fit on the others. If
        rows are exchangeable the coverage is at least ``coverage``, for every distribution.
        Duplicates are not exchangeable with new rows, so pass each row once, with a weight. With
        too few held-out rows for a coverage, intervals are infinite. `predict` uses the fit on all
        rows; with few rows and a small coverage, its value may lie outside of the interval.
        """
        rows = self._rows(X)
        return regressor(self).predictive(rows).interval(coverage)

    @property
    def coef_(self) -> Any:
        """Weights of the features, for the linear kernel."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        return weights_of_features(dense(self.dual_coef_), self.support_vectors_)


def _validated_targets(y: Any) -> Array:
    """Targets as floats, without NaN or infinity."""
    y = as_vector(y)
    if y.dtype.kind not in "biuf":
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("y must be numeric; use SVC for class labels") from None
    check_finite(y, "y")
    return np.asarray(y, dtype=np.float64)
