"""`OnePassClassifier`: single-pass learning in which new classes may appear at any time."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from likelier.one_pass.recipe import OnePassLearning


class OnePassClassifier(OnePassLearning):
    """Logistic regression in a single pass, with classes that may appear at any time.

    The weights of every class are Gaussian, ``w_k = P^-1 Q_k``, where ``P`` and ``Q`` are sums over
    rows: ``P`` of ``omega_i x_i x_i^T`` with Polya-Gamma means ``omega_i``, plus the prior
    precision. Every row contributes to ``P`` and ``Q`` once. Besides these, the model stores a
    block that is not yet full and a sample of bounded size, which holds all rows while they are
    few.

    Parameters
    ----------
    update : {"streaming", "frozen"}, default="streaming"
        "streaming" computes ``omega`` with the weights at the time a row arrives, which comes close
        to a converged logistic regression; the result depends on the order of the rows, but not on
        how they are split into batches. "frozen" fixes ``omega`` at 1/4: the result does not depend
        on the order, and `merge` is exact.
    features : {None, "fourier"}, default=None
        "fourier" fits a linear model of random Fourier features instead of the features themselves.
    n_components : int, default=1024
        Number of Fourier features.
    gamma : float, array of shape (n_features,), or {"scale", "auto", "median"}, default="scale"
        Inverse width of the kernel of the Fourier features; a string is computed from the first
        block of rows. Must be numeric with ``update="frozen"``.
    prior_precision : float or "auto", default="auto"
        Prior precision of the coefficients of standardised features. "auto" gives the score of a
        typical row a prior variance of 25, or one per feature if that is less.
    half_life : float or None, default=None
        Number of rows after which the weight of a row has halved, for data that drift.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" requires all rows in memory.
    shuffle : bool, default=False
        Whether `fit` visits rows in memory in random order; recommended for
        ``update="streaming"`` if the rows are sorted.
    checkpoint : path-like or None, default=None
        Folder where a fit under way is recorded every few seconds; the same fit, run again after
        it was killed, resumes there and ends with the same bits. Needs an int ``random_state``.
    n_jobs : int or None, default=None
        Threads for the sums of ``update="frozen"`` and for predictions.
    random_state : int, RandomState or None, default=None
        Seed of Fourier features, shuffling, and the draws of `predict_uncertainty`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes seen or announced so far.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Posterior means, in the original units of the features (or of the Fourier features).
    intercept_ : ndarray of shape (1,) or (n_classes,)
    n_rows_seen_ : int
        Rows of positive weight learned so far.

    Notes
    -----
    **Cost.** A row costs ``features^2`` multiplications for any number of classes, since all
    classes share one ``P``. Streaming rows are learned in blocks of 512 (beyond 1,024 features, of
    about half as many rows as features), growing to 2,048 after many rows; a block costs one
    factorisation, ``features^3 / 3``. After `partial_fit`, the first access to predictions or
    ``coef_`` processes the buffered rows, at the cost of one more factorisation. Sparse rows are
    made dense block by block.

    **Memory.** ``features^2`` numbers and, with ``update="streaming"``, the sample: at most 16,384
    rows and four million values in single precision (16 megabytes, temporarily an eighth more), or
    four times ``features^2`` if that is more. The sample holds all rows of small classes and the
    same number of each of the others. It is saved with the model.

    **Initial batch.** The first block of a stream is larger: at most 16,384 rows and half a million
    values (but at least one block), buffered until full and saved with the model. Its weights are
    iterated to convergence, so smaller data sets get a converged logistic regression, and larger
    ones a good start. A fraction of the probability is reserved for classes that have not appeared
    yet, which makes ``coef_`` 2 to 9% larger than in that regression; ``coef_covariance`` inverts
    the summed precision of the sites, which is not the standard error of a logistic regression
    either. While the batch fills, `partial_fit` only stores rows, and the first access to
    predictions or ``coef_`` pays for the iterations.

    **Late classes.** A class that first appears after the initial batch shares a ``P`` that is far
    too large for its few rows: they determine the direction of its weights, but not the norm. Until
    the rows before it are less than a twentieth, its scores are made comparable as those of sorted
    rows are, see below; two dozen rows after many thousands are enough. ``coef_covariance`` is that
    of classes known from the initial batch on.

    **Merging.** Models whose samples hold all their rows, and fit in one sample, are merged by
    fitting these rows to convergence, independent of which model had which rows. Larger models of
    the same classes are merged by adding ``P`` and ``Q``. Scores of classes that were not seen
    together are not comparable, so larger models of different classes are merged by the posterior
    mode on their samples, with each model's own weights as prior for the comparison of its own
    classes. Both take some tens of passes over the samples. ``docs/benchmarks/onepass.md`` reports
    what merging costs in accuracy, also for unusual partitions of the classes and for one model per
    class.

    **Sorted rows.** If more than 5% of the rows arrive under label shift (for example sorted by
    class), a mixing of the scores of all classes is fitted on a part of the sample (at most 8,192
    rows, balanced over the classes, and half a million values, or four times ``features^2`` if that
    is more; with more than 64 classes, along the directions in which scores vary most) and applied
    if it improves the loss on a held-out fifth. It is cached, and recomputed for predictions 1 to
    8, 10, 12, 14, 16, 20, ... rows into a block, or when the weight of a class has more than
    doubled. Sorting costs 0.2 points of accuracy on five classes of 15 features, 0.7 on covtype and
    2 to 4 on mnist. Frozen sums are worse on these, but can be better than sorted streams where
    classes are well separated, or where there are many classes with few rows in many features.
    Shuffle if possible.

    **Probabilities.** Streaming fits softmax scores, frozen one-vs-rest scores. Frozen
    probabilities follow the published method and are underconfident; streaming ones are rescaled by
    the predictive loss on rows before these were learned. To the extent that the labels of a block
    are shifted from those before it (sorted or drifting data), streaming falls back on frozen
    ``omega``.

    **Interruptions.** An interrupted call leaves the model unchanged; with ``checkpoint``, `fit`
    resumes after the last recorded block. Parameters that define the sums (``update``,
    ``features`` and theirs, ``fit_intercept``) cannot change between batches.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from likelier import OnePassClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = OnePassClassifier()
    >>> for start in range(0, 150, 50):  # a new class with every batch
    ...     model = model.partial_fit(X[start : start + 50], y[start : start + 50])
    >>> model.classes_
    array([0, 1, 2])
    >>> model.score(X, y) > 0.93
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "update": [StrOptions({"streaming", "frozen"})],
        "features": [StrOptions({"fourier"}), None],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "gamma": [
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"scale", "auto", "median"}),
            "array-like",
        ],
        "prior_precision": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "half_life": [Interval(Real, 0, None, closed="neither"), None],
        "fit_intercept": ["boolean"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "shuffle": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        update: str = "streaming",
        features: str | None = None,
        n_components: int = 1024,
        gamma: Any = "scale",
        prior_precision: float | str = "auto",
        half_life: float | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        shuffle: bool = False,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.update = update
        self.features = features
        self.n_components = n_components
        self.gamma = gamma
        self.prior_precision = prior_precision
        self.half_life = half_life
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.shuffle = shuffle
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
