"""`MultilabelClassifier`: a Dirichlet-process mixture combined with Bayesian classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from likelier.base import Batch
from likelier.fitting.estimator import fitting
from likelier.fitting.extreme_cells import warn_extreme_cells
from likelier.fitting.monitor import Monitor, with_callbacks
from likelier.fitting.rollback import unchanged_on_failure
from likelier.multilabel import recipe
from likelier.multilabel.checks import check_features
from likelier.multilabel.combination import base_rates
from likelier.multilabel.features import FeatureMap
from likelier.multilabel.folds import fold_rows
from likelier.multilabel.logistic import LabelWeights, update_labels
from likelier.multilabel.posterior import CLASSES, MATRIX, match_layout, write_mixture
from likelier.multilabel.predictions import LabelPredictions
from likelier.multilabel.recipe import Fitted, FittedMixture, Settings
from likelier.multilabel.rows import (
    Labels,
    Rows,
    check_known,
    distinct_rows,
    known_counts,
    read_labels,
)
from likelier.multilabel.settings import Mixture, make_mixture
from likelier.multilabel.variational import VariationalMixture
from likelier.thresholds import OBJECTIVES


class MultilabelClassifier(LabelPredictions):
    """Multi-label classifier that also learns from unlabelled rows.

    A Bayesian logistic regression per label is combined with a Dirichlet-process mixture of
    features and labels, which is fitted to all rows, labelled or not. Stacking weights and one
    threshold per label are estimated out of fold.

    Parameters
    ----------
    mixture : "dirichlet_process" or Mixture, default="dirichlet_process"
        Settings of the mixture; ``Mixture(n_components=0)`` for none.
    combine : {"log_odds", "product"}, default="log_odds"
        How mixture and classifiers are combined. "product" multiplies their probabilities, for
        comparison only: labels with frequency 0.37 get 0.20.
    threshold : {"micro", "macro", "hamming"}, default="micro"
        Objective of the thresholds: micro-F1, macro-F1 or the fraction of correct labels.
    kernel : bool or "auto", default="auto"
        Whether to use Gaussian kernel features as well; "auto" up to 30,000 dense or 4,000 sparse
        labelled rows, and 30,000 rows in total.
    n_folds : int, default=5
        Cross-validation folds; at most 3 where rows x features x labels exceed 10^9.
    checkpoint : path-like or None, default=None
        Folder for checkpoints: the same fit, run again after an interruption, resumes there, to
        the same bits. Needs an int ``random_state``.
    n_jobs : int or None, default=None
        Threads for the mixture's sums over rows.
    random_state : int, RandomState or None, default=None
        Seed of folds, landmarks and initial components.
    time_budget : float or None, default=None
        Seconds after which no further stage is started, and the mixture makes no further pass.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    label_names_, classes_ : ndarray
        Names of the columns of ``Y``, or numbers; classes if ``y`` held one class per row.
    thresholds_, all_thresholds_ : ndarray of shape (n_labels,), dict
        Log-odds above which a label is predicted, and those for every objective.
    base_rates_, label_counts_ : ndarray of shape (n_labels,)
        Smoothed frequency of every label, and the weight of the rows in which it was known.
    stack_weights_ : ndarray
        Stacking weights of the classifiers' feature maps and, last, of the mixture.
    alpha_ : list of ndarray
        Prior precision of every label, for each map, chosen by cross-validation.
    combine_, features_, temperature_ : str, str, float or None
        What the fit used; changed parameters take effect with the next one.
    n_iter_, elbo_ : int, ndarray
        Passes of the mixture, and its evidence lower bound after each.
    label_patterns_ : list of dict
        Each component: its fraction of rows, top labels and top features.

    Notes
    -----
    Scores are log-odds, ``score_c = sum_m g_m f_mc + g (logit pbar_c - logit base_c)``, with
    ``f_m`` the scores of the classifiers on feature map ``m`` and ``pbar`` the mixture's
    probabilities; the weights ``g`` are fitted out of fold. The classifiers cost some ten products
    rows x features x labels per fold and prior precision, the mixture rows x features x components
    per pass. All rows are held in memory, and equal ones are merged.

    ``Y`` may be dense, sparse or a frame of 0 and 1, or one class per row. NaN (dense only; in a
    frame also NA or null) is unknown; a row of NaN is used by the mixture, the scales and the
    thresholds. A label with a single observed value gets its smoothed frequency. If a quarter of
    the rows are unlabelled, maps scaled by the spread of all rows and a mixture of the labelled
    rows alone are tried too.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import MultilabelClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 0] + X[:, 1] > 0]).astype(float)
    >>> Y[150:] = np.nan  # unlabelled rows
    >>> model = MultilabelClassifier(random_state=0).fit(X, Y)
    >>> model.predict([[1.0, 1.0, 0.0], [-1.0, -1.0, 0.0]])
    array([[1, 1],
           [0, 0]])
    """

    _values: ClassVar[Mapping[str, Any]] = {"mixture": make_mixture}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "combine": [StrOptions({"log_odds", "product"})],
        "threshold": [StrOptions(set(OBJECTIVES))],
        "kernel": [StrOptions({"auto"}), "boolean"],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "time_budget": [Interval(Real, 0, None, closed="neither"), None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        mixture: str | Mixture = "dirichlet_process",
        combine: str = "log_odds",
        threshold: str = "micro",
        kernel: bool | str = "auto",
        n_folds: int = 5,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        time_budget: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.mixture = mixture
        self.combine = combine
        self.threshold = threshold
        self.kernel = kernel
        self.n_folds = n_folds
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.time_budget = time_budget
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows, labelled or not.
        y : array-like, CSR matrix or frame of shape (n_samples, n_labels)
            Labels 0 and 1; NaN where unknown. Or one class per row, ``(n_samples,)``. A frame with
            a single column of 0 and 1 is one label of that name.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights; a row of weight 0 is ignored.

        Notes
        -----
        A fit that fails or is interrupted leaves the model as it was.
        """
        self._validate_params()
        with fitting(self, X, y, sample_weight) as monitor:
            self._fit(X, y, sample_weight, None, monitor)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, classes: Any, monitor: Monitor) -> None:
        rows_X = self._check_X(X, reset=True)
        labels = read_labels(y, classes)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = distinct_rows(rows_X, labels.Y, sample_weight, seed)
        warn_extreme_cells(self, rows.X)
        if labels.kind == MATRIX:
            check_known(rows.Y, labels.names)
        self.sparse_rows_ = not isinstance(rows.X, np.ndarray)
        if labels.Y.shape[1] == 0:  # a single class
            self._store(Fitted([], None, np.zeros(1), dict.fromkeys(OBJECTIVES, np.zeros(0))))
        else:
            rows, fold = fold_rows(rows, int(self.n_folds), seed)
            self._store(recipe.fit(rows, fold, self._settings(labels.kind, seed), monitor))
        self._store_labels(labels, rows)
        self.use_threshold(self.threshold)

    def _settings(self, kind: str, seed: int) -> Settings:
        mixture = self._value("mixture")
        return Settings(kind, seed, mixture, self.combine, self.kernel, self.n_jobs)

    def _store(self, fitted: Fitted) -> None:
        self.maps_ = [part.map.to_arrays() for part in fitted.maps]
        self.weights_ = [part.weights.to_arrays() for part in fitted.maps]
        self.alpha_ = [part.alpha for part in fitted.maps]
        self.stack_weights_ = fitted.stack
        self.all_thresholds_ = fitted.thresholds
        self._store_mixture(fitted.mixture)

    def _store_labels(self, labels: Labels, rows: Rows) -> None:
        self.label_names_ = labels.names
        self.classes_ = labels.names if labels.kind == MATRIX else labels.classes
        self.target_kind_ = labels.kind
        self.combine_, self.features_ = self.combine, self._value("mixture").features
        self.base_rates_ = base_rates(rows.Y, rows.weight)
        self.label_counts_ = known_counts(rows.Y, rows.weight)
        self.n_seen_ = float(rows.weight.sum())

    def use_threshold(self, objective: str) -> Self:
        """Switch to the thresholds of another objective without refitting.

        Parameters
        ----------
        objective : {"micro", "macro", "hamming"}
            Objective of the thresholds.
        """
        check_is_fitted(self, "all_thresholds_")
        if objective not in self.all_thresholds_:
            raise ValueError(f"objective must be one of {list(OBJECTIVES)}, got {objective!r}")
        self.thresholds_ = self.all_thresholds_[objective]
        return self

    def _store_mixture(self, mixture: FittedMixture | None) -> None:
        self.elbo_ = np.array([] if mixture is None else mixture.bounds)
        self.n_iter_ = max(1, len(self.elbo_))
        self.temperature_ = None
        self.mixture_ = None
        if mixture is not None:
            self.temperature_ = mixture.state.model.temperature
            self.mixture_ = write_mixture(mixture.state, mixture.scaling)

    # -- incremental learning -------------------------------------------------------------
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn a batch of rows; the first call is a full fit and should have a few hundred rows.

        The posterior of the classifiers' weights becomes the prior, and the mixture takes a
        natural-gradient step. Feature maps, stacking weights and thresholds remain those of the
        first call. Labels of a frame are matched by name, and a later batch may be unlabelled.
        ``classes`` announces classes (one class per row only).
        """
        self._validate_params()
        if not hasattr(self, "thresholds_"):
            monitor = Monitor(verbose=bool(self.verbose), time_budget=self.time_budget)
            with unchanged_on_failure(self):
                self._fit(X, y, sample_weight, classes, monitor)
            return self
        rows_X = match_layout(self._check_X(X, reset=False), self.sparse_rows_)
        if self.mixture_ is not None:  # an inferred distribution is fixed by the first call
            names = getattr(self, "feature_names_in_", None)
            check_features(rows_X, self.mixture_["features"], names, guessed=True)
        labels = self._read_batch_labels(y, classes)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = distinct_rows(rows_X, labels.Y, sample_weight, seed)
        warn_extreme_cells(self, rows.X)
        self._update(rows)
        return self

    def _read_batch_labels(self, y: Any, classes: Any) -> Labels:
        """Labels of a later batch, in the order of the first."""
        if self.target_kind_ == MATRIX:
            labels = read_labels(y, kind=MATRIX)
        else:
            if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(
                    f"classes must be those of the first call, {self.classes_}; got {classes!r}"
                )
            labels = read_labels(y, self.classes_, CLASSES)
        if labels.kind != self.target_kind_ or labels.Y.shape[1] != len(self.base_rates_):
            raise ValueError(
                f"y must have the {len(self.base_rates_)} labels of the first call, in the same "
                f"form; got {labels.Y.shape[1]}"
            )
        return labels.reorder(self.label_names_) if labels.kind == MATRIX else labels

    def _update(self, rows: Rows) -> None:
        """Update weights and mixture; the model changes only once everything is computed."""
        updated = []
        for plain, weights in zip(self.maps_, self.weights_, strict=True):
            Z = FeatureMap.from_arrays(plain).apply(rows.X)
            Y, weight = rows.Y.astype(Z.dtype), rows.weight.astype(Z.dtype)
            posterior = update_labels(Z, Y, weight, LabelWeights.from_arrays(weights))
            updated.append(posterior.to_arrays())
        n_new, known = float(rows.weight.sum()), known_counts(rows.Y, rows.weight)
        n_seen, counts = self.n_seen_ + n_new, self.label_counts_ + known
        positive = rows.weight @ np.nan_to_num(rows.Y)
        base = (self.base_rates_ * (self.label_counts_ + 1.0) + positive) / (counts + 1.0)
        if self.mixture_ is not None:
            state, scaling = self._mixture()
            batch = Batch(scaling.apply(rows.X), rows.Y, rows.weight)
            inference = VariationalMixture(True, decay=self._value("mixture").learning_decay)
            known_ratio = (known / n_new) / np.maximum(counts / n_seen, 1e-300)
            before = state.params  # the evidence is computed with these
            state, evidence = inference.learn(state, batch, n_seen / n_new, known_ratio)
            bound = state.model.bound(before, evidence * n_seen / n_new)
            self.elbo_ = np.append(self.elbo_, bound)
            self.mixture_ = {
                **self.mixture_, "params": state.params.to_arrays(), "step": state.step
            }  # fmt: skip
        self.weights_, self.n_seen_, self.label_counts_ = updated, n_seen, counts
        self.base_rates_ = base
