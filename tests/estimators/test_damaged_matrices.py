"""Sparse matrices that are damaged are refused by every public estimator; odd ones are not.

Compiled loops do not check their indices, so what is not refused may kill the process: the damaged
ones are given to estimators in a process of their own, whose answers are looked at here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.utils import get_tags

import likelier
from likelier.kernels import make_kernel

LEARNED = likelier.ARD(length_scales="learned")
FEW = {"max_iter": 2, "n_inducing": 5, "hidden_dim": 2, "kernel": LEARNED}
SHORTER = {
    "BayesianLinearClassifier": {"inference": likelier.MCMC(n_chains=2, n_draws=10, n_warmup=10)},
    "DeepGPClassifier": FEW,
    "DeepGPRegressor": FEW,
    "MultilabelClassifier": {"n_folds": 2},
    "SVR": {"probability": True},  # for intervals
}
N, D = 24, 5
FAR = 1 << 30
TAKE_X = ("predict", "predict_proba", "decision_function", "transform", "predict_interval")


def public_estimators():
    classes = [getattr(likelier, name) for name in sorted(likelier.__all__)]
    found = [c for c in classes if isinstance(c, type) and issubclass(c, BaseEstimator)]
    return [c for c in found if get_tags(c()).input_tags.two_d_array]


ESTIMATORS = [c.__name__ for c in public_estimators()]
SPARSE = [c.__name__ for c in public_estimators() if get_tags(c()).input_tags.sparse]
every_estimator = pytest.mark.parametrize("name", SPARSE)


def make(name):
    kind, given = getattr(likelier, name), SHORTER.get(name, {})
    return kind(**{key: given[key] for key in given if key in kind().get_params()})


def whole(form="csr"):
    """Counts, a third of them zero, with every class in every stretch of rows."""
    dense = np.random.default_rng(0).integers(0, 3, (N, D)).astype(np.float64)
    dense[:, 0] = 1.0 + np.arange(N) % 2
    return sparse.csr_matrix(dense).asformat(form)


def targets(model):
    y = np.arange(N) % 2
    return y + np.linspace(0.0, 0.1, N) if is_regressor(model) else y


def changed(form="csr", **parts):
    """A whole matrix some of whose arrays were replaced, or changed at one place."""
    X = whole(form)
    for name, change in parts.items():
        if isinstance(change, tuple):
            place, value = change
            array = getattr(X, name).copy()
            array[place] = value
        else:
            array = change(getattr(X, name))
        setattr(X, name, array)
    return X


def as_list():
    X = whole("lil")
    X.rows[0][-1] = FAR
    return X


def one_more_row(X):
    X._shape = (N + 1, D)
    return X


def unsorted():
    X = whole()
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[start:stop] = X.indices[start:stop][::-1].copy()
        X.data[start:stop] = X.data[start:stop][::-1].copy()
    return sparse.csr_matrix((X.data, X.indices, X.indptr), shape=X.shape)


def duplicated():
    """Every number in two parts."""
    X = whole()
    parts = np.repeat(X.data[:, None], 2, axis=1) * [3.0, -2.0]
    return sparse.csr_matrix((parts.ravel(), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)


DAMAGED = {
    "index too large": lambda: changed(indices=(3, D)),
    "index far too large": lambda: changed(indices=(3, FAR)),
    "last index too large": lambda: changed(indices=(-1, D)),
    "negative index": lambda: changed(indices=(3, -1)),
    "very negative index": lambda: changed(indices=(3, -FAR)),
    "indices of 64 bits": lambda: changed(
        indices=lambda a: np.where(np.arange(len(a)) == 3, FAR << 20, a.astype(np.int64))
    ),
    "indices that are no whole numbers": lambda: changed(indices=lambda a: a + 0.5),
    "indices of two dimensions": lambda: changed(indices=lambda a: a[:, None]),
    "too few indices": lambda: changed(indices=lambda a: a[:-3]),
    "too few data": lambda: changed(data=lambda a: a[:-3]),
    "indptr decreases": lambda: changed(indptr=(4, 0)),
    "indptr negative": lambda: changed(indptr=(4, -FAR)),
    "indptr far too large": lambda: changed(indptr=(4, FAR)),
    "indptr ends behind the data": lambda: changed(indptr=(-1, FAR)),
    "indptr ends one too late": lambda: changed(indptr=lambda a: a + (np.arange(len(a)) == N)),
    "indptr does not begin with 0": lambda: changed(indptr=(0, 1)),
    "indptr begins below 0": lambda: changed(indptr=(0, -5)),
    "indptr too short": lambda: changed(indptr=lambda a: a[:-2]),
    "indptr too long": lambda: changed(indptr=lambda a: np.append(a, a[-1])),
    "shape of more rows": lambda: one_more_row(whole()),
    "array": lambda: sparse.csr_array(changed(indices=(3, D)), copy=False),
    "csc index too large": lambda: changed("csc", indices=(3, FAR)),
    "csc index negative": lambda: changed("csc", indices=(3, -FAR)),
    "csc indptr decreases": lambda: changed("csc", indptr=(2, 0)),
    "csc indptr too large": lambda: changed("csc", indptr=(-1, FAR)),
    "coo row too large": lambda: changed("coo", row=(3, FAR)),
    "coo row negative": lambda: changed("coo", row=(3, -FAR)),
    "coo column too large": lambda: changed("coo", col=(3, D)),
    "coo too few data": lambda: changed("coo", data=lambda a: a[:-3]),
    "bsr index too large": lambda: changed("bsr", indices=(3, FAR)),
    "bsr indptr too large": lambda: changed("bsr", indptr=(-1, FAR)),
    "lil column too large": as_list,
}
SOUND = {
    "indices of 64 bits": lambda: changed(
        indices=lambda a: a.astype(np.int64), indptr=lambda a: a.astype(np.int64)
    ),
    "indices of 16 bits": lambda: changed(indices=lambda a: a.astype(np.uint16)),
    "unsorted": unsorted,
    "duplicates": duplicated,
    "duplicates of 8 bits": lambda: duplicated().astype(np.int8),
    "unused entries": lambda: changed(
        indices=lambda a: np.append(a, FAR), data=lambda a: np.append(a, np.nan)
    ),
    **{form: lambda form=form: whole(form) for form in ("csc", "coo", "bsr", "lil", "dok", "dia")},
}


def answers(name):
    """What an estimator says about every damaged matrix: (damage, method, error)."""
    y, fitted = targets(make(name)), make(name).fit(whole(), targets(make(name)))
    for damage, build in DAMAGED.items():
        calls = {"fit": lambda X: make(name).fit(X, y)}
        calls |= {method: getattr(fitted, method, None) for method in TAKE_X}
        if hasattr(fitted, "partial_fit"):
            calls["partial_fit"] = lambda X: deepcopy(fitted).partial_fit(X, y)
        if "iterator" in (fitted.fit.__doc__ or ""):
            calls["stream"] = lambda X: make(name).fit(iter([(X, y)]))
        for method, call in calls.items():
            if call is None:
                continue
            try:
                call(build())
                error = "none"
            except Exception as e:
                error = f"{type(e).__name__}: {e}"
            yield damage, method, error


@pytest.fixture(scope="module")
def told():
    """All answers of a process that may be killed half way."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", __file__], capture_output=True, text=True, check=False
    )
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
    return run, lines


@every_estimator
def test_damaged_matrices_are_refused_by_name(name, told):
    run, lines = told
    mine = [line[1:] for line in lines if line[0] == name]
    assert run.returncode == 0, f"killed after {lines[-1:]}: {run.stderr[-2000:]}"
    assert {damage for damage, _, _ in mine} == set(DAMAGED)
    wrong = [line for line in mine if not (line[2].startswith("ValueError") and "X is" in line[2])]
    assert wrong == []


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@every_estimator
def test_odd_matrices_give_the_numbers_of_plain_ones_and_stay_as_they_are(name):
    y = targets(make(name))
    deep = name.startswith("DeepGP")  # one fit says it
    plain = make(name).set_params(random_state=0).fit(whole(), y)
    method = "transform" if hasattr(plain, "transform") else "predict"
    expected = getattr(plain, method)(whole())
    for build in SOUND.values():
        X, before = build(), build()
        model = plain if deep else clone(plain).fit(X, y)
        assert np.array_equal(np.asarray(getattr(model, method)(X)), np.asarray(expected))
        if X.format == "csr":
            for part in ("data", "indices", "indptr"):
                now, then = getattr(X, part), getattr(before, part)
                assert now.dtype == then.dtype
                assert np.array_equal(now, then, equal_nan=now.dtype.kind == "f")


def test_kernels_labels_and_terms_are_checked_too():
    bad = DAMAGED["index far too large"]()
    with pytest.raises(ValueError, match="X is an invalid sparse matrix"):
        make_kernel("rbf", gamma=1.0).matrix(bad)
    with pytest.raises(ValueError, match="y is an invalid sparse matrix"):
        likelier.MultilabelClassifier().fit(whole().toarray(), bad)
    text = likelier.TextFeatures().fit(["one two three four five"])
    with pytest.raises(ValueError, match="X is an invalid sparse matrix"):
        text.inverse_transform(bad)


def test_terms_are_found_without_a_change_of_the_matrix():
    X = whole()
    X.data[2] = 0.0
    before = X.nnz
    likelier.TextFeatures().fit(["one two three four five"]).inverse_transform(X)
    assert X.nnz == before


if __name__ == "__main__":
    for estimator in SPARSE:
        for answer in answers(estimator):
            print(json.dumps([estimator, *answer]), flush=True)
