"""Deep Gaussian processes: one file for each of the two, this one to import them from."""

from likelier.estimators.deep_gp_classifier import DeepGPClassifier
from likelier.estimators.deep_gp_regressor import DeepGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPRegressor"]
