"""Support vector machines: the exact dual, with the words and answers of scikit-learn's."""

from __future__ import annotations

from likelier.estimators.svm_classifier import SVC
from likelier.estimators.svm_regressor import SVR

__all__ = ["SVC", "SVR"]
