"""A loaded model that predicts without scikit-learn."""

from likelier.predictor.predictor import ConstantPosterior, Predictor

__all__ = ["ConstantPosterior", "Predictor"]
