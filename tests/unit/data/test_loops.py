"""Numbers from bytes, to the last bit."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from likelier.data import loops as parse


def read_all(texts):
    """Parse the texts; numbers the parser leaves to ``float()`` are read with it."""
    data = ("\n".join(texts) + "\n").encode()
    starts = np.cumsum([0] + [len(text) + 1 for text in texts])[:-1]
    values, exact = np.empty(len(texts)), np.empty(len(texts), dtype=bool)
    n = parse.parse_numbers(np.frombuffer(data, dtype=np.uint8), starts, values, exact)
    assert n == len(texts), f"not read as a number: {texts[n]!r}"
    return values, exact


def check_all(texts):
    values, exact = read_all(texts)
    expected = np.array([float(text) for text in texts])
    wrong = (values.view(np.uint64) != expected.view(np.uint64)) & exact
    assert not wrong.any(), [(texts[i], values[i].hex()) for i in np.flatnonzero(wrong)[:5]]
    return exact


def random_floats(rng, n):
    values = rng.integers(0, 2**64, size=n, dtype=np.uint64).view(np.float64)
    return values[np.isfinite(values)].tolist()


@pytest.mark.parametrize("style", ["%r", "%.17g", "%.15g", "%.18e", "%.25e", "%.3e"])
def test_random_bit_patterns(style):
    exact = check_all([style % value for value in random_floats(np.random.default_rng(1), 50_000)])
    assert exact.all()


@pytest.mark.parametrize("style", ["%r", "%.6g", "%.12f", "%.30f", "%d", "%.1f"])
def test_ordinary_numbers(style):
    rng = np.random.default_rng(2)
    values = (rng.normal(size=50_000) * 10.0 ** rng.integers(-3, 6, size=50_000)).tolist()
    check_all([style % value for value in values])


def test_any_mantissa_and_exponent():
    rng = np.random.default_rng(3)
    mantissas = rng.integers(0, 2**63, size=50_000, dtype=np.uint64)
    mantissas >>= rng.integers(0, 63, size=50_000, dtype=np.uint64)
    exponents = rng.integers(-365, 330, size=50_000)
    check_all([f"{m}e{e}" for m, e in zip(mantissas, exponents, strict=True)])


def test_subnormal_numbers():
    rng = np.random.default_rng(4)
    bits = rng.integers(1, 2**52, size=20_000, dtype=np.uint64)
    bits >>= rng.integers(0, 51, size=20_000, dtype=np.uint64)
    values = np.maximum(bits, 1).view(np.float64).tolist()
    check_all([style % value for value in values for style in ("%r", "%.18e", "%.19e")])


def halfway_texts(rng, n):
    """Return numbers exactly between two floats, and their nearest neighbours."""
    texts = []
    for _ in range(n):
        odd = 2 * (int(rng.integers(2**52, 2**53)) | 1) + 1
        whole = odd << int(rng.integers(1, 11))
        texts += [str(whole), str(whole + 1), str(whole - 1), f"{whole}.0", f"{whole}.{'0' * 30}1"]
        below = Fraction(odd, 2 ** int(rng.integers(1, 30)))
        digits = below.numerator * 10**30 // below.denominator  # exact: 2**k divides 10**30
        texts += [f"{digits}e-30", f"{digits + 1}e-30", f"{digits - 1}e-30"]
    return texts


def test_numbers_halfway_between_two_floats():
    exact = check_all(halfway_texts(np.random.default_rng(5), 3000))
    assert not exact.all()  # beyond 19 digits some cannot be told without float()


EDGES = [
    "0", "-0", "+0", "0.0", ".5", "5.", "-.5e1", "00012", "1e22", "1e23", "-1E+5", "1e-5",
    "9007199254740991", "9007199254740992", "9007199254740993", "9007199254740995",
    "9223372036854775807", "18446744073709551615", "9999999999999999999", "99999999999999999999",
    "4.9406564584124654e-324", "2.4703282292062327e-324", "2.4703282292062328e-324",
    "2.2250738585072011e-308", "2.2250738585072014e-308", "1.7976931348623157e308",
    "1.7976931348623159e308", "1e308", "1e309", "1e-400", "0e999", "0.000e-9999999999999999999",
    "123456789012345678901234567890e-40", "0." + "0" * 400 + "1", "1" + "0" * 400,
    "1" + "0" * 300 + "e-300", "8.98846567431158e307", "1e99999999999999999999",
]  # fmt: skip


def test_edges():
    check_all(EDGES)
    values, _ = read_all(["-0", "1e309", "-1e400"])
    assert [v.hex() for v in values.tolist()] == ["-0x0.0p+0", "inf", "-inf"]


@settings(max_examples=400, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_repr_writes_comes_back(value):
    values, exact = read_all([repr(value)])
    assert exact[0]
    assert struct.pack("<d", values[0]) == struct.pack("<d", value)


@settings(max_examples=400, deadline=None)
@given(
    st.from_regex(
        r"[-+]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][-+]?[0-9]{1,4})?", fullmatch=True
    )
)
@example("1" * 40)
def test_any_decimal_text(text):
    check_all([text])


@pytest.mark.parametrize("text", ["", "-", "+", ".", "e5", "1e", "1e+", "nan", "inf", "0x1", "1_0"])
def test_not_a_number(text):
    data = np.frombuffer(f"{text}\n".encode(), dtype=np.uint8)
    assert parse.parse_numbers(data, np.array([0]), np.empty(1), np.empty(1, dtype=bool)) == 0
