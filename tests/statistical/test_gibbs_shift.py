"""The shift common to jointly treated classes: drawn from what the prior says, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax
from tests.reference.bayesian_problem import make_model

from likelier.bayesian_linear.gibbs import draw_common_shift

N = 20_000


@pytest.mark.parametrize("learned", [False, True])
def test_weights_from_the_prior_stay_so_whatever_means_and_precisions(learned):
    """Kolmogorov-Smirnov of every weight and sum; a right move fails one seed in a thousand."""
    model = make_model(2, n_classes=3, fit_intercept=True, learned=learned)
    rng, prior = np.random.default_rng(0), model.prior
    uneven = {
        "mean": rng.normal(size=9),
        "fixed": prior.fixed * rng.uniform(0.5, 3.0, 9),
        "scaled": prior.scaled * rng.uniform(0.5, 3.0, 9),
    }
    model = replace(model, prior=replace(prior, **uneven))
    eta = np.full(N, 0.7)
    sd = 1.0 / np.sqrt(model.prior.precision(0.7))
    theta = model.prior.mean + sd * rng.standard_normal((N, 9))
    found = draw_common_shift(model, theta, eta, np.random.default_rng(1))
    for j in range(9):
        scaled = (found[:, j] - model.prior.mean[j]) / sd[j]
        assert stats.kstest(scaled, "norm").pvalue > 1e-4
    sums = (found - model.prior.mean).reshape(N, 3, 3).sum(axis=1)
    spread = np.sqrt((sd.reshape(3, 3) ** 2).sum(axis=0))
    for j in range(3):
        assert stats.kstest(sums[:, j] / spread[j], "norm").pvalue > 1e-4
    # it is no small step: the weighted mean of the classes is new, and no probability is
    cube, old = found.reshape(N, 3, 3), theta.reshape(N, 3, 3)
    weight = model.prior.precision(0.7).reshape(3, 3)
    now, before = ((c * weight).sum(axis=1)[:, 0] for c in (cube, old))
    assert abs(np.corrcoef(now, before)[0, 1]) < 0.04
    row = np.array([0.3, -1.0, 1.0])
    np.testing.assert_allclose(softmax(cube @ row, axis=1), softmax(old @ row, axis=1), atol=1e-12)
