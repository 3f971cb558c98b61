"""libsvm files: against scikit-learn, every fault with its line number, any block size."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from likelier.data import LibsvmFile, LibsvmLayout
from likelier.data import libsvm as module


def write(tmp_path, text, name="data.libsvm"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path, block_rows=1000, layout=None):
    blocks = list(LibsvmFile(path, layout).blocks(block_rows))
    X = sparse.vstack([X for X, _ in blocks], format="csr")
    y = None if blocks[0][1] is None else np.concatenate([y for _, y in blocks])
    return X, y


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Make every file cross many chunk borders."""
    monkeypatch.setattr(module, "CHUNK_BYTES", 97)


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("block_rows", [1, 7, 1000])
def test_same_as_scikit_learn(tmp_path, zero_based, block_rows):
    rng = np.random.default_rng(0)
    X = sparse.random(200, 30, 0.2, "csr", rng=rng).tolil()
    X[0, 0], X[1, 29] = 0.5, -2.0
    y = rng.normal(size=200)
    path = tmp_path / "data"
    dump_svmlight_file(X.tocsr(), y, str(path), zero_based=zero_based)
    ours, labels = read(path, block_rows)
    theirs, their_labels = load_svmlight_file(str(path))
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())
    np.testing.assert_array_equal(labels, their_labels)
    assert LibsvmFile(path).layout == LibsvmLayout(30, zero_based, integer_labels=False)


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open, open])
def test_compressed(tmp_path, opener):
    suffix = {gzip.open: ".gz", bz2.open: ".bz2", lzma.open: ".xz", open: ""}[opener]
    path = tmp_path / f"data.svm{suffix}"
    with opener(path, "wb") as stream:
        stream.write(b"1 1:2 3:4\n-1 2:0.5\n" * 50)
    X, y = read(path)
    assert X.shape == (100, 3)
    assert y.dtype == np.int64
    np.testing.assert_array_equal(X[:2].toarray(), [[2, 0, 4], [0, 0.5, 0]])


def test_truncated_compressed_file(tmp_path):
    whole = gzip.compress(b"1 1:2 3:4\n" * 10_000)
    path = write(tmp_path, whole[:-20], "data.svm.gz")
    with pytest.raises(ValueError, match="damaged or truncated"):
        read(path)


def test_several_gzip_members(tmp_path):
    path = write(tmp_path, gzip.compress(b"1 1:2\n") + gzip.compress(b"2 2:3\n"), "d.svm.gz")
    X, y = read(path)
    np.testing.assert_array_equal(X.toarray(), [[2, 0], [0, 3]])
    np.testing.assert_array_equal(y, [1, 2])


def test_liberties_of_the_format(tmp_path):
    text = (
        "\ufeff# a comment line\n\n"
        "+1 1:1.5\t3:-2e-1   \r\n"
        "-1\n"
        "   \n"
        "2 qid:7 2:5 # why\n"
        "3 # no entries\n"
        "1 3:1 1:2 3:4\n"
        "0 2:1"
    )
    X, y = read(write(tmp_path, text))
    np.testing.assert_array_equal(y, [1, -1, 2, 3, 1, 0])
    np.testing.assert_array_equal(
        X.toarray(),
        [[1.5, 0, -0.2], [0, 0, 0], [0, 5, 0], [0, 0, 0], [2, 0, 5], [0, 1, 0]],
    )
    assert X.has_canonical_format


def test_labels_stay_whole_if_all_are(tmp_path):
    _, y = read(write(tmp_path, "1 1:1\n" * 50 + "2.0 1:1\n"))
    assert y.dtype == np.int64
    _, y = read(write(tmp_path, "1 1:1\n" * 50 + "2.5 1:1\n"), block_rows=10)
    assert y.dtype == np.float64
    path = write(tmp_path, "1 1:1\n0.5 1:1\n")
    _, y = read(path, layout=LibsvmLayout(1, False, True))
    np.testing.assert_array_equal(y, [1, 0.5])


def test_unlabelled(tmp_path):
    X, y = read(write(tmp_path, "1:1 2:2\n2:3\n" * 20))
    assert y is None
    assert X.shape == (40, 2)


def test_layout_is_remembered(tmp_path):
    train = LibsvmFile(write(tmp_path, "1 1:1 5:2\n0 2:1\n", "train.svm"))
    layout = LibsvmLayout.from_json(json.loads(json.dumps(train.layout.to_json())))
    assert layout == train.layout == LibsvmLayout(5, False, True)
    assert layout.get_feature_names_out().tolist() == ["1", "2", "3", "4", "5"]
    X, _ = read(write(tmp_path, "1 2:7\n", "narrow.svm"), layout=layout)
    np.testing.assert_array_equal(X.toarray(), [[0, 7, 0, 0, 0]])
    with pytest.warns(UserWarning, match="ignored 2 entries in columns beyond the 5"):
        X, _ = read(write(tmp_path, "1 2:7 6:1\n1 5:3 9:1\n", "wide.svm"), layout=layout)
    np.testing.assert_array_equal(X.toarray(), [[0, 7, 0, 0, 0], [0, 0, 0, 0, 3]])
    with pytest.raises(ValueError, match="line 2: column 0, but .* counted from 1; found '0:3'"):
        read(write(tmp_path, "1 2:7\n1 0:3\n", "zero.svm"), layout=layout)
    zero = LibsvmLayout(3, True, True)
    assert zero.get_feature_names_out().tolist() == ["0", "1", "2"]
    X, _ = read(write(tmp_path, "1 2:7\n", "zero.svm"), layout=zero)
    np.testing.assert_array_equal(X.toarray(), [[0, 0, 7]])


@pytest.mark.parametrize("plain", [{}, {"form": "table-1"}, {"form": "libsvm-1", "n_features": 1}])
def test_damaged_layout(plain):
    with pytest.raises(ValueError, match="libsvm layout"):
        LibsvmLayout.from_json(plain)


GOOD = "1 1:2 3:4\n# comment\n\n" * 30  # 90 lines, so that faults lie beyond the first chunk


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("spam 1:2", "label is not a number; .*'spam'"),
        ("nan 1:2", "label is not a number"),
        ("1e999 1:2", "label is not a number"),
        ("1,3 1:2", "several labels"),
        ("1:2 2:3", "no label before the first column"),
        ("1 x:2", "expected column:value .*'x:2'"),
        ("1 -1:2", "expected column:value"),
        ("1 1.5:2", "expected column:value"),
        ("1 7", "expected column:value"),
        ("1 1:2 99999999999:1", "larger than 2147483646"),
        ("1 1:", "not a finite number; found '1:'"),
        ("1 1:abc", "not a finite number; found '1:abc'"),
        ("1 1:nan", "not a finite number"),
        ("1 1:1e999", "not a finite number; found '1:1e999'"),
        ("1 1:2:3", "not a finite number"),
        ("1 1:1797693134862315807937289714053035e275", "not a finite number"),
        ("1 1:1 2: 3", "not a finite number; found '2:'"),
    ],
)
def test_faults_name_the_line(tmp_path, line, message):
    path = write(tmp_path, GOOD + line + "\n" + GOOD)
    with pytest.raises(ValueError, match=f"line 91: .*{message}"):
        read(path)


def test_label_where_none_is_expected(tmp_path):
    path = write(tmp_path, "1:2 3:4\n1:1\n5 1:2\n")
    with pytest.raises(ValueError, match="line 3: there is a label"):
        read(path)


def test_empty_and_missing_files(tmp_path):
    with pytest.raises(ValueError, match="is empty"):
        LibsvmFile(write(tmp_path, ""))
    with pytest.raises(ValueError, match="no rows"):
        read(write(tmp_path, "# nothing\n\n"))
    with pytest.raises(ValueError, match="every row is zero"):
        read(write(tmp_path, "1\n2\n"))
    with pytest.raises(FileNotFoundError, match="no file"):
        LibsvmFile(tmp_path / "absent")
    with pytest.raises(ValueError, match="folder"):
        LibsvmFile(tmp_path)
    with pytest.raises(ValueError, match="block_rows"):
        read(write(tmp_path, "1 1:1\n"), block_rows=0)


def test_blocks_are_exact_and_bounded(tmp_path, monkeypatch):
    path = write(tmp_path, "".join(f"{i} 1:{i} 2:1\n" for i in range(100)))
    assert [X.shape[0] for X, _ in LibsvmFile(path).blocks(30)] == [30, 30, 30, 10]
    monkeypatch.setattr(module, "MAX_BLOCK_ENTRIES", 9)
    blocks = list(LibsvmFile(path).blocks(30))
    assert {X.shape[0] for X, _ in blocks} == {4}
    np.testing.assert_array_equal(np.concatenate([y for _, y in blocks]), np.arange(100))
    monkeypatch.setattr(module, "MAX_BLOCK_ENTRIES", 1)  # a row is larger than a block
    blocks = list(LibsvmFile(path).blocks(30))
    assert {X.shape[0] for X, _ in blocks} == {1}
    assert sparse.vstack([X for X, _ in blocks]).sum() == 99 * 100 / 2 + 100


def test_a_line_longer_than_a_chunk(tmp_path):
    line = "1 " + " ".join(f"{i}:{i}" for i in range(1, 200)) + "\n"
    X, y = read(write(tmp_path, line * 3))
    np.testing.assert_array_equal(X.toarray(), [np.arange(1.0, 200)] * 3)
    np.testing.assert_array_equal(y, [1, 1, 1])


def test_hard_numbers_are_read_with_float(tmp_path):
    hard = "9007199254740993.00000000000000000000000001"
    assert float(hard) != float("9007199254740993")
    X, y = read(write(tmp_path, f"{hard} 1:{hard}\n0.5 1:1\n"))
    assert X[0, 0] == y[0] == float(hard)


rows_strategy = st.lists(
    st.tuples(
        st.floats(allow_nan=False, allow_infinity=False),
        st.dictionaries(
            st.integers(1, 40), st.floats(allow_nan=False, allow_infinity=False), max_size=6
        ),
    ),
    min_size=1,
    max_size=30,
).filter(lambda rows: any(entries for _, entries in rows))


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=rows_strategy, block_rows=st.integers(1, 12), ending=st.sampled_from(["\n", "\r\n"]))
def test_round_trip(tmp_path, rows, block_rows, ending):
    lines = [
        " ".join([repr(label)] + [f"{column}:{value!r}" for column, value in entries.items()])
        for label, entries in rows
    ]
    X, y = read(write(tmp_path, ending.join(lines)), block_rows)
    assert y.tolist() == [label for label, _ in rows]
    expected = np.zeros(X.shape)
    for row, (_, entries) in enumerate(rows):
        for column, value in entries.items():
            expected[row, column - 1] = value
    np.testing.assert_array_equal(X.toarray(), expected)
