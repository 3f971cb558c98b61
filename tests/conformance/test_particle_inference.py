"""What every inference must do, for those that move particles over any energy."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
from scipy import sparse

from likelier import losses
from likelier.base import Info, Posterior
from likelier.engines import LocalEngine
from likelier.kernel_machine.fourier_machine import FourierMachine, draw_frequencies
from likelier.kernel_machine.stein_gaussian import SteinGaussian
from likelier.kernel_machine.svgd import SVGD

INFERENCES = [SVGD, SteinGaussian]
LOSSES = [cls() for cls in losses.LOSSES.values() if cls.task in ("multiclass", "regression")]
every_pair = pytest.mark.parametrize(
    ("kind", "loss"),
    [(kind, loss) for kind in INFERENCES for loss in LOSSES],
    ids=lambda part: getattr(part, "__name__", None) or part.name,
)
N, D, K = 120, 3, 3


def problem(loss, data=np.asarray, linear=False):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    signal = np.sin(2.0 * X[:, 0]) + X[:, 1]
    y = signal + 0.1 * rng.standard_normal(N)
    if loss.coupled:
        y = np.digitize(y, [-0.5, 0.7]).astype(float)
    frequencies = None if linear else draw_frequencies(10, D, rng)
    model = FourierMachine(loss, D, K if loss.coupled else 1, frequencies, 0.8, alpha=0.1)
    return model, LocalEngine(data(X), y, rng.uniform(0.5, 2.0, N), seed=1)


def numbers(posterior):
    """All arrays of a posterior as one vector."""
    arrays = [getattr(posterior, f.name) for f in dataclasses.fields(posterior)]
    return np.concatenate([a.ravel() for a in arrays if isinstance(a, np.ndarray)])


@pytest.mark.parametrize("kind", INFERENCES)
def test_an_inference_is_a_frozen_value(kind):
    default = kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        default.step_size = 1.0
    assert not kind.__subclasses__()
    assert "Cost per update" in kind.__doc__


@every_pair
def test_init_step_posterior(kind, loss):
    model, engine = problem(loss)
    inference = kind(n_particles=3, batch_size=32)
    state = inference.init(model, engine)
    start = inference.posterior(state)
    before = numbers(start)
    state, info = inference.step(state, engine)
    assert isinstance(start, Posterior) and isinstance(info, Info)
    assert isinstance(info.converged, bool)
    assert info.passes == pytest.approx(32 / N)
    twin = copy.deepcopy(state)
    ends = [inference.posterior(inference.step(s, engine)[0]) for s in (state, twin)]
    np.testing.assert_array_equal(numbers(ends[0]), numbers(ends[1]))
    np.testing.assert_array_equal(numbers(start), before)
    assert np.isfinite(numbers(ends[0])).all()
    assert ends[0].scores(np.zeros((5, D))).shape[1:] == (5, model.n_outputs)


@every_pair
@pytest.mark.parametrize("data", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("linear", [False, True], ids=["fourier", "linear"])
def test_steps_lower_the_energy(kind, loss, data, linear):
    model, engine = problem(loss, data, linear)
    inference = kind(n_particles=3, n_updates=60, batch_size=N, step_size=0.1)
    state = inference.init(model, engine)
    objectives = []
    for _ in range(60):
        state, info = inference.step(state, engine)
        objectives.append(info.objective)
    assert info.converged
    assert np.mean(objectives[-5:]) < np.mean(objectives[:5])
