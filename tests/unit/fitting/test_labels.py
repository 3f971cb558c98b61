"""Labels looked up in a table are the labels found by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.fitting.labels import encode_labels
from likelier.fitting.targets import (
    check_labels,
    class_codes,
    encoded_labels,
    unique_labels,
    whole_labels,
)

LABELS = {
    "int64": np.array([3, -1, 3, 7, -1]),
    "int8 over its whole range": np.array([-128, 127, 0, -128], dtype=np.int8),
    "uint8": np.array([250, 3, 250], dtype=np.uint8),
    "bool": np.array([True, False, True]),
    "float": np.array([-1.0, 1.0, 1.0, -1.0]),
    "far apart": np.array([0, 10**12, 5]),
    "float far apart": np.array([0.0, 1e300, -1e300]),
    "uint64 beyond int64": np.array([2**63 + 5, 2**63 + 4, 2**64 - 1], dtype=np.uint64),
    "uint64 close together": np.array([2**63 + 5, 2**63 + 4, 2**63 + 5], dtype=np.uint64),
    "int64 at its ends": np.array([-(2**63), 2**63 - 1, -(2**63)]),
    "int64 near its end": np.array([2**63 - 1, 2**63 - 5, 2**63 - 1]),
    "one huge float": np.array([1e300, 1e300]),
    "strings": np.array(["b", "a", "b"]),
    "objects": np.array(["b", "a", "b"], dtype=object),
}


@pytest.mark.parametrize("name", LABELS)
def test_classes_and_codes_are_those_of_sorting(name):
    y = LABELS[name]
    classes, codes = np.unique(y, return_inverse=True)
    found = unique_labels(y)
    assert found.dtype == classes.dtype
    np.testing.assert_array_equal(found, classes)
    np.testing.assert_array_equal(class_codes(classes, y), codes)
    before = y.copy()
    both = encoded_labels(y)
    assert both[0].dtype == classes.dtype and both[1].dtype == np.float64
    np.testing.assert_array_equal(both[0], classes)
    np.testing.assert_array_equal(both[1], codes)
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize(
    "y", [np.array([0.5, 1.0]), np.array([np.nan, 1.0]), np.array([])], ids=str
)
def test_other_numbers_are_not_whole(y):
    assert whole_labels(y) is None


def test_unknown_labels_and_continuous_targets_are_errors():
    with pytest.raises(ValueError, match="not one of the classes"):
        class_codes(np.array([0, 1]), np.array([0, 2]))
    with pytest.raises(ValueError, match="continuous"):
        check_labels(np.linspace(0.0, 1.0, 30))
    with pytest.raises(ValueError, match="continuous"):
        check_labels(np.linspace(0.0, 1.0, 5000))
    with pytest.warns(UserWarning, match="unique classes"):
        check_labels(np.arange(1000))
    check_labels(np.arange(3000) % 1000)


def test_models_tell_huge_whole_numbers_apart():
    import likelier

    x = np.linspace(-1.0, 1.0, 40)[:, None]
    y = np.where(x[:, 0] > 0.0, np.uint64(2**63 + 5), np.uint64(2**63 + 4))
    model = likelier.LinearClassifier(random_state=0).fit(x, y)
    np.testing.assert_array_equal(model.classes_, np.unique(y), strict=True)
    np.testing.assert_array_equal(model.predict(x), y, strict=True)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([2**64 - 1, 2**64 - 5, 2**64 - 1], dtype=np.uint64),
        np.array([-128, 127, 3], dtype=np.int8),
        np.array([255, 250], dtype=np.uint8),
        np.array([-(2**63), 4 - 2**63]),
        np.array([0, 5, 5]),
    ],
    ids=str,
)
def test_naive_bayes_tells_whole_numbers_of_any_size_apart(labels):
    classes, codes = encode_labels(labels)
    assert classes.dtype == labels.dtype
    np.testing.assert_array_equal(classes, np.unique(labels))
    np.testing.assert_array_equal(classes[codes], labels)
