"""Minibatches taken in chunks of rows, in JAX.

Kernel values of a chunk stay in the processor's cache between the sweeps over them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

CHUNK_VALUES = {"float32": 640, "float64": 320}  # rows times samples: of 128 points 320 kB
INNER_ROWS = 1024  # with so many, what chunks leave behind for the slopes costs more than it saves


def chunk_rows(n_rows: int, n_samples: int, dtype: str) -> int:
    """How many rows a chunk has: the largest part of all that the cache holds with its samples.

    All of them where they have no such part, as a prime number of rows: tiny chunks cost more.
    """
    most = max(1, CHUNK_VALUES[dtype] // n_samples)
    size = next(size for size in range(min(n_rows, most), 0, -1) if n_rows % size == 0)
    return size if 4 * size >= most else n_rows


def in_chunks(
    of_rows: Callable[[jax.Array], tuple[jax.Array, jax.Array]], X: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """``of_rows(X)``, two arrays ``(P, R)``, made from chunks of rows one after another."""
    n_rows = X.shape[0]
    size = n_rows if n_rows <= INNER_ROWS else chunk_rows(n_rows, 1, X.dtype.name)
    parts = jax.lax.map(of_rows, X.reshape(-1, size, X.shape[1]))
    mean, inside = (jnp.moveaxis(part, 1, 0).reshape(-1, n_rows) for part in parts)
    return mean, inside


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def summed(of_chunk: Callable[..., jax.Array], learned: Any, inputs: jax.Array, given: Any) -> Any:
    """``sum_k of_chunk(learned, inputs_k, given_k)``.

    The slopes by ``learned`` and ``inputs`` are found in the same pass as the sum: a chunk is done
    with when the next one begins, and nothing of it has to be kept.
    """
    total, _ = _summed_forward(of_chunk, learned, inputs, given)
    return total


def _summed_forward(
    of_chunk: Callable[..., jax.Array], learned: Any, inputs: jax.Array, given: Any
) -> tuple[jax.Array, Any]:
    slopes_of = jax.value_and_grad(of_chunk, argnums=(0, 1))

    def add(sums: Any, chunk: Any) -> tuple[Any, jax.Array]:
        value, (to_learned, to_inputs) = slopes_of(learned, *chunk)
        return jax.tree.map(jnp.add, sums, (value, to_learned)), to_inputs

    start = (jnp.zeros((), inputs.dtype), jax.tree.map(jnp.zeros_like, learned))
    (total, to_learned), to_inputs = jax.lax.scan(add, start, (inputs, given))
    return total, (to_learned, to_inputs, given)


def _summed_backward(
    of_chunk: Callable[..., jax.Array], kept: Any, slope: jax.Array
) -> tuple[Any, jax.Array, Any]:
    to_learned, to_inputs, given = kept
    to_learned, to_inputs = jax.tree.map(lambda part: slope * part, (to_learned, to_inputs))
    return to_learned, to_inputs, jax.tree.map(jnp.zeros_like, given)


summed.defvjp(_summed_forward, _summed_backward)
