"""The energy of the deep Gaussian process against closed forms written independently."""

from __future__ import annotations

import functools
import itertools

import jax
import numpy as np
import pytest
from scipy import linalg
from tests.reference.quick_jit import quick_jit

from likelier.deep_gp import chunks as deep_gp_chunks
from likelier.deep_gp import layer as deep_gp_layer
from likelier.deep_gp.kernels import JITTER
from likelier.deep_gp.layer import Layer, layer_cavity, prepare_layer, row_moments
from likelier.deep_gp.model import DeepGP, Fixed, Parameters, Rows
from likelier.deep_gp.propagation import posterior_of
from likelier.deep_gp.start import start_layers

M, D, P, S, B = 7, 3, 2, 4, 6


def make_layer(rng, inputs, nodes, kernels=1, n_inducing=M):
    root = 0.3 * np.tril(rng.standard_normal((nodes, n_inducing, n_inducing)))
    return Layer(
        rng.standard_normal((n_inducing, inputs)),
        0.3 * rng.standard_normal((kernels, inputs)),
        0.2 * rng.standard_normal(kernels),
        rng.standard_normal((nodes, n_inducing)),
        root,
        np.asarray(np.log(0.02)),
    )


def roots(layer):
    diagonal = np.exp(np.diagonal(layer.root, axis1=1, axis2=2))
    return np.tril(layer.root, -1) + diagonal[:, :, None] * np.eye(layer.root.shape[-1])


def fixed_of(widths, power, total, dtype=np.float64, n_inducing=M):
    rng = np.random.default_rng(5)
    pairs = list(itertools.pairwise(widths))
    last = len(pairs) - 1
    return Fixed(
        tuple(
            (np.zeros(p) if i == last else rng.standard_normal(p)).astype(dtype)
            for i, p in enumerate(pairs)
        ),
        (np.ones(n_inducing, dtype),) * len(pairs),
        tuple(np.ones(n, dtype) for n in widths[1:]),
        *(np.asarray(v, dtype) for v in (power, total, widths[-1], 0.0)),
    )


def problem(seed=0, kernels=1, total=20.0):
    rng = np.random.default_rng(seed)
    widths = (D, P, 1)
    layers = (make_layer(rng, D, P, kernels), make_layer(rng, P, 1))
    X, y = rng.standard_normal((B, D)), rng.standard_normal(B)
    weight = np.full(B, total / B)
    xi = (rng.standard_normal((S, B, P)),)
    return widths, Parameters(layers, np.asarray(np.log(0.3))), Rows(X, y, weight), xi


@functools.cache
def compiled(model):
    return quick_jit(model.energy)


@functools.cache
def compiled_slopes(model):
    return quick_jit(jax.value_and_grad(model.energy))


def energy(widths, parameters, fixed, rows, xi, kernel="rbf", per_node=False):
    with jax.enable_x64(True):
        return float(compiled(DeepGP(widths, M, S, kernel, per_node))(parameters, fixed, rows, xi))


def plain_kernel(A, C, scale, amplitude):
    gaps = (A[:, None, :] - C[None, :, :]) / scale
    return amplitude * np.exp(-0.5 * (gaps**2).sum(-1))


def plain_projections(layer, X, q=0):
    """``A = L_z^{-1} K_zx`` of a kernel, by solving."""
    scale, amplitude = np.exp(layer.log_scale[q]), np.exp(layer.log_amplitude[q])
    Kzz = plain_kernel(layer.inducing, layer.inducing, scale, amplitude)
    L = linalg.cholesky(Kzz + JITTER * amplitude * np.eye(len(Kzz)), lower=True)
    return linalg.solve_triangular(L, plain_kernel(layer.inducing, X, scale, amplitude), lower=True)


def plain_node(layer, p, X, mean, cov):
    """Mean and variance of a node for any Gaussian over ``w``, by solving, row by row."""
    q = p if len(layer.log_scale) > 1 else 0
    A = plain_projections(layer, X, q)
    variance = [np.exp(layer.log_amplitude[q]) - a @ a + a @ cov @ a for a in A.T]
    return A.T @ mean, np.array(variance)


def plain_forward(parameters, fixed, laws, rows, xi):
    """Moments of the last layer for every sample, one sample at a time."""
    out = []
    for s in range(S):
        h = rows.X
        for depth, layer in enumerate(parameters.layers):
            moments = [plain_node(layer, p, h, *laws[depth][p]) for p in range(len(layer.mean))]
            mean = np.stack([m for m, _ in moments], 1) + h @ fixed.projections[depth]
            variance = np.stack([v for _, v in moments], 1)
            if depth == 0:
                h = mean + np.sqrt(variance + np.exp(layer.log_noise)) * xi[0][s]
        out.append((mean[:, 0], variance[:, 0]))
    return out


def log_normaliser(mean, covariance):
    """Of a Gaussian in natural form: ``1/2 mu^T S^{-1} mu + 1/2 log|S|`` and constants."""
    k = len(mean)
    sign, log_det = np.linalg.slogdet(covariance)
    assert sign > 0
    return 0.5 * (mean @ np.linalg.solve(covariance, mean) + log_det + k * np.log(2.0 * np.pi))


def q_of(mean, T, e):
    """What is learned is the cavity; ``q`` from it in natural parameters, without any identity."""
    precision, eye = np.linalg.inv(T @ T.T), np.eye(len(T))
    S_q = np.linalg.inv((precision - e * eye) / (1.0 - e))
    return S_q @ precision @ mean / (1.0 - e), S_q


def cavity_of(mean, S_q, e):
    """The cavity in natural parameters: ``q^{1-e} ... p^e``, written without any identity."""
    precision = (1.0 - e) * np.linalg.inv(S_q) + e * np.eye(len(S_q))
    covariance = np.linalg.inv(precision)
    return covariance @ ((1.0 - e) * np.linalg.solve(S_q, mean)), covariance


@pytest.mark.parametrize("power", [1.0, 0.5, 0.01])
@pytest.mark.parametrize("kernels", [1, P])
def test_renyi_form_equals_the_log_normaliser_form(power, kernels):
    """``-F = (N/a)[Phi(q) - Phi(cavity)] + ... `` of the older formulation, to 1e-9."""
    total = 20.0
    widths, parameters, rows, xi = problem(kernels=kernels, total=total)
    fixed = fixed_of(widths, power, total)
    e = power / total
    laws, normalisers = [], 0.0
    for layer in parameters.layers:
        T = roots(layer)
        posteriors = [q_of(layer.mean[p], T[p], e) for p in range(len(T))]
        laws.append([cavity_of(*q, e) for q in posteriors])
        for p, (cavity, q) in enumerate(zip(laws[-1], posteriors, strict=True)):
            np.testing.assert_allclose(cavity[1], T[p] @ T[p].T, rtol=1e-9, atol=1e-10)
            phi_q, phi_cavity = log_normaliser(*q), log_normaliser(*cavity)
            phi_prior = log_normaliser(np.zeros(M), np.eye(M))
            # F = Phi(q) - Phi(prior) + (N/alpha) [Phi(cavity) - Phi(q)] + data
            normalisers += phi_q - phi_prior + (phi_cavity - phi_q) / e
    noise, data = float(np.exp(parameters.likelihood)), 0.0
    moments = plain_forward(parameters, fixed, laws, rows, xi)
    for n in range(B):
        Z = [
            (2.0 * np.pi * noise) ** (-power / 2.0)
            * np.sqrt(noise / (noise + power * v[n]))
            * np.exp(-0.5 * power * (rows.y[n] - m[n]) ** 2 / (noise + power * v[n]))
            for m, v in moments
        ]
        data += np.log(np.mean(Z))
    wanted = -(normalisers + total / (power * B) * data) / total
    got = energy(widths, parameters, fixed, rows, xi, per_node=kernels > 1)
    assert got == pytest.approx(wanted, abs=1e-9, rel=1e-9)


def test_power_near_zero_is_doubly_stochastic_variational_inference():
    total = 20.0
    widths, parameters, rows, xi = problem(total=total)
    laws, divergence = [], 0.0
    for layer in parameters.layers:
        T = roots(layer)
        laws.append([(layer.mean[p], T[p] @ T[p].T) for p in range(len(T))])
        for mean, S_q in laws[-1]:
            log_det = np.linalg.slogdet(S_q)[1]
            divergence += 0.5 * (np.trace(S_q) + mean @ mean - M - log_det)
    noise = float(np.exp(parameters.likelihood))
    fixed = fixed_of(widths, 1e-6, total)
    expected_log = [
        -0.5 * np.log(2.0 * np.pi * noise) - 0.5 * ((rows.y - m) ** 2 + v) / noise
        for m, v in plain_forward(parameters, fixed, laws, rows, xi)
    ]
    elbo = -divergence + total / B * np.mean(expected_log, axis=0).sum()
    got = -total * energy(widths, parameters, fixed, rows, xi)
    assert got == pytest.approx(elbo, rel=1e-5)


def test_one_layer_with_the_best_q_is_the_collapsed_bound():
    """Titsias: ``log N(y | 0, Q + s2 I) - tr(K - Q)/(2 s2)``, at the optimal q and power -> 0."""
    rng = np.random.default_rng(2)
    layer = make_layer(rng, D, 1)
    X, y, noise = rng.standard_normal((B, D)), rng.standard_normal(B), 0.3
    amplitude, A = np.exp(layer.log_amplitude[0]), plain_projections(layer, X)
    S_q = np.linalg.inv(np.eye(M) + A @ A.T / noise)
    S_q = 0.5 * (S_q + S_q.T)
    T = np.linalg.cholesky(S_q)
    root = np.tril(T, -1) + np.diag(np.log(np.diagonal(T)))
    layer = layer._replace(mean=(S_q @ A @ y / noise)[None], root=root[None])
    fixed = fixed_of((D, 1), 1e-8, float(B))  # the bound is the limit: off by so much
    parameters = Parameters((layer,), np.asarray(np.log(noise)))
    with jax.enable_x64(True):
        got = float(compiled(DeepGP((D, 1), M, 1))(parameters, fixed, Rows(X, y, np.ones(B)), ()))
    Q = A.T @ A
    total = Q + noise * np.eye(B)
    bound = (
        -0.5
        * (y @ np.linalg.solve(total, y) + np.linalg.slogdet(total)[1] + B * np.log(2.0 * np.pi))
        - 0.5 * (B * amplitude - np.trace(Q)) / noise
    )
    assert -got * B == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_series_and_the_factors_give_one_cavity(dtype):
    """At the largest ``e`` of the series, for a ``q`` wider than the prior in some directions."""
    rng = np.random.default_rng(6)
    n = 40
    axes = np.linalg.qr(rng.standard_normal((n, n)))[0]
    S_c, mean = (axes * rng.uniform(0.0, 1.5, n)) @ axes.T, rng.standard_normal(n)
    e = 0.99 * deep_gp_layer.SERIES_BELOW[dtype] / np.linalg.norm(S_c @ S_c) ** 0.5
    beyond = 1.02 * e  # the smallest of the factors

    def truth(e):
        R = np.linalg.inv(np.eye(n) - e * S_c)
        return R, R @ mean, np.linalg.slogdet(R)[1] / (2.0 * e)

    single, given = dtype == "float32", [a[None] for a in (mean, S_c, S_c @ S_c)]
    with jax.enable_x64(True):
        arguments = [np.asarray(a, dtype) for a in (*given, e)]
        series = quick_jit(deep_gp_layer.by_series)(*arguments)
        exact = quick_jit(deep_gp_layer.by_factors)(*given, np.asarray(beyond))
    assert all(part.dtype == dtype for part in series)
    rtol = 1e-5 if single else 1e-9
    third = (1.5 * e) ** 3  # the first term that is left out of slopes
    np.testing.assert_allclose(series[0][0], truth(e)[0], rtol=rtol, atol=max(rtol, third))
    np.testing.assert_allclose(series[1][0], truth(e)[1], rtol=rtol, atol=1e-7 if single else 1e-11)
    np.testing.assert_allclose(series[2][0], truth(e)[2], rtol=rtol)
    for ours, wanted in zip(exact, truth(beyond), strict=True):
        np.testing.assert_allclose(ours[0], wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("e", "wide"), [(1e-6, 120.0), (1e-5, 40.0), (1e-4, 11.0)])
def test_a_wide_node_does_not_cost_others_their_digits(e, wide):
    """In single precision each node has the form that suits it, not the widest of its layer."""
    rng = np.random.default_rng(0)
    n = 64
    T = np.stack([np.tril(rng.standard_normal((n, n))) * 0.05 + 0.1 * np.eye(n), 0.1 * np.eye(n)])
    T[1, 0, 0] = wide
    log_det = np.linalg.slogdet(np.eye(n) - e * T[0] @ T[0].T)[1]
    wanted = (1.0 - e) / (2.0 * e) * (n * np.log1p(-e) - log_det)
    with jax.enable_x64(True):
        found = quick_jit(deep_gp_layer.cavity_terms)(
            np.zeros((2, n), np.float32), T.astype(np.float32), np.float32(e)
        )[1]
    assert found.dtype == np.float32
    assert float(found[0]) == pytest.approx(wanted, rel=1e-5)


def test_a_cavity_wider_than_any_q_has_is_made_narrower():
    """``e S_c`` is below one for any ``q``; beyond that there would be no divergence."""
    rng, e = np.random.default_rng(9), 0.4
    layer = make_layer(rng, D, P)
    wide = layer._replace(root=layer.root + 3.0 * np.eye(M))
    with jax.enable_x64(True):
        found = [quick_jit(layer_cavity)(*given) for given in ((wide, e), (layer, 1e-3))]
        law, usual = jax.tree.map(np.asarray, found)
    np.testing.assert_allclose(usual.shrinkage, np.eye(M) - roots(layer) @ roots(layer).mT)
    assert np.isfinite(law.divergence)
    largest = np.linalg.eigvalsh(np.eye(M) - law.shrinkage)[:, -1]
    assert (0.1 < e * largest).all() and (e * largest < 1.0).all()
    for p, mean in enumerate(wide.mean):  # prediction agrees on what the cavity is
        mu, shrinkage = posterior_of(mean, wide.root[p], e)
        cavity = cavity_of(mu, np.eye(M) - shrinkage, e)
        np.testing.assert_allclose(cavity[0], mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(cavity[1], np.eye(M) - law.shrinkage[p], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("total", [5e5, 1e7])
def test_single_precision_keeps_the_divergence(total):
    """The plain log-determinant of the older form is wrong by a large factor; ours is not."""
    rng = np.random.default_rng(3)
    n = 64
    layer = make_layer(rng, D, 1, n_inducing=n)
    layer = layer._replace(root=0.1 * layer.root, mean=0.3 * layer.mean)
    single = Layer(*(np.asarray(a, np.float32) for a in layer))
    with jax.enable_x64(True):
        exact = float(quick_jit(layer_cavity)(layer, np.float64(1.0 / total)).divergence)
    with jax.enable_x64(False):
        ours = float(quick_jit(layer_cavity)(single, np.float32(1.0 / total)).divergence)
    T = roots(single)[0].astype(np.float32)
    C = np.float32(1 - 1 / total) * np.eye(n, dtype=np.float32) + np.float32(1 / total) * (T @ T.T)
    log_det = np.float32(2.0) * np.log(np.diagonal(np.linalg.cholesky(C))).sum(dtype=np.float32)
    solved = np.linalg.solve(C, single.mean[0])
    printed = 0.5 * single.mean[0] @ solved + 0.5 * total * log_det - np.log(np.diagonal(T)).sum()
    assert ours == pytest.approx(exact, rel=1e-4)
    assert abs(printed / exact - 1.0) > 0.05


def to_single(tree):
    return jax.tree.map(lambda a: np.asarray(a, np.float32), tree)


def test_single_precision_energy():
    widths, parameters, rows, xi = problem()
    fixed = fixed_of(widths, 0.5, 1e7)
    exact = energy(widths, parameters, fixed, rows, xi)
    with jax.enable_x64(False):
        model = DeepGP(widths, M, S, dtype="float32")
        got = float(quick_jit(model.energy)(*map(to_single, (parameters, fixed, rows, xi))))
    assert got == pytest.approx(exact, rel=1e-3)


@functools.cache
def as_fitted(noise=1e-3, n_inducing=100, n_rows=2000, n_used=64):
    """Two layers as training leaves them: long length scales, little noise, the last q the best.

    ``K_zz`` of the k-means centres has a condition that only the jitter bounds.
    """
    rng = np.random.default_rng(8)
    widths = (D, D, 1)
    X = rng.standard_normal((n_rows, D))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + np.sqrt(noise) * rng.standard_normal(n_rows)
    start = start_layers(X, None, widths, n_inducing, False, rng)
    inner, last = (Layer(**layer) for layer in start.layers)
    inner = inner._replace(mean=0.1 * rng.standard_normal((D, n_inducing)))
    to_hidden = [plain_node(inner, p, X, inner.mean[p], np.zeros((n_inducing,) * 2))[0]
                 for p in range(D)]  # fmt: skip
    A = plain_projections(last, np.stack(to_hidden, 1) + X @ start.projections[0])
    T = linalg.cholesky(np.linalg.inv(np.eye(n_inducing) + A @ A.T / noise), lower=True)
    root = np.tril(T, -1) + np.diag(np.log(np.diagonal(T)))
    last = last._replace(mean=(T @ T.T @ A @ y / noise)[None], root=root[None])
    fixed = fixed_of(widths, 1.0, n_rows, n_inducing=n_inducing)
    fixed = fixed._replace(projections=tuple(start.projections))
    xi = (rng.standard_normal((S, n_used, D)),)
    parameters = Parameters((inner, last), np.asarray(np.log(noise)))
    return widths, parameters, fixed, (X[:n_used], y[:n_used]), xi


@pytest.mark.parametrize("total", [5e5, 1e7])
def test_single_precision_energy_of_a_fitted_model(total):
    """Both precisions have one energy per row, to 1e-3, and slopes of one direction."""
    widths, parameters, fixed, (X, y), xi = as_fitted()
    rows = Rows(X, y, np.full(len(X), total / len(X)))
    arguments = to_single((parameters, fixed._replace(total=np.asarray(total)), rows, xi))
    got = {}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(True):  # as in training
            same = jax.tree.map(lambda a, dtype=dtype: np.asarray(a, dtype), arguments)
            energy, slopes = compiled_slopes(DeepGP(widths, 100, S, dtype=dtype))(*same)
            got[dtype] = float(energy), [np.ravel(g) for g in jax.tree.leaves(slopes)]
    single, double = got["float32"], got["float64"]
    assert abs(single[0] - double[0]) <= 1e-3 * min(1.0, abs(double[0]))
    for ours, exact in zip(single[1], double[1], strict=True):
        assert np.linalg.norm(ours - exact) <= 0.05 * np.linalg.norm(exact)


def test_chunks_of_rows_change_nothing(monkeypatch):
    widths, parameters, rows, xi = problem(kernels=P)
    model, fixed = DeepGP(widths, M, S, per_node=True), fixed_of(widths, 0.5, 20.0)

    def slopes():
        compiled = quick_jit(jax.value_and_grad(model.energy))  # new each time: traced anew
        return jax.tree.leaves(compiled(parameters, fixed, rows, xi))

    with jax.enable_x64(True):
        whole = slopes()
        monkeypatch.setitem(deep_gp_chunks.CHUNK_VALUES, "float64", S * B // 2)
        parts = slopes()
    for one, other in zip(parts, whole, strict=True):
        # another order of summation, times the condition of K_zz
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kernels", [1, P])
def test_the_ways_to_use_the_root_of_the_prior_agree(kernels):
    """Folded into the nodes, tied to them or as it is: the same moments and slopes."""
    rng = np.random.default_rng(6)
    layer, X = make_layer(rng, D, P, kernels), rng.standard_normal((9, D))
    toward = rng.standard_normal((2, P, 9))

    def slopes(n_rows):
        def value(layer, X):
            ready = prepare_layer("rbf", layer, np.ones(M), layer_cavity(layer, 0.05), n_rows)
            mean, variance = row_moments("rbf", ready, X)
            return (toward[0] * mean + toward[1] * variance).sum()

        return jax.tree.leaves(quick_jit(jax.value_and_grad(value, argnums=(0, 1)))(layer, X))

    with jax.enable_x64(True):
        plain, tied, folded = (slopes(n * P * M // kernels) for n in (1, 2, 3))
    for others in (tied, folded):
        for one, other in zip(others, plain, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("kernel", "kernels"), [("rbf", 1), ("matern32", P), ("matern52", 1)])
def test_slopes_equal_finite_differences(kernel, kernels):
    """Of every parameter, along random directions: two derivatives are written by hand.

    With 20 rows the cavity is found by factors, with 2000 by a series.
    """
    widths, parameters, _, _ = problem(kernels=kernels)
    model = DeepGP(widths, M, S, kernel, kernels > 1)
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        value, slopes_of = compiled(model), quick_jit(jax.grad(model.energy))
    for total in (20.0, 2000.0):
        _, _, rows, xi = problem(kernels=kernels, total=total)
        fixed = fixed_of(widths, 0.7, total)
        with jax.enable_x64(True):
            slopes = slopes_of(parameters, fixed, rows, xi)
            check_slopes(value, slopes, parameters, (fixed, rows, xi), rng)


def check_slopes(value, slopes, parameters, rest, rng):
    leaves, tree = jax.tree.flatten(parameters)
    for i, leaf in enumerate(leaves):
        direction = rng.standard_normal(np.shape(leaf))
        if np.ndim(leaf) == 3:  # what is above the diagonal is not used
            direction = np.tril(direction)
        ends = []
        for h in (1e-5, -1e-5):
            moved = [a + h * direction if j == i else a for j, a in enumerate(leaves)]
            ends.append(float(value(jax.tree.unflatten(tree, moved), *rest)))
        wanted = (ends[0] - ends[1]) / 2e-5
        got = float(np.sum(np.asarray(jax.tree.leaves(slopes)[i]) * direction))
        assert got == pytest.approx(wanted, rel=1e-5, abs=1e-7)
