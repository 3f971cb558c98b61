"""The normal distribution function in JAX against SciPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erfcx, log_ndtr
from scipy.stats import norm

from likelier.deep_gp.normal import ROUGH, factor_and_hazard, hazard, log_cdf, log_cdf_curvature

Z = np.concatenate([np.linspace(-40.0, 35.0, 7501), -np.logspace(1.6, 12.0, 200)])
EXACT_HAZARD = np.where(
    Z < 0,
    np.sqrt(2.0 / np.pi) / erfcx(-np.minimum(Z, 0.0) / np.sqrt(2.0)),
    norm.pdf(Z) / norm.cdf(np.maximum(Z, 0.0)),
)


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 4e-13), ("float32", 4e-6)])
def test_log_cdf_and_hazard(dtype, rtol):
    """Far out the error is that of rounding ``z^2 / 2`` in the exponent, up to 600 roundings."""
    with jax.enable_x64(True):
        z = jnp.asarray(Z, dtype)
        keep = np.asarray(z, float) < (35.0 if dtype == "float64" else 12.0)  # not yet zero
        value, rate = map(np.asarray, jax.jit(lambda z: (log_cdf(z), hazard(z)))(z))
    assert value.dtype == dtype
    np.testing.assert_allclose(value[keep], log_ndtr(np.asarray(z, float))[keep], rtol=rtol)
    middle = np.asarray(z, float) < 10.0  # exp(-z^2/2) is as sensitive as z^2 is large
    np.testing.assert_allclose(rate[middle], EXACT_HAZARD[middle], rtol=10 * rtol)


def test_derivatives():
    with jax.enable_x64(True):
        z = jnp.asarray(np.linspace(-50.0, 8.0, 59))
        first = np.asarray(jax.vmap(jax.grad(log_cdf))(z))
        second = np.asarray(jax.vmap(jax.grad(jax.grad(log_cdf)))(z))
        rate = hazard(z)
        np.testing.assert_allclose(first, rate, rtol=1e-14)
        np.testing.assert_allclose(second, -log_cdf_curvature(z, rate), rtol=1e-14)
        step = 1e-4
        numeric = np.asarray(hazard(z + step) - hazard(z - step)) / (2.0 * step)
    np.testing.assert_allclose(second, numeric, atol=1e-6)
    assert (np.diff(second) >= -1e-12).all()  # the curvature decreases: grids rely on it


def test_the_rough_series_is_good_enough_for_searches():
    z = jnp.asarray(Z[Z > -1e4], jnp.float32)
    np.testing.assert_allclose(factor_and_hazard(z, ROUGH)[0], factor_and_hazard(z)[0], rtol=4e-5)


def test_the_users_configuration_is_left_alone():
    assert not jax.config.jax_enable_x64
    assert log_cdf(jnp.zeros(1)).dtype == jnp.float32
