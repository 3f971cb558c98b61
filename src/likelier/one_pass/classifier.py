"""`OnePassClassifier`: learns from every row once, while new classes keep arriving."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from likelier.one_pass.recipe import OnePassLearning


class OnePassClassifier(OnePassLearning):
    """Logistic regression in a single pass, with classes that may appear at any time.

    The weights of every class are Gaussian, ``w_k = P^-1 Q_k``, where ``P`` and ``Q`` are sums
    over rows: ``P`` of ``omega_i x_i x_i^T`` with Polya-Gamma means ``omega_i``, and the prior
    precision once. No row is read twice to learn ``P`` and ``Q``; kept are an unfinished block and
    a sample of the rows of bounded size, which is all of them while they are few.

    Parameters
    ----------
    update : {"streaming", "frozen"}, default="streaming"
        "frozen" leaves ``omega`` at 1/4: any order and any batches give the model that `fit` on
        all rows gives, and merging is exact. "streaming" computes ``omega`` with what is known
        when a row arrives, which comes close to a converged logistic regression; the same rows
        in the same order give the same bits, however they are cut into batches. Choose "frozen"
        where the order of rows, or who learned them before a `merge`, must not matter at all.
    features : {None, "fourier"}, default=None
        Learn a function of random Fourier features of the rows instead of a linear one.
    n_components : int, default=1024
        Number of Fourier features.
    gamma : float, array of shape (n_features,), or {"scale", "auto", "median"}, default="scale"
        Inverse width of the kernel of Fourier features; a word is computed from the first block
        of rows. With ``update="frozen"`` it must be a number.
    prior_precision : float or "auto", default="auto"
        Precision of the prior of the coefficients of standardised features. "auto" gives the
        score of an ordinary row a prior variance of 25, or of one per feature if that is less.
    half_life : float or None, default=None
        Rows after which a row counts half as much, for data that drift.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced" needs all rows in memory.
    shuffle : bool, default=False
        Whether `fit` visits rows in memory in random order. Worth it for ``update="streaming"``
        where rows are sorted.
    n_jobs : int or None, default=None
        Threads for the sums of ``update="frozen"`` and for predictions.
    random_state : int, RandomState or None, default=None
        Seeds Fourier features, the order of rows, and the draws of `predict_uncertainty`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes seen or announced so far.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Posterior means, in the units of the rows (of Fourier features, where they are used).
    intercept_ : ndarray of shape (1,) or (n_classes,)
    n_rows_seen_ : int
        Rows of positive weight learned so far.

    Notes
    -----
    A row costs ``features^2`` multiplications, whatever the number of classes, since they share
    one ``P``. Streaming rows are learned in blocks of 512 (or, beyond 1,024 features, of about half
    as many rows as features), and after many rows of up to 2,048; each costs one factorisation,
    ``features^3 / 3``. After a `partial_fit`, whoever asks for predictions or ``coef_`` pays for
    rows after the last block and one more factorisation. Sparse rows are made dense, a block at a
    time.

    Memory is ``features^2`` numbers and, with ``update="streaming"``, the sample: at most 16,384
    rows and four million values of single precision (16 megabytes, and up to an eighth more before
    it is put in order), or four times ``features^2`` if that is more, all rows of small classes and
    the same number of each of the others. It is saved with the model.

    The first block of a stream is larger: the opening of at most 16,384 rows and half a million
    values (but at least one block), which is kept until it is full, and saved with the model.
    Its weights are iterated to convergence, so data no larger than that are classified as by a
    converged logistic regression, and more data get a good start. Some of every row's chance is
    set aside for a class that has not come yet, which makes ``coef_`` 2 to 9% larger than those of
    that regression; ``coef_covariance`` inverts the summed precision of the sites, and is no
    standard error of a logistic regression either. While the opening fills, `partial_fit` only
    keeps the rows; whoever asks then for predictions or ``coef_`` pays for those iterations.

    A class that first appears after the opening shares a ``P`` that is far too stiff for its few
    rows: they give its weights a direction, but hardly any size. Size and level are therefore found
    with a part of the sample (at most 8,192 rows, about as many of each class, and half a million
    values, or four times ``features^2`` if that is more), as the largest posterior: a few dozen
    rows after many thousands are enough. Without an intercept there is no level, and more rows are
    needed. ``coef_covariance`` is that of classes known from the opening on.

    Models whose samples still are all their rows, and fit in one, are merged by learning these rows
    to convergence, as an opening: who learned what before does not matter. Larger ones of the same
    classes are merged by adding ``P`` and ``Q``. Classes that were not seen together have scores
    that do not compare, so larger models that have learned different classes are merged by the
    largest posterior of their samples, in which each model vouches for how its own classes compare.
    Both take some tens of passes over the samples. ``docs/benchmarks/onepass.md`` has what merging
    costs in accuracy, also for odd partitions of the classes and for one model per class.

    For rows sorted by class (where more than one row in twenty came among unlike labels) that
    part of the sample decides how scores of all classes are mixed (of more than 64 classes, along
    the directions in which they vary most), if that predicts a fifth of it left out no worse. It is
    kept, and found anew for predictions 1 to 8, 10, 12, 14, 16, 20, ... rows into a block, or when
    a class has more than doubled since. Five classes of 15 features lose 0.2 points of accuracy by
    sorting, covtype 0.7, mnist 2 to 4. That is still more than frozen sums reach on these, but not
    always: frozen sums are better than sorted streams where classes are far apart, or where there
    are many with few rows each in many features. Shuffle where it is possible.

    Streaming learns softmax scores, frozen one-vs-rest scores. Frozen probabilities are the
    published ones and not sure enough; streaming ones are scaled by how well scores predicted
    rows before they were learned. Where labels come in an order (sorted, drifting), streaming
    falls back on frozen ``omega`` to the extent that the labels of a block differ from those
    before it. An interrupted `fit` keeps the blocks it has learned; an interrupted `partial_fit`,
    `merge` or `forget` is undone.

    Words that the sums are made with (``update``, ``features`` and theirs, ``fit_intercept``)
    cannot change between batches. `merge` adds up models of different rows, `forget` fades what
    has been learned, `coef_covariance` gives the covariance of the coefficients.

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
        self.n_jobs = n_jobs
        self.random_state = random_state
