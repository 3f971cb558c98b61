"""Dates in text: which style a column has, and which moments its texts are."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from likelier.tables.dates import DateEvidence, DateStyle


def evidence(texts: Sequence[str]) -> DateEvidence:
    return DateEvidence.of(texts, np.ones(len(texts), int))


def learned(texts: Sequence[str]) -> DateStyle:
    style = evidence(texts).style()
    assert style is not None
    return style


def moments(*texts: str) -> np.ndarray:
    return np.array(texts, "M8[us]")


# -- spellings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2019-01-31", "2019-01-31"),
        ("2019-1-3", "2019-01-03"),
        ("2019/01/31", "2019-01-31"),
        ("2019-01-31T10:20:30", "2019-01-31T10:20:30"),
        ("2019-01-31 10:20", "2019-01-31T10:20"),
        ("2019-01-31T10:20:30.123", "2019-01-31T10:20:30.123"),
        ("2019-01-31T10:20:30.123456789", "2019-01-31T10:20:30.123456"),
        ("2019-01-31T10:20:30Z", "2019-01-31T10:20:30"),
        ("2019-01-31T10:20:30+02:00", "2019-01-31T08:20:30"),
        ("2019-01-31 22:20:30 -0530", "2019-02-01T03:50:30"),
        ("31/01/2019", "2019-01-31"),
        ("01/31/2019", "2019-01-31"),
        ("31.01.2019", "2019-01-31"),
        ("31-01-2019", "2019-01-31"),
        ("1/31/69", "1969-01-31"),
        ("31.1.68", "1968-01-31"),
        ("31/01/2019 1:05 PM", "2019-01-31T13:05"),
        ("31/01/2019 12:05:09 am", "2019-01-31T00:05:09"),
        ("January 7, 2018", "2018-01-07"),
        ("7 January 2018", "2018-01-07"),
        ("Jan 7 2018", "2018-01-07"),
        ("07-Jan-18", "2018-01-07"),
        ("07JAN2018", "2018-01-07"),
        ("April 4th, 2015", "2015-04-04"),
        ("3rd of Sept. 2015", "2015-09-03"),
        ("Sun, 5 May 2019 10:00:00 GMT", "2019-05-05T10:00"),
        ("Sunday, May 5, 2019 10:00 PM", "2019-05-05T22:00"),
        ("Jan-2019", "2019-01-01"),
        ("January 2019", "2019-01-01"),
        ("Oct-49", "1949-10-01"),
        ("2019-03", "2019-03-01"),
        ("12:30", "1970-01-01T12:30"),
        ("12:30:15", "1970-01-01T12:30:15"),
        ("1:05 PM", "1970-01-01T13:05"),
        ("12:00 a.m.", "1970-01-01T00:00"),
        ("06/2022", "2022-06-01"),
        ("6-2022", "2022-06-01"),
        ("2022-Q2", "2022-04-01"),
        ("2022Q4", "2022-10-01"),
        ("Q1 2022", "2022-01-01"),
        ("29/06/2022 02h43", "2022-06-29T02:43"),
        ("Wed Jun 29 02:43:14 2022", "2022-06-29T02:43:14"),
        ("mer. juin  9 02:43:14 UTC 2022", "2022-06-09T02:43:14"),
        ("Mai-20", "2020-05-01"),
        ("Juni 2019", "2019-06-01"),
        ("29. März 2022", "2022-03-29"),
        ("Mittwoch, 29. Juni 2022", "2022-06-29"),
        ("Do., 1. Dez. 2022 10:30", "2022-12-01T10:30"),
        ("Mi, 29.06.2022", "2022-06-29"),
        ("1er août 2022 à 02h43", "2022-08-01T02:43"),
        ("FÉVR. 2022", "2022-02-01"),
        ("3 de septiembre de 2022", "2022-09-03"),
        ("sábado 3 dic 2022", "2022-12-03"),
        ("martedì 7 giugno 2022", "2022-06-07"),
        ("12 mrt 2022", "2022-03-12"),
        ("terça-feira, 5 de março de 2022", "2022-03-05"),
    ],
)
def test_spellings(text: str, moment: str) -> None:
    style = learned([text])
    np.testing.assert_array_equal(style.parse([text, "no date"]), moments(moment, "NaT"))
    assert style.has_time == (":" in text or "h4" in text)
    assert style.has_date == (not moment.startswith("1970"))
    assert not style.ambiguous


@pytest.mark.parametrize(
    "text",
    [
        "2019-02-30",
        "2019-13-01",
        "31/02/2019",
        "32/01/2019",
        "0/1/2019",
        "29.02.2019",
        "13/13/2019",
        "2019-01/31",
        "1/2.2019",
        "25:00",
        "12:60",
        "13:05 PM",
        "0:30 AM",
        "2019-01-31 24:30",
        "1-2",
        "1.2.3",
        "90-100",
        "555-1234",
        "Jan 12",
        "12 Jan",
        "2019",
        "0252-01-31",
        "2019-00",
        "Junix 2019",
        "Maybe 2019",
        "30 Feb 2019",
        "2014-15",
        "192.168.1.1",
        "13/2022",
        "1/1000",
        "12.2022",
        "2022-Q5",
        "2022 Q22",
        "Mardi 2022",
    ],
)
def test_no_dates(text: str) -> None:
    assert evidence([text, text + " "]).style() is None


def test_impossible_dates_among_others_are_not_read() -> None:
    texts = [f"{day:02d}/0{month}/2019" for month in (1, 3) for day in range(1, 29)] + [
        "31/02/2019"
    ]
    found = evidence(texts)
    style = found.style()
    assert style is not None
    assert np.isnat(style.parse(texts)).tolist() == [False] * 56 + [True]
    assert found.dates(style)[:2] == (56, 56)
    assert found.others(style) == (1, 1, ("31/02/2019",))


def test_eight_digits_are_dates_only_if_all_are() -> None:
    texts = ["20190131", "20200229", "19991231"]
    np.testing.assert_array_equal(
        learned(texts).parse([*texts, "18991231", "20190230"]),
        moments("2019-01-31", "2020-02-29", "1999-12-31", "NaT", "NaT"),
    )
    many = [f"2019{month:02d}{day:02d}" for month in range(1, 13) for day in range(1, 29)]
    assert learned([*many, "unknown"]).describe() == "dates in the format yearmonthday"
    assert evidence([*many, "20950"]).style() is None
    assert evidence([*many, "20191301"]).style() is None
    assert evidence(["20190131"]).style() is None


COMPACT = {
    "29062022": "2022-06-29",
    "06292022": "2022-06-29",
    "20220629T024314Z": "2022-06-29T02:43:14",
    "20220629024314": "2022-06-29T02:43:14",
    "20220629T0243": "2022-06-29T02:43",
    "20220629T024314.5+02": "2022-06-29T00:43:14.5",
    "20220629 02:43:14+0200": "2022-06-29T00:43:14",
}


@pytest.mark.parametrize("text", COMPACT)
def test_compact_dates(text: str) -> None:
    texts = [text, text.replace("29", "28")]
    expected = moments(COMPACT[text], COMPACT[text].replace("29", "28"))
    np.testing.assert_array_equal(learned(texts).parse(texts), expected)
    assert evidence([*texts, "12345678"]).style() is None


def test_eight_digits_that_do_not_tell_day_and_month_are_no_dates() -> None:
    assert evidence(["01022022", "03042022"]).style() is None


def test_seasons_are_no_months() -> None:
    assert evidence(["2008-09", "2009-10", "2010-11", "2011-12"]).style() is None
    assert learned(["2008-09", "2009-11", "2010-11"]).describe() == "dates in the format year-month"


# -- day and month ---------------------------------------------------------------------------


def test_one_date_decides_the_order_of_all() -> None:
    few = ["01/02/2019", "03/04/2019"]
    np.testing.assert_array_equal(
        learned([*few, "13/01/2019"]).parse(few), moments("2019-02-01", "2019-04-03")
    )
    np.testing.assert_array_equal(
        learned([*few, "01/13/2019"]).parse(few), moments("2019-01-02", "2019-03-04")
    )


@pytest.mark.parametrize(("sign", "order"), [("/", "m"), (".", "d"), ("-", "d")])
def test_an_order_that_is_a_guess_is_said(sign: str, order: str) -> None:
    style = learned([f"01{sign}02{sign}2019", f"05{sign}05{sign}2019"])
    assert style.ambiguous and style.order == order
    first = {"d": "day", "m": "month"}[order]
    assert f"{first} first assumed" in style.describe()
    assert not learned([f"05{sign}05{sign}2019"]).ambiguous


def test_a_short_year_may_come_first() -> None:
    style = learned(["12-05-17", "13-06-18"])
    assert style.ambiguous and style.order == "d"
    assert "(ambiguous order of year, month and day: day first assumed)" in style.describe()
    assert not learned(["12-05-17", "13-06-32"]).ambiguous
    assert not learned(["13.05.17"]).ambiguous
    style = learned(["99-05-17", "12-05-17"])
    assert style.order == "y" and not style.ambiguous
    expected = moments("1999-05-17", "2012-05-17", "NaT")
    np.testing.assert_array_equal(style.parse(["99-05-17", "12-05-17", "12-5-17"]), expected)
    assert style.describe().startswith("dates in the format year-month-day (two-digit years: ")


def test_short_years_do_not_lie_in_the_future() -> None:
    latest = dt.date.today().year + 1
    years = [latest - 99, 1953, latest - 1, latest]
    texts = [f"31.1.{year % 100:02d}" for year in years]
    style = learned(texts)
    assert style.parse(texts).astype("M8[Y]").astype(int).tolist() == [y - 1970 for y in years]
    assert style.describe().endswith(f"(two-digit years: {latest - 99} to {latest})")
    assert learned(["31.1.2019"]).pivot is None


def test_styles_of_older_models_are_read() -> None:
    plain = {"pattern": "numeric", "sign": ".", "order": "d", "ambiguous": False, "has_time": True}
    style = DateStyle.from_json(plain)
    np.testing.assert_array_equal(style.parse(["31.1.68"]), moments("2068-01-31"))


def test_contradicting_orders_are_no_style_unless_rare() -> None:
    assert evidence(["13/01/2019", "01/13/2019"]).style() is None
    either = [f"0{day}/0{month}/2019" for day in range(1, 10) for month in range(1, 10)]
    assert evidence([*either, "13/01/2019", "01/13/2019"]).style() is None
    many = [f"{day}/{month}/2019" for day in range(13, 29) for month in range(1, 13)]
    style = learned([*many, "01/13/2019"])
    assert style.order == "d" and not style.ambiguous
    assert np.isnat(style.parse(["01/13/2019"])[0])


def test_another_sign_is_another_style() -> None:
    style = learned(["13/01/2019"])
    assert np.isnat(style.parse(["13.01.2019", "13-01-2019"])).all()


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("31/01/2019", "dates in the format day/month/year"),
        ("01/31/2019 10:00", "dates in the format month/day/year with a time"),
        ("31.01.2019", "dates in the format day.month.year"),
        ("2019-01-31", "dates in the format year-month-day"),
        ("7 Jan 2018", "dates in the format day month year"),
        ("Jan 2018", "dates in the format month year"),
        ("12:30", "times of day"),
        ("06/2022", "dates in the format month/year"),
        ("2022-Q2", "dates in the format year quarter"),
        ("Wed Jun 29 02:43:14 2022", "dates in the format month day time year"),
    ],
)
def test_descriptions(text: str, described: str) -> None:
    assert learned([text]).describe() == described


# -- columns ---------------------------------------------------------------------------------


def test_a_time_is_optional() -> None:
    texts = ["2019-01-31", "2019-01-31 10:00", "2019-02-01 00:00:01"]
    style = learned(texts)
    assert style.has_time and not np.isnat(style.parse(texts)).any()


@pytest.mark.parametrize("damage", ["Oct-49", "1-2", "2019-10-20", "20/10/2019", "10:20"])
def test_some_dates_do_not_make_a_category_dates(damage: str) -> None:
    assert evidence(["0-9", "20-29", "30-39", "50-59", "60-69", damage]).style() is None
    found = DateEvidence.of([damage, "B 12"], np.array([94, 6]))
    assert found.style() is None


def test_words_stand_for_missing_dates() -> None:
    dates = ["2019-10-20", "2019-10-21", "unknown", "0000-00-00"]
    found = DateEvidence.of(dates, np.array([50, 10, 20, 20]))
    style = found.style()
    assert style is not None and found.words.rows == 40 and not found.unread(style).rows
    assert DateEvidence.of(dates, np.array([20, 10, 40, 30])).style() is None


def test_few_other_texts_do_not_hide_dates() -> None:
    found = DateEvidence.of(["2019-10-20", "2019-10-21", "unknown"], np.array([90, 6, 4]))
    style = found.style()
    assert style is not None and found.n_rows == 100 and found.n_distinct == 3
    assert found.dates(style)[:2] == (96, 2)
    assert found.others(style) == (4, 1, ("unknown",))


COLUMNS = {
    "iso": [f"2019-01-{day:02d}" for day in range(1, 32)],
    "slash": [f"{day}/1/2019" for day in range(1, 32)],
    "names": [f"Jan {day}, 2019 10:{day:02d}" for day in range(1, 32)],
    "compact": [f"201901{day:02d}" for day in range(1, 32)],
    "mixed": [f"{day}/1/2019" for day in range(1, 32)] + ["1/13/2019"],
    "either": [f"{day}-1-2019" for day in range(1, 13)],
    "short": [f"{day:02d}-05-17" for day in range(1, 32)],
    "words": ["a", "b", "c", "Oct-49", "2019-01-01", "12"],
    "nothing": [],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_blocks_give_the_style_of_the_whole(name: str) -> None:
    texts = COLUMNS[name]
    merged = DateEvidence()
    for start in range(0, len(texts), 5):
        merged = merged.merge(evidence(texts[start : start + 5]))
    assert merged == evidence(texts)
    assert merged.style() == evidence(texts).style()


@pytest.mark.parametrize("name", ["iso", "slash", "names", "compact", "either", "short"])
def test_styles_survive_json(name: str) -> None:
    style = learned(COLUMNS[name])
    assert DateStyle.from_json(json.loads(json.dumps(style.to_json()))) == style


FORMATS = [
    "%Y-%m-%d",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d.%m.%Y",
    "%B %d, %Y",
    "%d-%b-%y",
    "%Y%m%d",
    "%m-%d-%y",
    "%Y-%m-%dT%H:%M:%S",
    "%d.%m.%y %H:%M",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%m/%d/%Y %I:%M %p",
    "%Y/%m/%d %H:%M:%S.%f",
    "%y-%m-%d",
    "%d%m%Y",
    "%Y%m%d%H%M%S",
    "%a %b %d %H:%M:%S %Y",
    "%m/%Y",
]


@settings(max_examples=60, deadline=None)
@given(
    days=st.lists(
        st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2025, 12, 31)), min_size=2, max_size=20
    ),
    form=st.sampled_from(FORMATS),
)
def test_dates_come_back(days: list[dt.datetime], form: str) -> None:
    decisive = [dt.datetime(2019, 1, 31), dt.datetime(2020, 5, 30)]
    texts = list(dict.fromkeys(day.strftime(form) for day in [*days, *decisive]))
    expected = [dt.datetime.strptime(text, form) for text in texts]
    np.testing.assert_array_equal(learned(texts).parse(texts), np.array(expected, "M8[us]"))


@pytest.mark.parametrize("form", ["%d/%m/%Y %H:%M", "%B %d, %Y at noon"])
def test_many_texts_are_read_quickly(form: str) -> None:
    first = dt.datetime(1980, 1, 1)
    texts = [(first + dt.timedelta(hours=7 * n)).strftime(form) for n in range(50_000)]
    start = time.perf_counter()
    style = evidence(texts).style()
    if style is not None:
        assert not np.isnat(style.parse(texts)).any()
    assert (style is None) == form.endswith("noon")
    assert time.perf_counter() - start < 5
