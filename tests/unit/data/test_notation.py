"""How numbers are written: what Arrow reads, what people mean, and which sign is the decimal."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from likelier.data.notation import (
    WHOLE_PLAIN,
    WHOLE_WRITTEN,
    decimal_sign,
    is_plain_number,
    is_written_number,
)

texts = st.text(alphabet="0123456789+-.,eE '%$xinfa", max_size=8)


def arrow_reads(text):
    try:
        pa.array([text]).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


@settings(max_examples=500, deadline=None)
@given(text=texts)
@example(text="+.5e-3")
@example(text="-INF")
@example(text="1.e5")
def test_plain_numbers_are_those_that_arrow_reads(text):
    """A text that is called a number and not read would make its column one of categories."""
    assert is_plain_number(text) == arrow_reads(text)
    if is_plain_number(text):
        assert is_written_number(text)


@settings(max_examples=300, deadline=None)
@given(text=texts)
def test_arrow_and_python_understand_the_patterns_alike(text):
    array = pa.array([text])
    assert pc.match_substring_regex(array, WHOLE_PLAIN)[0].as_py() == is_plain_number(text)
    assert pc.match_substring_regex(array, WHOLE_WRITTEN)[0].as_py() == is_written_number(text)


@pytest.mark.parametrize(
    "text",
    [
        *("3,14", "-0,5", "1,234.5", "1.234,56", "12 500", "12\u00a0500,5", "1'000"),
        *("12 %", "12.5%", "$5", "-$1,200.50", "5 €", ",5", "1,5E+03", "7"),
    ],
)
def test_numbers_as_people_write_them(text):
    assert is_written_number(text)
    assert pc.match_substring_regex(pa.array([text]), WHOLE_WRITTEN)[0].as_py()


@pytest.mark.parametrize(
    "text", ["", "n.a.", "5 kg", "1-3", "12.05.2020", "1.2.3", "A1", "1,2,3", "%", "12:30", "5+"]
)
def test_what_is_no_number(text):
    assert not is_written_number(text)


@pytest.mark.parametrize(
    ("columns", "delimiter", "likely", "sign"),
    [
        ([["3,14", "2", "-0,5"], ["a", "b", "c"]], ";", None, ","),
        ([["3.14", "2"]], ";", None, "."),
        ([["1,234", "2,500"]], ";", None, "."),  # thousands? the column will be refused
        ([["1,234", "2,500"]], ";", ",", ","),
        ([["1,234", "2,500"], ["0,5", "1,5"]], ";", None, ","),
        ([["1,234", "0,500"]], "\t", None, ","),
        ([["3,14", "2.5"]], ";", None, "."),  # neither way
        ([["3,14"] * 10 + ["n.a."]], ";", None, ","),
        ([["3,14"] * 5 + ["n.a."]], ";", None, "."),
        ([["3,14", "2,5"]], ",", None, "."),  # quoted cells
        ([["3,14", "2,5"]], ",", ",", ","),
        ([["3.14", "2.5"]], ";", ",", "."),
        ([["3", "2"]], ";", ",", ","),
        ([["3", "2"]], ",", ",", "."),
        ([["3,14"], ["2.5"]], ";", None, ","),
        ([[]], ";", None, "."),
        # points between thousands, or before three decimals
        ([["1.529", "999"]], ";", None, ","),
        ([["1.529", "999"]], ",", ",", ","),
        ([["1.529", "999"]], ",", ".", "."),
        ([["1.529", "999"], ["3,5", "2"]], "\t", None, ","),
        ([["1.529", "999"], ["3.5", "2"]], ";", None, "."),
        ([["1.529", "99"]], ",", None, "."),
        ([["1.529", "999", "0.125"]], ",", None, "."),
        ([["1.529", "999", "2.5"]], ",", None, "."),
        ([["1.529", "999", "1000"]], ",", None, "."),
        ([["1.529", "12.345"]], ",", None, "."),
    ],
)
def test_the_decimal_sign(columns, delimiter, likely, sign):
    assert decimal_sign(columns, delimiter, likely) == sign


@pytest.mark.parametrize("delimiter", [",", "\t", "|"])
def test_thousands_that_may_be_decimals(delimiter):
    with pytest.raises(ValueError, match=r"'1\.529' next to '999'.*decimal='\.'.*decimal=','"):
        decimal_sign([["a", "b"], ["3", "1.529", "-12.000", "999"]], delimiter, None)
