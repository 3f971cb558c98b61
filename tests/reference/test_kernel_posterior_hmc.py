"""The default posterior of the weights given the hyperparameters, against long runs of HMC.

The log joint is written anew here, from the features on; the covariance that whitens the chains
is the inverse of a curvature taken by finite differences, so nothing of the posterior under test
enters the reference but the point where chains start.

The Gaussian of the scores sits at the mode, and the posterior is skewed: the mean of one weight
or another is away from it by up to 0.08, 0.04 and 0.04 standard deviations in the three models,
by up to 0.10 with half the rows or fewer. Draws have the mean that the third derivatives of the
loss tell: away by less than 0.01 of them in the long runs. Seeds are fixed. The error of HMC's
own means is at most 0.02 standard deviations in the short runs (one seed in ten would fail), 0.005
in the long ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_expit, softmax
from tests.reference.hmc import hmc
from tests.unit.kernel_machine.weight_problems import weight_problem

from likelier import BayesianKernelClassifier
from likelier.kernel_machine.features import IdentityMap, fourier_map, landmark_map
from likelier.kernel_machine.integrate import class_predictive
from likelier.kernel_machine.laplace import laplace_posterior
from likelier.kernel_machine.settings import Evidence
from likelier.kernel_machine.weights import ClassLoss, Prior, fit_weights, ridge

CASES = ("two classes, landmarks", "three classes, fourier", "two classes, weighted, linear")


def small_model(case):
    """Features (the constant last), codes, weights or None, number of classes, precision."""
    rng = np.random.default_rng(CASES.index(case))
    n, d = 2400, 2
    X = rng.standard_normal((n, d))
    zero, gamma = np.zeros(d), np.ones(d)
    if case == CASES[0]:
        Phi = landmark_map(rng.standard_normal((8, d)), zero, gamma)(X)
        codes = (rng.random(n) < expit(1.5 * np.sin(2.0 * X[:, 0]) + X[:, 1])).astype(float)
        return Phi, codes, None, 2, 0.3
    if case == CASES[1]:
        Phi = fourier_map(8, zero, 0.7 * gamma, rng)(X)
        noisy = X[:, 0] + 0.5 * X[:, 1] + rng.logistic(size=n)
        return Phi, np.digitize(noisy, [-0.7, 0.9]).astype(float), None, 3, 0.5
    Phi = IdentityMap(zero, gamma)(X)
    codes = (rng.random(n) < expit(X[:, 0] - 0.5 * X[:, 1] + 0.3)).astype(float)
    return Phi, codes, rng.uniform(0.2, 1.5, n), 2, 1.0


def log_joint(Phi, codes, weight, n_classes, precision, constant=None, centres=0.0):
    """Value and gradient at many points, weights of one class after the other.

    The constants have a precision of their own, around ``centres``.
    """
    n, D = Phi.shape
    omega = np.ones(n) if weight is None else weight
    constant = min(precision, 1e-2) if constant is None else constant
    n_outputs = 1 if n_classes == 2 else n_classes
    diagonal = np.tile(np.append(np.full(D - 1, precision), constant), n_outputs)
    centre = np.zeros((n_outputs, D))
    centre[:, -1] = centres
    centre = centre.ravel()
    target = codes[None] if n_classes == 2 else np.eye(n_classes)[codes.astype(int)].T

    def scores(theta):
        return (theta.reshape(-1, D) @ Phi.T).reshape(len(theta), n_outputs, n)

    def value(theta):
        f = scores(theta)
        top = np.maximum(f.max(axis=1), 0.0 if n_classes == 2 else -np.inf)
        total = np.exp(f - top[:, None]).sum(axis=1) + (np.exp(-top) if n_classes == 2 else 0.0)
        likelihood = ((f * target).sum(axis=1) - top - np.log(total)) @ omega
        return likelihood - 0.5 * ((theta - centre) ** 2) @ diagonal

    def gradient(theta):
        f = scores(theta)
        if n_classes == 2:
            p = expit(f)
        else:
            p = np.exp(f - f.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
        by_score = ((target - p) * omega).reshape(-1, n)
        return (by_score @ Phi).reshape(theta.shape) - diagonal * (theta - centre)

    return value, gradient


def curvature_by_differences(gradient, point, h=1e-4):
    steps = h * np.eye(len(point))
    H = -(gradient(point + steps) - gradient(point - steps)) / (2.0 * h)
    return 0.5 * (H + H.T)


def posteriors(case, **length):
    """Our posterior, and HMC's draws in the same order of parameters."""
    Phi, codes, weight, n_classes, precision = small_model(case)
    loss, prior = ClassLoss(n_classes), Prior(ridge(Phi.shape[1], precision))
    problem = weight_problem(Phi, codes, weight, loss, prior)
    shares = np.bincount(codes.astype(int)) / len(codes)
    fit = fit_weights(problem, loss.start(Phi.shape[1], shares), tol=1e-10, max_iter=200)
    ours = laplace_posterior(problem, fit.W, 1.0 / precision)
    value, gradient = log_joint(Phi, codes, weight, n_classes, precision)
    mode = fit.W.T.ravel()
    covariance = np.linalg.inv(curvature_by_differences(gradient, mode))
    return ours, hmc(value, gradient, mode, covariance, **length), Phi


def check_agreement(case, **length):
    ours, draws, Phi = posteriors(case, **length)
    assert ours.layout == "joint"
    exact = draws.flat()
    mean, sd = exact.mean(axis=0), exact.std(axis=0)
    assert draws.acceptance > 0.8
    assert draws.r_hat().max() < 1.02
    assert (draws.mean_error() / sd).max() < 0.025
    root = ours.roots[0]
    our_sd = np.sqrt((root**2).sum(axis=0))  # H^{-1} = root^T root
    assert np.abs((ours.mean.T.ravel() - mean) / sd).max() < 0.1
    assert np.abs(our_sd / sd - 1.0).max() < 0.1
    check_predictive(ours, exact, Phi)


def check_predictive(ours, exact, Phi):
    """Scores in mean and spread, and class probabilities to a percent, at 50 of the rows."""
    Phi, n_outputs = Phi[:50], ours.mean.shape[1]
    thinned = exact[:: max(1, len(exact) // 4000)].reshape(-1, n_outputs, Phi.shape[1])
    scores = np.einsum("skd,nd->snk", thinned, Phi)
    mean, sd = scores.mean(axis=0), scores.std(axis=0)
    covariance = ours.covariance(Phi, np.zeros(len(Phi)))
    variance = covariance if covariance.ndim == 2 else np.einsum("nkk->nk", covariance)
    assert np.abs((ours.scores(Phi) - mean) / sd).max() < 0.1
    assert np.abs(np.sqrt(variance) / sd - 1.0).max() < 0.1
    probs, weights = class_predictive(ours.scores(Phi), covariance, 1.0)
    found = np.tensordot(weights, probs, (0, 1)) if probs.ndim == 3 else probs @ weights
    right = (softmax(scores, axis=2) if n_outputs > 1 else expit(scores[..., 0])).mean(axis=0)
    assert np.abs(found - right).max() < 0.01


@pytest.mark.parametrize("case", CASES)
def test_default_posterior_agrees_with_hmc(case):
    n_draws = 120 if case.startswith("three") else 250
    check_agreement(case, n_chains=32, n_draws=n_draws, n_warm=20)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_default_posterior_agrees_with_a_long_run(case):
    check_agreement(case, n_chains=64, n_draws=1000, n_warm=50, seed=1)


def test_posterior_of_many_weights_agrees_with_hmc():
    """The layout for more weights, with all directions of three classes and sure rows thinned."""
    case = CASES[1]
    ours, draws, Phi = posteriors(case, n_chains=32, n_draws=120, n_warm=20)
    _, codes, weight, n_classes, precision = small_model(case)
    prior = Prior(ridge(Phi.shape[1], precision))
    problem = weight_problem(Phi, codes, weight, ClassLoss(n_classes), prior)
    found = laplace_posterior(problem, ours.mean, 1.0 / precision, "reduced")
    assert found.layout == "reduced" and found.bases.shape == (3, 9, 9)
    exact = draws.flat()
    own = found.draw(20_000, np.random.default_rng(0)).transpose(0, 2, 1).reshape(20_000, -1)
    assert np.abs(own.std(axis=0) / exact.std(axis=0) - 1.0).max() < 0.1
    check_predictive(found, exact, Phi)


ESTIMATED = {
    "two classes, landmarks": {"features": "nystroem", "gamma": 0.5, "alpha": 0.3},
    "three classes, fourier": {"features": "fourier", "gamma": 0.7, "alpha": 5.0},
    "two classes, weighted, linear": {"features": "identity", "alpha": 40.0},
}


@pytest.mark.parametrize("case", CASES)
def test_the_estimator_predicts_what_hmc_does(case):
    """`predict_proba` and the spread of the weights, for given hyperparameters.

    ``alpha`` is the precision of the weights of a class, so that the only score of two classes,
    a difference, has half of it. Constants lie around the classes' shares: with a precision of
    0.1 where the other features vanish far away, else hardly bound. Probabilities are compared
    where features tell nearly all of the kernel: the estimator adds what they leave out.
    """
    rng = np.random.default_rng(CASES.index(case))
    X = rng.standard_normal((2400, 2))
    scores = X[:, 0] + 0.5 * X[:, 1] + rng.logistic(size=len(X))
    codes = np.digitize(scores, [-0.7, 0.9] if case.startswith("three") else [0.2]).astype(float)
    weight = rng.uniform(0.2, 1.5, len(X)) if "weighted" in case else None
    parameters = ESTIMATED[case]
    model = BayesianKernelClassifier(
        inference=Evidence(posterior_scale=1.0, n_experts=0, tol=1e-12), n_components=12,
        random_state=0, **parameters,
    ).fit(X, codes, sample_weight=weight)  # fmt: skip
    fitted = model._posterior()
    made, posterior = fitted.map, fitted.weights
    Phi = made(X, np.float64)
    two = len(model.classes_) == 2
    one_row = 1.0 if weight is None else weight.mean()
    logs = np.log(np.bincount(codes.astype(int), weight) + one_row)
    value, gradient = log_joint(
        Phi, codes, weight, len(model.classes_), parameters["alpha"] / (2.0 if two else 1.0),
        0.1 if parameters["features"] == "nystroem" else 0.01,
        logs[1] - logs[0] if two else logs - logs.mean(),
    )  # fmt: skip
    mode = posterior.mean.T.ravel()
    assert np.abs(gradient(mode[None])).max() < 0.02
    covariance = np.linalg.inv(curvature_by_differences(gradient, mode))
    exact = hmc(value, gradient, mode, covariance, n_chains=32, n_draws=150, n_warm=20).flat()
    own = posterior.draw(20_000, np.random.default_rng(0)).transpose(0, 2, 1).reshape(20_000, -1)
    sd = exact.std(axis=0)
    assert np.abs(own.std(axis=0) / sd - 1.0).max() < 0.1
    n_outputs = posterior.mean.shape[1]
    rows = np.argsort(made.residual(Phi), kind="stable")[:50]
    scores = np.einsum("skd,nd->snk", exact.reshape(-1, n_outputs, Phi.shape[1]), Phi[rows])
    p = softmax(scores, axis=2) if n_outputs > 1 else expit(scores)
    found = model.predict_proba(X[rows])[:, -n_outputs:]
    assert np.abs(found - p.mean(axis=0)).max() < 0.01


def test_hmc_on_a_normal_law():
    """8,000 nearly independent draws: a standard error of 0.011 sd; bounds of five of them."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 4))
    covariance, mean = A @ A.T + 0.1 * np.eye(4), np.array([1.0, -2.0, 0.0, 30.0])
    precision = np.linalg.inv(covariance)

    def gradient(theta):
        return -(theta - mean) @ precision

    def value(theta):
        return 0.5 * (gradient(theta) * (theta - mean)).sum(axis=1)

    wrong = np.diag(np.diagonal(covariance)) * [0.3, 1.0, 2.0, 1.0]  # only mixing depends on it
    draws = hmc(value, gradient, mean, wrong, n_draws=1500).flat()
    sd = np.sqrt(np.diagonal(covariance))
    assert np.abs((draws.mean(axis=0) - mean) / sd).max() < 0.06
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sd, sd),
                               covariance / np.outer(sd, sd), atol=0.06)  # fmt: skip


def test_hmc_on_a_skewed_posterior():
    """Five rows and a weak prior: far from normal, known by quadrature."""
    x, y = np.array([1.0, 2.0, -1.0, 0.5, 1.5]), np.array([1.0, 1.0, -1.0, 1.0, -1.0])

    def value(theta):
        return log_expit(y * x * theta).sum(axis=1) - 0.05 * theta[:, 0] ** 2

    def gradient(theta):
        return (y * x * expit(-y * x * theta)).sum(axis=1, keepdims=True) - 0.1 * theta

    def moment(k):
        return quad(lambda t: t**k * np.exp(value(np.array([[t]]))[0]), -30.0, 30.0)[0]

    mean = moment(1) / moment(0)
    sd = np.sqrt(moment(2) / moment(0) - mean**2)
    draws = hmc(value, gradient, np.zeros(1), np.eye(1), n_draws=1500).flat()
    assert abs(draws.mean() - mean) < 0.06 * sd
    assert draws.std() == pytest.approx(sd, rel=0.05)
