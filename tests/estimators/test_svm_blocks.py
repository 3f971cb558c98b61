"""One against one with all kernel values made once: the same answers as with rows fetched."""

import numpy as np
import pytest

from likelier import SVC
from likelier.estimators import svm_pairs
from likelier.inference import smo_blocks
from likelier.inference.smo_blocks import ClassBlocks, PairMatrix, worth_while
from likelier.inference.smo_cache import Memory, one_by_one
from likelier.inference.smo_small import PairTable
from likelier.kernels import Rbf
from likelier.models.kernel_expansion import Subset

SIZES = (150, 170, 140, 160)


@pytest.fixture(scope="module")
def wide():
    """Rows of so many features that kernel rows are dear, in four classes that overlap."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), SIZES)
    X = 0.16 * rng.normal(size=(4, 400))[y] + rng.normal(size=(len(y), 400))
    order = rng.permutation(len(y))
    return X[order], y[order]


@pytest.fixture
def used(monkeypatch):
    """The pairs whose matrix was put together from blocks."""
    found = []

    class Spied(PairMatrix):
        def of(self, first, second):
            found.append((first, second))
            return super().of(first, second)

    monkeypatch.setattr(svm_pairs, "PairMatrix", Spied)
    return found


def test_a_pair_has_the_values_of_its_kernel(wide):
    X, y = wide
    inside = np.flatnonzero(np.arange(len(y)) % 5)  # as in a fit that leaves rows out
    kernel, table = Rbf(0.002), PairTable.empty(y[inside], 4, 1)
    rows = Subset(kernel.prepare(X), inside, kernel.prepare(X.astype(np.float32)))
    pair = PairMatrix(ClassBlocks(rows, table, Memory(), one_by_one), Memory())
    for first, second in ((0, 1), (0, 3), (2, 3), (1, 2)):
        numbers = np.concatenate([inside[table.members(k)] for k in (first, second)])
        n = len(numbers)
        found = pair.of(first, second)[:n, :n]
        np.testing.assert_allclose(found, kernel.matrix(X[numbers]), atol=2e-6)
        assert (found == found.T).all()


@pytest.mark.parametrize("words", [{"C": 1.0}, {"C": 100.0, "kernel": "poly", "coef0": 1.0}])
def test_blocks_do_not_change_the_answer(wide, used, monkeypatch, words):
    X, y = wide
    made = SVC(**words, tol=1e-6).fit(X, y)
    assert used == [(0, 2), (0, 3), (1, 2), (1, 3)]  # the others have shown that it pays
    monkeypatch.setattr(smo_blocks, "WORTH", 2.0)
    used.clear()
    fetched = SVC(**words, tol=1e-6).fit(X, y)
    assert not used
    made_scores, scores = (
        model.set_params(decision_function_shape="ovo").decision_function(X)
        for model in (made, fetched)
    )
    np.testing.assert_allclose(made_scores, scores, atol=1e-5)
    np.testing.assert_array_equal(made.n_support_, fetched.n_support_)


def test_threads_and_paths(wide, used):
    X, y = wide
    one, two = SVC().fit(X, y), SVC(n_jobs=2).fit(X, y)
    assert len(used) == 2 * 4
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)
    used.clear()
    path = SVC(tol=1e-6).fit_path(X, y, [0.1, 1.0])
    assert len(used) == 6  # along a path all pairs
    single = SVC(tol=1e-6, C=0.1).fit(X, y)
    np.testing.assert_allclose(path[0].decision_function(X), single.decision_function(X), atol=1e-5)


def test_little_memory_makes_no_blocks(wide, used):
    X, y = wide
    small, large = SVC(cache_size=0.5).fit(X, y), SVC(cache_size=50).fit(X, y)
    assert len(used) == 4  # of the second
    np.testing.assert_array_equal(small.predict(X), large.predict(X))


def test_sizes_that_single_precision_cannot_hold_make_no_blocks(wide, used):
    X, y = wide
    huge = SVC(kernel="linear", C=1e-36).fit(X * 1e18, y)
    assert not used
    usual = SVC(kernel="linear", C=1.0).fit(X, y)
    assert (huge.predict(X * 1e18) == usual.predict(X)).mean() > 0.99


def test_few_support_vectors_are_not_worth_all_values():
    table = PairTable.empty(np.repeat(np.arange(3), 100), 3, 1)
    table.coefficients[0, 0, :10] = 1.0
    table.coefficients[0, 0, 100:115] = 1.0  # 25 of 200: just what three classes take
    assert not worth_while(table, [(0, 1)])
    table.coefficients[0, 0, 115] = 1.0
    assert worth_while(table, [(0, 1)])
    assert not worth_while(table, [(0, 2)])
    assert not worth_while(table, [])
