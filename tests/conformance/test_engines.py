"""What every engine must do; engines are discovered, so a new one is tested unasked.

An engine that cannot be made by `ENGINES` fails the first test: say there how to make it.
"""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest
from scipy import sparse

import likelier.engines
from likelier import losses
from likelier.base import Batch, Engine
from likelier.engines import LocalEngine, StreamEngine, blocks
from likelier.engines.transformed import TransformedEngine
from likelier.glm.model import LinearModel, LinearStats
from likelier.glm.newton import Newton
from likelier.glm.penalty import ElasticNet
from likelier.tables import block_source

BLOCK_ROWS = 16
N, D = 83, 3


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of few rows, so that there are several."""
    for name in ("MIN_DENSE_ROWS", "MAX_DENSE_ROWS", "MIN_SPARSE_ROWS", "MAX_SPARSE_ROWS"):
        monkeypatch.setattr(blocks, name, BLOCK_ROWS)


def subclasses(kind):
    for module in pkgutil.iter_modules(likelier.engines.__path__, "likelier.engines."):
        importlib.import_module(module.name)
    found, todo = set(), [kind]
    while todo:
        for sub in todo.pop().__subclasses__():
            if sub.__module__.startswith("likelier."):
                found.add(sub)
            todo.append(sub)
    return found


def data(kind=np.asarray, weighted=True):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.7)
    X[:, 0] = np.arange(N)  # tells rows apart
    weight = rng.choice([0.0, 0.5, 2.0], N) if weighted else None
    return kind(X), rng.standard_normal(N), weight


def local(X, y, weight, seed, n_jobs=1):
    return LocalEngine(X, y, weight, seed=seed, n_jobs=n_jobs)


def stream(X, y, weight, seed):
    """Blocks of a source that have other borders, and absent rows anywhere."""
    cuts = np.array_split(np.arange(N), 7)
    given = [(X[c], y[c], None if weight is None else weight[c]) for c in cuts]
    return StreamEngine(block_source(lambda: iter(given)), seed=seed)


def unchanged(batch):
    return batch


def transformed(X, y, weight, seed):
    return stream(X, y, weight, seed).transformed(unchanged)


ENGINES = {
    LocalEngine: [local, lambda *args: local(*args, n_jobs=3)],
    StreamEngine: [stream],
    TransformedEngine: [transformed],
}
MAKERS = [maker for makers in ENGINES.values() for maker in makers]
every_engine = pytest.mark.parametrize(
    "make", MAKERS, ids=["local", "threads", "stream", "transformed"]
)
every_kind = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
every_weight = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


def test_every_engine_is_tested():
    assert subclasses(Engine) - {blocks.BlockEngine} == set(ENGINES)


def names(batch):
    """Which rows a batch holds."""
    batch = batch.compact()
    X = batch.X.toarray() if sparse.issparse(batch.X) else batch.X
    return X[:, 0].astype(int).tolist()


def all_names(batches):
    return [name for batch in batches for name in names(batch)]


def present(weight):
    return list(range(N)) if weight is None else np.flatnonzero(weight).tolist()


@every_engine
@every_kind
@every_weight
def test_facts(make, kind, weighted):
    X, y, weight = data(kind, weighted)
    engine = make(X, y, weight, 0)
    assert engine.n_features == D
    assert engine.repeatable is True
    assert engine.is_local is isinstance(engine, LocalEngine)
    list(engine.blocks())
    assert engine.n_rows == len(present(weight))


@every_engine
@every_kind
@every_weight
def test_blocks_in_order_hold_every_present_row_once(make, kind, weighted):
    X, y, weight = data(kind, weighted)
    batches = list(make(X, y, weight, 0).blocks())
    assert [b.index for b in batches] == list(range(len(batches)))
    assert all_names(batches) == present(weight)
    assert [b.start for b in batches] == np.cumsum([0, *(b.n_rows for b in batches[:-1])]).tolist()
    for batch in batches:
        rows = names(batch)
        np.testing.assert_array_equal(batch.compact().y, y[rows])
        if weighted:
            np.testing.assert_array_equal(batch.compact().weight, weight[rows])


@every_engine
@every_weight
def test_shuffled_passes(make, weighted):
    X, y, weight = data(weighted=weighted)
    engine = make(X, y, weight, 5)
    orders = [all_names(engine.blocks(i)) for i in (0, 1, 0)]
    assert all(sorted(order) == present(weight) for order in orders)
    assert orders[0] == orders[2] != orders[1]
    assert orders[0] != present(weight)
    again = all_names(make(X, y, weight, 5).blocks(1))
    assert again == orders[1]
    other = all_names(make(X, y, weight, 6).blocks(1))
    assert other != orders[1]


@every_kind
@every_weight
def test_reductions_are_identical_on_every_engine(kind, weighted):
    """Not nearly: the same blocks, added in the same order, to the last bit."""
    X, y, weight = data(kind, weighted)

    def sums(batch):
        batch = batch.compact()
        omega = np.ones(batch.n_rows) if batch.weight is None else batch.weight
        return np.append(batch.X.T @ (omega * batch.y), omega.sum())

    totals = [make(X, y, weight, 0).reduce(sums, np.add) for make in MAKERS]
    for total in totals[1:]:
        np.testing.assert_array_equal(total, totals[0])
    omega = np.ones(N) if weight is None else weight
    np.testing.assert_allclose(totals[0], np.append(X.T @ (omega * y), omega.sum()))


@every_kind
@every_weight
def test_values_per_row_are_identical_on_every_engine(kind, weighted):
    X, y, weight = data(kind, weighted)
    found = []
    for make in MAKERS:
        engine = make(X, y, weight, 0)
        scores = engine.map_rows(lambda batch, w: batch.X @ w, state=np.arange(1.0, D + 1.0))
        for step in (0.5, 0.25):
            scores = engine.map_rows(lambda batch, f, s: f + s * batch.y, scores, state=step)
            found.append(engine.reduce(lambda batch, f: batch.X.T @ f, np.add, scores))
    for number, total in enumerate(found[2:]):
        np.testing.assert_array_equal(total, found[number % 2])
    here = present(weight)
    whole = X.toarray() if sparse.issparse(X) else X
    scores = whole @ np.arange(1.0, D + 1.0) + 0.75 * y
    np.testing.assert_allclose(found[1], whole[here].T @ scores[here])


@every_engine
def test_merging_goes_from_the_first_block_to_the_last(make):
    """String addition does not commute; results come in order also when threads finish late."""
    X, y, weight = data()
    engine = make(X, y, weight, 0)
    text = engine.reduce(lambda batch: f"{batch.index},", lambda left, right: left + right)
    assert text == "".join(f"{i}," for i in range(text.count(",")))
    assert list(engine.map_blocks(lambda batch: batch.index)) == list(range(text.count(",")))


@every_engine
def test_an_error_in_a_map_is_the_callers(make):
    X, y, weight = data()

    def fail(batch):
        if batch.index == 2:
            raise RuntimeError("block two")
        return 0

    engine = make(X, y, weight, 0)
    with pytest.raises(RuntimeError, match="block two"):
        engine.reduce(fail, max)
    assert engine.reduce(lambda batch: 1, lambda a, b: a + b) > 2  # and it goes on


@every_engine
@every_kind
@every_weight
def test_samples(make, kind, weighted):
    X, y, weight = data(kind, weighted)
    engine = make(X, y, weight, 1)
    batch = engine.sample(10)
    chosen = names(batch)
    assert len(set(chosen)) == 10 == batch.n_rows
    assert set(chosen) <= set(present(weight))
    np.testing.assert_array_equal(batch.y, y[chosen])
    assert names(engine.sample(10)) == chosen
    assert names(engine.sample(10, iteration=1)) != chosen
    assert sorted(names(engine.sample(10_000))) == present(weight)
    with pytest.raises(ValueError, match="n must be at least 1"):
        engine.sample(0)


@every_kind
@every_weight
@pytest.mark.parametrize("n", [1, 10, 60, 500])
def test_samples_are_the_same_on_every_engine(kind, weighted, n):
    X, y, weight = data(kind, weighted)
    drawn = [make(X, y, weight, 1).sample(n, 3) for make in MAKERS]
    chosen = [names(batch) for batch in drawn]
    assert chosen.count(chosen[0]) == len(chosen)
    assert [len(c) for c in chosen] == [min(n, len(present(weight)))] * len(chosen)


def test_samples_are_uniform():
    """Every row as often as any other: chi-square with 82 degrees, below its 1e-6 quantile."""
    X, y, _ = data(weighted=False)
    for make in (local, stream):
        engine = make(X, y, None, 2)
        counts = np.zeros(N)
        for i in range(400):
            counts[names(engine.sample(8, iteration=i))] += 1
        expected = 400 * 8 / N
        assert ((counts - expected) ** 2 / expected).sum() < 160.0


@every_engine
def test_random_streams_are_keyed(make):
    X, y, weight = data()
    engine = make(X, y, weight, 3)
    draws = {key: engine.stream(*key).random(4).tolist() for key in [(0, 0), (0, 1), (1, 0)]}
    assert len({str(d) for d in draws.values()}) == 3
    assert make(X, y, weight, 3).stream(0, 1).random(4).tolist() == draws[0, 1]
    assert make(X, y, weight, 4).stream(0, 1).random(4).tolist() != draws[0, 1]


def test_random_streams_are_the_same_on_every_engine():
    X, y, weight = data()
    values = [make(X, y, weight, 3).stream(2, 5).random(4).tolist() for make in MAKERS]
    assert values.count(values[0]) == len(values)


@pytest.mark.parametrize("loss", [losses.SquaredError(), losses.Huber()], ids=repr)
@every_kind
def test_a_newton_step_is_the_same_on_every_engine(loss, kind):
    X, y, weight = data(kind)
    X = X * [[0.01, 1.0, 1.0]] if kind is np.asarray else X
    zeros = np.zeros(D + 1)
    model = LinearModel(loss, D, 1, False, True, ElasticNet(zeros + 1e-3, zeros))
    thetas = []
    for make in MAKERS:
        engine = make(X, y, weight, 0)
        stats = engine.reduce(lambda b: model.stats(model.zeros(), b, order=2), LinearStats.__add__)
        assert stats.n_rows == engine.n_rows
        state = Newton().init(model, engine)
        thetas.append(Newton().step(state, engine)[0].theta)
    for theta in thetas[1:]:
        np.testing.assert_allclose(theta, thetas[0], rtol=1e-9, atol=1e-12)


@every_engine
def test_no_weight_may_be_negative(make):
    X, y, weight = data()
    weight[4] = -1.0
    with pytest.raises(ValueError, match="negative"):
        list(make(X, y, weight, 0).blocks())


def test_a_batch_gathers_its_rows():
    X, y, weight = data()
    rows = np.array([4, 2])
    batch = Batch(X, y, weight, rows=rows)
    assert batch.n_rows == 2
    own = batch.compact()
    assert own.rows is None
    np.testing.assert_array_equal(own.X, X[rows])
