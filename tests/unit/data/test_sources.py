"""Sources of blocks: from any data to batches, and through the stream engine."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy import sparse

from likelier.base import Batch
from likelier.data import LibsvmLayout
from likelier.engines import StreamEngine
from likelier.tables import TableEncoding, block_source


def write(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def gather(source):
    batches = list(source())
    X = [b.X.toarray() if sparse.issparse(b.X) else b.X for b in batches]
    y = None if batches[0].y is None else np.concatenate([b.y for b in batches])
    return np.concatenate(X), y


# -- files and frames -------------------------------------------------------------------
@pytest.fixture
def files(tmp_path):
    """The same 250 rows as CSV, Parquet, frame and libsvm."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(250, 3)).round(6), columns=["1", "2", "3"])
    frame["y"] = rng.integers(0, 3, size=250)
    frame.to_csv(tmp_path / "d.csv", index=False)
    pyarrow.parquet.write_table(pa.table(dict(frame.items())), tmp_path / "d.parquet")
    lines = [
        f"{row.y:.0f} 1:{row[1]!r} 2:{row[2]!r} 3:{row[3]!r}\n"
        for row in frame.rename(columns={"1": "a", "2": "b", "3": "c"}).itertuples(name="Row")
    ]
    (tmp_path / "d.svm").write_text("".join(lines).replace("np.float64(", "").replace(")", ""))
    return {
        "csv": tmp_path / "d.csv",
        "text": str(tmp_path / "d.csv"),
        "parquet": tmp_path / "d.parquet",
        "libsvm": tmp_path / "d.svm",
        "frame": frame,
    }


@pytest.mark.parametrize("kind", ["csv", "text", "parquet", "libsvm", "frame"])
def test_every_format_gives_the_same_blocks(files, kind):
    target = None if kind == "libsvm" else "y"
    source = block_source(files[kind], target=target, block_rows=100)
    assert source.n_features == 3
    assert source.feature_names == ["1", "2", "3"]
    assert (source.repeatable, source.background) == (True, True)
    batches = list(source())
    assert [(b.index, b.start, b.n_rows) for b in batches] == [
        (0, 0, 100),
        (1, 100, 100),
        (2, 200, 50),
    ]
    frame = files["frame"]
    for _ in range(2):
        X, y = gather(source)
        np.testing.assert_array_equal(X, frame[["1", "2", "3"]].to_numpy())
        np.testing.assert_array_equal(y, frame["y"].to_numpy(), strict=True)
    assert all(b.X.dtype == np.float64 for b in batches)
    assert sparse.issparse(batches[0].X) == (kind == "libsvm")


@pytest.mark.parametrize("kind", ["csv", "parquet", "libsvm", "frame"])
def test_plain_forms_read_other_data(files, kind):
    source = block_source(files[kind], target=None if kind == "libsvm" else "y")
    encoder = type(source.encoder).from_json(source.encoder.to_json())
    again = block_source(files[kind], encoder=encoder)
    np.testing.assert_array_equal(gather(again)[0], gather(source)[0])
    np.testing.assert_array_equal(gather(again)[1], gather(source)[1])


def test_a_source_is_returned_as_it_is(files):
    source = block_source(files["csv"], target="y")
    assert block_source(source) is source


def test_prediction_without_target(tmp_path):
    encoder = block_source(write(tmp_path, "a,c,y\n1,u,0\n2,v,1\n"), target="y").encoder
    source = block_source(write(tmp_path, "c,a\nv,5\n", "p.csv"), encoder=encoder)
    X, y = gather(source)
    np.testing.assert_array_equal(X, [[5, 1]])
    assert y is None


def test_prediction_of_one_line_without_header(tmp_path):
    """One line of text alone looks like a header; the encoder knows that it is none."""
    encoder = block_source(write(tmp_path, "u,p,0\nv,q,1\nu,q,0\n"), target=2).encoder
    X, y = gather(block_source(write(tmp_path, "v,q\n", "p.csv"), encoder=encoder))
    np.testing.assert_array_equal(X, [[1, 1]])
    assert y is None


def test_extra_columns_give_one_note(tmp_path):
    encoder = block_source(write(tmp_path, "a,y\n1,0\n2,1\n"), target="y").encoder
    wide = write(tmp_path, "a,b\n" + "1,2\n" * 30, "p.csv")
    with pytest.warns(UserWarning, match="ignoring column 'b'") as notes:
        gather(block_source(wide, encoder=encoder, block_rows=10))
    assert len(notes) == 1


def test_arguments_that_do_not_fit(tmp_path, files):
    svm = files["libsvm"]
    with pytest.raises(ValueError, match="libsvm file, not a table"):
        block_source(svm, target="y")
    table = block_source(files["csv"], target="y").encoder
    with pytest.raises(ValueError, match="fitted on a table"):
        block_source(svm, encoder=table)
    with pytest.raises(ValueError, match="cannot read a table"):
        block_source(files["csv"], encoder=LibsvmLayout(3, False, True))
    with pytest.raises(ValueError, match="target is '1', but the model was fitted on 'y'"):
        block_source(files["csv"], encoder=table, target="1")
    with pytest.raises(ValueError, match="leave out target"):
        block_source([(np.ones((2, 1)), np.ones(2))], target="y")
    with pytest.raises(ValueError, match="not blocks"):
        block_source([(np.ones((2, 1)), np.ones(2))], encoder=table)
    with pytest.raises(TypeError, match="data must be a path"):
        block_source(3.5)
    with pytest.raises(ValueError, match="leave out target, kinds"):
        block_source([(np.ones((2, 1)), np.ones(2))], kinds={"a": "category"})
    with pytest.raises(ValueError, match="form"):
        TableEncoding.from_json({})
    assert block_source(svm, format="libsvm").n_features == 3


# -- iterators --------------------------------------------------------------------------
def make_blocks(n=3):
    return [(np.full((4, 2), float(i)), np.arange(4) + i) for i in range(n)]


def test_iterator_list_and_function():
    for data, repeatable in (
        (make_blocks(), True),
        (make_blocks, True),
        (iter(make_blocks()), False),
    ):
        source = block_source(data)
        assert (source.repeatable, source.background) == (repeatable, False)
        assert source.n_features == 2  # looking at the first block must not lose it
        assert (source.feature_names, source.encoder) == (None, None)
        batches = list(source())
        assert [(b.index, b.start) for b in batches] == [(0, 0), (1, 4), (2, 8)]
        np.testing.assert_array_equal(
            np.concatenate([b.X[:, 0] for b in batches]), [0] * 4 + [1] * 4 + [2] * 4
        )
        if repeatable:
            assert len(list(source())) == 3
        else:
            with pytest.raises(ValueError, match="no blocks"):
                list(source())


def test_blocks_of_every_kind():
    weight = np.array([1, 2])
    X = np.array([[1, 2], [3, 4]])
    backwards = np.array([1, 0])
    batch = Batch(X.astype(float)[::-1], backwards, weight[::-1], rows=backwards)
    for block, dtype in (
        ((X, [0, 1], weight), np.float64),
        ([X.astype(np.float32), [0, 1], weight], np.float32),
        ((pd.DataFrame(X), pd.Series([0, 1]), weight), np.float64),
        ((sparse.coo_matrix(X), [0, 1], weight), np.float64),
        ((sparse.csr_array(X.astype(np.float32)), [0, 1], weight), np.float32),
        (batch, np.float64),
    ):
        (batch,) = block_source([block])()
        values = batch.X.toarray() if sparse.issparse(batch.X) else batch.X
        np.testing.assert_array_equal(values, X)
        assert batch.X.dtype == dtype
        np.testing.assert_array_equal(batch.y, [0, 1])
        np.testing.assert_array_equal(batch.weight, weight)


def test_float_blocks_are_not_copied():
    X = np.ones((4, 2), dtype=np.float32)
    (batch,) = block_source([(X, np.zeros(4))])()
    assert np.shares_memory(batch.X, X)
    S = sparse.csr_array(X)
    (batch,) = block_source([(S, np.zeros(4))])()
    assert np.shares_memory(batch.X.data, S.data)


def test_duplicate_entries_are_summed_in_a_copy():
    S = sparse.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    (batch,) = block_source([(S, [0])])()
    assert batch.X.nnz == 1
    np.testing.assert_array_equal(batch.X.toarray(), [[0, 2, 0]])
    assert S.nnz == 2


def test_labels_may_be_none_or_text():
    assert next(block_source([(np.ones((2, 2)), None)])()).y is None
    assert next(block_source([(np.ones((2, 2)), ["a", "b"])])()).y.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("block", "error", "message"),
    [
        (np.ones((2, 2)), TypeError, r"block 1 .* must be \(X, y\) or .* got ndarray"),
        ((np.ones((2, 2)),), TypeError, "must be"),
        ((np.ones((2, 3)), np.ones(2)), ValueError, "block 1 .* has 3 columns, block 0 has 2"),
        ((np.ones((2, 2)), np.ones(3)), ValueError, "block 1 .*X has 2 rows, y has shape"),
        ((np.ones((2, 2)), 1), ValueError, "block 1 .*y has shape"),
        ((np.ones((2, 2)), np.ones(2), np.ones(3)), ValueError, "sample_weight has shape"),
        ((np.ones(2), np.ones(2)), ValueError, "block 1 .*two dimensions"),
        (([[1, np.nan]], [0]), ValueError, "block 1 .*NaN or infinity"),
        ((sparse.csr_array([[0, np.inf]]), [0]), ValueError, "block 1 .*NaN or infinity"),
        (([["a", "b"]], [0]), ValueError, "block 1 .*could not convert"),
    ],
)
def test_bad_blocks_are_named(block, error, message):
    source = block_source([(np.ones((4, 2)), np.zeros(4)), block])
    with pytest.raises(error, match=message):
        list(source())


def test_no_blocks():
    with pytest.raises(ValueError, match="no blocks"):
        _ = block_source([]).n_features


# -- with the engine --------------------------------------------------------------------
def test_stream_engine_over_a_file(files):
    engine = StreamEngine(block_source(files["csv"], target="y", block_rows=64), seed=1)
    frame = files["frame"]
    X = frame[["1", "2", "3"]].to_numpy()
    assert (engine.n_features, engine.n_rows, engine.is_local) == (3, None, False)
    total = engine.reduce(lambda b: b.X.sum(axis=0), np.add)
    np.testing.assert_allclose(total, X.sum(axis=0))
    assert engine.n_rows == 250
    shuffled = np.concatenate([b.compact().X for b in engine.blocks(0)])
    assert not np.array_equal(shuffled, X)
    np.testing.assert_array_equal(np.sort(shuffled[:, 0]), np.sort(X[:, 0]))
    assert engine.sample(20).n_rows == 20


def test_stream_engine_reads_iterators_in_the_callers_thread():
    threads = set()

    def blocks():
        for block in make_blocks():
            threads.add(threading.current_thread())
            yield block

    engine = StreamEngine(block_source(blocks()))
    assert engine.n_features == 2
    assert sum(b.n_rows for b in engine.blocks(0)) == 12
    assert threads == {threading.current_thread()}
    with pytest.raises(ValueError, match="only once"):
        list(engine.blocks(1))
    again = StreamEngine(block_source(blocks))
    assert sum(b.n_rows for i in range(3) for b in again.blocks(i)) == 36


def test_reading_files_does_not_load_pandas(files):
    """Arrow would import it on the way, for nothing: fifty megabytes in a small process."""
    program = """
import sys
from likelier.tables import block_source
for path in sys.argv[1:]:
    for block in block_source(path, target="y")():
        pass
    assert "pandas" not in sys.modules, path
"""
    paths = [str(files["csv"]), str(files["parquet"])]
    done = subprocess.run(
        [sys.executable, "-c", program, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
