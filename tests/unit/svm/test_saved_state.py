"""States of SMO in a checkpoint: from each of them a solve resumes to the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.files.states import decode, encode
from likelier.fitting.monitor import Monitor
from likelier.kernels import Rbf
from likelier.losses import EpsilonInsensitive, Hinge
from likelier.svm import smo, start
from likelier.svm.model import KernelExpansion, Subset
from likelier.svm.path import solve_path
from likelier.svm.smo import SMO
from likelier.svm.watch import Watch


class Recorded(Watch):
    """Keeps every state as the bytes of a checkpoint, and begins with a given one."""

    def __init__(self, given=None):
        super().__init__(Monitor(), "pairs", single=True)
        self.given, self.states = given, []

    def saved(self):
        return None if self.given is None else decode(self.given)

    def keep(self, make, now=False):
        self.states.append(encode(make(), "state"))


def overlapping(n, d):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, np.where(X[:, 0] + X[:, 1] + 1.5 * rng.standard_normal(n) > 0.8, 1.0, -1.0)


def smooth(n, d):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


def two_clouds(n, d):
    X, y = overlapping(n, d)
    return 0.3 * X + 5.0 * np.sign(X[:, 2:3]), y


@pytest.mark.parametrize(
    ("rows", "size", "kernel", "loss", "C", "cache_bytes", "work"),
    [
        (overlapping, (1200, 100), Rbf(1 / 100), Hinge(), 50.0, 200 << 20, 0.0),
        (overlapping, (500, 250), Rbf(1 / 2500), Hinge(), 1e3, 1 << 18, 0.0),
        (smooth, (500, 8), Rbf(0.1), EpsilonInsensitive(0.01), 1e3, 200 << 20, 3e6),
        (two_clouds, (600, 40), Rbf(0.1), Hinge(), 1e4, 200 << 20, 3e5),
        (overlapping, (200, 3), Rbf(0.3), Hinge(), 1e4, 200 << 20, 1e5),
    ],
    ids=["from easier problems", "little memory", "many free", "rounding", "few rows"],
)
def test_a_solve_resumes_to_the_same_bits(
    rows, size, kernel, loss, C, cache_bytes, work, monkeypatch
):
    monkeypatch.setattr(smo, "MIN_WORK_SAVED", work)
    monkeypatch.setattr(smo, "WORK_PER_REFILL", 0.0)
    monkeypatch.setattr("likelier.svm.path.solve_whole", lambda *parts: None)
    monkeypatch.setattr(smo, "MIN_BURST", 100)
    sampling = {"MIN_ROWS": 1200, "SAMPLE": 300, "DIVISORS": (10.0,), "MIN_SAMPLE_FRACTION": 0.0,
                "MIN_BOUND_FRACTION": 0.0}  # fmt: skip
    for name, value in sampling.items():
        monkeypatch.setattr(start, name, value)
    X, y = rows(*size)
    model, subset = KernelExpansion(kernel, loss, C), Subset(kernel.prepare(X))
    whole = Recorded()
    (found,) = solve_path(SMO(cache_bytes=cache_bytes, watch=whole), [model], subset, y)
    assert whole.states
    chosen = np.unique(np.linspace(0, len(whole.states) - 1, 3).astype(int))
    for number in chosen:
        again = Recorded(whole.states[number])
        (resumed,) = solve_path(SMO(cache_bytes=cache_bytes, watch=again), [model], subset, y)
        np.testing.assert_array_equal(resumed.beta, found.beta)
        assert resumed.solution.__dict__ | {"beta": 0} == found.solution.__dict__ | {"beta": 0}
        assert again.states == whole.states[number + 1 :]
    if len(X) == 1200:
        assert any(decode(state).later for state in whole.states)


def test_only_a_single_problem_keeps_states(monkeypatch):
    monkeypatch.setattr(smo, "MIN_WORK_SAVED", 0.0)
    X, y = overlapping(400, 3)
    model, rows = KernelExpansion(Rbf(0.3), Hinge(), 1.0), Subset(Rbf(0.3).prepare(X))
    several = Recorded()
    several.single = False
    solve_path(SMO(watch=several), [model], rows, y)
    assert not several.states
