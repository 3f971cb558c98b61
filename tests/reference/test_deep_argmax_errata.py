"""Errors of the document on the argmax likelihood, each as a test: (a) to (d), (f), (g).

Every test writes the document's formula down as printed, shows a case in which it fails, and
shows that what the library does instead is right in that case.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import norm
from tests.reference.quick_jit import quick_jit

from likelier.deep_gp.argmax import argmax_probabilities, log_z_argmax

MEAN = np.array([0.4, -0.3, 0.1, 0.9])
VAR = np.array([1.3, 0.7, 1.0, 0.5])
ROWS = 3  # all cases are run in one compiled shape
one = quick_jit(log_z_argmax)


def ours(y, mean, var):
    """The library's ``log p`` of one row."""
    with jax.enable_x64(True):
        rows = (jnp.asarray(np.tile(x, (ROWS, 1))) for x in (mean, var))
        return float(one(jnp.full(ROWS, y), *rows)[0])


def exact(y, mean, var):
    """``P(h_y is the largest)`` by SciPy, for scores of like size."""
    others = np.arange(len(mean)) != y

    def integrand(h):
        return norm.pdf(h, mean[y], np.sqrt(var[y])) * np.prod(
            ndtr((h - mean[others]) / np.sqrt(var[others]))
        )

    return quad(integrand, -15.0, 15.0, epsabs=1e-13, limit=200)[0]


def log_phi_sum(x, y, mean, var):
    """``sum_{k != y} log Phi`` at the document's points ``x``."""
    others = np.arange(len(mean)) != y
    h = np.sqrt(2.0 * var[y]) * np.asarray(x)[..., None] + mean[y]
    return log_ndtr((h - mean[others]) / np.sqrt(var[others])).sum(-1)


def test_a_the_normaliser_counts_q_once_and_is_logged_once():
    """Eq. 1 is ``Z = ln E_q[p(y | h) q(h)]`` as printed, and equates that with an integral.

    With ``q`` counted twice the expectation is no chance: its sum over the classes is
    ``E_q[q(h)]``, which depends on the unit of the scores. And an integral is not its logarithm.
    """

    def printed(y, mean, var):  # int [h_y > h_k for all k] prod_k N_k(h_k)^2 dh
        height = 1.0 / (2.0 * np.sqrt(np.pi * var))  # N_k^2 is this times N(mean_k, var_k / 2)
        return height.prod() * exact(y, mean, 0.5 * var)

    right = exact(0, MEAN, VAR)
    unit = 0.5
    for mean, var in ((MEAN, VAR), (unit * MEAN, unit**2 * VAR)):
        assert ours(0, mean, var) == pytest.approx(np.log(right), abs=1e-8)
    twice = [printed(c, MEAN, VAR) for c in range(4)]
    assert sum(twice) == pytest.approx(np.prod(norm.pdf(0.0, 0.0, np.sqrt(2.0 * VAR))))
    assert abs(sum(twice) - 1.0) > 0.9
    assert printed(0, unit * MEAN, unit**2 * VAR) == pytest.approx(twice[0] / unit**4)
    assert abs(twice[0] - right) > 0.1 and abs(np.log(twice[0]) - np.log(right)) > 1.0
    assert abs(ours(0, MEAN, VAR) - right) > 1.0  # the second line of Eq. 1 lacks the logarithm


def test_b_the_weight_is_exp_of_minus_x_squared():
    right = exact(0, MEAN, VAR)
    assert np.exp(ours(0, MEAN, VAR)) == pytest.approx(right, abs=1e-9)

    def by(weight):
        return (
            quad(lambda x: weight(x) * np.exp(log_phi_sum(x, 0, MEAN, VAR)), 0.1, 15)[0]
            + quad(lambda x: weight(x) * np.exp(log_phi_sum(x, 0, MEAN, VAR)), -15, -0.1)[0]
        )

    def middle(x):
        return np.exp(-x * x) * np.exp(log_phi_sum(x, 0, MEAN, VAR))

    corrected = by(lambda x: np.exp(-x * x)) + quad(middle, -0.1, 0.1)[0]
    assert corrected / np.sqrt(np.pi) == pytest.approx(right, abs=1e-8)
    printed = by(lambda x: np.exp(x**-2.0))  # and with the part around 0 it is infinite
    assert printed / np.sqrt(np.pi) > 1.0


def test_c_each_weight_belongs_to_its_node():
    nodes, weights = np.polynomial.hermite.hermgauss(40)
    right = exact(1, MEAN, VAR)
    values = np.exp(log_phi_sum(nodes, 1, MEAN, VAR))
    paired = (weights * values).sum() / np.sqrt(np.pi)
    printed = sum(w * values for w in weights) / np.sqrt(np.pi)  # one sum, over the weights only
    assert paired == pytest.approx(right, abs=1e-6)
    assert np.exp(ours(1, MEAN, VAR)) == pytest.approx(right, abs=1e-9)
    assert np.abs(printed - right).min() > 1e-3 and np.ptp(printed) > 0.5


def test_d_exp_of_a_sum_of_logarithms_underflows():
    mean = np.array([-90.0, 0.0, 0.0, 0.0])
    nodes, weights = np.polynomial.hermite.hermgauss(40)
    logs = log_phi_sum(nodes, 0, mean, VAR)
    with np.errstate(divide="ignore"):
        printed = np.log(weights @ np.exp(logs)) - 0.5 * np.log(np.pi)
    assert printed == -np.inf
    # a trapezoid with very many points, in log space to the end
    h, step = np.linspace(-120.0, 60.0, 2_000_001, retstep=True)
    total = norm.logpdf(h, mean[0], np.sqrt(VAR[0])) + log_ndtr(h[:, None] / np.sqrt(VAR[1:])).sum(
        1
    )
    assert ours(0, mean, VAR) == pytest.approx(logsumexp(total) + np.log(step), abs=1e-8)


@pytest.mark.parametrize("ratio", [1e2, 1e4])
def test_gauss_hermite_misses_a_cliff(ratio):
    """The document's nodes, even paired and in log space, at a large ratio of variances."""
    var = np.array([ratio, 1.0, 1.0, 1.0])
    mean = np.array([-1.5 * np.sqrt(ratio), 0.0, 0.0, 0.0])
    h, step = np.linspace(-400.0, 1000.0, 2_000_001, retstep=True)
    total = norm.logpdf(h, mean[0], np.sqrt(ratio)) + 3.0 * log_ndtr(h)
    right = logsumexp(total) + np.log(step)
    nodes, weights = np.polynomial.hermite.hermgauss(20)
    printed = logsumexp(np.log(weights) + log_phi_sum(nodes, 0, mean, var)) - 0.5 * np.log(np.pi)
    assert abs(printed - right) > 0.02
    assert ours(0, mean, var) == pytest.approx(right, abs=1e-8)


def test_f_the_chance_of_a_class_needs_all_scores():
    with jax.enable_x64(True):
        p = np.asarray(quick_jit(argmax_probabilities)(jnp.asarray(MEAN), jnp.asarray(VAR)))
    right = [exact(c, MEAN, VAR) for c in range(4)]
    np.testing.assert_allclose(p, right, atol=1e-8)
    printed = ndtr(MEAN / np.sqrt(1.0 + VAR))  # what a function of h_c alone can give
    assert printed.sum() > 1.5
    assert np.abs(printed / printed.sum() - p).max() > 0.1


def test_g_labels_from_one_make_a_phantom_class():
    """As printed, labels are 1..C: as column numbers they need a column that is no class."""
    n_classes = 4
    assert np.isnan(ours(n_classes, MEAN, VAR))  # ours refuses the label C
    total = sum(np.exp(ours(c, MEAN, VAR)) for c in range(n_classes))
    assert total == pytest.approx(1.0, abs=1e-8)
    # with one column more the phantom, of which nothing is known, takes chance from all classes
    mean, var = np.append(MEAN, 0.0), np.append(VAR, 1.0)
    with_phantom = [exact(c, mean, var) for c in range(5)]
    assert with_phantom[4] > 0.1
    assert sum(with_phantom[:4]) < 0.9
