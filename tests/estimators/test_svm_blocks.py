"""One against one with all kernel values made once: the same answers as with rows fetched."""

import numpy as np
import pytest

from likelier import SVC
from likelier.kernels import Rbf
from likelier.svm import class_blocks as smo_blocks
from likelier.svm import pairs as svm_pairs
from likelier.svm.class_blocks import ClassBlocks, PairBuffer, blocks_pay_off, fits_in_memory
from likelier.svm.kernel_cache import BufferPool, RowCache, run_sequentially
from likelier.svm.model import Subset
from likelier.svm.small import PairTable

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
    """The pairs whose values were taken from blocks."""
    found = []

    class Spied(PairBuffer):
        def of(self, first, second):
            found.append((first, second))
            return super().of(first, second)

    monkeypatch.setattr(svm_pairs, "PairBuffer", Spied)
    return found


def blocks_of(X, y, inside):
    kernel, table = Rbf(0.002), PairTable.empty(y[inside], 4, 1)
    rows = Subset(kernel.prepare(X), inside, kernel.prepare(X.astype(np.float32)))
    return kernel, table, rows, ClassBlocks(rows, table, BufferPool(), run_sequentially)


def test_a_pair_has_the_values_of_its_kernel(wide):
    X, y = wide
    inside = np.flatnonzero(np.arange(len(y)) % 5)  # as in a fit that leaves rows out
    kernel, table, _, blocks = blocks_of(X, y, inside)
    pair = PairBuffer(blocks, BufferPool())
    for first, second in ((0, 1), (0, 3), (2, 3), (1, 2)):
        numbers = np.concatenate([inside[table.members(k)] for k in (first, second)])
        n = len(numbers)
        values = pair.of(first, second)
        assert values.n_rows == n and values.dtype == np.float32
        found = values.gather(np.arange(n), np.arange(n), np.empty((n, n), np.float32))
        np.testing.assert_allclose(found, kernel.matrix(X[numbers]), atol=2e-6)
        assert (found == found.T).all()
        np.testing.assert_array_equal(values.diagonal(), found.diagonal())


def test_rows_of_a_pair_are_copied_as_they_are_needed(wide):
    X, y = wide
    *_, blocks = blocks_of(X, y, np.arange(len(y)))
    values = PairBuffer(blocks, BufferPool()).of(1, 2)
    n = values.n_rows
    whole = values.gather(np.arange(n), np.arange(n), np.empty((n, n), np.float32))
    cache = RowCache(values, 4 * n * n, None, 1)
    assert not cache.rows_are_expensive  # the compiled loop has them
    few = np.array([0, 5, SIZES[1] - 1, SIZES[1], n - 1])  # of both classes
    cache.fetch(few)
    np.testing.assert_array_equal(cache.slots[cache.slot_of[few]], whole[few])
    np.testing.assert_array_equal(cache.values(few[:2], few), whole[few[:2]][:, few])
    active = np.arange(3, n, 4)
    cache.keep(active)
    some = np.array([1, len(active) - 2])
    cache.fetch(some)
    np.testing.assert_array_equal(cache.slots[cache.slot_of[some]], whole[active[some]][:, active])
    cache.restart()
    cache.fetch(few)
    np.testing.assert_array_equal(cache.slots[cache.slot_of[few]], whole[few])


def test_room_counts_features_and_threads(wide):
    X, y = wide
    _, table, rows, _ = blocks_of(X, y, np.arange(len(y)))
    own = 2 * (170 + 160) ** 2 + 170 * 160
    shared = sum(size**2 for size in SIZES) + 2 * X.size
    assert fits_in_memory(rows, table, 4 * (shared + 2 * own), 2)
    assert not fits_in_memory(rows, table, 4 * (shared + 2 * own) - 1, 2)


def test_room_counts_the_exact_matrices_of_a_path(wide):
    X, y = wide
    _, _, rows, _ = blocks_of(X, y, np.arange(len(y)))
    table = PairTable.empty(y, 4, 3)  # of three values of C
    own = 2 * (170 + 160) ** 2 + 170 * 160 + 2 * (170 + 160) ** 2  # the last: twice as wide
    shared = sum(size**2 for size in SIZES) + 2 * X.size
    assert fits_in_memory(rows, table, 4 * (shared + 2 * own), 2)
    assert not fits_in_memory(rows, table, 4 * (shared + 2 * own) - 1, 2)


@pytest.mark.parametrize("words", [{"C": 1.0}, {"C": 100.0, "kernel": "poly", "coef0": 1.0}])
def test_blocks_do_not_change_the_answer(wide, used, monkeypatch, words):
    X, y = wide
    made = SVC(**words, tol=1e-6).fit(X, y)
    assert used == [(0, 2), (0, 3), (1, 2), (1, 3)]  # the others have shown that it pays
    monkeypatch.setattr(smo_blocks, "MIN_SUPPORT_FRACTION", 2.0)
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
    assert not blocks_pay_off(table, [(0, 1)])
    table.coefficients[0, 0, 115] = 1.0
    assert blocks_pay_off(table, [(0, 1)])
    assert not blocks_pay_off(table, [(0, 2)])
    assert not blocks_pay_off(table, [])
