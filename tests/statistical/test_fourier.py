"""Fourier features estimate the kernel without bias, and orthogonal ones with less error.

Seeds are fixed. With other seeds each z-test would fail by chance about once in 15,000 runs
(|z| > 4), and the two dozen of them together less than once in 500.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from likelier import FourierFeatures
from likelier.features.spectrum import draw_frequencies
from likelier.kernels import Laplacian, Matern, Rbf, make_kernel

SAMPLINGS = ("independent", "orthogonal", "quasi")
KERNELS = [Rbf(0.2), Laplacian(0.3), Matern(0.2, nu=1.5), Matern([0.1, 0.4, 0.2, 0.05], nu=2.5)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}{k.gamma}")
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS)


def estimates(kernel, sampling, width, repeats=400, **parameters):
    """Estimates of one kernel value near 0.5, one per seed, and the value itself."""
    X = np.array([[0.3, -0.2, 0.5, 0.1], [1.2, 0.6, -0.4, 0.9]])
    stream = np.random.default_rng(7)
    found = np.empty(repeats)
    for i in range(repeats):
        parameters |= {"kernel": kernel, "sampling": sampling, "random_state": stream}
        phi = FourierFeatures(width, **parameters).fit_transform(X)
        found[i] = phi[0] @ phi[1]
    return found, float(kernel.matrix(X)[0, 1])


@every_sampling
@every_kernel
@pytest.mark.parametrize("parameters", [{}, {"paired": False}], ids=["pairs", "phases"])
def test_no_bias(kernel, sampling, parameters):
    found, value = estimates(kernel, sampling, 12, **parameters)
    assert 0.15 < value < 0.8
    z = (found.mean() - value) / (found.std(ddof=1) / np.sqrt(len(found)))
    assert abs(z) < 4


def test_no_bias_with_an_odd_number_of_features():
    found, value = estimates(Rbf(0.2), "orthogonal", 5, repeats=1500)
    z = (found.mean() - value) / (found.std(ddof=1) / np.sqrt(len(found)))
    assert abs(z) < 4


def test_the_test_would_see_a_bias():
    """Frequencies from N(0, gamma I) instead of N(0, 2 gamma I): the kernel of half of gamma."""
    found, _ = estimates(Rbf(0.1), "orthogonal", 12)
    _, value = estimates(Rbf(0.2), "orthogonal", 12, repeats=1)
    z = (found.mean() - value) / (found.std(ddof=1) / np.sqrt(len(found)))
    assert abs(z) > 20


@every_sampling
def test_every_coordinate_has_the_law_of_the_kernel(sampling):
    """Kolmogorov-Smirnov over draws of single groups, kept apart so that they are independent.

    Each of the nine comparisons fails by chance once in 10,000.
    """
    laws = {Rbf(): stats.norm, Laplacian(): stats.cauchy, Matern(nu=1.5): stats.t(3)}
    stream = np.random.default_rng(0)
    for kernel, law in laws.items():
        draws = [draw_frequencies(kernel, 3, 4, sampling, stream)[1, 2] for _ in range(800)]
        assert stats.kstest(draws, law.cdf).pvalue > 1e-4, kernel


def test_lengths_of_orthogonal_frequencies_are_chi():
    stream = np.random.default_rng(1)
    lengths = np.linalg.norm(draw_frequencies(Rbf(), 16, 1600, "orthogonal", stream), axis=0)
    assert stats.kstest(lengths, stats.chi(16).cdf).pvalue > 1e-4


def mean_square_error(X, kernel, sampling, width, seeds=6):
    K = kernel.matrix(X)
    total = 0.0
    for seed in range(seeds):
        parameters = {"kernel": kernel, "sampling": sampling, "random_state": seed}
        phi = FourierFeatures(width, **parameters).fit_transform(X)
        total += ((phi @ phi.T - K) ** 2).mean()
    return total / seeds


@pytest.mark.parametrize("width", [32, 128, 512, 1024])
def test_orthogonal_features_halve_the_error_on_pendigits(data_set, width):
    X = data_set("pendigits").X.astype(np.float64)
    X = X[np.random.default_rng(0).choice(len(X), 600, replace=False)]
    kernel = make_kernel("rbf", gamma="median", X=X)
    error = {s: mean_square_error(X, kernel, s, width) for s in ("independent", "orthogonal")}
    assert error["orthogonal"] <= 0.5 * error["independent"]


@pytest.mark.parametrize("sampling", ["orthogonal", "quasi"])
def test_even_sampling_has_less_error_on_normal_data(sampling):
    X = np.random.default_rng(0).normal(size=(300, 8))
    kernel = make_kernel("rbf", gamma="median", X=X)
    independent = mean_square_error(X, kernel, "independent", 512, seeds=10)
    assert mean_square_error(X, kernel, sampling, 512, seeds=10) < 0.6 * independent


def test_the_error_falls_like_one_over_the_number_of_features():
    X = np.random.default_rng(0).normal(size=(200, 8))
    kernel = make_kernel("matern52", gamma="median", X=X)
    errors = [mean_square_error(X, kernel, "independent", m, seeds=20) for m in (64, 256, 1024)]
    ratios = np.array(errors[:-1]) / errors[1:]
    assert ((2.8 < ratios) & (ratios < 5.6)).all()
