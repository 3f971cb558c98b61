"""`partial_fit` of kernel machines includes every row."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import likelier
from likelier import BayesianKernelClassifier, BayesianKernelRegressor, Evidence
from likelier.kernel_machine import batches as kernel_batches
from likelier.kernel_machine import estimator
from likelier.kernel_machine.laplace import posterior_from_blocks
from likelier.kernel_machine.weight_posterior import WeightPosterior
from likelier.kernel_machine.weights import ridge

FEW = 600  # rows after which they are learned, in tests of what comes then


def quadrants(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def classifier(**parameters):
    return BayesianKernelClassifier(**{"n_components": 80, "random_state": 0} | parameters)


def regressor(**parameters):
    return BayesianKernelRegressor(**{"n_components": 80, "random_state": 0} | parameters)


def batches(model, X, y, size):
    for i in range(0, len(y), size):
        model.partial_fit(X[i : i + size], y[i : i + size])
    return model


@pytest.fixture
def few_rows_start(monkeypatch):
    monkeypatch.setattr(estimator, "START_ROWS", FEW)


# -- rows that wait ----------------------------------------------------------------------------
@pytest.mark.parametrize("make", [classifier, regressor])
def test_whoever_predicts_sees_all_rows_learned(make):
    X, y = quadrants(360)
    target = y if make is classifier else X[:, 0] * X[:, 1]
    model = batches(make(), X, target, 40)
    assert not hasattr(model, "posterior_")
    whole = make().fit(X, target)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    assert len(model.stream_["y"]) == 360 and not model.stream_["pending"]
    np.testing.assert_array_equal(model.gamma_, whole.gamma_)


@pytest.mark.parametrize("ask", ["score_samples", "predict_uncertainty"])
@pytest.mark.parametrize("make", [classifier, regressor])
def test_everything_that_looks_at_the_model_learns_first(make, ask):
    X, y = quadrants(130)
    model = make().partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    assert model.stream_["pending"]
    getattr(model, ask)(X[:5])
    assert len(model.stream_["y"]) == 130 and not model.stream_["pending"]


def test_a_model_is_saved_and_copied_with_all_rows_learned(tmp_path):
    X, y = quadrants(130)
    rows = classifier().partial_fit(X[:100], y[:100])
    for keep in (
        lambda model: pickle.loads(pickle.dumps(model)),
        copy.deepcopy,
        lambda model: likelier.save(model, tmp_path / "m") or likelier.load(tmp_path / "m"),
    ):
        model = copy.deepcopy(rows).partial_fit(X[100:], y[100:])
        kept = keep(model)
        assert not kept.stream_["pending"]
        np.testing.assert_array_equal(kept.predict_proba(X), model.predict_proba(X))


def test_a_new_class_is_known_at_once_and_predicted():
    X, y = quadrants(500)
    far = X[400:] + 20.0
    for announced in (None, [0, 1, 2]):
        model = classifier(n_components="auto").partial_fit(X[:400], y[:400], classes=announced)
        model.partial_fit(far, np.full(100, 2))
        np.testing.assert_array_equal(model.classes_, [0, 1, 2])
        assert model.predict_proba(far).shape == (100, 3)
        assert (model.predict(far) == 2).all()


# -- one class at first --------------------------------------------------------------------------
def test_one_class_waits_for_another():
    X, y = quadrants(300)
    model = classifier().partial_fit(X[y == 0][:50], np.zeros(50, dtype=int))
    np.testing.assert_array_equal(model.classes_, [0])
    with pytest.raises(NotFittedError, match="1 class so far, 0; call partial_fit with more rows"):
        model.predict(X)
    pickle.dumps(model)  # nothing can be learned, and nothing is in the way
    model.partial_fit(X[y == 1][:50], np.ones(50, dtype=int))
    assert len(model.stream_["y"]) == 100
    assert model.score(X, y) > 0.8


def test_an_iterator_sorted_by_class_is_as_good_as_any():
    X, y = quadrants(600)
    order = np.argsort(y, kind="stable")
    blocks = [(X[order[i : i + 100]], y[order[i : i + 100]]) for i in range(0, 600, 100)]
    once = classifier().fit(iter(blocks))
    np.testing.assert_array_equal(once.predict_proba(X), classifier().fit(X, y).predict_proba(X))
    assert (classifier().fit(iter(blocks[:1])).predict(X) == y[order[0]]).all()  # a single class


# -- batches that are refused ----------------------------------------------------------------------
def test_a_refused_batch_leaves_no_trace():
    X, y = quadrants(200)
    model = classifier().partial_fit(X[:100], y[:100])
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="text"):
        model.partial_fit(X[:10], np.array(["a", "b"])[y[:10]])
    with pytest.raises(ValueError, match="ample.weight"):
        model.partial_fit(X[100:], y[100:], sample_weight=np.zeros(100))
    np.testing.assert_array_equal(model.classes_, [0, 1])
    assert len(model.stream_["y"]) == 100
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("thin_first", [False, True])
def test_dense_and_sparse_batches_go_together(make, thin_first):
    X, y = quadrants(150)
    kinds = [sparse.csr_matrix, np.asarray] if thin_first else [np.asarray, sparse.csr_matrix]
    mixed = make().partial_fit(kinds[0](X[:80]), y[:80]).partial_fit(kinds[1](X[80:]), y[80:])
    alike = make().partial_fit(kinds[0](X[:80]), y[:80]).partial_fit(kinds[0](X[80:]), y[80:])
    np.testing.assert_array_equal(mixed.predict(X), alike.predict(X))


def test_rows_of_weight_zero_are_not_buffered_and_others_weigh_the_same():
    X, y = quadrants(300)
    weight = np.random.default_rng(0).integers(0, 3, 300).astype(float)
    model = classifier().partial_fit(X[:200], y[:200], sample_weight=weight[:200])
    assert len(model.stream_["y"]) == (weight[:200] > 0).sum()
    model.partial_fit(X[200:], y[200:], sample_weight=weight[200:])
    whole = classifier().fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("loss", ["softmax", "hinge"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_after_a_large_fit_its_posterior_is_the_prior(few_rows_start, n_classes, loss):
    X, y = quadrants(1500)
    y = y + (n_classes == 3) * 2 * (X[:, 2] > 0.8)
    y = np.minimum(y, n_classes - 1)
    model = classifier(loss=loss, n_components=250).fit(X[:1000], y[:1000])
    before, score = model.predict_proba(X), model.score(X[1000:], y[1000:])
    model.partial_fit(X[:20], y[:20])
    assert model.score(X[1000:], y[1000:]) > score - 0.01
    assert np.abs(model.predict_proba(X) - before).mean() < 0.02
    with pytest.raises(ValueError, match="y holds 7, which is not one of the classes"):
        model.partial_fit(X[:100] + 8.0, np.full(100, 7))


def test_after_a_large_fit_regression_rows_add_to_its_sums(few_rows_start):
    X, _ = quadrants(1500)
    y = X[:, 0] * X[:, 1] + 0.1 * np.random.default_rng(1).normal(size=1500)
    inference = Evidence(temperature=2.0)
    parameters = {"n_components": 100, "gamma": 0.6, "alpha": 0.01, "inference": inference}
    model = regressor(**parameters).fit(X[:1000], y[:1000])
    model.partial_fit(X[1000:], y[1000:])
    # the same features, and all rows at once
    twin = regressor(**parameters).fit(X[:1000], y[:1000])
    made = twin._restore(twin).map
    targets = (y - twin.target_mean_) / twin.target_scale_
    Phi = made(X, np.float64)
    A = Phi.T @ Phi / 2.0 + np.diag(ridge(Phi.shape[1], 0.01))
    expected = twin.target_mean_ + twin.target_scale_ * Phi @ np.linalg.solve(
        A, Phi.T @ targets / 2.0
    )
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-5)
    assert model.noise_ == pytest.approx(twin.noise_, rel=0.15)


def test_partial_fit_continues_a_fit_of_a_path_or_list(few_rows_start):
    X, y = quadrants(800)
    blocks = [(X[:400], y[:400]), (X[400:], y[400:])]
    for model, score in ((classifier(), 0.9), (regressor(), 0.5)):
        model.fit(blocks)
        first = model.score(X, y)
        model.partial_fit(X[:20], y[:20])
        assert model.score(X, y) > max(first - 0.01, score)


@pytest.mark.parametrize("shared", [False, True])
def test_precision_from_factors(shared):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2, 9, 5))
    H = A.transpose(0, 2, 1) @ A + np.eye(5)
    roots = posterior_from_blocks(np.zeros((5, 2)), H, 1.0).roots
    expected = H[[0, 0]] if shared else H
    layout = "shared" if shared else "per_class"
    found = WeightPosterior(np.zeros((5, 2)), roots[:1] if shared else roots, layout, 1.0)
    found = found.precision()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    joint = A[0].T @ A[0] + np.eye(5)
    whole = np.linalg.inv(np.linalg.cholesky(np.kron(joint, joint)))
    blocks = WeightPosterior(np.zeros((5, 5)), whole[None], "joint", 1.0).precision()
    full = np.kron(joint, joint)
    for k in range(5):
        part = slice(5 * k, 5 * k + 5)
        np.testing.assert_allclose(blocks[k], full[part, part], rtol=1e-9, atol=1e-9)


def test_precision_from_bases():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 6))
    H, outside = A.T @ A + np.eye(6), np.array([0.5, 2.0])
    bases = np.stack([np.linalg.qr(rng.normal(size=(5, 3)))[0] for _ in range(2)])
    root = np.linalg.inv(np.linalg.cholesky(H))
    weights = WeightPosterior(
        np.zeros((5, 2)), root[None], "reduced", 1.0, bases=bases, outside=1.0 / outside
    )
    blocks = weights.precision()
    for k in range(2):
        Q, part = bases[k], slice(3 * k, 3 * k + 3)
        np.testing.assert_allclose(Q.T @ blocks[k] @ Q, H[part, part], rtol=1e-9)
        away = rng.normal(size=5)
        away -= Q @ (Q.T @ away)
        np.testing.assert_allclose(blocks[k] @ away, outside[k] * away, atol=1e-9)


def test_partial_fit_continues_from_the_joint_posterior(few_rows_start):
    """A batch of few rows leaves the posterior nearly what it was."""
    X, y = quadrants(900)
    y = y + 2 * (X[:, 0] > 0.5)
    model = classifier(n_components=200).fit(X, y)
    weights = model.posterior_["weights"]
    assert weights["layout"] == "reduced"
    assert weights["bases"].shape[:2] == (len(model.classes_), 201)
    before = model.predict_proba(X)
    model.partial_fit(X[:5], y[:5])
    weights = model.posterior_["weights"]
    assert weights["layout"] == "per_class" and weights["bases"] is None
    assert np.abs(model.predict_proba(X) - before).mean() < 0.02


# -- temperature ---------------------------------------------------------------------------------
@pytest.mark.parametrize("loss", ["gaussian", "epsilon_insensitive"])
@pytest.mark.parametrize("features", ["auto", "identity"])
def test_a_row_at_temperature_four_is_a_quarter_of_a_row(features, loss):
    X, _ = quadrants(300)
    y = X[:, 0] + 0.2 * np.random.default_rng(1).normal(size=300)
    parameters = {"alpha": 0.1, "gamma": 0.7, "features": features, "loss": loss}
    warm = regressor(inference=Evidence(temperature=4.0), **parameters).fit(X, y)
    light = regressor(**parameters).fit(X, y, sample_weight=np.full(300, 0.25))
    atol = 1e-9 if loss == "gaussian" else 2e-3  # a search ends where it may
    np.testing.assert_allclose(warm.predict(X), light.predict(X), atol=atol)
    if loss == "gaussian":
        a, b = warm.predict_uncertainty(X), light.predict_uncertainty(X)
        np.testing.assert_allclose(a.epistemic, b.epistemic, rtol=1e-9)
        np.testing.assert_allclose(a.aleatoric, b.aleatoric, rtol=1e-9)
        np.testing.assert_allclose(warm.score_samples(X), light.score_samples(X), rtol=1e-9)


def test_a_search_does_not_undo_the_temperature():
    X, _ = quadrants(300)
    y = np.sin(2.0 * X[:, 0]) + 0.2 * np.random.default_rng(1).normal(size=300)
    models = [regressor(inference=Evidence(temperature=T)).fit(X, y) for T in (1.0, 10.0, 1000.0)]
    epistemic = [model.predict_uncertainty(X).epistemic.mean() for model in models]
    scores = [model.score(X, y) for model in models]
    assert epistemic[0] < 0.5 * epistemic[1] < 0.25 * epistemic[2]
    assert scores[0] > scores[2] + 0.02
    assert models[2].alpha_ == pytest.approx(models[0].alpha_, rel=1e-12)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_the_temperature_holds_batch_by_batch(few_rows_start, make):
    X, y = quadrants(1200)
    target = y if make is classifier else X[:, 0] * X[:, 1] + X[:, 2]
    parameters = {"n_components": 60, "gamma": 0.7, "alpha": 0.5}
    warm = batches(make(inference=Evidence(temperature=20.0), **parameters), X, target, 600)
    light = make(**parameters)
    for i in (0, 600):
        light.partial_fit(X[i : i + 600], target[i : i + 600], sample_weight=np.full(600, 0.05))
    if make is classifier:
        np.testing.assert_allclose(
            warm.posterior_["weights"]["mean"], light.posterior_["weights"]["mean"], atol=0.02
        )
        np.testing.assert_allclose(
            warm.stream_["precision"], light.stream_["precision"], rtol=0.02, atol=0.02
        )
    else:
        np.testing.assert_allclose(warm.predict(X), light.predict(X), atol=1e-9)
        np.testing.assert_allclose(warm.noise_, light.noise_, rtol=1e-9)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_an_interruption_loses_no_row(make, monkeypatch):
    X, y = quadrants(200)
    model = make().partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    with monkeypatch.context() as patch:

        def interrupt(*_):
            raise KeyboardInterrupt

        patch.setattr(estimator, "fit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.predict(X)
    np.testing.assert_array_equal(model.predict(X), make().fit(X, y).predict(X))


def test_one_row_leaves_the_noise_open():
    X = np.array([[1.0, 2.0]])
    for y, size in ((5.0, 5.0), (-300.0, 300.0), (0.0, 1.0)):
        for model in (regressor().fit(X, [y]), regressor().partial_fit(X, [y])):
            mean, std = model.predict(X, return_std=True)
            assert mean[0] == pytest.approx(y) and size <= std[0] < 2.0 * size
    many = regressor().fit(np.arange(20.0)[:, None], np.full(20, 5.0))
    assert many.predict(X[:, :1], return_std=True)[1][0] < 0.01  # so many agree


def test_absent_rows_neither_wait_nor_count(few_rows_start):
    X, _ = quadrants(500)
    y = X[:, 0] * X[:, 1]
    one = regressor().partial_fit(X[:400], y[:400]).partial_fit(X[400:], y[400:])
    twice = np.repeat(np.arange(400), 2)  # with them there would be rows enough to let go
    weight = np.tile([1.0, 0.0], 400)
    other = regressor().partial_fit(X[twice], y[twice], sample_weight=weight)
    other.partial_fit(X[400:], y[400:])
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


def test_a_stopped_batch_leaves_no_trace(few_rows_start, monkeypatch):
    X, y = quadrants(900)
    model = classifier().partial_fit(X[:700], y[:700])
    before, p = model.stream_["precision"].copy(), model.predict_proba(X)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(kernel_batches, "posterior_from_blocks", stop)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[700:], y[700:])
    np.testing.assert_array_equal(model.stream_["precision"], before)
    np.testing.assert_array_equal(model.predict_proba(X), p)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_refused_fit_leaves_the_earlier_one_as_it_was(make):
    X, y = quadrants(200)
    model = make().fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((50, 2), np.nan), y[:50])
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("value", [np.nan, -5.0])
def test_weights_of_classes_are_checked_before_a_batch_is_learned(value):
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = (X[:, 0] > 0.0).astype(int)
    model = classifier(class_weight={0: 1.0, 1: value})
    with pytest.raises(ValueError, match=r"class_weight\[1\] must be finite and >= 0"):
        model.partial_fit(X, y)
    assert not hasattr(model, "stream_")


def test_a_batch_may_be_overwritten_before_it_is_learned():
    X = np.random.default_rng(0).standard_normal((60, 2))
    y = X[:, 0].copy()
    kept = BayesianKernelRegressor(random_state=0).partial_fit(X.copy(), y.copy())
    model = BayesianKernelRegressor(random_state=0).partial_fit(X, y)
    rows = X[:5].copy()
    X[:], y[:] = 0.0, 7.0
    np.testing.assert_array_equal(model.predict(rows), kept.predict(rows))


def test_a_large_batch_is_learned_whole():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((21_000, 1)), np.zeros(21_000)
    y[:20] = 1.0
    model = BayesianKernelClassifier(random_state=0, n_components=20)
    model.partial_fit(X[:100], y[20:120])  # a single class, so that rows are buffered
    model.partial_fit(X[100:], np.append(y[:20], y[120:]))
    assert model.predict_proba(X[:10]).shape == (10, 2)
    # twenty of 21,000 rows, and the prior of one row each
    assert 10 / 21_000 < model.predict_proba(X)[:, 1].mean() < 40 / 21_000
