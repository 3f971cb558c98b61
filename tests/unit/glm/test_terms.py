"""Sums over the rows of a block against plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from tests.unit.glm.test_sgd_loops import ALL, draw, targets

from likelier.glm.loops.terms import coupled_terms, scalar_terms, sparse_gram, values_along
from likelier.loops.rows import as_rows

NO_WEIGHT = np.empty(0)
scalar = pytest.mark.parametrize(
    "loss", [loss for loss in ALL if not loss.coupled], ids=lambda loss: loss.name
)
coupled = pytest.mark.parametrize(
    "loss", [loss for loss in ALL if loss.coupled], ids=lambda loss: loss.name
)


def scored(loss):
    X, y, weight, K = draw(loss)
    rng = np.random.default_rng(5)
    return y, weight, X @ rng.standard_normal((X.shape[1], K)), K


@scalar
@pytest.mark.parametrize("weighted", [True, False])
def test_scalar_terms(loss, weighted):
    y, weight, scores, K = scored(loss)
    omega = weight if weighted else np.ones_like(weight)
    derivative, curvature = np.empty_like(scores), np.empty_like(scores)
    total = scalar_terms(
        loss.code, loss.parameters, loss.task == "binary", 0.0, y,
        weight if weighted else NO_WEIGHT, scores, 2, derivative, curvature,
    )  # fmt: skip
    t = np.stack([targets(loss, v, K) for v in y])
    np.testing.assert_allclose(total, omega @ loss.value(t, scores))
    np.testing.assert_allclose(derivative, omega[:, None] * loss.derivative(t, scores))
    np.testing.assert_allclose(curvature, omega[:, None] * loss.curvature(t, scores))


@scalar
def test_envelope_is_the_minimum_over_nearby_scores(loss):
    """``min_u loss(u) + (u - f)^2 / (2 width)``, by brute force over a fine grid."""
    y, _, scores, K = scored(loss)
    y, scores, width = y[:10], np.ascontiguousarray(scores[:10]), 0.2
    derivative, curvature = np.empty_like(scores), np.empty_like(scores)
    args = (loss.code, loss.parameters, loss.task == "binary", width, y, NO_WEIGHT)
    total = scalar_terms(*args, scores, 2, derivative, curvature)
    t = np.stack([targets(loss, v, K) for v in y])
    grid = np.linspace(-4.0, 4.0, 80001)[:, None, None]
    best = (loss.value(t, scores + grid) + grid**2 / (2.0 * width)).min(axis=0)
    np.testing.assert_allclose(total, best.sum(axis=0), atol=1e-4)  # the grid is as fine
    h, unused = 1e-6, np.empty_like(scores)
    ends = [np.empty_like(scores), np.empty_like(scores)]
    scalar_terms(*args, scores - h, 2, ends[0], unused)
    scalar_terms(*args, scores + h, 2, ends[1], unused)
    numeric = (ends[1] - ends[0]) / (2.0 * h)
    np.testing.assert_allclose(curvature, numeric, atol=1e-3, rtol=1e-3)


@coupled
def test_coupled_terms(loss):
    y, weight, scores, _ = scored(loss)
    derivative, prob = np.empty_like(scores), np.empty_like(scores)
    total = coupled_terms(loss.code, 0.0, y, weight, scores, 2, derivative, prob)
    np.testing.assert_allclose(total, [weight @ loss.value(y.astype(int), scores)])
    np.testing.assert_allclose(derivative, weight[:, None] * loss.derivative(y.astype(int), scores))
    if loss.name == "softmax":
        np.testing.assert_allclose(prob, loss.link(scores))


@pytest.mark.parametrize("width", [0.01, 0.5])
def test_the_smooth_stand_in_of_a_maximum_over_classes(width):
    loss = next(loss for loss in ALL if loss.name == "multiclass_hinge")
    y, weight, scores, K = scored(loss)
    args, ends = (loss.code, width, y, weight), []
    derivative, prob = np.empty_like(scores), np.empty_like(scores)
    total = coupled_terms(*args, scores, 2, derivative, prob)[0]
    exact = weight @ loss.value(y.astype(int), scores)
    assert exact - width * np.log(K) * weight.sum() <= total <= exact
    np.testing.assert_allclose(prob.sum(axis=1), 1.0)
    for h in (-1e-6, 1e-6):
        ends.append(coupled_terms(*args, scores + h * np.eye(K)[0], 0, derivative[:0], prob[:0])[0])
    np.testing.assert_allclose(
        derivative[:, 0].sum(), (ends[1] - ends[0]) / 2e-6, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
def test_values_along_a_line(loss):
    y, weight, scores, K = scored(loss)
    change = np.random.default_rng(6).standard_normal(scores.shape)
    step = np.linspace(0.1, 0.9, K)
    classes = loss.task in ("binary", "multiclass")
    args = (loss.code, loss.parameters, loss.coupled, classes, y, weight)
    along = values_along(*args, scores, change, step)
    there = values_along(*args, scores + step * change, change, np.zeros(K))
    np.testing.assert_allclose(along, there, rtol=1e-12)
    if loss.coupled:
        exact = [weight @ loss.value(y.astype(int), scores + step * change)]
    else:
        t = np.stack([targets(loss, v, K) for v in y])
        exact = weight @ loss.value(t, scores + step * change)
    np.testing.assert_allclose(along, exact)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_gram_whatever_the_order_of_entries(dtype):
    rng = np.random.default_rng(7)
    X = sparse.random_array((30, 6), density=0.5, rng=rng, format="csr").astype(dtype)
    for i in range(30):  # entries of each row in random order
        here = slice(X.indptr[i], X.indptr[i + 1])
        shuffled = rng.permutation(here.stop - here.start)
        X.indices[here], X.data[here] = X.indices[here][shuffled], X.data[here][shuffled]
    weight = rng.standard_normal(30)
    weight[:5] = 0.0
    out = np.zeros((6, 6))
    sparse_gram(*as_rows(X), weight, out)
    out = out + out.T
    out[np.diag_indices(6)] *= 0.5
    dense = X.toarray().astype(float)
    np.testing.assert_allclose(out, dense.T @ (weight[:, None] * dense), rtol=1e-5, atol=1e-6)
