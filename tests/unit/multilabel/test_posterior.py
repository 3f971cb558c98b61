"""Posteriors of label sets and of exclusive classes: what they predict, and what they refuse."""

import copy

import numpy as np
import pytest

from likelier import Mixture, MultilabelClassifier
from likelier.multilabel.posterior import classifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4))
Y = (X @ RNG.normal(size=(4, 3)) + RNG.logistic(size=(200, 3)) > 0).astype(float)


@pytest.fixture(scope="module")
def fitted():
    return MultilabelClassifier(mixture=Mixture(3), n_folds=2, random_state=0).fit(X, Y)


def test_point_follows_the_thresholds_and_not_one_half(fitted):
    model = copy.copy(fitted)
    model.thresholds_ = np.array([-50.0, 0.0, 50.0])
    posterior = classifier(model)
    point = posterior.point(X)
    assert point[:, 0].all() and not point[:, 2].any()
    p = posterior.predictive(X).probabilities()
    np.testing.assert_array_equal(point[:, 1], p[:, 1] > 0.5)


def test_log_density_of_label_sets_is_that_of_independent_labels(fitted):
    predictive = classifier(fitted).predictive(X)
    p = predictive.probabilities()
    expected = np.log(np.where(Y == 1.0, p, 1.0 - p)).sum(axis=1)
    np.testing.assert_allclose(predictive.log_density(Y), expected, rtol=1e-9)


def test_a_whole_posterior_passes_its_check(fitted):
    classifier(fitted).check(4, 3)


def damaged(model, change):
    other = copy.deepcopy(model)
    change(other)
    return other


DAMAGES = {
    "labels": lambda m: setattr(m, "base_rates_", m.base_rates_[:2]),
    "rates": lambda m: setattr(m, "base_rates_", np.ones(3)),
    "counts": lambda m: setattr(m, "label_counts_", -m.label_counts_),
    "thresholds": lambda m: setattr(m, "thresholds_", np.full(3, np.nan)),
    "stack": lambda m: setattr(m, "stack_weights_", m.stack_weights_[:-1]),
    "negative": lambda m: setattr(m, "stack_weights_", -1.0 - m.stack_weights_),
    "rule": lambda m: setattr(m, "combine_", "sum"),
    "kind": lambda m: setattr(m, "target_kind_", "sets"),
    "maps": lambda m: m.maps_.pop(),
    "centre": lambda m: m.maps_[0].update(centre=np.zeros(3)),
    "column": lambda m: m.maps_[0].update(column=np.zeros(3)),
    "unit": lambda m: m.maps_[0].update(unit="yes"),
    "rotation": lambda m: m.maps_[0].update(rotation=np.zeros((3, 4))),
    "shift": lambda m: m.maps_[0].update(shift=np.zeros(9)),
    "landmarks": lambda m: m.maps_[-1].update(landmarks=np.zeros((7, 2))),
    "gamma": lambda m: m.maps_[-1].update(gamma="wide"),
    "coef": lambda m: m.weights_[0].update(coef=np.zeros((4, 2))),
    "precision": lambda m: m.weights_[0].update(precision=0.0 * m.weights_[0]["precision"]),
    "sticks": lambda m: m.mixture_["params"].update(sticks=np.zeros((2, 2))),
    "features": lambda m: m.mixture_.update(features="bernoulli"),
    "distribution": lambda m: m.mixture_.update(features="poisson"),
    "real labels": lambda m: m.mixture_.update(labels="gaussian"),
    "prior": lambda m: m.mixture_.update(label_prior=np.zeros((2, 3))),
    "temperature": lambda m: m.mixture_.update(temperature=2.0),
    "scale": lambda m: m.mixture_.update(scale=np.ones(2)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_parts_that_cannot_predict_are_refused(name, fitted):
    with pytest.raises((ValueError, LookupError)):
        classifier(damaged(fitted, DAMAGES[name])).check(4, 3)
