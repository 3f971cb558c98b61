"""ComponentMerger components: the change of the bound, its signs, and the number that is found."""

import numpy as np
import pytest
from scipy.special import xlogy

from likelier import Mixture, MultilabelClassifier
from likelier.base import Batch
from likelier.engines import LocalEngine
from likelier.multilabel.component_merge import (
    ComponentMerger,
    merge_components,
    merge_stats,
    weight_bound,
)
from likelier.multilabel.distributions import feature_prior, label_prior
from likelier.multilabel.label_mixture import LabelMixture
from likelier.multilabel.mixture import DirichletMixture
from likelier.multilabel.variational import VariationalMixture

RNG = np.random.default_rng(0)
N, D, L, K = 150, 4, 3, 6
FEATURES = {
    "gaussian": RNG.normal(size=(N, D)) + 3.0 * RNG.integers(0, 3, size=(N, 1)),
    "bernoulli": (RNG.random((N, D)) < 0.4).astype(float),
    "multinomial": RNG.poisson(2.0, size=(N, D)).astype(float),
}
Y = (RNG.random((N, L)) < 0.4).astype(float)
Y[RNG.random((N, L)) < 0.2] = np.nan
WEIGHT = RNG.uniform(0.5, 2.0, N)
CASES = [(name, distribution) for name in FEATURES for distribution in ("bernoulli", "multinomial")]


def fitted(name, label_distribution, steps=4, temperature=0.5):
    X = FEATURES[name]
    model = DirichletMixture(
        feature_prior(name, X), label_prior(label_distribution, Y, WEIGHT), K, temperature
    )
    inference = VariationalMixture(tol=0.0)
    engine = LocalEngine(X, Y, WEIGHT, seed=0)
    state = inference.init(model, engine)
    for _ in range(steps):
        state, _ = inference.step(state, engine)
    return state, engine


def bound_of(model, R, batch, a):
    """The bound at given responsibilities and the best parameters for them, from its definition."""
    stats = model.stats_given(batch, R * WEIGHT[:, None])
    params = model.update(stats, a)
    expected = (R * model.log_joint(params, batch.X, batch.y)).sum(axis=1) - xlogy(R, R).sum(axis=1)
    return model.bound(params, float(WEIGHT @ expected))


@pytest.mark.parametrize(("name", "label_distribution"), CASES)
def test_the_change_by_merging_two_is_that_of_the_bound(name, label_distribution):
    state, _ = fitted(name, label_distribution)
    model, batch, a = state.model, Batch(FEATURES[name], Y, WEIGHT), state.params.expected_a()
    rows = merge_stats(model, state.params, batch)
    R = model.responsibilities(state.params, batch.X, batch.y)
    before = bound_of(model, R, batch, a)
    smaller = DirichletMixture(
        model.feature_distribution, model.label_distribution, K - 1, model.temperature
    )
    for i, j in ((0, 1), (1, 3), (2, 5)):
        joined = np.delete(R, j, axis=1)
        joined[:, i] += R[:, j]
        count = np.delete(rows.stats.count, j)
        count[i] += rows.stats.count[j]
        gain = ComponentMerger(model, rows, a).gains()[i, j]
        gain += weight_bound(smaller, count, a) - weight_bound(model, rows.stats.count, a)
        assert gain == pytest.approx(bound_of(smaller, joined, batch, a) - before, abs=1e-7)


def test_three_components_lose_no_more_entropy_than_pairs():
    state, _ = fitted("gaussian", "bernoulli", steps=1, temperature=0.1)
    R = state.model.responsibilities(state.params, FEATURES["gaussian"], Y)
    entropy_loss = merge_stats(
        state.model, state.params, Batch(FEATURES["gaussian"], Y)
    ).entropy_loss
    np.testing.assert_allclose(entropy_loss, entropy_loss.T)
    assert (entropy_loss >= -1e-9).all()

    def f(x):
        return xlogy(x, x).sum()

    pair, third = R[:, 0] + R[:, 1], R[:, 2]
    assert (
        0.0 < f(pair + third) - f(pair) - f(third) <= entropy_loss[0, 2] + entropy_loss[1, 2] + 1e-9
    )


@pytest.mark.parametrize(("name", "label_distribution"), CASES)
@pytest.mark.parametrize("steps", [1, 5, 40])
def test_the_bound_rises_when_components_are_merged(name, label_distribution, steps):
    state, engine = fitted(name, label_distribution, steps)
    plain, _ = VariationalMixture().step(state, engine)
    merged = merge_components(state, engine)
    if merged is None:
        assert steps > 1  # of components that have just been drawn some are superfluous
        return
    assert merged.model.n_components == merged.params.n_components < K
    after, _ = VariationalMixture().step(merged, engine)
    assert after.bound > plain.bound
    total = np.append(merged.params.sticks[0] - 1.0, 0.0)[: merged.params.n_components - 1]
    assert (np.diff(total) <= 1e-9).all()  # the largest first


@pytest.mark.parametrize("stochastic", [False, True])
def test_bounds_of_a_fit_rise(stochastic):
    X, labels, _ = planted(4, 800)
    settings = LabelMixture(
        20, "gaussian", "bernoulli",
        lambda X, Y, w: LocalEngine(X, Y, w, seed=0, block_rows=100 if stochastic else None),
        VariationalMixture(stochastic), 100, 1.0,
    )  # fmt: skip
    found = settings.fit(X, labels, np.ones(800))
    assert found.state.params.n_components == 4
    if not stochastic:
        assert np.diff(found.bounds).min() > -1e-7
    alone = settings.fit(X, labels, np.ones(800), merge=False)
    assert alone.state.params.n_components > 4


def planted(k, n, seed=0):
    """Well separated clusters, each with labels of its own."""
    rng = np.random.default_rng(seed)
    centres = 4.0 * rng.normal(size=(k, 6))
    P = np.random.default_rng(3).choice([0.05, 0.95], size=(k, 5))
    z = rng.integers(0, k, n)
    return centres[z] + rng.normal(size=(n, 6)), (rng.random((n, 5)) < P[z]).astype(float), z


@pytest.mark.parametrize(("k", "n"), [(5, 300), (5, 1000), (5, 4000), (8, 2000)])
def test_the_number_of_planted_patterns_is_found(k, n):
    X, labels, z = planted(k, n)
    mixture = Mixture(feature_temperature=1.0)
    model = MultilabelClassifier(mixture=mixture, kernel=False, n_folds=2, random_state=0)
    patterns = model.fit(X, labels).label_patterns_
    assert len(patterns) == k
    share = np.sort(np.bincount(z) / n)[::-1]
    np.testing.assert_allclose([pattern["weight"] for pattern in patterns], share, atol=0.02)
