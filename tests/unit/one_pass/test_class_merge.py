"""Weights for the classes of several streams: gradients, limits, and shared classes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from likelier.one_pass.class_merge import StreamSummary, _stream_term, merge_class_weights
from likelier.one_pass.initial_batch import fit_softmax

PRIOR = np.array([1.0, 1.0, 1.0, 0.01])


def sample(n=600, K=4, seed=0):
    rng = np.random.default_rng(seed)
    Z = np.column_stack([rng.normal(size=(n, 3)), np.ones(n)])
    scores = Z @ rng.normal(size=(4, K)) * 1.5 + rng.gumbel(size=(n, K))
    return Z, scores.argmax(axis=1)


def stream(Z, codes, own, n_times=1.0):
    """A stream that has converged on these rows, or on ``n_times`` as many, and keeps them all."""
    own = np.asarray(own)
    mine = np.isin(codes, own)
    inside = np.searchsorted(own, codes[mine])
    mean = fit_softmax(Z[mine], inside, np.full(mine.sum(), n_times), PRIOR, len(own))
    importance = np.full(len(codes), n_times)
    return StreamSummary(
        mean, own, 0.1 * n_times * Z.T @ Z, importance.sum(), importance.sum(), Z, codes, importance
    )


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_gradients_match_finite_differences(fraction):
    Z, codes = sample(40)
    codes[np.isin(codes, [0, 2])] = 0
    codes[:3] = 3  # not its own
    codes[codes == 1] = 2
    part = _stream_term(stream(Z, codes, [0, 2], 2.0), 4, 0.7, fraction)
    rng = np.random.default_rng(1)
    for _ in range(3):
        w = rng.normal(size=16)
        error = check_grad(
            lambda p: part.terms(p.reshape(4, 4))[0],
            lambda p: part.terms(p.reshape(4, 4))[1].ravel(),
            w,
        )
        assert error < 1e-4
    up = part.terms(w.reshape(4, 4) + 3.0 * rng.normal(size=(4, 1)))[0]
    assert up == pytest.approx(part.terms(w.reshape(4, 4))[0])  # only differences of scores count


def test_a_sample_of_all_rows_gives_the_weights_of_all_rows():
    Z, codes = sample(4000)
    whole = fit_softmax(Z, codes, np.ones(len(codes)), PRIOR, 4)
    first = np.isin(codes, [1, 2])
    parts = [stream(Z[first], codes[first], [1, 2]), stream(Z[~first], codes[~first], [0, 3])]
    found = merge_class_weights(parts, 4, PRIOR)
    np.testing.assert_allclose(found, whole, atol=0.03)  # half of a standard deviation


def test_streams_of_the_same_classes_get_their_common_weights():
    Z, codes = sample(4000)
    parts = [stream(Z[k::2], codes[k::2], range(4), 1000.0) for k in range(2)]
    found = merge_class_weights(parts, 4, PRIOR)
    middle = 0.5 * (parts[0].mean + parts[1].mean)
    spread = np.abs(parts[0].mean - parts[1].mean).max()
    np.testing.assert_allclose(found, middle - middle.mean(axis=1, keepdims=True), atol=spread)


def test_classes_with_few_rows_in_a_stream_use_their_labels():
    Z, codes = sample(3000)
    test_Z, test_codes = sample(3000)
    rare = np.isin(codes, [0, 3]) & (np.arange(3000) % 50 > 0)
    parts = [stream(Z[~rare], codes[~rare], [1, 2]), stream(Z[rare], codes[rare], [0, 3])]
    score = ((test_Z @ merge_class_weights(parts, 4, PRIOR)).argmax(axis=1) == test_codes).mean()
    whole = fit_softmax(Z, codes, np.ones(3000), PRIOR, 4)
    assert score > ((test_Z @ whole).argmax(axis=1) == test_codes).mean() - 0.005


def test_the_unit_of_weights_is_that_of_the_streams():
    Z, codes = sample(2000)
    first = codes < 2
    found = []
    for unit in (10.0, 1e4):  # far above one: the labels of the sample hardly count
        parts = [
            stream(Z[s], codes[s], own, unit) for s, own in ((first, [0, 1]), (~first, [2, 3]))
        ]
        found.append(merge_class_weights(parts, 4, PRIOR))
    np.testing.assert_allclose(found[0], found[1], atol=0.1)
