"""Losses: values at points one can check by hand, conventions at kinks, envelopes, errors."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn._loss import _loss as sklearn_losses
from sklearn.linear_model import _sgd_fast
from sklearn.metrics import hinge_loss, log_loss, mean_pinball_loss

from likelier import losses
from likelier.base import Loss
from likelier.losses import compiled, make_loss


@pytest.mark.parametrize(
    ("loss", "y", "f", "value", "slope", "curvature"),
    [
        (losses.LogLoss(), 1.0, 0.0, np.log(2.0), -0.5, 0.25),
        (losses.LogLoss(), -1.0, 800.0, 800.0, 1.0, 0.0),
        (losses.Hinge(), 1.0, 0.25, 0.75, -1.0, 0.0),
        (losses.Hinge(), -1.0, -3.0, 0.0, 0.0, 0.0),
        (losses.SquaredHinge(), 1.0, 0.5, 0.25, -1.0, 2.0),
        (losses.ModifiedHuber(), 1.0, 0.5, 0.25, -1.0, 2.0),
        (losses.ModifiedHuber(), 1.0, -2.0, 8.0, -4.0, 0.0),
        (losses.SquaredError(), 3.0, 1.0, 2.0, -2.0, 1.0),
        (losses.Squared(), 3.0, 1.0, 4.0, -4.0, 2.0),
        (losses.Huber(delta=1.0), 3.0, 1.0, 1.5, -1.0, 0.0),
        (losses.Huber(delta=1.0), 3.0, 2.5, 0.125, -0.5, 1.0),
        (losses.EpsilonInsensitive(epsilon=0.5), 3.0, 1.0, 1.5, -1.0, 0.0),
        (losses.SquaredEpsilonInsensitive(epsilon=0.5), 3.0, 1.0, 2.25, -3.0, 2.0),
        (losses.Quantile(tau=0.9), 3.0, 1.0, 1.8, -0.9, 0.0),
        (losses.Quantile(tau=0.9), 1.0, 3.0, 0.2, 0.1, 0.0),
        (losses.Poisson(), 2.0, 0.0, 1.0, -1.0, 1.0),
    ],
    ids=repr,
)
def test_by_hand(loss, y, f, value, slope, curvature):
    assert loss.value(y, f) == pytest.approx(value)
    assert loss.derivative(y, f) == pytest.approx(slope)
    assert loss.curvature(y, f) == pytest.approx(curvature)


@pytest.mark.parametrize(
    ("loss", "y", "f"),
    [
        (losses.Hinge(), 1.0, 1.0),
        (losses.Hinge(), -1.0, -1.0),
        (losses.SquaredHinge(), 1.0, 1.0),
        (losses.EpsilonInsensitive(epsilon=0.5), 2.0, 1.5),
        (losses.EpsilonInsensitive(epsilon=0.0), 2.0, 2.0),
        (losses.Quantile(tau=0.2), 2.0, 2.0),
    ],
    ids=repr,
)
def test_slope_at_a_kink_is_zero_where_zero_is_a_subgradient(loss, y, f):
    assert loss.derivative(y, f) == 0.0
    for c in (0.0, 1e-12, 1.0, 1e12):
        assert loss.prox(y, f, c) == 0.0


def test_tie_at_the_margin_is_the_end_of_a_step():
    """Just below the margin the hinge step ends exactly on it, for any step that reaches it."""
    m = 1.0 - 2.0**-20
    for c in (2.0**-19, 1.0, 1e12):
        g = float(losses.Hinge().prox(1.0, m, c))
        assert m + c * g == pytest.approx(1.0, abs=1e-15)
        assert 0.0 < g < 1.0


def test_multiclass_hinge_at_a_tie_of_runners_up():
    loss, f = losses.MulticlassHinge(), np.array([[0.0, 2.0, 2.0]])
    assert loss.value([0], f) == pytest.approx(3.0)
    np.testing.assert_array_equal(loss.derivative([0], f), [[-1.0, 1.0, 0.0]])  # the first pays
    np.testing.assert_allclose(loss.prox([0], f, 1e-3), [[1.0, -0.5, -0.5]])  # both pay
    np.testing.assert_array_equal(loss.derivative([1], [[0.0, 1.0]]), [[0.0, 0.0]])  # on the margin


# -- against scikit-learn -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (losses.Hinge(), _sgd_fast.Hinge(1.0)),
        (losses.SquaredHinge(), _sgd_fast.SquaredHinge(1.0)),
        (losses.ModifiedHuber(), _sgd_fast.ModifiedHuber()),
        (losses.EpsilonInsensitive(epsilon=0.3), _sgd_fast.EpsilonInsensitive(0.3)),
        (losses.SquaredEpsilonInsensitive(epsilon=0.3), _sgd_fast.SquaredEpsilonInsensitive(0.3)),
        (losses.SquaredError(), sklearn_losses.CyHalfSquaredError()),
        (losses.Huber(delta=0.7), sklearn_losses.CyHuberLoss(0.7)),
        (losses.Quantile(tau=0.8), sklearn_losses.CyPinballLoss(0.8)),
        (losses.Poisson(), sklearn_losses.CyHalfPoissonLoss()),
        (losses.LogLoss(), sklearn_losses.CyHalfBinomialLoss()),
    ],
    ids=lambda part: type(part).__name__,
)
def test_scalar_losses_are_those_of_scikit_learn(ours, theirs):
    rng = np.random.default_rng(0)
    f = 3.0 * rng.standard_normal(500)
    y = {
        "binary": rng.choice([-1.0, 1.0], 500),
        "regression": 3.0 * rng.standard_normal(500),
        "count": rng.poisson(2.0, 500).astype(float),
    }[ours.task]
    if isinstance(theirs, _sgd_fast.Classification | _sgd_fast.Regression):
        value = [theirs.py_loss(fi, yi) for fi, yi in zip(f, y, strict=True)]
        slope = [theirs.py_dloss(fi, yi) for fi, yi in zip(f, y, strict=True)]
    else:
        target = (y + 1.0) / 2.0 if ours.name == "log_loss" else y
        value, slope = np.empty(500), np.empty(500)
        theirs.loss_gradient(target, f, None, value, slope, 1)
    np.testing.assert_allclose(ours.value(y, f), value, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ours.derivative(y, f), slope, rtol=1e-12, atol=1e-14)


def test_softmax_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    f, y = 5.0 * rng.standard_normal((300, 4)), rng.integers(0, 4, 300)
    value, slope = np.empty(300), np.empty((300, 4))
    sklearn_losses.CyHalfMultinomialLoss().loss_gradient(y.astype(float), f, None, value, slope, 1)
    np.testing.assert_allclose(losses.Softmax().value(y, f), value, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(losses.Softmax().derivative(y, f), slope, rtol=1e-10, atol=1e-15)


def test_means_are_the_metrics_of_scikit_learn():
    rng = np.random.default_rng(2)
    f, y = 2.0 * rng.standard_normal(400), rng.choice([-1.0, 1.0], 400)
    F, k = rng.standard_normal((400, 3)), rng.integers(0, 3, 400)
    assert losses.Hinge().value(y, f).mean() == pytest.approx(hinge_loss(y, f))
    assert losses.MulticlassHinge().value(k, F).mean() == pytest.approx(hinge_loss(k, F))
    assert losses.LogLoss().value(y, f).mean() == pytest.approx(
        log_loss(y, losses.LogLoss().link(f))
    )
    assert losses.Softmax().value(k, F).mean() == pytest.approx(
        log_loss(k, losses.Softmax().link(F))
    )
    assert losses.Quantile(tau=0.3).value(y, f).mean() == pytest.approx(
        mean_pinball_loss(y, f, alpha=0.3)
    )


# -- envelopes ------------------------------------------------------------------------------


ENVELOPES = [
    losses.LogLoss(),
    losses.Hinge(),
    losses.SquaredHinge(),
    losses.ModifiedHuber(),
    losses.Huber(),
    losses.EpsilonInsensitive(),
    losses.SquaredEpsilonInsensitive(),
    losses.Quantile(tau=0.9),
    losses.Quantile(tau=0.5),
    losses.Poisson(),
]


def envelope(loss, y, f, width):
    rows = zip(*np.broadcast_arrays(y, f), strict=True)
    return np.array(
        [compiled.loss_envelope(loss.code, loss.parameters, a, b, width) for a, b in rows]
    ).T


@pytest.mark.parametrize("loss", ENVELOPES, ids=repr)
def test_envelope_is_the_least_of_loss_plus_distance(loss):
    """Brute force over a fine grid of scores, which can only be a little too high."""
    rng = np.random.default_rng(3)
    y = rng.choice([-1.0, 1.0], 40)
    f, width = rng.uniform(-3.0, 3.0, 40), 0.2
    grid = np.linspace(-6.0, 6.0, 60_001)
    brute = [(loss.value(a, grid) + (grid - b) ** 2 / (2 * width)).min() for a, b in zip(y, f)]  # noqa: B905
    value, slope, _ = envelope(loss, y, f, width)
    np.testing.assert_allclose(value, brute, atol=1e-6)
    assert (value <= np.array(brute) + 1e-12).all()
    # below the loss, by at most half the width times the squared slope
    gap = loss.value(y, f) - value
    assert (gap >= -1e-12).all()
    assert (gap <= width * loss.derivative(y, f) ** 2 / 2.0 + 1e-12).all()
    h = 1e-6
    up, down = envelope(loss, y, f + h, width)[0], envelope(loss, y, f - h, width)[0]
    np.testing.assert_allclose(slope, (up - down) / (2 * h), atol=1e-6)


@pytest.mark.parametrize("loss", ENVELOPES, ids=repr)
def test_curvature_of_an_envelope_is_the_derivative_of_its_slope(loss):
    rng = np.random.default_rng(4)
    y, f, h, width = rng.choice([-1.0, 1.0], 400), rng.uniform(-3.0, 3.0, 400), 1e-6, 0.3
    low, high = (envelope(loss, y, f + side * h, width) for side in (-1.0, 1.0))
    _, _, curvature = envelope(loss, y, f, width)
    smooth = abs(low[2] - high[2]) < 1e-3  # a kink of the slope between them has no curvature
    assert smooth.mean() > 0.95
    numeric = (high[1] - low[1]) / (2.0 * h)
    np.testing.assert_allclose(curvature[smooth], numeric[smooth], atol=1e-4)


def test_envelope_of_width_zero_is_the_loss():
    loss, y, f = losses.Hinge(), np.array([1.0, -1.0]), np.array([0.2, 0.4])
    value, slope, curvature = envelope(loss, y, f, 0.0)
    np.testing.assert_array_equal(value, loss.value(y, f))
    np.testing.assert_array_equal(slope, loss.derivative(y, f))
    np.testing.assert_array_equal(curvature, loss.curvature(y, f))


# -- shapes and errors ----------------------------------------------------------------------


def test_arrays_broadcast_and_keep_their_shape():
    loss = losses.SquaredError()
    f = np.arange(6.0).reshape(2, 3)
    assert loss.value(1.0, f).shape == (2, 3)
    assert loss.prox(np.ones((2, 1)), f, np.array([0.0, 1.0, 2.0])).shape == (2, 3)
    assert loss.value(1.0, 2.0).shape == ()
    assert loss.value(np.empty(0), np.empty(0)).shape == (0,)
    np.testing.assert_array_equal(loss.value([1], np.float32([3.0])), [2.0])


def test_scores_are_never_written_to():
    f = np.arange(3.0)
    f.flags.writeable = False
    losses.LogLoss().prox(np.ones(3), f, f)
    losses.Softmax().prox([1], f[None], 0.5)
    np.testing.assert_array_equal(f, [0.0, 1.0, 2.0])


@pytest.mark.parametrize("c", [-1e-300, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("name", sorted(losses.LOSSES))
def test_a_step_that_is_not_a_step_is_an_error(name, c):
    loss = make_loss(name)
    m = np.zeros((1, 3)) if loss.coupled else np.zeros(1)
    with pytest.raises(ValueError, match="c must be finite and >= 0"):
        loss.prox(np.ones(1, dtype=int), m, c)


@pytest.mark.parametrize("y", [-1, 3, 0.5, np.nan])
def test_coupled_targets_must_be_class_numbers(y):
    for loss in (losses.Softmax(), losses.MulticlassHinge()):
        with pytest.raises(ValueError, match=r"y in 0\.\.K-1"):
            loss.value([y], np.zeros((1, 3)))


def test_coupled_losses_need_two_scores():
    with pytest.raises(ValueError, match="at least two scores"):
        losses.Softmax().value([0], np.zeros((1, 1)))


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: make_loss("logloss"), ValueError, "loss='logloss' is not known"),
        (lambda: make_loss({"tau": 0.5}), ValueError, "loss=None is not known"),
        (lambda: make_loss({"name": ["hinge"]}), ValueError, "is not known"),
        (lambda: make_loss(3), TypeError, "loss must be a name"),
        (lambda: make_loss(losses.Hinge), TypeError, "loss must be a name"),
        (lambda: make_loss({"name": "hinge", "tau": 0.5}), ValueError, "no parameter 'tau'"),
        (lambda: losses.Quantile(tau=1.5), ValueError, r"loss\.tau must be a number in \[0, 1\]"),
        (
            lambda: losses.Quantile(tau=float("nan")),
            ValueError,
            r"loss\.tau must be a number in \[0, 1\]",
        ),
        (lambda: losses.Quantile(tau="0.5"), TypeError, r"loss\.tau must be a number in \[0, 1\]"),
        (lambda: losses.Quantile(tau=True), TypeError, r"loss\.tau must be a number in \[0, 1\]"),
        (lambda: losses.Huber(delta=0.0), ValueError, r"loss\.delta must be"),
        (lambda: losses.EpsilonInsensitive(epsilon=-0.1), ValueError, "epsilon"),
        (lambda: losses.SquaredEpsilonInsensitive(epsilon=np.inf), ValueError, "epsilon"),
        (lambda: losses.Huber().set_params(tau=1.0), ValueError, r"no parameter 'tau'.*delta"),
        (lambda: losses.Huber().set_params(delta=-1.0), ValueError, "delta"),
    ],
)
def test_wrong_names_and_parameters_are_named(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_make_loss_takes_a_name_a_loss_or_the_plain_form():
    loss = losses.Quantile(tau=0.9)
    assert make_loss(loss) is loss
    assert make_loss("quantile") == losses.Quantile()
    assert make_loss({"name": "quantile", "tau": 0.9}) == loss
    plain = loss.to_json()
    assert make_loss(json.loads(json.dumps(plain))) == loss
    assert plain == {"name": "quantile", "tau": 0.9}  # reading leaves it as it was


def test_set_params_leaves_the_loss_itself_alone():
    loss = losses.Huber(delta=2.0)
    assert loss.set_params(delta=3.0) == losses.Huber(delta=3.0)
    assert loss.delta == 2.0
    assert loss.set_params() == loss


def test_unknown_codes_are_not_numbers():
    """A compiled loop that is handed a wrong code must not go on with zeros."""
    p = np.zeros(1)
    for function, args in (
        (compiled.loss_value, (1.0, 0.0)),
        (compiled.loss_derivative, (1.0, 0.0)),
        (compiled.loss_prox, (1.0, 0.0, 1.0)),
    ):
        assert np.isnan(function(99, p, *args))


def test_importing_and_using_losses_loads_no_optional_package():
    code = (
        "import sys; from likelier import losses; "
        "losses.LogLoss().prox(1.0, 0.0, 1.0); losses.Softmax().prox([0], [[0.0, 1.0]], 1.0); "
        "bad = {'jax', 'dask', 'pyspark', 'matplotlib', 'torch'} & set(sys.modules); "
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", sorted(losses.LOSSES))
def test_scores_that_overflow_never_raise_or_hang(name):
    """What comes out may be NaN or infinite, which whoever runs the loop can see."""
    loss = make_loss(name)
    far = [np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0]
    m = np.array(list(itertools.product(far, repeat=3))) if loss.coupled else np.array(far)
    for c in (0.0, 1e-12, 1.0, 1e12):
        assert loss.prox(np.ones(len(m), dtype=int), m, c).shape == m.shape


def test_base_class_cannot_be_used_alone():
    with pytest.raises(TypeError, match="abstract"):
        Loss()
