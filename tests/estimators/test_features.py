"""Feature maps as scikit-learn transformers: frames, pipelines, saving, seeds, missing values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import likelier
from likelier import FourierFeatures, NystroemFeatures
from likelier.kernels import Laplacian, Matern, Poly, Rbf

MAPS = [FourierFeatures, NystroemFeatures]
every_map = pytest.mark.parametrize("kind", MAPS)


def ring(n=300, seed=0):
    """Two classes inside and outside of a circle: no line parts them."""
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, np.where((X**2).sum(axis=1) > 1.4, "outside", "inside")


@every_map
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_in_and_out(kind, frame):
    X, _ = ring()
    data = frame({"a": X[:, 0], "b": X[:, 1]})
    plain = kind(10, random_state=0).fit(X)
    model = kind(10, random_state=0).fit(data)
    np.testing.assert_array_equal(model.feature_names_in_, ["a", "b"])
    # a frame may be column-major, where sums are rounded in another order
    np.testing.assert_allclose(model.transform(data), plain.transform(X), atol=1e-11)
    names = [f"{kind.__name__.lower()}{i}" for i in range(10)]
    assert list(model.get_feature_names_out()) == names
    library = "pandas" if frame is pd.DataFrame else "polars"
    wrapped = model.set_output(transform=library).transform(data)
    assert isinstance(wrapped, frame) and list(wrapped.columns) == names
    np.testing.assert_allclose(np.asarray(wrapped), plain.transform(X), atol=1e-11)


@every_map
def test_wrong_columns_are_named(kind):
    X, _ = ring(20)
    model = kind().fit(pd.DataFrame(X, columns=["a", "b"]))
    with pytest.raises(ValueError, match="feature names"):
        model.transform(pd.DataFrame(X, columns=["a", "c"]))
    with pytest.raises(ValueError, match="features"):
        kind().fit(X).transform(X[:, :1])


@every_map
def test_missing_and_infinite_values_are_refused(kind):
    X, _ = ring(20)
    model = kind().fit(X)
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        bad = X.copy()
        bad[3, 1] = value
        for call in (kind().fit, model.transform):
            for data in (bad, sparse.csr_array(bad)):
                with pytest.raises(ValueError, match=word):
                    call(data)


@every_map
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_seed_same_bits(kind, dtype):
    X = ring()[0].astype(dtype)
    first = kind(30, random_state=3).fit_transform(X)
    assert first.dtype == dtype
    np.testing.assert_array_equal(first, kind(30, random_state=3).fit_transform(X))
    np.testing.assert_array_equal(first, clone(kind(30, random_state=3)).fit_transform(X))
    for other in (kind(30, random_state=4), kind(30)):  # of some landmarks 29 are independent
        assert not np.array_equal(first, other.fit_transform(X))


@every_map
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_a_linear_model_on_top_learns_a_circle(kind, layout):
    X, y = ring()
    new, truth = ring(500, seed=1)
    head = LogisticRegression(C=10.0, max_iter=5000)
    alone = clone(head).fit(X, y).score(new, truth)
    model = make_pipeline(kind(random_state=0), head)
    assert model.fit(layout(X), y).score(layout(new), truth) > 0.96 > alone


@every_map
def test_integers_and_lists(kind):
    X = [[1, 2], [3, 4], [5, 7]]
    assert kind(4).fit_transform(X).dtype == np.float64


@every_map
def test_parameters_of_a_kernel_can_be_searched(kind):
    X, y = ring(120)
    shared = Rbf(100.0)
    model = kind(40, kernel=shared, random_state=0)
    assert model.set_params(kernel__gamma=0.5) is model
    assert (model.kernel, shared) == (Rbf(0.5), Rbf(100.0))
    pipeline = make_pipeline(clone(model), RidgeClassifier())
    name = f"{kind.__name__.lower()}__kernel__gamma"
    search = GridSearchCV(pipeline, {name: [1000.0, 0.5]}, cv=3).fit(X, y)
    assert search.best_params_ == {name: 0.5}
    with pytest.raises(ValueError, match="no parameter 'degree'"):
        model.set_params(kernel__degree=2)


@pytest.mark.parametrize(
    "model",
    [
        FourierFeatures(7, random_state=0),
        FourierFeatures(8, kernel="laplacian", gamma=[0.5, 2.0], sampling="quasi"),
        FourierFeatures(8, kernel=Matern(0.3, nu=1.5), paired=False),
        NystroemFeatures(9, gamma="median"),
        NystroemFeatures(9, kernel=Laplacian([0.5, 2.0])),
        NystroemFeatures(9, kernel=Poly(0.5, 2, 1.0), landmarks="leverage"),
        NystroemFeatures(9, kernel="linear"),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_save_and_load(model, layout, tmp_path):
    X = layout(ring(40)[0].astype(np.float32))
    model = clone(model).fit(X)
    likelier.save(model, tmp_path / "map.likelier")
    loaded = likelier.load(tmp_path / "map.likelier")
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    assert loaded.kernel_ == model.kernel_
    assert str(loaded) == str(model)
    np.testing.assert_array_equal(loaded.fit(X).transform(X).shape, model.transform(X).shape)


def test_a_precomputed_map_is_saved_too(tmp_path):
    X = ring(30)[0]
    K = Rbf(0.5).matrix(X)
    model = NystroemFeatures(9, kernel="precomputed", random_state=0).fit(K)
    likelier.save(model, tmp_path / "map.likelier")
    loaded = likelier.load(tmp_path / "map.likelier")
    np.testing.assert_array_equal(loaded.transform(K), model.transform(K))


def test_a_function_of_the_user_cannot_be_saved(tmp_path):
    model = NystroemFeatures(5, kernel=lambda A, B: A @ B.T).fit(ring(30)[0])
    with pytest.raises(TypeError, match="cannot be saved"):
        likelier.save(model, tmp_path / "map.likelier")


@pytest.mark.parametrize("landmarks", ["uniform", "leverage"])
def test_text_sized_sparse_rows(landmarks):
    """As many columns as a vocabulary: rows stay sparse, only features are dense."""
    X = sparse.random_array((200, 20_000), density=1e-3, rng=np.random.default_rng(0), format="csr")
    model = NystroemFeatures(40, landmarks=landmarks, random_state=0).fit(X)
    assert sparse.issparse(model.landmarks_)
    assert np.isfinite(model.transform(X)).all()


@every_map
def test_parameters_of_a_kernel_given_by_its_name(kind):
    model = kind(40).set_params(kernel__gamma=3.0)
    assert (model.kernel, model.gamma) == ("rbf", 3.0)
    with pytest.raises(ValueError, match="no parameter 'degree'"):
        model.set_params(kernel__degree=2)
    model = kind(40, kernel="matern", gamma=2.0).set_params(kernel__nu=1.5)
    assert model.kernel == Matern(gamma=2.0, nu=1.5)
