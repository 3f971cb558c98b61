"""Entropy of labels and its epistemic part, against quadrature of another kind."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from likelier.multilabel.entropy import matching_mean, split_entropy

P = np.array([0.5, 0.1, 0.97, 1e-6, 0.3])
SPREAD = np.array([0.0, 0.5, 2.0, 1.0, 1.5])


def entropy(p):
    return -(p * np.log(p) + (1.0 - p) * np.log1p(-p))


def test_total_is_the_entropy_of_the_prediction():
    rng = np.random.default_rng(0)
    p, std = rng.random((300, 7)), 10.0 ** rng.uniform(-3, 2, (300, 7))
    found = split_entropy(p, std)
    np.testing.assert_allclose(found.total, entropy(p), atol=1e-11)
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic, atol=1e-14)
    assert (found.epistemic >= 0.0).all()


def test_a_score_may_have_any_std():
    found = split_entropy(P, np.array([1e7, 1e30, 1e200, np.inf, np.inf]))
    np.testing.assert_allclose(found.total, entropy(P), atol=1e-11)
    assert (found.epistemic > 0.5 * found.total).all()


@pytest.mark.parametrize(("p", "std"), list(zip(P, SPREAD, strict=True)))
def test_parts_are_integrals_over_a_gaussian_score(p, std):
    m = float(matching_mean(np.array([p]), np.array([std]))[0])

    def mean(f):
        return quad(lambda z: f(expit(m + std * z)) * norm.pdf(z), -9, 9, epsabs=1e-12)[0]

    assert mean(lambda q: q) == pytest.approx(p, rel=1e-4)
    found = split_entropy(np.array([p]), np.array([std]))
    assert found.aleatoric[0] == pytest.approx(mean(entropy), abs=2e-4)


def test_a_known_score_has_no_epistemic_part_and_a_wider_one_more():
    p = np.full(4, 0.3)
    epistemic = split_entropy(p, np.array([0.0, 0.3, 1.0, 3.0])).epistemic
    assert epistemic[0] == pytest.approx(0.0, abs=1e-12)
    assert (np.diff(epistemic) > 0.0).all()


def test_no_labels_are_no_entropy():
    assert split_entropy(np.zeros((0, 3)), np.zeros((0, 3))).total.shape == (0, 3)
