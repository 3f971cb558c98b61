"""Posteriors of fitted SVMs: the expansion over support vectors, and the calibration of its scores.

``fitted`` has the parameters and fitted attributes by their names: an estimator, or what a model
file holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix, Posterior
from likelier.calibration import Temperature, restore
from likelier.engines.threads import one_blas_thread
from likelier.files.declared import check_array
from likelier.kernels import Kernel, Prepared
from likelier.predictive import Categorical
from likelier.svm.coupling import class_scores, couple_probabilities, pair_scores, votes
from likelier.svm.fitted_kernel import dense, fitted_kernel
from likelier.svm.held_out_errors import HeldOutErrors
from likelier.svm.model import block_rows


@dataclass(frozen=True)
class Expansion:
    """A kernel and support vectors; rows of a kernel matrix in place of rows if it is precomputed.

    ``support`` has the indices of the support vectors in the training rows.
    """

    kernel: Kernel
    vectors: Matrix
    support: Array

    @cached_property
    def _prepared(self) -> Prepared:
        return self.kernel.prepare(self.vectors)

    def scores(self, X: Matrix, weigh: Callable[[Array], Array], intercepts: Array) -> Array:
        """``weigh(K(X, support vectors)) + intercepts``, in blocks of rows."""
        out = np.empty((X.shape[0], len(intercepts)))
        with one_blas_thread():
            for some, K in self._blocks(X.astype(np.float64, copy=False)):
                out[some] = weigh(K)
        out += intercepts
        return out

    def _blocks(self, X: Matrix) -> Iterator[tuple[slice, Array]]:
        """Kernel values of blocks of new rows with the support vectors."""
        n = int(X.shape[0])
        if self.kernel.precomputed:
            yield slice(0, n), dense(X)[:, self.support]
            return
        if not sparse.issparse(self.vectors):
            X = dense(X)
        step = block_rows(max(1, len(self.support)), 8)
        for start in range(0, n, step):
            some = slice(start, min(start + step, n))
            empty = np.empty((some.stop - start, 0))
            yield some, self._prepared.against(X[some]) if len(self.support) else empty

    def check(self, n_features: int) -> None:
        """Raise a ValueError unless kernel values with rows of so many features can be made."""
        n, most = len(self.support), n_features - 1 if self.kernel.precomputed else None
        check_array("support_", self.support, (None,), kind="int", low=0, high=most)
        if self.kernel.precomputed:
            return
        if sparse.issparse(self.vectors):
            check_array("support_vectors_", self.vectors.data, (None,))
            if self.vectors.shape != (n, n_features):
                raise ValueError(f"support_vectors_ has shape {self.vectors.shape}")
        else:
            check_array("support_vectors_", self.vectors, (n, n_features))
        if n:
            self._prepared.take(slice(0, 1)).diagonal()  # parameters fit the columns


@dataclass(frozen=True)
class ClassifierPosterior(Posterior):
    """Scores of every pair of classes, and their calibration where there is one.

    ``dual_coef`` is LIBSVM's table (see `pair_scores`), ``sigmoids`` are Platt's parameters of the
    pairs, which several classes are coupled by.
    """

    expansion: Expansion
    dual_coef: Array
    n_support: Array
    intercept: Array
    sigmoids: tuple[Array, Array]
    calibration: dict[str, Any] = field(default_factory=dict)
    break_ties: bool = False

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.n_support)

    def pair_scores(self, X: Matrix) -> Array:
        """Scores of every pair of classes."""
        return self.expansion.scores(
            X, lambda K: pair_scores(K, self.dual_coef, self.n_support), self.intercept
        )

    def point(self, X: Matrix) -> Array:
        """Number of the class with most votes, for models without probabilities too."""
        return self._winners(self.pair_scores(X))

    def predictive(self, X: Matrix) -> Categorical:
        if not self.calibration:
            raise ValueError(
                "probabilities are not calibrated: the model was fitted with probability=False, or "
                "the fit was stopped; fit with probability=True"
            )
        scores, calibration = self.pair_scores(X), restore(self.calibration)
        if scores.shape[1] == 1:
            positive = calibration.probabilities(scores[:, 0])
            p = np.stack([1.0 - positive, positive], axis=1)
        else:
            p = calibration.probabilities(calibration_scores(scores, self.sigmoids, self.n_classes))
        return Categorical(_with_argmax(p, self._winners(scores)))

    def _winners(self, scores: Array) -> Array:
        """Number of the predicted class."""
        if self.n_classes == 2:
            return (scores[:, 0] >= 0.0).astype(np.intp)
        if self.break_ties:
            return np.asarray(class_scores(scores, self.n_classes).argmax(axis=1))
        return np.asarray(votes(scores, self.n_classes).argmax(axis=1))

    def check(self, n_features: int, n_classes: int | None) -> None:
        K, n = n_classes or 0, len(self.expansion.support)
        n_pairs = K * (K - 1) // 2
        self.expansion.check(n_features)
        check_array("dual_coef_", self.dual_coef, (K - 1, n))
        check_array("n_support_", self.n_support, (K,), kind="int", low=0)
        if int(self.n_support.sum()) != n:
            raise ValueError(f"n_support_ must sum to {n}")
        check_array("intercept_", self.intercept, (n_pairs,))
        if not self.calibration:
            return
        if isinstance(restore(self.calibration), Temperature) != (K > 2):
            raise ValueError(f"calibration_ is not one of {K} classes")
        for name, values in zip(("probA_", "probB_"), self.sigmoids, strict=True):
            check_array(name, values, (n_pairs,))


@dataclass(frozen=True)
class HeldOut:
    """A fit without some rows, and its sorted absolute errors on these.

    ``columns`` has the indices of its training rows, which are its columns of a kernel matrix.
    """

    fit: RegressorPosterior
    columns: Array | None
    errors: Array
    weight: Array

    def predictive(self, X: Matrix) -> HeldOutErrors:
        """Distribution of the targets of rows of the whole model."""
        if self.fit.expansion.kernel.precomputed:
            X = dense(X)[:, self.columns]
        return HeldOutErrors(self.fit.point(X), np.ones(1), self.errors, self.weight)

    @property
    def std(self) -> float:
        """Root mean square of the errors."""
        return float(np.sqrt(np.average(self.errors**2, weights=self.weight)))

    def check(self, n_features: int) -> None:
        """Raise a ValueError unless it can predict for rows of so many features."""
        check_array("residuals_", self.errors, (None,), low=0.0)
        check_array("residual_weight_", self.weight, self.errors.shape, low=0.0)
        if (np.diff(self.errors) < 0.0).any() or not self.weight.sum() > 0.0:
            raise ValueError("residuals_ must be sorted, and residual_weight_ positive")
        if self.fit.expansion.kernel.precomputed:
            name = "_held_out_columns"
            high = n_features - 1
            check_array(name, self.columns, (None,), kind="int", low=0, high=high)
            n_features = 0 if self.columns is None else len(self.columns)
        self.fit.check(n_features, None)


@dataclass(frozen=True)
class RegressorPosterior(Posterior):
    """The scores, which are the predictions, and errors of held-out rows where there are some."""

    expansion: Expansion
    coef: Array
    intercept: Array
    held_out: HeldOut | None = None

    def point(self, X: Matrix) -> Array:
        """Prediction of the fit on all rows."""
        return self.expansion.scores(X, lambda K: K @ self.coef, self.intercept).ravel()

    def predictive(self, X: Matrix) -> HeldOutErrors:
        return self.errors().predictive(X)

    def errors(self) -> HeldOut:
        """What held-out rows have shown; raises where there were none."""
        if self.held_out is None:
            raise ValueError(
                "held-out residuals are not available: the model was fitted with "
                "probability=False or on one row, or the fit was stopped; fit with "
                "probability=True on at least two rows"
            )
        return self.held_out

    def check(self, n_features: int, n_classes: int | None) -> None:
        self.expansion.check(n_features)
        check_array("dual_coef_", self.coef, (len(self.expansion.support), 1))
        check_array("intercept_", self.intercept, (1,))
        if self.held_out is not None:
            self.held_out.check(n_features)


def classifier(fitted: Any) -> ClassifierPosterior:
    """Posterior of an `SVC`."""
    return ClassifierPosterior(
        _expansion(fitted), dense(fitted.dual_coef_), fitted.n_support_, fitted.intercept_,
        (fitted.probA_, fitted.probB_), fitted.calibration_, bool(fitted.break_ties),
    )  # fmt: skip


def regressor(fitted: Any) -> RegressorPosterior:
    """Posterior of an `SVR`."""
    held_out = None
    if len(fitted.residuals_):
        columns = getattr(fitted, "_held_out_columns", None)
        held_out = HeldOut(
            regressor(fitted.held_out_fit_), columns, fitted.residuals_, fitted.residual_weight_
        )
    coef = np.ascontiguousarray(dense(fitted.dual_coef_).T)
    return RegressorPosterior(_expansion(fitted), coef, fitted.intercept_, held_out)


def _expansion(fitted: Any) -> Expansion:
    return Expansion(fitted_kernel(fitted), fitted.support_vectors_, fitted.support_)


def calibration_scores(scores: Array, sigmoids: tuple[Array, Array], n_classes: int) -> Array:
    """Scores to calibrate: the score of a single pair, else coupled log probabilities."""
    return scores if scores.shape[1] == 1 else couple_probabilities(scores, *sigmoids, n_classes)


def _with_argmax(p: Array, winners: Array) -> Array:
    """Probabilities whose argmax is the winner, by swapping it with the largest if necessary."""
    rows = np.arange(len(p))
    leader = p.argmax(axis=1)
    wrong = leader != winners
    r, w, other = rows[wrong], winners[wrong], leader[wrong]
    p[r, w], p[r, other] = p[r, other], p[r, w]
    tied = p.argmax(axis=1) != winners  # equal probabilities
    p[rows[tied], winners[tied]] *= 1.0 + 1e-12
    return np.asarray(p / p.sum(axis=1, keepdims=True))
