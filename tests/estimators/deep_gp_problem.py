"""Data and models that the tests of deep Gaussian processes share.

Few shapes and few minibatches: every new shape is compiled. Rows, inputs and minibatches are
chosen so that tests share programs, with each other and with other files.
"""

from __future__ import annotations

import numpy as np
import pytest

from likelier import DeepGPClassifier, DeepGPRegressor
from likelier.deep_gp import adam as deep_adam

RNG = np.random.default_rng(0)
N, D = 60, 3
X = RNG.uniform(-2.0, 2.0, (N, D)) * (RNG.random((N, D)) < 0.9)
Y = 5.0 + 2.0 * np.sin(2.0 * X[:, 0]) + 0.2 * RNG.standard_normal(N)
LABELS = np.array(["low", "mid", "top"])[np.digitize(Y, [4.0, 6.0])]
TWO = np.where(Y > 5.0, "yes", "no")
WORDS = {
    "n_inducing": 20, "max_iter": 40, "random_state": 0,
    "inference__n_draws": 16, "kernel__length_scales": "learned",
}  # fmt: skip


def regressor(**words):
    return DeepGPRegressor().set_params(**{**WORDS, **words})


def classifier(**words):
    return DeepGPClassifier().set_params(**{**WORDS, **words})


def interrupt(model, after=1, y=Y):
    """Fit, and press Ctrl-C after some calls of the compiled loop."""
    original, calls = deep_adam.DeepAdam.step, []

    def interrupted(self, state, engine):
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(state)
        return original(self, state, engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_adam.DeepAdam, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
