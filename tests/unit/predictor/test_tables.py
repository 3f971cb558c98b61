"""Estimators that were fitted on a table predict tables, as their predictors do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import likelier

RNG = np.random.default_rng(3)
N = 150
SCORE = RNG.normal(size=(N, 2))
ROWS = pd.DataFrame(SCORE, columns=["a", "b"]).assign(
    town=np.array(["Rome", "Oslo", "Bonn"])[RNG.integers(0, 3, N)]
)
CLASSES = np.array(["no", "yes"])[(SCORE[:, 0] + (ROWS.town == "Oslo") > 0.5).astype(int)]
NUMBERS = SCORE[:, 0] + 2.0 * (ROWS.town == "Oslo") + 0.1 * RNG.normal(size=N)
MODELS = {
    "linear": (likelier.LinearClassifier(random_state=0), CLASSES),
    "linear_hinge": (likelier.LinearClassifier("hinge", random_state=0), CLASSES),
    "linear_regression": (likelier.LinearRegressor(random_state=0), NUMBERS),
    "gaussian": (likelier.GaussianNB(), CLASSES),
    "bernoulli": (likelier.BernoulliNB(), CLASSES),
    "bayesian": (
        likelier.BayesianLinearClassifier(inference=likelier.MCMC(n_draws=40), random_state=0),
        CLASSES,
    ),
    "one_pass": (likelier.OnePassClassifier(random_state=0), CLASSES),
    "kernel": (likelier.BayesianKernelClassifier(random_state=0), CLASSES),
    "kernel_regression": (likelier.BayesianKernelRegressor(random_state=0), NUMBERS),
}
METHODS = ("predict", "predict_proba", "predict_interval", "predict_quantiles")


def told(later):
    return pytest.warns(UserWarning, match=rf"of {len(later)} rows.*'town' \(1\)")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_every_method_takes_what_fit_took(name, tmp_path):
    model, y = MODELS[name]
    ROWS.assign(target=y).to_csv(tmp_path / "train.csv", index=False)
    model.fit(str(tmp_path / "train.csv"), y="target")
    likelier.save(model, tmp_path / "model")
    predictor = likelier.load_predictor(tmp_path / "model")
    later = ROWS[:20].assign(town=["Kyiv", *ROWS.town[1:20]])
    later.to_csv(tmp_path / "later.csv", index=False)
    for method in METHODS:
        if not hasattr(model, method):
            continue
        with told(later):
            found = getattr(model, method)(tmp_path / "later.csv")
        with told(later):
            np.testing.assert_array_equal(getattr(model, method)(later), found)
        with told(later):
            np.testing.assert_array_equal(getattr(predictor, method)(later), found)
    if hasattr(model, "predict_uncertainty"):
        with told(later):
            ours = model.predict_uncertainty(later)
        with told(later):
            other = predictor.predict_uncertainty(later)
        np.testing.assert_allclose(ours.total, other.total, rtol=1e-12)
        assert ours.total[0] > 0.0


@pytest.mark.parametrize("name", ["linear", "linear_regression", "gaussian", "bernoulli"])
def test_frames_are_fitted_by_the_name_of_the_target(name, tmp_path):
    model, y = MODELS[name]
    frame = ROWS.assign(target=y)
    frame.to_csv(tmp_path / "train.csv", index=False)
    expected = model.fit(tmp_path / "train.csv", y="target").predict(ROWS)
    np.testing.assert_array_equal(model.fit(frame, y="target").predict(ROWS), expected)
    assert model.score(ROWS, y) > 0.6


def test_deviations_of_a_mixture_are_as_wide_as_the_levels_differ():
    model = likelier.LinearRegressor(random_state=0).fit(ROWS.assign(y=NUMBERS), y="y")
    later = ROWS[:5].assign(town=["Kyiv", *ROWS.town[1:5]])
    with told(later):
        mean, std = model.predict(later, return_std=True)
    with told(later):
        np.testing.assert_array_equal(model.predict(later), mean)
    assert std[0] > 5.0 * std[1]


def test_labels_without_probabilities_are_those_of_most_copies():
    model = likelier.LinearClassifier("hinge", probability=False, random_state=0)
    model.fit(ROWS.assign(target=CLASSES), y="target")
    later = ROWS[:2].assign(town=["Kyiv", ROWS.town[1]], a=[9.0, 0.0])
    with told(later):
        assert model.predict(later)[0] == "yes"  # whatever the town


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_features_are_still_taken_and_a_later_fit_of_arrays_forgets_the_table():
    model = likelier.LinearClassifier(random_state=0).fit(ROWS.assign(y=CLASSES), y="y")
    features = np.column_stack([SCORE, *(ROWS.town == t for t in ("Rome", "Oslo", "Bonn"))])
    assert model.predict(np.zeros((2, model.n_features_in_))).shape == (2,)
    model.fit(features, CLASSES)
    assert not hasattr(model, "encoding_")
    with pytest.raises(ValueError, match="could not convert|dtype|float"):
        model.predict(ROWS)
