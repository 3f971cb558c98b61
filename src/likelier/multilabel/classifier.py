"""`MultilabelClassifier`: a Dirichlet-process mixture combined with Bayesian classifiers."""

from __future__ import annotations

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
from likelier.multilabel.variational import VariationalMixture
from likelier.thresholds import OBJECTIVES


class MultilabelClassifier(LabelPredictions):
    """Multi-label classifier that also learns from unlabelled rows.

    A Bayesian logistic regression per label is combined with a Dirichlet-process mixture of
    features and labels, which is fitted to all rows, labelled or not. Stacking weights and one
    threshold per label are estimated out of fold.

    Parameters
    ----------
    n_components : int, default=30
        Maximum number of mixture components, at most one per distinct row; 0 disables the mixture.
    features : {"auto", "gaussian", "bernoulli", "multinomial"}, default="auto"
        Distribution of the features in the mixture: real, binary, or non-negative counts. "auto"
        infers it from the first rows.
    label_distribution : {"bernoulli", "multinomial"}, default="bernoulli"
        Distribution of the labels in a component: independent, or one over all labels.
    feature_temperature : float or "auto", default="auto"
        Power in (0, 1] of the features' likelihood in the mixture; small values keep many features
        from outweighing the labels. "auto" chooses it by the loss of held-out labels.
    combine : {"log_odds", "product"}, default="log_odds"
        How mixture and classifiers are combined. "product" multiplies their probabilities, for
        comparison only: the result is far below observed frequencies (0.20 for labels with
        frequency 0.37).
    threshold : {"micro", "macro", "hamming"}, default="micro"
        Objective of the thresholds: micro-F1, macro-F1 or the fraction of correct labels; see
        Notes.
    kernel : bool or "auto", default="auto"
        Whether to use Gaussian kernel features as well; "auto" up to 30,000 dense or 4,000 sparse
        labelled rows, and 30,000 rows in total.
    n_folds : int, default=5
        Number of cross-validation folds; at most 3 where rows x features x labels exceed 10^9.
    batch_size : int or None, default=None
        Rows per stochastic step of the mixture. None uses all rows at once up to 20,000 rows, and
        1,024 above.
    learning_decay : float, default=0.7
        Step sizes of stochastic steps are proportional to ``t^-learning_decay``, in (0.5, 1].
    max_iter : int, default=100
        Maximum number of passes of the mixture over the data.
    tol : float, default=1e-4
        The mixture has converged when its bound increases by less than this per row.
    checkpoint : path-like or None, default=None
        Folder where a fit under way is recorded every few seconds; the same fit, run again after
        it was killed, resumes there and ends with the same bits. Needs an int ``random_state``.
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
    label_names_ : ndarray of shape (n_labels,)
        Columns of ``Y``: names of a frame (integers if all are, otherwise strings), or numbers.
    classes_ : ndarray
        The same as ``label_names_``, or the classes if ``y`` held one class per row.
    thresholds_ : ndarray of shape (n_labels,)
        Log-odds above which a label is predicted.
    all_thresholds_ : dict
        Thresholds for every objective; see `use_threshold`.
    base_rates_ : ndarray of shape (n_labels,)
        Smoothed frequency of every label in all rows seen.
    label_counts_ : ndarray of shape (n_labels,)
        Weight of the rows in which each label was known. A label with 0 has probability 0.5 and is
        never predicted.
    combine_, features_ : str
        Parameters used by the fit; changed values take effect with the next one.
    stack_weights_ : ndarray
        Stacking weights of the classifiers' feature maps and, last, of the mixture.
    alpha_ : list of ndarray
        Prior precision of every label, for each map; chosen by cross-validation, and at least one
        over the number of examples of the rarer values of all labels.
    temperature_ : float or None
        Feature temperature of the mixture.
    n_iter_ : int
        Passes of the mixture.
    elbo_ : ndarray
        Evidence lower bound of the mixture after every pass; non-decreasing where all rows are used
        at once. With stochastic steps it is an estimate, summed over batches under changing
        parameters. `partial_fit` appends the bound before its step, extrapolated from the batch to
        all rows seen so far; divide by the number of rows to compare.
    label_patterns_ : list of dict
        Description of each component: its fraction of rows, top labels and top features.

    Notes
    -----
    **Model.** Scores are log-odds, ``score_c = sum_m g_m f_mc + g (logit pbar_c - logit base_c)``,
    with ``f_m`` the scores of the classifiers on feature map ``m`` and ``pbar`` the mixture's
    probabilities. The weights ``g``, shared by all labels, are fitted out of fold, which also
    calibrates ``f``. A prior worth about one observation keeps the sum of ``g_m`` near one and
    ``g`` near zero where labels are few.

    **Thresholds.** A label is predicted for at most ten times as many rows as have it, and for
    hardly more rows than have it if these are few: the F1 of rare labels that are not predictable
    is largest, and close to zero, if they are predicted for every row.

    **Cost.** The classifiers of all labels share every product with the features, in uncorrelated
    directions, where one diagonal per label approximates its curvature well: some ten products rows
    x features x labels per fold and prior precision, plus features^3 once. The mixture costs rows x
    features x components per pass. Whenever it has converged, pairs of components are merged if
    that increases the bound, which costs one more pass each time, plus components^2 x (features +
    labels).

    **Unknown labels.** ``Y`` may be dense, sparse or a frame of 0 and 1. NaN (dense only; in a
    frame also NA or null) means unknown and is left out; a row of NaN is unlabelled, and is used by
    the mixture, the scales and the thresholds. A label with a single observed value gets its
    smoothed frequency as probability, and does not affect the stacking weights. If a quarter of the
    rows or more are unlabelled, two variants are added: every feature map with its directions
    multiplied by their standard deviations over all rows, which makes clusters more compact and
    doubles the cost of the classifiers; and the mixture of labelled rows alone, which is used if
    unlabelled rows only draw the components away from the labels. One class per row (``y`` of one
    dimension) is accepted too; classes are then exclusive.

    **Rows.** All rows are held in memory. Missing features are rejected; impute them before. Equal
    rows are merged, so a weight of two is the same as a duplicate. Rows of equal features are held
    out together, unless their labels often differ, or there are few distinct rows, each repeated
    often: then they are separate observations, and assigned to folds individually.

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
    >>> names, probabilities = model.predict_topk(X[:2], k=1)
    >>> names.shape
    (2, 1)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(Integral, 0, None, closed="left")],
        "features": [StrOptions({"auto", "gaussian", "bernoulli", "multinomial"})],
        "label_distribution": [StrOptions({"bernoulli", "multinomial"})],
        "feature_temperature": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="right")],
        "combine": [StrOptions({"log_odds", "product"})],
        "threshold": [StrOptions(set(OBJECTIVES))],
        "kernel": [StrOptions({"auto"}), "boolean"],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "learning_decay": [Interval(Real, 0.5, 1, closed="right")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "time_budget": [Interval(Real, 0, None, closed="neither"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_components: int = 30,
        features: str = "auto",
        label_distribution: str = "bernoulli",
        feature_temperature: float | str = "auto",
        combine: str = "log_odds",
        threshold: str = "micro",
        kernel: bool | str = "auto",
        n_folds: int = 5,
        batch_size: int | None = None,
        learning_decay: float = 0.7,
        max_iter: int = 100,
        tol: float = 1e-4,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        time_budget: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.features = features
        self.label_distribution = label_distribution
        self.feature_temperature = feature_temperature
        self.combine = combine
        self.threshold = threshold
        self.kernel = kernel
        self.n_folds = n_folds
        self.batch_size = batch_size
        self.learning_decay = learning_decay
        self.max_iter = max_iter
        self.tol = tol
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
        return Settings(
            kind, seed, int(self.n_components), self.features, self.label_distribution,
            self.feature_temperature, self.combine, self.kernel, self.batch_size,
            self.learning_decay, int(self.max_iter), self.tol, self.n_jobs,
        )  # fmt: skip

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
        self.combine_, self.features_ = self.combine, self.features
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
            inference = VariationalMixture(True, decay=self.learning_decay)
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
