"""R-hat and effective sizes: known answers, and ArviZ where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.bayesian_linear.diagnostics import (
    effective_size,
    r_hat,
    rank_normal,
    split_chains,
    tail_effective_size,
)


def autoregressive(rho, n_chains=4, n_draws=4000, size=3, seed=0):
    rng = np.random.default_rng(seed)
    x = np.empty((n_chains, n_draws, size))
    x[:, 0] = rng.standard_normal((n_chains, size))
    for t in range(1, n_draws):
        noise = rng.standard_normal((n_chains, size))
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1.0 - rho**2) * noise
    return x


@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.5, 0.9])
def test_effective_size_of_an_autoregression(rho):
    """n (1 - rho) / (1 + rho); off by more than a fifth about once in a thousand seeds."""
    draws = autoregressive(rho)
    wanted = draws.shape[0] * draws.shape[1] * (1.0 - rho) / (1.0 + rho)
    np.testing.assert_allclose(effective_size(draws), wanted, rtol=0.2)
    np.testing.assert_allclose(effective_size(draws, ranks=False), wanted, rtol=0.2)


def test_chains_that_agree_and_chains_that_do_not():
    draws = autoregressive(0.3)
    assert (r_hat(draws) < 1.01).all()
    apart, wider = draws.copy(), draws.copy()
    apart[0] += 1.0
    wider[0] *= 3.0  # the same location: only the folded version sees it
    assert (r_hat(apart) > 1.05).all()
    assert (r_hat(wider) > 1.05).all()
    drifting = draws + np.linspace(0.0, 2.0, draws.shape[1])[:, None]
    assert (r_hat(drifting) > 1.05).all()  # halves of every chain are compared


def test_few_draws_and_constants():
    assert np.isnan(r_hat(np.zeros((2, 3, 1)))).all()
    assert np.isnan(effective_size(np.zeros((2, 3, 1)))).all()
    assert r_hat(np.zeros((2, 50, 1))) == 1.0
    stuck = np.repeat([[[0.0]], [[1.0]]], 50, axis=1)
    assert r_hat(stuck) == np.inf or r_hat(stuck) > 2.0
    assert split_chains(np.arange(10).reshape(2, 5)[:, :, None]).shape == (4, 2, 1)
    ranks = rank_normal(np.array([[[3.0], [1.0], [2.0]]]))
    assert ranks[0, :, 0].argsort().tolist() == [1, 2, 0]


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.8])
@pytest.mark.filterwarnings("ignore")
def test_agrees_with_arviz(rho):
    arviz = pytest.importorskip("arviz")
    draws = autoregressive(rho, n_draws=501, size=1)[:, :, 0]
    ours = float(effective_size(draws[:, :, None])[0])
    np.testing.assert_allclose(ours, arviz.ess(draws, method="bulk"), rtol=0.03)
    tail = float(tail_effective_size(draws[:, :, None])[0])
    np.testing.assert_allclose(tail, arviz.ess(draws, method="tail"), rtol=0.03)
    plain = float(effective_size(draws[:, :, None], ranks=False)[0])
    np.testing.assert_allclose(plain, arviz.ess(draws, method="mean"), rtol=0.03)
    np.testing.assert_allclose(float(r_hat(draws[:, :, None])[0]), arviz.rhat(draws), rtol=1e-6)
