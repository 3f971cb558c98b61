"""`MultilabelClassifier`: a Dirichlet-process mixture and Bayesian classifiers per label."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.callback import with_callbacks
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from likelier.base import Batch
from likelier.fitting.extreme_cells import warn_extreme_cells
from likelier.fitting.time_budget import TimeBudget
from likelier.multilabel.features import LabelMap
from likelier.multilabel.folds import fold_rows
from likelier.multilabel.label_mixture import base_rates
from likelier.multilabel.logistic import LabelWeights, update_labels
from likelier.multilabel.predictions import LabelPredictions
from likelier.multilabel.recipe import (
    FittedMixture,
    conclude,
    fit_classifiers,
    try_mixture,
    warn_interrupted,
)
from likelier.multilabel.rows import (
    CLASSES,
    MATRIX,
    Labels,
    Rows,
    check_features,
    check_known,
    distinct_rows,
    known_counts,
    read_labels,
)
from likelier.multilabel.variational import VariationalMixture
from likelier.thresholds import OBJECTIVES


class MultilabelClassifier(LabelPredictions):
    """Any number of labels per row, from data of which only a part needs labels.

    Every label has a Bayesian logistic classifier; a Dirichlet-process mixture finds patterns
    of labels and features, also in rows without labels. Both are combined in log-odds,
    ``score_c = sum_m g_m f_mc + g (logit pbar_c - logit base_c)``, with weights ``g`` that are
    found out of fold (which calibrates the scores ``f`` of the classifiers on feature maps
    ``m``), as is one threshold per label. A weak prior, of about one observation, holds the sum
    of ``g_m`` near one and ``g`` near zero where labels are few.

    Parameters
    ----------
    n_components : int, default=30
        Most patterns the mixture may use, at most as many as it has different rows to learn
        from; fewer if fewer will do. 0 means no mixture.
    features : {"auto", "gaussian", "bernoulli", "multinomial"}, default="auto"
        Law of features in the mixture: numbers, presence (0 or 1) or counts (not negative;
        other values are refused, also by `predict`). "auto" looks at the first rows.
    label_distribution : {"bernoulli", "multinomial"}, default="bernoulli"
        Law of labels in a pattern: each by itself, or one distribution over all of them.
    feature_temperature : float or "auto", default="auto"
        Power in (0, 1] of the features' likelihood in the mixture, without which many features
        drown the labels. "auto" takes the one that predicts labels of held-out rows best.
    combine : {"log_odds", "product"}, default="log_odds"
        How mixture and classifiers are combined. "product" multiplies their probabilities, which
        is not calibrated: they come out far below observed frequencies (.20 where .37 of the
        labels are there). It is there to compare with; thresholds are tuned for it all the same.
    threshold : {"micro", "macro", "hamming"}, default="micro"
        What the thresholds maximise: F1 over all labels together, the mean of the labels' F1,
        or the share of correct labels. A label is predicted for at most ten times as many rows as
        have it, and for hardly more than have it where these are few: F1 of rare labels that
        cannot be told apart is largest, and next to nothing, if all rows are said to have them.
    kernel : bool or "auto", default="auto"
        Whether classifiers also use features of a Gaussian kernel; "auto" up to
        30,000 dense or 4,000 sparse labelled rows, and 30,000 rows in all.
    n_folds : int, default=5
        Folds behind weights, prior precisions and thresholds; at most 3 where rows times
        features times labels exceed 10^9.
    batch_size : int or None, default=None
        Rows per stochastic step of the mixture. None takes all rows at once up to 20,000 rows,
        1,024 above.
    learning_decay : float, default=0.7
        Steps shrink like ``t^-learning_decay``, in (0.5, 1]; stochastic steps only.
    max_iter : int, default=100
        Most passes of the mixture over the data.
    tol : float, default=1e-4
        The mixture stops when its bound rises less than this per row.
    n_jobs : int or None, default=None
        Threads of the mixture's sums over rows.
    random_state : int, RandomState or None, default=None
        Seeds folds, landmarks and first components. The same seed gives the same bits.
    time_budget : float or None, default=None
        Seconds after which no further part is begun.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    label_names_ : ndarray of shape (n_labels,)
        Columns of ``Y``: names of a frame (words, or whole numbers if all are), else numbers.
    classes_ : ndarray
        The same, or the classes if ``y`` held one class per row.
    thresholds_ : ndarray of shape (n_labels,)
        Log-odds above which a label is predicted.
    all_thresholds_ : dict
        Thresholds for every objective; see `use_threshold`.
    base_rates_ : ndarray of shape (n_labels,)
        Smoothed frequency of every label in all rows seen.
    label_counts_ : ndarray of shape (n_labels,)
        Weight of the rows in which each label was known. Of a label with 0 nothing is known:
        its probability is 0.5 and it is not predicted.
    combine_, features_ : str
        The words of the fit; setting others takes effect with the next one.
    stack_weights_ : ndarray
        Weights of the classifiers' feature maps and, last, of the mixture.
    alpha_ : list of ndarray
        Precision of every label's prior, for each map; chosen by rows held out, and never below
        one over the number of rarer answers of all labels together.
    temperature_ : float or None
        Feature temperature of the mixture.
    n_iter_ : int
        Passes of the mixture.
    elbo_ : ndarray
        Bound of the mixture after every pass, of all rows it learns from; it never falls where
        they are taken at once. With stochastic steps it is an estimate: a pass sums what every
        batch says under the parameters of its turn. `partial_fit` appends the bound before its
        step, estimated from its batch for all rows seen by then; divide by these to compare.
    label_patterns_ : list of dict
        What each pattern means: its share of rows, top labels and top features.
    interrupted_ : bool
        Whether the keyboard ended the fit early. What was finished by then is kept, with a
        warning: the maps that are done, and the mixture if its folds are. Before the first map
        is done there is nothing to keep, and ``KeyboardInterrupt`` goes on to the caller.

    Notes
    -----
    Labels of all classifiers share every product with the features, in directions that are
    uncorrelated, where one diagonal per label is a good guess of its curvature. Cost: some
    ten products rows x features x labels per fold and prior precision, plus features^3 once.
    Cost of the mixture per pass: rows x features x components. Whenever it has come to rest,
    pairs of components are joined if that raises the bound, which costs a pass more each time,
    plus components^2 x (features + labels).

    ``Y`` may be dense, sparse or a frame of 0 and 1. NaN (dense only; in a frame also NA or null)
    means unknown: the value is left out; a row of NaN is unlabelled, and helps through patterns,
    scales and thresholds. A label that all rows have, or none, has its smoothed frequency as
    probability, and no say in the weights of the parts. Where a quarter of the rows or more are
    unlabelled, every feature map is also offered with its directions weighed by how far all rows
    spread along them, which draws clusters together and doubles the cost of the classifiers; and
    so is the mixture of labelled rows alone, which is taken if unlabelled rows only led it away
    from the labels.
    One class per row (``y`` of one dimension) is accepted too; classes then compete.

    Rows with missing features are refused: fill them in before. Equal rows are merged, so a
    weight of two is the same as a copy. Rows of equal features are held out together, unless
    they often have different labels, or there are few kinds of row, each of them often: then
    they are observations of their own, and dealt out to the folds one by one.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import MultilabelClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 0] + X[:, 1] > 0]).astype(float)
    >>> Y[150:] = np.nan  # nobody has labelled these rows
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
            Labels 0 and 1; NaN where unknown. Or one class per row, ``(n_samples,)``. A frame
            with a single column of 0 and 1 is one label of that name.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; a row of weight 0 is as good as absent.
        """
        self._validate_params()
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        self._fit(X, y, sample_weight, None)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> None:
        rows_X = self._check_X(X, reset=True)
        labels = read_labels(y, classes)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = distinct_rows(rows_X, labels.Y, sample_weight, seed)
        warn_extreme_cells(self, rows.X)
        if labels.kind == MATRIX:
            check_known(rows.Y, labels.names)
        self.sparse_rows_ = not isinstance(rows.X, np.ndarray)
        budget = TimeBudget(self, (X, y))
        if labels.Y.shape[1] == 0:  # a single class: there is nothing to tell apart
            self._store_nothing(labels, rows)
            return
        rows, fold = fold_rows(rows, int(self.n_folds), seed)
        parts = fit_classifiers(rows, fold, self.kernel, seed, budget)
        mixture = try_mixture(self, parts, rows, fold, seed, budget)
        weights, thresholds = conclude(parts, mixture, rows, fold, labels.kind, self.combine, seed)
        self.maps_ = [part.to_arrays() for part in parts.maps]
        self.weights_ = [law.to_arrays() for law in parts.weights]
        self.alpha_ = parts.alphas
        self.stack_weights_ = weights
        self.interrupted_ = parts.interrupted
        self._store_mixture(mixture)
        self._store_labels(labels, rows)
        self.all_thresholds_ = thresholds
        self.use_threshold(self.threshold)
        if self.interrupted_:
            warn_interrupted(len(self.maps_), mixture is not None)

    def _store_labels(self, labels: Labels, rows: Rows) -> None:
        self.label_names_ = labels.names
        self.classes_ = labels.names if labels.kind == MATRIX else labels.classes
        self.target_kind_ = labels.kind
        self.combine_, self.features_ = self.combine, self.features
        self.base_rates_ = base_rates(rows.Y, rows.weight)
        self.label_counts_ = known_counts(rows.Y, rows.weight)
        self.n_seen_ = float(rows.weight.sum())

    def _store_nothing(self, labels: Labels, rows: Rows) -> None:
        self.maps_, self.weights_, self.alpha_ = [], [], []
        self.stack_weights_, self.interrupted_ = np.zeros(1), False
        self._store_mixture(None)
        self._store_labels(labels, rows)
        self.all_thresholds_ = dict.fromkeys(OBJECTIVES, np.zeros(0))
        self.use_threshold(self.threshold)

    def use_threshold(self, objective: str) -> Self:
        """Predict with the thresholds of another objective, without fitting again.

        Parameters
        ----------
        objective : {"micro", "macro", "hamming"}
            What the thresholds maximise.
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
            model = mixture.state.model
            self.temperature_ = model.temperature
            self.mixture_ = {
                "params": mixture.state.params.to_arrays(),
                "features": model.feature_distribution.name,
                "feature_prior": model.feature_distribution.prior,
                "labels": model.label_distribution.name,
                "label_prior": model.label_distribution.prior,
                "temperature": model.temperature,
                "step": mixture.state.step,
                "centre": mixture.input.centre,
                "scale": mixture.input.scale,
            }

    # -- more rows ------------------------------------------------------------------------
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn some more rows; the first call is a fit, and should see some hundred rows.

        What is known about the classifiers' weights becomes their prior, and the mixture takes a
        natural-gradient step. Feature maps, weights of the parts and thresholds stay those
        of the first call. Labels of a frame are found by their names, and a later batch may be
        without any. ``classes`` may announce classes (one class per row only).
        """
        self._validate_params()
        if not hasattr(self, "thresholds_"):
            self._fit(X, y, sample_weight, classes)
            return self
        rows_X = self._known_form(self._check_X(X, reset=False))
        if self.mixture_ is not None:  # a guessed law cannot learn other features either
            names = getattr(self, "feature_names_in_", None)
            check_features(rows_X, self.mixture_["features"], names, guessed=True)
        labels = self._read_more(y, classes)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = distinct_rows(rows_X, labels.Y, sample_weight, seed)
        warn_extreme_cells(self, rows.X)
        self._learn_more(rows)
        return self

    def _read_more(self, y: Any, classes: Any) -> Labels:
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
        return labels.in_order_of(self.label_names_) if labels.kind == MATRIX else labels

    def _learn_more(self, rows: Rows) -> None:
        """Update weights and mixture; nothing changes before all is computed."""
        updated = []
        for plain, weights in zip(self.maps_, self.weights_, strict=True):
            Z = LabelMap.from_arrays(plain).apply(rows.X)
            law = update_labels(
                Z, rows.Y.astype(Z.dtype), rows.weight.astype(Z.dtype),
                LabelWeights.from_arrays(weights),
            )  # fmt: skip
            updated.append(law.to_arrays())
        n_new, known = float(rows.weight.sum()), known_counts(rows.Y, rows.weight)
        n_seen, counts = self.n_seen_ + n_new, self.label_counts_ + known
        positive = rows.weight @ np.nan_to_num(rows.Y)
        base = (self.base_rates_ * (self.label_counts_ + 1.0) + positive) / (counts + 1.0)
        if self.mixture_ is not None:
            state, enter = self._mixture()
            batch = Batch(enter.apply(rows.X), rows.Y, rows.weight)
            inference = VariationalMixture(True, decay=self.learning_decay)
            known_share = (known / n_new) / np.maximum(counts / n_seen, 1e-300)
            before = state.params  # under which the rows' share of the bound is
            state, share = inference.learn(state, batch, n_seen / n_new, known_share)
            bound = state.model.bound(before, share * n_seen / n_new)
            self.elbo_ = np.append(self.elbo_, bound)
            self.mixture_ = {
                **self.mixture_, "params": state.params.to_arrays(), "step": state.step
            }  # fmt: skip
        self.weights_, self.n_seen_, self.label_counts_ = updated, n_seen, counts
        self.base_rates_ = base
