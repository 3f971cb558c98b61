"""The mixture against brute force: expectations, divergences, responsibilities, the bound."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import betaln, digamma, gammaln

from likelier.base import Batch
from likelier.engines import LocalEngine
from likelier.multilabel.distributions import (
    BernoulliDistribution,
    GaussianDistribution,
    MultinomialDistribution,
    feature_prior,
    infer_distribution,
    label_prior,
)
from likelier.multilabel.mixture import DirichletMixture, MixtureParameters
from likelier.multilabel.variational import VariationalMixture, prune

RNG = np.random.default_rng(0)
N, D, L, K = 120, 6, 4, 8
DRAWS = 200_000
FEATURES = {
    "gaussian": RNG.normal(size=(N, D)) + 3.0 * RNG.integers(0, 3, size=(N, 1)),
    "bernoulli": (RNG.random((N, D)) < RNG.random(D)).astype(float),
    "multinomial": RNG.poisson(2.0, size=(N, D)).astype(float),
}
LABELS = (RNG.random((N, L)) < 0.4).astype(float)
LABELS[RNG.random((N, L)) < 0.2] = np.nan
LABELS[100:] = np.nan  # rows without any label
WEIGHT = RNG.uniform(0.5, 2.0, N)
DISTRIBUTIONS = {
    "bernoulli": BernoulliDistribution(np.array([[0.7, 1.5], [1.3, 0.6]])),
    "multinomial": MultinomialDistribution(np.array([[0.7, 1.5, 0.4]])),
    "gaussian": GaussianDistribution(np.array([[1.0, 2.0], [0.3, -1.0], [3.0, 4.0], [2.5, 3.5]])),
}


def posterior_of(name):
    """Natural parameters of two components after some rows."""
    distribution = DISTRIBUTIONS[name]
    rows = FEATURES[name][:30, : distribution.n_columns]
    R = np.random.default_rng(1).random((30, 2))
    return distribution, distribution.prior[:, None] + distribution.stats(rows, R), rows[:5]


def draw_parameters(name, eta, k):
    """Draws of the parameters of component ``k``, and their log density minus the prior's."""
    rng = np.random.default_rng([2, k])
    distribution, now = DISTRIBUTIONS[name], eta[:, k]

    def beta_log(p, a, b):
        return ((a - 1) * np.log(p) + (b - 1) * np.log1p(-p) - betaln(a, b)).sum(axis=1)

    def dirichlet_log(p, a):
        return ((a - 1) * np.log(p)).sum(axis=1) + gammaln(a.sum()) - gammaln(a).sum()

    def normal_gamma_log(mu, lam, natural):
        kappa, m = natural[0], natural[1] / natural[0]
        a, b = natural[2] / 2, (natural[3] - kappa * m * m) / 2
        gamma = a * np.log(b) - gammaln(a) + (a - 1) * np.log(lam) - b * lam
        normal = 0.5 * np.log(kappa * lam / (2 * np.pi)) - kappa * lam / 2 * (mu - m) ** 2
        return (gamma + normal).sum(axis=1)

    if name == "bernoulli":
        p = rng.beta(*now, size=(DRAWS, distribution.n_columns))
        return (p,), beta_log(p, *now) - beta_log(p, *distribution.prior)
    if name == "multinomial":
        p = rng.dirichlet(now[0], size=DRAWS)
        return (p,), dirichlet_log(p, now[0]) - dirichlet_log(p, distribution.prior[0])
    kappa, m = now[0], now[1] / now[0]
    a, b = now[2] / 2, (now[3] - kappa * m * m) / 2
    lam = rng.gamma(a, 1.0 / b, size=(DRAWS, distribution.n_columns))
    mu = m + rng.normal(size=lam.shape) / np.sqrt(kappa * lam)
    return (mu, lam), normal_gamma_log(mu, lam, now) - normal_gamma_log(mu, lam, distribution.prior)


def log_density(name, parameters, x):
    if name == "bernoulli":
        (p,) = parameters
        return (x * np.log(p) + (1 - x) * np.log1p(-p)).sum(axis=1)
    if name == "multinomial":
        return (x * np.log(parameters[0])).sum(axis=1)
    mu, lam = parameters
    return (0.5 * np.log(lam / (2 * np.pi)) - lam / 2 * (x - mu) ** 2).sum(axis=1)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_expected_log_densities_are_averages_over_draws(name):
    distribution, eta, rows = posterior_of(name)
    found = distribution.expected_log(eta, rows)
    for k in range(2):
        parameters, _ = draw_parameters(name, eta, k)
        for i, x in enumerate(rows):
            draws = log_density(name, parameters, x)
            error = draws.std() / np.sqrt(DRAWS)
            assert abs(found[i, k] - draws.mean()) < 5.5 * error  # fails once in 10^6 runs


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_divergences_are_averages_over_draws(name):
    distribution, eta, _ = posterior_of(name)
    total, variance = 0.0, 0.0
    for k in range(2):
        ratio = draw_parameters(name, eta, k)[1]
        total, variance = total + ratio.mean(), variance + ratio.var() / DRAWS
    assert abs(distribution.divergence(eta) - total) < 5.5 * np.sqrt(variance)
    assert distribution.divergence(
        np.repeat(distribution.prior[:, None], 2, axis=1)
    ) == pytest.approx(0.0, abs=1e-9)


def model_of(name, label_distribution="bernoulli", temperature=1.0, n_components=K):
    X = FEATURES[name]
    return DirichletMixture(
        feature_prior(name, X),
        label_prior(label_distribution, LABELS, WEIGHT),
        n_components,
        temperature,
    )


def run(model, X, steps, seed=0, Y=LABELS, weight=WEIGHT):
    inference = VariationalMixture(tol=0.0)
    with LocalEngine(X, Y, weight, seed=seed) as engine:
        state = inference.init(model, engine)
        bounds = []
        for _ in range(steps):
            state, info = inference.step(state, engine)
            bounds.append(-info.objective)
    return state, np.array(bounds)


@pytest.mark.parametrize("name", FEATURES)
def test_the_e_step_is_the_formula(name):
    model = model_of(name, temperature=0.3)
    params = run(model, FEATURES[name], 2)[0].params
    g1, g2 = params.sticks
    i, y = 7, LABELS[7]
    log_r = np.empty(K)
    for k in range(K):
        value = 0.0 if k == K - 1 else digamma(g1[k]) - digamma(g1[k] + g2[k])
        for j in range(k):
            value += digamma(g2[j]) - digamma(g1[j] + g2[j])
        x = FEATURES[name][[i]]
        value += 0.3 * model.feature_distribution.expected_log(params.features[:, [k]], x)[0, 0]
        for c in range(L):
            if np.isfinite(y[c]):
                b1, b0 = params.labels[:, k, c]
                value += y[c] * (digamma(b1) - digamma(b1 + b0))
                value += (1 - y[c]) * (digamma(b0) - digamma(b1 + b0))
        log_r[k] = value
    r = np.exp(log_r - log_r.max())
    found = model.responsibilities(params, FEATURES[name][[i]], LABELS[[i]])[0]
    np.testing.assert_allclose(found, r / r.sum(), rtol=1e-9)


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("label_distribution", ["bernoulli", "multinomial"])
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_the_bound_never_falls(name, label_distribution, temperature):
    _, bounds = run(model_of(name, label_distribution, temperature), FEATURES[name], 60)
    assert np.diff(bounds).min() > -1e-9 * abs(bounds[0])
    assert bounds[-1] > bounds[0] + 1.0


def test_a_temperature_in_the_e_step_alone_lets_the_bound_fall():
    """Why features' statistics carry the temperature too."""
    X = FEATURES["bernoulli"]
    model = model_of("bernoulli", temperature=0.05)

    class HalfTempered(DirichletMixture):
        def stats_given(self, batch, R, evidence=0.0):
            whole = DirichletMixture.stats_given(self, batch, R, evidence)
            return type(whole)(whole.count, whole.features / 0.05, whole.labels, evidence)

    broken = HalfTempered(model.feature_distribution, model.label_distribution, K, 0.05)
    falls = [np.diff(run(broken, X, 200, seed=seed)[1]).min() for seed in range(3)]
    assert min(falls) < -1e-2  # from some starts, though not from all


@pytest.mark.parametrize("name", ["bernoulli", "gaussian"])
def test_one_component_has_the_exact_evidence(name):
    """With K = 1 nothing is approximate: the bound is the log marginal likelihood."""
    X, ones = FEATURES[name], np.ones(N)
    model = model_of(name, n_components=1)
    _, bounds = run(model, X, 3, weight=ones)

    def beta_evidence(Y, prior):
        yes, no = np.nansum(Y, axis=0), np.nansum(1 - Y, axis=0)
        return (betaln(prior[0] + yes, prior[1] + no) - betaln(*prior)).sum()

    def gaussian_evidence(prior):
        now = prior + model.feature_distribution.stats(X, ones[:, None])[:, 0]
        out = -N * D / 2 * np.log(2 * np.pi)
        for sign, eta in ((1, now), (-1, prior)):
            a, b = eta[2] / 2, (eta[3] - eta[1] ** 2 / eta[0]) / 2
            out += sign * (gammaln(a) - a * np.log(b) - 0.5 * np.log(eta[0])).sum()
        return out

    right = beta_evidence(LABELS, model.label_distribution.prior)
    prior = model.feature_distribution.prior
    right += beta_evidence(X, prior) if name == "bernoulli" else gaussian_evidence(prior)
    assert bounds[-1] == pytest.approx(right, rel=1e-10)


@pytest.mark.parametrize("name", FEATURES)
def test_the_bound_is_flat_at_the_optimum(name):
    """Finite differences of the bound, with the best responsibilities at every point."""
    model, X = model_of(name, temperature=0.5), FEATURES[name]
    state, _ = run(model, X, 800)
    batch = Batch(X, LABELS, WEIGHT)

    def bound(params):
        return model.bound(params, model.stats(params, batch).evidence)

    plain = state.params.to_arrays()
    rng = np.random.default_rng(3)
    for part in plain:
        direction = rng.normal(size=plain[part].shape) * 1e-4 * (1.0 + abs(plain[part]))
        if part == "features" and name == "gaussian":
            direction[3] = abs(direction[3])  # a variance stays positive
        sides = [
            bound(MixtureParameters(**{**plain, part: plain[part] + sign * direction}))
            for sign in (1.0, -1.0)
        ]
        middle = bound(state.params)
        # a slope would show at first order, a maximum at second: 10^4 times less
        assert abs(sides[0] - sides[1]) < 0.05 * abs(sum(sides) - 2 * middle) + 1e-6
        assert max(sides) <= middle + 1e-7


def test_the_concentration_is_the_formula():
    model = model_of("bernoulli")
    params = run(model, FEATURES["bernoulli"], 5)[0].params
    g1, g2 = params.sticks
    rate = 1.0 - (digamma(g2) - digamma(g1 + g2)).sum()
    assert params.expected_a() == pytest.approx((1.0 + K - 1) / rate)


@pytest.mark.parametrize("name", FEATURES)
def test_sparse_rows_are_the_same(name):
    model = model_of(name)
    params = run(model, FEATURES[name], 2)[0].params
    dense = model.stats(params, Batch(FEATURES[name], LABELS, WEIGHT))
    thin = model.stats(params, Batch(sparse.csr_array(FEATURES[name]), LABELS, WEIGHT))
    for part in ("count", "features", "labels", "evidence"):
        np.testing.assert_allclose(getattr(thin, part), getattr(dense, part), rtol=1e-9, atol=1e-9)


def test_stochastic_steps_come_near_the_batch_optimum():
    rng = np.random.default_rng(5)
    z = rng.integers(0, 3, 3000)
    X = 6.0 * np.eye(3, D)[z] + rng.normal(size=(3000, D))
    Y = (rng.random((3000, 3)) < 0.9 * np.eye(3)[z] + 0.02).astype(float)
    ones = np.ones(3000)
    model = DirichletMixture(feature_prior("gaussian", X), label_prior("bernoulli", Y, ones), 10)
    _, exact = run(model, X, 60, Y=Y, weight=ones)
    inference = VariationalMixture(stochastic=True, tol=0.0)
    with LocalEngine(X, Y, seed=0, block_rows=200) as engine:
        state = inference.init(model, engine)
        for _ in range(20):
            state, info = inference.step(state, engine)
    assert -info.objective > exact[-1] - 0.02 * abs(exact[-1])
    kept = prune(state.params, 3000.0)
    assert 3 <= kept.n_components < 10


def test_the_kind_of_features_is_inferred():
    assert infer_distribution(np.array([[0.0, 1.0], [1.0, 1.0]])) == "bernoulli"
    assert infer_distribution(np.array([[0.0, 3.0]])) == "multinomial"
    assert infer_distribution(np.array([[0.5, 3.0]])) == "gaussian"
    assert infer_distribution(np.array([[-1.0, 3.0]])) == "gaussian"
    assert infer_distribution(sparse.csr_array([[0.0, 0.3]])) == "multinomial"
    assert infer_distribution(sparse.csr_array([[0.0, -0.3]])) == "gaussian"


@pytest.mark.parametrize("params", [{"decay": 0.5}, {"decay": 1.1}, {"delay": 0.5}])
def test_steps_that_do_not_converge_are_refused(params):
    with pytest.raises(ValueError, match=next(iter(params))):
        VariationalMixture(**params)
