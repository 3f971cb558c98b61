"""Summaries of columns: however the rows are cut into blocks, they say the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from likelier.tables.cells import Cells
from likelier.tables.decide import decide
from likelier.tables.summaries import ColumnSummary, Hashes, Numbers
from likelier.tables.target_summary import Summary, summarise

TEXTS = ["1", "2", "2.5", "1e3", "-7", "x", "y z", "true", "?", "", " 3", "2020-01-02", "5 kg"]
cuts = st.lists(st.integers(0, 30))


def parts_of(values, cuts):
    edges = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    return [values[a:b] for a, b in pairwise(edges)]


def target_summary(parts):
    total = Summary()
    for part in parts:
        array = pa.array(part, pa.string())
        total = total.merge(summarise(array, total, untyped=True, missing=("?", "")))
    return total


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=30), cuts=cuts)
@example(values=["1", "?"], cuts=[1])
def test_summaries_of_targets_are_additive(values, cuts):
    whole, cut = target_summary([values]), target_summary(parts_of(values, cuts))
    for name in ("kind", "values", "n_rows", "n_missing", "n_infinite", "nearly_numbers"):
        assert getattr(whole, name) == getattr(cut, name), name


def column_summary(parts, type):
    total = ColumnSummary()
    for part in parts:
        total = total.merge(ColumnSummary.of(Cells(pa.array(part, type), ("?", ""))))
    return total


@settings(max_examples=150, deadline=None)
@given(values=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=30), cuts=cuts)
@example(values=["1"] * 20 + ["x"], cuts=[20])
@example(values=["2020-01-02"] * 20 + ["x"], cuts=[20])
def test_columns_of_texts_are_decided_alike(values, cuts):
    whole = column_summary([values], pa.string())
    cut = column_summary(parts_of(values, cuts), pa.string())
    for name in ("n_rows", "n_missing", "levels", "n_present", "n_distinct"):
        assert getattr(whole, name) == getattr(cut, name), name
    assert decide(cut, ".", 40).kind == decide(whole, ".", 40).kind


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.sampled_from([1.0, 2.0, 3.0, 2.5, float("inf"), None]), min_size=1),
    cuts=cuts,
)
@example(values=[1.0, 2.0, 3.0, 4.0], cuts=[2])
def test_columns_of_numbers_are_decided_alike(values, cuts):
    whole = column_summary([values], pa.float64())
    cut = column_summary(parts_of(values, cuts), pa.float64())
    np.testing.assert_equal(vars(cut.numbers), vars(whole.numbers))
    assert (cut.n_missing, cut.n_infinite) == (whole.n_missing, whole.n_infinite)
    assert decide(cut, None, 40) == decide(whole, None, 40)


@pytest.mark.parametrize(
    ("values", "rises"),
    [
        (range(50), True),
        (range(7, 500, 10), True),
        ([*range(50), 51], False),
        (range(50, 0, -1), False),
        ([0.5 + i for i in range(50)], False),
        ([*range(25), *range(25)], False),
        ([3.0] * 50, False),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_numbers_that_rise_by_one_step(values, rises, size):
    whole = np.array([*values], dtype=float)
    total = Numbers()
    for start in range(0, len(whole), size):
        total = total.merge(Numbers.of(whole[start : start + size]))
    assert total.evenly_increasing == rises


@pytest.mark.parametrize("n", [10, 1000, 100_000])
def test_different_texts_are_counted(n):
    texts, total = [f"text {i}" for i in range(n)], Hashes()
    for start in range(0, n, 3000):
        part = texts[max(0, start - 500) : start + 3000]  # some come again
        total = total.merge(Hashes.of(part, 4096), 4096)
    assert total.complete == (n <= 4096)
    assert total.count == pytest.approx(n, rel=0.0 if n <= 4096 else 0.05)
