"""What the parts of a posterior must be, so that whatever is loaded can predict."""

from __future__ import annotations

import numpy as np

from likelier.base import Array
from likelier.files.declared import check_array, check_number
from likelier.multilabel.combination import MixtureScaling
from likelier.multilabel.distributions import (
    BernoulliDistribution,
    ColumnDistribution,
    GaussianDistribution,
)
from likelier.multilabel.features import FeatureMap
from likelier.multilabel.logistic import LabelWeights
from likelier.multilabel.variational import MixtureState

POSITIVE = 1e-300  # less is not a positive number to divide by


def check_rates(base_rates: Array, counts: Array, thresholds: Array, n_labels: int) -> None:
    """Raise unless the numbers of the labels are frequencies, weights and log-odds."""
    check_array("base_rates_", base_rates, (n_labels,), low=POSITIVE, high=np.nextafter(1.0, 0.0))
    check_array("label_counts_", counts, (n_labels,), low=0.0)
    check_array("thresholds_", thresholds, (n_labels,))


def check_map(part: FeatureMap, weights: LabelWeights, n_features: int, n_labels: int) -> None:
    """Raise unless a map takes the features, and the weights its output."""
    check_array("centre", part.centre, (n_features if np.size(part.centre) else 0,))
    check_array("column", part.column, (n_features,))
    if not isinstance(part.unit, bool | np.bool_):
        raise ValueError(f"unit must be true or false, and is {part.unit!r}")
    check_number("gamma", part.gamma, 0.0)
    width = n_features
    if np.size(part.landmarks):
        check_array("landmarks", part.landmarks, (None, n_features))
        width = len(part.landmarks)
    elif len(part.landmarks):
        raise ValueError("landmarks have no columns")
    if np.size(part.rotation):
        check_array("rotation", part.rotation, (width, None))
        width = part.rotation.shape[1]
        check_array("shift", part.shift, (width,))
    check_array("coef", weights.coef, (width, n_labels))
    check_array("intercept", weights.intercept, (n_labels,))
    check_array("precision", weights.precision, (width, n_labels), low=POSITIVE)
    check_array("intercept_precision", weights.intercept_precision, (n_labels,), low=POSITIVE)


def check_mixture(
    state: MixtureState, scaling: MixtureScaling, n_features: int, n_labels: int
) -> None:
    """Raise unless a mixture is one of these features and labels."""
    model, params = state.model, state.params
    check_array("sticks", params.sticks, (2, None), low=POSITIVE)
    check_array("concentration", params.concentration, (2,), low=POSITIVE)
    check_number("temperature", model.temperature, POSITIVE, 1.0)
    check_number("step", state.step, 0)
    for scale in (scaling.centre, scaling.scale):
        check_array("scale of the mixture", scale, (n_features if np.size(scale) else 0,))
    K = params.n_components
    _check_columns("features", model.feature_distribution, params.features, (K, n_features))
    _check_columns("labels", model.label_distribution, params.labels, (K, n_labels))
    if isinstance(model.label_distribution, GaussianDistribution):
        raise ValueError("labels of the mixture are real numbers")


def _check_columns(
    name: str, distribution: ColumnDistribution, eta: Array, shape: tuple[int, int]
) -> None:
    """Raise unless natural parameters and their prior are of the shape and range they must have."""
    gaussian = isinstance(distribution, GaussianDistribution)
    n = 4 if gaussian else 2 if isinstance(distribution, BernoulliDistribution) else 1
    check_array(f"prior of the {name}", distribution.prior, (n, shape[1]))
    check_array(f"{name} of the mixture", eta, (n, *shape))
    positive = [0, 2, 3] if gaussian else list(range(n))
    for array in (distribution.prior, eta):
        check_array(f"{name} of the mixture", array[positive], (None,) * array.ndim, low=POSITIVE)
