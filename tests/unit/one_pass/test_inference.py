"""The streaming update: sites, outputs and coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logsumexp

from likelier.one_pass.inference import (
    StreamState,
    add_classes,
    block_size,
    init_stream,
    learn_block,
    stream_prior,
    stream_weights,
)
from likelier.one_pass.merge import merge_streams
from likelier.one_pass.model import FROZEN
from likelier.one_pass.sites import polya_gamma_mean, sites, softmax


def learned(n=600, d=3, K=3, size=200, seed=0, shift=0.0, **params):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(d, K))
    X = rng.normal(size=(n, d)) * [1.0, 5.0, 0.2][:d] + shift
    y = np.argmax((X - shift) / [1.0, 5.0, 0.2][:d] @ truth + rng.gumbel(size=(n, K)), axis=1)
    state = init_stream(X[:size], np.ones(size), y, params.get("fit_intercept", True))
    for s in range(0, n, size):
        state = learn_block(state, X[s : s + size], y[s : s + size], np.ones(size), None)
    return state, X, y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_polya_gamma_mean(dtype):
    psi = np.array([-12.0, -3.0, -0.02, -0.005, 0.0, 1e-4, 0.5, 2.0, 12.0])
    with np.errstate(invalid="ignore"):
        exact = np.where(psi == 0.0, 0.25, np.tanh(psi / 2) / (2 * np.where(psi == 0, 1, psi)))
    found = polya_gamma_mean(expit(psi).astype(dtype))
    np.testing.assert_allclose(found, exact, rtol=2e-2 if dtype == np.float32 else 1e-9)


def test_a_site_has_the_gradient_of_the_likelihood():
    """Pull minus curvature x score is the derivative of the log softmax, by differences."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(5, 4))
    codes = np.array([0, 2, 1, 0, 2])
    curvature, linear = sites(scores, codes, 1.0, 1.0)
    gradient = linear - curvature[:, None] * scores

    def log_likelihood(s):
        return s[np.arange(5), codes] - logsumexp(s, axis=1)

    for k in range(4):
        step = 1e-6 * np.eye(4)[k]
        exact = (log_likelihood(scores + step) - log_likelihood(scores - step)) / 2e-6
        np.testing.assert_allclose(gradient[:, k], exact, atol=1e-8)


def test_two_classes_have_the_curvature_of_one_logistic_problem():
    """Two outputs that move apart make twice the step of one: the site accounts for it."""
    psi = np.array([[-2.0, 0.3, 1.5]]).T
    scores = np.hstack([-0.5 * psi, 0.5 * psi, np.full_like(psi, -50.0)])
    curvature, linear = sites(scores, np.array([0, 1, 1]), 1.0, 1.0)
    gradient = linear - curvature[:, None] * scores
    step_apart = (gradient[:, 1] - gradient[:, 0]) / curvature
    omega = np.tanh(psi[:, 0] / 2) / (2 * psi[:, 0])
    logistic = (np.array([0.0, 1.0, 1.0]) - expit(psi[:, 0])) / omega
    np.testing.assert_allclose(step_apart, logistic, rtol=1e-6)


def test_frozen_sites_do_not_know_the_scores():
    rng = np.random.default_rng(0)
    codes = np.array([0, 1, 1])
    one = sites(rng.normal(size=(3, 3)), codes, 0.0, 2.0)
    two = sites(rng.normal(size=(3, 3)), codes, 0.0, 2.0)
    np.testing.assert_allclose(one[0], FROZEN)
    np.testing.assert_allclose(one[1], two[1])


def test_natural_parameters_make_the_weights():
    state, _, _ = learned()
    prior = np.diag(stream_prior(state, None))
    np.testing.assert_allclose((state.precision + prior) @ state.mean, state.linear, rtol=1e-8)


def test_a_new_class_starts_as_the_background_output():
    state, _, _ = learned()
    grown = add_classes(state, np.array([-1, 7]))
    assert grown.classes.tolist() == [-1, 0, 1, 2, 7]
    for output in (0, 4, 5):
        np.testing.assert_array_equal(grown.linear[:, output], state.linear[:, -1])
    np.testing.assert_array_equal(grown.linear[:, 1:4], state.linear[:, :3])
    assert grown.class_weight.tolist() == [0.0, *state.class_weight, 0.0]
    p = softmax(state.mean[-1:])  # an ordinary row
    assert p[0, -1] < 0.1  # which a class never seen hardly claims


def test_merged_sites_are_sums_whatever_the_coordinates():
    one, X, _ = learned(seed=0)
    two, _, _ = learned(seed=1, shift=0.5)
    both, other = merge_streams(one, two, None), merge_streams(two, one, None)
    a, b = stream_weights(both, None).raw(), stream_weights(other, None).raw()
    # the prior of the intercept is about the first model's centre: nothing else differs
    np.testing.assert_allclose(X @ a[0].T + a[1], X @ b[0].T + b[1], atol=1e-3)
    variance = both.squares / both.weight - (both.sums / both.weight) ** 2
    other_variance = other.squares / other.weight - (other.sums / other.weight) ** 2
    np.testing.assert_allclose(variance * both.scale**2, other_variance * other.scale**2)


def test_learning_does_not_change_the_state_before():
    state, X, y = learned()
    before = {name: np.array(value) for name, value in state.to_arrays().items()}
    learn_block(state, X, y, np.ones(len(y)), None)
    for name, value in state.to_arrays().items():
        np.testing.assert_array_equal(value, before[name])


def test_arrays_make_the_state_again():
    state, _, _ = learned()
    again = StreamState(**state.to_arrays())
    np.testing.assert_array_equal(again.mean, state.mean)


def test_blocks_grow_with_the_features():
    sizes = [block_size(d) for d in (1, 100, 1024, 1026, 2048, 2050)]
    assert sizes == [512, 512, 512, 1024, 1024, 2048]


def test_blocks_grow_with_the_rows_before_them():
    sizes = [block_size(10, n) for n in (0, 32_768, 65_535, 65_536, 131_072, 10**9)]
    assert sizes == [512, 512, 512, 1024, 2048, 2048]
    assert block_size(5000, 10**9) == 4096
