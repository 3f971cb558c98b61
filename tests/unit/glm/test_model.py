"""The linear model: derivatives by finite differences, sums that add up, dense and sparse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from tests.unit.glm.test_sgd_loops import ALL, draw, make_model

from likelier import losses
from likelier.base import Batch
from likelier.glm.model import LinearStats

every_loss = pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
every_kind = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
KINKED = [loss for loss in ALL if not loss.smooth and not loss.coupled]


def problem(loss, fit_intercept=True, kind=np.asarray, seed=0):
    X, y, weight, K = draw(loss, seed=seed)
    model = make_model(loss, X.shape[1], K, fit_intercept, 0.2)
    theta = 0.3 * np.random.default_rng(seed + 1).standard_normal((model.n_rows_theta, K))
    return model, theta, Batch(kind(X), y, weight)


def gradient_by_differences(function, theta, h=1e-6):
    out = np.empty_like(theta)
    for at in np.ndindex(theta.shape):
        step = np.zeros_like(theta)
        step[at] = h
        out[at] = (function(theta + step) - function(theta - step)) / (2.0 * h)
    return out


@every_loss
@every_kind
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "origin"])
def test_gradient(loss, kind, fit_intercept):
    model, theta, batch = problem(loss, fit_intercept, kind)
    stats = model.stats(theta, batch, order=1)
    numeric = gradient_by_differences(lambda t: model.stats(t, batch).value.sum(), theta)
    np.testing.assert_allclose(stats.gradient, numeric, atol=1e-5, rtol=1e-5)
    assert stats.hessian is None and stats.meat is None


@pytest.mark.parametrize("loss", [loss for loss in ALL if loss.smooth], ids=lambda loss: loss.name)
@every_kind
def test_hessian(loss, kind):
    model, theta, batch = problem(loss, True, kind)
    stats = model.stats(theta, batch, order=2)
    p, K = theta.shape

    def gradient(point):
        return model.stats(point, batch, order=1).gradient

    for j, k in np.ndindex(p, K):
        step = np.zeros_like(theta)
        step[j, k] = 1e-6
        numeric = (gradient(theta + step) - gradient(theta - step)) / 2e-6
        if loss.coupled:
            ours = stats.hessian[0].reshape(K, p, K, p)[k, j].T
        else:
            ours = np.zeros((p, K))
            ours[:, k] = stats.hessian[k][j]
        np.testing.assert_allclose(ours, numeric, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("loss", KINKED, ids=lambda loss: loss.name)
def test_envelope_has_derivative_and_curvature(loss):
    """And lies below the loss by at most half the width (derivatives are at most one)."""
    model, theta, batch = problem(loss)
    width = 0.1
    stats = model.stats(theta, batch, order=2, width=width)
    plain = model.stats(theta, batch)
    assert (stats.value <= plain.value + 1e-12).all()
    assert (plain.value - stats.value <= 0.5 * width * batch.weight.sum() + 1e-12).all()
    numeric = gradient_by_differences(
        lambda t: model.stats(t, batch, width=width).value.sum(), theta
    )
    np.testing.assert_allclose(stats.gradient, numeric, atol=1e-5)
    assert np.linalg.eigvalsh(stats.hessian).min() >= -1e-9


@every_loss
@every_kind
def test_statistics_add_up_over_any_split(loss, kind):
    model, theta, batch = problem(loss, True, kind)
    whole = model.stats(theta, batch, order=2, meat=True)
    cuts = [slice(0, 7), slice(7, 8), slice(8, 50)]
    parts = [
        model.stats(theta, Batch(batch.X[c], batch.y[c], batch.weight[c]), order=2, meat=True)
        for c in cuts
    ]
    total = parts[0] + parts[1] + parts[2]
    assert isinstance(total, LinearStats)
    assert total.n_rows == whole.n_rows == 50
    for name in ("value", "gradient", "hessian", "meat"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name), atol=1e-9)


@every_loss
def test_listed_rows_are_the_rows_themselves(loss):
    model, theta, batch = problem(loss)
    rows = np.array([5, 1, 9])
    listed = model.stats(theta, Batch(batch.X, batch.y, batch.weight, rows=rows), order=1)
    own = model.stats(theta, Batch(batch.X[rows], batch.y[rows], batch.weight[rows]), order=1)
    np.testing.assert_array_equal(listed.gradient, own.gradient)
    assert listed.n_rows == 3


@every_loss
def test_meat_is_the_sum_of_outer_products_of_row_gradients(loss):
    model, theta, batch = problem(loss)
    stats = model.stats(theta, batch, order=2, meat=True)
    rows = [
        model.stats(
            theta, Batch(batch.X[i : i + 1], batch.y[i : i + 1], batch.weight[i : i + 1]), order=1
        ).gradient
        for i in range(50)
    ]
    if loss.coupled:
        flat = np.stack([g.T.ravel() for g in rows])
        np.testing.assert_allclose(stats.meat[0], flat.T @ flat, atol=1e-9)
    else:
        for k in range(theta.shape[1]):
            output = np.stack([g[:, k] for g in rows])
            np.testing.assert_allclose(stats.meat[k], output.T @ output, atol=1e-9)


@every_loss
def test_values_at_several_points(loss):
    model, theta, batch = problem(loss)
    points = [theta, 0.5 * theta, model.zeros()]
    values = model.values_at(points, batch)
    for point, value in zip(points, values, strict=True):
        np.testing.assert_allclose(value, model.stats(point, batch).value)


@every_loss
def test_energy_is_the_mean_loss_plus_the_penalty(loss):
    model, theta, batch = problem(loss)
    expected = model.stats(theta, batch).value.sum() / 50
    expected += 0.1 * (theta[: model.n_features] ** 2).sum()  # the intercept is free
    assert model.energy(theta, batch) == pytest.approx(expected)


@every_kind
def test_gram_with_weights_of_either_sign(kind):
    model, _, batch = problem(losses.SquaredError(), True, kind)
    X = np.column_stack([problem(losses.SquaredError())[2].X, np.ones(50)])
    rng = np.random.default_rng(3)
    for weight in (rng.random(50), -rng.random(50), rng.standard_normal(50), np.zeros(50)):
        np.testing.assert_allclose(
            model.gram(batch.X, weight), X.T @ (weight[:, None] * X), atol=1e-10
        )


def test_float32_sums_are_taken_in_double_precision():
    loss = losses.SquaredError()
    model, theta, batch = problem(loss)
    X = batch.X.astype(np.float32)
    narrow = model.stats(theta, Batch(X, batch.y, batch.weight), order=2)
    wide = model.stats(theta, Batch(X.astype(float), batch.y, batch.weight), order=2)
    np.testing.assert_allclose(narrow.hessian, wide.hessian, rtol=1e-12)
    assert narrow.gradient.dtype == np.float64


@every_loss
@pytest.mark.parametrize("meat", [False, True])
@pytest.mark.parametrize("every", [1, 3])
def test_listed_rows_sum_as_a_copy_of_them(loss, every, meat):
    model, theta, batch = problem(loss)
    rows = np.random.default_rng(3).permutation(batch.n_rows)[: batch.n_rows // 2]
    listed = replace(batch, rows=rows)
    by_index = model.stats(theta, listed, order=2, meat=meat, every=every)
    copied = model.stats(theta, listed.compact(), order=2, meat=meat, every=every)
    for name in ("value", "gradient", "hessian", "meat"):
        np.testing.assert_array_equal(getattr(by_index, name), getattr(copied, name))


def test_tiles_of_dense_rows_sum_to_the_whole(monkeypatch):
    model, theta, batch = problem(losses.LogLoss())
    model, theta = replace(model, n_outputs=1), theta[:, :1]
    whole = model.stats(theta, batch, order=2, meat=True)
    monkeypatch.setattr("likelier.glm.model.TILE_BYTES", 8 * model.n_rows_theta * 7)
    tiled = model.stats(theta, batch, order=2, meat=True)
    for name in ("value", "gradient", "hessian", "meat"):
        np.testing.assert_allclose(getattr(tiled, name), getattr(whole, name), rtol=1e-12)
