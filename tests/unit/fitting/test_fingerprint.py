"""The fingerprint of a fit: other parameters or data change it, and nothing else does."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone

from likelier import SVC, LinearClassifier, LinearRegressor
from likelier.base import Batch
from likelier.data.sources import IterableSource
from likelier.files.journal import Journal
from likelier.fitting.fingerprint import RUN_ONLY, fingerprint
from likelier.kernels import Matern
from likelier.losses import Huber, Quantile

rng = np.random.default_rng(0)
X = rng.random((40, 5))
Y = (X[:, 0] > 0.5).astype(int)


class Pair(BaseEstimator):
    """An estimator with parameters of every kind."""

    def __init__(self, first: Any = None, second: Any = None, n_jobs: Any = None) -> None:
        self.first = first
        self.second = second
        self.n_jobs = n_jobs


def of(X: Any = X, y: Any = Y, weight: Any = None, estimator: Any = None) -> str:
    return fingerprint(estimator or LinearClassifier(random_state=0), X, y, weight)[0]


def of_parameter(value: Any) -> str:
    return of(estimator=Pair(value))


# -- parameters -------------------------------------------------------------------------------


def test_it_is_sixteen_hexadecimal_characters_and_the_facts_are_plain() -> None:
    digest, facts = fingerprint(LinearClassifier(random_state=3), X, Y, np.ones(40))
    assert len(digest) == 16 and set(digest) <= set("0123456789abcdef")
    assert all(isinstance(value, str | int | float | bool | None) for value in facts.values())
    assert facts["random_state"] == 3 and facts["shape of X"] == "40 x 5"
    assert facts["class"] == "likelier.linear.classifier.LinearClassifier"
    assert {"likelier", "numpy", "scipy", "values of y", "type of sample_weight"} <= set(facts)
    assert not {"verbose", "n_jobs", "checkpoint", "callbacks"} & set(facts)


def test_every_parameter_counts() -> None:
    model = LinearClassifier(random_state=0)
    counted = set(model.get_params(deep=False)) - RUN_ONLY
    seen = {of(), of(estimator=LinearRegressor(random_state=0))}
    for name in counted:
        other = 1 if name == "random_state" else f"not {getattr(model, name)}"
        seen.add(of(estimator=clone(model).set_params(**{name: other})))
    assert len(seen) == len(counted) + 2


def test_what_only_concerns_the_run_does_not_count() -> None:
    model = LinearClassifier(random_state=0)
    assert {"verbose", "n_jobs"} <= RUN_ONLY
    for name in RUN_ONLY & set(model.get_params()):
        assert of(estimator=clone(model).set_params(**{name: 2})) == of()
    assert of(estimator=Pair(Pair(n_jobs=2), n_jobs=3)) == of(estimator=Pair(Pair()))


@pytest.mark.parametrize(
    "values",
    [
        (None, "None", 0, False, 0.0, "", [], (), {}, set()),
        ([1, 2], (1, 2), [2, 1], [1.0, 2], ["1, 2"], [[1], 2]),
        (Quantile(tau=0.5), Quantile(tau=0.9), Huber(), Matern(), Matern(gamma=0.3)),
        ({"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 1}, {1: 1}),
        (np.zeros(2), np.zeros(3), np.ones(2), np.zeros(2, dtype=np.float32)),
        (Pair(1), Pair(2), Pair(1, 2), LinearRegressor(random_state=0)),
        (sparse.csr_array(np.eye(2)), sparse.csr_array(np.eye(2) * 2.0)),
        (Path("a"), Path("b"), np.float64, np.float32, np.dtype("int8")),
    ],
)
def test_different_values_of_a_parameter_differ(values: tuple[Any, ...]) -> None:
    assert len({of_parameter(value) for value in values}) == len(values)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.int64(3), 3),
        (np.float64(0.1), 0.1),
        ({"a": 1, "b": 2}, {"b": 2, "a": np.int8(1)}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (Quantile(tau=np.float64(0.9)), Quantile(tau=0.9)),
    ],
)
def test_equal_values_of_a_parameter_are_equal(one: Any, other: Any) -> None:
    assert of_parameter(one) == of_parameter(other)


@pytest.mark.parametrize(
    "seed", [None, np.random.default_rng(0), np.random.RandomState(0)], ids=["none", "new", "old"]
)
def test_random_state_must_be_an_int(seed: Any) -> None:
    for estimator in (
        LinearClassifier(random_state=seed),
        Pair(LinearRegressor(random_state=seed)),
    ):
        with pytest.raises(ValueError, match="checkpoint needs an int as random_state"):
            of(estimator=estimator)
    assert of(estimator=LinearClassifier(random_state=np.int32(0))) == of()


def test_functions_and_unknown_objects_are_refused_by_name() -> None:
    for value in (lambda a, b: a @ b.T, object()):
        with pytest.raises(ValueError, match="checkpoint cannot tell whether first="):
            of_parameter(value)
    with pytest.raises(ValueError, match="checkpoint cannot tell whether kernel="):
        of(estimator=SVC(kernel=np.dot, random_state=0))


# -- arrays and matrices ----------------------------------------------------------------------


def test_one_cell_shape_type_and_role_count_and_copies_do_not() -> None:
    other = X.copy()
    other[17, 3] = np.nextafter(other[17, 3], 1.0)
    weight = np.ones(40)
    all_different = [
        of(), of(other), of(X.reshape(20, 10)), of(X.astype(np.float32)), of(X[:-1]), of(X[::-1]),
        of(y=1 - Y), of(y=Y.astype(float)), of(y=None), of(weight=weight), of(weight=2 * weight),
        of(np.asfortranarray(X)),
    ]  # fmt: skip
    assert len(set(all_different)) == len(all_different)
    assert of(X.copy(), Y.copy()) == of(X.tolist(), Y.tolist()) == of()


def test_layouts_of_equal_values_agree_where_a_copy_would() -> None:
    wide = rng.random((3000, 300))
    strided = wide[:, ::2]
    assert of(strided, None) == of(strided.copy(), None)
    assert of(wide[::3], None) == of(wide[::3].copy(), None)
    assert of(np.asfortranarray(wide), None) == of(wide.copy(order="F"), None)
    other = strided.copy()
    other[-1, -1] = 0.0
    assert of(other, None) != of(strided, None)


def test_memory_maps_and_empty_arrays_can_be_described(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    assert of(np.load(tmp_path / "X.npy", mmap_mode="r")) == of()
    assert of(np.zeros((0, 3)), np.zeros(0)) != of(np.zeros((0, 4)), np.zeros(0))


def test_labels_of_any_kind_count() -> None:
    texts = np.array(["a", "b", "b"])
    times = np.array(["2020-01-01", "2020-01-02", "NaT"], dtype="M8[s]")
    seen = [of(y=y) for y in (
        texts, texts[::-1], texts.astype(object), np.array(["a", 1, None], dtype=object),
        np.array(["a", "1", None], dtype=object), times, times[::-1], texts.astype("S"),
        [["a"], ["a", "b"], []], [["a"], ["b", "a"], []], [{"a"}, {"a", "b"}, set()], "target",
    )]  # fmt: skip
    assert len(set(seen)) == len(seen)
    assert of(y=texts.astype(object)) == of(y=texts.astype(object).copy())
    assert of(y=pd.Series([1, 2, 3])) == of(y=np.array([1, 2, 3]))
    assert of(y=[{"a"}, {"b", "a"}]) == of(y=[{"a"}, {"a", "b"}])


def test_sets_of_texts_do_not_depend_on_the_process() -> None:
    code = (
        "from likelier.fitting.fingerprint import fingerprint; from sklearn.base import "
        "BaseEstimator; print(fingerprint(BaseEstimator(), [[1.0]], [set('abcdef')], None)[0])"
    )
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found.add(subprocess.check_output([sys.executable, "-c", code], env=environment))
    assert len(found) == 1


def test_sparse_matrices_count_by_their_entries() -> None:
    matrix = sparse.random_array((30, 8), density=0.3, format="csr", rng=np.random.default_rng(0))
    other, moved = matrix.copy(), matrix.copy()
    other.data[5] += 1.0
    moved.indices[0] = (moved.indices[0] + 1) % 8
    wider = sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(30, 9))
    seen = [of(m, None) for m in (matrix, other, moved, wider, matrix.toarray())]
    assert len(set(seen)) == len(seen)
    assert of(matrix.copy(), None) == of(sparse.csr_matrix(matrix), None) == seen[0]


def test_arrays_are_hashed_at_the_speed_of_the_hash() -> None:
    large = np.random.default_rng(0).random((250_000, 100))  # 200 MB

    def seconds() -> float:
        start = time.process_time()
        of(large, None)
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 0.4


# -- frames -----------------------------------------------------------------------------------

COLUMNS = {"age": [31.0, None, 5.0], "town": ["Ulm", None, "Bonn"], "n": [1, 2, 3]}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_cells_names_types_and_order_of_columns_count(make: Any) -> None:
    variants = [
        COLUMNS, {**COLUMNS, "age": [31.0, None, 6.0]}, {**COLUMNS, "town": ["Ulm", "", "Bonn"]},
        {**COLUMNS, "n": [1.0, 2.0, 3.0]}, dict(reversed(COLUMNS.items())),
        {("m" if k == "n" else k): v for k, v in COLUMNS.items()},
        {k: v[:2] for k, v in COLUMNS.items()},
    ]  # fmt: skip
    seen = [of(make(columns), "n") for columns in variants]
    assert len(set(seen)) == len(seen)
    assert of(make(dict(COLUMNS)), "n") == seen[0]
    assert of(make(COLUMNS), "age") != seen[0]


def test_slices_and_chunks_of_frames_are_like_copies() -> None:
    frame = pl.DataFrame({"a": range(50_000), "b": [f"t{i % 7}" for i in range(50_000)]})
    part = frame[101:40_000]
    chunks = pl.concat([frame[101:999], frame[999:40_000]], rechunk=False)
    assert of(part, None) == of(chunks, None) == of(pl.DataFrame(part.to_dict()), None)
    table = frame.to_arrow()
    assert of(table.slice(8, 100), None) == of(table.slice(8, 100).combine_chunks(), None)


def test_categories_count_by_value() -> None:
    one = pd.DataFrame({"a": pd.Categorical(["x", "y"])})
    other = pd.DataFrame({"a": pd.Categorical(["x", "z"])})
    assert of(one, None) == of(one.copy(), None) != of(other, None)


def test_wide_and_unusual_frames_can_be_described() -> None:
    wide = pd.DataFrame(np.zeros((2, 500)))
    facts = fingerprint(Pair(), wide, None, None)[1]
    assert len(facts["columns of X"]) < 250
    assert of(wide, None) != of(wide.rename(columns={499: "last"}), None)
    sparse_columns = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 1.0])})
    assert of(sparse_columns, None) == of(sparse_columns.copy(), None)


# -- files and blocks -------------------------------------------------------------------------


def test_files_count_by_size_time_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 1_000_000)
    os.utime(path, ns=(0, 10))
    seen = [of(path, "b"), of(path, "a")]
    assert of(str(path), "b") == seen[0]
    moved = path.rename(tmp_path / "moved.csv")
    assert of(moved, "b") == seen[0]
    for position in (5, 3_999_000):
        with open(moved, "rb+") as file:
            file.seek(position)
            file.write(b"7")
        os.utime(moved, ns=(0, 10))
        seen.append(of(moved, "b"))
    os.utime(moved, ns=(0, 11))
    seen.append(of(moved, "b"))
    seen.append(of([moved, moved], "b"))
    assert len(set(seen)) == len(seen)
    with pytest.raises(FileNotFoundError, match="no file"):
        of(tmp_path / "nowhere.csv")


def blocks(last: float = 0.0) -> list[Any]:
    return [(X[:20], Y[:20]), (X[20:] + last, Y[20:])]


def test_blocks_that_can_be_read_again_count_by_the_first() -> None:
    listed = of(blocks(), None)
    assert of(lambda: iter(blocks()), None) == of(lambda: blocks(1.0), None) == listed
    assert of([(X[:20] + 1.0, Y[:20]), *blocks()[1:]], None) != listed
    assert of([(X[:20], Y[:20], np.ones(20))], None) != listed
    batches = [Batch(X[:20], Y[:20]), Batch(X[20:], Y[20:])]
    assert of(batches, None) == of(lambda: batches, None)
    assert of(IterableSource(blocks()), None) == of(batches, None)


def test_a_generator_is_closed_after_its_first_block() -> None:
    file = io.StringIO()

    def read() -> Iterator[Any]:
        with file:
            yield from blocks()

    of(read, None)
    assert file.closed


def test_what_can_be_read_only_once_is_refused_with_a_remedy() -> None:
    for data in (iter(blocks()), (b for b in blocks()), IterableSource(iter(blocks()))):
        with pytest.raises(ValueError, match="checkpoint needs data .* give a function"):
            of(data, None)


# -- together with the journal ----------------------------------------------------------------


def test_the_journal_names_what_differs(tmp_path: Path) -> None:
    before = fingerprint(LinearClassifier(max_iter=500, random_state=0), X, Y, None)
    Journal.open(tmp_path, *before).keep("fit", 1)
    after = fingerprint(LinearClassifier(max_iter=900, random_state=0), X, Y, None)
    found = Journal.open(tmp_path, *after)
    assert found.nearest.endswith("the nearest differs in max_iter (500, here 900)")
    fewer = fingerprint(LinearClassifier(max_iter=500, random_state=0), X[1:], Y, None)
    found = Journal.open(tmp_path, *fewer)
    assert "shape of X ('40 x 5', here '39 x 5'), values of X (" in found.nearest
    assert Journal.open(tmp_path, *before).resumed
