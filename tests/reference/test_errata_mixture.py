"""Errors in the printed description of the multi-label mixture: the printed form fails."""

import numpy as np
import pytest
from scipy.special import digamma, expit, logit

from likelier.base import Batch
from likelier.multilabel.combination import product_scores
from likelier.multilabel.distributions import MultinomialDistribution, feature_prior, label_prior
from likelier.multilabel.mixture import DirichletMixture, stick_parameters
from likelier.multilabel.variational import MixtureState, VariationalMixture

RNG = np.random.default_rng(0)
N = 240
X = RNG.normal(size=(N, 3)) + 4.0 * RNG.integers(0, 2, size=(N, 1))
Y = (RNG.random((N, 2)) < 0.5).astype(float)
MODEL = DirichletMixture(
    feature_prior("gaussian", X), label_prior("bernoulli", Y, np.ones(N)), n_components=4
)
ALL = Batch(X, Y)


def start():
    R = np.random.default_rng(1).dirichlet(np.ones(4), size=N)
    return MODEL.update(MODEL.stats_given(ALL, R), 1.0)


def bound(params):
    return MODEL.bound(params, MODEL.stats(params, ALL).evidence)


def test_a_weights_are_beta_sticks_not_a_dirichlet():
    params = start()
    g1, g2 = params.sticks
    draws = np.random.default_rng(2).beta(g1, g2, size=(200_000, 3))
    left = np.concatenate([np.ones((len(draws), 1)), np.cumprod(1 - draws, axis=1)], axis=1)
    log_pi = np.log(np.append(draws, np.ones((len(draws), 1)), axis=1) * left)
    error = log_pi.std(axis=0) / np.sqrt(len(draws))
    count = np.append(g1, g2[-1])
    printed = digamma(count) - digamma(count.sum())
    assert (abs(params.expected_log_weights() - log_pi.mean(axis=0)) < 5.5 * error).all()
    assert (abs(printed - log_pi.mean(axis=0)) > 5.5 * error).any()


def test_b_label_patterns_are_dirichlet_not_multinomial():
    """Drawn as printed, shares of a multinomial are often zero: no expected logarithm exists."""
    distribution, n = MultinomialDistribution(np.array([[0.5, 2.0, 1.5]])), 200_000
    ours = distribution.expected_log(distribution.prior[:, None], np.eye(3))[:, 0]
    total, rng = distribution.prior.sum(), np.random.default_rng(3)

    def holds_for(patterns):
        """Whether these patterns have the logarithms that responsibilities are made with."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(patterns)
            error = 5.5 * logs.std(axis=0) / np.sqrt(n)
            return bool((abs(logs.mean(axis=0) - ours) < error).all())

    assert holds_for(rng.dirichlet(distribution.prior[0], size=n))
    printed = rng.multinomial(int(total), distribution.prior[0] / total, size=n) / total
    np.testing.assert_allclose(printed.mean(axis=0), distribution.prior[0] / total, atol=0.01)
    assert not holds_for(printed)
    # nor with the zeros left out of the account
    assert not holds_for(np.maximum(printed, 1e-3))


def test_c_responsibilities_are_normalised():
    params = start()
    printed = np.exp(MODEL.log_joint(params, X, Y))
    ours = MODEL.responsibilities(params, X, Y)
    assert abs(ours.sum(axis=1) - 1.0).max() < 1e-12
    assert abs(printed.sum(axis=1) - 1.0).min() > 0.5
    np.testing.assert_allclose(ours, printed / printed.sum(axis=1, keepdims=True), rtol=1e-9)


def test_d_the_natural_gradient_is_a_difference():
    """It points uphill and vanishes at the optimum; the printed one does neither."""
    params = start()
    hatted = MODEL.update(MODEL.stats(params, ALL), params.expected_a())
    assert bound(params.blend(hatted, 0.01)) > bound(params)
    for _ in range(500):
        params = MODEL.update(MODEL.stats(params, ALL), params.expected_a())
    hatted = MODEL.update(MODEL.stats(params, ALL), params.expected_a())
    assert abs(hatted.features - params.features).max() < 1e-6
    assert abs(hatted.features).max() > 1.0


def test_e_steps_blend_with_the_hatted_parameter():
    """With the same parameter on both sides, as printed, a step goes nowhere."""

    def ours(params, rho):
        return params.blend(MODEL.update(MODEL.stats(params, ALL), params.expected_a()), rho)

    def printed(params, rho):
        return params.blend(params, rho)

    def climbs(step):
        params, values = start(), []
        for _ in range(5):
            values.append(bound(params))
            params = step(params, 0.5)
        return bool((np.diff(values) > 0.1).all())

    assert climbs(ours)
    assert not climbs(printed)
    # the step that is made in truth is the first
    params = start()
    state, _ = VariationalMixture().learn(MixtureState(MODEL, params, step=0), ALL, 1.0)
    np.testing.assert_allclose(state.params.labels, ours(params, 1.0).labels)  # rho_0 = 1
    assert abs(state.params.labels - printed(params, 1.0).labels).max() > 0.1


def test_f_a_batch_stands_for_n_over_b_duplicates_of_itself():
    params = start()
    whole = MODEL.update(MODEL.stats(params, ALL), 1.0)
    parts = [MODEL.stats(params, Batch(X[k::6], Y[k::6])) for k in range(6)]
    ours = np.mean([MODEL.update(part.scaled(N / 40), 1.0).labels for part in parts], axis=0)
    printed = np.mean([MODEL.update(part.scaled(N), 1.0).labels for part in parts], axis=0)
    np.testing.assert_allclose(ours, whole.labels, rtol=1e-9)
    assert abs(printed / whole.labels - 1.0).max() > 10.0


def test_l_the_product_of_pattern_and_classifier_is_not_normalised():
    """Probabilities of a label and of its absence sum to one; the product's do not."""
    base = np.array([0.3, 0.6])
    scores, odds = RNG.normal(size=(5, 2)), RNG.normal(size=(5, 2))
    pbar = expit(odds + logit(base))
    yes, no = pbar * expit(scores), (1 - pbar) * expit(-scores)
    assert abs(yes + no - 1.0).min() > 0.05
    # a label and its opposite are the same question: log-odds agree, the product does not
    ours, flipped = scores + odds, -scores + -odds
    np.testing.assert_allclose(expit(ours) + expit(flipped), 1.0)
    printed = product_scores(scores, odds, base)
    opposite = product_scores(-scores, -odds, 1.0 - base)
    assert abs(expit(printed) + expit(opposite) - 1.0).min() > 0.05
    np.testing.assert_allclose(expit(printed), yes, rtol=1e-9)


def test_sticks_hold_what_comes_after():
    np.testing.assert_allclose(
        stick_parameters(np.array([5.0, 3.0, 2.0]), 1.5), [[6.0, 4.0], [6.5, 3.5]]
    )


@pytest.mark.parametrize("step", [0, 3])
def test_the_first_step_forgets_the_start_and_later_ones_do_not(step):
    params = start()
    state, _ = VariationalMixture(decay=0.7).learn(MixtureState(MODEL, params, step), ALL, 1.0)
    hatted = MODEL.update(MODEL.stats(params, ALL), params.expected_a())
    rho = (step + 1.0) ** -0.7
    np.testing.assert_allclose(
        state.params.sticks, (1 - rho) * params.sticks + rho * hatted.sticks, rtol=1e-12
    )
