"""Stochastic steps of the mixture on batches in which labels are known more or less often."""

import numpy as np
import pytest

from likelier.base import Batch
from likelier.engines import LocalEngine
from likelier.multilabel.distributions import feature_prior, label_prior
from likelier.multilabel.mixture import DirichletMixture
from likelier.multilabel.variational import VariationalMixture

RNG = np.random.default_rng(0)
N, L = 120, 3
X = RNG.normal(size=(N, 2))
Y = (RNG.random((N, L)) < 0.4).astype(float)
SVI = VariationalMixture(True)


def begin(label_distribution="bernoulli", Y=Y):
    distribution = label_prior(label_distribution, Y, np.ones(len(Y)))
    model = DirichletMixture(feature_prior("gaussian", X), distribution, 4)
    with LocalEngine(X, Y, np.ones(len(Y))) as data:
        return SVI.init(model, data)


@pytest.mark.parametrize("label_distribution", ["bernoulli", "multinomial"])
def test_labels_known_as_often_as_ever_take_the_plain_step(label_distribution):
    state, batch = begin(label_distribution), Batch(X[:40], Y[:40], np.ones(40))
    plain, _ = SVI.learn(state, batch, 3.0)
    told, _ = SVI.learn(state, batch, 3.0, np.ones(L))
    for name, array in plain.params.to_arrays().items():
        np.testing.assert_allclose(told.params.to_arrays()[name], array, rtol=1e-12)


def test_a_label_that_is_unknown_stays_and_others_move():
    holes = Y[:40].copy()
    holes[:, 1] = np.nan
    state = begin()
    new, _ = SVI.learn(state, Batch(X[:40], holes, np.ones(40)), 3.0, np.array([1.0, 0.0, 1.0]))
    moved = (new.params.labels != state.params.labels).any(axis=(0, 1))
    np.testing.assert_array_equal(moved, [True, False, True])


@pytest.mark.parametrize("relative", [True, False])
def test_batches_without_a_label_leave_it_unchanged(relative):
    """Nine batches of ten lack the label: with relative steps its counts find the truth."""
    holes = Y.copy()
    holes[12:, 0] = np.nan
    state = begin(Y=holes)
    smallest = np.inf
    for turn in range(300):
        rows = np.arange(12) + 12 * (turn % 10)
        known = np.isfinite(holes[rows]).mean(axis=0) / np.isfinite(holes).mean(axis=0)
        batch = Batch(X[rows], holes[rows], np.ones(12))
        state, _ = SVI.learn(state, batch, 10.0, known if relative else None)
        if turn >= 100:
            prior = state.model.label_distribution.prior[:, 0].sum() * 4
            smallest = min(smallest, float(state.params.labels[:, :, 0].sum() - prior))
    if relative:
        assert smallest == pytest.approx(12.0, rel=1e-6)
    else:
        assert smallest < 11.5
