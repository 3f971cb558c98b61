"""Fourier features: distribution of the frequencies, transform, and invalid arguments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import FourierFeatures
from likelier.features.fourier import MAX_TILED_INPUTS, MIN_TILED_ROWS, _default_components
from likelier.features.spectrum import draw_frequencies, scales
from likelier.kernels import Laplacian, Matern, Poly, Rbf

SAMPLINGS = ("independent", "orthogonal", "quasi")


def rows(n=50, d=5, dtype=np.float64):
    return np.random.default_rng(0).normal(size=(n, d)).astype(dtype)


# -- frequencies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Rbf(), Laplacian(), Matern(nu=1.5)], ids=str)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("d", "count"), [(1, 1), (1, 7), (5, 3), (5, 5), (5, 23)])
def test_shapes_and_seeds(kernel, sampling, d, count):
    draws = draw_frequencies(kernel, d, count, sampling, np.random.default_rng(3))
    again = draw_frequencies(kernel, d, count, sampling, np.random.default_rng(3))
    assert draws.shape == (d, count)
    assert np.isfinite(draws).all()
    np.testing.assert_array_equal(draws, again)


@pytest.mark.parametrize("kernel", [Rbf(), Matern(nu=2.5)], ids=str)
def test_orthogonal_frequencies_are_at_right_angles_within_groups(kernel):
    draws = draw_frequencies(kernel, 6, 15, "orthogonal", np.random.default_rng(0))
    for group in (draws[:, :6], draws[:, 6:12], draws[:, 12:]):
        products = group.T @ group
        lengths = np.sqrt(np.diagonal(products))
        off = products / np.outer(lengths, lengths) - np.eye(len(lengths))
        assert np.abs(off).max() < 1e-13
        assert len(set(lengths.round(6))) == len(lengths)  # random, not all sqrt(d)


def test_scales_follow_gamma():
    np.testing.assert_allclose(scales(Rbf(0.5), 3), 1.0)
    np.testing.assert_allclose(scales(Matern([0.5, 2.0]), 2), [1.0, 2.0])
    np.testing.assert_allclose(scales(Laplacian([0.5, 2.0]), 2), [0.5, 2.0])


def test_kernels_without_a_spectral_density_are_refused():
    with pytest.raises(ValueError, match="'poly' has no random Fourier features.*Nystroem"):
        draw_frequencies(Poly(), 2, 3, "quasi", np.random.default_rng(0))


def test_too_many_features_for_a_sobol_sequence():
    with pytest.raises(ValueError, match="sampling='quasi' .* use sampling='orthogonal'"):
        draw_frequencies(Rbf(), 30_000, 2, "quasi", np.random.default_rng(0))


# -- features --------------------------------------------------------------------------------------


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("width", [1, 2, 9, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [50, MIN_TILED_ROWS + 5])
def test_features_are_the_formula(n, dtype, width, paired):
    X = rows(n, dtype=dtype)
    model = FourierFeatures(width, gamma=0.3, paired=paired, random_state=0).fit(X)
    single = len(model.phase_)
    assert single == (width % 2 if paired else width)
    assert model.frequencies_.dtype == model.phase_.dtype == dtype
    angles = X.astype(float) @ model.frequencies_.astype(float)
    pairs = angles[:, : angles.shape[1] - single]
    alone = angles[:, angles.shape[1] - single :] + model.phase_
    expected = np.concatenate([np.cos(pairs), np.sin(pairs), np.cos(alone)], axis=1)
    features = model.transform(X)
    assert features.dtype == dtype and features.shape == (n, width)
    tolerance = 1e-5 if dtype is np.float32 else 1e-14
    np.testing.assert_allclose(features, np.sqrt(2 / width) * expected, atol=tolerance)


def test_blocks_do_not_show():
    X = rows(3000)
    model = FourierFeatures(300, random_state=0).fit(X)
    whole = model.transform(X)
    pieces = [model.transform(X[i : i + 700]) for i in range(0, 3000, 700)]
    np.testing.assert_array_equal(whole, np.concatenate(pieces))
    few = [model.transform(X[i : i + 50]) for i in range(0, 500, 50)]
    np.testing.assert_allclose(whole[:500], np.concatenate(few), atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_order_in_memory_does_not_show(dtype):
    X = rows(300, dtype=dtype)
    model = FourierFeatures(30, random_state=0).fit(X)
    expected = model.transform(X)
    read_only = X.copy()
    read_only.flags.writeable = False
    wide = np.repeat(X, 3, axis=1)[:, ::3]
    shifted = np.frombuffer(b"." + X.tobytes(), np.uint8)[1:].view(dtype).reshape(X.shape)
    assert not shifted.flags.aligned
    for other in (np.asfortranarray(X), read_only, wide, X[::-1][::-1], shifted):
        params = {"frequencies": model.frequencies_, "phase": model.phase_}
        np.testing.assert_array_equal(model.apply(params, other), expected)


@pytest.mark.parametrize("n_inputs", [MAX_TILED_INPUTS, MAX_TILED_INPUTS + 1])
def test_few_and_many_inputs(n_inputs):
    X = rows(MIN_TILED_ROWS, n_inputs)
    model = FourierFeatures(40, random_state=0).fit(X)
    angles = X @ model.frequencies_
    expected = np.sqrt(2 / 40) * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    np.testing.assert_allclose(model.transform(X), expected, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_have_the_features_of_dense_ones(dtype):
    X = rows(dtype=dtype) * (np.random.default_rng(1).random((50, 5)) < 0.5)
    for parameters in ({}, {"gamma": "median"}, {"gamma": [1.0, 0.2, 0.1, 0.0, 3.0]}):
        dense = FourierFeatures(20, random_state=0, **parameters).fit(X)
        for kind in (sparse.csr_array, sparse.csr_matrix, sparse.csc_array):
            other = FourierFeatures(20, random_state=0, **parameters).fit(kind(X))
            features = other.transform(kind(X))
            assert features.dtype == dtype
            np.testing.assert_allclose(features, dense.transform(X), atol=2e-6)


def test_rows_may_be_written_over():
    """Far rows are mended by the same rule as when they are written elsewhere."""
    X = np.random.default_rng(0).normal(size=(300, 20)) * np.geomspace(1.0, 1e20, 300)[:, None]
    model = FourierFeatures(20, gamma=0.5, random_state=0).fit(X[:100])
    wanted = model.transform(X)
    np.testing.assert_array_equal(model.transform(X, out=X), wanted)


def test_output_can_be_given():
    X = rows(dtype=np.float32)
    model = FourierFeatures(20, random_state=0).fit(X)
    out = np.empty((50, 20), dtype=np.float32)
    assert model.transform(X, out=out) is out
    np.testing.assert_array_equal(out, model.transform(X))
    for bad in (np.empty((50, 20)), np.empty((49, 20), np.float32)):
        with pytest.raises(ValueError, match="out must be a C-contiguous float32 array"):
            model.transform(X, out=bad)


def test_it_is_a_feature_map():
    X = rows()
    model = FourierFeatures(20, gamma=0.4)
    params = model.init(np.random.default_rng(5), X)
    assert set(params) == {"frequencies", "phase"}
    features = model.apply(params, X)
    np.testing.assert_allclose((features**2).sum(axis=1), 1.0)  # pairs: exactly one
    fitted = FourierFeatures(20, gamma=0.4, random_state=np.random.default_rng(5)).fit(X)
    np.testing.assert_array_equal(fitted.transform(X), features)


@pytest.mark.parametrize("n", [50, 200])
def test_huge_rows_stay_bounded(n):
    X = rows(n)
    model = FourierFeatures(20, gamma=1.0, random_state=0).fit(X)
    for size in (1e4, 1e8, 1e30):
        features = model.transform(size * X)
        np.testing.assert_allclose((features**2).sum(axis=1), 1.0)


def test_automatic_sizes():
    sizes = {(10, 3): 128, (1000, 3): 1024, (10**6, 3): 2048, (10, 300): 1024, (10, 4000): 2048}
    assert {shape: _default_components(*shape) for shape in sizes} == sizes
    assert FourierFeatures().fit(rows()).n_components_ == _default_components(50, 5) == 128


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_components": 0}, ValueError, "n_components must be at least 1"),
        ({"n_components": 2.5}, TypeError, "n_components must be a positive integer"),
        ({"n_components": "many"}, ValueError, "n_components must be .* 'auto', got 'many'"),
        ({"sampling": "random"}, ValueError, "sampling must be one of"),
        ({"kernel": "poly"}, ValueError, "no random Fourier features"),
        ({"kernel": "rbff"}, ValueError, "kernel='rbff' is not known"),
        ({"gamma": "wide"}, ValueError, "gamma='wide' is not known"),
        ({"gamma": -1.0}, ValueError, "gamma"),
        ({"gamma": [1.0, 2.0]}, ValueError, "gamma has 2 entries.*5 features"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        FourierFeatures(**parameters).fit(rows())
