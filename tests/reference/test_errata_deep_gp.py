"""Defects that code for deep Gaussian processes has had; ours must not have them."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from tests.reference.quick_jit import quick_jit

from likelier.deep_gp.adam import STEPS, DeepAdam
from likelier.deep_gp.layer import Layer, layer_cavity
from likelier.deep_gp.model import DeepGP, Fixed, Parameters
from likelier.deep_gp.propagation import DeepPosterior
from likelier.deep_gp.start import cut, mean_projection, pad, shared_normals
from likelier.fitting.standardize import Standard

M, D, P = 6, 2, 3


def layer(rng, inputs, nodes, scale=1.0):
    root = np.tril(0.2 * rng.standard_normal((nodes, M, M)), -1)
    root[:, np.arange(M), np.arange(M)] = np.log(0.2)
    return Layer(
        rng.standard_normal((M, inputs)), np.zeros((1, inputs)), np.zeros(1),
        scale * rng.standard_normal((nodes, M)), root, np.asarray(np.log(1e-2)),
    )  # fmt: skip


def fixed(widths, total):
    pairs = list(itertools.pairwise(widths))
    return Fixed(
        tuple(np.eye(*p) if i + 1 < len(pairs) else np.zeros(p) for i, p in enumerate(pairs)),
        (np.ones(M),) * len(pairs),
        tuple(np.ones(w) for w in widths[1:]),
        *map(np.float64, (1.0, total, 1.0, 0.0)),
    )


def forward(parameters, held, X, xi, e):
    model = DeepGP((D, *(len(part.mean) for part in parameters.layers)), M, 1)

    @quick_jit
    def moments(parameters, held, X, xi):
        laws = tuple(layer_cavity(part, e) for part in parameters.layers)
        h = model.hidden(parameters, held, laws, X, xi)
        return model.outputs(model.prepare(parameters, held, laws, model.n_layers - 1, h), h)

    with jax.enable_x64(True):
        return [np.asarray(a) for a in moments(parameters, held, X, xi)]


def with_q(part, e):
    """The layer with ``q`` in place of its cavity: ``S^{-1} = (S_c^{-1} - e I) / (1 - e)``."""
    means, roots = [], []
    for mean, root in zip(part.mean, part.root, strict=True):
        T = np.tril(root, -1) + np.diag(np.exp(np.diagonal(root)))
        precision = np.linalg.inv(T @ T.T)
        S = np.linalg.inv((precision - e * np.eye(M)) / (1.0 - e))
        means.append(S @ precision @ mean / (1.0 - e))
        T = np.linalg.cholesky(S)
        roots.append(np.tril(T, -1) + np.diag(np.log(np.diagonal(T))))
    return part._replace(mean=np.stack(means), root=np.stack(roots))


@pytest.fixture(scope="module")
def deep():
    rng = np.random.default_rng(0)
    parameters = Parameters((layer(rng, D, P), layer(rng, P, 1)), np.asarray(0.0))
    return parameters, fixed((D, P, 1), 5.0), rng.standard_normal((4, D))


def test_prediction_uses_the_posterior_and_not_the_cavity(deep):
    """With few rows the cavity is far from the posterior, and would give wide predictions.

    The cavity is what is learned. Its posterior is found here in natural parameters, and goes
    through the layers as a cavity that leaves nothing out.
    """
    parameters, held, X = deep
    e, normals = 1.0 / 5.0, shared_normals(8, P, 0)
    layers = [part._asdict() for part in parameters.layers]
    ours = DeepPosterior(layers, held.projections, "rbf", normals, e)
    mean, variance = ours.block_moments(X)
    xi = np.broadcast_to(normals[:, None, :], (8, len(X), P))
    of_q = Parameters(tuple(with_q(part, e) for part in parameters.layers), np.asarray(0.0))
    posterior = forward(of_q, held, X, (xi,), np.float64(0.0))
    cavity = forward(parameters, held, X, (xi,), np.float64(e))
    np.testing.assert_allclose(mean.swapaxes(0, 1), posterior[0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(variance.swapaxes(0, 1), posterior[1], rtol=1e-5, atol=1e-8)
    assert np.abs(posterior[0] - cavity[0]).max() > 0.05


def test_all_nodes_see_the_same_sample(deep):
    """Two equal nodes of the second layer must stay equal for every sample and row."""
    rng = np.random.default_rng(1)
    parameters, _, X = deep
    second = layer(rng, P, 1)
    twins = second._replace(mean=np.repeat(second.mean, 2, 0), root=np.repeat(second.root, 2, 0))
    twin = Parameters((parameters.layers[0], twins), np.asarray(0.0))
    xi = (rng.standard_normal((5, len(X), P)),)
    mean, variance = forward(twin, fixed((D, P, 2), 5.0), X, xi, np.float64(0.1))
    np.testing.assert_allclose(mean[..., 0], mean[..., 1], rtol=1e-12)
    np.testing.assert_allclose(variance[..., 0], variance[..., 1], rtol=1e-9)
    assert mean[..., 0].std(axis=0).min() > 1e-3  # and the samples do differ


def test_every_layer_has_fresh_noise():
    """Normal numbers of one layer must not be used again in the next."""
    rng = np.random.default_rng(2)
    parts = (layer(rng, D, P), layer(rng, P, P), layer(rng, P, 1))
    parameters, held = Parameters(parts, np.asarray(0.0)), fixed((D, P, P, 1), 5.0)
    X = rng.standard_normal((3, D))
    first, second = (rng.standard_normal((2, 3, P)) for _ in range(2))
    base = forward(parameters, held, X, (first, second), np.float64(0.1))[0]
    for changed in ((first + 1.0, second), (first, second + 1.0)):
        moved = forward(parameters, held, X, changed, np.float64(0.1))[0]
        assert np.abs(moved - base).max() > 1e-4
    normals = shared_normals(64, 2 * P, 0)
    apart = np.abs(np.corrcoef(normals.T) - np.eye(2 * P))
    assert apart.max() < 0.35
    # prediction gives each layer its own columns of them
    ours = DeepPosterior([part._asdict() for part in parts], held.projections, "rbf", normals[:2])
    xi = tuple(np.broadcast_to(part[:, None], (2, 3, P)) for part in np.split(normals[:2], 2, 1))
    posterior = forward(parameters, held, X, xi, np.float64(0.0))[0]
    predicted = ours.block_moments(X)[0].swapaxes(0, 1)
    np.testing.assert_allclose(predicted, posterior, rtol=1e-6, atol=1e-8)


def test_training_draws_fresh_noise_for_layers_steps_and_calls():
    training = DeepAdam(Standard(np.zeros(D), np.ones(D)), 5.0)
    model = DeepGP((D, P, P, 1), M, 4)
    layers = [*training._normals(model, 0, 50), *training._normals(model, STEPS, 50)]
    columns = np.concatenate([numbers[:2].reshape(2, -1) for numbers in layers])
    assert np.abs(np.corrcoef(columns) - np.eye(len(columns))).max() < 0.25


def test_the_mean_function_is_the_projection_on_principal_axes():
    """Leading right singular vectors as columns, not rows, and not those of least variance."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 5)) * np.array([3.0, 0.1, 2.0, 0.2, 1.0])
    B = mean_projection(X, None, 2)
    assert B.shape == (5, 2)
    np.testing.assert_allclose(B.T @ B, np.eye(2), atol=1e-12)
    _, values, right = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(right[:2] @ B), np.eye(2), atol=1e-8)
    kept = ((X - X.mean(axis=0)) @ B).var(axis=0).sum() * len(X)
    assert kept == pytest.approx((values[:2] ** 2).sum())
    np.testing.assert_array_equal(mean_projection(X, None, 7), np.eye(5, 7))
    two = mean_projection(np.repeat(X, 2, axis=0), None, 2)
    np.testing.assert_allclose(mean_projection(X, np.full(200, 2.0), 2), two, atol=1e-10)


def test_padding_changes_nothing(deep):
    """Padded inputs, nodes and inducing points: the same energy to rounding."""
    from likelier.deep_gp.model import Rows

    parameters, held, X = deep
    rng = np.random.default_rng(4)
    y, weight, xi = rng.standard_normal(4), np.full(4, 1.25), rng.standard_normal((3, 4, P))
    widths, big = (D, P, 1), (4, 5, 1)
    shapes = [
        Layer((M + 2, a), (1, a), (1,), (b, M + 2), (b, M + 2, M + 2), ())
        for a, b in ((4, 5), (5, 1))
    ]
    wide = Parameters(
        tuple(
            Layer(*(pad(array, shape, "float64") for array, shape in zip(part, s, strict=True)))
            for part, s in zip(parameters.layers, shapes, strict=True)
        ),
        parameters.likelihood,
    )
    wide_held = held._replace(
        projections=(pad(held.projections[0], (4, 5), "float64"), np.zeros((5, 1))),
        masks=(pad(np.ones(M), (M + 2,), "float64"),) * 2,
        nodes=(pad(np.ones(P), (5,), "float64"), np.ones(1)),
    )
    rows = Rows(X, y, weight)
    wide_rows = Rows(
        pad(X, (6, 4), "float64"), pad(y, (6,), "float64"), pad(weight, (6,), "float64")
    )
    with jax.enable_x64(True):
        a, da = quick_jit(jax.value_and_grad(DeepGP(widths, M, 3).energy))(
            parameters, held, rows, (xi,)
        )
        b, db = quick_jit(jax.value_and_grad(DeepGP(big, M + 2, 3).energy))(
            wide, wide_held, wide_rows, (pad(xi, (3, 6, 5), "float64"),)
        )
    assert float(a) == pytest.approx(float(b), rel=1e-10)
    for one, two in zip(jax.tree.leaves(da), jax.tree.leaves(db), strict=True):
        np.testing.assert_allclose(cut(two, one.shape), one, rtol=1e-7, atol=1e-10)
        outside = np.array(two)
        outside[tuple(slice(0, n) for n in one.shape)] = 0.0
        np.testing.assert_allclose(outside, 0.0, atol=1e-12)
