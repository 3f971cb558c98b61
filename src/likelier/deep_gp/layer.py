"""One layer of a deep Gaussian process: sparse, whitened, in JAX.

Per output node ``u = L_z w``, ``q(w) = N(mu, S)``, ``A = L_z^{-1} K_zx``. With ``e = alpha / N``
and ``C = (1-e) I + e S`` the cavity is ``mu_c = (1-e) C^{-1} mu``, ``S_c = C^{-1} S``, and in
training the node has mean ``m(x) + A^T mu_c`` and variance ``k(x,x) - A^T (I - S_c) A``.

The variational parameters are ``mu_c`` and ``S_c`` themselves, because every minibatch needs the
cavity. ``q`` follows by ``mu = R mu_c``, ``S = (1-e) R S_c`` with ``R = (I - e S_c)^{-1}``; it is
needed for its divergence only, which a short series gives, and once at the end for prediction.

Shapes: ``M`` inducing points, ``D`` inputs, ``P`` nodes, ``Q`` kernels (one, or one per node),
``R`` rows. Matrices of kernel values are ``(Q, M, R)``, as in the formulas.

Shapes are padded to few sizes so that one compiled program serves many data sets. A mask of ones
and zeros marks the inducing points that are not padding; padded points have zero covariance with
everything.
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
    MIN_VARIANCE,
    correlation,
    root_shrinkage,
)

MASKED = 1e4  # exp(-MASKED) is zero
SERIES_BELOW = {"float32": 1e-2, "float64": 4e-3}  # of e |S_c|; its fourth power is the error
UNROLLED = 8  # largest unrolling of a loop over nodes


class Layer(NamedTuple):
    """Parameters of a layer; scales are logarithms, hence unconstrained.

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
        ``S_c = T T^T``; ``T`` below the diagonal, the logarithm of T's diagonal on it.
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

    Padded points are masked through the amplitude, which costs no additional operation.
    """
    squared = jnp.exp(-2.0 * layer.log_scale)
    log_amplitude = layer.log_amplitude[:, None] - MASKED * (1.0 - mask)
    if kind == "rbf":  # the amplitude enters at the end, its gradient through `near`
        value = jax.lax.stop_gradient(log_amplitude)
        near = negative_half_squares(layer.inducing, X, squared, log_amplitude - value)
        return jnp.asarray(correlation(jnp, kind, -near, value[:, :, None]))
    halves = -negative_half_squares(layer.inducing, X, squared, jnp.zeros_like(log_amplitude))
    return jnp.asarray(correlation(jnp, kind, halves, log_amplitude[:, :, None]))


def negative_half_squares(Z: jax.Array, X: jax.Array, s: jax.Array, offset: jax.Array) -> jax.Array:
    """``offset - sum_d s_d (z_d - x_d)^2 / 2`` for every kernel, point and row, ``(Q, M, R)``.

    Computed as one product, ``(s z, offset - s z^2/2, 1)^T (x, 1, -s x^2/2)``, so that its
    gradients are products too, without one operation on the whole array per term.
    """
    scaled = Z * s[:, None, :]
    from_Z = offset[:, :, None] - 0.5 * (Z * scaled).sum(-1, keepdims=True)
    from_X = -0.5 * (s @ (X * X).T)[:, :, None]
    ones = jnp.ones_like(from_Z), jnp.ones_like(from_X)
    rows = jnp.broadcast_to(X, (len(s), *X.shape))
    return point_products(
        jnp.concatenate([scaled, from_Z, ones[0]], -1), jnp.concatenate([rows, ones[1], from_X], -1)
    )


@jax.custom_vjp
def point_products(Z: jax.Array, X: jax.Array) -> jax.Array:
    """``Z X^T``; the gradient by ``X`` is ``(Z^T G)^T``, four times faster than ``G^T Z``."""
    return Z @ _transposed(X)


def _points_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    Z, X = saved
    grad_X = _transposed(Z) @ gradient
    # keeps the compiler from reordering the product
    grad_X = jax.lax.optimization_barrier(grad_X)  # type: ignore[no-untyped-call]
    return gradient @ X, _transposed(grad_X)


point_products.defvjp(lambda Z, X: (Z @ _transposed(X), (Z, X)), _points_backward)


def prior_root(kind: str, layer: Layer, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``L_z`` with ``L_z L_z^T = K_zz + jitter``, and ``L_z^{-1}``, ``(Q, M, M)``. Cost ``Q M^3``.

    Computed in double precision, if enabled in JAX, for every dtype of the layer: rounding of
    ``K_zz`` in single precision is a hundredth of the jitter, which changes the energy of a model
    with little noise.
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

    Use `jax.lax.map` for several matrices: in jaxlib, batched calls of LAPACK wait for each other's
    threads and can deadlock.
    """
    factor = jnp.linalg.cholesky(matrix)
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return factor, solve_triangular(factor, eye, lower=True)


class Cavity(NamedTuple):
    """Moments of the cavity, and the divergence of ``q``, as used in training.

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


def layer_cavity(layer: Layer, e: jax.Array) -> Cavity:
    """Cavity of the layer, and the divergence of ``q`` from the prior. Cost ``P M^3``.

    ``D_{1-e} = (1-e)/2 mu^T C^{-1} mu + 1/(2e) log|C| - 1/2 log|S|`` is the Renyi divergence,
    Kullback-Leibler's for ``e = 0``. With ``R = (I - e S_c)^{-1}``, so that ``C = (1-e) R``,
    ``mu = R mu_c`` and ``S = C S_c``, it is ``1/2 mu_c^T R mu_c + (1-e)/(2e) (M log(1-e) +
    log|R|) - 1/2 log|S_c|``.
    """
    T = root_matrix(layer.root)
    scale = jax.lax.stop_gradient(root_shrinkage(jnp, T, e))
    shrinkage, terms = cavity_terms(layer.mean, T * scale, e)
    log_roots = jnp.diagonal(layer.root, axis1=-2, axis2=-1).sum()
    log_roots = log_roots + T.shape[-1] * jnp.log(scale).sum()
    return Cavity(layer.mean, shrinkage, terms.sum() - log_roots)


@jax.custom_vjp
def cavity_terms(mean: jax.Array, T: jax.Array, e: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``I - S_c`` of every node, and its divergence without the term ``-1/2 log|S_c|``.

    As ``e`` is the fraction of one row, a few terms of a series in ``e S_c`` suffice unless there
    are few rows. The gradient is written by hand: ``d log|R| = e tr(R dS_c)`` and ``dR = e R dS_c
    R`` need ``R`` and ``R mu_c`` only, a total of three products per node.
    """
    cavity, _ = _cavity_forward(mean, T, e)
    return cavity


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

    ``R`` is ``I + e S + e^2 S^2``, which only gradients use; the other two have one more term: the
    last is ``1/2 tr(S + e/2 S^2 + e^2/3 S^3 + e^3/4 S^4)``. The series is required in single
    precision: with many rows, the logarithm of a number near one divided by ``e`` has no
    significant digits.
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
    """Upper bound of ``e |S|`` of every node, by the fourth root of ``tr S^4``."""
    return e * jnp.sqrt(jnp.sqrt((square * square).sum((-2, -1))))


def by_factors(
    mean: jax.Array, S: jax.Array, square: jax.Array, e: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The same for any ``e |S|`` below one, by the Cholesky factor of ``I - e S``.

    Nodes whose own ``e |S|`` is small use the series, which is more accurate.
    """
    factor, half = jax.lax.map(factor_and_inverse, jnp.eye(S.shape[-1], dtype=S.dtype) - e * S)
    logarithm = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    small = _sizes(square, e) < SERIES_BELOW[S.dtype.name]
    half_log = jnp.where(small, _series_log(S, square, e), -logarithm / e)
    R = _transposed(half) @ half
    return R, _times(R, mean), half_log


def _times(matrices: jax.Array, vectors: jax.Array) -> jax.Array:
    return (matrices @ vectors[..., None])[..., 0]


def _cavity_backward(saved: Any, gradients: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    T, e, R, solved = saved
    grad_shrinkage, grad_terms = gradients
    from_terms = (1.0 - e) * R + e * solved[:, :, None] * solved[:, None, :]
    grad_S = 0.5 * grad_terms[:, None, None] * from_terms - grad_shrinkage
    grad_T = (grad_S + _transposed(grad_S)) @ T
    return grad_terms[:, None] * solved, grad_T, jnp.zeros_like(e)


cavity_terms.defvjp(_cavity_forward, _cavity_backward)


def _transposed(matrices: jax.Array) -> jax.Array:
    return jnp.swapaxes(matrices, -1, -2)


@jax.custom_vjp
def node_products(V: jax.Array, W: jax.Array, K: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``v_p^T k_r`` and ``k_r^T W_p k_r`` for every node and row, ``(P, R)`` each.

    ``W`` is symmetric. Cost ``P M^2 R``. The gradient is written by hand because it reuses the
    product ``W K``: it needs one more product, automatic differentiation two. A loop over the
    nodes, with one ``(M, R)`` array at a time, takes half the time of operations on all nodes.
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


def _products_backward(saved: Any, gradients: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    V, product, K = saved
    grad_linear, grad_form = _materialised(*gradients)
    if K.shape[0] == 1:

        def add_node(grad_K: jax.Array, node: Any) -> tuple[jax.Array, jax.Array]:
            product_p, grad_form_p = node
            return grad_K + 2.0 * product_p * grad_form_p, (K[0] * grad_form_p) @ K[0].T

        grad_K, grad_W = _node_by_node(add_node, V.T @ grad_linear, (product, grad_form))
        return (K[0] @ grad_linear.T).T, grad_W, grad_K[None]

    def of_node(_: None, node: Any) -> tuple[None, tuple[jax.Array, jax.Array]]:
        V_p, product_p, K_p, grad_linear_p, grad_form_p = node
        grad_K = 2.0 * product_p * grad_form_p + V_p[:, None] * grad_linear_p
        return None, ((K_p * grad_form_p) @ K_p.T, grad_K)

    _, (grad_W, grad_K) = _node_by_node(of_node, None, (V, product, K, grad_linear, grad_form))
    return jnp.einsum("pr,pmr->pm", grad_linear, K), grad_W, grad_K


def _materialised(grad_linear: jax.Array, grad_form: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both unchanged, but materialised by a product, so that they are not recomputed per row."""
    if len(grad_linear) > UNROLLED:
        return grad_linear, grad_form
    both = jnp.concatenate([grad_linear, grad_form])
    both = jnp.eye(len(both), dtype=both.dtype) @ both
    return both[: len(grad_linear)], both[len(grad_linear) :]


def _node_by_node(of_node: Callable[..., Any], carry: Any, nodes: tuple[jax.Array, ...]) -> Any:
    return jax.lax.scan(of_node, carry, nodes, unroll=min(len(nodes[0]), UNROLLED))


node_products.defvjp(_products_forward, _products_backward)


def fold_inverse(inverse: jax.Array, shrinkage: jax.Array) -> jax.Array:
    """``L_z^{-T} (I - S_c) L_z^{-1}`` of every node, ``(P, M, M)``. Cost ``P M^3``."""
    P, M, _ = shrinkage.shape
    if inverse.shape[0] != 1:
        return _transposed(inverse) @ shrinkage @ inverse
    # with one matrix for all nodes, two large products suffice; the matrices are symmetric
    half = _transposed((shrinkage.reshape(P * M, M) @ inverse[0]).reshape(P, M, M))
    return (half.reshape(P * M, M) @ inverse[0]).reshape(P, M, M)


@jax.custom_vjp
def attach_inverse_gradient(
    V: jax.Array, W: jax.Array, root: jax.Array, inverse: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """``V`` and ``W`` unchanged, but carrying the gradient of ``A = L_z^{-1} K`` by ``L_z^{-1}``.

    A function of ``V A`` and ``A^T W A`` has the gradient ``sum_p (2 W_p dW_p + v_p dv_p^T) L_z^T``
    by ``L_z^{-1}``, where ``dv`` and ``dW`` are its gradients by ``V`` and ``W``: products of small
    matrices only, instead of another product over all rows.
    """
    return V, W


def _attach_backward(saved: Any, gradients: Any) -> tuple[jax.Array, ...]:
    V, W, root = saved
    grad_V, grad_W = gradients
    by_node = 2.0 * W @ grad_W + V[:, :, None] * grad_V[:, None, :]
    by_kernel = by_node if len(root) > 1 else by_node.sum(0, keepdims=True)
    return grad_V, grad_W, jnp.zeros_like(root), by_kernel @ _transposed(root)


attach_inverse_gradient.defvjp(lambda V, W, root, _: ((V, W), (V, W, root)), _attach_backward)


class PreparedLayer(NamedTuple):
    """A layer with everything that does not depend on the rows precomputed.

    Attributes
    ----------
    layer : Layer
    mask : array of shape (M,)
        One for inducing points, zero for padding.
    V, W : arrays of shape (P, M) and (P, M, M)
        The nodes have mean ``V a`` and variance ``k(x,x) - a^T W a``.
    inverse : array of shape (Q, M, M) or None
        ``a = L_z^{-1} k(z,x)``; None if ``L_z^{-1}`` is folded into the other two, ``a = k``.
    """

    layer: Layer
    mask: jax.Array
    V: jax.Array
    W: jax.Array
    inverse: jax.Array | None


def prepare_layer(
    kind: str, layer: Layer, mask: jax.Array, cavity: Cavity, n_rows: int
) -> PreparedLayer:
    """Precompute everything that does not depend on the rows, in the cheapest way for ``n_rows``.

    Folding ``L_z^{-1}`` costs, with gradients, six products of ``M x M`` matrices per node. ``A``
    costs three products of ``M x M`` with ``M x R`` per kernel, two if the gradient of the inverse
    is attached to ``V`` and ``W``. The folded matrix has entries as large as the inverse of the
    jitter, and ``k^T W k`` loses too many digits by cancellation for single precision.
    """
    root, inverse = prior_root(kind, layer, mask)
    P, M = cavity.mean.shape
    V, W, n_values = cavity.mean, cavity.shrinkage, len(inverse) * n_rows
    if n_values > 2 * P * M and V.dtype.name == "float64":
        return PreparedLayer(
            layer, mask, (V[:, None, :] @ inverse)[:, 0], fold_inverse(inverse, W), None
        )
    if n_values > P * M:
        V, W = attach_inverse_gradient(V, W, root, inverse)
        inverse = jax.lax.stop_gradient(inverse)
    return PreparedLayer(layer, mask, V, W, inverse)


def row_moments(kind: str, prepared: PreparedLayer, X: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean (without the mean function) and variance of every node, ``(P, R)`` each."""
    K = kernel_values(kind, prepared.layer, X, prepared.mask)
    A = K if prepared.inverse is None else prepared.inverse @ K
    mean, inside = node_products(prepared.V, prepared.W, A)
    amplitude = jnp.exp(prepared.layer.log_amplitude)[:, None]
    return mean, jnp.maximum(amplitude - inside, amplitude * MIN_VARIANCE)
