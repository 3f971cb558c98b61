"""The stream engine: passes, read-ahead, one-shot sources, samples in bounded memory."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import sparse

from likelier.base import Batch
from likelier.engines import StreamEngine, blocks


@dataclass
class ListSource:
    """Blocks from a list, with a record of what happened to it."""

    batches: list
    repeatable: bool = True
    background: bool = True
    threads: set = field(default_factory=set)
    made: int = 0
    closed: int = 0

    @property
    def n_features(self):
        return self.batches[0].X.shape[1]

    def __call__(self):
        try:
            for batch in self.batches:
                self.threads.add(threading.current_thread().name)
                self.made += 1
                yield batch
        finally:
            self.closed += 1


def make_batches(sizes=(5, 3, 4), sparse_x=False, weighted=False):
    rng = np.random.default_rng(0)
    batches, start = [], 0
    for index, n in enumerate(sizes):
        number = np.arange(start, start + n)
        X = np.column_stack([number, rng.normal(size=n)])
        X = sparse.csr_array(X) if sparse_x else X
        weight = (number % 3).astype(float) if weighted else None
        batches.append(Batch(X, number * 10, weight, index=index, start=start))
        start += n
    return batches


def rows_of(batch):
    batch = batch.compact()
    X = batch.X.toarray() if sparse.issparse(batch.X) else batch.X
    return X[:, 0].astype(int).tolist()


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith("likelier")]


@pytest.mark.parametrize("background", [True, False])
def test_passes_and_row_count(background):
    source = ListSource(make_batches(), background=background)
    engine = StreamEngine(source)
    assert (engine.n_rows, engine.n_features) == (None, 2)
    assert (engine.repeatable, engine.is_local) == (True, False)
    assert [rows_of(b) for b in engine.blocks()] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7],
        [8, 9, 10, 11],
    ]
    assert engine.n_rows == 12
    assert [(b.index, b.start) for b in engine.blocks()] == [(0, 0), (1, 5), (2, 8)]
    in_background = any(name.startswith("likelier-read") for name in source.threads)
    assert in_background is background
    assert source.closed == 2


def test_unfinished_pass_leaves_the_count_unknown_and_closes_the_source():
    source = ListSource(make_batches())
    engine = StreamEngine(source)
    blocks = engine.blocks()
    next(blocks)
    blocks.close()
    assert engine.n_rows is None
    assert source.closed == 1


def test_shuffled_within_blocks_by_key():
    engine = StreamEngine(ListSource(make_batches((50, 50))), seed=4)
    first = list(engine.blocks(0))
    assert sorted(rows_of(first[0])) == list(range(50))
    assert rows_of(first[0]) != list(range(50))
    assert rows_of(first[1]) != [r + 50 for r in rows_of(first[0])]
    assert [rows_of(b) for b in engine.blocks(0)] == [rows_of(b) for b in first]
    assert [rows_of(b) for b in engine.blocks(1)] != [rows_of(b) for b in first]
    other = StreamEngine(ListSource(make_batches((50, 50))), seed=5)
    assert [rows_of(b) for b in other.blocks(0)] != [rows_of(b) for b in first]
    unshuffled = StreamEngine(ListSource(make_batches((50, 50))), shuffle=False)
    assert [rows_of(b) for b in unshuffled.blocks(0)][0] == list(range(50))


def test_y_follows_its_row():
    engine = StreamEngine(ListSource(make_batches()))
    for batch in engine.blocks(3):
        batch = batch.compact()
        np.testing.assert_array_equal(batch.y, batch.X[:, 0] * 10)


@pytest.mark.parametrize("sparse_x", [False, True])
def test_weight_zero_is_absent(sparse_x):
    engine = StreamEngine(ListSource(make_batches((5, 1, 3, 4), sparse_x, weighted=True)))
    batches = list(engine.blocks())
    assert [rows_of(b) for b in batches] == [[1, 2, 4], [5], [7, 8], [10, 11]]
    assert engine.n_rows == 8
    only_absent = make_batches((1, 1, 1, 2), sparse_x, weighted=True)
    engine = StreamEngine(ListSource(only_absent))
    batches = list(engine.blocks())
    assert [rows_of(b) for b in batches] == [[1], [2], [4]]
    assert [(b.index, b.start) for b in batches] == [(0, 0), (1, 1), (2, 2)]


def test_passes_cut_rows_into_blocks_of_one_size(monkeypatch):
    monkeypatch.setattr(blocks, "MIN_DENSE_ROWS", 4)
    monkeypatch.setattr(blocks, "MAX_DENSE_ROWS", 4)
    engine = StreamEngine(ListSource(make_batches((5, 3, 3))))
    assert engine.reduce(lambda b: [b.index], lambda a, b: a + b) == [0, 1, 2]
    assert engine.n_rows == 11
    found = list(engine.map_blocks(lambda b: (b.start, rows_of(b))))
    assert found == [(0, [0, 1, 2, 3]), (4, [4, 5, 6, 7]), (8, [8, 9, 10])]


def test_a_one_shot_source_is_read_once():
    engine = StreamEngine(ListSource(make_batches(), repeatable=False, background=False))
    assert not engine.repeatable
    assert sum(b.n_rows for b in engine.blocks()) == 12
    for again in (
        lambda: list(engine.blocks()),
        lambda: engine.reduce(id, min),
        lambda: list(engine.map_blocks(id)),
        lambda: engine.sample(3),
    ):
        with pytest.raises(ValueError, match=r"only once.*a path, a list of blocks or a function"):
            again()
    assert engine.n_rows == 12


def test_reads_one_block_ahead_and_no_more():
    source = ListSource(make_batches((2,) * 20))
    blocks = StreamEngine(source).blocks()
    for number in range(1, 6):
        next(blocks)
        time.sleep(0.02)
        assert source.made <= number + 1
    assert source.made == 6
    blocks.close()


def test_errors_of_the_source_and_of_the_map():
    def broken():
        yield from make_batches()
        raise OSError("disk is gone")

    source = ListSource(make_batches())
    source.__class__ = type("Broken", (ListSource,), {"__call__": lambda self: broken()})
    with pytest.raises(OSError, match="disk is gone"):
        list(StreamEngine(source).blocks())

    def fail(batch):
        raise KeyboardInterrupt

    source = ListSource(make_batches())
    with pytest.raises(KeyboardInterrupt):
        StreamEngine(source).reduce(fail, min)
    assert source.closed == 1


def test_no_rows_is_an_error():
    empty = ListSource(make_batches((1,), weighted=True))
    with pytest.raises(ValueError, match="no rows of positive weight"):
        StreamEngine(empty).reduce(id, min)


def test_bad_weights_name_the_block():
    batches = make_batches()
    batches[1] = Batch(batches[1].X, batches[1].y, np.array([1, -2.0, 1]), index=1)
    with pytest.raises(ValueError, match=r"block 1 .*-2.0 in row 1"):
        list(StreamEngine(ListSource(batches)).blocks())


@pytest.mark.parametrize("sparse_x", [False, True])
def test_sample(sparse_x):
    engine = StreamEngine(ListSource(make_batches((40, 30, 50, 1), sparse_x)), seed=2)
    batch = engine.sample(25)
    assert (batch.n_rows, batch.rows) == (25, None)
    rows = rows_of(batch)
    assert len(set(rows)) == 25
    np.testing.assert_array_equal(batch.y, np.array(rows) * 10)
    assert rows != sorted(rows)
    assert rows_of(engine.sample(25)) == rows
    assert rows_of(engine.sample(25, 1)) != rows
    assert sorted(rows_of(engine.sample(1000))) == list(range(121))
    assert sparse.issparse(batch.X) is sparse_x
    with pytest.raises(ValueError, match="n must be"):
        engine.sample(0)


def test_draw_and_each_of_a_stream_are_plain():
    engine = StreamEngine(ListSource(make_batches((50, 50))), seed=1)
    np.testing.assert_array_equal(engine.draw(5).X, engine.sample(5).X)
    assert list(engine.each(lambda number: 2 * number, 3)) == [0, 2, 4]


def test_every_row_is_sampled_equally_often():
    """Fixed seeds: 400 samples of 10 from 40, each row 100 times on average, sd 8.7."""
    engine = StreamEngine(ListSource(make_batches((7, 13, 20)), background=False))
    counts = np.zeros(40)
    for iteration in range(400):
        counts[rows_of(engine.sample(10, iteration))] += 1
    assert np.abs(counts - 100).max() < 4.5 * 8.7


def test_a_sample_holds_few_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(blocks, "MIN_DENSE_ROWS", 64)
    monkeypatch.setattr(blocks, "MAX_DENSE_ROWS", 64)
    engine = StreamEngine(ListSource(make_batches((50,) * 400), background=False))
    candidates = engine.sampler(20)
    sizes = list(engine.map_blocks(lambda batch: len(candidates(batch).keys)))
    assert len(sizes) == 313
    assert sizes[0] == 20 and sum(sizes) < 600  # of 20,000
    assert engine.sample(20).n_rows == 20


def test_y_in_some_blocks_only():
    batches = make_batches()
    batches[1] = Batch(batches[1].X)
    with pytest.raises(ValueError, match="in every block or in none"):
        StreamEngine(ListSource(batches)).sample(100)


def test_streams_are_keyed():
    with StreamEngine(ListSource(make_batches()), seed=3) as engine:
        a, b = engine.stream(0, 1).random(3), engine.stream(1, 0).random(3)
        assert not np.array_equal(a, b)
        np.testing.assert_array_equal(engine.stream(0, 1).random(3), a)
