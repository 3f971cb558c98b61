"""A certificate is given only where the optimum was reached and is the only one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conformance.test_inference import ALL, problem

from likelier import losses
from likelier.engines import LocalEngine
from likelier.glm.certificate import MAX_DISTANCE, certify
from likelier.glm.model import LinearModel, LinearStats
from likelier.glm.penalty import ElasticNet

SMOOTH = [loss for loss in ALL if loss.smooth]


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
def test_a_certified_point_is_the_optimum(loss):
    model, engine = problem(loss)
    theta, certificate = certify(model, engine, model.zeros())
    assert not certificate.reason
    assert certificate.n_rows == 200
    assert certificate.distance <= MAX_DISTANCE
    stats = engine.reduce(lambda b: model.stats(theta, b, order=1), LinearStats.__add__)
    gradient = stats.gradient / 200 + model.penalty.l2[:, None] * theta
    assert abs(gradient).max() < 1e-5
    p = 5 * model.n_outputs if loss.coupled else 5
    assert certificate.covariance.shape == (1 if loss.coupled else model.n_outputs, p, p)
    for matrix in certificate.covariance:
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
        assert np.linalg.eigvalsh(matrix).min() > -1e-10


def test_no_certificate_where_newton_does_not_arrive():
    """From a far start eight undamped steps are not enough, or lead away."""
    model, engine = problem(losses.LogLoss(), alpha=0.0)
    start = np.full((5, 3), 40.0)
    with np.errstate(all="ignore"):
        _, certificate = certify(model, engine, start)
    assert certificate.covariance.size == 0
    assert certificate.reason


def test_no_certificate_for_a_kink_in_the_penalty():
    model, engine = problem(losses.LogLoss())
    model = LinearModel(
        model.loss, 4, 3, True, True, ElasticNet(np.zeros(5), np.append(np.ones(4), 0.0))
    )
    theta = np.ones((5, 3))
    same, certificate = certify(model, engine, theta)
    assert same is theta
    assert "L1" in certificate.reason
    assert certificate.covariance.size == 0


@pytest.mark.parametrize("n_rows", [4, 5, 6])
def test_no_certificate_for_as_many_parameters_as_rows(n_rows):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n_rows, 4)), rng.standard_normal(n_rows)
    l2 = np.append(np.full(4, 0.1), 0.0)
    model = LinearModel(losses.SquaredError(), 4, 1, False, True, ElasticNet(l2, 0.0 * l2))
    _, certificate = certify(model, LocalEngine(X, y), model.zeros())
    assert bool(certificate.covariance.size) == (n_rows > 5)
    assert ("identify" in certificate.reason) == (n_rows <= 5)


def test_no_certificate_for_twins_without_penalty():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3))
    X[:, 2] = X[:, 0] + X[:, 1]
    y = rng.standard_normal(50)
    for strength, regular in ((0.0, False), (0.1, True)):
        l2 = np.append(np.full(3, strength), 0.0)
        model = LinearModel(losses.SquaredError(), 3, 1, False, True, ElasticNet(l2, 0.0 * l2))
        _, certificate = certify(model, LocalEngine(X, y), model.zeros())
        assert bool(certificate.covariance.size) == regular
        assert ("combinations" in certificate.reason) != regular
