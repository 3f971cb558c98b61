"""Numbers in text: which style a column has, and what its texts are worth."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from likelier.tables.numbers import NumberEvidence, NumberStyle

NAN = float("nan")


def evidence(texts: Sequence[str]) -> NumberEvidence:
    return NumberEvidence.of(texts, np.ones(len(texts), int))


def learned(texts: Sequence[str], decimal: str | None = None) -> NumberStyle:
    style = evidence(texts).style(decimal)
    assert style is not None
    return style


def check(texts: Sequence[str], values: Sequence[float], decimal: str | None = None) -> NumberStyle:
    """Learn from the texts, and compare what they are read as."""
    style = learned(texts, decimal)
    np.testing.assert_array_equal(style.parse(texts), values)
    assert evidence(texts).numbers(style).distinct == np.sum(~np.isnan(values))
    return style


# -- plain numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize("decimal", [None, "."])
def test_plain_numbers(decimal: str | None) -> None:
    texts = ["0", "12", "-3", "+3", "0.5", "-0.5", ".5", "5.", "1e5", "1.5E-3", "0.00", "123456"]
    style = check(texts, [float(text) for text in texts], decimal)
    assert style == NumberStyle() and style.describe() == ""


def test_negative_numbers_in_all_spellings() -> None:
    check(["(1,234)", "1,234-", "\u22125", "-6", "7", "(8.5)"], [-1234, -1234, -5, -6, 7, -8.5])


def test_infinity_is_spelled_out() -> None:
    texts = ["1", "inf", "-inf", "Infinity", "+inf", "nan"]
    check(texts, [1, np.inf, -np.inf, np.inf, np.inf, NAN])


@pytest.mark.parametrize(
    "text",
    [
        "unknown",
        ">20",
        "Varies with device",
        "1.2.3",
        "192.168.1.1",
        "2019-01-01",
        "12:30",
        "90-100",
        "555-1234",
        "--5",
        "(5",
        "5)",
        "-(5)",
        "+49 89 1234567",
        "bhp",
        "",
        "$",
        "1,23,4",
        "1st",
        "22nd",
        "5 pm",
        "A11",
        "B2",
        "0x1f",
        "1_000",
        "٣",
        "12 345 67",
        "1.234.5",
        "e5",
        "001",
        "0075",
        "-007",
        "00",
    ],
)
def test_not_a_number_among_plain_ones(text: str) -> None:
    texts = [*map(str, range(200)), text]
    found = evidence(texts)
    style = found.style(".")
    assert style == NumberStyle()
    assert np.isnan(style.parse([text])[0])
    assert found.others(style) == (1, 1, (text,))
    assert (found.n_rows, found.n_distinct) == (201, 201)


@pytest.mark.parametrize(
    "texts",
    [
        ["001", "002", "075"],
        ["020", "060", "120", "190", "180"],
        ["low", "high"],
        ["601 234 567", "602 345 678", "603 111 222"],
        ["1,5", "2.5", "3,7", "4.8"],
        [],
    ],
)
def test_no_style(texts: list[str]) -> None:
    assert evidence(texts).style(".") is None


# -- separators ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "values", "decimal", "signs"),
    [
        (["1,234", "12,345", "7"], [1234, 12345, 7], ".", (".", ",")),
        (["1,234", "12,345", "7"], [1234, 12345, 7], None, (".", ",")),
        (["1,234", "12,345", "7"], [1.234, 12.345, 7], ",", (",", "")),
        (["1,234", "5678"], [1234, 5678], ".", (".", ",")),
        (["1,234", "0,5"], [1.234, 0.5], ".", (",", "")),
        (["1,5", "2,25"], [1.5, 2.25], ".", (",", "")),
        (["1,234.5", "2,000,000"], [1234.5, 2e6], None, (".", ",")),
        (["1.529,30", "12,5"], [1529.3, 12.5], None, (",", ".")),
        (["12.345"], [12345], ",", (",", ".")),
        (["12.345"], [12.345], ".", (".", "")),
        (["12.345"], [12.345], None, (".", "")),
        (["1.234.567", "12"], [1234567, 12], None, (",", ".")),
        (["1.5", "2.25"], [1.5, 2.25], ",", (".", "")),
        (["1 234,5", "7\u202f000", "1\u00a0000 000"], [1234.5, 7000, 1e6], None, (",", " ")),
        (["1'234.5", "7\u2019000"], [1234.5, 7000], None, (".", "'")),
    ],
)
def test_separators(
    texts: list[str], values: list[float], decimal: str | None, signs: tuple[str, str]
) -> None:
    style = check(texts, values, decimal)
    assert (style.decimal, style.group) == signs


def test_a_comma_that_may_be_either_sign_is_not_guessed() -> None:
    assert evidence(["1,234", "5678"]).style() is None


def test_one_typing_error_does_not_lose_the_column() -> None:
    texts = [f"{n / 10}" for n in range(1, 500)] + ["3,5"]
    style = learned(texts, ".")
    assert style == NumberStyle() and np.isnan(style.parse(["3,5"])[0])


def test_decimal_comma_is_described() -> None:
    assert learned(["1,5", "2,5"], ".").describe() == "numbers with decimal comma"


# -- currencies, units, multipliers --------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["$4.99", "$1,000.00", "0", "-$3", "$-3", "($5)"], [4.99, 1000, 0, -3, -3, -5]),
        (["5 €", "7,50 €", "8€"], [5, 7.5, 8]),
        (["USD 5", "USD 7", "USD8"], [5, 7, 8]),
        (["Rs. 500", "Rs 1,500", "Rs.7"], [500, 1500, 7]),
        (["5 EUR", "6 EUR"], [5, 6]),
        (["12%", "3.5 %", "0"], [12, 3.5, 0]),
        (["10+", "10,000+", "0", "5+"], [10, 10000, 0, 5]),
        (["19M", "201k", "1.2M", "3B", "512"], [19e6, 201e3, 1.2e6, 3e9, 512]),
        (["$19M", "$1.5B", "$7k"], [19e6, 1.5e9, 7e3]),
        (["1,248 CC", "1,498 CC", "800 cc"], [1248, 1498, 800]),
        (["1 day", "2 days", "10 days"], [1, 2, 10]),
        (["5.1 l/100km", "6 l/100km", "7 l/100km"], [5.1, 6, 7]),
        (["20°C", "21.5 °C", "-3 °C"], [20, 21.5, -3]),
        (["45 m²", "50 m²", "60.5 m²"], [45, 50, 60.5]),
    ],
)
def test_what_stands_around_numbers(texts: list[str], values: list[float]) -> None:
    assert check(texts, values).describe()


def test_zeros_may_go_without_a_unit() -> None:
    check(["74 bhp", "80 bhp", "90.5 bhp", "0"], [74, 80, 90.5, 0])


def test_few_units_are_read_alike_and_described() -> None:
    texts = [f"{n / 10} kmpl" for n in range(150, 300)] + [f"{n} km/kg" for n in range(20, 30)]
    style = check(texts, [float(text.split()[0]) for text in texts])
    assert style.units == ("kmpl", "km/kg")
    assert style.describe() == "numbers with the units 'kmpl' and 'km/kg' (treated as the same)"
    assert np.isnan(style.parse(["bhp", "20 bhp", "kmpl"])).all()
    assert style.parse(["20"])[0] == 20


def test_units_of_one_quantity_are_converted() -> None:
    texts = [f"{n} m" for n in range(1, 20)] + ["2 km", "100 cm"]
    style = check(texts, [*range(1, 20), 2000, 1])
    assert style.describe() == "numbers with the units 'm' and 'km' and 'cm' (converted to 'm')"
    check(["45.5 N", "12 N", "33 N", "3.5 S"], [45.5, 12, 33, -3.5])
    check(["$1 million", "$2 million", "$3 million", "$4 billion"], [1, 2, 3, 4000])
    check(["5 mW", "6 mW", "7 mW", "1 MW"], [5, 6, 7, 1e9])


def test_a_rare_unit_that_does_not_go_with_the_others_is_no_number() -> None:
    style = check([*(f"{n} kg" for n in range(1, 30)), "2 bags"], [*range(1, 30), NAN])
    assert style.units == ("kg",)


@pytest.mark.parametrize(
    "texts",
    [
        ["20 °C", "21 °C", "70 °F", "75 °F"],
        ["5 kg", "6 kg", "7 cm", "8 cm"],
        ["90 min", "120 min", "100 min", "1 Season", "2 Seasons"],
        ["4WD", "2WD", "AWD", "FWD"],
        ["2x4", "2x6", "4x4"],
        ["1B", "2B", "3B", "SS", "OF", "LF"],
        ["12a", "14b", "16c", "18d", "20e"],
        ["$5", "€6", "$7", "€8"],
        ["$5", "6", "$7", "8", "$9"],
        ["32C", "34D", "36B", "34A"],
    ],
)
def test_units_that_do_not_agree_are_no_numbers(texts: list[str]) -> None:
    style = evidence(texts).style(".")
    assert style is None or evidence(texts).numbers(style).distinct < len(texts) / 2


def test_a_sign_behind_is_described() -> None:
    described = "numbers with the thousands separator ',' and the suffix '+'"
    assert learned(["10+", "5,000+", "10,000+"]).describe() == described


def test_few_with_a_sign_behind_are_no_numbers() -> None:
    texts = [*map(str, range(1, 40)), "40+", "14B", "12 kg"]
    style = learned(texts)
    assert style == NumberStyle()
    assert np.isnan(style.parse(["40+", "14B", "12 kg"])).all()


def test_codes_that_look_like_powers_have_a_low_share() -> None:
    texts = ["12e5", "4f3a", "99ab", "b00c", "7d1e"]
    found = evidence(texts)
    style = found.style()
    assert style is None or found.numbers(style).rows <= 1


# -- summaries -------------------------------------------------------------------------------


COLUMNS = {
    "plain": [f"{n / 7:.3f}" for n in range(300)],
    "german": [f"{n}.{n + 100},50" for n in range(1, 300)],
    "units": [f"{n} kmpl" for n in range(1, 300)] + [f"{n} km/kg" for n in range(1, 20)],
    "money": [f"${n}.99" for n in range(300)] + ["0", "free"],
    "many": [f"{n}M" for n in range(1, 200)] + [f"{n}k" for n in range(1, 99)] + ["varies"],
    "codes": [f"{n:04d}" for n in range(300)],
    "words": [chr(97 + n % 26) * (n % 7 + 1) for n in range(180)],
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("decimal", [None, ".", ","])
def test_blocks_give_the_style_of_the_whole(name: str, decimal: str | None) -> None:
    texts = list(dict.fromkeys(np.random.default_rng(0).permutation(COLUMNS[name]).tolist()))
    blocks = [evidence(texts[start : start + 50]) for start in range(0, len(texts), 50)]
    merged = NumberEvidence()
    for block in blocks:
        merged = merged.merge(block)
    whole = evidence(texts)
    assert merged.style(decimal) == whole.style(decimal)
    assert (merged.n_rows, merged.n_distinct) == (whole.n_rows, whole.n_distinct)


def test_rows_are_counted() -> None:
    found = NumberEvidence.of(["1", "2", "unknown"], np.array([5, 4, 3]))
    style = found.style()
    assert style is not None
    assert found.numbers(style)[:2] == (9, 2)
    assert found.others(style) == (3, 1, ("unknown",))


def test_memory_is_bounded() -> None:
    names = [f"{n} {a}{b}" for n in range(3) for a in "abcdefghijklmn" for b in "bcdfghjklqvxz"]
    found = NumberEvidence()
    for start in range(0, len(names), 100):
        found = found.merge(evidence(names[start : start + 100]))
    assert len(found.layouts) <= 201 and found.n_rows == len(names)
    assert found.style() is None


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in ("codes", "words")])
def test_styles_survive_json(name: str) -> None:
    style = learned(COLUMNS[name])
    assert NumberStyle.from_json(json.loads(json.dumps(style.to_json()))) == style


def written(value: float, decimal: str, group: str) -> str:
    whole, fraction = f"{value:,.2f}".split(".")
    return whole.replace(",", group) + decimal + fraction


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.integers(-(10**11), 10**11), min_size=5, max_size=30, unique=True),
    signs=st.sampled_from([(".", ""), (".", ","), (",", "."), (",", " "), (".", "'"), (",", "")]),
    affixes=st.sampled_from(
        [("", ""), ("$", ""), ("", " €"), ("", " kg"), ("EUR ", ""), ("", "%")]
    ),
)
def test_numbers_come_back(
    values: list[int], signs: tuple[str, str], affixes: tuple[str, str]
) -> None:
    numbers = [value / 100 for value in values]
    texts = [affixes[0] + written(number, *signs) + affixes[1] for number in numbers]
    np.testing.assert_array_equal(learned(texts).parse(texts), numbers)


@pytest.mark.parametrize("unit", ["", " kmpl"])
def test_many_texts_are_read_quickly(unit: str) -> None:
    texts = [f"{n / 7:.4f}{unit}" for n in range(100_000)]
    start = time.perf_counter()
    style = learned(texts)
    learned_in = time.perf_counter() - start
    values = style.parse(texts)
    assert learned_in < 3 and time.perf_counter() - start < 6
    assert abs(values[700] - 100) < 1e-9
