"""The joint energy of weights, intercepts and kernel scales: every gradient by differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier.base import Batch
from likelier.kernel_machine import fourier_machine
from likelier.kernel_machine.fourier_machine import FourierMachine, draw_frequencies, start_scale
from likelier.losses import EpsilonInsensitive, LogLoss, MulticlassHinge, Softmax, SquaredError

N, D_IN, D, P = 30, 5, 7, 3
KINDS = {
    "softmax": (Softmax(), 4),
    "two classes": (Softmax(), 2),
    "hinge": (MulticlassHinge(), 4),
    "gaussian": (SquaredError(), 1),
    "epsilon": (EpsilonInsensitive(0.1), 1),
}


def case(kind, linear=False, data=np.asarray, weighted=True, dtype=np.float64):
    loss, K = KINDS[kind]
    rng = np.random.default_rng(3)
    frequencies = None if linear else draw_frequencies(D, D_IN, rng)
    model = FourierMachine(
        loss, D_IN, K, frequencies, 0.5, alpha=0.3, gamma_scale=0.8, dispersion=0.7
    )
    theta = model.start(P, rng) + 0.4 * rng.standard_normal((P, model.n_parameters))
    X = rng.standard_normal((N, D_IN)) * (rng.random((N, D_IN)) < 0.7)
    y = rng.integers(0, K, N).astype(float) if K > 1 else rng.standard_normal(N)
    weight = rng.uniform(0.2, 2.0, N) if weighted else None
    return model, theta, Batch(data(X.astype(dtype)), y, weight)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("linear", [False, True], ids=["fourier", "linear"])
@pytest.mark.parametrize("data", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_gradient_of_the_energy(kind, linear, data):
    """Every parameter (W, b, log gamma with Jacobian) of every particle."""
    model, theta, batch = case(kind, linear, data)
    energy, gradient = model.energy_gradient(theta, batch, 50.0)
    numeric, h = np.empty_like(gradient), 1e-5
    for j in range(model.n_parameters):
        step = h * np.eye(model.n_parameters)[j]
        up, down = (model.energy(theta + s, batch, 50.0) for s in (step, -step))
        numeric[:, j] = (up - down) / (2.0 * h)
    assert energy.shape == (P,)
    F, K = model.n_components, model.n_outputs
    for block in (slice(0, F * K), slice(F * K, (F + 1) * K), slice((F + 1) * K, None)):
        right = numeric[:, block]
        if right.size:
            assert np.abs(gradient[:, block] - right).max() <= 1e-6 * np.abs(right).max()


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_by_gamma_itself(kind):
    model, theta, batch = case(kind)
    parts, h = model.split(theta), 1e-6
    found = model.loss_terms(theta, batch).gamma

    def loss(gamma):
        point = model.join(parts.weights, parts.intercept, np.log(gamma))
        return model.loss_terms(point, batch).value

    for j in range(D_IN):
        step = h * np.eye(D_IN)[j]
        numeric = (loss(parts.gamma + step) - loss(parts.gamma - step)) / (2.0 * h)
        assert np.abs(found[:, j] - numeric).max() <= 1e-6 * np.abs(found).max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 1 << 12, 1 << 30])
def test_chunks_change_nothing(kind, size, monkeypatch):
    model, theta, batch = case(kind)
    expected, scores = model.energy_gradient(theta, batch, 9.0), model.scores(theta, batch.X)
    monkeypatch.setattr(fourier_machine, "CHUNK_BYTES", size)
    for found, right in zip(model.energy_gradient(theta, batch, 9.0), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.scores(theta, batch.X), scores, rtol=1e-12, atol=1e-12)


def test_scores_by_definition():
    model, theta, batch = case("softmax")
    parts = model.split(theta)
    for p in range(P):
        angle = batch.X @ (parts.gamma[p] * model.frequencies).T
        phi = np.hstack([np.cos(angle), np.sin(angle)]) / np.sqrt(D)
        expected = phi @ parts.weights[p] + parts.intercept[p]
        np.testing.assert_allclose(model.scores(theta, batch.X)[p], expected, atol=1e-12)


def test_features_approximate_the_ard_kernel():
    """4,000 frequencies: a standard error of at most 0.016 each; five of them leave 6e-7."""
    rng = np.random.default_rng(0)
    gamma, X = np.array([[0.2, 1.0, 0.0]]), rng.standard_normal((10, 3))
    model = FourierMachine(Softmax(), 3, 2, draw_frequencies(4000, 3, rng))
    phi = model._features(gamma, X)[0]
    gap = (X[:, None] - X) * gamma
    np.testing.assert_allclose(phi @ phi.T, np.exp(-0.5 * (gap**2).sum(axis=2)), atol=0.08)
    np.testing.assert_allclose(np.diagonal(phi @ phi.T), 1.0)


@pytest.mark.parametrize("kind", ["softmax", "hinge", "gaussian"])
def test_single_precision(kind):
    model, theta, batch = case(kind)
    narrow = Batch(batch.X.astype(np.float32), batch.y, batch.weight)
    right, found = (model.energy_gradient(theta, b, 9.0)[1] for b in (batch, narrow))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


def test_start_suits_the_median_distance():
    X = np.random.default_rng(0).standard_normal((400, 9))
    gamma = start_scale(X)
    assert start_scale(10.0 * X) == pytest.approx(gamma / 10.0)
    assert start_scale(sparse.csr_array(X)) == pytest.approx(gamma)
    assert gamma == pytest.approx(1.5 / np.sqrt(2.0 * 9), rel=0.1)
    assert start_scale(np.ones((5, 2))) == 1.0  # rows that are all alike, or only one
    assert start_scale(np.ones((1, 2))) == 1.0
    model = FourierMachine(Softmax(), 9, 3, draw_frequencies(6, 9, np.random.default_rng(1)), gamma)
    start = model.split(model.start(50, np.random.default_rng(2)))
    assert np.median(start.gamma) == pytest.approx(gamma, rel=0.15)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": np.nan}, "alpha"),
        ({"intercept_precision": 0.0}, "intercept_precision"),
        ({"gamma_scale": -1.0}, "gamma_scale"),
        ({"gamma0": np.inf}, "gamma0"),
        ({"dispersion": 0.0}, "dispersion"),
        ({"count": -1.0}, "count"),
        ({"frequencies": np.ones((4, 3))}, "frequencies"),
        ({"loss": LogLoss()}, "softmax"),
        ({"loss": SquaredError()}, "n_outputs=1"),
    ],
)
def test_bad_parameters_are_named(options, word):
    given = {"loss": Softmax(), "n_features": 2, "n_outputs": 3} | options
    with pytest.raises(ValueError, match=word):
        FourierMachine(**given)


def test_what_cannot_be_predicted_is_refused():
    model, theta, batch = case("epsilon")
    with pytest.raises(ValueError, match="calibrate"):
        model.predictive(theta, batch.X)
    model, theta, batch = case("softmax")
    with pytest.raises(ValueError, match="y is missing"):
        model.energy(theta, Batch(batch.X), 1.0)


def test_regression_predicts_normal_distributions():
    model, theta, batch = case("gaussian")
    predictive = model.predictive(theta, batch.X)
    scores = model.scores(theta, batch.X)[..., 0]
    np.testing.assert_allclose(predictive.mean(), scores.mean(axis=0))
    np.testing.assert_allclose(predictive.std() ** 2, 0.7 + scores.var(axis=0))
