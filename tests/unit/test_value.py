"""Values as parameters: checked when made, reached inside by `set_params`, found by plain names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval

from likelier.fitting.parameters import ValueParameters
from likelier.value import Value, flag, integer, make_value, number, one_of


@dataclass(frozen=True)
class Steps(Value):
    kind: ClassVar[str] = "steps"
    name: ClassVar[str] = "steps"
    rate: float | str = number("auto", "(0, 1]", "auto")
    size: int | None = integer(None, "[1, inf)", None)
    rule: str = one_of("adam", "sgd")
    shuffle: bool = flag(True)


def make_steps(steps: Any) -> Steps:
    return make_value(steps, Steps, {"steps": Steps, "slow": lambda: Steps(0.01)})


class Model(ValueParameters, BaseEstimator):
    _values: ClassVar[Mapping[str, Any]] = {"steps": make_steps}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "alpha": [Interval(Real, 0, 1, closed="both")]
    }

    def __init__(self, alpha=0.5, steps="steps"):
        self.alpha = alpha
        self.steps = steps


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (
            {"rate": 0.0},
            ValueError,
            r"steps\.rate must be 'auto' or a number in \(0, 1\], got 0\.0",
        ),
        ({"rate": 1.5}, ValueError, r"steps\.rate"),
        ({"rate": np.nan}, ValueError, r"steps\.rate"),
        ({"rate": "fast"}, ValueError, r"steps\.rate must be 'auto' or"),
        ({"rate": True}, TypeError, r"steps\.rate"),
        ({"rate": None}, TypeError, r"steps\.rate"),
        ({"size": 0}, ValueError, r"steps\.size must be None or an integer in \[1, inf\), got 0"),
        ({"size": 2.0}, TypeError, r"steps\.size"),
        ({"size": "many"}, TypeError, r"steps\.size"),
        ({"rule": "adamw"}, ValueError, r"steps\.rule must be one of \['adam', 'sgd'\]"),
        ({"shuffle": 1}, TypeError, r"steps\.shuffle must be True or False"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_may_be(params, error, message):
    with pytest.raises(error, match=message):
        Steps(**params)
    with pytest.raises(error, match=message):
        Model().set_params(**{f"steps__{name}": value for name, value in params.items()})


@pytest.mark.parametrize("params", [{"rate": 1}, {"rate": np.float32(0.5)}, {"size": np.int64(3)}])
def test_ends_of_intervals_and_numpy_numbers_are_valid(params):
    steps = Steps(**params)
    assert steps.get_params() == {**Steps().get_params(), **params}
    assert Steps.from_json(steps.to_json()) == steps


def test_a_value_is_shown_compared_and_written_by_its_fields():
    assert repr(Steps(0.5)) == "Steps(rate=0.5, size=None, rule='adam', shuffle=True)"
    assert Steps(0.5) == Steps().set_params(rate=0.5) != Steps()
    assert Steps.from_json(json.loads(json.dumps(Steps(0.5).to_json()))) == Steps(0.5)
    with pytest.raises(ValueError, match="steps 'steps' has no parameter 'ratio'; it has"):
        Steps().set_params(ratio=1)


def test_parameters_inside_of_a_value_are_parameters_of_the_estimator():
    shared = Steps()
    one, two = Model(steps=shared), Model(steps=shared)
    one.set_params(steps__rate=0.5, alpha=0.1)
    assert (one.alpha, one.steps, two.steps) == (0.1, Steps(0.5), shared)
    assert one.get_params()["steps__rate"] == 0.5
    assert clone(one).get_params() == one.get_params()
    assert "rate=0.5" in repr(one)


def test_a_plain_name_stands_for_its_value():
    model = Model().set_params(steps__size=3)
    assert model.steps == Steps(size=3)
    model.set_params(steps="slow", steps__size=3)
    assert model.steps == Steps(0.01, 3)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"steps": "quick"}, ValueError, r"steps='quick' is not known; choose one of \['slow'"),
        ({"steps": 3}, TypeError, "steps must be a name or a Steps, got 3"),
        ({"steps": Steps}, TypeError, "steps must be a name or a Steps"),
        ({"alpha": 2.0}, ValueError, "'alpha' parameter of Model must be"),
    ],
)
def test_an_estimator_checks_values_beside_its_other_parameters(params, error, message):
    with pytest.raises(error, match=message):
        Model(**params)._validate_params()
    with pytest.raises(ValueError, match="Invalid parameter"):
        Model().set_params(step__rate=0.5)
