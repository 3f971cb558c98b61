"""One layer of a deep Gaussian process: sparse, whitened, in JAX.

Per output node ``u = L_z w``, ``q(w) = N(mu, S)``, ``A = L_z^{-1} K_zx``. With ``e = alpha / N``
and ``C = (1-e) I + e S`` the cavity is ``mu_c = (1-e) C^{-1} mu``, ``S_c = C^{-1} S``, and in
training the node has mean ``m(x) + A^T mu_c`` and variance ``k(x,x) - A^T (I - S_c) A``.

What is learned are ``mu_c`` and ``S_c`` themselves: every minibatch needs the cavity, and ``q``,
which follows from it by ``mu = R mu_c``, ``S = (1-e) R S_c`` with ``R = (I - e S_c)^{-1}``, is
needed by its divergence alone, where a short series does, and once at the end, for prediction.

Shapes: ``M`` inducing points, ``D`` inputs, ``P`` nodes, ``Q`` kernels (one, or one per node),
``R`` rows. Matrices of kernel values are ``(Q, M, R)``, as in the formulas.

A mask of ones and zeros says which inducing points exist: shapes are padded to few sizes so that
one compiled program serves many data sets, and a padded point correlates with nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from likelier.deep_gp.kernels import (
    JITTER,
    LEAST_VARIANCE,
    correlation,
    root_shrinkage,
)

NOTHING = 1e4  # exp(-NOTHING) is zero
SERIES_BELOW = {"float32": 1e-2, "float64": 4e-3}  # of e |S_c|; its fourth power is the error
UNROLLED = 8  # nodes at most that a loop over nodes takes in one round


class Layer(NamedTuple):
    """Parameters of a layer; scales are logarithms, so that they may take any value.

    Attributes
    ----------
    inducing : array of shape (M, D)
    log_scale : array of shape (Q, D)
        Length scales.
    log_amplitude : array of shape (Q,)
        Prior variance of the nodes.
    mean : array of shape (P, M)
        ``mu_c``.
    root : array of shape (P, M, M)
        ``S_c = T T^T``; below the diagonal this is ``T``, on it the logarithm of T's diagonal.
    log_noise : array of shape ()
        Noise added to the nodes before the next layer.
    """

    inducing: Any
    log_scale: Any
    log_amplitude: Any
    mean: Any
    root: Any
    log_noise: Any


def root_matrix(root: jax.Array) -> jax.Array:
    """``T`` of ``S_c = T T^T``, lower triangular with a positive diagonal."""
    diagonal = jnp.exp(jnp.diagonal(root, axis1=-2, axis2=-1))
    return jnp.tril(root, -1) + diagonal[..., None] * jnp.eye(root.shape[-1], dtype=root.dtype)


def kernel_values(kind: str, layer: Layer, X: jax.Array, mask: jax.Array) -> jax.Array:
    """``k(z, x)`` for every inducing point and row, ``(Q, M, R)``. Cost ``Q M R D``.

    Points that do not exist have no amplitude: that costs no sweep of its own.
    """
    squared = jnp.exp(-2.0 * layer.log_scale)
    log_amplitude = layer.log_amplitude[:, None] - NOTHING * (1.0 - mask)
    if kind == "rbf":  # the value of the amplitude is added at the end, its slope comes with near
        value = jax.lax.stop_gradient(log_amplitude)
        near = nearness(layer.inducing, X, squared, log_amplitude - value)
        return jnp.asarray(correlation(jnp, kind, -near, value[:, :, None]))
    halves = -nearness(layer.inducing, X, squared, jnp.zeros_like(log_amplitude))
    return jnp.asarray(correlation(jnp, kind, halves, log_amplitude[:, :, None]))


def nearness(Z: jax.Array, X: jax.Array, s: jax.Array, more: jax.Array) -> jax.Array:
    """``more - sum_d s_d (z_d - x_d)^2 / 2`` for every kernel, point and row, ``(Q, M, R)``.

    As one product, ``(s z, more - s z^2/2, 1)^T (x, 1, -s x^2/2)``: so its slopes are products
    too, without sweeps over all values for each term.
    """
    scaled = Z * s[:, None, :]
    from_Z = more[:, :, None] - 0.5 * (Z * scaled).sum(-1, keepdims=True)
    from_X = -0.5 * (s @ (X * X).T)[:, :, None]
    ones = jnp.ones_like(from_Z), jnp.ones_like(from_X)
    rows = jnp.broadcast_to(X, (len(s), *X.shape))
    return point_products(
        jnp.concatenate([scaled, from_Z, ones[0]], -1), jnp.concatenate([rows, ones[1], from_X], -1)
    )


@jax.custom_vjp
def point_products(Z: jax.Array, X: jax.Array) -> jax.Array:
    """``Z X^T``; its slope by ``X`` is made as ``(Z^T G)^T``, a fourth of the time of ``G^T Z``."""
    return Z @ _transposed(X)


def _points_backward(kept: Any, slope: jax.Array) -> tuple[jax.Array, jax.Array]:
    Z, X = kept
    to_X = _transposed(Z) @ slope
    # the compiler must not turn the product round
    to_X = jax.lax.optimization_barrier(to_X)  # type: ignore[no-untyped-call]
    return slope @ X, _transposed(to_X)


point_products.defvjp(lambda Z, X: (Z @ _transposed(X), (Z, X)), _points_backward)


def prior_root(kind: str, layer: Layer, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``L_z`` with ``L_z L_z^T = K_zz + jitter``, and ``L_z^{-1}``, ``(Q, M, M)``. Cost ``Q M^3``.

    Found in double precision, where JAX is allowed it, whatever that of the layer: rounding of
    ``K_zz`` in single precision is a hundredth of the jitter, and a model with little noise has
    another energy with that.
    """
    dtype, wide = layer.inducing.dtype, jax.dtypes.canonicalize_dtype(np.float64)
    layer = Layer(*(part.astype(wide) for part in layer))
    mask = mask.astype(wide)
    eye = jnp.eye(len(mask), dtype=wide)
    K = kernel_values(kind, layer, layer.inducing, mask) * mask
    amplitude = jnp.exp(layer.log_amplitude)[:, None, None]
    K = K + eye * (amplitude * JITTER + 1.0 - mask[:, None])
    factor, inverse = jax.lax.map(factor_and_inverse, K)
    return factor.astype(dtype), inverse.astype(dtype)


def factor_and_inverse(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cholesky factor of one matrix, and the inverse of that factor.

    Several matrices are taken one after another, by `jax.lax.map`: calls of LAPACK for many
    matrices at once wait for each other's threads in jaxlib, and two of them can wait forever.
    """
    factor = jnp.linalg.cholesky(matrix)
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return factor, solve_triangular(factor, eye, lower=True)


class Law(NamedTuple):
    """What training needs of the cavity and of ``q``.

    Attributes
    ----------
    mean : array of shape (P, M)
        ``mu_c``.
    shrinkage : array of shape (P, M, M)
        ``I - S_c``.
    divergence : array of shape ()
        ``D_{1-e}(q || p)``, summed over the nodes.
    """

    mean: jax.Array
    shrinkage: jax.Array
    divergence: jax.Array


def node_law(layer: Layer, e: jax.Array) -> Law:
    """Cavity of the layer, and how far ``q`` is from the prior. Cost ``P M^3``.

    ``D_{1-e} = (1-e)/2 mu^T C^{-1} mu + 1/(2e) log|C| - 1/2 log|S|`` is the Renyi divergence,
    Kullback-Leibler's for ``e = 0``. With ``R = (I - e S_c)^{-1}``, so that ``C = (1-e) R``,
    ``mu = R mu_c`` and ``S = C S_c``, it is ``1/2 mu_c^T R mu_c + (1-e)/(2e) (M log(1-e) +
    log|R|) - 1/2 log|S_c|``.
    """
    T = root_matrix(layer.root)
    scale = jax.lax.stop_gradient(root_shrinkage(jnp, T, e))
    shrinkage, terms = cavity(layer.mean, T * scale, e)
    log_roots = jnp.diagonal(layer.root, axis1=-2, axis2=-1).sum()
    log_roots = log_roots + T.shape[-1] * jnp.log(scale).sum()
    return Law(layer.mean, shrinkage, terms.sum() - log_roots)


@jax.custom_vjp
def cavity(mean: jax.Array, T: jax.Array, e: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``I - S_c`` of every node, and its divergence but for ``-1/2 log|S_c|``.

    As ``e`` is the share of one row, a few terms of a series in ``e S_c`` are enough but for few
    rows. The derivative is written by hand: ``d log|R| = e tr(R dS_c)`` and ``dR = e R dS_c R``
    need nothing but ``R`` and ``R mu_c``, so that there are three products for each node in all.
    """
    law, _ = _cavity_forward(mean, T, e)
    return law


def _cavity_forward(
    mean: jax.Array, T: jax.Array, e: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], Any]:
    size = T.shape[-1]
    S = T @ _transposed(T)
    square = S @ S
    small = _sizes(square, e).max() < SERIES_BELOW[T.dtype.name]
    R, solved, half_log = jax.lax.cond(small, by_series, by_factors, mean, S, square, e)
    quadratic = 0.5 * (mean * solved).sum(-1)
    terms = quadratic + (1.0 - e) * (half_log + 0.5 * size * jnp.log1p(-e) / e)
    return (jnp.eye(size, dtype=T.dtype) - S, terms), (T, e, R, solved)


def by_series(
    mean: jax.Array, S: jax.Array, square: jax.Array, e: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``R = (I - e S)^{-1}``, ``R mean`` and ``1/(2e) log|R|`` of every node, for small ``e |S|``.

    ``I + e S + e^2 S^2``, which slopes need only, and one term more of the other two:
    ``1/2 tr(S + e/2 S^2 + e^2/3 S^3 + e^3/4 S^4)`` is the last. In single precision nothing else
    would do: the logarithm of a number near one, divided by ``e``, has no digits left when rows
    are many.
    """
    R = jnp.eye(S.shape[-1], dtype=S.dtype) + e * S + e * e * square
    two = mean + e * _times(S, mean)
    return R, two + e * e * _times(square, two), _series_log(S, square, e)


def _series_log(S: jax.Array, square: jax.Array, e: jax.Array) -> jax.Array:
    """``1/(2e) log|R|`` of every node whose ``e |S|`` is small."""
    traces = (
        jnp.trace(S, axis1=-2, axis2=-1), (S * S).sum((-2, -1)), (S * square).sum((-2, -1)),
        (square * square).sum((-2, -1)),
    )  # fmt: skip
    return jnp.asarray(0.5 * sum(e**k / (k + 1) * trace for k, trace in enumerate(traces)))


def _sizes(square: jax.Array, e: jax.Array) -> jax.Array:
    """Bound of ``e |S|`` of every node, by the fourth root of ``tr S^4``."""
    return e * jnp.sqrt(jnp.sqrt((square * square).sum((-2, -1))))


def by_factors(
    mean: jax.Array, S: jax.Array, square: jax.Array, e: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The same for any ``e |S|`` below one, by the Cholesky factor of ``I - e S``.

    A node that is small itself, beside others that are not, keeps the digits of the series.
    """
    factor, half = jax.lax.map(factor_and_inverse, jnp.eye(S.shape[-1], dtype=S.dtype) - e * S)
    logarithm = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    small = _sizes(square, e) < SERIES_BELOW[S.dtype.name]
    half_log = jnp.where(small, _series_log(S, square, e), -logarithm / e)
    R = _transposed(half) @ half
    return R, _times(R, mean), half_log


def _times(matrices: jax.Array, vectors: jax.Array) -> jax.Array:
    return (matrices @ vectors[..., None])[..., 0]


def _cavity_backward(kept: Any, slopes: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    T, e, R, solved = kept
    to_shrinkage, to_terms = slopes
    from_terms = (1.0 - e) * R + e * solved[:, :, None] * solved[:, None, :]
    to_S = 0.5 * to_terms[:, None, None] * from_terms - to_shrinkage
    to_T = (to_S + _transposed(to_S)) @ T
    return to_terms[:, None] * solved, to_T, jnp.zeros_like(e)


cavity.defvjp(_cavity_forward, _cavity_backward)


def _transposed(matrices: jax.Array) -> jax.Array:
    return jnp.swapaxes(matrices, -1, -2)


@jax.custom_vjp
def node_products(V: jax.Array, W: jax.Array, K: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``v_p^T k_r`` and ``k_r^T W_p k_r`` for every node and row, ``(P, R)`` each.

    ``W`` is symmetric. Cost ``P M^2 R``. The derivative is written by hand because it can use
    the product ``W K`` again: one product more in all, where automatic differentiation takes
    two. Nodes are taken one after another: sweeps over one ``(M, R)`` array at a time take half
    the time of sweeps over those of all nodes.
    """
    values, _ = _products_forward(V, W, K)
    return values


def _products_forward(
    V: jax.Array, W: jax.Array, K: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], Any]:
    shared = K.shape[0] == 1

    def of_node(_: None, node: Any) -> tuple[None, tuple[jax.Array, jax.Array]]:
        W_p, K_p = (*node, K[0]) if shared else node
        product = W_p @ K_p
        return None, (product, (product * K_p).sum(0))

    _, (product, form) = _node_by_node(of_node, None, (W,) if shared else (W, K))
    linear = V @ K[0] if shared else jnp.einsum("pm,pmr->pr", V, K)
    return (linear, form), (V, product, K)


def _products_backward(kept: Any, slopes: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    V, product, K = kept
    by_linear, by_form = _made_once(*slopes)
    if K.shape[0] == 1:

        def add_node(to_K: jax.Array, node: Any) -> tuple[jax.Array, jax.Array]:
            product_p, by_form_p = node
            return to_K + 2.0 * product_p * by_form_p, (K[0] * by_form_p) @ K[0].T

        to_K, to_W = _node_by_node(add_node, V.T @ by_linear, (product, by_form))
        return (K[0] @ by_linear.T).T, to_W, to_K[None]

    def of_node(_: None, node: Any) -> tuple[None, tuple[jax.Array, jax.Array]]:
        V_p, product_p, K_p, by_linear_p, by_form_p = node
        to_K = 2.0 * product_p * by_form_p + V_p[:, None] * by_linear_p
        return None, ((K_p * by_form_p) @ K_p.T, to_K)

    _, (to_W, to_K) = _node_by_node(of_node, None, (V, product, K, by_linear, by_form))
    return jnp.einsum("pr,pmr->pm", by_linear, K), to_W, to_K


def _made_once(by_linear: jax.Array, by_form: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both as they are, but as a product: else every value of ``K`` makes its slope anew."""
    if len(by_linear) > UNROLLED:
        return by_linear, by_form
    both = jnp.concatenate([by_linear, by_form])
    both = jnp.eye(len(both), dtype=both.dtype) @ both
    return both[: len(by_linear)], both[len(by_linear) :]


def _node_by_node(of_node: Callable[..., Any], carry: Any, nodes: tuple[jax.Array, ...]) -> Any:
    return jax.lax.scan(of_node, carry, nodes, unroll=min(len(nodes[0]), UNROLLED))


node_products.defvjp(_products_forward, _products_backward)


def fold(inverse: jax.Array, shrinkage: jax.Array) -> jax.Array:
    """``L_z^{-T} (I - S_c) L_z^{-1}`` of every node, ``(P, M, M)``. Cost ``P M^3``."""
    P, M, _ = shrinkage.shape
    if inverse.shape[0] != 1:
        return _transposed(inverse) @ shrinkage @ inverse
    # products with one matrix for all nodes are two large ones; the matrices are symmetric
    half = _transposed((shrinkage.reshape(P * M, M) @ inverse[0]).reshape(P, M, M))
    return (half.reshape(P * M, M) @ inverse[0]).reshape(P, M, M)


@jax.custom_vjp
def tied(
    V: jax.Array, W: jax.Array, root: jax.Array, inverse: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """``V`` and ``W`` as they are, with the slopes of ``A = L_z^{-1} K`` by ``L_z^{-1}`` on them.

    What is made of ``V A`` and ``A^T W A`` has the slope ``sum_p (2 W_p dW_p + v_p dv_p^T) L_z^T``
    by ``L_z^{-1}``, where ``dv`` and ``dW`` are its slopes by ``V`` and ``W``: products of small
    matrices once, where the rows themselves would cost one more product with all of them.
    """
    return V, W


def _tied_backward(kept: Any, slopes: Any) -> tuple[jax.Array, ...]:
    V, W, root = kept
    to_V, to_W = slopes
    by_node = 2.0 * W @ to_W + V[:, :, None] * to_V[:, None, :]
    by_kernel = by_node if len(root) > 1 else by_node.sum(0, keepdims=True)
    return to_V, to_W, jnp.zeros_like(root), by_kernel @ _transposed(root)


tied.defvjp(lambda V, W, root, _: ((V, W), (V, W, root)), _tied_backward)


class Ready(NamedTuple):
    """A layer as all its rows need it.

    Attributes
    ----------
    layer : Layer
    mask : array of shape (M,)
        Which inducing points exist.
    V, W : arrays of shape (P, M) and (P, M, M)
        The nodes have mean ``V a`` and variance ``k(x,x) - a^T W a``.
    inverse : array of shape (Q, M, M) or None
        ``a = L_z^{-1} k(z,x)``; None where ``L_z^{-1}`` is folded into the other two, ``a = k``.
    """

    layer: Layer
    mask: jax.Array
    V: jax.Array
    W: jax.Array
    inverse: jax.Array | None


def ready_layer(kind: str, layer: Layer, mask: jax.Array, law: Law, n_rows: int) -> Ready:
    """What does not depend on the rows, done in the way that is best for so many of them.

    Folding ``L_z^{-1}`` costs, with derivatives, six products of ``M x M`` matrices a node, and
    ``A`` costs three of ``M x M`` with ``M x R`` a kernel, two of them where it is `tied`. The
    folded matrix has entries as large as the inverse of the jitter, and ``k^T W k`` cancels down
    to the amplitude: too much for single precision.
    """
    root, inverse = prior_root(kind, layer, mask)
    P, M = law.mean.shape
    V, W, n_values = law.mean, law.shrinkage, len(inverse) * n_rows
    if n_values > 2 * P * M and V.dtype.name == "float64":
        return Ready(layer, mask, (V[:, None, :] @ inverse)[:, 0], fold(inverse, W), None)
    if n_values > P * M:
        V, W = tied(V, W, root, inverse)
        inverse = jax.lax.stop_gradient(inverse)
    return Ready(layer, mask, V, W, inverse)


def row_moments(kind: str, ready: Ready, X: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of every node without its mean function, ``(P, R)`` each."""
    K = kernel_values(kind, ready.layer, X, ready.mask)
    A = K if ready.inverse is None else ready.inverse @ K
    mean, inside = node_products(ready.V, ready.W, A)
    amplitude = jnp.exp(ready.layer.log_amplitude)[:, None]
    return mean, jnp.maximum(amplitude - inside, amplitude * LEAST_VARIANCE)
