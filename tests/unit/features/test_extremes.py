"""Feature maps at extremes: overflowing units, and invalid parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import FourierFeatures, NystroemFeatures
from likelier.kernels import gamma_from_data

X = np.random.default_rng(0).normal(size=(150, 3))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("rule", ["scale", "median"])
@pytest.mark.parametrize(("scale", "why"), [(1e-200, "vanish"), (1e200, "overflow")])
def test_a_scale_that_cannot_be_computed_names_the_rows(kind, rule, scale, why):
    with pytest.raises(ValueError, match=f"cannot be computed from it.* squares {why}"):
        FourierFeatures(8, gamma=rule).fit(kind(scale * X))


@pytest.mark.parametrize("rule", ["scale", "median"])
def test_constant_rows_still_give_one(rule):
    assert gamma_from_data(rule, np.full((4, 2), 1e-200)) == 1.0
    assert gamma_from_data(rule, np.zeros((4, 2))) == 1.0


@pytest.mark.parametrize("n_rows", [5, 150])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_angles_that_overflow_are_refused(n_rows, kind):
    features = FourierFeatures(8, gamma=1e300, random_state=0)
    with pytest.raises(ValueError, match="X holds numbers up to .* overflow"):
        features.fit_transform(kind(1e300 * X[:n_rows]))


def test_frequencies_that_overflow_name_gamma():
    with pytest.raises(ValueError, match="gamma is so large .* float32"):
        FourierFeatures(8, gamma=1e300).fit(X.astype(np.float32))


def test_a_kernel_too_narrow_for_single_precision_is_refused():
    with pytest.raises(ValueError, match="gamma=.* too large for rows in float32"):
        NystroemFeatures(8).fit((1e-20 * X).astype(np.float32))


def test_parameters_of_the_wrong_type_are_refused():
    with pytest.raises(TypeError, match="paired must be True or False, got 'foo'"):
        FourierFeatures(paired="foo").fit(X)
    for kind in (FourierFeatures, NystroemFeatures):
        with pytest.raises(TypeError, match="n_components must be .* got True"):
            kind(True).fit(X)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "leverage"])
def test_landmarks_are_the_same_of_sparse_rows(landmarks):
    rows = np.where(X > 0.5, X, 0.0)
    dense, thin = (
        NystroemFeatures(20, landmarks=landmarks, gamma=0.5, random_state=0).fit(kind(rows))
        for kind in (np.asarray, sparse.csr_matrix)
    )
    np.testing.assert_array_equal(thin.landmark_indices_, dense.landmark_indices_)
