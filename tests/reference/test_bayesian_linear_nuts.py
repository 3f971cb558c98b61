"""Posterior means against NUTS (NumPyro), where it is installed; slow.

Both sides have errors of one or two hundredths of a standard deviation, so 0.1 is four or more of
them for the worst of all weights.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_wine

from likelier import BayesianLinearClassifier

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def generated(n, d, intercept):
    rng = np.random.default_rng([n, d])
    X = rng.standard_normal((n, d))
    scores = X @ (1.5 * rng.standard_normal(d) / np.sqrt(d)) + intercept
    return X, (rng.random(n) < expit(scores)).astype(int)


def wine():
    X, y = load_wine(return_X_y=True)
    return X, (y == 1).astype(int)


SETS = {
    "plain": lambda: generated(1000, 25, 0.0),
    "rare": lambda: generated(5000, 10, -5.0),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "wine": wine,
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("learned", [False, True])
def test_means_within_a_tenth_of_a_standard_deviation(name, learned):
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    dist = pytest.importorskip("numpyro.distributions")
    from numpyro.infer import MCMC, NUTS

    X, y = SETS[name]()
    Z = (X - X.mean(axis=0)) / X.std(axis=0)

    def model():
        scale = numpyro.sample("tau", dist.Gamma(2.0, 0.2)) ** -0.5 if learned else 1.0
        w = numpyro.sample("w", dist.Normal(0.0, scale).expand([Z.shape[1]]))
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
        numpyro.sample("y", dist.Bernoulli(logits=jax.numpy.asarray(Z) @ w + b), obs=y)

    mcmc = MCMC(NUTS(model), num_warmup=1000, num_samples=8000, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0))
    theirs = np.asarray(mcmc.get_samples()["w"], dtype=float)
    precision = "auto" if learned else X.var(axis=0)
    ours = BayesianLinearClassifier(
        prior_precision=precision, inference=MCMC(n_draws=3000), random_state=0
    )
    ours.fit(X, y)
    assert ours.r_hat_ < 1.02
    gap = np.abs(ours.coef_[0] * X.std(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
    assert gap.max() < 0.1
    draws = ours.coef_draws_.reshape(-1, X.shape[1]) * X.std(axis=0)
    # Widths of central intervals: where classes are separable a learned scale leaves tails of a
    # Student-t of four degrees of freedom, whose sample deviations have no variance themselves.
    ours_wide, theirs_wide = (np.ptp(np.quantile(d, [0.1, 0.9], axis=0), axis=0)
                              for d in (draws, theirs))  # fmt: skip
    np.testing.assert_allclose(ours_wide, theirs_wide, rtol=0.1)
    if not learned:
        np.testing.assert_allclose(draws.std(axis=0), theirs.std(axis=0), rtol=0.1)
