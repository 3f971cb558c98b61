"""The local engine: views, permutations, absent rows, threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from likelier.engines import LocalEngine
from likelier.engines.threads import ThreadTeam, count_threads


def make_data(n=1000, d=7, kind="C", dtype=np.float64, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(dtype)
    if kind == "csr":
        X[rng.random(X.shape) < 0.7] = 0
        X = sparse.csr_array(X)
    elif kind == "F":
        X = np.asfortranarray(X)
    return X, rng.integers(0, 3, size=n), rng.integers(0, 3, size=n).astype(float)


def dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def same_batches(ours, theirs):
    """Compare bit for bit what two engines hand out, whatever X the batches share."""
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.index, a.n_rows) == (b.index, b.n_rows)
        a, b = a.compact(), b.compact()
        np.testing.assert_array_equal(dense(a.X), dense(b.X), strict=True)
        np.testing.assert_array_equal(a.y, b.y, strict=True)
        np.testing.assert_array_equal(a.weight, b.weight, strict=True)
        assert a.start == b.start


def live_threads():
    return [t for t in threading.enumerate() if t.name.startswith("likelier")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    deadline = time.monotonic() + 5
    while live_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert live_threads() == []


# -- blocks -----------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["C", "F", "csr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_in_order_are_views(kind, dtype):
    X, y, _ = make_data(kind=kind, dtype=dtype)
    weight = np.linspace(1, 2, len(y))
    engine = LocalEngine(X, y, weight, block_rows=300)
    batches = list(engine.blocks())
    assert [b.n_rows for b in batches] == [300, 300, 300, 100]
    assert [b.start for b in batches] == [0, 300, 600, 900]
    assert [b.index for b in batches] == [0, 1, 2, 3]
    for b in batches:
        rows = slice(b.start, b.start + b.n_rows)
        np.testing.assert_array_equal(dense(b.X), dense(X)[rows], strict=True)
        np.testing.assert_array_equal(b.y, y[rows])
        assert np.shares_memory(b.y, y)
        assert np.shares_memory(b.weight, weight)
        assert b.rows is None
        assert type(b.X) is type(X)
        if kind == "csr":
            assert np.shares_memory(b.X.data, X.data)
            assert np.shares_memory(b.X.indices, X.indices)
        else:
            assert np.shares_memory(b.X, X)


def test_csr_views_of_64_bit_indices_stay_views():
    X, *_ = make_data(kind="csr")
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    for b in LocalEngine(X, block_rows=128).blocks():
        assert np.shares_memory(b.X.indices, X.indices)
        assert b.X.indptr.dtype == np.int64
        rows = slice(b.start, b.start + b.n_rows)
        np.testing.assert_array_equal(b.X.toarray(), X.toarray()[rows])


def test_shuffled_blocks_share_x_and_visit_every_row_once():
    X, y, _ = make_data()
    engine = LocalEngine(X, y, block_rows=300)
    first = list(engine.blocks(0))
    assert all(b.X is X and b.y is y and b.start == 0 for b in first)
    order = np.concatenate([b.rows for b in first])
    assert order.dtype == np.intp
    np.testing.assert_array_equal(np.sort(order), np.arange(len(X)))
    assert not np.array_equal(order, np.arange(len(X)))
    again = np.concatenate([b.rows for b in LocalEngine(X, y, block_rows=300).blocks(0)])
    np.testing.assert_array_equal(order, again)
    other_iteration = np.concatenate([b.rows for b in engine.blocks(1)])
    other_seed = np.concatenate([b.rows for b in LocalEngine(X, seed=1).blocks(0)])
    assert not np.array_equal(order, other_iteration)
    assert not np.array_equal(order, other_seed)


def test_permutation_does_not_depend_on_block_rows():
    X, *_ = make_data()
    small = np.concatenate([b.rows for b in LocalEngine(X, block_rows=10).blocks(4)])
    large = np.concatenate([b.rows for b in LocalEngine(X, block_rows=999).blocks(4)])
    np.testing.assert_array_equal(small, large)


def test_no_shuffle_means_the_order_of_the_data():
    X, *_ = make_data()
    engine = LocalEngine(X, shuffle=False, block_rows=64)
    batches = list(engine.blocks(5))
    assert all(b.X is X for b in batches)
    np.testing.assert_array_equal(np.concatenate([b.rows for b in batches]), np.arange(len(X)))


# -- absent rows ------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["C", "F", "csr"])
@pytest.mark.parametrize("block_rows", [None, 37])
def test_weight_zero_is_absent(kind, block_rows):
    X, y, weight = make_data(n=2000, kind=kind)
    here = weight > 0
    X_here = np.asfortranarray(X[here]) if kind == "F" else X[here]  # indexing makes it C
    full = LocalEngine(X, y, weight, block_rows=block_rows, seed=9)
    less = LocalEngine(X_here, y[here], weight[here], block_rows=block_rows, seed=9)
    assert full.n_rows == less.n_rows == int(here.sum())
    assert (full.block_rows, full.n_blocks) == (less.block_rows, less.n_blocks)
    np.testing.assert_array_equal(full.present, np.flatnonzero(here))
    same_batches(full.blocks(), less.blocks())
    same_batches(full.blocks(3), less.blocks(3))
    same_batches(full.map_blocks(lambda b: b), less.map_blocks(lambda b: b))
    same_batches([full.sample(500, 2)], [less.sample(500, 2)])
    same_batches([full.sample(10**6)], [less.sample(10**6)])

    def moments(b):
        return np.concatenate([b.weight @ b.X, [b.weight.sum()]])

    np.testing.assert_array_equal(full.reduce(moments, np.add), less.reduce(moments, np.add))


def test_absent_rows_at_the_end_leave_views():
    X, y, _ = make_data()
    weight = np.r_[np.ones(800), np.zeros(200)]
    for b in LocalEngine(X, y, weight, block_rows=300).blocks():
        assert np.shares_memory(b.X, X)


@settings(max_examples=60, deadline=None)
@given(
    weight=st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=1, max_size=60),
    block_rows=st.integers(1, 20),
    kind=st.sampled_from(["C", "F", "csr"]),
)
def test_absent_rows_for_any_pattern(weight, block_rows, kind):
    weight = np.array(weight)
    X, y, _ = make_data(n=len(weight), kind=kind)
    here = weight > 0
    if not here.any():
        with pytest.raises(ValueError, match="every weight is zero"):
            LocalEngine(X, y, weight)
        return
    full = LocalEngine(X, y, weight, block_rows=block_rows)
    less = LocalEngine(X[here], y[here], weight[here], block_rows=block_rows)
    same_batches(full.blocks(), less.blocks())
    same_batches(full.blocks(7), less.blocks(7))
    same_batches([full.sample(5)], [less.sample(5)])


# -- reduce -----------------------------------------------------------------------------
@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_reduce_merges_in_block_order(n_jobs):
    X, *_ = make_data()

    def slow_first(b):
        time.sleep(0.01 if b.index % 3 == 0 else 0)
        return [b.index]

    with LocalEngine(X, n_jobs=n_jobs, block_rows=50) as engine:
        assert engine.reduce(slow_first, lambda a, b: a + b) == list(range(20))
        assert list(engine.map_blocks(lambda b: b.index)) == list(range(20))


@pytest.mark.parametrize("kind", ["C", "F", "csr"])
def test_same_bits_for_any_number_of_threads(kind):
    X, y, weight = make_data(n=20_000, kind=kind)
    totals = []
    with threadpool_limits(1):
        for n_jobs in (1, 2, 3):
            with LocalEngine(X, y, weight, n_jobs=n_jobs, block_rows=512) as engine:
                totals.append(engine.reduce(lambda b: b.X.T @ b.weight, np.add))
    np.testing.assert_array_equal(totals[0], totals[1])
    np.testing.assert_array_equal(totals[0], totals[2])


def test_memory_is_bounded():
    """A slow first block must not let the results of all later blocks pile up."""
    X, *_ = make_data()
    lock = threading.Lock()
    alive = [0]

    def map_block(b):
        if b.index == 0:
            time.sleep(0.2)
        with lock:
            alive[0] += 1  # results that exist: neighbours are merged at once
            assert alive[0] <= 3 * 2 + 7  # of 100 blocks, 7 levels wait for their other half
        return 1

    def merge(a, b):
        with lock:
            alive[0] -= 1
        return a + b

    with LocalEngine(X, n_jobs=2, block_rows=10) as engine:
        assert engine.reduce(map_block, merge) == 100
    assert alive[0] == 1


@pytest.mark.parametrize("error", [KeyError("broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_errors_in_workers_propagate_and_end_the_threads(error, n_jobs):
    X, *_ = make_data()
    finished = []

    def fail(b):
        if b.index == 3:
            raise error
        time.sleep(0.005)
        finished.append(b.index)
        return 0

    engine = LocalEngine(X, n_jobs=n_jobs, block_rows=10)
    with pytest.raises(type(error)):
        engine.reduce(fail, lambda a, b: a + b)
    assert live_threads() == []
    done = len(finished)
    assert done < 20
    time.sleep(0.05)
    assert len(finished) == done
    assert engine.reduce(lambda b: b.n_rows, lambda a, b: a + b) == 1000
    engine.close()


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_ctrl_c_while_workers_run():
    # a shell lets what it starts in the background ignore Ctrl-C, and children inherit that
    program = """
import signal, threading, time
import numpy as np
from likelier.engines import LocalEngine
signal.signal(signal.SIGINT, signal.default_int_handler)
engine = LocalEngine(np.ones((10_000, 2)), n_jobs=2, block_rows=10)
def work(block):
    if block.index == 0:
        print("running", flush=True)
    time.sleep(0.05)
    return 0
try:
    engine.reduce(work, min)
except KeyboardInterrupt:
    print("left:", [t.name for t in threading.enumerate() if t.name.startswith("likelier")])
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert output == "left: []\n"
    assert process.returncode == 0


def test_errors_in_merge_stop_the_workers():
    X, *_ = make_data()
    calls = []

    def map_block(b):
        calls.append(b.index)
        return 0

    def merge(a, b):
        raise RuntimeError("cannot merge")

    with LocalEngine(X, n_jobs=2, block_rows=10) as engine:
        with pytest.raises(RuntimeError, match="cannot merge"):
            engine.reduce(map_block, merge)
        assert live_threads() == []
        assert len(calls) <= 8


def test_results_read_in_part():
    X, *_ = make_data()
    engine = LocalEngine(X, n_jobs=2, block_rows=10)
    results = engine.map_blocks(lambda b: b.index)
    assert [next(results), next(results)] == [0, 1]
    results.close()
    assert live_threads() == []


def blas_threads():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


def test_blas_is_capped_while_workers_run_and_restored_after():
    X, *_ = make_data()
    with threadpool_limits(3, user_api="blas"):
        before = blas_threads()
        assert before
        with LocalEngine(X, n_jobs=2, block_rows=100) as engine:
            seen = engine.reduce(lambda b: blas_threads(), lambda a, b: a + b)
            assert set(seen) == {1}
            assert blas_threads() == before
            one, two = engine.map_blocks(id), engine.map_blocks(id)
            next(one), next(two)
            one.close()  # the other still needs the cap
            assert set(blas_threads()) == {1}
            two.close()
            assert blas_threads() == before
            with pytest.raises(KeyError):
                engine.reduce(lambda b: {}["no such key"], lambda a, b: a)
            assert blas_threads() == before
        # a single thread too: several of BLAS would add in another order
        assert set(LocalEngine(X).reduce(lambda b: blas_threads(), lambda a, b: a)) == {1}
        assert blas_threads() == before


def test_scipys_blas_is_capped_too():
    """NumPy and SciPy bring one BLAS each, and SciPy's is loaded late."""
    program = """
import numpy as np
from likelier.engines import LocalEngine
with LocalEngine(np.ones((100, 2)), n_jobs=2, block_rows=10) as engine:
    engine.reduce(lambda block: 0, min)
    import scipy.linalg
    from threadpoolctl import threadpool_info
    def threads(block):
        return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}
    assert engine.reduce(threads, set.union) == {1}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_threads_end_with_the_engine():
    X, *_ = make_data()
    engine = LocalEngine(X, n_jobs=2, block_rows=100)
    engine.reduce(lambda b: 0, lambda a, b: a)
    assert live_threads()
    del engine  # the fixture waits for the threads


def test_n_jobs():
    assert count_threads(None) == 1
    assert count_threads(3) == 3
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert count_threads(-1) == cores
    assert count_threads(-1000) == 1
    with pytest.raises(ValueError, match="n_jobs"):
        count_threads(0)
    with pytest.raises(TypeError, match="n_jobs"):
        count_threads(1.5)
    assert ThreadTeam(4).n_threads == 4


# -- samples and streams ----------------------------------------------------------------
def test_sample():
    X, y, _ = make_data()
    engine = LocalEngine(X, y, seed=5)
    batch = engine.sample(100)
    assert batch.n_rows == 100
    assert batch.rows is None
    assert batch.X.flags.owndata
    rows = {tuple(row) for row in X}
    assert all(tuple(row) in rows for row in batch.X)
    assert len({tuple(row) for row in batch.X}) == 100
    np.testing.assert_array_equal(engine.sample(100).X, batch.X)
    assert not np.array_equal(engine.sample(100, 1).X, batch.X)
    everything = engine.sample(5000).X
    assert everything.shape == X.shape
    np.testing.assert_array_equal(np.sort(everything[:, 0]), np.sort(X[:, 0]))


@pytest.mark.parametrize("weighted", [False, True])
def test_draw_lists_rows_and_copies_nothing(weighted):
    X, y, _ = make_data()
    weight = (np.arange(len(y)) % 3).astype(float) if weighted else None
    engine = LocalEngine(X, y, weight, seed=5)
    listed = engine.draw(100, 2)
    assert listed.X is X
    gathered = listed.compact()
    assert len({tuple(row) for row in gathered.X}) == 100
    assert not weighted or (gathered.weight > 0.0).all()
    np.testing.assert_array_equal(gathered.y, y[listed.rows])
    with pytest.raises(ValueError, match="n must be at least 1"):
        engine.draw(0)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_each_gives_results_in_order_and_errors_at_once(n_jobs):
    names = set()

    def work(number):
        names.add(threading.current_thread().name)
        time.sleep(0.002 * (number % 3))
        if number == 30:
            raise RuntimeError("number 30")
        return number

    with LocalEngine(np.ones((4, 1)), n_jobs=n_jobs) as engine:
        assert list(engine.each(work, 20)) == list(range(20))
        assert threading.current_thread().name in names  # the caller takes part
        assert min(2, n_jobs) <= len(names) <= n_jobs
        with pytest.raises(RuntimeError, match="number 30"):
            list(engine.each(work, 40))
        assert list(engine.each(work, 3)) == [0, 1, 2]


def test_every_row_is_sampled_equally_often():
    """Fixed seeds: 400 samples of 10 from 40, each row 100 times on average, sd 8.7."""
    X = np.arange(40.0)[:, None]
    engine = LocalEngine(X)
    counts = np.zeros(40)
    for iteration in range(400):
        counts[engine.sample(10, iteration).X[:, 0].astype(int)] += 1
    assert counts.sum() == 4000
    assert np.abs(counts - 100).max() < 4.5 * 8.7


def test_streams_are_keyed_and_distinct():
    X, *_ = make_data()
    engine = LocalEngine(X, seed=1)
    keys = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (0, 2)]
    draws = [engine.stream(*key).random(4) for key in keys]
    for a, b in pairwise(draws):
        assert not np.array_equal(a, b)
    assert len({tuple(d) for d in draws}) == len(keys)
    np.testing.assert_array_equal(LocalEngine(X, seed=1).stream(1, 1).random(4), draws[3])
    assert not np.array_equal(LocalEngine(X, seed=2).stream(1, 1).random(4), draws[3])
    # a model's stream is not the stream that shuffled the rows
    order = np.concatenate([b.rows for b in engine.blocks(0)])
    assert not np.array_equal(engine.stream(0, 0).permutation(len(X)), order)


# -- bad input --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": [[1.0]]}, TypeError, "ndarray or a SciPy CSR"),
        ({"X": np.ones(3)}, ValueError, "two dimensions"),
        ({"X": np.ones((3, 2), dtype=int)}, TypeError, "float32 or float64"),
        ({"X": np.ones((6, 4))[::2, ::2]}, ValueError, "ascontiguousarray"),
        ({"X": np.ones((0, 2))}, ValueError, "no rows"),
        ({"y": np.ones(2)}, ValueError, "y must have one entry"),
        ({"weight": np.ones(2)}, ValueError, "weight must have one entry"),
        ({"weight": np.array([1, -1.0, 1])}, ValueError, "-1.0 in row 1"),
        ({"weight": np.array([1, np.nan, 1])}, ValueError, "finite"),
        ({"weight": np.zeros(3)}, ValueError, "every weight is zero"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 0.5}, TypeError, "seed"),
        ({"block_rows": 0}, ValueError, "block_rows"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    with pytest.raises(error, match=message):
        LocalEngine(**({"X": np.ones((3, 2))} | change))


def test_bad_calls_are_named():
    engine = LocalEngine(np.ones((3, 2)))
    with pytest.raises(ValueError, match="n must be"):
        engine.sample(0)
    with pytest.raises(ValueError, match="iteration"):
        engine.stream(-1, 0)
    assert (engine.repeatable, engine.is_local, engine.n_features) == (True, True, 2)
    assert engine.n_jobs == 1
