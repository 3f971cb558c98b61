"""A linear fit that fails or is stopped never leaves a mixture of two models."""

from __future__ import annotations

import numpy as np
import pytest

from likelier import LinearClassifier, LinearRegressor

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 5))
z = X @ rng.standard_normal(5)
names = np.array(["no", "yes"])[(z > 0).astype(int)]
other = (z + rng.logistic(size=300) > 0).astype(int) + 7


def known(model):
    return {k: v for k, v in vars(model).items() if k.endswith("_")}


def assert_unchanged(model, old):
    assert known(model).keys() == old.keys()
    assert all(value is old[name] for name, value in known(model).items())


class Source:
    """Blocks of three columns and other labels; a given pass fails at its second block."""

    def __init__(self, error, failing):
        self.error, self.failing, self.passes = error, failing, 0

    def __call__(self):
        self.passes += 1
        for first in range(0, 300, 100):
            if first and self.passes >= self.failing:
                raise self.error
            yield X[first : first + 100, :3], other[first : first + 100]


ERRORS = [OSError("disk"), MemoryError(), FloatingPointError(), RuntimeError(), KeyboardInterrupt()]
every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt()], ids=["disk", "stop"])
@pytest.mark.parametrize("failing", [1, 2, 3, 4])
@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_a_stream_that_fails_on_any_pass(loss, failing, error):
    model = LinearClassifier(loss, random_state=0).fit(X, names)
    old, source = known(model), Source(error, failing)
    with pytest.raises(type(error)):
        model.fit(source)
    if model.n_features_in_ == 5:
        assert_unchanged(model, old)
    else:  # stopped at the keyboard: as far as it has come, and nothing of the old model
        assert isinstance(error, KeyboardInterrupt)
        assert model.coef_.shape == (1, 3)
        np.testing.assert_array_equal(model.classes_, [7, 8])
        assert not model.converged_
        assert set(model.predict(X[:, :3])) <= {7, 8}


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt()], ids=["disk", "stop"])
@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_an_iterator_that_fails_after_some_blocks(blocks, error):
    def rows():
        yield from ((X[k::3, :3], other[k::3]) for k in range(blocks))
        raise error

    model = LinearClassifier().fit(X, names)
    old = known(model)
    with pytest.raises(type(error)):
        model.fit(rows())
    if blocks == 0 or not isinstance(error, KeyboardInterrupt):
        assert_unchanged(model, old)
        return
    whole = LinearClassifier().fit((X[k::3, :3], other[k::3]) for k in range(blocks))
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    np.testing.assert_array_equal(model.classes_, [7, 8])
    assert not hasattr(model, "covariance_") or not model.covariance_.size


def test_an_iterator_of_one_class_that_is_stopped():
    def rows():
        yield X[:, :3], np.zeros(300)
        raise KeyboardInterrupt

    model = LinearClassifier().fit(X, names)
    old = known(model)
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows())
    assert_unchanged(model, old)


@every_error
@pytest.mark.parametrize("step", ["_solve", "_store", "_finish"])
@pytest.mark.parametrize("Model", [LinearClassifier, LinearRegressor])
def test_a_fit_in_memory_that_fails_on_its_way(Model, step, error, monkeypatch):
    def fail(*_, **__):
        raise error

    model = Model().fit(X, other)
    old = known(model)
    monkeypatch.setattr(Model, step, fail)
    with pytest.raises(type(error)):
        model.fit(X[:, :3], other)
    if step == "_finish" and isinstance(error, KeyboardInterrupt):  # the coefficients were there
        assert model.coef_.size == model.n_features_in_ == 3
        assert "noise_" not in known(model)
    else:
        assert_unchanged(model, old)
