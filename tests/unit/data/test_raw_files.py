"""Real files as they come: no header, spaces after commas, question marks, compressed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from likelier.data import open_table
from likelier.tables import block_source


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
    source = block_source(raw / "adult-train.csv.gz", target=-1)
    X, y = read(source)
    names = source.feature_names
    assert X.shape == (32561, len(names))
    assert sorted(set(y.tolist())) == ["<=50K", ">50K"]
    frame = pd.read_csv(
        raw / "adult-train.csv.gz", header=None, skipinitialspace=True, na_values="?"
    )
    np.testing.assert_array_equal(y, frame[14].to_numpy(dtype=str))
    np.testing.assert_array_equal(X[:, names.index("x2")], frame[2])
    np.testing.assert_array_equal(X[:, names.index("x1=Private")], frame[1] == "Private")
    marked = [name.removesuffix(" is missing") for name in names if name.endswith(" is missing")]
    assert marked == ["x1", "x6", "x13"]
    for name in marked:
        gone = frame[int(name[1:])].isna()
        np.testing.assert_array_equal(X[:, names.index(f"{name} is missing")], gone)
    one_hot = [i for i, name in enumerate(names) if name.startswith(("x1=", "x1 "))]
    np.testing.assert_array_equal(X[:, one_hot].sum(axis=1), 1)
    notes = source.encoder.notes()
    assert notes["x13"] == "category of 41 levels, 16 rare ones pooled"
    assert notes["x3"] == "category of 16 levels"
    test_X, test_y = read(block_source(raw / "adult-test.csv.gz", encoder=source.encoder))
    assert test_X.shape == (16281, len(names))
    assert sorted(set(test_y.tolist())) == ["<=50K.", ">50K."]


def test_pollution(raw):
    """A header, and 'NA' in what may be the target."""
    source = block_source(raw / "pollution.csv", target="pm2.5")
    assert (source.encoder.n_rows, source.encoder.n_dropped) == (41757, 2067)
    assert len(read(source)[1]) == 41757
    source = block_source(raw / "pollution.csv", target="TEMP", exclude=["No"])
    X, y = read(source)
    frame = pd.read_csv(raw / "pollution.csv")
    names = source.feature_names
    assert X.shape == (43824, len(names))
    np.testing.assert_array_equal(y, frame["TEMP"])
    pm = X[:, names.index("pm2.5")]
    there = frame["pm2.5"].notna()
    np.testing.assert_array_equal(pm[there], frame["pm2.5"][there])
    assert len(set(pm[~there])) == 1
    assert pm[~there][0] == pytest.approx(frame["pm2.5"].median(), rel=0.03)  # of rows drawn
    np.testing.assert_array_equal(X[:, names.index("pm2.5 is missing")], ~there)
    numbered = block_source(raw / "pollution.csv", target="TEMP").encoder
    assert numbered.kinds()["No"] == "identifier"


@pytest.mark.parametrize(
    ("name", "target", "shape", "kind"),
    [("abalone.csv", 8, (4177, 10), "i"), ("german.csv", -1, (1000, 59), "i")],
)
def test_without_header(raw, name, target, shape, kind):
    X, y = read(block_source(raw / name, target=target))
    assert X.shape == shape
    assert y.dtype.kind == kind
