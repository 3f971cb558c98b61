"""Base class of `SVC` and `SVR`: parameters, validation, kernels and the solver."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from copy import deepcopy
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import (
    Interval,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from likelier.base import Array, Matrix
from likelier.engines.threads import ThreadTeam, count_threads, one_blas_thread
from likelier.fitting.dataset import is_stream
from likelier.fitting.estimator import fitting
from likelier.fitting.extreme_cells import NO_SCALE, SHARED_SCALE, warn_extreme_cells
from likelier.fitting.monitor import CallbackSupportMixin, Monitor, with_callbacks
from likelier.fitting.one_class import one_class_is_constant
from likelier.kernels import Kernel, make_kernel
from likelier.matrices import as_csr, checked_matrix, checked_weight
from likelier.svm.checks import (
    checked_grid,
    kernel_values,
)
from likelier.svm.fitted_kernel import fitted_kernel, is_custom, is_precomputed
from likelier.svm.rows import Rows
from likelier.svm.smo import SMO
from likelier.svm.watch import Watch

DEFAULT_MAX_ITER = 10_000_000  # default limit
SKLEARN_DEFAULT = "deprecated"  # default of ``probability`` in scikit-learn's SVC
# set by a fit
PRIVATE_ATTRIBUTES = ("_gamma", "_fitted_rows", "_held_out_columns")


class SVMEstimator(CallbackSupportMixin, BaseEstimator, ABC):
    """Parameters, kernels and fitting of SVMs, for one or several values of C."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="right")],
        "kernel": [str, Kernel, callable],
        "degree": [Interval(Integral, 0, None, closed="left")],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "shrinking": ["boolean"],
        "probability": ["boolean", StrOptions({SKLEARN_DEFAULT})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "cache_size": [Interval(Real, 0, None, closed="neither")],
        "verbose": ["verbose"],
        "max_iter": [Interval(Integral, -1, None, closed="left"), None],
        "random_state": ["random_state"],
    }
    kernel: Any
    _gamma: float

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self._is_given()
        tags.input_tags.pairwise = self._is_given()
        return tags

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features), or (n_rows, n_rows)
        y : array of shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
            Per-row factors of C; rows of weight zero are ignored.

        Notes
        -----
        A fit that fails or is interrupted leaves the model as it was.
        """
        with fitting(self, X, y, sample_weight) as monitor, one_class_is_constant(self):
            self._clear_fitted()
            self._fit_models([self], X, y, sample_weight, monitor)
        return self

    def _clear_fitted(self) -> None:
        """Delete the attributes of an earlier fit."""
        names = [n for n in vars(self) if n in PRIVATE_ATTRIBUTES or (n[-1] == "_" and n[0] != "_")]
        params = self.get_params(deep=False) if names else {}  # takes as long as a small fit
        for name in names:
            if name not in params:
                delattr(self, name)

    def fit_path(self, X: Any, y: Any, Cs: Any, sample_weight: Any = None) -> list[Self]:
        """Fit one model per value of C, with shared kernel rows and warm starts.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        Cs : array of float
            Values of C in any order. A path keeps no checkpoint.

        Returns
        -------
        list of SVC or SVR
            Fitted models in the order of ``Cs``; this estimator itself is not fitted.
        """
        params = {name: deepcopy(value) for name, value in self.get_params(deep=False).items()}
        models = [type(self)(**{**params, "C": C}) for C in checked_grid(Cs)]
        ordered = sorted(models, key=lambda model: model.C)
        ordered[0]._fit_models(ordered, X, y, sample_weight, Monitor())
        return models

    @abstractmethod
    def _fit_models(
        self, models: list[Self], X: Any, y: Any, sample_weight: Any, monitor: Monitor
    ) -> None:
        """Fit models that differ in C (ascending) on the same rows."""

    # -- checks -------------------------------------------------------------------------
    def _validate_params(self) -> None:
        """As in scikit-learn, but without `get_params`, which takes half of the time."""
        values = {name: getattr(self, name) for name in self._parameter_constraints}
        validate_parameter_constraints(self._parameter_constraints, values, type(self).__name__)

    def _check_X(self, X: Any, reset: bool) -> Any:
        if is_custom(self.kernel):
            return X  # passed to the function without validation
        if is_stream(X):
            raise TypeError(
                f"X must be in memory: {type(self).__name__} does not support files or streams; "
                "use BayesianKernelClassifier or BayesianKernelRegressor"
            )
        if sparse.issparse(X) and self.kernel == "precomputed":
            raise TypeError("X must be dense for kernel='precomputed'; use X.toarray()")
        X = validate_data(
            self, checked_matrix(X), reset=reset, dtype=np.float64, order="C", accept_sparse="csr"
        )
        return as_csr(X)

    def _check_weight(self, sample_weight: Any, X: Any) -> Array | None:
        if sample_weight is None:
            return None
        weight = checked_weight(sample_weight, X, allow_all_zero_weights=True)
        if not (weight > 0.0).any():
            raise ValueError(
                "sample_weight must be positive for some rows: Invalid input - all samples have "
                "zero or negative weights."
            )
        return weight

    def _warn_extremes(self, X: Any, weight: Array | None) -> None:
        """Warn of columns of extreme scale; only ``gamma="scale"`` depends on outliers."""
        if not is_precomputed(self.kernel):
            named = isinstance(self.kernel, str) and self.kernel != "linear"
            shared = named and isinstance(self.gamma, str) and self.gamma == "scale"
            warn_extreme_cells(self, X, weight, SHARED_SCALE if shared else NO_SCALE)

    # -- the kernel ----------------------------------------------------------------------
    def _is_given(self) -> bool:
        """Whether the user passes a kernel matrix as ``X``."""
        return is_precomputed(self.kernel) and not is_custom(self.kernel)

    def _wants_probabilities(self) -> bool:
        """Whether ``probability`` is true; scikit-learn's default "deprecated" is false."""
        return not isinstance(self.probability, str) and bool(self.probability)

    def _prepare(self, X: Any, weight: Array | None) -> Rows:
        """Resolve gamma, and prepare the rows of positive weight for the kernel."""
        precomputed = is_precomputed(self.kernel)
        if is_custom(self.kernel):
            self._fitted_rows = X
            X = np.ascontiguousarray(kernel_values(self.kernel(X, X), X, X))
        if precomputed and X.shape[0] != X.shape[1]:
            raise ValueError(
                "Precomputed matrix must be a square matrix: X must have as many columns as rows, "
                f"got {X.shape}"
            )
        indices = np.arange(X.shape[0])
        if weight is not None and not (weight > 0.0).all():
            indices = np.flatnonzero(weight > 0.0)
            weight = weight[indices]
            X = X[indices][:, indices] if precomputed else X[indices]
        self._gamma = 0.0 if precomputed else self._resolve_gamma(X, weight)
        return Rows(fitted_kernel(self).prepare(X), indices, weight, self._cache_bytes())

    def _resolve_gamma(self, X: Matrix, weight: Array | None) -> float:
        """The numeric value of ``gamma``, with weights equivalent to repeated rows."""
        if isinstance(self.kernel, str) and not isinstance(self.gamma, str):
            return float(self.gamma)
        if weight is not None and (weight == weight[:1]).all():
            weight = None  # bit-identical to an unweighted fit
        given = make_kernel(self.kernel, gamma=self.gamma, X=X, sample_weight=weight)
        gamma = given.get_params().get("gamma", 0.0)
        return gamma if isinstance(gamma, float) else 0.0  # the kernel stores one per feature

    def _store_support(self, X: Any, support: Array) -> None:
        """Store the support vectors, without rows for a precomputed kernel."""
        self.shape_fit_ = X.shape if hasattr(X, "shape") else (len(X),)
        self.support_ = support.astype(np.int32)
        if is_precomputed(self.kernel):
            self.support_vectors_ = np.empty((0, 0))
        else:
            self.support_vectors_ = X[support]

    def _rows(self, X: Any) -> Matrix:
        """New rows as the posterior takes them: those of the kernel matrix for a function."""
        check_is_fitted(self, "support_")
        X = self._check_X(X, reset=False)
        if is_custom(self.kernel):
            return kernel_values(self.kernel(X, self._fitted_rows), X, self._fitted_rows)
        rows: Matrix = X
        return rows

    def _cache_bytes(self) -> int:
        return int(float(self.cache_size) * 2**20)

    # -- solving -------------------------------------------------------------------------
    def _inference(
        self, n_rows: int, n_concurrent: int = 1, team: ThreadTeam | None = None,
        watch: Watch | None = None,
    ) -> SMO:  # fmt: skip
        """SMO with the parameters of this estimator; ``n_concurrent`` problems run concurrently."""
        limit = max(DEFAULT_MAX_ITER, 100 * n_rows) if self.max_iter is None else int(self.max_iter)
        many = team is not None and team.n_threads > 1
        return SMO(
            float(self.tol), limit, bool(self.shrinking),
            self._cache_bytes() // n_concurrent,
            team.together if many and team is not None else None,
            team.n_threads if many and team is not None else 1,
            watch,
        )  # fmt: skip

    @contextmanager
    def _threads(self) -> Generator[ThreadTeam, None, None]:
        team = ThreadTeam(count_threads(self.n_jobs))
        try:
            with one_blas_thread():
                yield team
        finally:
            team.close()

    def _report(self, converged: bool, gap: float, diverged: bool, quiet: bool = False) -> None:
        """Set ``fit_status_`` and warn if the tolerance was not reached.

        ``diverged`` means that coefficients diverged with ``C=inf``.
        """
        self.fit_status_ = 0 if converged and not diverged else 1
        if diverged and not quiet:
            warnings.warn(
                "no solution without errors was found for C=inf; lower C, or choose a kernel that "
                "can separate the classes (or fit the targets)",
                ConvergenceWarning,
                stacklevel=3,
            )
        elif not (converged or quiet):
            warnings.warn(
                f"Solver terminated early (max_iter={self.max_iter}): the optimality conditions "
                f"are violated by {gap:.2g}, more than tol={self.tol:g}. Standardise the "
                "features, lower C, or raise max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )


def weights_of_features(coefficients: Array, X: Any) -> Any:
    """``coefficients @ X`` as in scikit-learn: CSR for sparse rows, and read-only."""
    given: Any = sparse.csr_matrix(coefficients) if sparse.issparse(X) else coefficients
    weights = given @ X
    values = weights.data if sparse.issparse(X) else weights
    values.flags.writeable = False
    return weights
