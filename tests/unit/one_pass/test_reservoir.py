"""The sample of rows of a stream: fair, bounded, and the same however rows are cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from likelier.one_pass import reservoir as reservoir_module
from likelier.one_pass.reservoir import (
    UNLIMITED,
    Reservoir,
    _uniform,
    reservoir_rows,
    rows_per_class,
    scored_rows,
)

ROOM = 128  # rows of a class


@pytest.fixture(autouse=True)
def small_reservoir(monkeypatch):
    """Few rows are enough to fill it."""
    monkeypatch.setattr(reservoir_module, "RESERVOIR_ROWS", 2 * ROOM + 30)


def rows(n=3000, K=3, d=2):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(n), rng.normal(size=(n, d - 1))]).astype(float)
    codes = rng.choice(K, n, p=[0.7, 0.3, 0.0])
    codes[rng.choice(n, 30, replace=False)] = 2
    return X, codes, rng.uniform(0.5, 2.0, n)


def filled(X, codes, weight, cuts=()):
    found = Reservoir.empty(X.shape[1], np.dtype(float))
    for start, stop in zip([0, *cuts], [*cuts, len(codes)], strict=True):
        found = found.add_rows(X[start:stop], codes[start:stop], weight[start:stop])
    return found.compacted()


def assert_same(one, two):
    for a, b in zip(vars(one.sample).values(), vars(two.sample).values(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (one.n_seen, one.capacity) == (two.n_seen, two.capacity)


@pytest.mark.parametrize("surplus", range(5))  # rows that do not make one more of every class
def test_cuts_do_not_matter_and_a_rare_class_is_kept_whole(surplus, monkeypatch):
    monkeypatch.setattr(reservoir_module, "RESERVOIR_ROWS", 2 * ROOM + 30 + surplus)
    X, codes, weight = rows()
    whole = filled(X, codes, weight)
    rng = np.random.default_rng(surplus)
    for cuts in ([1, 700, 2999], range(1, 3000), np.sort(rng.choice(3000, 40, replace=False))):
        assert_same(filled(X, codes, weight, list(cuts)), whole)
    room = ROOM + surplus // 2
    assert whole.sample.counts(3).tolist() == [room, room, 30]
    assert whole.n_seen == len(codes)
    for row, code in zip(whole.sample.rows, whole.sample.codes, strict=True):
        assert codes[int(row[0])] == code


def test_few_rows_are_all_kept_with_their_weights():
    X, codes, weight = rows()
    part = slice(0, 2 * ROOM)
    few = filled(X[part], codes[part], weight[part], [3, 90])
    assert few.is_complete
    np.testing.assert_array_equal(np.sort(few.sample.rows[:, 0]), X[part, 0])
    of_class = np.bincount(codes[part], weights=weight[part], minlength=3)
    order = few.sample.rows[:, 0].astype(int)
    np.testing.assert_array_equal(few.sample.importance_weights(of_class), weight[order])
    assert not filled(X, codes, weight).is_complete


def test_rows_are_kept_in_proportion_to_their_weight_from_all_times(monkeypatch):
    """Kolmogorov-Smirnov; fixed rows and seed: a right sample fails one in ten thousand."""
    monkeypatch.setattr(reservoir_module, "RESERVOIR_ROWS", ROOM)
    n = 200_000
    X, codes, weight = np.arange(n, dtype=float)[:, None], np.zeros(n, dtype=int), np.ones(n)
    kept = filled(X, codes, weight).sample.rows[:, 0]
    assert stats.kstest(kept / n, "uniform").pvalue > 1e-4
    weight[n // 2 :] = 3.0
    late = (filled(X, codes, weight).sample.rows[:, 0] >= n // 2).sum()
    assert stats.binomtest(int(late), ROOM, 0.75).pvalue > 1e-4
    assert stats.binomtest(int(late), ROOM, 0.5).pvalue < 1e-4


def test_rows_stand_for_what_they_were_drawn_from():
    """Old rows fade: nearly all that still counts is kept, and stands for little but itself."""
    n, half_life = 20_000, 30.0
    weight = 0.5 ** (np.arange(n)[::-1] / half_life)
    X, codes = np.arange(n, dtype=float)[:, None], np.zeros(n, dtype=int)
    sample = filled(X, codes, weight).sample
    importance = sample.importance_weights(np.array([weight.sum()]))
    assert importance.sum() == pytest.approx(weight.sum())
    age = n - 1 - sample.rows[:, 0]
    exact = weight @ np.arange(n)[::-1] / weight.sum()
    assert importance @ age / importance.sum() == pytest.approx(exact, rel=0.1)
    even = filled(X, codes, np.full(n, 2.0)).sample.importance_weights(np.array([2.0 * n]))
    np.testing.assert_allclose(even, 2.0 * n / len(even))


def test_merging_keeps_the_smallest_keys_of_both_and_fading_makes_way():
    X, codes, weight = rows()
    one, two = (
        filled(X[:1000], codes[:1000], weight[:1000]),
        filled(X[1000:], codes[1000:], weight[1000:]),
    )
    both = one.merged(two)
    for k in range(3):
        parts = [found.keys[found.codes == k] for found in (one.sample, two.sample)]
        keys = np.sort(np.concatenate(parts))
        np.testing.assert_array_equal(both.sample.keys[both.sample.codes == k], keys[:ROOM])
    new = one.discounted(1e-9).merged(two).sample
    assert (new.rows[new.codes == 0, 0] >= 1000).all()
    np.testing.assert_allclose(one.discounted(0.5).sample.weight, 0.5 * one.sample.weight)
    assert both.n_seen == 3000
    assert len(one.discounted(1e-300).discounted(1e-300).sample.codes) == 0


def test_renumbering_and_more_classes_keep_the_sample_within_its_bound(monkeypatch):
    X, codes, weight = rows()
    monkeypatch.setattr(reservoir_module, "RESERVOIR_VALUES", 220)
    found = filled(X, codes, weight)
    assert found.sample.counts(3).tolist() == [40, 40, 30]
    moved = found.relabel(np.array([1, 2, 5]))
    assert moved.sample.counts(6).tolist() == [0, 40, 40, 0, 0, 30]
    both = moved.merged(found.relabel(np.array([0, 3, 4])))
    assert both.sample.counts(6).tolist() == [18] * 6
    assert len(both.sample.codes) <= 110


def test_a_bound_is_shared_by_the_classes_with_many_rows():
    assert rows_per_class(np.array([5, 0, 100, 7]), 112) == UNLIMITED
    assert rows_per_class(np.array([5, 0, 100, 7]), 111) == 99
    assert rows_per_class(np.array([5, 0, 100, 70]), 45) == 20
    assert rows_per_class(np.array([5, 0, 100, 70]), 46) == 20
    assert rows_per_class(np.array([50, 60, 70]), 10) == 3
    assert rows_per_class(np.ones(9, dtype=int), 5) == 1


def test_a_reservoir_is_the_same_from_its_arrays():
    X, codes, weight = rows()
    found = filled(X, codes, weight).add_rows(X[:9], codes[:9], 9.0 * weight[:9])
    assert len(found.new_rows.codes)
    assert_same(Reservoir.from_arrays(found.to_arrays()), found)


@pytest.mark.parametrize(
    ("d", "n_rows", "n_scored"),
    [(2, 16384, 8192), (100, 16384, 5242), (1000, 4194, 4000), (5000, 16384, 8192)],
)
def test_a_sample_is_no_larger_than_its_bounds(d, n_rows, n_scored, monkeypatch):
    """Of rows, and of values: 16 megabytes or four times the products of two features."""
    monkeypatch.undo()
    assert reservoir_rows(d) == n_rows
    assert scored_rows(d) == n_scored


@pytest.mark.parametrize("first", [0, 2**40])
def test_numbers_of_rows_make_uniform_numbers(first):
    u = _uniform(first, 20_000)
    assert 0.0 < u.min() and u.max() < 1.0
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.03
    np.testing.assert_array_equal(_uniform(first + 7, 5), u[7:12])


def test_rows_are_kept_in_single_precision_and_within_its_range():
    Z = np.array([[1.0 + 2.0**-12, -1e9], [np.pi, 1e300]])
    found = Reservoir.empty(2).add_rows(Z, np.array([0, 1]), np.ones(2))
    assert found.sample.rows.dtype == np.float32
    np.testing.assert_allclose(found.sample.rows[:, 0], Z[:, 0], rtol=1e-7)
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(
        found.sample.rows[:, 1], np.array([-1e9, largest], dtype=np.float32)
    )
    moved = found.transform(np.array([2.0, 4.0]), np.array([1.0, 0.0]))
    np.testing.assert_allclose(moved.sample.rows[:, 0], 2.0 * Z[:, 0] + 1.0, rtol=1e-6)
    np.testing.assert_array_equal(
        moved.sample.rows[:, 1], np.array([-4e9, largest], dtype=np.float32)
    )
