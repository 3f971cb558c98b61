"""What the tests of `BayesianLinearClassifier` share."""

from __future__ import annotations

from likelier import MCMC, BayesianLinearClassifier

SAMPLING = {"sampler", "n_chains", "n_draws", "n_warmup", "thin"}


def bayesian(loss="log_loss", **words):
    """The classifier; what belongs to the sampling is given to `MCMC`."""
    sampling = {name: words.pop(name) for name in SAMPLING & words.keys()}
    return BayesianLinearClassifier(loss, inference=MCMC(**sampling), **words)
