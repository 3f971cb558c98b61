"""Posteriors of kernel machines: checked where they are loaded, and equal to the estimator's."""

import numpy as np
import pytest

import likelier
from likelier.kernel_machine.posterior import classifier, regressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 3))
CLASSES = np.array(["a", "b", "c"])[(X @ RNG.standard_normal((3, 3))).argmax(axis=1)]
NUMBERS = X[:, 0] + 0.1 * RNG.standard_normal(200)
SMALL = {"n_components": 20, "random_state": 0}


@pytest.fixture(scope="module")
def of_classes():
    return likelier.BayesianKernelClassifier(n_experts=4, **SMALL).fit(X, CLASSES)


@pytest.fixture(scope="module")
def of_numbers():
    return likelier.BayesianKernelRegressor(n_experts=4, **SMALL).fit(X, NUMBERS)


@pytest.fixture(scope="module")
def of_particles():
    return likelier.BayesianKernelClassifier(
        inference="stein_gaussian", n_particles=2, max_iter=2, **SMALL
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


def change(model, name, damage):
    """Put a changed copy of an attribute in place of it, and give the old one back."""
    before = getattr(model, name)
    setattr(model, name, damage(before))
    return before


def first(damage):
    """Damage the first entry of a list."""
    return lambda entries: [damage(entries[0]), *entries[1:]]


def part(name, damage):
    """Damage one array of the first dict of a list."""
    return first(lambda plain: plain | {name: damage(plain[name])})


def shorter(array):
    return array[:-1]


def with_nan(array):
    return np.where(np.arange(array.size).reshape(array.shape) == 0, np.nan, array)


COMMON = [
    ("maps_", part("gamma", shorter)),
    ("maps_", part("centre", with_nan)),
    ("maps_", part("whiten", shorter)),
    ("maps_", part("landmarks", lambda Z: Z[:, :-1])),
    ("maps_", part("kind", lambda kind: "another")),
    ("weights_", first(shorter)),
    ("roots_", first(with_nan)),
    ("experts_", part("counts", shorter)),
    ("experts_", part("roots", with_nan)),
    ("experts_", part("cuts", shorter)),
    ("experts_", part("prior_variance", lambda value: 0.0)),
    ("extrapolation_trust_", lambda trust: trust + 2.0),
]
OF_CLASSES = [
    *COMMON,
    ("layout_", lambda layout: "another"),
    ("layout_", lambda layout: "reduced"),
    ("extrapolation_scores_", first(shorter)),
    ("calibration_", first(lambda plain: {"slope": np.ones(1)})),
    ("posterior_scale_", lambda scale: -scale),
    ("classes_", shorter),
]
OF_NUMBERS = [
    *COMMON,
    ("noise_weights_", first(shorter)),
    ("noise_widths_", first(lambda widths: -widths)),
    ("ratio_", lambda ratio: 0.0 * ratio),
    ("target_mean_", lambda mean: float("nan")),
    ("global_noise_", lambda noise: -noise),
]
OF_PARTICLES = [
    ("particles_", lambda theta: theta[:, :-1]),
    ("particles_", lambda theta: theta[:0]),
    ("particle_scale_", lambda scale: -scale),
    ("frequencies_", lambda frequencies: frequencies[:, :-1]),
    ("input_mean_", with_nan),
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
    before = change(model, attribute, damage)
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
