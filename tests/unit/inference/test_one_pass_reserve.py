"""The sample of rows of a stream: fair, bounded, and the same however rows are cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from likelier.inference import one_pass_reserve
from likelier.inference.one_pass_reserve import Reserve, _uniform

RESERVE_ROWS = 128


@pytest.fixture(autouse=True)
def small_reserve(monkeypatch):
    """Few rows are enough to fill it."""
    monkeypatch.setattr(one_pass_reserve, "RESERVE_ROWS", RESERVE_ROWS)


def rows(n=3000, K=3, d=2):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(n), rng.normal(size=(n, d - 1))]).astype(float)
    return X, rng.choice(K, n, p=[0.7, 0.29, 0.01]), rng.uniform(0.5, 2.0, n)


def sample(X, codes, weight, cuts=(), K=3):
    found = Reserve.empty(X.shape[1], np.dtype(float))
    for start, stop in zip([0, *cuts], [*cuts, len(codes)], strict=True):
        found = found.seeing(X[start:stop], codes[start:stop], weight[start:stop], K)
    return found


def assert_same(one, two):
    for a, b in zip(vars(one).values(), vars(two).values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_cuts_do_not_matter_and_a_rare_class_is_kept_whole():
    X, codes, weight = rows()
    whole = sample(X, codes, weight)
    assert_same(sample(X, codes, weight, [1, 700, 2999]), whole)
    assert whole.counts(3).tolist() == [RESERVE_ROWS, RESERVE_ROWS, (codes == 2).sum()]
    assert whole.seen == len(codes)
    for row, code in zip(whole.rows, whole.codes, strict=True):
        assert codes[int(row[0])] == code


def test_rows_are_kept_in_proportion_to_their_weight_from_all_times():
    """Kolmogorov-Smirnov; fixed rows and seed: a right sample fails one in ten thousand."""
    n = 200_000
    X, codes, weight = np.arange(n, dtype=float)[:, None], np.zeros(n, dtype=int), np.ones(n)
    kept = sample(X, codes, weight, K=1).rows[:, 0]
    assert stats.kstest(kept / n, "uniform").pvalue > 1e-4
    weight[n // 2 :] = 3.0
    late = (sample(X, codes, weight, K=1).rows[:, 0] >= n // 2).sum()
    assert stats.binomtest(int(late), RESERVE_ROWS, 0.75).pvalue > 1e-4
    assert stats.binomtest(int(late), RESERVE_ROWS, 0.5).pvalue < 1e-4


def test_merging_keeps_the_smallest_keys_of_both_and_fading_makes_way():
    X, codes, weight = rows()
    one, two = (
        sample(X[:1000], codes[:1000], weight[:1000]),
        sample(X[1000:], codes[1000:], weight[1000:]),
    )
    both = one.merged(two, 3)
    for k in range(3):
        keys = np.sort(np.concatenate([one.keys[one.codes == k], two.keys[two.codes == k]]))
        np.testing.assert_array_equal(both.keys[both.codes == k], keys[:RESERVE_ROWS])
    new = one.faded(1e-9).merged(two, 3)
    assert (new.rows[new.codes == 0, 0] >= 1000).all()
    assert both.seen == 3000


def test_renumbering_and_more_classes_keep_the_sample_within_its_bound(monkeypatch):
    X, codes, weight = rows()
    monkeypatch.setattr(one_pass_reserve, "RESERVE_VALUES", 240)
    found = sample(X, codes, weight)
    assert found.counts(3).tolist() == [40, 40, min(40, (codes == 2).sum())]
    moved = found.renumbered(np.array([1, 2, 5]))
    assert moved.counts(6).tolist() == [0, 40, 40, 0, 0, min(40, (codes == 2).sum())]
    fewer = moved.merged(Reserve.empty(2, np.dtype(float)), 6)
    assert fewer.counts(6).max() == 20


@pytest.mark.parametrize(("d", "n_rows"), [(2, 8192), (100, 5242), (1000, 4000), (5000, 8192)])
def test_a_sample_is_no_larger_than_its_bounds(d, n_rows, monkeypatch):
    """Of rows, and of values: half a million or four times the products of two features."""
    monkeypatch.setattr(one_pass_reserve, "RESERVE_ROWS", 1 << 20)
    assert Reserve.empty(d, np.dtype(float))._room(1) == n_rows
    assert Reserve.empty(d, np.dtype(float))._room(10) == n_rows // 10


@pytest.mark.parametrize("first", [0, 2**40])
def test_numbers_of_rows_make_uniform_numbers(first):
    u = _uniform(first, 20_000)
    assert 0.0 < u.min() and u.max() < 1.0
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.03
    np.testing.assert_array_equal(_uniform(first + 7, 5), u[7:12])


def test_rows_are_kept_in_single_precision_and_within_its_range():
    Z = np.array([[1.0 + 2.0**-12, -1e9], [np.pi, 1e300]])
    found = Reserve.empty(2).seeing(Z, np.array([0, 1]), np.ones(2), 2)
    assert found.rows.dtype == np.float32
    np.testing.assert_allclose(found.rows[:, 0], Z[:, 0], rtol=1e-7)
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(found.rows[:, 1], np.array([-1e9, largest], dtype=np.float32))
    moved = found.moved(np.array([2.0, 4.0]), np.array([1.0, 0.0]))
    np.testing.assert_allclose(moved.rows[:, 0], 2.0 * Z[:, 0] + 1.0, rtol=1e-6)
    np.testing.assert_array_equal(moved.rows[:, 1], np.array([-4e9, largest], dtype=np.float32))
