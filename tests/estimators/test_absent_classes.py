"""Classes of which rows are missing: those that weigh nothing, and data of a single class."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.ensemble import BaggingClassifier

import likelier

from .test_offered_methods import CASES, made

RNG = np.random.default_rng(0)
X = np.abs(RNG.standard_normal((90, 3)))
LABELS = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [0.4, 1.0])]
CLASSIFIERS = [(name, words) for name, words in CASES if is_classifier(made(name, words))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "words"), CLASSIFIERS)
def test_a_class_whose_rows_weigh_nothing_is_a_class(name, words):
    model = made(name, words)
    weight = (LABELS != "c").astype(float)
    model.fit(X, LABELS, sample_weight=weight)
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    if not words.get("bayesian"):  # whose prior leaves room for one more class
        assert "c" not in model.predict(X)
    if hasattr(model, "decision_function"):
        assert np.isfinite(model.decision_function(X)).all()
    if hasattr(model, "predict_proba"):
        p = model.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        assert p[:, 2].mean() < 0.3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({name for name, _ in CLASSIFIERS}))
def test_balanced_classes_do_not_count_one_whose_rows_weigh_nothing(name):
    model = made(name, dict(CLASSIFIERS)[name])
    if "class_weight" not in model.get_params():
        pytest.skip("it has no weights of classes")
    model.set_params(class_weight="balanced")
    model.fit(X, LABELS, sample_weight=(LABELS != "c").astype(float))
    assert set(model.predict(X)) == {"a", "b"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "words"), CLASSIFIERS)
def test_data_of_one_class_fit_a_constant(name, words, tmp_path):
    """It is saved like any other model, and the next fit of the same one is not a constant."""
    model = made(name, words).fit(X, np.full(len(X), "b"))
    likelier.save(model, tmp_path / "m")
    for each in (model, likelier.load(tmp_path / "m")):
        np.testing.assert_array_equal(each.classes_, ["b"])
        assert (each.predict(X) == "b").all() and each.score(X, np.full(len(X), "b")) == 1.0
        if hasattr(each, "predict_proba"):
            np.testing.assert_array_equal(each.predict_proba(X), np.ones((len(X), 1)))
        if hasattr(each, "decision_function"):
            assert np.isfinite(each.decision_function(X)).all()
        with pytest.raises(ValueError, match="features"):
            each.predict(X[:, :2])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({name for name, _ in CLASSIFIERS}))
def test_a_constant_ends_with_the_next_fit(name):
    model = made(name, dict(CLASSIFIERS)[name]).fit(X, LABELS)
    first = model.predict(X)
    model.fit(X, np.full(len(X), "b"))
    if name in ("LinearClassifier", "BayesianKernelClassifier"):
        with pytest.raises(ValueError, match="hold 1 class, 'b': fit again"):
            model.partial_fit(X, LABELS)
    np.testing.assert_array_equal(model.fit(X, LABELS).predict(X), first)
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({name for name, _ in CLASSIFIERS} - {"DeepGPClassifier"}))
def test_bootstraps_of_one_class_do_not_end_a_bag(name):
    """Weights of a bag leave no row of the second class at times; without them it has none."""
    labels = np.where(np.arange(len(X)) % 10 == 0, "b", "a")
    bag = BaggingClassifier(made(name, dict(CLASSIFIERS)[name]), 3, max_samples=6, random_state=0)
    bag.fit(X, labels)
    np.testing.assert_allclose(bag.predict_proba(X).sum(axis=1), 1.0)
