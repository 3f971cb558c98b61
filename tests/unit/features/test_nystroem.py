"""Nystroem features: exactness, rank, landmarks, weights, and invalid arguments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import NystroemFeatures
from likelier.features.landmarks import _leverage_scores, choose_landmarks, find_candidates
from likelier.kernels import Linear, Matern, Poly, Rbf, make_kernel

METHODS = ("uniform", "kmeans++", "leverage")
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])
every_method = pytest.mark.parametrize("landmarks", METHODS)


def rows(n=60, d=4, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


# -- the kernel is reproduced --------------------------------------------------------------------


@both_types
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern32", "matern52", "poly", "linear"])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_all_rows_as_landmarks_give_the_kernel_itself(kernel, layout, dtype):
    X = rows(dtype=dtype)
    model = NystroemFeatures(60, kernel=kernel, gamma=0.3, coef0=1.0, random_state=0)
    features = model.fit_transform(layout(X))
    assert features.dtype == dtype and features.shape == (60, model.n_components_)
    K = make_kernel(kernel, gamma=0.3, coef0=1.0).matrix(X.astype(float))
    tolerance = 2e-4 if dtype is np.float32 else 1e-11
    np.testing.assert_allclose(features @ features.T, K, atol=tolerance * K.max())


@every_method
def test_it_is_the_projection_on_the_landmarks(landmarks):
    """``k(x, z) K_zz^{-1} k(z, y)``, and the residual is positive semi-definite."""
    X = rows()
    model = NystroemFeatures(15, gamma=0.3, landmarks=landmarks, random_state=0).fit(X)
    assert model.landmarks_.shape == (15, 4)
    np.testing.assert_array_equal(model.landmarks_, X[model.landmark_indices_])
    assert len(set(model.landmark_indices_)) == 15
    K = Rbf(0.3).matrix(X)
    cross = K[:, model.landmark_indices_]
    expected = cross @ np.linalg.solve(cross[model.landmark_indices_], cross.T)
    features = model.transform(X)
    np.testing.assert_allclose(features @ features.T, expected, atol=1e-9)
    assert np.linalg.eigvalsh(K - expected).min() > -1e-9


def test_eigenvalues_are_reported_largest_first():
    X = rows()
    model = NystroemFeatures(20, gamma=0.3, random_state=0).fit(X)
    expected = np.linalg.eigvalsh(Rbf(0.3).matrix(model.landmarks_))[::-1]
    np.testing.assert_allclose(model.eigenvalues_, expected[: model.rank_], rtol=1e-9)
    assert model.rank_ == model.n_components_ == 20


def test_any_kernel_value_and_any_function():
    X = rows()
    expected = NystroemFeatures(10, kernel=Matern(0.2, nu=1.5), random_state=0).fit_transform(X)
    named = NystroemFeatures(10, kernel="matern32", gamma=0.2, random_state=0).fit_transform(X)
    np.testing.assert_array_equal(named, expected)
    kernel = Rbf([0.1, 0.2, 0.0, 0.5])
    ours = NystroemFeatures(10, kernel=kernel, random_state=0).fit_transform(X)
    own = NystroemFeatures(10, kernel=kernel.matrix, random_state=0)
    np.testing.assert_allclose(own.fit_transform(X), ours, atol=1e-8)


@every_method
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_a_precomputed_kernel(landmarks, layout):
    X, new = rows(), rows(7, seed=1)
    kernel = Rbf(0.3)
    parameters = {"landmarks": landmarks, "random_state": 0}
    model = NystroemFeatures(12, kernel="precomputed", **parameters).fit(layout(kernel.matrix(X)))
    ours = model.transform(layout(kernel.matrix(new, X)))
    chosen = X[model.landmark_indices_]
    cross = kernel.matrix(new, chosen)
    expected = cross @ np.linalg.solve(kernel.matrix(chosen), cross.T)
    np.testing.assert_allclose(ours @ ours.T, expected, atol=1e-9)
    with pytest.raises(ValueError, match="one column per fitted row"):
        NystroemFeatures(kernel="precomputed").fit(rows())


# -- rank ------------------------------------------------------------------------------------------


@both_types
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@every_method
def test_duplicated_landmarks(dtype, layout, landmarks):
    X = np.repeat(rows(6, dtype=dtype), 50, axis=0)
    model = NystroemFeatures(40, gamma=0.3, landmarks=landmarks, random_state=0)
    features = model.fit_transform(layout(X))
    assert np.isfinite(features).all()
    assert model.rank_ == model.n_components_ == 6
    K = Rbf(0.3).matrix(X.astype(float))
    np.testing.assert_allclose(features @ features.T, K, atol=1e-5)


@both_types
@every_method
def test_landmarks_that_nearly_coincide(dtype, landmarks):
    base = rows(6)
    noise = 1e-9 * np.random.default_rng(1).normal(size=(300, 4))
    X = (np.repeat(base, 50, axis=0) + noise).astype(dtype)
    model = NystroemFeatures(40, gamma=0.3, landmarks=landmarks, random_state=0)
    features = model.fit_transform(X)
    assert np.isfinite(features).all()
    assert model.rank_ < 40
    K = Rbf(0.3).matrix(X.astype(float))
    np.testing.assert_allclose(features @ features.T, K, atol=1e-3)


@both_types
@every_method
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_landmarks_of_rank_one(dtype, landmarks, scale):
    X = (scale * np.outer(np.arange(1, 61), [1.0, 2.0, -1.0])).astype(dtype)
    model = NystroemFeatures(20, kernel="linear", landmarks=landmarks, random_state=0).fit(X)
    features = model.transform(X)
    assert np.isfinite(features).all()
    assert model.rank_ == 1 and features.shape == (60, 1)
    K = X.astype(float) @ X.T.astype(float)
    np.testing.assert_allclose(features @ features.T, K, rtol=1e-4)


@pytest.mark.parametrize("count", range(1, 12))
def test_few_landmarks_of_rank_one(count):
    """The rule ``m eps max`` alone keeps a second eigenvalue of 0, 1, 2: it is 3.55e-15."""
    X = np.arange(count + 1.0)[:, None]
    assert NystroemFeatures(kernel="linear").fit(X).rank_ == 1


def test_dropping_only_exact_zeros_fails_and_ours_does_not():
    """The printed rule, ``U D^{-1/2}`` without exact zeros: NaN from eigenvalues -1e-17."""
    X = np.repeat(rows(6), 5, axis=0)
    K = Rbf(0.3).matrix(X)
    values, vectors = np.linalg.eigh(K)
    nonzero = values != 0.0
    with np.errstate(invalid="ignore"):
        printed = K @ (vectors[:, nonzero] / np.sqrt(values[nonzero]))
    assert np.isnan(printed).any()
    features = NystroemFeatures(30, gamma=0.3, random_state=0).fit_transform(X)
    np.testing.assert_allclose(features @ features.T, K, atol=1e-12)


def test_a_zero_kernel_gives_one_zero_feature():
    model = NystroemFeatures(kernel="linear").fit(np.zeros((5, 2)))
    assert (model.rank_, model.n_components_) == (0, 1)
    np.testing.assert_array_equal(model.transform(np.ones((3, 2))), np.zeros((3, 1)))


def test_indefinite_kernels_keep_their_positive_part():
    X = rows()
    model = NystroemFeatures(60, kernel="sigmoid", gamma=0.5, coef0=-1.0, random_state=0)
    features = model.fit_transform(X)
    values, vectors = np.linalg.eigh(make_kernel("sigmoid", gamma=0.5, coef0=-1.0).matrix(X))
    assert values.min() < -0.1
    positive = (vectors * np.maximum(values, 0)) @ vectors.T
    np.testing.assert_allclose(features @ features.T, positive, atol=1e-9)


def test_values_that_overflow_are_an_error():
    with pytest.raises(ValueError, match="overflow; scale the features of X down"):
        NystroemFeatures(kernel=Poly(1.0, 9)).fit(1e100 * rows())


# -- landmarks -------------------------------------------------------------------------------------


@every_method
def test_weights_are_repetitions(landmarks):
    """Equal rows are one candidate, so the same random numbers choose the same landmarks."""
    X = rows()
    weight = np.random.default_rng(1).integers(0, 4, 60)
    repeated = np.repeat(X, weight, axis=0)[np.random.default_rng(2).permutation(weight.sum())]
    parameters = {"n_components": 12, "landmarks": landmarks, "random_state": 0}
    weighted = NystroemFeatures(**parameters).fit(X, sample_weight=weight)
    plain = NystroemFeatures(**parameters).fit(repeated)
    np.testing.assert_array_equal(weighted.landmarks_, plain.landmarks_)
    np.testing.assert_allclose(weighted.transform(X), plain.transform(X), rtol=1e-9)
    assert (weight[weighted.landmark_indices_] > 0).all()


@every_method
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_candidates_are_different_rows(landmarks, layout):
    X = np.concatenate([rows(5), rows(5), [[0.0, -0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]])
    found = find_candidates(layout(X), None, 3, np.random.default_rng(0))
    assert len(found.indices) == 6
    assert sorted(found.weight) == [2.0] * 6
    chosen = choose_landmarks(
        Linear(), layout(X)[found.indices], found.weight, 4, landmarks, np.random.default_rng(0)
    )
    assert len(chosen) == len(set(chosen)) == 4


def test_of_very_many_rows_a_part_is_looked_at():
    X = np.arange(25_000.0)[:, None]
    weight = np.where(X[:, 0] < 5_000, 0.0, 1.0)
    found = find_candidates(X, weight, 10, np.random.default_rng(0))
    assert len(found.indices) == 10_000
    assert found.indices.min() >= 5_000


@pytest.mark.parametrize("landmarks", ["kmeans++", "leverage"])
def test_a_rare_region_is_found(landmarks):
    """2,000 rows close together, 10 apart from them: ten landmarks must see both."""
    rng = np.random.default_rng(0)
    X = np.concatenate([0.05 * rng.normal(size=(2000, 2)), 10 + rng.normal(size=(10, 2))])
    hits = {"uniform": 0, landmarks: 0}
    for method in hits:
        for seed in range(20):
            model = NystroemFeatures(10, gamma=0.5, landmarks=method, random_state=seed).fit(X)
            hits[method] += bool((model.landmark_indices_ >= 2000).any())
    assert hits[landmarks] == 20
    assert hits["uniform"] <= 8  # expected: 1 in 20


@pytest.mark.parametrize("landmarks", ["kmeans++", "leverage"])
def test_chosen_landmarks_leave_less_over_than_uniform_ones(landmarks):
    """Groups of 512, 256, ..., 2 rows: uniform landmarks mostly go where many rows are."""
    rng = np.random.default_rng(0)
    sizes = 2 ** np.arange(1, 10)
    centres = 5.0 * rng.normal(size=(len(sizes), 3))
    X = np.repeat(centres, sizes, axis=0) + 0.3 * rng.normal(size=(sizes.sum(), 3))

    def left_over(method):
        total = 0.0
        for seed in range(5):
            model = NystroemFeatures(100, gamma=0.5, landmarks=method, random_state=seed)
            total += len(X) - (model.fit_transform(X) ** 2).sum()
        return total

    assert left_over(landmarks) < 0.5 * left_over("uniform")


def test_leverage_scores_are_exact_for_few_rows():
    X, weight, count = rows(100), np.random.default_rng(1).integers(1, 4, 100) * 1.0, 20
    root = np.sqrt(weight)
    K = Rbf(0.3).matrix(X) * root * root[:, None]
    ridge = np.linalg.eigvalsh(K)[::-1][count // 2 :].sum() / (count // 2)
    exact = np.diagonal(np.linalg.solve(K + ridge * np.eye(100), K))
    ready = Rbf(0.3).prepare(X)
    ours = _leverage_scores(ready, weight, count, np.random.default_rng(0))
    np.testing.assert_allclose(ours, exact, rtol=1e-8)


# -- as a feature map, and the rest ------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", Rbf(0.2), Rbf([0.1, 0.2, 0.3, 0.4])])
def test_it_is_a_feature_map(kernel):
    X = rows()
    model = NystroemFeatures(20, kernel=kernel)
    params = model.init(np.random.default_rng(5), X)
    assert set(params) - {"gamma"} == {"landmarks", "projection"}
    fitted = NystroemFeatures(20, kernel=kernel, random_state=np.random.default_rng(5)).fit(X)
    np.testing.assert_array_equal(fitted.transform(X), model.apply(params, X))


def test_output_can_be_given_and_blocks_do_not_show():
    X = rows(3000)
    model = NystroemFeatures(200, random_state=0).fit(X)
    out = np.empty((3000, model.n_components_))
    assert model.transform(X, out=out) is out
    pieces = [model.transform(X[i : i + 700]) for i in range(0, 3000, 700)]
    np.testing.assert_allclose(out, np.concatenate(pieces), atol=1e-10)


def test_automatic_sizes():
    assert len(NystroemFeatures(landmarks="uniform").fit(rows(20)).landmarks_) == 20
    assert len(NystroemFeatures(landmarks="uniform").fit(rows(100)).landmarks_) == 92


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_components": 0}, ValueError, "n_components must be at least 1"),
        ({"n_components": None}, TypeError, "n_components must be a positive integer"),
        ({"landmarks": "best"}, ValueError, "landmarks must be one of"),
        ({"kernel": "cosine"}, ValueError, "kernel='cosine' is not known"),
        ({"gamma": "wide"}, ValueError, "gamma='wide' is not known"),
        ({"gamma": np.ones(3)}, ValueError, "gamma has 3 entries"),
        ({"kernel": "poly", "degree": 0.5}, ValueError, "degree"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        NystroemFeatures(**parameters).fit(rows())


def test_bad_weights():
    with pytest.raises(ValueError, match="at least one non-zero"):
        NystroemFeatures().fit(rows(), sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match="[Nn]egative"):
        NystroemFeatures().fit(rows(), sample_weight=-np.ones(60))
    with pytest.raises(ValueError, match="sample_weight"):
        NystroemFeatures().fit(rows(), sample_weight=np.ones(59))


@pytest.mark.parametrize("landmarks", ["kmeans++", "uniform", "leverage"])
@pytest.mark.parametrize(
    ("parameters", "size", "shift"),
    [({}, 1e-7, 1.0), ({"degree": 5, "gamma": 1.0}, 1e4, 0.0), ({"degree": 2}, 1e12, 0.0)],
)
def test_single_precision_where_kernel_values_need_double(landmarks, parameters, size, shift):
    X = (shift + size * np.random.default_rng(0).normal(size=(300, 6))).astype(np.float32)
    made = NystroemFeatures(50, kernel="poly", landmarks=landmarks, random_state=0, **parameters)
    phi = made.fit_transform(X)
    assert phi.dtype == np.float32 and np.isfinite(phi).all()
    rows = made.landmark_indices_
    exact = made.kernel_.matrix(X[rows].astype(np.float64))
    found = phi[rows].astype(np.float64) @ phi[rows].T.astype(np.float64)
    np.testing.assert_allclose(found, exact, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize("landmarks", ["kmeans++", "uniform", "leverage"])
def test_kernel_values_that_overflow_are_refused_by_name(landmarks):
    X = np.random.default_rng(0).normal(size=(300, 6))
    made = NystroemFeatures(50, kernel="poly", gamma=1.0, landmarks=landmarks, random_state=0)
    with pytest.raises(ValueError, match=r"kernel 'poly'.* overflow; scale the features of X"):
        made.fit(1e60 * X)
    with pytest.raises(ValueError, match=r"kernel 'poly' or features in float32 overflow"):
        made.fit(X.astype(np.float32)).transform((1e15 * X).astype(np.float32))
    with pytest.raises(ValueError, match=r"kernel 'poly' or features in float32 overflow"):
        made.fit((1e20 * X).astype(np.float32))
