"""Chunks of the rows of a minibatch, in JAX.

Kernel values of a chunk stay in the processor's cache from one operation to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

CHUNK_VALUES = {"float32": 640, "float64": 320}  # rows times samples; 320 kB with 128 points
# With at most so many rows, storing residuals per chunk for the gradient costs more than it saves.
INNER_ROWS = 1024


def chunk_rows(n_rows: int, n_samples: int, dtype: str) -> int:
    """Rows per chunk: the largest divisor of ``n_rows`` that fits in the cache.

    All rows if there is no such divisor, as with a prime ``n_rows``: tiny chunks are slower.
    """
    most = max(1, CHUNK_VALUES[dtype] // n_samples)
    size = next(size for size in range(min(n_rows, most), 0, -1) if n_rows % size == 0)
    return size if 4 * size >= most else n_rows


def in_chunks(
    of_rows: Callable[[jax.Array], tuple[jax.Array, jax.Array]], X: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """``of_rows(X)``, two arrays ``(P, R)``, evaluated chunk by chunk."""
    n_rows = X.shape[0]
    size = n_rows if n_rows <= INNER_ROWS else chunk_rows(n_rows, 1, X.dtype.name)
    parts = jax.lax.map(of_rows, X.reshape(-1, size, X.shape[1]))
    mean, inside = (jnp.moveaxis(part, 1, 0).reshape(-1, n_rows) for part in parts)
    return mean, inside


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def summed(of_chunk: Callable[..., jax.Array], learned: Any, inputs: jax.Array, given: Any) -> Any:
    """``sum_k of_chunk(learned, inputs_k, given_k)``.

    The gradients with respect to ``learned`` and ``inputs`` are computed in the same pass as the
    sum, so that no intermediate values of a chunk are stored.
    """
    total, _ = _summed_forward(of_chunk, learned, inputs, given)
    return total


def _summed_forward(
    of_chunk: Callable[..., jax.Array], learned: Any, inputs: jax.Array, given: Any
) -> tuple[jax.Array, Any]:
    value_and_gradient = jax.value_and_grad(of_chunk, argnums=(0, 1))

    def add(sums: Any, chunk: Any) -> tuple[Any, jax.Array]:
        value, (grad_learned, grad_inputs) = value_and_gradient(learned, *chunk)
        return jax.tree.map(jnp.add, sums, (value, grad_learned)), grad_inputs

    start = (jnp.zeros((), inputs.dtype), jax.tree.map(jnp.zeros_like, learned))
    (total, grad_learned), grad_inputs = jax.lax.scan(add, start, (inputs, given))
    return total, (grad_learned, grad_inputs, given)


def _summed_backward(
    of_chunk: Callable[..., jax.Array], saved: Any, gradient: jax.Array
) -> tuple[Any, jax.Array, Any]:
    grad_learned, grad_inputs, given = saved
    grad_learned, grad_inputs = jax.tree.map(
        lambda part: gradient * part, (grad_learned, grad_inputs)
    )
    return grad_learned, grad_inputs, jax.tree.map(jnp.zeros_like, given)


summed.defvjp(_summed_forward, _summed_backward)
