"""Stored model files of every public class: later versions read them, and predict the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from model_files import CASES, FOLDER, answers, read, rows_of
from sklearn.base import BaseEstimator

import likelier
from likelier.registry import read_manifest

STORED = sorted(path.stem for path in FOLDER.glob("*.likelier"))


def test_every_public_class_has_a_stored_file() -> None:
    public = {
        name
        for name in likelier.__all__
        if isinstance(value := getattr(likelier, name), type) and issubclass(value, BaseEstimator)
    }
    assert public | {"Table"} == CASES.keys()
    assert CASES.keys() == set(STORED)


def test_files_are_small_and_say_their_format() -> None:
    for name in STORED:
        path = FOLDER / f"{name}.likelier"
        assert path.stat().st_size < 20_000
        assert read_manifest(path)["format"] == 1


@pytest.mark.parametrize("name", STORED)
def test_a_stored_file_predicts_the_same(name: str) -> None:
    expected = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    found = answers(read(name), rows_of(name))
    assert found.keys() == expected.keys()
    for method, values in expected.items():
        if isinstance(np.asarray(values).flat[0], str):
            assert found[method] == values
        else:  # another kind of processor rounds differently
            np.testing.assert_allclose(found[method], values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name.startswith("DeepGP") else ())
        for name in CASES
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_same_seed_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    for file in ("one", "two"):
        likelier.save(CASES[name](), tmp_path / file)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
