"""Feature maps of labels: centred, uncorrelated, and what they should be inner products of."""

import numpy as np
import pytest
from scipy import sparse

from likelier.multilabel.features import (
    FeatureMap,
    column_moments,
    fit_map,
    square_kernel,
    square_kernel_held_out,
)

RNG = np.random.default_rng(0)
DENSE = RNG.normal(size=(80, 5)) * [1.0, 100.0, 0.01, 1.0, 1.0] + [0.0, 50.0, 0.0, 0.0, 3.0]
COUNTS = sparse.csr_array(RNG.poisson(0.5, size=(80, 12)).astype(float))
ONES = np.ones(80)


def fitted(kind, X, weight=ONES, **params):
    return fit_map(kind, X, weight, np.random.default_rng(0), **params)


@pytest.mark.parametrize(
    ("kind", "X"),
    [("linear", DENSE), ("rbf", DENSE), ("linear", COUNTS), ("weighted", COUNTS), ("rbf", COUNTS)],
)
def test_columns_are_centred_uncorrelated_and_of_unit_length(kind, X):
    weight = RNG.uniform(0.5, 2.0, 80)
    Z = fitted(kind, X, weight).apply(X)
    share = weight / weight.sum()
    assert abs(share @ Z).max() < 1e-10
    moment = (Z * share[:, None]).T @ Z
    assert abs(moment - np.diag(np.diag(moment))).max() < 1e-10
    assert np.trace(moment) == pytest.approx(1.0)


def test_units_do_not_matter():
    one = fitted("linear", DENSE).apply(DENSE)
    two = fitted("linear", DENSE * 7.0 + 3.0).apply(DENSE * 7.0 + 3.0)
    np.testing.assert_allclose(one @ one.T, two @ two.T, atol=1e-9)


def test_inner_products_of_a_kernel_map_are_the_kernel():
    """All rows are landmarks: differences of features have the kernel's distances."""
    Z = fitted("rbf", DENSE, scale=2.0).apply(DENSE)
    std = (DENSE - DENSE.mean(axis=0)) / DENSE.std(axis=0)
    square = ((std[:, None] - std[None]) ** 2).sum(axis=2)
    K = np.exp(-2.0 / (2.0 * 5.0) * square)
    ours = ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
    ratio = ours[np.triu_indices(80, 1)] / (2.0 - 2.0 * K)[np.triu_indices(80, 1)]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)


def test_weighted_rows_have_unit_length_before_rotation():
    params = fitted("weighted", COUNTS)
    assert params.unit
    rare = np.asarray((COUNTS != 0).sum(axis=0)).ravel()
    present = rare > 0
    order = np.corrcoef(params.column[present], -np.log(rare[present]))[0, 1]
    assert order > 0.3


def test_a_constant_column_is_ignored():
    X = np.column_stack([DENSE[:, 0], np.full(80, 3.3)])
    part = fitted("linear", X)
    other = X.copy()
    other[:, 1] = 1e6
    np.testing.assert_array_equal(part.apply(X), part.apply(other))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_columns(form, dtype):
    X = np.column_stack([DENSE, COUNTS.toarray()]).astype(dtype)
    weight = RNG.uniform(0.5, 2.0, 80)
    share = weight / weight.sum()
    mean, std = column_moments(form(X), share)
    exact = X.astype(np.float64)
    np.testing.assert_allclose(mean, share @ exact, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(std, np.sqrt(share @ (exact - mean) ** 2), rtol=1e-10)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("value", [0.1, 3.3, 1e10, -1e-7, 0.0])
def test_columns_constant_to_rounding_have_no_variance(form, value):
    X = np.full((80, 2), value)
    X[::3, 1] = np.nextafter(value, np.inf) if value else 0.0
    for weight in (ONES, RNG.uniform(0.5, 2.0, 80)):
        mean, std = column_moments(form(X), weight / weight.sum())
        np.testing.assert_allclose(mean, value, rtol=1e-15)
        np.testing.assert_array_equal(std, 0.0)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("far", [1e6, 1e9, 1e12, 1e14])
def test_moments_of_columns_far_from_zero(form, far):
    X = far + np.random.default_rng(5).normal(size=(80, 3))
    held = (X - far).astype(np.float64)  # exact: what is left of the numbers
    mean, std = column_moments(form(X), ONES / 80.0)
    np.testing.assert_allclose(std, held.std(axis=0), rtol=1e-3)
    np.testing.assert_allclose(mean, far + held.mean(axis=0), rtol=1e-15)


@pytest.mark.parametrize("kind", ["linear", "rbf"])
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-3), (np.float32, 1e-2)])
def test_a_map_of_columns_far_from_zero(kind, dtype, atol):
    """Single precision leaves the smallest directions of a kernel to rounding, near zero too."""
    far = np.array([1e9, -1e10, 1e12, 0.0, 1e6])
    near = np.random.default_rng(5).normal(size=(80, 5))
    one, two = (fitted(kind, X, dtype=dtype).apply(X) for X in (near, near + far))
    np.testing.assert_allclose(two @ two.T, one @ one.T, atol=atol)


def test_all_rows_the_same_give_no_features():
    part = fitted("rbf", np.ones((10, 2)), np.ones(10))
    assert abs(part.apply(np.ones((4, 2)))).max() < 1e-9


def test_wide_sparse_rows_stay_sparse():
    wide = sparse.random_array((30, 5000), density=0.01, format="csr", rng=np.random.default_rng(1))
    Z = fitted("linear", wide, np.ones(30)).apply(wide)
    assert sparse.issparse(Z) and Z.shape == wide.shape


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_plain_form_and_type(dtype):
    part = fitted("rbf", COUNTS, dtype=dtype)
    again = FeatureMap.from_arrays(part.to_arrays())
    assert part.apply(COUNTS).dtype == dtype
    np.testing.assert_array_equal(part.apply(COUNTS), again.apply(COUNTS))
    np.testing.assert_allclose(part.apply(COUNTS.toarray()), part.apply(COUNTS), atol=1e-5)


def test_a_squared_kernel_map_has_inner_products_of_the_squared_kernel():
    part = fitted("rbf", DENSE)
    Z = part.apply(DENSE)
    sharp, features = square_kernel(part, Z, ONES)
    np.testing.assert_allclose(sharp.apply(DENSE), features, atol=1e-12)
    K = Z @ Z.T
    squared = K @ K
    np.testing.assert_allclose(features @ features.T * squared.trace() / 80.0, squared, atol=1e-10)
    assert (features**2).mean(axis=0).sum() == pytest.approx(1.0)


def test_a_held_out_row_is_left_out_of_its_own_features():
    weight = RNG.uniform(0.5, 2.0, 80)
    share = weight / weight.sum()
    part = fitted("rbf", DENSE, weight)
    Z = part.apply(DENSE)
    features, unseen = square_kernel(part, Z, weight)[1], square_kernel_held_out(Z, weight)
    K = Z @ Z.T
    squared = K @ (share[:, None] * K)
    own = np.diag(K) * share  # the term of the row itself, k(x, x) k(x, x') with its weight
    unit = float(squared.diagonal() @ share)
    np.testing.assert_allclose(features @ features.T * unit, squared, atol=1e-10)
    np.testing.assert_allclose(unseen @ features.T * unit, squared - own[:, None] * K, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_held_out_rows_resemble_new_ones(dtype):
    """With nearly as many columns as rows, rows seen are longer than new ones, by far."""
    X, new = RNG.normal(size=(2, 150, 100))
    part = fitted("linear", X, np.ones(150), dtype=dtype)
    Z = part.apply(X)
    sharp, features = square_kernel(part, Z, np.ones(150))
    unseen = square_kernel_held_out(Z, np.ones(150))
    assert unseen.dtype == dtype
    weights = features[:50].T @ RNG.normal(size=(50, 40))  # learned from some of the rows
    held = features[50:], unseen[50:], sharp.apply(new)
    seen, left_out, future = ((F @ weights).std() for F in held)
    assert seen > 1.15 * future
    assert left_out == pytest.approx(future, rel=0.1)


def test_the_squared_kernel_compacts_clusters():
    """Two clusters, four known rows in each: neighbours of neighbours define them."""
    gains = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        side = np.repeat([-1.0, 1.0], 100)
        X = 0.3 * side[:, None] + rng.normal(size=(200, 40))
        shown = np.r_[0:4, 100:104]
        part = fit_map("linear", X, np.ones(200), rng)
        plain = part.apply(X)
        found = []
        for Z in (plain, square_kernel(part, plain, np.ones(200))[1]):
            scores = Z @ (Z[shown].T @ side[shown])
            found.append(np.corrcoef(scores, side)[0, 1])
        gains.append(found[1] - found[0])
    assert min(gains) > 0.02
