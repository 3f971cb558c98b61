"""Kernel regressions out of support revert to the target distribution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import likelier
from likelier import BayesianKernelRegressor, Evidence

SMOOTH = {
    "squares": lambda X: (X**2).sum(axis=1),
    "cube": lambda X: X[:, 0] ** 3,
    "exp": lambda X: np.exp(X[:, 0]),
    "slope": lambda X: 1e3 + 5.0 * X[:, 0],
}
OUT_OF_SUPPORT = np.full((2, 2), 1e6) * [[1.0], [-3.0]]


def smooth(kind="squares", n=1000):
    X = np.random.default_rng(0).normal(size=(n, 2))
    return X, SMOOTH[kind](X)


def check_far(model, y, far=OUT_OF_SUPPORT, weight=None):
    """The target mean, and an interval that covers nine tenths of the targets."""
    mean, spread = np.average(y, weights=weight), y.std()
    found, std = model.predict(far, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=0.0, atol=1e-5 * spread)  # experts: float32
    low, high = model.predict_interval(far, 0.9).T
    for bounds in zip(low, high, strict=True):
        inside = (y >= bounds[0] - 1e-9 * spread) & (y <= bounds[1] + 1e-9 * spread)
        assert np.average(inside, weights=weight) >= 0.9
    assert (std > 0.99 * spread).all()
    quantiles = model.predict_quantiles(far, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(quantiles, np.stack([low, found, high], axis=1), rtol=1e-6)
    np.testing.assert_allclose(model.predict_uncertainty(far).total, std**2, rtol=1e-6)
    peak = model.log_predictive_density(far, found)
    np.testing.assert_allclose(peak, -np.log(std) - 0.5 * np.log(2.0 * np.pi), rtol=1e-6)


@pytest.mark.parametrize("kind", SMOOTH)
@pytest.mark.parametrize("loss", ["gaussian", "epsilon_insensitive"])
def test_out_of_support_is_the_mean_of_the_targets_and_an_interval_of_theirs(kind, loss):
    X, y = smooth(kind)
    check_far(BayesianKernelRegressor(loss, random_state=0).fit(X, y), y)


def test_beyond_the_data_the_interval_grows_with_what_is_not_known():
    """The growth depends on length scales, which round differently across processors."""
    X, y = smooth()
    model = BayesianKernelRegressor(random_state=0).fit(X, y)
    along = np.array([1.0, 3.0, 5.0, 7.0, 20.0])[:, None] * np.ones(2)
    low, high = model.predict_interval(along).T
    assert (np.diff(high - low) > 0.0).all()
    assert (high - low)[0] < 0.01 * y.std() and (high - low)[3] > 5.0 * y.std()
    assert np.abs(model.predict(X) - y).max() < 0.1 * y.std()


def test_out_of_support_with_weights_sparse_rows_and_from_a_file(tmp_path):
    X, y = smooth()
    weight = np.random.default_rng(1).uniform(0.0, 3.0, len(y)) * (y > 1.0) + 0.01
    check_far(BayesianKernelRegressor(random_state=0).fit(X, y, weight), y, weight=weight)
    thin = BayesianKernelRegressor(random_state=0).fit(sparse.csr_matrix(X), y)
    check_far(thin, y, sparse.csr_matrix(OUT_OF_SUPPORT))
    likelier.save(thin, tmp_path / "m")
    check_far(likelier.load(tmp_path / "m"), y)


def test_out_of_support_from_streams_batches_and_experts():
    X, y = smooth(n=9000)
    blocks = [(X[i : i + 1500], y[i : i + 1500]) for i in range(0, 6000, 1500)]
    check_far(BayesianKernelRegressor(n_components=100, random_state=0).fit(blocks), y[:6000])
    model = BayesianKernelRegressor(n_components=100, random_state=0)
    for part in blocks:
        model.partial_fit(*part)
    assert "X" not in model.stream_
    mean, half = (
        model.predict(OUT_OF_SUPPORT),
        np.diff(model.predict_interval(OUT_OF_SUPPORT)) / 2.0,
    )
    assert np.abs(mean - y.mean()).max() < 0.1 * y.std()
    assert (half > np.quantile(np.abs(y - y.mean()), 0.9)).all()
    experts = BayesianKernelRegressor(inference=Evidence(n_experts=8), random_state=0).fit(X, y)
    assert experts.n_experts_
    check_far(experts, y)


def test_rows_far_from_all_landmarks_are_believed_once_they_have_been_learned():
    X, y = smooth(n=5000)
    model = BayesianKernelRegressor(n_components=100, random_state=1)
    model.partial_fit(X[:4500], y[:4500])
    rng = np.random.default_rng(2)
    for _ in range(3):
        model.partial_fit(1e4 + rng.normal(size=(300, 2)), 50.0 + 0.1 * rng.normal(size=300))
    assert model.posterior_["extrapolation_trust"] > 0.98
    np.testing.assert_allclose(model.predict(np.full((1, 2), 1e4)), 50.0, atol=2.0)
    assert model.score(X, y) > 0.99


def test_sparse_rows_that_share_nothing_with_the_training_rows():
    rows = sparse.random(2000, 20_000, 0.002, random_state=1, format="csr")
    y = rows @ np.random.default_rng(6).normal(size=20_000)
    model = BayesianKernelRegressor(random_state=0).fit(rows[:1500], y[:1500])
    found = model.predict(rows[1500:])
    # -2.8 with the constant alone; much less than zero says that means mean nothing
    assert model.score(rows[1500:], y[1500:]) > -0.6
    assert np.abs(found - y.mean()).max() < 4.0 * y.std()


def test_constant_targets_under_a_tube_know_their_unit():
    X, _ = smooth(n=60)
    for unit in (1e-3, 1.0, 1e3):
        model = BayesianKernelRegressor("epsilon_insensitive", random_state=0)
        low, high = model.fit(X, np.full(60, 3.0 * unit)).predict_interval(X[:3]).T
        assert (high - low < 0.01 * unit).all() and (np.abs(low - 3.0 * unit) < 0.01 * unit).all()
