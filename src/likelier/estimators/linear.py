"""Linear models: any loss, explicit or implicit updates, no learning rate to tune."""

from likelier.estimators.linear_classifier import LinearClassifier
from likelier.estimators.linear_regressor import LinearRegressor
from likelier.estimators.linear_words import UncertifiedError

__all__ = ["LinearClassifier", "LinearRegressor", "UncertifiedError"]
