"""Real files as they come: no header, spaces after commas, question marks, compressed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from likelier.data import block_source, open_table
from likelier.data.encoder import TableEncoder


@pytest.fixture(scope="module")
def raw() -> Path:
    """Folder of raw files; without it the tests fail on CI and are skipped elsewhere."""
    folder = os.environ.get("LIKELIER_DATA", "")
    path = Path(folder) / "raw"
    if not folder or not path.is_dir():
        message = "needs the raw files in the folder 'raw' of LIKELIER_DATA, which is not there"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


def read(source):
    batches = list(source())
    return np.concatenate([b.X for b in batches]), np.concatenate([b.y for b in batches])


def test_adult(raw):
    table = open_table(raw / "adult-train.csv.gz")
    assert not table.header
    assert len(table.column_names) == 15
    with pytest.raises(ValueError, match=r"'x1' \(1836\), 'x6' \(1843\), 'x13' \(583\)"):
        TableEncoder.fit(table, -1)
    source = block_source(raw / "adult-train.csv.gz", target=-1, missing="impute")
    X, y = read(source)
    assert X.shape == (32561, 108)
    assert sorted(set(y.tolist())) == ["<=50K", ">50K"]
    frame = pd.read_csv(
        raw / "adult-train.csv.gz", header=None, skipinitialspace=True, na_values="?"
    )
    np.testing.assert_array_equal(y, frame[14].to_numpy(dtype=str))
    names = source.feature_names
    np.testing.assert_array_equal(X[:, names.index("x2")], frame[2])
    np.testing.assert_array_equal(X[:, names.index("x1=Private")], frame[1] == "Private")
    np.testing.assert_array_equal(X[:, names.index("x1 is missing")], frame[1].isna())
    one_hot = [i for i, name in enumerate(names) if name.startswith(("x1=", "x1 "))]
    np.testing.assert_array_equal(X[:, one_hot].sum(axis=1), 1)
    test_X, test_y = read(block_source(raw / "adult-test.csv.gz", encoder=source.encoder))
    assert test_X.shape == (16281, 108)
    assert sorted(set(test_y.tolist())) == ["<=50K.", ">50K."]


def test_pollution(raw):
    """A header, and 'NA' in what would be the target."""
    with pytest.raises(ValueError, match=r"target column 'pm2.5' is missing in 2067 .* row 1 "):
        block_source(raw / "pollution.csv", target="pm2.5")
    X, y = read(
        block_source(raw / "pollution.csv", target="TEMP", exclude=["No"], missing="impute")
    )
    frame = pd.read_csv(raw / "pollution.csv")
    assert X.shape == (43824, 15)
    np.testing.assert_array_equal(y, frame["TEMP"])
    np.testing.assert_allclose(X[:, 4], frame["pm2.5"].fillna(frame["pm2.5"].mean()), rtol=1e-12)
    np.testing.assert_array_equal(X[:, 5], frame["pm2.5"].isna())


@pytest.mark.parametrize(
    ("name", "target", "shape", "kind"),
    [("abalone.csv", 8, (4177, 10), "i"), ("german.csv", -1, (1000, 61), "i")],
)
def test_without_header(raw, name, target, shape, kind):
    X, y = read(block_source(raw / name, target=target))
    assert X.shape == shape
    assert y.dtype.kind == kind
