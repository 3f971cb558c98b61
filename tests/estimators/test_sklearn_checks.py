"""scikit-learn's own checks over every public estimator, found by themselves."""

from __future__ import annotations

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import likelier

from .expected_failures import EXPECTED_FAILURES

# Long training says nothing new here, nor do more inducing points than data as small as these have
# unasked, nor the short fits that choose a kernel, nor a program for every number of hidden nodes;
# with all their defaults they are checked as slow tests.
LEARNED = likelier.ARD(length_scales="learned")
FEW = {"max_iter": 40, "n_inducing": 50, "hidden_dim": 3, "kernel": LEARNED}
SHORTER = {"DeepGPClassifier": FEW, "DeepGPRegressor": FEW}
ESTIMATORS = [
    value(**SHORTER.get(name, {}))
    for name in sorted(likelier.__all__)
    if isinstance(value := getattr(likelier, name), type) and issubclass(value, BaseEstimator)
]
# With these words they are other models: they average over the posterior. (MultinomialNB is left
# out: its posterior sums over missing counts of new rows, but cannot learn from such rows.)
VARIANTS = [getattr(likelier, name)(bayesian=True) for name in ("BernoulliNB", "GaussianNB")]
# scikit-learn has no data for what reads documents; test_text_features.py runs the checks that
# need none.
ON_MATRICES = [e for e in ESTIMATORS if get_tags(e).input_tags.two_d_array]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    ON_MATRICES + VARIANTS,
    expected_failed_checks=lambda e: EXPECTED_FAILURES.get(type(e).__name__, {}),
)
def test_sklearn_check(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([getattr(likelier, name)() for name in SHORTER])
def test_sklearn_check_of_defaults(estimator, check):
    check(estimator)


def test_estimators_are_found():
    assert {type(e).__name__ for e in ESTIMATORS} >= {"LinearClassifier", "LinearRegressor"}
    left_out = {type(e).__name__ for e in ESTIMATORS} - {type(e).__name__ for e in ON_MATRICES}
    assert left_out <= {"TextFeatures"}


def test_exceptions_name_estimators_and_reasons():
    names = {type(e).__name__ for e in ESTIMATORS}
    for name, checks in EXPECTED_FAILURES.items():
        assert name in names
        assert all(reason.strip() for reason in checks.values())
