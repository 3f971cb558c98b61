"""What a fitted estimator offers (``hasattr``) it can do, whatever its words say."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.ensemble import StackingClassifier
from sklearn.utils import get_tags

import likelier
from likelier.losses import LOSSES

RNG = np.random.default_rng(0)
X = np.abs(RNG.standard_normal((60, 3)))
Y = X @ [1.0, -1.0, 0.5] + 0.1 * RNG.standard_normal(60)
LABELS = np.array(["a", "b"])[(Y > np.median(Y)).astype(int)]
DOCUMENTS = ["a red apple", "a green pear", "red and green"]
LEARNED = likelier.ARD(length_scales="learned")
SHORT = {"max_iter": 20, "n_inducing": 8, "hidden_dim": 2, "kernel": LEARNED}
DRAWS = {"inference": likelier.MCMC(n_chains=2, n_draws=40, n_warmup=40)}
WORDS = {
    "SVC": [{}, {"probability": True}, {"kernel": "linear"}],
    "SVR": [{}, {"probability": True}],
    "BayesianKernelClassifier": [
        {}, {"loss": "hinge"}, {"inference": likelier.SVGD(n_particles=2)},
        {"inference": likelier.SteinGaussian(n_particles=2)}, {"features": "identity"},
    ],
    "BayesianKernelRegressor": [
        {}, {"loss": "epsilon_insensitive"}, {"inference": likelier.SVGD(n_particles=2)},
    ],
    "BayesianLinearClassifier": [
        DRAWS, {"loss": "hinge", **DRAWS}, {"loss": "hinge", "probability": False, **DRAWS},
    ],
    "DeepGPClassifier": [SHORT],
    "DeepGPRegressor": [SHORT],
    "LinearClassifier": [
        {"loss": loss, "probability": on}
        for loss in LOSSES if LOSSES[loss].task in ("binary", "multiclass") for on in (True, False)
    ],
    "LinearRegressor": [
        {"loss": loss} for loss in LOSSES if LOSSES[loss].task in ("regression", "count")
    ],
    "MultilabelClassifier": [{"kernel": False, "mixture": likelier.Mixture(2)}],
    "OnePassClassifier": [{}, {"update": "frozen"}],
    "GaussianNB": [{}, {"bayesian": True}],
    "TextFeatures": [{}, {"n_features": 8}, {"vocabulary": ["red", "green"]}],
}  # fmt: skip
CASES = [
    (name, words)
    for name in sorted(likelier.__all__)
    if isinstance(one := getattr(likelier, name), type) and issubclass(one, BaseEstimator)
    for words in WORDS.get(name, [{}])
]
# They learn or change words; their arguments are of a kind of their own; or (`coef_interval`,
# `to_arviz`) what they lack is known when they are called only: certainty, or a package.
ELSEWHERE = {
    "fit", "fit_path", "partial_fit", "merge", "forget", "get_params", "set_params", "apply",
    "init", "set_callbacks", "set_output", "use_threshold", "coef_interval", "to_arviz",
    "plot_relevance", "get_metadata_routing", "inverse_transform", "resolve_kernel",
}  # fmt: skip
EXTRA = {"n_draws": 2, "n": 2, "factor": 0.5}


def made(name, words):
    model = getattr(likelier, name)(**words)
    return model.set_params(random_state=0) if "random_state" in model.get_params() else model


def rows_for(model):
    return X if get_tags(model).input_tags.two_d_array else DOCUMENTS


def targets_for(model):
    return LABELS if is_classifier(model) else Y if is_regressor(model) else None


def offered(model):
    """Public methods that the model says it has."""
    return [
        name
        for name in dir(type(model))
        if not name.startswith("_") and name not in ELSEWHERE and not name.endswith("_request")
        and hasattr(model, name) and callable(getattr(model, name))
    ]  # fmt: skip


def call(model, name):
    method = getattr(model, name)
    given = {"X": rows_for(model), "y": targets_for(model), **EXTRA}
    needed = [
        p.name for p in inspect.signature(method).parameters.values()
        if p.default is p.empty and p.kind == p.POSITIONAL_OR_KEYWORD
    ]  # fmt: skip
    return method(**{word: given[word] for word in needed})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "words"), CASES)
def test_what_is_offered_works(name, words):
    model = made(name, words)
    model.fit(rows_for(model), abs(targets_for(model)) if is_regressor(model) else (
        targets_for(model)))  # fmt: skip
    methods = offered(model)
    assert {"predict", "transform"} & set(methods)
    for method in methods:
        assert call(model, method) is not None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model",
    [
        likelier.LinearClassifier("hinge", probability=False),
        likelier.SVC(),
        likelier.BayesianLinearClassifier("hinge", probability=False, **DRAWS),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_stack_takes_scores_where_there_are_no_probabilities(model):
    stack = StackingClassifier([("one", model)], likelier.LinearClassifier(), cv=2)
    assert stack.fit(X, LABELS).stack_method_ == ["decision_function"]
    assert stack.score(X, LABELS) > 0.8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({name for name, _ in CASES} - {"TextFeatures"}))
def test_a_mask_is_missing_values_or_refused(name):
    """Never is a masked value read as if it were there, by `fit` or afterwards."""
    model = made(name, dict(CASES)[name])
    y = targets_for(model)
    rows = np.ma.masked_array(X, np.zeros(X.shape, dtype=bool))
    rows[3, 1] = np.ma.masked
    if get_tags(model).input_tags.allow_nan:
        holes = np.where(rows.mask, np.nan, X)
        method = "predict_proba" if is_classifier(model) else "transform"
        one, two = (getattr(model.fit(each, y), method)(each) for each in (rows, holes))
        np.testing.assert_array_equal(one, two)
        return
    with pytest.raises(ValueError, match="masked|NaN|missing"):
        model.fit(rows, y)


@pytest.mark.parametrize("name", ["LinearClassifier", "LinearRegressor"])
def test_partial_fit_refuses_early_stopping(name):
    model = made(name, {"solver": likelier.SGD(early_stopping=True)})
    with pytest.raises(ValueError, match="early_stopping"):
        model.partial_fit(X, targets_for(model))
