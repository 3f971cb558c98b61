"""Local experts of the kernel regressor: in memory and on streams."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import likelier
from likelier import BayesianKernelRegressor, Evidence
from likelier.kernel_machine import expert_fit, recipe
from likelier.kernel_machine.regression_task import RegressionTask

WAVES, NOISE = 3, 0.2  # too many waves for the landmarks of one machine


@pytest.fixture(scope="module", autouse=True)
def few_are_many():
    """Lower the thresholds so that a few thousand rows count as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RegressionTask, "min_expert_rows", 2500)
        patch.setattr(expert_fit, "ROWS_PER_EXPERT", 300)
        patch.setattr(expert_fit, "MAX_LANDMARKS", 128)
        patch.setattr(recipe, "MIN_COMPONENTS", 64)
        patch.setattr(recipe, "MAX_COMPONENTS", 64)
        yield


def waves(n, seed=0):
    """Waves over a square, an uninformative input, and noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, WAVES, (n, 3)).astype(np.float32)
    y = 10.0 + np.sin(2 * np.pi * X[:, 0]) * np.cos(2 * np.pi * X[:, 1])
    X[:, 2] = rng.normal(size=n)
    return X, y + NOISE * rng.normal(size=n)


@pytest.fixture(scope="module")
def rows():
    return *waves(5000), *waves(2000, seed=1)


@pytest.fixture(scope="module")
def model(rows, few_are_many):
    return BayesianKernelRegressor(random_state=0).fit(rows[0], rows[1])


def counts(model):
    """Rows of every expert."""
    return model.posterior_["experts"]["counts"]


def error(model, X, y):
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


# -- what they give -------------------------------------------------------------------------
def test_experts_resolve_what_one_model_cannot(rows, model):
    X, y, X_test, y_test = rows
    alone = BayesianKernelRegressor(inference=Evidence(n_experts=0), random_state=0).fit(X, y)
    assert alone.n_experts_ == 0 and alone.posterior_["global_scale"] == 1.0
    assert model.n_experts_ == 16
    assert counts(model).sum() == 5000
    assert error(model, X_test, y_test) < 0.7 * error(alone, X_test, y_test)
    gain = model.log_predictive_density(X_test, y_test) - alone.log_predictive_density(
        X_test, y_test
    )
    assert gain.mean() > 0.3


def test_intervals_and_noise_are_right(rows, model):
    X_test, y_test = rows[2:]
    low, high = model.predict_interval(X_test, 0.9).T
    assert 0.87 < np.mean((low <= y_test) & (y_test <= high)) < 0.93
    _, std = model.predict(X_test, return_std=True)
    assert np.mean((model.predict(X_test) - y_test) ** 2 / std**2) == pytest.approx(1.0, abs=0.15)
    parts = model.predict_uncertainty(X_test)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic)
    np.testing.assert_allclose(parts.total, std**2)
    assert model.noise_ == pytest.approx(NOISE, rel=0.1)
    posterior = model.posterior_
    assert posterior["noise"] < posterior["global_noise"] and posterior["global_scale"] > 1.2


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_intervals_are_right_where_there_is_hardly_any_noise(noise):
    """Experts correct the model of all rows, not the leave-one-out models."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (5000, 2))
    y = np.sin(25.0 * X[:, 0]) * np.cos(25.0 * X[:, 1]) + noise * rng.normal(size=5000)
    model = BayesianKernelRegressor(random_state=0).fit(X[:4000], y[:4000])
    assert model.n_experts_
    low, high = model.predict_interval(X[4000:], 0.9).T
    assert 0.86 < np.mean((low <= y[4000:]) & (y[4000:] <= high)) < 0.96
    assert error(model, X[4000:], y[4000:]) < 1.2 * noise + 0.006


def test_smooth_data_have_no_experts():
    """The global model overfits few rows, and leaves no structure in the residuals."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = X[:, 0] + rng.normal(size=3000)
    parameters = {"random_state": 0, "n_components": "auto"}
    model = BayesianKernelRegressor(**parameters).fit(X, y)
    assert model.n_experts_ == 0
    alone = BayesianKernelRegressor(inference=Evidence(n_experts=0), **parameters).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    np.testing.assert_array_equal(model.predict_interval(X), alone.predict_interval(X))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_experts_are_not_worth_it_all_rows_are_learned(seed, monkeypatch):
    """Then the global model is refitted to all rows."""
    monkeypatch.setattr(expert_fit, "GLOBAL_ROWS", 2000)
    monkeypatch.setattr(expert_fit, "choose_experts", lambda *_: None)  # none are worth it
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3000, 3))
    y = X[:, 0] + rng.normal(size=3000)
    weight = np.full(3000, 0.01)
    model = BayesianKernelRegressor(random_state=seed).fit(X, y, weight)
    alone = BayesianKernelRegressor(inference=Evidence(n_experts=0), random_state=seed).fit(
        X, y, weight
    )
    assert model.n_experts_ == 0
    np.testing.assert_array_equal(
        model.posterior_["weights"]["mean"], alone.posterior_["weights"]["mean"]
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_the_global_model_learns_some_of_very_many_rows(rows, model, monkeypatch, streamed):
    monkeypatch.setattr(expert_fit, "GLOBAL_ROWS", 2000)
    X, y, X_test, y_test = rows
    data = ([(X[:2500], y[:2500]), (X[2500:], y[2500:])],) if streamed else (X, y)
    some = BayesianKernelRegressor(random_state=0).fit(*data)
    assert counts(some).sum() == 5000
    assert error(some, X_test, y_test) < 1.1 * error(model, X_test, y_test)
    low, high = some.predict_interval(X_test, 0.9).T
    assert 0.86 < np.mean((low <= y_test) & (y_test <= high)) < 0.94


def test_few_rows_are_learned_as_without_experts():
    X, y = waves(2400)
    model = BayesianKernelRegressor(random_state=0).fit(X, y)
    alone = BayesianKernelRegressor(inference=Evidence(n_experts=0), random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict_quantiles(X), alone.predict_quantiles(X))


def test_out_of_support_nothing_is_known(rows, model):
    X, y, X_test, _ = rows
    far = np.full((1, 3), 1e3)
    assert model.score_samples(far)[0] < model.score_samples(X_test).min()
    assert model.score_samples(far)[0] == pytest.approx(0.0, abs=1e-3)
    alone = BayesianKernelRegressor(inference=Evidence(n_experts=0), random_state=0).fit(X, y)
    _, std = model.predict(far, return_std=True)
    assert std > 0.8 * alone.predict(far, return_std=True)[1]


def test_out_of_support_experts_add_nothing_however_much_rows_weigh(rows):
    X, y = rows[:2]
    heavy = BayesianKernelRegressor(inference=Evidence(n_experts=8), random_state=0).fit(
        X, y, np.full(len(y), 1e4)
    )
    far = 1e3 * np.array([[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    np.testing.assert_allclose(heavy.predict(far), heavy.target_mean_, atol=1e-3)


def test_predictions_do_not_depend_on_the_rows_beside(rows, model):
    some = rows[2][:40]
    mean, std = model.predict(some, return_std=True)
    for i, row in enumerate(some):
        np.testing.assert_allclose(model.predict(row[None]), mean[i], rtol=1e-8)
        np.testing.assert_allclose(model.predict(row[None], return_std=True)[1], std[i], rtol=1e-8)


# -- how rows come --------------------------------------------------------------------------
def test_same_seed_same_bits_for_any_threads(rows, model):
    X, y, X_test, _ = rows
    two = BayesianKernelRegressor(random_state=0, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(model.predict_interval(X_test), two.predict_interval(X_test))


def test_sparse_and_double_rows_are_the_same(rows):
    X, y, X_test = rows[0][:1900], rows[1][:1900], rows[2]  # so few have an order of their own
    parameters = {"random_state": 0, "inference": Evidence(n_experts=8)}
    model = BayesianKernelRegressor(**parameters).fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    for kind in (sparse.csr_array, np.float64):
        other = BayesianKernelRegressor(**parameters).fit(kind(X), y)
        again, other_std = other.predict(kind(X_test), return_std=True)
        assert np.sqrt(np.mean((again - mean) ** 2)) < 0.1 * NOISE
        np.testing.assert_allclose(other_std, std, rtol=0.2)


@pytest.mark.parametrize("unit", [1e-4, 50.0])
def test_weights_of_rows(rows, unit):
    """Normalised weights carry as much information as rows; heavy rows count as many."""
    X, y, X_test, y_test = rows
    parameters = {"random_state": 0, "inference": Evidence(n_experts=8)}
    plain = BayesianKernelRegressor(**parameters).fit(X, y)
    weighed = BayesianKernelRegressor(**parameters).fit(X, y, np.full(len(y), unit))
    assert error(weighed, X_test, y_test) == pytest.approx(error(plain, X_test, y_test), rel=0.1)
    assert weighed.noise_ == pytest.approx(plain.noise_, rel=0.2)


def test_streams_come_close(rows, model):
    X, y, X_test, y_test = rows
    cuts = [slice(i, i + 700) for i in range(0, len(y), 700)]

    def blocks():
        return ((X[rows], y[rows]) for rows in cuts)

    read = BayesianKernelRegressor(random_state=0).fit(blocks)
    assert counts(read).sum() == 5000
    assert error(read, X_test, y_test) < 1.1 * error(model, X_test, y_test)
    low, high = read.predict_interval(X_test, 0.9).T
    assert 0.86 < np.mean((low <= y_test) & (y_test <= high)) < 0.94


def test_saving_and_time(rows, model, tmp_path):
    X, y, X_test, _ = rows
    likelier.save(model, tmp_path / "model")
    again = likelier.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_interval(X_test), again.predict_interval(X_test))
    with pytest.raises(ValueError, match="has local experts"):
        again.partial_fit(X[:100], y[:100])
    quick = BayesianKernelRegressor(random_state=0, time_budget=1e-9).fit(X, y)
    assert quick.n_experts_ == 0
    assert np.isfinite(quick.predict_interval(X_test)).all()


@pytest.mark.parametrize(
    "word",
    [{"loss": "epsilon_insensitive"}, {"inference__temperature": 2.0}, {"features": "fourier"}],
)
def test_parameters_without_experts(rows, word):
    model = BayesianKernelRegressor(inference=Evidence(n_experts=4), random_state=0)
    with pytest.raises(ValueError, match="n_experts above one"):
        model.set_params(**word).fit(rows[0], rows[1])
    model.set_params(inference__n_experts="auto").fit(rows[0][:2600], rows[1][:2600])
    assert model.n_experts_ == 0


@pytest.mark.parametrize("parameters", [{}, {"inference": Evidence(n_experts=64)}])
def test_few_distinct_rows(parameters):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (6000, 1)).astype(float)
    y = X[:, 0] + rng.normal(size=6000)
    model = BayesianKernelRegressor(random_state=0, **parameters).fit(X, y)
    np.testing.assert_allclose(model.predict([[0.0], [1.0]]), [0.0, 1.0], atol=0.1)
    assert model.noise_ == pytest.approx(1.0, rel=0.1)
