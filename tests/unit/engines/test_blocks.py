"""Blocks, the tree that their sums follow, and values per row."""

from __future__ import annotations

import pickle
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from likelier.base import Batch, RowValues
from likelier.engines import LocalEngine, StreamEngine, blocks
from likelier.engines.blocks import Node, Task, complete_subtrees, total
from likelier.engines.row_values import RowCache, parts_of
from likelier.tables import block_source


@pytest.mark.parametrize("d", [1, 10, 54, 784, 50_000])
def test_a_block_depends_on_columns_and_storage_alone(d):
    dense, sparse = blocks.block_rows(d, False), blocks.block_rows(d, True)
    assert blocks.MIN_DENSE_ROWS <= dense <= blocks.MAX_DENSE_ROWS
    assert blocks.MIN_SPARSE_ROWS <= sparse <= blocks.MAX_SPARSE_ROWS
    for rows in (dense, sparse):
        assert rows & (rows - 1) == 0  # a power of two: a file may hold a whole number of them
    if blocks.MIN_DENSE_ROWS < dense < blocks.MAX_DENSE_ROWS:
        assert blocks.DENSE_BLOCK_BYTES / 2 < dense * d * 8 <= blocks.DENSE_BLOCK_BYTES


def bracket(left, right):
    return f"({left}{right})"


def whole_tree(numbers):
    """The tree as it is meant: halves of a power of two; what is over is merged from the right."""
    if len(numbers) == 1:
        return numbers[0]
    half = 1 << ((len(numbers) - 1).bit_length() - 1)
    return bracket(whole_tree(numbers[:half]), whole_tree(numbers[half:]))


@given(st.integers(1, 70), st.lists(st.integers(1, 69), max_size=8))
def test_sums_follow_one_tree_however_blocks_are_grouped(n, cuts):
    leaves = [Node(0, number, chr(48 + number)) for number in range(n)]
    borders = sorted({0, n, *(cut for cut in cuts if cut < n)})
    groups = [leaves[a:b] for a, b in pairwise(borders)]
    parts = [node for group in groups for node in complete_subtrees(group, bracket)]
    assert total(parts, bracket) == whole_tree([leaf.value for leaf in leaves])


def test_few_sums_wait_at_a_time():
    waiting = complete_subtrees((Node(0, number, 1) for number in range(1000)), int.__add__)
    assert len(waiting) == (1000).bit_count()


def values(batch):
    return batch.X[:, 0] * 2.0


def moved(batch, before, step):
    return before + step


def test_values_are_kept_and_made_again_where_they_are_missing():
    calls = []

    def counted(batch):
        calls.append(batch.index)
        return values(batch)

    X = np.arange(40.0).reshape(20, 2)
    engine = LocalEngine(X, block_rows=8)
    rows = engine.map_rows(counted)
    assert calls == []  # nothing is made before it is needed

    def add(batch, part):
        return float(part.sum())

    first = engine.reduce(add, float.__add__, rows)
    assert first == values(Batch(X)).sum()
    assert calls == [0, 1, 2]
    assert engine.reduce(add, float.__add__, rows) == first and calls == [0, 1, 2]
    later = engine.map_rows(moved, rows, state=1.0)
    assert engine.reduce(add, float.__add__, later) == first + 20.0
    assert calls == [0, 1, 2]
    # the values it was made from have been forgotten, and are made again
    assert engine.reduce(add, float.__add__, rows) == first and calls == [0, 1, 2, 0, 1, 2]


def test_recipes_travel():
    rows = RowValues(moved, (RowValues(values),), 3.0)
    there = pickle.loads(pickle.dumps(rows))
    assert there.id == rows.id
    batch = Batch(np.ones((4, 2)), index=5)
    np.testing.assert_array_equal(parts_of((there,), batch, RowCache())[0], np.full(4, 5.0))


def test_the_cache_is_bounded_and_says_so_by_forgetting():
    cache = RowCache(limit=100)
    for number in range(10):
        cache.put(("a", number), np.zeros(5))
    assert sum(cache.get(("a", number)) is not None for number in range(10)) == 2
    cache.forget(("a", 9))
    cache.forget(("a", 9))
    assert cache.get(("a", 9)) is None


def test_the_cache_counts_right_with_threads():
    cache = RowCache(limit=10_000)

    def work(name):
        for number in range(500):
            cache.put((name, number), np.zeros(1))
            cache.forget((name, number - 3))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = sum(cache.get((name, number)) is not None for name in "abcd" for number in range(500))
    assert cache._bytes == 8 * held


def test_a_state_comes_last():
    engine = LocalEngine(np.ones((10, 1)), block_rows=4)
    found = engine.reduce(lambda batch, state: batch.n_rows * state, int.__add__, state=3)
    assert found == 30
    assert Task(lambda batch: 1).on_block(Batch(np.ones((1, 1))), RowCache()) == 1


def double(batch):
    return Batch(2.0 * batch.X, batch.y, batch.weight, index=batch.index, start=batch.start)


@pytest.mark.parametrize("d", [3, 5])
def test_transformed_rows_are_the_same_in_memory_and_streamed(d):
    rng = np.random.default_rng(d)
    X, y, weight = rng.standard_normal((700, d)), rng.random(700), rng.integers(0, 3, 700) * 1.0
    pieces = [(X[i : i + 90], y[i : i + 90], weight[i : i + 90]) for i in range(0, 700, 90)]
    local = LocalEngine(X, y, weight, seed=4).transformed(double)
    stream = StreamEngine(block_source(lambda: iter(pieces)), seed=4).transformed(double)
    for engine in (local, stream):
        assert engine.n_features == d

    def sums(batch):
        return batch.X.T @ batch.weight

    np.testing.assert_array_equal(local.reduce(sums, np.add), stream.reduce(sums, np.add))
    one, other = local.sample(50, 2), stream.sample(50, 2)
    np.testing.assert_array_equal(one.X, other.X)
    np.testing.assert_array_equal(one.y, other.y)
    some = [engine.subsets([20, 50], 2) for engine in (local, stream)]
    for few in zip(*some, strict=True):
        np.testing.assert_array_equal(*(engine.reduce(sums, np.add) for engine in few))
    np.testing.assert_array_equal(some[0][0].sample(20, 1).X[0], some[1][0].sample(20, 1).X[0])
    assert [engine.n_rows for engine in some[0]] == [20, 50] and local.subsets([]) == []
    values = [engine.map_rows(lambda batch: batch.X[:, 0]) for engine in (local, stream)]
    found = [
        engine.reduce(lambda batch, part: float(part @ batch.X[:, 1]), float.__add__, part)
        for engine, part in zip((local, stream), values, strict=True)
    ]
    assert found[0] == found[1]


def test_missing_blocks_are_never_a_smaller_sum():
    """Clusters were seen to lose results without an error."""
    nodes = [Node(0, number, 1) for number in range(7)]
    assert total(nodes, int.__add__) == 7
    for lost in range(6):  # of the last one nothing tells
        with pytest.raises(RuntimeError, match="missing"):
            total(nodes[:lost] + nodes[lost + 1 :], int.__add__)
