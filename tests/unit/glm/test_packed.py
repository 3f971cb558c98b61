"""Dense rows of mostly zeros are learned without them: the same steps, whoever packs."""

from __future__ import annotations

import numpy as np
import pytest

from likelier import losses
from likelier.engines.local import LocalEngine
from likelier.glm import sgd as module
from likelier.glm.model import LinearModel
from likelier.glm.packed import packed, worth_packing
from likelier.glm.penalty import ElasticNet
from likelier.glm.sgd import AdaptiveSGD


def rows(dtype=np.float64, share=0.2, n_rows=900, d=21):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, d)) * (rng.random((n_rows, d)) < share)
    X[5] = 0.0
    X[6, 3] = -0.0
    X[7, 20] = 1e-310  # its square is zero, it is not
    return X.astype(dtype), rng.integers(0, 4, n_rows).astype(float)


def model(n_outputs=4, loss=None):
    d = 21
    penalty = ElasticNet(np.full(d, 1e-3), np.zeros(d))
    return LinearModel(loss or losses.LogLoss(), d, n_outputs, True, False, penalty)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_packed_rows_are_the_rows(dtype, n_jobs):
    X, y = rows(dtype)
    weight = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    with LocalEngine(X, y, weight, seed=3, n_jobs=n_jobs, block_rows=130) as engine:
        seen = 0
        pairs = zip(engine.blocks(2), packed(engine, 2), strict=True)
        for given, (batch, view) in pairs:
            dense = np.zeros((given.n_rows, 21), dtype)
            for r in range(given.n_rows):
                here = slice(view.indptr[r], view.indptr[r + 1])
                assert (view.data[here] != 0.0).all()
                dense[r, view.indices[here]] = view.data[here]
            np.testing.assert_array_equal(dense, X[given.rows])
            np.testing.assert_array_equal(batch.y, y[given.rows])
            np.testing.assert_array_equal(batch.weight, weight[given.rows])
            seen += given.n_rows
    assert seen == np.count_nonzero(weight)


@pytest.mark.parametrize("loss", [losses.LogLoss(), losses.Softmax(), losses.Hinge()])
def test_a_pass_is_the_same_with_and_without_the_zeros(loss, monkeypatch):
    X, y = rows()
    found = []
    for packs, n_jobs in ((False, 1), (True, 1), (True, 2)):
        monkeypatch.setattr(module, "worth_packing", lambda state, engine, packs=packs: packs)
        with LocalEngine(X, y, seed=3, n_jobs=n_jobs, block_rows=130) as engine:
            inference = AdaptiveSGD(factors=np.array([1.0]), n_jobs=n_jobs)
            state = inference.init(model(loss=loss), engine)
            for _ in range(2):
                state, info = inference.step(state, engine)
            found.append((state.theta(), info.objective))
    for theta, objective in found[1:]:
        np.testing.assert_array_equal(theta, found[0][0])
        assert objective == found[0][1]


def test_what_is_worth_packing():
    def asked(share, n_outputs):
        X, y = rows(share=share)
        with LocalEngine(X, np.minimum(y, n_outputs), seed=3) as engine:
            inference = AdaptiveSGD(factors=np.array([1.0]))
            state = inference.init(model(n_outputs), engine)
            assert not worth_packing(state, engine)  # nothing has been seen
            inference.begin(state, engine.sample(200), engine)
            return worth_packing(state, engine)

    assert asked(0.2, 4)
    assert not asked(0.9, 4)
    assert not asked(0.2, 1)
