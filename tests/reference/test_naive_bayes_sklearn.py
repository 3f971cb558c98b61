"""Naive Bayes against scikit-learn: the same numbers, for every option, on open data sets."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn.naive_bayes as peer
from scipy import sparse

import likelier

TOLERANCE = 1e-10
SMALL = ["vowel", "segment", "svmguide1", "german.numer", "spambase", "dna", "a9a", "mushrooms"]
LARGE = [
    "adult", "australian", "breast-cancer", "connect-4", "covtype", "diabetes", "higgs_sample",
    "ijcnn1", "kddcup99_10pct", "mnist", "pendigits", "phishing", "sector", "sonar", "splice",
    "usps", "w8a",
]  # fmt: skip
ATTRIBUTES = {
    "GaussianNB": ("classes_", "class_count_", "class_prior_", "theta_", "var_", "epsilon_"),
    "MultinomialNB": (
        "classes_", "class_count_", "class_log_prior_", "feature_count_", "feature_log_prob_",
    ),
    "BernoulliNB": (
        "classes_", "class_count_", "class_log_prior_", "feature_count_", "feature_log_prob_",
    ),
}  # fmt: skip


def distance(ours, theirs, scale=1.0):
    """Largest difference, relative where values are large."""
    ours, theirs = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    with np.errstate(invalid="ignore"):  # infinities that agree
        gap = np.where(ours == theirs, 0.0, abs(ours - theirs) / (scale + abs(theirs)))
    return "equal" if (gap <= TOLERANCE).all() else float(np.nanmax(gap))


def fit_both(name, X, y, weight=None, **params):
    ours = getattr(likelier, name)(**params, random_state=0)
    theirs = getattr(peer, name)(**params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of logarithms of zero
        theirs.fit(X, y, sample_weight=weight)
    TRAINED.clear()
    if weight is None:
        TRAINED[id(theirs)] = X, np.asarray(y)
    return ours.fit(X, y, sample_weight=weight), theirs


def assert_equal(ours, theirs, X):
    for name in ATTRIBUTES[type(ours).__name__]:
        if name == "classes_":
            np.testing.assert_array_equal(ours.classes_, theirs.classes_)
            continue
        # means near zero are judged in units of their feature
        scale = np.sqrt(theirs.var_) + abs(theirs.theta_).max() if name == "theta_" else 1.0
        scale = 0.0 if name in ("var_", "epsilon_") else scale
        assert distance(getattr(ours, name), getattr(theirs, name), scale) == "equal", name
    with np.errstate(divide="ignore"):
        joint = theirs.predict_joint_log_proba(X)
        found = ours.predict_joint_log_proba(X)
        assert distance(found, joint) == "equal" or nearer_to_the_truth(theirs, X, found, joint)
        # probabilities of scores of size s can agree to s times the precision only
        size = abs(joint[np.isfinite(joint)]).max()
        gap = abs(ours.predict_proba(X) - theirs.predict_proba(X)).max()
        assert gap <= max(TOLERANCE, 1e-14 * size)
        clear = np.diff(np.sort(joint, axis=1)[:, -2:]).ravel() > 1e-10 * size
        np.testing.assert_array_equal(ours.predict(X)[clear], theirs.predict(X)[clear])
        log_gap = distance(ours.predict_log_proba(X), theirs.predict_log_proba(X), 1.0 + size)
        assert log_gap == "equal"


def nearer_to_the_truth(theirs, X, found, joint):
    """Where the two differ: whether ours is right to 1e-12 in extended precision.

    scikit-learn sums a column's squares one after the other, and so loses digits of a small
    variance on long columns (w8a).
    """
    if not isinstance(theirs, peer.GaussianNB):
        return False
    gap = abs(found - joint) / (1.0 + abs(joint))
    i, k = np.unravel_index(gap.argmax(), gap.shape)
    train, y = TRAINED[id(theirs)]
    rows = train.astype(np.longdouble)
    mean = rows[y == theirs.classes_[k]].mean(axis=0)
    var = ((rows[y == theirs.classes_[k]] - mean) ** 2).mean(axis=0)
    var += theirs.var_smoothing * ((rows - rows.mean(axis=0)) ** 2).mean(axis=0).max()
    exact = np.log(np.longdouble(theirs.class_prior_[k]))
    exact -= 0.5 * (np.log(2 * np.pi * var) + (X[i] - mean) ** 2 / var).sum()
    errors = [abs(value - exact) / (1.0 + abs(exact)) for value in (found[i, k], joint[i, k])]
    return errors[0] < 1e-12 < errors[1]


TRAINED = {}  # unweighted training rows of the peer last fitted


def rows(seed=0, n=300, d=9, K=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 3, d) + rng.normal(size=d)
    counts = rng.poisson(1.5, size=(n, d)).astype(float)
    return X, counts, rng.integers(0, K, n), rng.uniform(0.2, 3.0, n)


GAUSSIAN = [
    {},
    {"priors": [0.1, 0.2, 0.3, 0.4]},
    {"priors": [0.0, 0.5, 0.5, 0.0]},
    {"var_smoothing": 0.0},
    {"var_smoothing": 0.5},
]
DISCRETE = [
    {},
    {"alpha": 0.01},
    {"alpha": np.linspace(0.1, 3.0, 9)},
    {"alpha": 0.0, "force_alpha": False},
    {"alpha": 1e-12, "force_alpha": True},
    {"fit_prior": False},
    {"class_prior": [0.1, 0.2, 0.3, 0.4]},
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("params", GAUSSIAN, ids=str)
def test_gaussian_options(params, weighted):
    X, _, y, weight = rows()
    assert_equal(*fit_both("GaussianNB", X, y, weight if weighted else None, **params), X)


@pytest.mark.filterwarnings("ignore:alpha too small")
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("params", DISCRETE, ids=lambda w: str(list(w.items()))[:40])
@pytest.mark.parametrize("name", ["MultinomialNB", "BernoulliNB"])
def test_discrete_options(name, params, weighted, kind):
    _, X, y, weight = rows()
    if name == "BernoulliNB":
        if "alpha" in params and np.ndim(params["alpha"]):
            return  # scikit-learn confuses classes and features; see below
        X = np.where(X > 2.0, X, 0.0)  # scikit-learn's log(1 - p) is only exact where p is not 1
    ours, theirs = fit_both(name, kind(X), y, weight if weighted else None, **params)
    assert_equal(ours, theirs, kind(X))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_bernoulli_with_an_alpha_for_every_feature(kind):
    """One feature after the other: scikit-learn's own takes a single alpha only."""
    _, X, y, _ = rows()
    alpha = np.linspace(0.1, 3.0, X.shape[1])
    ours = likelier.BernoulliNB(alpha=alpha, random_state=0).fit(kind(X), y)
    joint = np.log(np.bincount(y) / len(y)) * np.ones((len(y), 1))
    for j in range(X.shape[1]):
        each = peer.BernoulliNB(alpha=alpha[j], fit_prior=False).fit(X[:, [j]], y)
        log_prob = ours.feature_log_prob_[:, j]
        np.testing.assert_allclose(log_prob, each.feature_log_prob_[:, 0], rtol=1e-10)
        joint += each.predict_joint_log_proba(X[:, [j]]) + np.log(4)
    np.testing.assert_allclose(ours.predict_joint_log_proba(kind(X)), joint, rtol=1e-10)


@pytest.mark.parametrize("binarize", [None, 0.0, 0.7, 2.0])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_binarize(binarize, kind):
    _, X, y, _ = rows()
    X = kind((X > 1.0).astype(float) if binarize is None else X)
    assert_equal(*fit_both("BernoulliNB", X, y, binarize=binarize), X)


def test_a_constant_feature_of_any_size():
    """Constant within a class: no variance but the smoothing, however far from zero."""
    X, _, y, _ = rows()
    X[:, 0] = 1e6 + 1e3 * y
    X[:, 1] = np.pi
    assert_equal(*fit_both("GaussianNB", X, y), X)


def test_few_rows_and_one_class():
    X, counts, y, _ = rows(n=5)
    assert_equal(*fit_both("GaussianNB", X, y), X)
    for name in ("MultinomialNB", "BernoulliNB"):
        assert_equal(*fit_both(name, counts, np.array(["only"] * 5)), counts)


def check_set(data_set, name):
    data = data_set(name)
    X, y = data.X, data.y
    rng = np.random.default_rng(0)
    if X.shape[0] > 60_000:  # the peer needs many copies
        kept = np.sort(rng.choice(X.shape[0], 60_000, replace=False))
        X, y = X[kept], np.asarray(y)[kept]
    X = X.astype(np.float64)
    dense = X.toarray() if sparse.issparse(X) and X.shape[1] < 2000 else X
    if not sparse.issparse(dense):
        assert_equal(*fit_both("GaussianNB", dense, y), dense)
    values = X.data if sparse.issparse(X) else X
    if values.min() >= 0.0:
        assert_equal(*fit_both("MultinomialNB", X, y), X)
    assert_equal(*fit_both("BernoulliNB", X, y), X)


@pytest.mark.parametrize("name", SMALL)
def test_small_data_sets(data_set, name):
    check_set(data_set, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_data_sets(data_set, name):
    check_set(data_set, name)


@pytest.mark.parametrize("name", ["GaussianNB", "MultinomialNB", "BernoulliNB"])
def test_single_precision_is_computed_in_double(name):
    _, X, y, _ = rows()
    X = (X + 0.3).astype(np.float32)
    for kind in (np.asarray, sparse.csr_array):
        ours = getattr(likelier, name)(random_state=0).fit(kind(X), y)
        theirs = getattr(peer, name)().fit(X.astype(np.float64), y)
        joint = ours.predict_joint_log_proba(kind(X))
        np.testing.assert_allclose(joint, theirs.predict_joint_log_proba(X.astype(float)), 1e-12)
