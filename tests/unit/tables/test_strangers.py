"""Tables as they come from other programs and countries: what was once read wrongly."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.tables.helpers import learn

from likelier import TableFeatures

N = 200
RNG = np.random.default_rng(0)
NUMBERS = RNG.uniform(100.0, 9000.0, N)


def values_of(cells):
    """The numbers that a column of texts is read as."""
    features = TableFeatures().fit({"a": cells, "b": RNG.normal(size=len(cells))})
    assert features.encoding_.kinds()["a"] == "number", features.summary()
    return features.transform({"a": cells, "b": np.zeros(len(cells))})[:, 0]


@pytest.mark.parametrize("form", ["{}", "₹{}", "Rs. {}", "{}.00"])
def test_groups_of_lakh_and_crore(form):
    digits = [(1 + i % 29, 10 + i % 89, 100 + i) for i in range(N)]
    cells = [form.format(f"{a},{b},{c}") for a, b, c in digits]
    expected = [a * 100_000 + b * 1000 + c for a, b, c in digits]
    np.testing.assert_array_equal(values_of(cells), expected)


@pytest.mark.parametrize(
    ("first", "second", "size"),
    [("° N", "° S", -1.0), ("° E", "° W", -1.0), ("CR", "DR", -1.0), ("Lakh", "Cr", 100.0),
     ("months ago", "years ago", 12.0), ("kg", "lbs", 0.45359237)],
)  # fmt: skip
def test_units_mean_something(first, second, size):
    cells = [f"{x:.2f} {second if i % 3 == 0 else first}" for i, x in enumerate(NUMBERS)]
    expected = [round(x, 2) * (size if i % 3 == 0 else 1.0) for i, x in enumerate(NUMBERS)]
    np.testing.assert_allclose(values_of(cells), expected, rtol=1e-9)


@pytest.mark.parametrize(("yes", "no"), [("ja", "nein"), ("Oui", "Non"), ("sí", "no"), ("J", "N")])
def test_yes_and_no_in_other_languages(yes, no):
    features = TableFeatures().fit({"a": [yes, no] * 50, "b": range(0, 1000, 10)})
    assert features.encoding_.kinds()["a"] == "boolean"
    np.testing.assert_array_equal(features.transform({"a": [no, yes], "b": [0, 0]})[:, 0], [0, 1])


@pytest.mark.parametrize("cell", ["45,6", "45.6 kg", "$45.6"])
def test_numbers_written_otherwise_are_not_missing(cell):
    """Also where texts among the numbers count as missing."""
    cells = [f"{x:.1f}" if i % 9 else "unknown" for i, x in enumerate(NUMBERS)]
    features = TableFeatures().fit({"a": cells, "b": NUMBERS})
    with pytest.raises(
        ValueError, match="column 'a', row 1: .* cannot be read as a number; the model"
    ):
        features.transform({"a": [cell], "b": [0.0]})
    for word in ("unknown", "n.a.", ">20"):
        assert features.transform({"a": [word], "b": [0.0]})[0, 1] == 1.0
    mixed = [*cells, "45.6 kg", "12 oz"]  # seen in training: still missing
    features = TableFeatures().fit({"a": mixed, "b": np.arange(len(mixed)) ** 2})
    assert features.transform({"a": ["45.6 kg"], "b": [0.0]})[0, 1] == 1.0


@pytest.mark.parametrize(
    ("form", "blank"), [("{:.1f} bhp", "bhp"), ("${:.1f}", "$"), ("{:.1f}", "-")]
)
def test_nothing_but_a_unit_is_missing(form, blank):
    """Also where training never had such a cell."""
    features = TableFeatures().fit({"a": [form.format(x) for x in NUMBERS], "b": NUMBERS})
    with pytest.warns(UserWarning, match="lack values that were never missing"):
        found = features.transform({"a": [blank], "b": [0.0]})
    assert found[0, 0] == pytest.approx(np.median(np.round(NUMBERS, 1)))


@pytest.mark.parametrize("mark", [-999.0, -1.0, 9999.0])
def test_a_number_for_a_missing_one_is_pointed_out(mark):
    values = RNG.uniform(10.0, 11.0, N)
    values[::10] = mark
    note = learn({"a": values, "b": NUMBERS}).notes()["a"]
    assert f"{mark:g} occurs 20 times, far from all other values" in note
    values[::10] = 10.5
    assert not learn({"a": values, "b": NUMBERS}).notes()


@pytest.mark.parametrize(("first", "step"), [(1950, 1), (20, 5)])
def test_what_rises_by_a_step_is_kept_if_it_tells_of_the_target(first, step):
    rises = first + step * np.arange(80)
    table = {"a": rises, "b": RNG.normal(size=80), "y": 3.0 * rises + RNG.normal(size=80)}
    encoding = learn(table, "y")
    assert encoding.kinds()["a"] == "number"
    assert "predictive of the target" in encoding.notes()["a"]
    table["y"] = RNG.normal(size=80)
    assert learn(table, "y").kinds()["a"] == "identifier"
    table = {"a": np.arange(80), "b": rises**2, "y": 3.0 * rises}  # rows may be sorted
    assert learn(table, "y").kinds()["a"] == "identifier"


def test_iso_dates_are_read_whatever_the_style():
    days = np.datetime64("2020-01-01") + np.arange(N)
    american = [f"{day:%m/%d/%Y}" for day in days.tolist()]
    features = TableFeatures().fit({"a": american, "b": NUMBERS})
    here = features.transform({"a": american, "b": NUMBERS})
    iso = features.transform({"a": days.astype(str).tolist(), "b": NUMBERS})
    np.testing.assert_array_equal(iso, here)
