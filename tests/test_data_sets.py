"""The fixture that reads real data sets: every layout, and what happens without the data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIKELIER_DATA", str(tmp_path))
    return tmp_path


def test_dense_integers_become_floats(folder: Path, data_set: Callable[[str], Any]) -> None:
    X = np.array([[1, 2], [3, 4]], dtype=np.uint8)
    np.savez(folder / "small.npz", X=X, y=np.array([0, 1]), Xt=X.astype(np.int32), yt=[1, 0])
    data = data_set("small")
    assert data.X.dtype == np.float32
    assert data.Xt.dtype == np.float64
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.Xt, X)
    np.testing.assert_array_equal(data.y, [0, 1])
    np.testing.assert_array_equal(data.yt, [1, 0])


def test_sparse_rows_and_sparse_labels(folder: Path, data_set: Callable[[str], Any]) -> None:
    X = sparse.csr_array(np.array([[0, 5, 0], [7, 0, 9]]))
    Y = sparse.csr_array(np.array([[0, 0], [1, 1]]))
    np.savez(
        folder / "sparse.npz",
        X_data=X.data.astype(np.int16),
        X_indices=X.indices.astype(np.uint8),
        X_indptr=X.indptr,
        X_shape=X.shape,
        Y_indices=Y.indices.astype(np.uint8),
        Y_indptr=Y.indptr,
        Y_shape=Y.shape,
        label_names=["a", "b"],
    )
    data = data_set("sparse")
    assert data.X.dtype == np.float32
    assert data.X.indices.dtype == np.int32
    np.testing.assert_array_equal(data.X.toarray(), X.toarray())
    np.testing.assert_array_equal(data.y, Y.toarray())
    assert data.Xt is None
    assert list(data.extra) == ["label_names"]


def test_a_pickled_array_is_never_opened(folder: Path, data_set: Callable[[str], Any]) -> None:
    names = np.array(["a", None], dtype=object)
    np.savez(folder / "odd.npz", X=np.eye(2), y=np.arange(2), feature_names=names)
    assert list(data_set("odd").extra) == []


@pytest.mark.parametrize("setting", [None, "no such folder"])
def test_without_the_folder_a_test_is_skipped(
    setting: str | None, monkeypatch: pytest.MonkeyPatch, data_set: Callable[[str], Any]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("LIKELIER_DATA", raising=False)
    if setting:
        monkeypatch.setenv("LIKELIER_DATA", setting)
    with pytest.raises(pytest.skip.Exception, match=r"needs the real data sets.*LIKELIER_DATA"):
        data_set("a9a")


def test_on_continuous_integration_a_missing_file_is_a_failure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, data_set: Callable[[str], Any]
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"no file 'a9a\.npz'"):
        data_set("a9a")


def test_a_real_data_set(data_set: Callable[[str], Any]) -> None:
    data = data_set("a9a")
    assert data.X.shape == (32561, 123)
    assert data.Xt.shape == (16281, 123)
    assert set(np.unique(data.y)) == {-1, 1}
