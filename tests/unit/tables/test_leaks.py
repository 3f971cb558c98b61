"""Columns that alone nearly determine the target are named, and kept."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.tables.helpers import learn, names_of

from likelier import TableFeatures

N = 600
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
LABELS = RNG.choice(["low", "mid", "high"], N, p=[0.5, 0.3, 0.2])
NUMBER = 3.0 * X + RNG.normal(size=N)

LEAKS = {
    "the label itself": (LABELS, LABELS),
    "a code of the label": (
        np.where(LABELS == "low", "L", np.where(LABELS == "mid", "M", "H")),
        LABELS,
    ),
    "a number for the label": ((LABELS == "low") * 10.0 + RNG.random(N), LABELS == "low"),
    "a flag": (np.where(LABELS == "low", "yes", "no"), LABELS == "low"),
    "the target in other units": (NUMBER * 2.54 + 7, NUMBER),
    "a curve of the target": (np.exp(NUMBER), NUMBER),
    "the target as text": ([f"{value:.6f} kg" for value in NUMBER + 100], NUMBER),
}
NO_LEAKS = {
    "noise": (RNG.normal(size=N), NUMBER),
    "a good feature": (X, NUMBER),
    "a good category": (np.where(RNG.random(N) < 0.95, LABELS, "low"), LABELS),
    "levels of their own": ([f"id{i % 590}" for i in range(N)], LABELS),
    "a constant target": (X, np.ones(N)),
}


def table(column, y):
    return {"column": list(column), "noise": RNG.normal(size=N), "y": list(y)}


@pytest.mark.parametrize("name", [*LEAKS, *NO_LEAKS])
def test_leaks_are_named_and_kept(name):
    column, y = (LEAKS | NO_LEAKS)[name]
    encoding = learn(table(column, y), "y")
    assert encoding.leaks == (("column",) if name in LEAKS else ())
    assert any(feature.startswith("column") for feature in names_of(encoding))


@pytest.mark.parametrize("name", [*LEAKS, *NO_LEAKS])
def test_the_transformer_names_them_in_its_summary(name):
    column, y = (LEAKS | NO_LEAKS)[name]
    data = table(column, y)
    features = TableFeatures().fit({k: data[k] for k in ("column", "noise")}, data["y"])
    assert features.encoding_.leaks == (("column",) if name in LEAKS else ())
    first, second = features.summary().splitlines()
    assert first.endswith("; nearly determines the target by itself") == (name in LEAKS)
    assert second == "noise: number"
    assert TableFeatures().fit({"column": column, "noise": X}).encoding_.leaks == ()


def test_few_rows_say_nothing():
    y = [0, 1] * 24
    assert learn({"column": y, "x": np.arange(48) ** 0.5, "y": y}, "y").leaks == ()


def test_leaks_survive_saving():
    encoding = learn(table(*LEAKS["a flag"]), "y")
    assert type(encoding).from_json(encoding.to_json()).leaks == ("column",)
