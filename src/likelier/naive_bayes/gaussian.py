"""`GaussianNB`, with missing values, sparse rows, outlier detection and sampling."""

from __future__ import annotations

import os
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval

from likelier.base import Array, Batch
from likelier.fitting.extreme_cells import warn_extreme_cells, watched
from likelier.fitting.monitor import Monitor
from likelier.naive_bayes.closed_form import ClassPosterior
from likelier.naive_bayes.gaussian_model import GaussianModel, GaussianStats
from likelier.naive_bayes.model import ClassPrior, ClassStatistics
from likelier.naive_bayes.posterior import gaussian
from likelier.naive_bayes.recipe import NaiveBayes


class GaussianNB(NaiveBayes):
    """Gaussian naive Bayes; results agree with scikit-learn.

    ``p(y, x) = p(y) prod_j N(x_j; mean_yj, var_yj)``, with class means and population
    variances. Missing values (NaN) are marginalised: they are left out of the product, and of
    means and variances.

    Parameters
    ----------
    priors : array-like of shape (n_classes,), default=None
        Probabilities of the classes; by default their fractions of the training weight.
    var_smoothing : float, default=1e-9
        Fraction of the largest variance of a feature that is added to all variances. It refers to
        all rows so far, also after `partial_fit`. Rows of weight zero are ignored, unlike in
        scikit-learn.
    bayesian : bool, default=False
        Use the posterior predictive, a Student-t distribution per feature, instead of plug-in
        estimates. The conjugate prior weighs as much as one row and has the mean and variance of
        all rows. Adds one row to each class count.
    n_jobs : int or None, default=None
        Number of threads.
    random_state : int, RandomState or None, default=None
        Seed of `sample`, `predict_uncertainty` and the rows that calibrate `is_outlier`.
    checkpoint : str or path-like, default=None
        Folder for checkpoints; an interrupted fit of the same data and parameters resumes there.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_count_ : ndarray of shape (n_classes,)
        Training weight of each class.
    class_prior_ : ndarray of shape (n_classes,)
    theta_, var_ : ndarray of shape (n_classes, n_features)
        Mean and smoothed variance of each feature per class.
    epsilon_ : float
        Constant added to the variances.
    inlier_scores_, inlier_weight_ : ndarray
        Out-of-fold scores of a sample of training rows, used by `is_outlier`, and their weights.

    Notes
    -----
    `fit` visits every value once (of a CSR matrix every stored value twice); predicting costs
    rows x features x classes. Sums are kept in double precision whatever the input.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import GaussianNB
    >>> X = np.array([[-1.0, -1], [-2, -1], [-3, -2], [1, 1], [2, 1], [3, 2]])
    >>> model = GaussianNB().fit(X, ["a", "a", "a", "b", "b", "b"])
    >>> str(model.predict([[-0.8, np.nan]])[0])  # the missing value is marginalised
    'a'
    >>> rows, labels = model.sample(3, y="b")
    >>> rows.shape
    (3, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "priors": ["array-like", None],
        "var_smoothing": [Interval(Real, 0, None, closed="left")],
        "bayesian": ["boolean"],
        "random_state": ["random_state"],
    }
    _stats_kind: type[ClassStatistics] = GaussianStats
    class_prior_: Array
    theta_: Array
    var_: Array

    def __init__(
        self,
        *,
        priors: Any = None,
        var_smoothing: float = 1e-9,
        bayesian: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.priors = priors
        self.var_smoothing = var_smoothing
        self.bayesian = bayesian
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.checkpoint = checkpoint

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _open_source(self, X: Any, y: Any) -> Any:
        return watched(super()._open_source(X, y), self)

    def _learn(
        self, rows: Batch, before: Any, classes: Array, codes: Array, monitor: Monitor
    ) -> Self:
        super()._learn(rows, before, classes, codes, monitor)
        warn_extreme_cells(self, rows.X)  # only once the rows are accepted
        return self

    def _model(self, n_classes: int, n_features: int) -> GaussianModel:
        return GaussianModel(n_classes, float(self.var_smoothing), bool(self.bayesian))

    def _prior(self, n_classes: int) -> ClassPrior:
        if self.priors is None:
            return ClassPrior(bayesian=bool(self.bayesian))
        priors = np.asarray(self.priors, dtype=np.float64)
        if priors.shape != (n_classes,):
            raise ValueError(
                f"Number of priors must match number of classes: priors has {len(priors)} "
                f"entries for {n_classes} classes"
            )
        if not np.isclose(priors.sum(), 1.0):
            raise ValueError(f"The sum of the priors should be 1, got {priors.sum()}")
        if (priors < 0.0).any():
            raise ValueError("Priors must be non-negative")
        return ClassPrior(priors)

    def _publish(self, model: GaussianModel, stats: GaussianStats) -> dict[str, Any]:
        model.check_varied(stats)
        theta, var = model.estimates(stats)
        return {
            "class_count_": stats.class_count,
            "class_prior_": np.exp(self._prior(len(theta)).log(stats.class_count)),
            "theta_": theta,
            "var_": var,
            "epsilon_": model.epsilon(stats),
        }

    def _posterior(self) -> ClassPosterior:
        return gaussian(self)
