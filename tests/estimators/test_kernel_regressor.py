"""`BayesianKernelRegressor`: accuracy, intervals, weights, streams, saving."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import likelier
from likelier import BayesianKernelRegressor
from likelier.fitting.duplicates import MERGE_ROWS
from likelier.kernel_machine.features import landmark_map
from likelier.kernel_machine.regression import (
    left_out,
    regression_sums,
    solve_weights,
)


def wave(n=800, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 3))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
    return X, 10.0 + 4.0 * (f + noise * rng.normal(size=n)), 10.0 + 4.0 * f


def test_finds_function_and_noise():
    X, y, f = wave(1500)
    model = BayesianKernelRegressor(random_state=0).fit(X[:1000], y[:1000])
    assert np.sqrt(np.mean((model.predict(X[1000:]) - f[1000:]) ** 2)) < 0.5
    assert model.noise_ == pytest.approx(1.2, rel=0.1)
    assert model.feature_relevance_[2] < 0.05


def test_intervals_cover():
    X, y, _ = wave(2500, seed=1)
    model = BayesianKernelRegressor(random_state=0).fit(X[:1000], y[:1000])
    low, high = model.predict_interval(X[1000:], 0.9).T
    # 1,500 rows: a standard error of 0.8%, and the model's own of about one
    assert np.mean((low <= y[1000:]) & (y[1000:] <= high)) == pytest.approx(0.9, abs=0.035)
    q = model.predict_quantiles(X[:5], [0.05, 0.5, 0.95])
    np.testing.assert_allclose(q[:, [0, 2]], model.predict_interval(X[:5], 0.9))
    np.testing.assert_allclose(q[:, 1], model.predict(X[:5]))


def test_agrees_with_an_exact_gaussian_process():
    X, y, _ = wave(200)
    gamma = np.array([1.5, 0.4, 0.1])
    model = BayesianKernelRegressor(gamma=gamma, alpha=0.05, random_state=0).fit(X, y)
    noise = (model.noise_ / model.target_scale_) ** 2
    kernel = ConstantKernel(noise / 0.05) * RBF(1.0 / gamma) + WhiteKernel(noise)
    peer = GaussianProcessRegressor(kernel, optimizer=None)
    t = (y - model.target_mean_) / model.target_scale_
    # our constant has a weak prior of its own: variance noise / 0.01
    peer.kernel = kernel + ConstantKernel(noise / 0.01)
    peer.fit(X, t)
    new = wave(50, seed=5)[0]
    mean, std = peer.predict(new, return_std=True)
    got, spread = model.predict(new, return_std=True)
    np.testing.assert_allclose((got - model.target_mean_) / model.target_scale_, mean, atol=0.02)
    np.testing.assert_allclose(spread / model.target_scale_, std, rtol=0.02)


def test_left_out_residuals_by_brute_force():
    X, y, _ = wave(60)
    t, gamma = (y - y.mean()) / y.std(), np.full(3, 0.8)
    made = landmark_map(X[:20], np.zeros(3), gamma)
    Phi = made(X)
    weights = solve_weights(regression_sums(Phi, t, None), 0.1)
    residual = made.residual(Phi)
    total = 0.0
    for i in range(60):
        rest = np.arange(60) != i
        part = solve_weights(regression_sums(Phi[rest], t[rest], None), 0.1)
        away = (t[i] - Phi[i] @ part.mean) ** 2
        total += away / (1.0 + part.variance(Phi[[i]], residual[[i]])[0]) / 60
    rest = left_out(weights, Phi, t, None, residual)
    assert np.mean(rest**2) == pytest.approx(total, rel=1e-6)


def test_out_of_support_the_variance_is_that_of_the_prior():
    X, y, _ = wave(300)
    model = BayesianKernelRegressor(random_state=0).fit(X, y)
    far = model.predict_uncertainty(X[:3] + 1e4)
    prior = model.noise_**2 / model.alpha_
    np.testing.assert_allclose(far.epistemic, prior, rtol=0.3)
    near = model.predict_uncertainty(X)
    assert np.median(near.epistemic) < 0.1 * prior
    assert model.score_samples(X).min() > model.score_samples(X[:1] + 1e4)[0]
    np.testing.assert_allclose(near.total, near.aleatoric + near.epistemic)


def test_epsilon_insensitive_resists_outliers():
    X, y, f = wave(800)
    y[::20] += 300.0
    robust = BayesianKernelRegressor("epsilon_insensitive", random_state=0).fit(X, y)
    plain = BayesianKernelRegressor(random_state=0).fit(X, y)
    keep = np.arange(len(y)) % 20 != 0
    errors = [np.mean(np.abs(m.predict(X[keep]) - f[keep])) for m in (robust, plain)]
    assert errors[0] < 0.6 * errors[1]
    assert robust.predict_interval(X[:4]).shape == (4, 2)


def test_weights_count_rows_and_sparse_rows_work():
    X, y, _ = wave(120)
    weight = np.random.default_rng(0).integers(0, 4, 120)
    copies = np.repeat(np.arange(120), weight)
    a = BayesianKernelRegressor(random_state=0).fit(X, y, sample_weight=weight.astype(float))
    b = BayesianKernelRegressor(random_state=0).fit(X[copies], y[copies])
    np.testing.assert_allclose(a.predict(X), b.predict(X), rtol=1e-6)
    thin = BayesianKernelRegressor(random_state=0).fit(sparse.csr_matrix(X), y)
    assert thin.score(sparse.csr_matrix(X), y) > 0.8


def test_batches_and_streams_add_up():
    X, y, f = wave(6000)
    model = BayesianKernelRegressor(n_components=100, random_state=0)
    for start in range(0, 6000, 1500):
        model.partial_fit(X[start : start + 1500], y[start : start + 1500])
    assert "X" not in model.stream_
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.4
    assert model.noise_ == pytest.approx(1.2, rel=0.1)
    blocks = [(X[i : i + 1000], y[i : i + 1000]) for i in range(0, 3000, 1000)]
    stream = BayesianKernelRegressor(n_components=100, random_state=0).fit(blocks)
    assert np.sqrt(np.mean((stream.predict(X) - f) ** 2)) < 0.5


def test_save_load_and_bits(tmp_path):
    X, y, _ = wave(150)
    model = BayesianKernelRegressor(random_state=0).fit(X, y)
    likelier.save(model, tmp_path / "m")
    assert likelier.load(tmp_path / "m").predict(X).tobytes() == model.predict(X).tobytes()
    again = BayesianKernelRegressor(random_state=0).fit(X, y)
    assert again.predict(X).tobytes() == model.predict(X).tobytes()


def test_constant_targets():
    X, _, _ = wave(40)
    model = BayesianKernelRegressor(random_state=0).fit(X, np.full(40, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0)


def test_labels_are_refused_with_advice():
    X, _, _ = wave(20)
    with pytest.raises(ValueError, match="BayesianKernelClassifier"):
        BayesianKernelRegressor().fit(X, np.array(["a", "b"] * 10))
    with pytest.raises(ValueError, match="epsilon"):
        BayesianKernelRegressor(likelier.losses.EpsilonInsensitive(epsilon=-1.0)).fit(X, X[:, 0])


def test_duplicates_of_rows_do_not_tell_how_large_the_noise_is():
    """Leave-one-out residuals of duplicates would underestimate the noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (1100, 6))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(size=len(X))
    once = BayesianKernelRegressor(random_state=0).fit(X, y)
    twice = BayesianKernelRegressor(random_state=0).fit(np.tile(X, (2, 1)), np.tile(y, 2))
    assert len(X) * 2 > MERGE_ROWS
    assert twice.noise_ > 0.975 * once.noise_  # 0.95 if duplicates counted as other rows
