"""Folds: the same rows on every engine, each row held out once, absent rows without effect."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

from likelier.engines import LocalEngine, StreamEngine
from likelier.engines.blocks import BlockEngine
from likelier.tables import block_source

N, FOLDS = 1000, 5


def rows_of(engine):
    """The first column and the weights of all rows, block by block."""
    columns, weights = [], []
    for batch in engine.blocks():
        few = batch.X[:, [0]]
        columns.append(np.ravel(few.toarray() if sparse.issparse(few) else few))
        weights.append(np.ones(batch.n_rows) if batch.weight is None else batch.weight)
    return np.concatenate(columns), np.concatenate(weights)


def engines(X, y, weight, kind):
    local = LocalEngine(X, y, weight, seed=3)
    if kind == "local":
        return local.folds(FOLDS, 7)
    if kind == "any":
        return BlockEngine.folds(local, FOLDS, 7)
    if kind == "transformed":
        return local.transformed(lambda batch: batch).folds(FOLDS, 7)
    cuts = [0, 10, 400, 401, N]
    source = block_source([(X[a:b], y[a:b], weight[a:b]) for a, b in itertools.pairwise(cuts)])
    return StreamEngine(source, seed=3).folds(FOLDS, 7)


@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("kind", ["any", "transformed", "stream"])
def test_the_same_rows_on_every_engine(kind, storage, monkeypatch):
    for name in ("MIN_DENSE_ROWS", "MAX_DENSE_ROWS", "MIN_SPARSE_ROWS", "MAX_SPARSE_ROWS"):
        monkeypatch.setattr(f"likelier.engines.blocks.{name}", 128)
    rng = np.random.default_rng(0)
    X, y = np.arange(2.0 * N).reshape(N, 2), np.zeros(N)
    weight = rng.uniform(0.5, 1.0, N) * (rng.random(N) < 0.9)
    seen = []
    expected = list(engines(storage(X), y, weight, "local"))
    found = list(engines(storage(X), y, weight, kind))
    assert len(expected) == len(found) == FOLDS
    for one, other in zip(expected, found, strict=True):
        for part, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(rows_of(part), rows_of(same))
        rest, held = (rows_of(part)[0] for part in one)
        assert set(rest) | set(held) == set(X[weight > 0.0, 0])
        assert 150 < len(held) < 210
        seen += held.tolist()
    assert sorted(seen) == X[weight > 0.0, 0].tolist()


def test_absent_rows_move_no_other_to_another_fold():
    X = np.arange(float(N))[:, None]
    weight = (np.arange(N) % 7 > 0).astype(float)
    there = weight > 0.0
    for one, other in zip(
        LocalEngine(X, None, weight).folds(4), LocalEngine(X[there]).folds(4), strict=True
    ):
        np.testing.assert_array_equal(rows_of(one[1])[0], rows_of(other[1])[0])
