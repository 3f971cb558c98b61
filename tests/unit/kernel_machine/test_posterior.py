"""Posteriors of kernel machines: checked where they are loaded, and equal to the estimator's."""

import numpy as np
import pytest

import likelier
from likelier.kernel_machine.posterior import classifier, regressor
from likelier.kernel_machine.settings import Evidence
from likelier.kernel_machine.stein_gaussian import SteinGaussian

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 3))
CLASSES = np.array(["a", "b", "c"])[(X @ RNG.standard_normal((3, 3))).argmax(axis=1)]
NUMBERS = X[:, 0] + 0.1 * RNG.standard_normal(200)
SMALL = {"n_components": 20, "random_state": 0}


@pytest.fixture(scope="module")
def of_classes():
    return likelier.BayesianKernelClassifier(inference=Evidence(n_experts=4), **SMALL).fit(
        X, CLASSES
    )


@pytest.fixture(scope="module")
def of_numbers():
    return likelier.BayesianKernelRegressor(inference=Evidence(n_experts=4), **SMALL).fit(
        X, NUMBERS
    )


@pytest.fixture(scope="module")
def of_particles():
    return likelier.BayesianKernelClassifier(
        inference=SteinGaussian(n_particles=2, n_updates=2), **SMALL
    ).fit(X, CLASSES)


def test_a_predictive_over_many_rows_knows_all_of_them(of_classes):
    posterior = classifier(of_classes)
    rows = np.tile(X, (30, 1))  # more than a block
    predictive, p = posterior.predictive(rows), of_classes.predict_proba(rows)
    codes = np.searchsorted(of_classes.classes_, np.tile(CLASSES, 30))
    assert predictive.n_rows == len(rows)
    np.testing.assert_array_equal(posterior.point(rows), p.argmax(axis=1))
    np.testing.assert_allclose(
        predictive.log_density(codes), np.log(p[np.arange(len(rows)), codes])
    )
    np.testing.assert_array_equal(predictive.probabilities(), p)


@pytest.mark.parametrize("name", ["of_classes", "of_numbers", "of_particles"])
def test_predictions_of_no_rows_and_of_one(name, request):
    model = request.getfixturevalue(name)
    posterior = (classifier if hasattr(model, "classes_") else regressor)(model)
    assert len(posterior.uncertainty(X[:1]).total) == 1
    if name != "of_numbers":
        assert posterior.predictive(X[:0]).probabilities().shape == (0, 3)


def stored(*path, damage):
    """The stored posterior with one of its values damaged."""

    def damaged(plain, rest=path):
        inner = plain[rest[0]]
        inner = damage(inner) if len(rest) == 1 else damaged(inner, rest[1:])
        return plain | {rest[0]: inner}

    return ("posterior_", damaged)


def shorter(array):
    return array[:-1]


def with_nan(array):
    return np.where(np.arange(array.size).reshape(array.shape) == 0, np.nan, array)


COMMON = [
    stored("map", "gamma", damage=shorter),
    stored("map", "centre", damage=with_nan),
    stored("map", "whiten", damage=shorter),
    stored("map", "landmarks", damage=lambda Z: Z[:, :-1]),
    stored("map", "kind", damage=lambda kind: "another"),
    stored("weights", "mean", damage=shorter),
    stored("experts", "counts", damage=shorter),
    stored("experts", "roots", damage=with_nan),
    stored("experts", "cuts", damage=shorter),
    stored("experts", "prior_variance", damage=lambda value: 0.0),
    stored("extrapolation_trust", damage=lambda trust: trust + 2.0),
]
OF_CLASSES = [
    *COMMON,
    stored("weights", "roots", damage=with_nan),
    stored("weights", "layout", damage=lambda layout: "another"),
    stored("weights", "layout", damage=lambda layout: "reduced"),
    stored("extrapolation_scores", damage=shorter),
    stored("calibration", damage=lambda plain: {"slope": np.ones(1)}),
    stored("posterior_scale", damage=lambda scale: -1.0),
    ("classes_", shorter),
]
OF_NUMBERS = [
    *COMMON,
    stored("weights", "root", damage=with_nan),
    stored("weights", "ratio", damage=lambda ratio: 0.0),
    stored("shape", "weights", damage=shorter),
    stored("shape", "widths", damage=lambda widths: -widths),
    stored("target_mean", damage=lambda mean: float("nan")),
    stored("global_noise", damage=lambda noise: -noise),
]
OF_PARTICLES = [
    stored("particles", "theta", damage=lambda theta: theta[:, :-1]),
    stored("particles", "theta", damage=lambda theta: theta[:0]),
    stored("particles", "scale", damage=lambda scale: -scale),
    stored("particles", "frequencies", damage=lambda frequencies: frequencies[:, :-1]),
    stored("particles", "input_mean", damage=with_nan),
    ("classes_", shorter),
]
DAMAGED = [
    (name, *damaged)
    for name, cases in [
        ("of_classes", OF_CLASSES), ("of_numbers", OF_NUMBERS), ("of_particles", OF_PARTICLES)
    ]
    for damaged in cases
]  # fmt: skip


@pytest.mark.parametrize(("name", "attribute", "damage"), DAMAGED)
def test_what_cannot_predict_is_not_loaded(name, attribute, damage, request, tmp_path):
    model = request.getfixturevalue(name)
    before = getattr(model, attribute)
    setattr(model, attribute, damage(before))
    likelier.save(model, tmp_path / "model")
    setattr(model, attribute, before)
    for load in (likelier.load, likelier.load_predictor):
        with pytest.raises(ValueError, match="cannot predict"):
            load(tmp_path / "model")


def test_a_model_that_waits_for_rows_is_loaded_to_go_on(tmp_path):
    model = likelier.BayesianKernelClassifier(**SMALL).partial_fit(X[:9], np.full(9, "a"))
    likelier.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match="no rows have been learned yet"):
        likelier.load_predictor(tmp_path / "model")
    again = likelier.load(tmp_path / "model").partial_fit(X, CLASSES)
    expected = model.partial_fit(X, CLASSES).predict_proba(X)
    np.testing.assert_array_equal(again.predict_proba(X), expected)
    likelier.save(again, tmp_path / "model")
    found = likelier.load_predictor(tmp_path / "model").predict_proba(X)
    np.testing.assert_array_equal(found, expected)
