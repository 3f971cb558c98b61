"""Kernels as values, prepared rows, and invalid arguments."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from likelier.kernels import (
    KERNELS,
    Custom,
    Laplacian,
    Linear,
    Matern,
    Poly,
    Precomputed,
    Rbf,
    Sigmoid,
    gamma_from_data,
    kernel_from_json,
    make_kernel,
)

VALUES = [
    Rbf(0.3),
    Rbf([0.1, 2.0, 0.3]),
    Laplacian(0.3),
    Matern(0.3, nu=1.5),
    Matern([0.1, 2.0, 0.3]),
    Poly(0.3, 2, 1.0),
    Sigmoid(0.3, 1.0),
    Linear(),
    Precomputed(),
]
every_kernel = pytest.mark.parametrize("kernel", VALUES, ids=str)
computing = pytest.mark.parametrize("kernel", [k for k in VALUES if not k.precomputed], ids=str)


def rows(n=8, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(dtype)


# -- a kernel is a value -----------------------------------------------------------------------


@every_kernel
def test_a_kernel_is_a_value(kernel):
    for other in (
        copy.deepcopy(kernel),
        pickle.loads(pickle.dumps(kernel)),
        clone(kernel),
        type(kernel)(**kernel.get_params()),
        kernel_from_json(json.loads(json.dumps(kernel.to_json()))),
        type(kernel).from_json(kernel.to_json()),
        make_kernel(kernel),
        make_kernel(kernel.to_json()),
    ):
        assert other == kernel
        assert hash(other) == hash(kernel)
    assert KERNELS[kernel.name] is type(kernel)


def test_every_named_kernel_is_among_the_values():
    assert {kernel.name for kernel in VALUES} == set(KERNELS)


def test_changed_parameters_make_another_kernel():
    kernel = Rbf(1.0)
    assert kernel.set_params(gamma=2) == Rbf(2.0) != kernel
    with pytest.raises(ValueError, match="no parameter 'degree'"):
        kernel.set_params(degree=2)
    with pytest.raises(AttributeError):
        kernel.gamma = 3.0


def test_a_custom_function_cannot_be_serialised():
    with pytest.raises(TypeError, match="cannot be serialised"):
        Custom(lambda X, Y: X @ Y.T).to_json()


# -- from names to kernels -----------------------------------------------------------------------


def test_names():
    assert make_kernel("matern32", gamma=2.0) == Matern(2.0, nu=1.5)
    assert make_kernel("matern", gamma=2.0) == make_kernel("matern52", gamma=2.0)
    assert make_kernel("poly", gamma=2.0, degree=4, coef0=1) == Poly(2.0, 4, 1.0)
    assert make_kernel("linear", gamma="scale") == Linear()  # no data needed: it has no gamma
    assert isinstance(make_kernel(lambda X, Y: X @ Y.T), Custom)
    assert make_kernel("rbf", gamma=None, X=rows()) == Rbf(1 / 3)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"kernel": "cosine"}, ValueError, "kernel='cosine' is not known"),
        ({"kernel": 3}, TypeError, "kernel must be a name"),
        ({"kernel": {"name": "none"}}, ValueError, "'none' is not known"),
        ({"kernel": "rbf", "gamma": "wide", "X": rows()}, ValueError, "gamma='wide' is not known"),
        ({"kernel": "rbf", "gamma": "scale"}, ValueError, "computed from data; pass X"),
        ({"kernel": "rbf", "gamma": 0.0}, ValueError, "gamma of kernel 'rbf' .* greater than 0"),
        ({"kernel": "rbf", "gamma": np.inf}, ValueError, "gamma of kernel 'rbf'"),
        ({"kernel": "rbf", "gamma": True}, TypeError, "gamma of kernel 'rbf' must be a number"),
        ({"kernel": "rbf", "gamma": [1.0, -1.0]}, ValueError, "none negative"),
        ({"kernel": "rbf", "gamma": []}, ValueError, "one finite number per feature"),
        ({"kernel": "rbf", "gamma": [1.0, np.nan]}, ValueError, "gamma of kernel 'rbf'"),
        ({"kernel": "poly", "gamma": [1.0, 1.0]}, TypeError, "gamma of kernel 'poly'"),
        ({"kernel": "poly", "gamma": 1.0, "degree": 1.5}, ValueError, "degree .* positive integer"),
        ({"kernel": "poly", "gamma": 1.0, "degree": 0}, ValueError, "degree .* positive integer"),
        ({"kernel": "sigmoid", "gamma": 1.0, "coef0": "a"}, TypeError, "coef0"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        make_kernel(**parameters)


def test_bad_nu():
    with pytest.raises(ValueError, match="nu .* must be 1.5 or 2.5"):
        Matern(1.0, nu=0.5)


def test_gamma_of_constant_data_is_one():
    for rule in ("scale", "median"):
        for data in (np.full((5, 3), 7.0), sparse.csr_array((5, 3))):
            assert gamma_from_data(rule, data) == 1.0
            assert gamma_from_data(rule, data, Laplacian) == 1.0
    assert gamma_from_data("median", rows(1)) == 1.0


def test_the_median_ignores_equal_rows_when_most_are():
    X = np.zeros((50, 3))
    X[:4] = rows(4)
    assert gamma_from_data("median", X) != 1.0


def test_the_median_of_many_rows_is_taken_from_a_fixed_part():
    X = rows(3000)
    first = gamma_from_data("median", X)
    assert first == gamma_from_data("median", X)
    assert first == pytest.approx(1 / (2 * 2.3**2), rel=0.2)  # distances of normals in 3-d
    other = gamma_from_data("median", X, random_state=np.random.default_rng(9))
    assert other == pytest.approx(first, rel=0.1) and other != first


def test_weights_are_repetitions_for_the_scale():
    X, weight = rows(6), np.array([1, 3, 0, 2, 1, 1])
    repeated = gamma_from_data("scale", np.repeat(X, weight, axis=0))
    for data in (X, sparse.csr_array(X)):
        ours = gamma_from_data("scale", data, sample_weight=weight)
        assert ours == pytest.approx(repeated, rel=1e-12)


# -- rows that are ready -------------------------------------------------------------------------


@computing
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_prepared_rows_give_parts_of_the_matrix(kernel, layout, dtype):
    X, Z = layout(rows(8, dtype)), layout(rows(5, dtype, seed=1))
    whole = kernel.matrix(X)
    ready = kernel.prepare(X)
    tolerance = 100 * np.finfo(dtype).eps
    for index in (slice(2, 6), np.array([5, 0, 5]), np.array([3])):
        part = ready.rows(index)
        assert part.dtype == dtype and part.flags.c_contiguous
        np.testing.assert_allclose(part, whole[index], rtol=tolerance, atol=tolerance)
    out = np.empty((5, 8), dtype=dtype)
    assert ready.against(Z, out=out) is out
    np.testing.assert_array_equal(out, kernel.matrix(Z, X))
    some = ready.take(np.array([1, 4]))
    np.testing.assert_allclose(some.block(ready), whole[[1, 4]], rtol=tolerance, atol=tolerance)
    assert (some.n_rows, ready.n_rows, ready.dtype) == (2, 8, dtype)
    np.testing.assert_allclose(ready.diagonal(), np.diagonal(whole), rtol=tolerance)


@computing
def test_inputs_are_never_changed(kernel):
    X = rows() + 100.0
    before = X.copy()
    kernel.matrix(X, X[:3])
    kernel.prepare(X).rows(slice(3))
    np.testing.assert_array_equal(X, before)


@computing
def test_column_major_strided_and_integer_rows(kernel):
    X = np.arange(24).reshape(8, 3) % 5
    expected = kernel.matrix(X.astype(float))
    wide = np.repeat(X, 2, axis=1).astype(float)
    for other in (X, np.asfortranarray(X, dtype=float), wide[:, ::2]):
        np.testing.assert_allclose(kernel.matrix(other), expected, rtol=1e-12, atol=1e-12)


@computing
def test_duplicate_entries_of_sparse_rows_are_summed(kernel):
    columns, ends = np.array([1, 1, 0], np.int32), np.array([0, 2, 3], np.int32)
    data = (np.array([1.0, 2.0, 0.5]), columns, ends)
    X = sparse.csr_array(data, shape=(2, 3))
    np.testing.assert_allclose(kernel.matrix(X), kernel.matrix(X.toarray()), rtol=1e-13)
    assert len(X.data) == 3  # the caller's matrix is as it was


def test_a_dense_matrix_meets_a_sparse_one_though_it_was_shifted():
    X = rows(6) + 50.0
    expected = Rbf(0.5).matrix(X)
    np.testing.assert_allclose(
        Rbf(0.5).matrix(sparse.csr_array(X), X), expected, rtol=1e-9, atol=1e-12
    )


def test_types_are_mixed_to_the_wider():
    assert Rbf(1.0).matrix(rows(dtype=np.float32), rows()).dtype == np.float64


def test_out_must_fit():
    X = rows()
    for out in (np.empty((8, 7)), np.empty((8, 8), np.float32), np.empty((8, 8), order="F")):
        with pytest.raises(ValueError, match="out must be a C-contiguous float64 array"):
            Rbf(1.0).matrix(X, out=out)


def test_bad_rows():
    with pytest.raises(ValueError, match="matrix of rows"):
        Rbf(1.0).matrix(np.zeros(3))
    with pytest.raises(ValueError, match="the rows have 2 features"):
        Rbf(1.0).matrix(np.zeros((1, 2)), np.zeros((1, 3)))
    with pytest.raises(ValueError, match="gamma has 2 entries"):
        Rbf([1.0, 1.0]).matrix(np.zeros((1, 3)))


def test_precomputed_values_are_passed_on():
    K = rows(3)
    kernel = Precomputed()
    np.testing.assert_array_equal(kernel.matrix(K), K)
    np.testing.assert_array_equal(kernel.diagonal(K), np.diagonal(K))
    ready = kernel.prepare(K)
    np.testing.assert_array_equal(ready.rows([2, 0]), K[[2, 0]])
    new = rows(5)
    np.testing.assert_array_equal(ready.against(new), new)
    np.testing.assert_array_equal(ready.against(sparse.csr_array(new)), new)
    with pytest.raises(ValueError, match="one column per fitted row"):
        kernel.prepare(rows(4))
    with pytest.raises(ValueError, match=r"one column per fitted row \(3\)"):
        ready.against(np.zeros((2, 4)))


def test_functions_of_the_user():
    X = rows()
    kernel = Custom(lambda A, B: (A @ B.T) ** 2)
    np.testing.assert_allclose(kernel.matrix(X), (X @ X.T) ** 2)
    np.testing.assert_allclose(kernel.diagonal(X), (X * X).sum(1) ** 2)
    S = sparse.csr_array(X)
    np.testing.assert_allclose(kernel.matrix(S, S[:2]), (X @ X[:2].T) ** 2)
    with pytest.raises(ValueError, match="it returned"):
        Custom(lambda A, B: A).matrix(X)
    with pytest.raises(ValueError, match="needs a function"):
        Custom().matrix(X)


def test_the_same_rows_have_exactly_the_value_one():
    X = rows(50, np.float32)
    for kernel in (Rbf(3.0), Matern(3.0), Laplacian(3.0)):
        assert (np.diagonal(kernel.matrix(X)) == 1.0).all()
        assert kernel.matrix(X).max() <= 1.0
