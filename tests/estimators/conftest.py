"""Fitted models that several files of tests look at; none of them changes one."""

from __future__ import annotations

import pytest

from .deep_gp_problem import LABELS, TWO, X, Y, classifier, regressor


@pytest.fixture(scope="session")
def fitted():
    return regressor(max_iter=400).fit(X, Y)


@pytest.fixture(scope="session")
def of_two():
    return classifier(max_iter=200).fit(X, TWO)


@pytest.fixture(scope="session")
def of_three():
    return classifier(max_iter=200).fit(X, LABELS)
