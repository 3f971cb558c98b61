"""Laws every loss obeys for all targets, scores and steps hypothesis can think of."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from likelier import losses
from likelier.losses import LOSSES, make_loss

SCALAR = [name for name, cls in LOSSES.items() if not cls.coupled]
COUPLED = [name for name, cls in LOSSES.items() if cls.coupled]
scores = st.floats(-600.0, 600.0)
steps = st.one_of(st.just(0.0), st.floats(-12.0, 12.0).map(lambda e: 10.0**e))
fast = settings(max_examples=150, deadline=None, derandomize=True)


def targets(loss):
    return {
        "binary": st.sampled_from([-1.0, 1.0]),
        "count": st.integers(0, 10_000).map(float),
        "regression": st.floats(-1e6, 1e6),
    }[loss.task]


@pytest.mark.parametrize("name", SCALAR)
@fast
@given(data=st.data())
def test_value_is_convex_and_slope_a_subgradient(name, data):
    loss = make_loss(name)
    y, f, other = data.draw(targets(loss)), data.draw(scores), data.draw(scores)
    value, there, slope = (
        float(v) for v in (loss.value(y, f), loss.value(y, other), loss.derivative(y, f))
    )
    rounding = 1e-12 * (1.0 + abs(value) + abs(there) + abs(slope * (other - f)) + abs(y * f))
    assert there >= value + slope * (other - f) - rounding
    assert float(loss.derivative(y, max(f, other))) >= float(loss.derivative(y, min(f, other)))
    if name != "poisson":
        assert value >= 0.0


@pytest.mark.parametrize("name", SCALAR)
@fast
@given(data=st.data())
def test_score_after_the_step_is_a_non_expansive_function_of_the_score_before(name, data):
    loss = make_loss(name)
    y, c = data.draw(targets(loss)), data.draw(steps)
    low, high = sorted((data.draw(scores), data.draw(scores)))
    moved = np.array([low, high]) + c * loss.prox(y, np.array([low, high]), c)
    assert np.isfinite(moved).all()
    rounding = 1e-13 * (1.0 + abs(y) + abs(low) + abs(high) + abs(moved).max())
    assert -rounding <= moved[1] - moved[0] <= high - low + rounding


@pytest.mark.parametrize("name", SCALAR)
@fast
@given(data=st.data())
def test_larger_steps_go_further(name, data):
    loss = make_loss(name)
    y, m = data.draw(targets(loss)), data.draw(scores)
    c = np.array(sorted((data.draw(steps), data.draw(steps))))
    g = loss.prox(y, m, c)
    rounding = 1e-13 * (1.0 + abs(y) + abs(m) + abs(c * g).max())
    assert abs(c[1] * g[1]) >= abs(c[0] * g[0]) - rounding
    assert abs(g[1]) <= abs(g[0]) * (1.0 + 1e-9) + rounding


@pytest.mark.parametrize("name", COUPLED)
@fast
@given(data=st.data())
def test_coupled_steps_take_from_rivals_what_they_give(name, data):
    loss = make_loss(name)
    m = np.array(data.draw(st.lists(scores, min_size=2, max_size=6)))
    y, c = data.draw(st.integers(0, len(m) - 1)), data.draw(steps)
    g = loss.prox([y], m[None], c)[0]
    assert np.isfinite(g).all()
    assert 0.0 <= g[y] <= 1.0 + 1e-12
    assert (np.delete(g, y) <= 0.0).all()
    assert abs(g.sum()) <= 1e-9
    # more score, more to pay
    rivals = np.delete(np.arange(len(m)), y)
    paid = -g[rivals[np.argsort(m[rivals], kind="stable")]]
    if c > 0.0:
        assert (np.diff(paid) >= -1e-9).all()


@pytest.mark.parametrize("name", COUPLED)
@fast
@given(data=st.data())
def test_a_common_shift_of_all_scores_does_not_matter(name, data):
    loss = make_loss(name)
    m = np.array(data.draw(st.lists(st.floats(-20.0, 20.0), min_size=2, max_size=6)))
    y, shift = data.draw(st.integers(0, len(m) - 1)), data.draw(scores)
    assert loss.value([y], m[None] + shift) == pytest.approx(loss.value([y], m[None]), abs=1e-10)
    if name == "softmax":  # at a tie of the hinge a rounding may change who pays
        for c in (0.0, 1e-3, 10.0):
            np.testing.assert_allclose(
                loss.prox([y], m[None] + shift, c), loss.prox([y], m[None], c), atol=1e-9
            )


@fast
@given(
    tau=st.floats(0.0, 1.0),
    positive=st.floats(0.0, 1e300, exclude_min=True, allow_subnormal=False).filter(
        lambda x: x >= 1e-300
    ),
)
def test_parameters_survive_json_exactly(tau, positive):
    for loss in (
        losses.Quantile(tau=tau),
        losses.Huber(delta=positive),
        losses.EpsilonInsensitive(epsilon=positive),
        losses.SquaredEpsilonInsensitive(epsilon=positive),
    ):
        assert make_loss(json.loads(json.dumps(loss.to_json()))) == loss
