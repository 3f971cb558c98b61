"""How the posterior of a Bayesian linear model is sampled, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from likelier.value import Value, integer, make_value, one_of


@dataclass(frozen=True)
class MCMC(Value):
    """Markov chain Monte Carlo, as ``inference=MCMC(...)`` of `BayesianLinearClassifier`.

    Parameters
    ----------
    sampler : {"auto", "independent", "hamiltonian", "gibbs"}, default="auto"
        "independent" proposes from a Gaussian approximation; "hamiltonian" is for posteriors far
        from Gaussian (few rows, separable classes); "gibbs" augments data. All have the same
        target; "auto" chooses by the efficiency of pilot proposals in the worst covered tail.
    n_chains : int, default=4
        Number of chains, with dispersed starting points, for convergence diagnostics.
    n_draws : int, default=500
        Draws per chain after warm-up and thinning.
    n_warmup : int or None, default=None
        Warm-up draws per chain; None uses the default of the sampler.
    thin : int, default=1
        Keep every ``thin``-th draw.
    """

    kind: ClassVar[str] = "inference"
    name: ClassVar[str] = "mcmc"
    sampler: str = one_of("auto", "independent", "hamiltonian", "gibbs")
    n_chains: int = integer(4, "[1, inf)")
    n_draws: int = integer(500, "[1, inf)")
    n_warmup: int | None = integer(None, "[0, inf)", None)
    thin: int = integer(1, "[1, inf)")


def make_inference(inference: Any) -> MCMC:
    """Return an inference from itself, "mcmc" or the name of a sampler."""
    samplers = {name: partial(MCMC, name) for name in ("independent", "hamiltonian", "gibbs")}
    return make_value(inference, MCMC, {"mcmc": MCMC, **samplers})
