"""Fused Fourier features of dense rows: accuracy, and independence of the other rows."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.features.loops.fourier_rows import LIMIT, make_waves, map_rows

BOUND = {np.float32: 2e-7, np.float64: 4e-16}
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])
PI = 2 * np.arccos(np.longdouble(0))


def features(X, frequencies, phase=None):
    """Features by the compiled loop, into memory where nothing was."""
    phase = frequencies[0, :0].copy() if phase is None else phase
    width = 2 * frequencies.shape[1] - len(phase)
    out = np.full((len(X), width), np.nan, dtype=X.dtype)
    map_rows(X, make_waves(frequencies, phase, width), out)
    return out


def of_half_turns(turns):
    """Cosines and sines of angles counted in half turns: frequency pi, two features."""
    dtype = turns.dtype
    return features(turns[:, None].copy(), np.full((1, 1), np.pi, dtype=dtype)).T


def exact(turns):
    """The same in extended precision: what whole turns leave is exact."""
    wide = turns.astype(np.longdouble)
    left = PI * (wide - 2 * np.round(wide / 2))
    return np.cos(left), np.sin(left)


@both_types
@pytest.mark.parametrize("size", [1e-30, 1e-3, 0.5, 3.0, 1e3, 1e6])
def test_cosine_and_sine_are_right_to_the_last_digits(dtype, size):
    turns = np.random.default_rng(0).uniform(-size, size, 20_001).astype(dtype)
    for ours, theirs in zip(of_half_turns(turns), exact(turns), strict=True):
        assert np.abs(ours - theirs).max() <= BOUND[dtype]


@both_types
def test_multiples_of_a_quarter_turn_are_exact(dtype):
    turns = (np.arange(-400, 401) / 2).astype(dtype)
    cosines, sines = of_half_turns(turns)
    even = np.arange(-400, 401) % 2 == 0
    np.testing.assert_array_equal(sines[even], 0.0)
    np.testing.assert_array_equal(np.abs(cosines[even]), 1.0)
    np.testing.assert_array_equal(cosines[::4], 1.0)
    np.testing.assert_allclose(cosines[~even], 0.0, atol=BOUND[dtype])


@both_types
def test_around_and_beyond_the_limit(dtype):
    limit = LIMIT[np.dtype(dtype)]
    turns = (limit * np.linspace(0.25, 1.0, 1000)).astype(dtype)
    for ours, theirs in zip(of_half_turns(turns), exact(turns), strict=True):
        assert np.abs(ours - theirs).max() <= BOUND[dtype]
    beyond = np.array([1.01, 3.7, -100.3, 1e10, -1e15], dtype=dtype) * dtype(limit)
    cosines, sines = of_half_turns(beyond)
    angles = np.pi * beyond.astype(np.float64)
    np.testing.assert_allclose(cosines, np.cos(angles), atol=BOUND[dtype])
    np.testing.assert_allclose(sines, np.sin(angles), atol=BOUND[dtype])


@both_types
@pytest.mark.parametrize("n_inputs", [1, 3, 50])
@pytest.mark.parametrize(("pairs", "single"), [(1, 0), (12, 0), (0, 7), (25, 1), (40, 30)])
def test_every_shape_is_the_formula(dtype, n_inputs, pairs, single):
    rng = np.random.default_rng(1)
    frequencies = rng.normal(size=(n_inputs, pairs + single)).astype(dtype)
    phase = rng.uniform(0, 2 * np.pi, single).astype(dtype)
    for n_rows in (0, 1, 3, 4, 9):
        X = rng.normal(size=(n_rows, n_inputs)).astype(dtype)
        angles = X.astype(np.longdouble) @ frequencies.astype(np.longdouble)
        a, b = angles[:, :pairs], angles[:, pairs:] + phase
        expected = np.concatenate([np.cos(a), np.sin(a), np.cos(b)], axis=1)
        expected *= np.sqrt(2 / expected.shape[1])
        tolerance = 4e-6 if dtype is np.float32 else 1e-14
        np.testing.assert_allclose(
            features(X, frequencies, phase).astype(float), expected.astype(float), atol=tolerance
        )


@both_types
def test_a_row_has_the_same_bits_beside_any_others(dtype):
    rng = np.random.default_rng(2)
    frequencies = rng.normal(size=(7, 30)).astype(dtype)
    X = rng.normal(size=(23, 7)).astype(dtype)
    whole = features(X, frequencies)
    np.testing.assert_array_equal(features(X[5:12], frequencies), whole[5:12])
    order = rng.permutation(23)
    np.testing.assert_array_equal(features(X[order], frequencies), whole[order])


@both_types
def test_rows_that_are_huge_or_no_numbers_harm_no_neighbour(dtype):
    rng = np.random.default_rng(3)
    frequencies = rng.normal(size=(4, 20)).astype(dtype)
    phase = rng.uniform(0, 6, 3).astype(dtype)
    X = rng.normal(size=(12, 4)).astype(dtype)
    before = features(X, frequencies, phase)
    X[1], X[6, 2], X[7, 0] = X[1] * dtype(1e30), np.nan, np.inf
    after = features(X, frequencies, phase)
    rest = np.delete(np.arange(12), [1, 6, 7])
    np.testing.assert_array_equal(after[rest], before[rest])
    assert np.isnan(after[6]).all() and np.isnan(after[7]).all()
    cosines, sines = after[1, :17], after[1, 17:34]
    np.testing.assert_allclose(cosines**2 + sines**2, 2 / 37, rtol=1e-6)
    assert np.abs(after[1, 34:]).max() <= np.sqrt(2 / 37)


def test_numbers_whose_squares_overflow_have_small_angles_all_the_same():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(6, 3)).astype(np.float32)
    frequencies = rng.normal(size=(3, 10)).astype(np.float32)
    far = np.float32(2.0**80)
    np.testing.assert_array_equal(features(X * far, frequencies / far), features(X, frequencies))


@both_types
def test_frequencies_of_zero(dtype):
    X = np.ones((5, 2), dtype=dtype)
    np.testing.assert_array_equal(
        features(X, np.zeros((2, 3), dtype=dtype)) > 0.5, [[True] * 3 + [False] * 3] * 5
    )
