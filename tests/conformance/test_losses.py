"""What every loss must offer; losses are discovered, so a new one is tested unasked."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from likelier import losses
from likelier.losses import LOSSES, make_loss

ALL = [cls() for cls in LOSSES.values()]
TASKS = {"binary", "multiclass", "regression", "count"}
every_loss = pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)


def draw(loss, n, seed=0):
    """Targets and scores of the loss's own task."""
    rng = np.random.default_rng(seed)
    if loss.coupled:
        return rng.integers(0, 4, n), 2.0 * rng.standard_normal((n, 4))
    y = {
        "binary": lambda: rng.choice([-1.0, 1.0], n),
        "regression": lambda: 2.0 * rng.standard_normal(n),
        "count": lambda: rng.poisson(2.0, n).astype(float),
    }[loss.task]()
    return y, 2.0 * rng.standard_normal(n)


def directions(loss, f):
    """Unit vectors along which the scores are moved: one, or one per class."""
    if not loss.coupled:
        return [np.ones_like(f)]
    return [np.broadcast_to(unit, f.shape) for unit in np.eye(f.shape[1])]


def dot(loss, gradient, direction):
    product = gradient * direction
    return product.sum(axis=1) if loss.coupled else product


# -- what a loss declares ---------------------------------------------------------------------


@every_loss
def test_registry_and_declarations(loss):
    assert LOSSES[loss.name] is type(loss)
    assert make_loss(loss.name) == loss
    assert loss.task in TASKS
    assert loss.coupled == (loss.task == "multiclass")
    assert isinstance(loss.code, int)
    assert type(loss).__doc__
    for flag in ("coupled", "smooth", "probabilistic", "has_prox"):
        assert isinstance(getattr(loss, flag), bool)
    for ability in ("log_expectation", "augmentation"):
        assert hasattr(loss, ability) == getattr(loss, f"has_{ability}")


def test_codes_are_distinct():
    codes = [loss.code for loss in ALL]
    assert len(set(codes)) == len(codes)
    assert len(ALL) == 13


@every_loss
def test_smooth_means_curvature_that_is_not_just_zero(loss):
    """Measured on the slope alone, away from kinks."""
    y, f = draw(loss, 400)
    h = 1e-5
    bends = np.zeros(len(f))
    for step in directions(loss, f):
        change = loss.derivative(y, f + h * step) - loss.derivative(y, f - h * step)
        bends += abs(dot(loss, change, step)) / (2.0 * h)
    bent = (bends > 1e-3) & (bends < 1e3)  # a jump at a kink looks like 1/h
    assert bent.any() == loss.smooth


@every_loss
def test_probabilistic_means_the_link_of_the_best_score_is_the_mean(loss):
    """The score of least expected loss must map to the true probability or mean.

    For a hinge the best score is the sign, for a quantile loss the median: links of such
    scores are no probabilities and no means, and the loss must not claim so.
    """
    if loss.coupled:
        truth = np.array([0.5, 0.3, 0.2])
        y, f = np.arange(3), np.zeros(3)
        for _ in range(4000):
            f = f - 0.5 * truth @ loss.derivative(y, np.tile(f, (3, 1)))
        found = loss.link(f)
        right = found.shape == (3,) and np.allclose(found, truth, atol=1e-3)
    else:
        y, p, mean = {
            "binary": (np.array([-1.0, 1.0]), np.array([0.2, 0.8]), 0.8),
            "regression": (np.array([0.0, 1.0, 9.0]), np.array([0.5, 0.3, 0.2]), 2.1),
            "count": (np.array([0.0, 1.0, 9.0]), np.array([0.5, 0.3, 0.2]), 2.1),
        }[loss.task]
        low, high = -30.0, 30.0
        for _ in range(100):
            f = 0.5 * (low + high)
            low, high = (low, f) if p @ loss.derivative(y, np.full(len(y), f)) > 0.0 else (f, high)
        right = np.isclose(float(loss.link(f)), mean, atol=1e-6)
    assert bool(right) == loss.probabilistic


@pytest.mark.parametrize(
    "loss",
    [loss for loss in ALL if loss.probabilistic and loss.task in ("binary", "multiclass")],
    ids=lambda loss: loss.name,
)
def test_link_of_a_classifier_with_probabilities_is_a_probability(loss):
    f = np.array([[-800.0, 0.0, 800.0], [1.0, 2.0, 3.0]])
    p = loss.link(f)
    assert p.shape == f.shape
    assert ((p >= 0.0) & (p <= 1.0)).all()
    if loss.coupled:
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        # exp(-loss) summed over the classes is one: the likelihood is normalised
        total = sum(np.exp(-loss.value(np.full(2, k), f)) for k in range(3))
    else:
        total = np.exp(-loss.value(1.0, f)) + np.exp(-loss.value(-1.0, f))
    np.testing.assert_allclose(total, 1.0)


# -- derivatives ------------------------------------------------------------------------------


@every_loss
def test_slope_is_the_derivative_of_the_value(loss):
    y, f = draw(loss, 500)
    h = 1e-6
    for step in directions(loss, f):
        numeric = (loss.value(y, f + h * step) - loss.value(y, f - h * step)) / (2.0 * h)
        exact = dot(loss, loss.derivative(y, f), step)
        close = abs(numeric - exact) <= 1e-6 * (1.0 + abs(exact))
        assert close.mean() > 0.99  # a kink between the two points is allowed to disagree
        # and at such a kink the difference quotient lies between the slopes on either side
        low, high = (
            dot(loss, loss.derivative(y, f + side * h * step), step) for side in (-1.0, 1.0)
        )
        assert ((low - 1e-6 <= numeric) & (numeric <= high + 1e-6) | close).all()


@pytest.mark.parametrize(
    "loss", [loss for loss in ALL if not loss.coupled], ids=lambda loss: loss.name
)
def test_curvature_is_the_derivative_of_the_slope(loss):
    y, f = draw(loss, 500)
    h = 1e-6
    low, high = (loss.derivative(y, f + side * h) for side in (-1.0, 1.0))
    numeric, exact = (high - low) / (2.0 * h), loss.curvature(y, f)
    close = abs(numeric - exact) <= 1e-4 * (1.0 + abs(exact))
    assert close.mean() > 0.99
    assert (exact >= 0.0).all()


@every_loss
def test_value_is_finite_and_slope_exact_for_large_scores(loss):
    y, f = draw(loss, 50)
    f = 300.0 * np.sign(f)
    assert np.isfinite(loss.value(y, f)).all()
    assert np.isfinite(loss.derivative(y, f)).all()


# -- the implicit step ------------------------------------------------------------------------


@every_loss
def test_no_step_at_c_zero(loss):
    """An empty row or weight zero: the step ``c g`` is zero and ``g`` stays a finite slope."""
    y, m = draw(loss, 200)
    g = loss.prox(y, m, 0.0)
    assert np.isfinite(g).all()
    np.testing.assert_allclose(g, -loss.derivative(y, m), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(g, loss.prox(y, m, 1e-14), rtol=1e-9, atol=1e-12)


@every_loss
def test_implicit_step_never_exceeds_the_explicit_one(loss):
    y, m = draw(loss, 2000)
    c = 10.0 ** np.random.default_rng(1).uniform(-12, 12, 2000)
    g, explicit = loss.prox(y, m, c), -loss.derivative(y, m)
    if loss.coupled:
        assert (np.linalg.norm(g, axis=1) <= np.linalg.norm(explicit, axis=1) + 1e-12).all()
    else:
        assert (abs(g) <= abs(explicit) * (1.0 + 1e-12)).all()
        assert (g * explicit >= 0.0).all()


@every_loss
def test_implicit_step_lowers_the_loss_and_more_so_for_a_larger_step(loss):
    y, m = draw(loss, 500)
    before = loss.value(y, m)
    for c in (1e-8, 1e-4, 1.0, 1e4, 1e8):
        step = c * loss.prox(y, m, np.full(len(y), c))
        after = loss.value(y, m + step)
        assert np.isfinite(after).all()
        assert (after <= before + 1e-7 * (1.0 + abs(before))).all()
        before = np.minimum(after, before)


@every_loss
def test_shape_of_the_step_is_the_shape_of_the_scores(loss):
    y, m = draw(loss, 7)
    for c in (0.5, np.full(7, 0.5)):
        assert loss.prox(y, m, c).shape == m.shape
    np.testing.assert_array_equal(loss.prox(y, m, 0.5), loss.prox(y, m, np.full(7, 0.5)))
    assert loss.value(y, m).shape == (7,)
    assert loss.derivative(y, m).shape == m.shape


# -- a loss is a value --------------------------------------------------------------------------


@every_loss
def test_copies_are_equal_and_interchangeable(loss):
    copies = [
        clone(loss),
        copy.deepcopy(loss),
        pickle.loads(pickle.dumps(loss)),
        make_loss(json.loads(json.dumps(loss.to_json()))),
        type(loss)(**loss.get_params()),
        loss.set_params(**loss.get_params()),
    ]
    for other in copies:
        assert other == loss
        assert hash(other) == hash(loss)
        assert repr(other) == repr(loss)
    assert all(loss != other for other in ALL if other is not loss)


@every_loss
def test_a_loss_cannot_be_changed(loss):
    for name in [*loss.get_params(), "name", "code"]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(loss, name, 0.5)


@every_loss
def test_parameters_matter_and_are_compared(loss):
    for name, value in loss.get_params().items():
        other = loss.set_params(**{name: 0.5 * value + 0.1})
        assert other != loss
        assert getattr(other, name) == 0.5 * value + 0.1
        y, f = draw(loss, 200)
        assert (other.value(y, f) != loss.value(y, f)).any()
        assert (other.prox(y, f, 0.3) != loss.prox(y, f, 0.3)).any()


@every_loss
def test_json_form_holds_plain_numbers_only(loss):
    """Also when a parameter came out of an array."""
    params = {name: np.float32(value) for name, value in loss.get_params().items()}
    text = json.dumps(loss.set_params(**params).to_json())
    assert make_loss(json.loads(text)) == loss.set_params(**params)


def test_only_coupled_losses_take_one_score_per_class():
    for loss in ALL:
        y, f = draw(loss, 5)
        assert f.ndim == (2 if loss.coupled else 1)
        if loss.coupled:
            with pytest.raises(ValueError, match="at least two scores"):
                loss.value(y[:1], f[:1, :1])


def test_losses_module_is_public():
    import likelier

    assert likelier.losses is losses
