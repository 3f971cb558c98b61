"""Predictors: what the estimator would predict, to the bit, without scikit-learn."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import likelier
from likelier import losses

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 4))
SCORE = X @ RNG.standard_normal((4, 3)) + 0.5 * RNG.standard_normal((300, 3))
CLASSES = np.array(["low", "mid", "high"])[SCORE.argmax(axis=1)]
TWO = np.where(SCORE[:, 0] > 0.0, "yes", "no")
NUMBERS = 10.0 + 3.0 * SCORE[:, 0]
LEARNED, FOUR = likelier.ARD(length_scales="learned"), likelier.PowerEP(n_draws=4)
SHORT = {"n_inducing": 10, "max_iter": 20, "kernel": LEARNED, "random_state": 0}
FEW = {"inference": likelier.MCMC("auto", 2, 20, 10), "random_state": 0}
COUNTS = RNG.poisson(np.exp(0.3 * X))
LABELS = pd.DataFrame(np.where(RNG.random(SCORE.shape) < 0.3, np.nan, SCORE > 0.0))
LABELS.columns = ["red", "old", "sad"]

LABEL_FIT = {"mixture": likelier.Mixture(4), "n_folds": 2, "random_state": 0}
KERNEL = {"n_components": 40, "random_state": 0}
EXPERTS = {"inference": likelier.Evidence(n_experts=4), **KERNEL}
PARTICLES = {"inference": likelier.SVGD(n_particles=3, n_updates=30), **KERNEL}
GAUSSIANS = {"inference": likelier.SteinGaussian(n_particles=2, n_updates=30), **KERNEL}

FITS = {
    "gaussian": (likelier.GaussianNB(), X, CLASSES),
    "gaussian_bayesian": (likelier.GaussianNB(bayesian=True, random_state=3), X, CLASSES),
    "multinomial": (likelier.MultinomialNB(), COUNTS, CLASSES),
    "multinomial_bayesian": (likelier.MultinomialNB(bayesian=True, random_state=0), COUNTS, TWO),
    "bernoulli": (likelier.BernoulliNB(alpha=0.5), X, TWO),
    "linear_two": (likelier.LinearClassifier(random_state=0), X, TWO),
    "linear_several": (likelier.LinearClassifier(random_state=0), X, CLASSES),
    "linear_softmax": (likelier.LinearClassifier("softmax", random_state=0), X, CLASSES),
    "linear_hinge": (likelier.LinearClassifier("hinge", random_state=0), X, TWO),
    "linear_regression": (likelier.LinearRegressor(random_state=0), X, NUMBERS),
    "linear_quantile": (
        likelier.LinearRegressor(losses.Quantile(tau=0.9), random_state=0), X, NUMBERS,
    ),
    "labels": (likelier.MultilabelClassifier(**LABEL_FIT), X, LABELS),
    "labels_product": (
        likelier.MultilabelClassifier(combine="product", kernel=False, **LABEL_FIT), X, LABELS,
    ),
    "labels_counts": (likelier.MultilabelClassifier(**LABEL_FIT), COUNTS, LABELS),
    "labels_classes": (likelier.MultilabelClassifier(kernel=False, **LABEL_FIT), X, CLASSES),
    "labels_two": (likelier.MultilabelClassifier(kernel=False, **LABEL_FIT), X, TWO),
    "labels_constant": (likelier.MultilabelClassifier(**LABEL_FIT), X, np.full(300, "one")),
    "deep_two": (likelier.DeepGPClassifier(inference=FOUR, **SHORT), X, TWO),
    "deep_several": (likelier.DeepGPClassifier(inference=FOUR, **SHORT), X, CLASSES),
    "deep_regression": (likelier.DeepGPRegressor(**SHORT), X, NUMBERS),
    "deep_noise": (likelier.DeepGPRegressor(1, heteroscedastic=True, **SHORT), X, NUMBERS),
    "bayesian_linear_two": (likelier.BayesianLinearClassifier(**FEW), X, TWO),
    "bayesian_linear_several": (likelier.BayesianLinearClassifier(**FEW), X, CLASSES),
    "bayesian_linear_softmax": (
        likelier.BayesianLinearClassifier("softmax", **FEW), X, CLASSES,
    ),
    "bayesian_linear_hinge": (likelier.BayesianLinearClassifier("hinge", **FEW), X, TWO),
    "bayesian_linear_hinges": (likelier.BayesianLinearClassifier("hinge", **FEW), X, CLASSES),
    "bayesian_linear_scores": (
        likelier.BayesianLinearClassifier("hinge", probability=False, **FEW), X, CLASSES,
    ),
    "one_pass": (likelier.OnePassClassifier(random_state=0), X, CLASSES),
    "one_pass_two": (likelier.OnePassClassifier(random_state=0), X, TWO),
    "one_pass_one": (likelier.OnePassClassifier(), X, np.full(300, "one")),
    "one_pass_frozen": (likelier.OnePassClassifier(update="frozen", random_state=1), X, CLASSES),
    "one_pass_fourier": (
        likelier.OnePassClassifier(features="fourier", n_components=20, random_state=0), X, TWO,
    ),
    "svc_two": (likelier.SVC(probability=True, random_state=0), X, TWO),
    "svc_several": (likelier.SVC(C=2.0, probability=True, random_state=0), X, CLASSES),
    "svc_ties": (likelier.SVC(kernel="poly", degree=2, break_ties=True), X, CLASSES),
    "svr": (likelier.SVR(probability=True, random_state=0), X, NUMBERS),
    "svr_linear": (likelier.SVR(kernel="linear"), X, NUMBERS),
    "constant": (likelier.LinearClassifier(), X, np.full(300, "one")),
    "kernel_two": (likelier.BayesianKernelClassifier(**KERNEL), X, TWO),
    "kernel_several": (likelier.BayesianKernelClassifier(**KERNEL), X, CLASSES),
    "kernel_hinge": (likelier.BayesianKernelClassifier("hinge", **KERNEL), X, CLASSES),
    "kernel_linear": (likelier.BayesianKernelClassifier(**KERNEL, features="identity"), X, TWO),
    "kernel_particles": (likelier.BayesianKernelClassifier("hinge", **PARTICLES), X, CLASSES),
    "kernel_experts": (likelier.BayesianKernelClassifier(**EXPERTS), X, CLASSES),
    "kernel_constant": (likelier.BayesianKernelClassifier(), X, np.full(300, "one")),
    "kernel_regression": (likelier.BayesianKernelRegressor(**KERNEL), X, NUMBERS),
    "kernel_tube": (likelier.BayesianKernelRegressor("epsilon_insensitive", **KERNEL), X, NUMBERS),
    "kernel_number_experts": (likelier.BayesianKernelRegressor(**EXPERTS), X, NUMBERS),
    "kernel_number_particles": (likelier.BayesianKernelRegressor(**GAUSSIANS), X, NUMBERS),
}  # fmt: skip
METHODS = ("predict", "predict_proba", "predict_interval", "predict_quantiles")


def saved(model, folder):
    path = folder / "model.likelier"
    likelier.save(model, path)
    return path


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, np.float32])
def test_predictions_are_those_of_the_estimator(name, kind, tmp_path):
    model, rows, y = FITS[name]
    model = model.fit(rows, y)
    predictor = likelier.load_predictor(saved(model, tmp_path))
    rows = kind(rows)
    for method in METHODS:
        if not hasattr(model, method):
            continue
        found = getattr(predictor, method)(rows)
        np.testing.assert_array_equal(found, getattr(model, method)(rows), err_msg=method)
    if hasattr(model, "predict_uncertainty"):
        expected, found = model.predict_uncertainty(rows), predictor.predict_uncertainty(rows)
        for part in ("total", "aleatoric", "epistemic"):
            np.testing.assert_allclose(getattr(found, part), getattr(expected, part), rtol=1e-12)


@pytest.mark.parametrize("columns", ["dbac", "abd", "abcx", "zyxwvutsr"])
def test_frames_of_other_columns_are_refused_in_the_words_of_the_estimator(columns, tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = likelier.LinearClassifier(random_state=0).fit(frame, CLASSES)
    predictor = likelier.load_predictor(saved(model, tmp_path))
    np.testing.assert_array_equal(predictor.predict_proba(frame), model.predict_proba(frame))
    other = pd.DataFrame(np.ones((3, len(columns))), columns=list(columns))
    with pytest.raises(ValueError, match="should match those") as ours:
        predictor.predict(other)
    with pytest.raises(ValueError, match="should match those") as theirs:
        model.predict(other)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("named", [True, False])
def test_nullable_columns_and_masked_arrays_are_understood(named, tmp_path):
    gaps = RNG.random(X.shape) < 0.1
    rows = np.where(gaps, np.nan, X)
    frame = pd.DataFrame(rows, columns=list("abcd"))
    model = likelier.GaussianNB().fit(frame if named else rows, CLASSES)
    predictor = likelier.load_predictor(saved(model, tmp_path))
    nullable = frame.astype("Float64")
    assert nullable.isna().sum().sum() == gaps.sum()
    expected = model.predict_proba(frame if named else rows)
    np.testing.assert_array_equal(predictor.predict_proba(nullable), expected)
    np.testing.assert_array_equal(predictor.predict_proba(np.ma.array(X, mask=gaps)), expected)
    linear = likelier.LinearClassifier(random_state=0).fit(X, TWO)
    whole = pd.DataFrame(X, columns=list("abcd")).astype("Float64")
    predictor = likelier.load_predictor(saved(linear, tmp_path))
    np.testing.assert_array_equal(predictor.predict(whole), linear.predict(X))
    with pytest.raises(ValueError, match="masked"):
        predictor.predict(np.ma.array(X, mask=gaps))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("model", "y", "method"),
    [
        (likelier.OnePassClassifier(random_state=0), CLASSES, "predict_uncertainty"),
        (likelier.LinearRegressor(random_state=0), NUMBERS, "predict_interval"),
    ],
)
def test_huge_rows_are_named(model, y, method, tmp_path):
    predictor = likelier.load_predictor(saved(model.fit(X, y), tmp_path))
    for one in (model, predictor):
        with pytest.raises(ValueError, match="values of X are too large"):
            getattr(one, method)(np.full((2, 4), 1.7e308))


@pytest.mark.parametrize(
    "model",
    [likelier.GaussianNB(bayesian=True), likelier.BernoulliNB(bayesian=True),
     likelier.OnePassClassifier()],
)  # fmt: skip
def test_uncertainty_of_a_fitted_model_does_not_change(model, tmp_path):
    model.fit(X, CLASSES)
    predictor = likelier.load_predictor(saved(model, tmp_path))
    first = model.predict_uncertainty(X).epistemic
    assert (first > 0.0).any()
    np.testing.assert_array_equal(model.predict_uncertainty(X).epistemic, first)
    np.testing.assert_allclose(predictor.predict_uncertainty(X).epistemic, first, rtol=1e-12)


def test_missing_values_are_understood_where_the_model_does(tmp_path):
    rows = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
    model = likelier.GaussianNB().fit(rows, CLASSES)
    predictor = likelier.load_predictor(saved(model, tmp_path))
    np.testing.assert_array_equal(predictor.predict_proba(rows), model.predict_proba(rows))
    linear = likelier.load_predictor(saved(likelier.LinearClassifier().fit(X, TWO), tmp_path))
    with pytest.raises(ValueError, match="NaN or infinity"):
        linear.predict(rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (X[:, :3], "3 features"),
        (X[0], "two dimensions"),
        (np.where(X > 2.0, np.inf, X), "infinity"),
        ([["a", "b", "c", "d"]], "numbers"),
    ],
)
def test_rows_that_are_none_are_refused(rows, message, tmp_path):
    model = likelier.LinearRegressor(random_state=0).fit(X, NUMBERS)
    predictor = likelier.load_predictor(saved(model, tmp_path))
    with pytest.raises(ValueError, match=message):
        predictor.predict(rows)


@pytest.mark.parametrize("features", [None, "fourier"])
def test_weights_that_were_deferred_are_computed_by_the_predictor(features, tmp_path):
    parameters = {"features": features, "n_components": 20, "random_state": 0}
    model = likelier.OnePassClassifier(**parameters).partial_fit(X, CLASSES, classes=["other"])
    path = saved(model, tmp_path)
    assert "posterior_" not in vars(likelier.load(path))
    found = likelier.load_predictor(path)
    np.testing.assert_array_equal(found.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(found.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("attribute", "part", "change"),
    [
        ("posterior_", "root", lambda value: value[:2]),
        ("posterior_", "scale", lambda value: 0.0 * value),
        ("pending_", "X", lambda value: value[:, :2]),
        ("pending_", "y", lambda value: value[:-1]),
        ("pending_", "weight", lambda value: -value),
        ("pending_", "X", lambda value: np.nan * value),
    ],
)
def test_damaged_parts_of_a_stream_are_refused(attribute, part, change, tmp_path):
    model = likelier.OnePassClassifier().partial_fit(X, CLASSES)
    if attribute == "posterior_":
        model.predict(X)
    damaged = {**getattr(model, attribute)}
    setattr(model, attribute, {**damaged, part: change(damaged[part])})
    path = saved(model, tmp_path)
    for load in (likelier.load, likelier.load_predictor):
        with pytest.raises(ValueError, match="cannot predict"):
            load(path)


def test_what_a_model_does_not_have_is_refused(tmp_path):
    regression = likelier.LinearRegressor(random_state=0).fit(X, NUMBERS)
    with pytest.raises(ValueError, match="predict_proba is for classes"):
        likelier.load_predictor(saved(regression, tmp_path)).predict_proba(X)
    classifier = likelier.LinearClassifier(random_state=0).fit(X, TWO)
    with pytest.raises(ValueError, match="predict_interval is for regression"):
        likelier.load_predictor(saved(classifier, tmp_path)).predict_interval(X)
    counts = likelier.MultinomialNB().fit(COUNTS, TWO)
    with pytest.raises(ValueError, match="[Nn]egative"):
        likelier.load_predictor(saved(counts, tmp_path)).predict(X)
    with pytest.raises(ValueError, match="no fitted model"):
        likelier.load_predictor(saved(likelier.GaussianNB(), tmp_path))


@pytest.mark.parametrize("loss", ["huber", "quantile", "epsilon_insensitive"])
def test_a_loss_without_a_distribution_has_no_intervals(loss, tmp_path):
    model = likelier.LinearRegressor(loss, random_state=0).fit(X, np.round(np.abs(NUMBERS)))
    predictor = likelier.load_predictor(saved(model, tmp_path))
    np.testing.assert_array_equal(predictor.predict(X), model.predict(X))
    for method in ("predict_interval", "predict_quantiles", "predict_uncertainty"):
        with pytest.raises(ValueError, match="no distribution of the targets"):
            getattr(predictor, method)(X)


def test_counts_have_intervals(tmp_path):
    model = likelier.LinearRegressor("poisson", random_state=0).fit(X, np.round(np.abs(NUMBERS)))
    predictor = likelier.load_predictor(saved(model, tmp_path))
    assert predictor.has_intervals
    for method in ("predict", "predict_interval", "predict_quantiles"):
        np.testing.assert_array_equal(getattr(predictor, method)(X), getattr(model, method)(X))
    np.testing.assert_array_equal(
        predictor.predict_uncertainty(X).epistemic, model.predict_uncertainty(X).epistemic
    )


def test_scores_that_are_not_calibrated_are_no_probabilities(tmp_path):
    model = likelier.LinearClassifier("hinge", probability=False, random_state=0).fit(X, TWO)
    predictor = likelier.load_predictor(saved(model, tmp_path))
    np.testing.assert_array_equal(predictor.predict(X), model.predict(X))
    for method in ("predict_proba", "predict_uncertainty"):
        with pytest.raises(ValueError, match="probability=True"):
            getattr(predictor, method)(X)


def test_quantiles_and_uncertainty_of_unseen_levels_are_those_of_the_mixture(tmp_path):
    town = np.array(["Rome", "Oslo", "Bonn"])[RNG.integers(0, 3, 300)]
    frame = pd.DataFrame(X, columns=list("abcd")).assign(
        town=town, target=NUMBERS + 50.0 * (town == "Oslo")
    )
    model = likelier.LinearRegressor(random_state=0).fit(frame, y="target")
    predictor = likelier.load_predictor(saved(model, tmp_path))
    unseen = frame.assign(town=["Kyiv", *frame.town[1:]]).drop(columns="target")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the level that did not occur in training
        quantiles = predictor.predict_quantiles(unseen, alpha=[0.05, 0.95])
        interval = predictor.predict_interval(unseen, coverage=0.9)
        uncertainty = predictor.predict_uncertainty(unseen)
    np.testing.assert_allclose(quantiles, interval, rtol=1e-9)
    assert np.ptp(quantiles[0]) > 2.0 * np.ptp(quantiles[1])
    assert uncertainty.total[0] > 100.0 * uncertainty.total[1] > 0.0
    np.testing.assert_allclose(
        uncertainty.aleatoric + uncertainty.epistemic, uncertainty.total, rtol=1e-9
    )


def test_files_and_frames_go_through_the_encoding(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(
        town=np.array(["Rome", "Oslo", "Bonn"])[SCORE.argmin(axis=1)], target=CLASSES
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model = likelier.LinearClassifier(random_state=0).fit(tmp_path / "rows.csv", y="target")
    predictor = likelier.load_predictor(saved(model, tmp_path))
    unseen = frame.assign(town=["Kyiv", *frame.town[1:]]).drop(columns="target")
    unseen.to_csv(tmp_path / "new.csv", index=False)
    for data in (tmp_path / "new.csv", unseen):
        with pytest.warns(UserWarning, match="did not occur in training"):
            found = predictor.predict_proba(data), predictor.predict(data)
        with pytest.warns(UserWarning, match="did not occur in training"):
            expected = model.predict_proba(data), model.predict(data)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


def test_neither_scikit_learn_nor_pandas_is_imported(tmp_path):
    names = (
        "gaussian",
        "linear_several",
        "linear_regression",
        "labels",
        "labels_classes",
        "deep_two",
        "deep_noise",
        "bayesian_linear_hinges",
        "one_pass_fourier",
        "svc_several",
        "svr",
        "kernel_several",
        "kernel_experts",
        "kernel_particles",
        "kernel_regression",
    )
    for name in names:
        model, rows, y = FITS[name]
        path = saved(model.fit(rows, y), tmp_path)
        program = f"""
            import sys
            import numpy as np
            import likelier
            predictor = likelier.load_predictor({str(path)!r})
            predictor.predict(np.zeros((3, 4)))
            loaded = {{"sklearn", "pandas", "jax"}} & set(sys.modules)
            assert not loaded, loaded
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
