"""`SVR`: support vector regression by the exact dual, with intervals on request."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from likelier.base import Array
from likelier.calibration import conformal_quantile
from likelier.engines.threads import ThreadTeam
from likelier.losses import EpsilonInsensitive
from likelier.matrices import checked_matrix
from likelier.svm.checks import dense, finite, like_input, number, one_column
from likelier.svm.estimator import Rows, SVMEstimator, say, weights_of_features
from likelier.svm.hard import finite_values, reaches
from likelier.svm.kernel_cache import kept_memory
from likelier.svm.model import KernelExpansion
from likelier.svm.path import solve_path
from likelier.svm.smo import SMALL, InterruptedSolveError, KernelPosterior

HELD_OUT = 0.2  # share of rows that measure how far predictions are off
FEWEST_HELD_OUT = 50


def _has_intervals(model: Any) -> bool:
    if not model._asked_for_probabilities():
        raise AttributeError("predict_interval is not available when probability=False")
    return True


class SVR(RegressorMixin, SVMEstimator):
    """Support vector regression: the exact dual, with scikit-learn's words and answers.

    Minimises ``C sum_i omega_i max(0, |y_i - f(x_i)| - epsilon) + 1/2 |f|^2``.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        "rbf", "linear", "poly", "sigmoid", "precomputed" (also "laplacian", "matern32",
        "matern52"), or a function of two matrices.
    degree, gamma, coef0 : int, {"scale", "auto"} or float, float
        Parameters of the kernels that have them. "scale" is ``1 / (n_features v)``, ``v`` the
        variance of all entries of ``X``, in which a row counts by its ``sample_weight`` (unlike
        scikit-learn's, where weights then differ from repeated rows).
    tol : float, default=1e-3
        Largest violation of the optimality conditions that is left.
    C : float, default=1.0
        Weight of the errors. Infinity allows none above ``epsilon``; where that cannot be reached
        the fit ends with a warning.
    epsilon : float, default=0.1
        Errors up to this size cost nothing.
    shrinking : bool, default=True
        Put rows aside that cannot move. The answer is the same.
    probability : bool, default=False
        Hold out a fifth of the rows from a second fit, about as costly as the first, and learn
        from them how far predictions are off: see `predict_interval`.
    cache_size : float, default=200
        Memory for kernel rows, in MB.
    verbose : bool, default=False
        Print how the fit ended.
    max_iter : int or None, default=None
        Pair updates at most: None means ten million, or a hundred per row if that is more;
        -1 means no limit, and 0 none at all: no support vectors, one number for every row.
    n_jobs : int or None, default=None
        Threads for blocks of kernel rows.
    random_state : int, RandomState or None, default=None
        Chooses the rows that are held out.

    Attributes
    ----------
    support_, support_vectors_, n_support_ : arrays
        Positions of the support vectors in the data, their rows, and how many there are.
    dual_coef_ : ndarray of shape (1, n_SV)
    intercept_ : ndarray of shape (1,)
    n_iter_ : int
        Pair updates.
    fit_status_ : int
        0 if the fit converged.
    shape_fit_ : tuple
    residuals_, residual_weight_ : ndarray
        Sizes of the errors on held-out rows, sorted, and their weights; empty unless
        ``probability=True``.
    held_out_fit_ : SVR or None
        The fit that had not seen those rows.

    Notes
    -----
    Cost: updates x rows, and kernel values of the rows that move with all rows. Memory:
    ``cache_size``, and some numbers per row; up to 80 MB of it stay with the process for the next
    fit.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import SVR
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = SVR(C=10.0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.11)
    True
    """

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
        self.verbose = verbose
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_models(
        self, models: list[SVR], X: Any, y: Any, sample_weight: Any, quiet: bool = False
    ) -> None:
        """Fit models that differ in C (ascending) on the same rows."""
        self._validate_parameters()
        number("epsilon", self.epsilon, 0.0)
        X = self._check_X(X, reset=True)
        check_consistent_length(X, checked_matrix(y, "y"))
        y = _numbers(y)
        weight = self._check_weight(sample_weight, X)
        rows = self._prepare(X, weight)
        if not quiet:
            self._warn_extremes(X, weight)
        targets = y[rows.numbers]
        with self._threads() as team:
            try:
                found = self._solve(rows, targets, [model.C for model in models], team)
            except InterruptedSolveError as stop:
                if stop.posterior.beta.any():
                    self._store(X, rows, stop.posterior, quiet=True)
                raise
            for model, solution in zip(models, found, strict=True):
                for name in ("n_features_in_", "feature_names_in_", "_gamma", "_fitted_rows"):
                    if name in self.__dict__:
                        setattr(model, name, getattr(self, name))
                model._store(X, rows, solution)
        for model in models:
            model._measure(X, y, weight)

    def _solve(
        self, rows: Rows, y: Array, Cs: list[float], team: ThreadTeam
    ) -> list[KernelPosterior]:
        smo = self._inference(len(y), 1, team)
        loss = EpsilonInsensitive(float(self.epsilon))
        Cs = finite_values(Cs, rows, self.tol)
        models = [KernelExpansion(rows.prepared.kernel, loss, C) for C in Cs]
        rows.make_working(len(y) > SMALL)
        with kept_memory() as memory:
            return solve_path(smo, models, rows.subset(None), y, rows.weight, memory)

    def _store(self, X: Any, rows: Rows, solution: KernelPosterior, quiet: bool = False) -> None:
        support = np.flatnonzero(solution.beta)
        self.held_out_fit_: Any = None
        self.residuals_ = self.residual_weight_ = np.empty(0)
        self._keep_rows(X, rows.numbers[support])
        self.dual_coef_ = like_input(solution.beta[support][None], self.support_vectors_)
        self.n_support_ = np.array([len(support)], dtype=np.int32)
        self.intercept_ = np.array([solution.intercept])
        self.n_iter_ = solution.n_iter
        if self.verbose:
            say(solution.n_iter, solution.gap)
        limit = finite_values([self.C], rows, self.tol)[0]
        endless = np.isinf(self.C) and reaches(solution.beta, limit, rows.weight)
        self._report(solution.converged, solution.gap, endless, quiet)

    # -- how far predictions are off -----------------------------------------------------
    def _measure(self, X: Any, y: Array, weight: Array | None) -> None:
        """Errors on rows held out from a second fit, whose predictions centre the intervals."""
        present = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0.0)
        count = min(max(FEWEST_HELD_OUT, round(HELD_OUT * len(present))), len(present) // 2)
        if not self._asked_for_probabilities() or count < 1:
            return
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        order = present[np.random.default_rng([seed, 2]).permutation(len(present))]
        outside, inside = np.sort(order[:count]), np.sort(order[count:])
        weights = np.ones(len(y)) if weight is None else weight
        fewer, rest = _safe_indexing(X, inside), _safe_indexing(X, outside)
        if self._is_given():
            fewer, rest = fewer[:, inside], rest[:, inside]
        second = clone(self).set_params(probability=False)
        second._fit_models([second], fewer, y[inside], weights[inside], quiet=True)
        self.held_out_fit_ = second
        self._held_out_columns = inside
        errors = abs(y[outside] - second.predict(rest))
        order = np.argsort(errors, kind="stable")
        self.residuals_, self.residual_weight_ = errors[order], weights[outside][order]

    def _check_measured(self) -> None:
        check_is_fitted(self, "support_")
        if not len(self.residuals_):
            raise ValueError(
                "how far predictions are off is not known: the model was fitted with "
                "probability=False or on one row, or the fit was interrupted before it was "
                "measured; fit with probability=True, on more than one row"
            )

    # -- predictions ---------------------------------------------------------------------
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Prediction for every row.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
        return_std : bool, default=False
            Return the standard deviation of the target around the prediction as well: the root
            mean square of the held-out errors, the same for every row.
        """
        check_is_fitted(self, "support_")
        columns = np.ascontiguousarray(dense(self.dual_coef_).T)
        mean = self._expand(X, lambda K: K @ columns, self.intercept_).ravel()
        if not return_std:
            return mean
        self._check_measured()
        spread = np.sqrt(np.average(self.residuals_**2, weights=self.residual_weight_))
        return mean, np.full(len(mean), spread)

    @available_if(_has_intervals)
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Interval that holds the target with probability ``coverage``, of shape (n_rows, 2).

        Split conformal: the interval lies around the prediction of a fit on four fifths of the
        rows, and is as wide as the errors of that fit on the others ask for. If rows are
        exchangeable it covers at least ``coverage``, whatever their distribution. Copies of rows
        are not exchangeable with new ones, and would be judged by themselves: give each row once,
        with a weight. Too few
        held-out rows for a coverage make it infinite. `predict` is of the fit on all rows: where
        rows are few and the coverage is small, it may lie outside of the interval.
        """
        self._check_measured()
        reach = conformal_quantile(self.residuals_, coverage, self.residual_weight_)
        X = self._check_X(X, reset=False)  # here, since the second fit saw a bare matrix
        if self._is_given():
            X = X[:, self._held_out_columns]
        centre = self.held_out_fit_.predict(X)
        return np.stack([centre - reach, centre + reach], axis=1)

    @property
    def coef_(self) -> Any:
        """Weights of the features, for the linear kernel."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        return weights_of_features(dense(self.dual_coef_), self.support_vectors_)


def _numbers(y: Any) -> Array:
    """Targets as floats, without NaN or infinity."""
    y = one_column(y)
    if y.dtype.kind not in "biuf":
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("y must hold numbers; SVC is for labels") from None
    finite(y, "y")
    return np.asarray(y, dtype=np.float64)
