"""Text and numbers as labels of one model are refused, and nothing of the model is lost."""

import numpy as np
import pytest

import likelier

KINDS = ["LinearClassifier", "GaussianNB", "OnePassClassifier", "BayesianKernelClassifier"]


@pytest.mark.parametrize("text_first", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_labels_of_another_kind_are_refused(name, text_first):
    X = np.random.default_rng(0).normal(size=(60, 3))
    text = np.array(["a", "b", "c"] * 20)
    number = np.array([0, 1, 2] * 20)
    first, second = (text, number) if text_first else (number, text)
    model = getattr(likelier, name)().partial_fit(X, first, classes=np.unique(first))
    before = model.predict(X)
    with pytest.raises(ValueError, match="classes known so far are"):
        model.partial_fit(X, second)
    np.testing.assert_array_equal(model.classes_, np.unique(first))
    np.testing.assert_array_equal(model.predict(X), before)
    model.partial_fit(X, first)


@pytest.mark.parametrize("name", KINDS)
def test_announced_classes_of_another_kind_are_refused(name):
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(ValueError, match="classes known so far are"):
        getattr(likelier, name)().partial_fit(X, np.array(["a", "b"] * 30), classes=[0, 1])


def test_a_factor_of_forgetting_is_a_number():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = likelier.OnePassClassifier().fit(X, np.array([0, 1] * 30))
    with pytest.raises(ValueError, match="factor must be a number"):
        model.forget("a")
