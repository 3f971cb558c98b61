"""Columns of dates: features, spellings, orders of day and month, and unreadable cells."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.unit.tables.helpers import copy_by_file, csv_file, encode, learn, names_of

from likelier import TableFeatures
from likelier.data import open_table

N = 120
FIRST = dt.datetime(2019, 11, 20)
MOMENTS = [FIRST + dt.timedelta(days=5 * i, hours=7 * i % 24) for i in range(N)]
DAYS = [moment.date() for moment in MOMENTS]
X = np.random.default_rng(0).normal(size=N)

SPELLINGS = {
    "year-month-day": "%Y-%m-%d",
    "day/month/year": "%d/%m/%Y",
    "month/day/year": "%m/%d/%Y",
    "day.month.year": "%d.%m.%Y",
    "yearmonthday": "%Y%m%d",
    "day month year": "%d %b %Y",
    "month day year": "%B %d, %Y",
    "month-day-year": "%m-%d-%y",
}


def by_hand(moments, timed):
    """The features of dates, computed by the standard library."""
    rows = []
    for moment in moments:
        days = (moment - dt.datetime(2019, 11, 20)).total_seconds() / 86_400
        angles = [((moment.month - 1) / 12), (moment.day - 1) / 31, moment.weekday() / 7]
        angles += [(moment - moment.replace(hour=0)).total_seconds() / 86_400] if timed else []
        turns = [f(2 * np.pi * part) for part in angles for f in (np.sin, np.cos)]
        rows.append([days if timed else int(days), moment.year, *turns])
    return np.array(rows)


PARTS = [
    "days",
    "year",
    "month sin",
    "month cos",
    "day sin",
    "day cos",
    "weekday sin",
    "weekday cos",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_give_the_same_features(tmp_path, spelling):
    texts = [day.strftime(SPELLINGS[spelling]) for day in DAYS]
    plain = [dt.datetime.combine(day, dt.time()) for day in DAYS]
    for data in (
        {"when": texts, "x": X},
        csv_file(
            tmp_path, "when;x\n" + "".join(f"{t};{x}\n" for t, x in zip(texts, X, strict=True))
        ),
    ):
        encoding = copy_by_file(learn(open_table(data)), tmp_path)
        assert (
            encoding.notes()["when"].partition(" (two-digit")[0]
            == f"dates in the format {spelling}"
        )
        assert names_of(encoding) == [*(f"when {part}" for part in PARTS), "x"]
        features, _ = encode(encoding, open_table(data))
        np.testing.assert_allclose(features[:, :-1], by_hand(plain, False), atol=1e-12)


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%S", "%d/%m/%Y %H:%M", "%b %d, %Y %I:%M %p"])
def test_times_behind_dates(form):
    texts = [moment.strftime(form) for moment in MOMENTS]
    encoding = learn({"when": texts, "x": X})
    assert encoding.notes()["when"].endswith("with a time")
    assert names_of(encoding)[-3:] == ["when hour sin", "when hour cos", "x"]
    features, _ = encode(encoding, {"when": texts, "x": X})
    np.testing.assert_allclose(features[:, :-1], by_hand(MOMENTS, True), atol=1e-12)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_typed_dates_and_times(make, unit):
    if make is pl.DataFrame and unit == "s":
        unit = "ms"  # Polars has no seconds
    typed = np.array(MOMENTS, f"M8[{unit}]")
    frame = make({"when": typed, "x": X})
    encoding = learn(frame)
    assert encoding.notes() == {"when": "dates"}
    np.testing.assert_allclose(
        encode(encoding, frame)[0][:, :-1], by_hand(MOMENTS, True), atol=1e-12
    )
    texts = {"when": [moment.isoformat() for moment in MOMENTS], "x": X}  # later, from a file
    np.testing.assert_array_equal(encode(encoding, texts)[0], encode(encoding, frame)[0])


def test_typed_and_written_days_are_read_by_the_same_model():
    frames = [{"when": DAYS, "x": X}, {"when": [day.isoformat() for day in DAYS], "x": X}]
    for frame in frames:
        encoding = learn(frame)
        for other in frames:
            np.testing.assert_array_equal(encode(encoding, other)[0], encode(encoding, frame)[0])


def test_time_zones_count_from_utc():
    stamps = pd.Series(MOMENTS).dt.tz_localize("UTC")
    there = pd.DataFrame({"when": stamps.dt.tz_convert("Asia/Kolkata"), "x": X})
    encoding = learn(there)
    np.testing.assert_allclose(
        encode(encoding, there)[0][:, :-1], by_hand(MOMENTS, True), atol=1e-12
    )


def test_only_parts_that_vary_become_columns():
    day = [f"2020-03-{1 + i % 7:02d}" for i in range(N)]
    assert not [n for n in names_of(learn({"d": day, "x": X})) if "year" in n or "month" in n]
    month = [f"20{10 + i % 9}-{1 + i % 12:02d}-01" for i in range(N)]
    names = names_of(learn({"d": month, "x": X}))
    assert {"d year", "d month sin", "d weekday sin"} < set(names)
    assert "d day sin" not in names
    time = [f"{i % 24:02d}:{i % 60:02d}" for i in range(N)]
    assert names_of(learn({"d": time, "x": X})) == ["d hours", "d hour sin", "d hour cos", "x"]


# -- which comes first, day or month ----------------------------------------------------
FEW = ["01/02/2003", "03/04/2003", "05/06/2004", "05/05/2004"]


@pytest.mark.parametrize(
    ("decisive", "order", "day"),
    [("13/02/2003", "day/month", "2003-02-01"), ("02/13/2003", "month/day", "2003-01-02")],
)
def test_the_column_decides_what_comes_first(decisive, order, day):
    cells = [*FEW * 20, decisive]
    encoding = learn({"d": cells, "x": np.arange(81) ** 0.5})
    assert encoding.notes() == {"d": f"dates in the format {order}/year"}
    features, _ = encode(encoding, {"d": ["01/02/2003"], "x": [0.0]})
    (column, _) = encoding.columns
    assert np.datetime64(column.origin) + int(features[0, 0]) == np.datetime64(day)


@pytest.mark.parametrize(("sign", "order"), [("/", "month"), (".", "day"), ("-", "day")])
def test_where_it_cannot_the_guess_is_reported(sign, order):
    cells = [cell.replace("/", sign) for cell in FEW] * 20
    features = TableFeatures().fit({"d": cells, "x": np.arange(80) ** 0.5})
    line = features.summary().splitlines()[0]
    assert line.endswith(f"(ambiguous order of day and month: {order} first assumed)")


# -- cells that cannot be read ----------------------------------------------------------
@pytest.mark.parametrize("bad", ["2020-02-31", "31/01/2020", "2020", "2020-1", "12:30"])
@pytest.mark.parametrize("where", [0, 57, N - 1])
def test_unreadable_cells_are_refused_with_row_and_cell(tmp_path, bad, where):
    good = [day.isoformat() for day in DAYS]
    cells = [*good[:where], bad, *good[where + 1 :]]
    fault = rf"column 'd', row {where + 1}: '{bad}' cannot be read.*; the column has dates in"
    features = TableFeatures()
    with pytest.raises(ValueError, match=fault):
        features.fit({"d": cells, "x": X})
    path = csv_file(
        tmp_path, "d,x\n" + "".join(f"{d},{x}\n" for d, x in zip(cells, X, strict=True))
    )
    with pytest.raises(ValueError, match=fault + ".*kinds={'d': 'category'}"):
        features.fit(path)
    features.fit({"d": good, "x": X})
    with pytest.raises(ValueError, match=fault):
        features.transform({"d": cells, "x": X})
    named = TableFeatures({"d": "category"}).fit({"d": cells, "x": X})
    assert named.encoding_.kinds()["d"] == "category"


def test_words_among_dates_are_missing_values():
    cells = [day.isoformat() for day in DAYS]
    cells[5], cells[70], cells[90] = "unknown", "0000-00-00", "unknown"
    encoding = learn({"d": cells, "x": X})
    assert encoding.notes()["d"].endswith(
        "; 3 texts such as 'unknown', '0000-00-00' treated as missing"
    )
    features, _ = encode(encoding, {"d": cells, "x": X})
    place = names_of(encoding).index("d is missing")
    assert np.flatnonzero(features[:, place]).tolist() == [5, 70, 90]


def test_a_single_word_among_dates_is_an_unreadable_cell():
    cells = [day.isoformat() for day in DAYS]
    with pytest.raises(ValueError, match="column 'd', row 8: 'soon' cannot be read as a date"):
        learn({"d": [*cells[:7], "soon", *cells[8:]], "x": X})
    encoding = learn({"d": cells, "x": X})
    with pytest.raises(ValueError, match="column 'd', row 2: 'soon' cannot be read as a date"):
        encode(encoding, {"d": [cells[0], "soon"], "x": [0.0, 0.0]})


def test_other_values_where_dates_were_are_refused():
    encoding = learn({"d": DAYS, "x": X})
    for cells in ([1, 2], [1.5, 2.5], [True, False]):
        with pytest.raises(ValueError, match="column 'd' contains .*, but contained dates"):
            encode(encoding, {"d": cells, "x": [0.0, 0.0]})
    compact = learn({"d": [f"{day:%Y%m%d}" for day in DAYS], "x": X})
    whole = [int(f"{day:%Y%m%d}") for day in DAYS]
    expected = encode(compact, {"d": [str(cell) for cell in whole], "x": X})[0]
    np.testing.assert_array_equal(encode(compact, {"d": whole, "x": X})[0], expected)


def test_dates_far_away_stay_finite():
    cells = [*(day.isoformat() for day in DAYS[:-2]), "1066-10-14", "9999-12-31"]
    encoding = learn({"d": cells, "x": X})
    features, _ = encode(encoding, {"d": cells, "x": X})
    assert np.isfinite(features).all()
    assert features[-1, 0] - features[-2, 0] == (dt.date(9999, 12, 31) - dt.date(1066, 10, 14)).days
