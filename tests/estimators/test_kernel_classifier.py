"""`BayesianKernelClassifier`, beyond scikit-learn's checks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_iris, make_moons
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

import likelier
from likelier import BayesianKernelClassifier, Evidence


def moons(n=400, seed=0):
    X, y = make_moons(n, noise=0.25, random_state=seed)
    rng = np.random.default_rng(seed)
    return np.column_stack([X, rng.normal(size=(n, 3))]), y


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    split = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
    model = BayesianKernelClassifier(random_state=0).fit(split[0], split[2])
    return model, *split


def test_digits_without_options(digits):
    model, _, X_test, _, y_test = digits
    assert model.score(X_test, y_test) > 0.97
    assert log_loss(y_test, model.predict_proba(X_test)) < 0.12


def test_probabilities_agree_with_predictions(digits):
    model, _, X_test, _, _ = digits
    p = model.predict_proba(X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (model.classes_[p.argmax(axis=1)] == model.predict(X_test)).all()
    assert (model.decision_function(X_test).argmax(axis=1) == p.argmax(axis=1)).all()
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X_test)), p)


def test_out_of_support_nothing_is_known(digits):
    model, X_train, X_test, _, _ = digits
    rng = np.random.default_rng(0)
    strange = rng.uniform(0.0, 16.0, X_test.shape)
    scores = np.concatenate([model.score_samples(X_test), model.score_samples(strange)])
    inside = np.repeat([1, 0], len(X_test))
    assert roc_auc_score(inside, scores) > 0.95
    far = X_train[:50] + 1e4
    np.testing.assert_allclose(model.score_samples(far), model.score_samples(far)[0], atol=1e-6)
    near = model.predict_uncertainty(X_test)
    away = model.predict_uncertainty(far)
    assert away.total.min() > 0.7 * np.log(10)
    assert away.epistemic.min() > np.median(near.epistemic)
    np.testing.assert_allclose(near.total, near.aleatoric + near.epistemic)


def test_relevance_finds_the_inputs_that_matter():
    X, y = moons(1200)
    model = BayesianKernelClassifier(random_state=0).fit(X, y)
    assert model.feature_relevance_.sum() == pytest.approx(1.0)
    assert model.feature_relevance_[:2].min() > 3.0 * model.feature_relevance_[2:].max()
    assert model.gamma_.shape == (5,)


def test_same_seed_same_bits():
    X, y = moons(1100)
    a = BayesianKernelClassifier(random_state=3).fit(X, y).predict_proba(X)
    b = BayesianKernelClassifier(random_state=3).fit(X, y).predict_proba(X)
    assert a.tobytes() == b.tobytes()


def test_few_rows_in_any_order_give_the_same_model():
    X, y = moons(200)
    order = np.random.default_rng(0).permutation(len(y))
    a = BayesianKernelClassifier(random_state=0).fit(X, y)
    b = BayesianKernelClassifier(random_state=0).fit(X[order], y[order])
    assert a.predict_proba(X).tobytes() == b.predict_proba(X).tobytes()


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_rows(kind):
    X, y = moons()
    X = np.where(np.abs(X) > 0.4, X, 0.0)
    dense = BayesianKernelClassifier(random_state=0).fit(X, y)
    thin = BayesianKernelClassifier(random_state=0).fit(kind(X), y)
    assert sparse.issparse(thin.posterior_["map"]["landmarks"])
    np.testing.assert_allclose(thin.predict_proba(kind(X)), dense.predict_proba(X), atol=0.05)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_and_text_labels(frame):
    X, y = load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"])[y]
    table = frame({f"c{j}": X[:, j] for j in range(4)})
    model = BayesianKernelClassifier(random_state=0).fit(table, labels)
    assert list(model.feature_names_in_) == ["c0", "c1", "c2", "c3"]
    assert model.score(table, labels) > 0.95


def test_single_precision_stays_close():
    X, y = moons()
    a = BayesianKernelClassifier(random_state=0).fit(X, y).predict_proba(X)
    b = BayesianKernelClassifier(random_state=0).fit(X.astype(np.float32), y)
    assert np.abs(a - b.predict_proba(X.astype(np.float32))).max() < 0.1


def test_hinge_is_calibrated():
    X, y = moons(1500)
    model = BayesianKernelClassifier("hinge", random_state=0).fit(X[:1000], y[:1000])
    p = model.predict_proba(X[1000:])
    assert model.score(X[1000:], y[1000:]) > 0.9
    assert log_loss(y[1000:], p) < 0.3
    assert model.posterior_scale_ == 0.0


@pytest.mark.parametrize("features", ["fourier", "identity"])
def test_other_features(features):
    X, y = moons()
    model = BayesianKernelClassifier(features=features, random_state=0).fit(X, y)
    assert model.score(X, y) > (0.9 if features == "fourier" else 0.8)


def test_given_hyperparameters_are_kept():
    X, y = moons()
    inference = Evidence(posterior_scale=1.0)
    model = BayesianKernelClassifier(gamma=0.7, alpha=0.2, inference=inference, random_state=0)
    model.fit(X, y)
    np.testing.assert_allclose(model.gamma_, 0.7)
    assert model.alpha_ == 0.2 and model.posterior_scale_ == 1.0


def test_temperature_widens_the_posterior():
    X, y = moons()
    parameters = {"gamma": 0.7, "alpha": 0.2, "random_state": 0}
    cold, warm = (
        BayesianKernelClassifier(
            inference=Evidence(posterior_scale=1.0, temperature=temperature), **parameters
        ).fit(X, y)
        for temperature in (1.0, 10.0)
    )
    assert (
        warm.predict_uncertainty(X).epistemic.mean() > cold.predict_uncertainty(X).epistemic.mean()
    )


def test_class_weight_moves_the_border():
    X, y = moons(1200)
    rows = np.flatnonzero((y == 0) | (np.arange(len(y)) % 10 == 0))
    X, y = X[rows], y[rows]
    plain = BayesianKernelClassifier(random_state=0).fit(X, y)
    balanced = BayesianKernelClassifier(class_weight="balanced", random_state=0).fit(X, y)
    assert (balanced.predict(X) == 1).mean() > (plain.predict(X) == 1).mean()


@pytest.mark.parametrize("loss", ["softmax", "hinge"])
def test_save_and_load(loss, tmp_path):
    X, y = load_iris(return_X_y=True)
    model = BayesianKernelClassifier(loss, random_state=0).fit(X, y)
    likelier.save(model, tmp_path / "m")
    again = likelier.load(tmp_path / "m")
    assert again.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()


def test_time_budget_ends_the_fit():
    X, y = moons(3000)
    quick = BayesianKernelClassifier(time_budget=1e-6, random_state=0).fit(X, y)
    assert quick.n_iter_ <= 3
    assert quick.score(X, y) > 0.8


def test_batch_by_batch():
    X, y = moons(6000)
    model = BayesianKernelClassifier(n_components=100, random_state=0)
    for start in range(0, 5000, 1000):
        model.partial_fit(X[start : start + 1000], y[start : start + 1000], classes=[0, 1])
    assert "X" not in model.stream_
    whole = BayesianKernelClassifier(n_components=100, random_state=0).fit(X[:5000], y[:5000])
    gap = whole.score(X[5000:], y[5000:]) - model.score(X[5000:], y[5000:])
    assert gap < 0.02


def test_a_class_announced_at_first_may_come_late():
    X, y = moons(5000)
    model = BayesianKernelClassifier(n_components=100, random_state=0)
    model.partial_fit(X[:4000], y[:4000], classes=[0, 1, 9])
    before = model.score(X[4000:], y[4000:])
    assert model.predict_proba(X[4000:]).shape == (1000, 3)
    model.partial_fit(X[:300] + 8.0, np.full(300, 9))
    assert list(model.classes_) == [0, 1, 9]
    assert (model.predict(X[:300] + 8.0) == 9).mean() > 0.9
    model.partial_fit(X[:1000], y[:1000])  # until then the intercept of the class is too large
    assert (model.predict(X[:300] + 8.0) == 9).mean() > 0.9
    assert model.score(X[4000:], y[4000:]) > before - 0.02
    with pytest.raises(ValueError, match="announce it by classes="):
        model.partial_fit(X[:300] + 8.0, np.full(300, 7))


def test_streams_agree_with_memory(tmp_path):
    X, y = moons(3000)
    blocks = [(X[i : i + 500], y[i : i + 500]) for i in range(0, 3000, 500)]
    memory = BayesianKernelClassifier(n_components=100, random_state=0).fit(X, y)
    again = BayesianKernelClassifier(n_components=100, random_state=0).fit(blocks)
    once = BayesianKernelClassifier(n_components=100, random_state=0).fit(iter(blocks))
    for model in (again, once):
        assert abs(model.score(X, y) - memory.score(X, y)) < 0.02
    path = tmp_path / "rows.parquet"
    table = pd.DataFrame(X).rename(columns=str)
    table.assign(target=y).to_parquet(path)
    from_file = BayesianKernelClassifier(n_components=100, random_state=0).fit(str(path), "target")
    assert abs(from_file.score(table, y) - memory.score(X, y)) < 0.02


def test_thousands_of_inputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2500))
    y = (X[:, :20].sum(axis=1) > 0.0).astype(int)
    model = BayesianKernelClassifier(random_state=0).fit(X, y)
    assert len(np.unique((model.gamma_ * model.input_scale_).round(9))) <= 64
    relevance = model.feature_relevance_
    assert relevance[:20].mean() > 2.0 * relevance[20:].mean()


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({"loss": "squared"}, ValueError),
        ({"features": "wavelets"}, ValueError),
        ({"n_components": 0}, ValueError),
        ({"n_components": 2.5}, ValueError),
        ({"alpha": -1.0}, ValueError),
        ({"alpha": "some"}, ValueError),
        ({"gamma": "scale"}, ValueError),
        ({"gamma": [1.0, 2.0]}, ValueError),
        ({"gamma": -1.0}, ValueError),
        ({"time_budget": 0.0}, ValueError),
        ({"n_jobs": 0}, ValueError),
        ({"inference": "mcmc"}, ValueError),
    ],
)
def test_invalid_parameters_are_named(parameters, kind):
    X, y = moons(50)
    with pytest.raises(kind, match=next(iter(parameters))):
        BayesianKernelClassifier(**parameters).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({"posterior_scale": -0.1}, ValueError),
        ({"temperature": 0.0}, ValueError),
        ({"tol": "small"}, TypeError),
        ({"n_experts": 1.5}, TypeError),
    ],
)
def test_invalid_parameters_of_the_inference_are_named(parameters, kind):
    with pytest.raises(kind, match=f"inference.{next(iter(parameters))}"):
        Evidence(**parameters)


def test_missing_values_are_named():
    X, y = moons(50)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        BayesianKernelClassifier().fit(X, y)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_many_classes_are_saved_with_their_reduced_covariance(temperature, tmp_path):
    """Five classes and 121 features: more weights than the joint layout allows."""
    X, _ = load_iris(return_X_y=True)
    y = np.digitize(X[:, 0] + X[:, 2], [6.5, 8.0, 10.0, 11.5])
    inference = Evidence(posterior_scale=1.0, temperature=temperature)
    model = BayesianKernelClassifier(
        random_state=0, n_components=130, alpha=0.1, inference=inference
    ).fit(X, y)
    assert model.posterior_["weights"]["layout"] == "reduced" and model.converged_
    likelier.save(model, tmp_path / "classes.likelier")
    again = likelier.load(tmp_path / "classes.likelier")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
