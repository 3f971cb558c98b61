"""From the scores of a classifier to probabilities of its classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from likelier.base import Array, Loss, Uncertainty
from likelier.calibration import fit_sign_preserving, fit_temperature, restore
from likelier.losses import make_loss
from likelier.predictive import Categorical

SMALLEST = 1e-15  # probability that is given to a class
ENOUGH = 100  # rows of both of two classes that a calibration wants


def has_probabilities(model: Any) -> bool:
    """Whether scores of a linear model can be made probabilities; before a fit, whether they will.

    Raises an AttributeError that says why not, for methods that are offered only if they are.
    """
    loss = make_loss(model.loss)
    # a fit that was interrupted has no calibration
    known = getattr(model, "calibration_", {}) if hasattr(model, "coef_") else model.probability
    if loss.probabilistic or known:
        return True
    raise AttributeError(
        f"loss={loss.name!r} has no probabilities of its own, and there is no calibration: the "
        "model was fitted with probability=False, on too few rows to calibrate it, or interrupted"
    )


def fit_calibration(scores: Array, codes: Array, weight: Array | None) -> dict[str, Any]:
    """Calibration of scores (one column for two classes), as plain arrays; empty without rows."""
    if not len(scores):
        return {}
    if scores.shape[1] == 1:
        return fit_sign_preserving(scores[:, 0], codes, weight).to_arrays()
    if scores.shape[1] == 2:  # a coupled loss with two classes: only the difference matters
        return fit_sign_preserving(scores[:, 1] - scores[:, 0], codes, weight).to_arrays()
    return fit_temperature(scores, codes, weight).to_arrays()


def class_probabilities(loss: Loss, scores: Array, calibration: dict[str, Any]) -> Array:
    """Probability of every class; their order is always that of the scores."""
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim == 1:  # two classes, one score
        positive = restore(calibration).probabilities(scores) if calibration else expit(scores)
        return np.stack([1.0 - positive, positive], axis=1)
    if calibration:
        return restore(calibration).probabilities(scores)
    if loss.coupled:
        return np.asarray(loss.link(scores))
    return _one_vs_rest(scores)


def never_certain(probabilities: Array) -> Array:
    """Probabilities of which none is exactly 0 or 1: no finite sample makes a class impossible."""
    p = np.maximum(probabilities, SMALLEST)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def split_entropy(probabilities: Array, epistemic: Array) -> Uncertainty:
    """Entropy of predicted classes, at most all of it epistemic."""
    total = Categorical(probabilities[:, None]).uncertainty().total
    epistemic = np.clip(epistemic, 0.0, total)
    return Uncertainty(total, total - epistemic, epistemic)


def _one_vs_rest(scores: Array) -> Array:
    """Normalised sigmoids; where all underflow, or round to the same, the scores decide."""
    p = expit(scores)
    total = p.sum(axis=1, keepdims=True)
    lost = (total[:, 0] == 0.0) | (p.argmax(axis=1) != scores.argmax(axis=1))
    p[lost] = np.exp(scores[lost] - scores[lost].max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))
