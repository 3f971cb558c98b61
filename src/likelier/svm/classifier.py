"""`SVC`: support vector classification by the exact dual, with optional probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from likelier.base import Array, Uncertainty
from likelier.fitting.monitor import Monitor
from likelier.fitting.one_class import or_constant
from likelier.fitting.probabilities import fit_calibration
from likelier.fitting.targets import OneClassError, check_labels, class_weights, unique_labels
from likelier.matrices import checked_matrix
from likelier.predictive import Categorical
from likelier.svm.checks import as_input_format, as_vector, check_finite
from likelier.svm.coupling import class_scores, pair_columns, pair_sigmoids
from likelier.svm.estimator import SVMEstimator, weights_of_features
from likelier.svm.fitted_kernel import dense
from likelier.svm.hard_margin import finite_penalties, reaches
from likelier.svm.pairs import join_pairs
from likelier.svm.posterior import calibration_scores, classifier
from likelier.svm.recipe import Recipe
from likelier.svm.rows import Rows
from likelier.svm.small import PairTable

NEGLIGIBLE_WEIGHT = 1e-100  # weight relative to the largest that is treated as zero


def _has_probabilities(self: Any) -> bool:
    if not self._wants_probabilities():
        raise AttributeError("predict_proba is not available when probability=False")
    return True


class SVC(ClassifierMixin, SVMEstimator):
    """Support vector classification by the exact dual, with scikit-learn's API and results.

    Minimises ``C sum_i omega_i max(0, 1 - y_i f(x_i)) + 1/2 |f|^2`` for every pair of classes.

    Parameters
    ----------
    C : float, default=1.0
        Penalty of margin errors. Infinity is a hard margin; the fit warns if classes overlap.
    kernel : str or callable, default="rbf"
        "rbf", "linear", "poly", "sigmoid", "precomputed", "laplacian", "matern32", "matern52", or a
        function of two matrices. A kernel that is not positive definite, such as "sigmoid", has
        several stationary points, and the solution may differ from LIBSVM's.
    degree, gamma, coef0 : int, {"scale", "auto"} or float, float
        Kernel parameters. "scale" is ``1 / (n_features v)``, where ``v`` is the variance of all
        entries of ``X``, weighted by ``sample_weight`` (not weighted in scikit-learn).
    shrinking : bool, default=True
        Whether to use the shrinking heuristic; the solution is the same.
    probability : bool, default=False
        Whether to calibrate probabilities by cross-validation, see Notes; takes about four times
        the time of the fit.
    tol : float, default=1e-3
        Tolerance of the optimality conditions.
    cache_size : float, default=200
        Memory for kernel rows, in MB.
    class_weight : dict, "balanced" or None, default=None
        Non-negative weights of the classes. "balanced" makes their total weights equal, including
        ``sample_weight`` (not included in scikit-learn).
    verbose : bool, default=False
        Print the number of updates and the final gap of every pair.
    max_iter : int or None, default=None
        Maximum number of pair updates. None is ten million, or 100 per row if that is more; -1 is
        unlimited.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        One score per class, or one per pair of classes.
    break_ties : bool, default=False
        Break ties in votes by scores instead of the order of the classes.
    checkpoint : path-like or None, default=None
        Folder where a fit under way is recorded every few seconds; the same fit, run again after
        it was killed, resumes there and ends with the same bits. Needs an int ``random_state``.
    n_jobs : int or None, default=None
        Threads, over pairs of classes, or over kernel rows for a single pair.
    random_state : int, RandomState or None, default=None
        Seed of the folds of ``probability=True``.

    Attributes
    ----------
    support_, support_vectors_, n_support_ : arrays
        Indices of the support vectors in the data, grouped by class; their rows; their number per
        class.
    dual_coef_ : ndarray of shape (n_classes - 1, n_SV)
    intercept_ : ndarray, one per pair of classes
    classes_, class_weight_ : ndarray of shape (n_classes,)
    n_iter_ : ndarray
        Pair updates of every pair of classes.
    fit_status_ : int
        0 if every pair converged.
    shape_fit_ : tuple
    probA_, probB_ : ndarray, one per pair of classes
        Platt's parameters, fitted to out-of-fold scores; empty without ``probability``. With two
        classes `predict_proba` uses another calibration map, which always agrees with `predict`.

    Notes
    -----
    Cost: updates x rows of a pair, and kernel values of the updated rows with all rows of the pair.
    Memory: ``cache_size``, and a few numbers per row; the process keeps up to 80 MB for the next
    fit.

    Probabilities are calibrated on out-of-fold scores of five folds. With several classes, the
    probabilities of pairs are coupled, in rows x classes^3 operations, and then calibrated jointly.
    Class weights affect them as they affect `predict`: a class of larger weight is more probable
    than its frequency.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from likelier import SVC
    >>> X, y = load_iris(return_X_y=True)
    >>> SVC().fit(X, y).score(X, y) > 0.97
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SVMEstimator._parameter_constraints,
        "break_ties": ["boolean"],
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
    }

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: Any = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        probability: bool = False,
        tol: float = 1e-3,
        cache_size: float = 200,
        class_weight: Any = None,
        verbose: bool = False,
        max_iter: int | None = None,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _fit_models(
        self, models: list[SVC], X: Any, y: Any, sample_weight: Any, monitor: Monitor
    ) -> None:
        """Fit models that differ in C (ascending) on the same rows."""
        self._validate_params()
        X = self._check_X(X, reset=True)
        check_consistent_length(X, checked_matrix(y, "y"))
        y = _validated_labels(y)
        weight = self._check_weight(sample_weight, X)
        self.classes_ = unique_labels(y)
        if len(self.classes_) < 2:
            raise OneClassError(self.classes_)
        rows = self._prepare(X, _keep_all_classes(weight, y))
        self._warn_extremes(X, weight)
        if rows.weight is not None:
            negligible = rows.weight <= NEGLIGIBLE_WEIGHT * rows.weight.max()
            rows = replace(rows, weight=np.where(negligible, 0.0, rows.weight))
        codes = np.searchsorted(self.classes_, y[rows.indices])
        per_class = class_weights(self.class_weight, self.classes_, codes, rows.weight)
        self.class_weight_ = np.ones(len(self.classes_)) if per_class is None else per_class
        if per_class is not None:
            ones = np.ones(len(codes)) if rows.weight is None else rows.weight
            rows = replace(rows, weight=ones * per_class[codes])
        with self._threads() as team:
            recipe = Recipe(self._inference, team, self.tol, monitor)
            Cs = [model.C for model in models]
            table = recipe.pairs(rows, codes, len(self.classes_), Cs)
            for number, model in enumerate(models):
                for name in ("n_features_in_", "feature_names_in_", "_gamma", "_fitted_rows"):
                    if name in self.__dict__:
                        setattr(model, name, getattr(self, name))
                model.classes_, model.class_weight_ = self.classes_, self.class_weight_
                model._store(X, rows, table, number, quiet=monitor.over)
                if self._wants_probabilities() and not monitor.over:
                    model._calibrate(X, rows, codes, recipe)

    def _store(self, X: Any, rows: Rows, table: PairTable, number: int, quiet: bool) -> None:
        joined = join_pairs(table, number)
        self.calibration_: dict[str, Any] = {}
        self.probA_, self.probB_ = np.empty(0), np.empty(0)
        self._store_support(X, rows.indices[joined["support"]])
        self.dual_coef_ = as_input_format(joined["dual_coef"], self.support_vectors_)
        self.n_support_ = joined["n_support"]
        self.intercept_ = table.intercepts[number].copy()
        self.n_iter_ = table.n_iter[number].astype(np.int32)
        gap = table.gap[number]
        unsolved = ~table.solved[number]
        diverged = np.isinf(self.C) and reaches(
            joined["dual_coef"], finite_penalties([self.C], rows, self.tol)[0],
            None if rows.weight is None else rows.weight[joined["support"]],
        )  # fmt: skip
        self._report(not unsolved.any(), gap[unsolved].max(initial=0.0), diverged, quiet)

    # -- probabilities -------------------------------------------------------------------
    def _calibrate(self, X: Any, rows: Rows, codes: Array, recipe: Recipe) -> None:
        """Fit the map from scores to probabilities on out-of-fold scores."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        scores, where = recipe.out_of_fold_scores(X, rows, codes, len(self.classes_), self.C, seed)
        if not len(where):
            raise ValueError(
                "probability=True needs at least two rows of some class for cross-validation; y "
                f"has {len(codes)} rows of {len(self.classes_)} classes"
            )
        weight = None if rows.weight is None else rows.weight[where]
        sigmoids = pair_sigmoids(scores, codes[where], weight, len(self.classes_))
        scores = calibration_scores(scores, sigmoids, len(self.classes_))
        self.calibration_ = fit_calibration(scores, codes[where], weight)
        self.probA_, self.probB_ = sigmoids

    @available_if(_has_probabilities)
    @or_constant
    def predict_proba(self, X: Any) -> Array:
        """Probability of every class; its argmax is always the prediction of `predict`."""
        return self._predictive(X).probabilities()

    @available_if(_has_probabilities)
    @or_constant
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @available_if(_has_probabilities)
    @or_constant
    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the predicted classes in nats; a point estimate has no epistemic part."""
        return self._predictive(X).uncertainty()

    def _predictive(self, X: Any) -> Categorical:
        rows = self._rows(X)
        return classifier(self).predictive(rows)

    # -- predictions ---------------------------------------------------------------------
    def _columns(self) -> Array:
        """Coefficients of the support vectors, one column per pair of classes."""
        table = dense(self.dual_coef_)
        columns = table.T if len(table) == 1 else pair_columns(table, self.n_support_)
        return np.ascontiguousarray(columns)

    @or_constant
    def decision_function(self, X: Any) -> Array:
        """Scores: one per row for two classes; else one per class, or per pair for "ovo"."""
        rows = self._rows(X)
        scores = classifier(self).pair_scores(rows)
        if scores.shape[1] == 1:
            return scores.ravel()
        if self.decision_function_shape == "ovo":
            return scores
        return class_scores(scores, len(self.classes_))

    @or_constant
    def predict(self, X: Any) -> Array:
        """Class of every row, by majority vote of the pairs."""
        check_is_fitted(self, "support_")
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        rows = self._rows(X)
        return np.asarray(self.classes_[classifier(self).point(rows)])

    @property
    def coef_(self) -> Any:
        """Weights of the features, for the linear kernel: one row per pair of classes."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        return weights_of_features(self._columns().T, self.support_vectors_)


def _validated_labels(y: Any) -> Array:
    """Validated class labels."""
    y = as_vector(y)
    if y.dtype.kind == "f":
        check_finite(y, "y")
    check_labels(y)
    return np.asarray(y)


def _keep_all_classes(weight: Array | None, y: Array) -> Array | None:
    """Weights with tiny ones instead of zeros for classes whose total weight is zero."""
    if weight is None or (weight > 0.0).all() or not weight.any():
        return weight
    lost = ~np.isin(y, np.unique(y[weight > 0.0]))
    return np.where(lost, NEGLIGIBLE_WEIGHT * weight.max(), weight) if lost.any() else weight
