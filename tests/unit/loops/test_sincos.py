"""The compiled sine, cosine and exponential: accuracy, range, and what is no number."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.loops.exponential import exp_values
from likelier.loops.sincos import fourier_features, sincos

BOUND = {np.float32: 1.5e-7, np.float64: 3.2e-16}
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def exact(angles):
    """Sine and cosine in extended precision, of the angles as they are stored."""
    wide = angles.astype(np.longdouble)
    return np.sin(wide), np.cos(wide)


@both_types
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 10.0, 1e3, 8000.0])
def test_sine_and_cosine_are_right_to_the_last_digits(dtype, size):
    angles = np.random.default_rng(0).uniform(-size, size, 20_000).astype(dtype)
    for ours, theirs in zip(sincos(angles), exact(angles), strict=True):
        assert ours.dtype == dtype
        assert np.abs(ours - theirs).max() <= BOUND[dtype]


@both_types
def test_multiples_of_half_a_turn(dtype):
    angles = (np.arange(-2000, 2001) * (np.pi / 4)).astype(dtype)
    for ours, theirs in zip(sincos(angles), exact(angles), strict=True):
        assert np.abs(ours - theirs).max() <= BOUND[dtype]


@both_types
def test_small_angles_keep_their_relative_precision(dtype):
    angles = np.logspace(-30, -2, 500).astype(dtype)
    sines, _ = sincos(angles)
    assert np.abs(sines / exact(angles)[0] - 1).max() <= 2 * np.finfo(dtype).eps


@both_types
def test_huge_angles_are_computed_by_the_c_library(dtype):
    angles = np.array([0.5, 1e5, -3e7, 1e15, 1e30, -1e38, 2.0], dtype=dtype)
    sines, cosines = sincos(angles)
    wide = angles.astype(np.float64)
    np.testing.assert_allclose(sines, np.sin(wide), atol=2 * BOUND[dtype])
    np.testing.assert_allclose(cosines, np.cos(wide), atol=2 * BOUND[dtype])


@both_types
def test_around_the_border_of_the_fast_range(dtype):
    border = 8192.0 if dtype is np.float32 else 1e6
    angles = np.linspace(0.999 * border, 1.001 * border, 4001).astype(dtype)
    for ours, theirs in zip(sincos(angles), exact(angles), strict=True):
        assert np.abs(ours - theirs).max() <= BOUND[dtype]


@both_types
def test_what_is_no_number_gives_none_and_harms_no_neighbour(dtype):
    angles = np.full(40, 0.7, dtype=dtype)
    angles[[3, 17, 39]] = np.nan, np.inf, -np.inf
    for ours, value in zip(sincos(angles), (np.sin(0.7), np.cos(0.7)), strict=True):
        assert np.isnan(ours[[3, 17, 39]]).all()
        rest = np.delete(ours, [3, 17, 39])
        np.testing.assert_allclose(rest, value, rtol=3e-7)


@both_types
@pytest.mark.parametrize(("pairs", "single"), [(5, 0), (0, 7), (4, 1), (1, 0), (0, 1)])
def test_pairs_and_phases(dtype, pairs, single):
    rng = np.random.default_rng(1)
    angles = rng.normal(size=(6, pairs + single)).astype(dtype)
    phase = rng.uniform(0, 6, single).astype(dtype)
    out = np.full((6, 2 * pairs + single), np.nan, dtype=dtype)
    a, b = angles[:, :pairs].copy(), angles[:, pairs:].copy()
    fourier_features(angles, phase, out)
    expected = np.concatenate([np.cos(a), np.sin(a), np.cos(b + phase)], axis=1)
    np.testing.assert_allclose(out, np.sqrt(2 / out.shape[1]) * expected, atol=4 * BOUND[dtype])


@both_types
def test_empty_arrays(dtype):
    sines, cosines = sincos(np.empty((0, 3), dtype=dtype))
    assert sines.shape == cosines.shape == (0, 3)


@both_types
def test_exponential(dtype):
    low = -80.0 if dtype is np.float32 else -700.0
    x = np.linspace(low, 0.0, 50_001).astype(dtype)
    values = -x[None, :].copy()
    exp_values(values, dtype(1))
    exact_values = np.exp(x.astype(np.longdouble))
    relative = np.abs(values[0] / exact_values - 1).max()
    assert relative <= (1.3e-7 if dtype is np.float32 else 3e-16)
    assert values[0, -1] == 1.0


@both_types
def test_exponential_of_extremes(dtype):
    values = np.array([[1e4, np.inf, np.nan, 0.0, 88.0 if dtype is np.float32 else 709.0]], dtype)
    exp_values(values, dtype(1))
    np.testing.assert_array_equal(values, np.array([[0.0, 0.0, np.nan, 1.0, 0.0]], dtype))
