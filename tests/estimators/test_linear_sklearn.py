"""Inside scikit-learn: pipelines, searches, routed weights, copies, and reproducible threads."""

from __future__ import annotations

import copy
import io
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from likelier import SGD, LinearClassifier, LinearRegressor, losses


def draw(n=200, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    signal = X @ np.linspace(1.0, -1.0, d)
    y = np.digitize(signal + rng.standard_normal(n), np.linspace(-1.0, 1.0, n_classes + 1)[1:-1])
    return X, y, signal


MODELS = {
    "logistic": lambda: LinearClassifier(random_state=0),
    "hinge": lambda: LinearClassifier("hinge", random_state=0),
    "constant": lambda: LinearClassifier(
        "softmax", solver=SGD(learning_rate="constant"), random_state=0
    ),
    "quantile": lambda: LinearRegressor(losses.Quantile(0.7), random_state=0),
    "squared": lambda: LinearRegressor(random_state=0),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=list(MODELS))


def output(model, X):
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)


# -- copies -----------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
def test_a_copy_predicts_the_same(make, way):
    X, y, _ = draw()
    model = make().fit(X, y)
    if way == "pickle":
        twin = pickle.loads(pickle.dumps(model))
    elif way == "deepcopy":
        twin = copy.deepcopy(model)
    else:
        joblib.dump(model, file := io.BytesIO())
        file.seek(0)
        twin = joblib.load(file)
    np.testing.assert_array_equal(output(twin, X), output(model, X))
    assert twin.get_params() == model.get_params()
    twin.partial_fit(X, y)


@every_model
def test_a_clone_is_not_fitted(make):
    X, y, _ = draw()
    model = make().fit(X, y)
    twin = clone(model)
    assert not hasattr(twin, "coef_")
    assert twin.get_params() == model.get_params()
    np.testing.assert_array_equal(output(twin.fit(X, y), X), output(model, X))


def test_kinds_and_tags():
    assert is_classifier(LinearClassifier()) and not is_regressor(LinearClassifier())
    assert is_regressor(LinearRegressor()) and not is_classifier(LinearRegressor())
    assert LinearRegressor("poisson").__sklearn_tags__().target_tags.positive_only
    assert not LinearRegressor().__sklearn_tags__().target_tags.positive_only
    assert LinearClassifier().__sklearn_tags__().input_tags.sparse


VARIANTS = [
    LinearClassifier("hinge"),
    LinearClassifier("softmax", solver=SGD(learning_rate="constant")),
    LinearClassifier(solver=SGD(early_stopping=True)),
    LinearRegressor("quantile"),
    LinearRegressor(l1_ratio=1.0, alpha=0.01),
]
# one check of each kind that depends on how a model is fitted; all checks run on the defaults
CHECKS = ("check_fit2d", "check_estimators_pickle", "check_dict_unchanged", "check_methods")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", VARIANTS, ids=repr)
def test_variants_pass_the_checks_too(model):
    ran = 0
    for estimator, check in estimator_checks_generator(model):
        name = getattr(check, "func", check).__name__
        if name.startswith(CHECKS):
            check(estimator)
            ran += 1
    assert ran >= 8


# -- pipelines and searches -------------------------------------------------------------------


@pytest.mark.parametrize("output_kind", ["default", "pandas", "polars"])
def test_pipeline_that_hands_over_frames(output_kind):
    X, y, _ = draw()
    plain = make_pipeline(StandardScaler(), LinearClassifier(random_state=0)).fit(X, y)
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipe = make_pipeline(StandardScaler(), LinearClassifier(random_state=0))
    pipe.set_output(transform=output_kind).fit(frame, y)
    np.testing.assert_allclose(pipe.predict_proba(frame), plain.predict_proba(X))
    if output_kind != "default":
        np.testing.assert_array_equal(pipe[-1].feature_names_in_, list("abcd"))


def test_search_over_a_parameter_of_the_loss():
    X, _, t = draw()
    t = t + np.random.default_rng(1).standard_normal(200)
    shared = losses.Quantile(0.5)
    model = LinearRegressor(shared, tol=1e-3)
    search = GridSearchCV(model, {"loss__tau": [0.1, 0.5, 0.9], "alpha": [1e-3, 1.0]}, cv=3)
    search.fit(X, t)
    assert search.best_params_["loss__tau"] == 0.5
    assert search.best_estimator_.loss.tau == 0.5
    assert model.loss is shared and shared.tau == 0.5
    assert len({str(p) for p in search.cv_results_["params"]}) == 6


def test_search_over_losses_in_a_pipeline():
    X, y, _ = draw(n_classes=3)
    pipe = Pipeline([("scale", StandardScaler()), ("model", LinearClassifier(random_state=0))])
    grid = {"model__loss": ["log_loss", losses.Softmax(), "squared_hinge"]}
    search = GridSearchCV(pipe, grid, cv=3, n_jobs=2).fit(X, y)
    assert search.best_score_ > 0.5
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_parallel_search_on_memory_mapped_rows():
    """joblib hands read-only arrays to its workers when they are large."""
    X, y, _ = draw(n=20_000, d=10)
    scores = cross_val_score(LinearClassifier(random_state=0), X, y, cv=2, n_jobs=2)
    assert (scores > 0.7).all()


def test_meta_estimators():
    X, y, _ = draw(n_classes=3)
    own = LinearClassifier(alpha=0.01, random_state=0).fit(X, y)
    wrapped = OneVsRestClassifier(LinearClassifier(alpha=0.01, random_state=0)).fit(X, y)
    rows = np.stack([m.coef_[0] for m in wrapped.estimators_])
    np.testing.assert_allclose(own.coef_, rows, atol=1e-5)
    chosen = SelectFromModel(LinearRegressor(l1_ratio=1.0, alpha=0.1)).fit(X, X[:, 0])
    assert chosen.get_support().tolist() == [True, False, False, False]
    importance = permutation_importance(own, X, y, n_repeats=2, random_state=0)
    assert importance.importances_mean[0] > 0.0


def test_sparse_pipeline():
    X, y, _ = draw()
    pipe = make_pipeline(StandardScaler(with_mean=False), LinearClassifier("hinge"))
    assert pipe.fit(sparse.csr_array(X), y).score(sparse.csr_array(X), y) > 0.7


# -- metadata routing -------------------------------------------------------------------------


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_weights_are_routed_through_pipeline_search_and_validation():
    X, y, _ = draw()
    weight = np.random.default_rng(0).uniform(0.1, 5.0, 200)
    model = LinearClassifier(random_state=0).set_fit_request(sample_weight=True)
    model.set_score_request(sample_weight=False)
    expected = LinearClassifier(random_state=0).fit(X, y, sample_weight=weight)
    pipe = Pipeline([("model", model)]).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(pipe["model"].coef_, expected.coef_)
    search = GridSearchCV(model, {"alpha": ["auto"]}, cv=2).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(search.best_estimator_.coef_, expected.coef_)
    result = cross_validate(
        model, X, y, cv=2, params={"sample_weight": weight}, return_estimator=True
    )
    half = LinearClassifier(random_state=0)
    train, _ = next(StratifiedKFold(2).split(X, y))
    half.fit(X[train], y[train], sample_weight=weight[train])
    np.testing.assert_array_equal(result["estimator"][0].coef_, half.coef_)


@pytest.mark.usefixtures("routing")
def test_batches_can_ask_for_weights_and_classes():
    model = LinearClassifier().set_partial_fit_request(sample_weight=True, classes=True)
    request = model.get_metadata_routing().partial_fit.requests
    assert request == {"sample_weight": True, "classes": True}
    LinearRegressor().set_partial_fit_request(sample_weight=True)


# -- the same bits ----------------------------------------------------------------------------


SETTINGS = [
    {},
    {"loss": "hinge"},
    {"loss": "softmax"},
    {"loss": "multiclass_hinge"},
    {"solver": SGD(learning_rate="constant")},
    {"solver": SGD(early_stopping=True)},
    {"l1_ratio": 1.0, "alpha": 0.01},
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("params", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_same_seed_and_threads_same_bits(params, kind, monkeypatch):
    monkeypatch.setattr("likelier.engines.blocks.MAX_DENSE_ROWS", 256)  # something to share
    X, y, _ = draw(n=1500, n_classes=3)
    found = {}
    for n_jobs in (1, 2):
        runs = []
        for _ in range(2):
            model = LinearClassifier(random_state=7, n_jobs=n_jobs, **params).fit(kind(X), y)
            runs.append((model.coef_, model.intercept_, model.predict_proba(X)))
        for one, two in zip(*runs, strict=True):
            np.testing.assert_array_equal(one, two)
        found[n_jobs] = runs[0]
    for one, two in zip(found[1], found[2], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-8)


def test_seeds_may_be_generators_of_the_old_kind():
    X, y, _ = draw()
    one = LinearClassifier("hinge", random_state=np.random.RandomState(3)).fit(X, y)
    two = LinearClassifier("hinge", random_state=np.random.RandomState(3)).fit(X, y)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_fitting_twice_is_fitting_once():
    X, y, _ = draw()
    for make in MODELS.values():
        model = make().fit(X, y)
        before = output(model, X)
        np.testing.assert_array_equal(output(model.fit(X, y), X), before)
