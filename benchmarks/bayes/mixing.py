"""Effective draws per second: ours, plain Polya-Gamma Gibbs, and NUTS by NumPyro.

All sample the same posterior of the same rows in the same process, one thread each, and are timed
in processor seconds. The effective size is the smallest over all weights, computed by one function
for everybody.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from benchmarks.common import Cases
from likelier import MCMC, BayesianLinearClassifier
from likelier.bayesian_linear.diagnostics import effective_size
from likelier.bayesian_linear.sampling import Sampling


@dataclass(frozen=True)
class Case:
    """A generated problem, and how long the peers sample."""

    rows: int
    features: int
    intercept: float
    nuts: tuple[int, int]  # warm-up, draws
    gibbs: tuple[int, int]  # of each of four chains
    learned: bool = False
    positives: int | None = None


CASES = {
    "n=1000 p=25": Case(1_000, 25, 0.0, (500, 4000), (100, 1000)),
    "n=10000 p=50": Case(10_000, 50, 0.0, (400, 2000), (30, 150)),
    "n=100000 p=20": Case(100_000, 20, 0.0, (300, 600), (10, 60)),
    "n=10000 p=20 74 positives": Case(10_000, 20, -6.3, (500, 3000), (200, 800), positives=74),
    "n=1000 p=25 learned scale": Case(1_000, 25, 0.0, (500, 4000), (100, 1000), learned=True),
}
OURS = 2000  # draws of each of four chains


def rows_of(case: Case, seed: int) -> tuple[Any, Any]:
    """Standardised rows, labels from a logistic model; exactly so many positives if asked."""
    rng = np.random.default_rng([seed, case.rows, case.features])
    X = rng.standard_normal((case.rows, case.features))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    weights = 1.5 * rng.standard_normal(case.features) / np.sqrt(case.features)
    scores = X @ weights + case.intercept
    if case.positives is None:
        return X, (rng.random(case.rows) < expit(scores)).astype(float)
    top = np.argsort(scores + rng.logistic(size=case.rows))[-case.positives :]
    y = np.zeros(case.rows)
    y[top] = 1.0
    return X, y


def run(names: tuple[str, ...], seeds: int, share: float = 1.0) -> Cases:
    """Measure every case with every seed."""
    for name in names:
        for seed in range(seeds):
            with threadpool_limits(1):
                record = _measure(CASES[name], seed, share)
            print(name, seed, {k: v.get("ess_per_second") for k, v in record["tools"].items()})
            yield f"{name} #{seed}", {"case": name, "seed": seed, **record}


def _measure(case: Case, seed: int, share: float) -> dict[str, Any]:
    X, y = rows_of(case, seed)
    tools: dict[str, Any] = {}
    for sampler in ("auto", "gibbs"):  # compiled code is loaded before the clock starts
        _ours(X[:500], y[:500], case, sampler, (4, 20))
    tools["likelier"], ours = _ours(X, y, case, "auto", (None, max(200, int(OURS * share))))
    warm, n = case.gibbs
    tools["Polya-Gamma Gibbs"], _ = _ours(X, y, case, "gibbs", (warm, max(40, int(n * share))))
    warm, n = case.nuts
    tools["NUTS"], nuts = _nuts(X, y, case, seed, (int(warm * share), int(n * share)))
    gap = np.abs(ours.mean(axis=(0, 1)) - nuts.mean(axis=(0, 1))) / nuts.std(axis=(0, 1))
    return {"tools": tools, "gap": float(gap.max()), "positives": int(y.sum())}


def _ours(
    X: Any, y: Any, case: Case, sampler: str, length: tuple[int | None, int]
) -> tuple[dict[str, Any], Any]:
    """Draw with our samplers, the fit of the Gaussian timed apart."""
    from likelier.fitting.dataset import local_engine

    if len(np.unique(y)) < 2:  # a warm-up call on too few rows
        y = np.arange(len(y)) % 2.0
    words = BayesianLinearClassifier(prior_precision="auto" if case.learned else 1.0)
    words.classes_ = np.array([0, 1])
    engine = local_engine(X, y, None, 0, 1, False)
    start = time.process_time()
    (model,) = words._models(engine)
    sampling = Sampling(model, MCMC(sampler, 4, length[1], length[0]))
    while not sampling.n_done:
        sampling = sampling.advanced(engine)
    ready, before = time.process_time(), sampling.n_done
    while not sampling.is_complete:
        sampling = sampling.advanced(engine)
    end = time.process_time()
    posterior = sampling.posterior()
    # the first burst that counts was made before the clock started
    share = 1.0 - before / max(sampling.n_done, 1)
    return _record(
        posterior.theta, ready - start, end - ready, share, sampling.route
    ), posterior.theta


def _record(draws: Any, setup: float, seconds: float, share: float, route: str) -> dict[str, Any]:
    size = float(effective_size(draws).min())
    return {
        "ess": size,
        "draws": int(draws.shape[0] * draws.shape[1]),
        "setup_seconds": setup,
        "seconds": seconds,
        "ess_per_second": size * share / max(seconds, 1e-9),
        "ess_per_second_all": size / (seconds + setup),
        "route": route,
    }


def _nuts(
    X: Any, y: Any, case: Case, seed: int, length: tuple[int, int]
) -> tuple[dict[str, Any], Any]:
    """NumPyro's NUTS with its own defaults; compiled, then warmed up, then timed.

    Its ``MCMC.run`` compiles anew at every call, which for small data is most of the time; here the
    loop over draws is compiled once, by a first call that is not timed.
    """
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS

    def model(X: Any, y: Any) -> None:
        scale = 1.0
        if case.learned:
            scale = numpyro.sample("tau", dist.Gamma(2.0, 0.2)) ** -0.5
        w = numpyro.sample("w", dist.Normal(0.0, scale).expand([X.shape[1]]))
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + b), obs=y)

    rows, labels = jax.numpy.asarray(X), jax.numpy.asarray(y)
    kernel, (warm, n) = NUTS(model), length

    def step(state: Any, _: Any) -> tuple[Any, Any]:
        state = kernel.sample(state, (rows, labels), {})
        return state, (state.z["w"], state.z["b"])

    start = time.process_time()
    state = kernel.init(jax.random.PRNGKey(seed), warm, None, (rows, labels), {})
    state, _ = jax.jit(lambda state: jax.lax.scan(step, state, None, length=warm))(state)
    many = jax.jit(lambda state: jax.lax.scan(step, state, None, length=n))
    state, _ = jax.block_until_ready(many(state))
    ready = time.process_time()
    _, (w, b) = jax.block_until_ready(many(state))
    seconds = time.process_time() - ready
    draws = np.column_stack([np.asarray(w), np.asarray(b)]).astype(float)[None]
    return _record(draws, ready - start, seconds, 1.0, "nuts"), draws
