"""Chunks of rows of a minibatch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from likelier.deep_gp.chunks import CHUNK_VALUES, chunk_rows, in_chunks, summed

MOST = CHUNK_VALUES["float64"]


@pytest.mark.parametrize(
    ("n_rows", "n_samples", "size"),
    [
        (64, 1, 64),
        (MOST, 1, MOST),
        (2 * MOST, 1, MOST),
        (256, 10, 32),
        (1000, 10, 25),
        (257, 10, 257),  # a prime
        (254, 10, 254),  # twice a prime
        (64, 1000, 1),
    ],
)
def test_chunks_divide_the_rows_and_fit_the_cache(n_rows, n_samples, size):
    assert chunk_rows(n_rows, n_samples, "float64") == size


def test_values_of_chunks_are_those_of_all_rows():
    X = np.random.default_rng(0).standard_normal((2 * MOST, 3))

    def of_rows(rows):
        return rows.T, (rows * rows).T

    with jax.enable_x64(True):
        found = in_chunks(of_rows, jnp.asarray(X))
    for one, other in zip(found, of_rows(X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_sum_over_chunks_has_the_slopes_of_the_sum():
    rng = np.random.default_rng(1)
    learned, inputs, given = rng.standard_normal(3), rng.standard_normal((5, 4, 3)), np.arange(5.0)

    def of_chunk(learned, rows, scale):
        return scale * jnp.tanh(rows @ learned).sum()

    def plain(learned, inputs):
        return 3.0 * sum(of_chunk(learned, inputs[k], given[k]) for k in range(5))

    def chunked(learned, inputs):
        return 3.0 * summed(of_chunk, learned, inputs, given)

    with jax.enable_x64(True):
        exact, wanted = jax.value_and_grad(plain, argnums=(0, 1))(learned, inputs)
        value, slopes = jax.value_and_grad(chunked, argnums=(0, 1))(learned, inputs)
        without = chunked(learned, inputs)
    np.testing.assert_allclose([value, without], exact, rtol=1e-12)
    for one, other in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
