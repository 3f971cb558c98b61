"""Classifiers whose rows are all of one class: constants, as scikit-learn's trees fit them.

A bootstrap sample may hold nothing else. `one_class_is_constant` goes around a fit, which raises
`OneClassError` where it finds nothing to tell apart; `or_constant` around the methods that predict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from likelier.base import Array, Uncertainty
from likelier.fitting.targets import OneClassError

ANSWERS: dict[str, Callable[[Array, int], Any]] = {
    "predict": np.repeat,
    "predict_proba": lambda classes, n: np.ones((n, 1)),
    "predict_log_proba": lambda classes, n: np.zeros((n, 1)),
    "decision_function": lambda classes, n: np.zeros(n),
    "predict_uncertainty": lambda classes, n: Uncertainty(*np.zeros((3, n))),
}
INPUTS = ("n_features_in_", "feature_names_in_")


@contextmanager
def one_class_is_constant(model: Any) -> Iterator[None]:
    """Fit a constant where the fit inside finds a single class; an earlier constant ends."""
    model.__dict__.pop("constant_", None)
    try:
        yield
    except OneClassError as error:
        store_constant(model, error.classes)


def store_constant(model: Any, classes: Array) -> None:
    """Make a model a constant: nothing is left of an earlier fit."""
    for name in [name for name in vars(model) if name.endswith("_") and name not in INPUTS]:
        if not name.startswith("_"):
            delattr(model, name)
    model.classes_, model.constant_ = classes, True


def or_constant(method: Callable[[Any, Any], Any]) -> Any:
    """Wrap a method of rows: a constant answers by itself."""
    answer = ANSWERS[method.__name__]

    @wraps(method)
    def either(self: Any, X: Any) -> Any:
        if not getattr(self, "constant_", False):
            return method(self, X)
        return answer(self.classes_, self._check_X(X, reset=False).shape[0])

    return either


def refuse_constant(model: Any) -> None:
    """Raise where a constant is asked to go on learning, or for what only a model has."""
    if getattr(model, "constant_", False):
        raise ValueError(
            f"the data that {type(model).__name__} was fitted to hold 1 class, "
            f"{model.classes_.tolist()[0]!r}: fit again with rows of two classes or more"
        )
