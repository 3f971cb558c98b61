"""`tools/same.py` and `tools/speed.py`: what they find, and that they find nothing at home."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import same
import speed
from nets import cases
from nets.values import flatten
from scipy import sparse

from likelier.value import Value

ROOT = Path(__file__).resolve().parents[2]
QUICK = "features/NystroemFeatures/saved|kernel/classifier-identity/dense"


def needs_history() -> None:
    """Skip where the project was unpacked from an archive."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        known = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        known = False
    if not known:
        pytest.skip("needs git and the project's history")


def test_a_commit_is_the_same_as_itself(capsys: pytest.CaptureFixture[str]) -> None:
    needs_history()
    assert same.main(["HEAD", "--new", "HEAD", "--only", QUICK]) == 0
    assert "2 identical, 0 different, 0 skipped" in capsys.readouterr().out


def test_a_commit_is_as_fast_as_itself(capsys: pytest.CaptureFixture[str]) -> None:
    needs_history()
    words = ["--only", "FourierFeatures", "--rounds", "2", "--limit", "20"]
    assert speed.main(["HEAD", "--new", "HEAD", *words]) == 0
    assert "features/FourierFeatures/dense" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("new", "found"),
    [
        ({"coef_": np.array([1.0, 2.0])}, []),
        ({"coef_": np.array([1.0, 2.0 + 4e-16])}, ["coef_: 2.2e-16"]),
        ({"coef_": np.array([1.0, np.inf])}, ["coef_: other values are infinite or missing"]),
        ({"coef_": np.array([1.0])}, ["coef_: shape (2,) became (1,)"]),
        ({"coef_": np.array([1, 2])}, ["coef_: float64 became int64"]),
        ({"x_": np.array(0.0)}, ["coef_: missing in new", "x_: missing in old"]),
        ({"coef_": np.array([1.0, 2.0]), "_cache": np.array(1)}, []),
    ],
)
def test_differences_are_named(new: dict[str, np.ndarray], found: list[str]) -> None:
    assert same.differences({"coef_": np.array([1.0, 2.0])}, new) == found


def test_texts_that_differ_are_counted() -> None:
    old, new = np.array(["ash", "birch", "elm"]), np.array(["ash", "cedar", "ash"])
    assert same.differences({"y": old}, {"y": new}) == ["y: 2 of 3: birch became cedar"]
    name = {"route_": np.array("'newton'")}
    assert same.differences(name, {"route_": np.array("'sgd'")}) == [
        "route_: 'newton' became 'sgd'"
    ]


def test_a_tolerance_is_relative_to_the_largest_value() -> None:
    old, new = {"a": np.array([1e6, 0.0])}, {"a": np.array([1e6, 1e-4])}
    assert same.differences(old, new, 1e-9) == []
    assert same.differences(old, new, 1e-11) == ["a: 1.0e-10"]


def test_zeros_of_other_sign_differ() -> None:
    old, new = {"a": np.array([0.0, np.nan])}, {"a": np.array([-0.0, np.nan])}
    assert same.differences(old, new) == ["a: the sign of a zero, or the bits of a NaN"]
    assert same.differences(old, old) == []


def test_state_is_taken_apart() -> None:
    inner = SimpleNamespace(weights=np.ones(2), _key=None)
    found = flatten({"a": inner, "b": {"c": [1, "x"]}, "d": sparse.csr_array(np.eye(2))})
    names = ["a.weights", "a._key", "b['c'].length", "b['c'][0]", "b['c'][1]"]
    assert list(found) == [*names, "d.data", "d.indices", "d.indptr"]
    assert [name for name in found if same.is_private(name)] == ["a._key"]


def test_cases_cover_every_public_class() -> None:
    import likelier

    public = {name: getattr(likelier, name) for name in likelier.__all__}
    kinds = {name: value for name, value in public.items() if isinstance(value, type)}
    classes = {name for name, kind in kinds.items() if not issubclass(kind, Value)}
    assert {case.estimator for case in cases.all_cases()} == classes
    families = {case.family for case in cases.all_cases()}
    assert {case.family for case in cases.all_cases() if case.speed} == families


def test_old_names_stand_in_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cases.OLD_NAMES, "scale", "spread")
    assert cases.by_any_name(SimpleNamespace(spread=3), "scale") == 3
    assert cases.by_any_name(SimpleNamespace(scale=4, spread=3), "scale") == 4
    with pytest.raises(AttributeError):
        cases.by_any_name(SimpleNamespace(), "other")


def test_an_interval_holds_the_median_of_ratios() -> None:
    ratios = np.log([1.0, 1.1, 1.2, 1.3, 1.1])
    middle, low, high = speed.interval([ratios])
    assert middle == pytest.approx(1.1)
    assert 1.0 <= low <= middle <= high <= 1.3
    both = speed.interval([ratios, ratios - np.log(1.1)])[0]
    assert both == pytest.approx(np.sqrt(1.1))
