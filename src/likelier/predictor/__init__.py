"""A loaded model that predicts without scikit-learn."""

from likelier.predictor.predictor import ConstantPosterior, Predictions, Predictor

__all__ = ["ConstantPosterior", "Predictions", "Predictor"]
