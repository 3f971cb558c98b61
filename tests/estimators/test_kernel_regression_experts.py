"""Local experts of the kernel regressor: in memory, on streams and in `partial_fit`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import likelier
from likelier import BayesianKernelRegressor
from likelier.kernel_machine import expert_fit as kernel_experts
from likelier.kernel_machine import expert_stream as kernel_expert_stream
from likelier.kernel_machine import regression_expert_fit as regression_expert_fit

WAVES, NOISE = 3, 0.2  # too many waves for the landmarks of one machine


@pytest.fixture(scope="module", autouse=True)
def few_are_many():
    """Lower the thresholds so that a few thousand rows count as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regression_expert_fit, "MIN_EXPERT_ROWS", 2500)
        patch.setattr(kernel_experts, "ROWS_PER_EXPERT", 300)
        patch.setattr(kernel_experts, "MAX_LANDMARKS", 128)
        patch.setattr(kernel_experts, "MAX_BUFFER_ROWS", 150)
        patch.setattr("likelier.kernel_machine.estimator.MIN_COMPONENTS", 64)
        patch.setattr("likelier.kernel_machine.estimator.MAX_COMPONENTS", 64)
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


def error(model, X, y):
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def interrupt(monkeypatch, model, X, y, at=5):
    """A fit that is interrupted before one of the experts has learned."""
    with monkeypatch.context() as patch:
        learn = kernel_experts.ExpertFit.store

        def keep(self, solution):
            if solution.expert == at:
                raise KeyboardInterrupt
            learn(self, solution)

        patch.setattr(kernel_experts.ExpertFit, "store", keep)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    return model


# -- what they give -------------------------------------------------------------------------
def test_experts_resolve_what_one_model_cannot(rows, model):
    X, y, X_test, y_test = rows
    alone = BayesianKernelRegressor(n_experts=0, random_state=0).fit(X, y)
    assert alone.experts_ == [{}] and alone.global_scale_ == 1.0
    assert len(model.experts_[0]["counts"]) == 16
    assert model.experts_[0]["counts"].sum() == 5000
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
    assert model.noise_[0] == pytest.approx(NOISE, rel=0.1)
    assert model.noise_[0] < np.sqrt(model.global_noise_[0]) * model.target_scale_


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_intervals_are_right_where_there_is_hardly_any_noise(noise):
    """Experts correct the model of all rows, not the leave-one-out models."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (5000, 2))
    y = np.sin(25.0 * X[:, 0]) * np.cos(25.0 * X[:, 1]) + noise * rng.normal(size=5000)
    model = BayesianKernelRegressor(random_state=0).fit(X[:4000], y[:4000])
    assert model.experts_[0]
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
    assert model.experts_ == [{}] and model.checkpoint_ == {}
    alone = BayesianKernelRegressor(n_experts=0, **parameters).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    np.testing.assert_array_equal(model.predict_interval(X), alone.predict_interval(X))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_experts_are_not_worth_it_all_rows_are_learned(seed, monkeypatch):
    """Then the global model is refitted to all rows."""
    monkeypatch.setattr(kernel_experts, "GLOBAL_ROWS", 2000)
    monkeypatch.setattr(kernel_experts, "choose_experts", lambda *_: None)  # none are worth it
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3000, 3))
    y = X[:, 0] + rng.normal(size=3000)
    weight = np.full(3000, 0.01)
    model = BayesianKernelRegressor(random_state=seed).fit(X, y, weight)
    alone = BayesianKernelRegressor(random_state=seed, n_experts=0).fit(X, y, weight)
    assert model.experts_ == [{}]
    np.testing.assert_array_equal(model.weights_[0], alone.weights_[0])


@pytest.mark.parametrize("streamed", [False, True])
def test_the_global_model_learns_some_of_very_many_rows(rows, model, monkeypatch, streamed):
    monkeypatch.setattr(kernel_experts, "GLOBAL_ROWS", 2000)
    X, y, X_test, y_test = rows
    data = ([(X[:2500], y[:2500]), (X[2500:], y[2500:])],) if streamed else (X, y)
    some = BayesianKernelRegressor(random_state=0).fit(*data)
    assert some.sums_weight_ == 2000 and some.experts_[0]["counts"].sum() == 5000
    assert error(some, X_test, y_test) < 1.1 * error(model, X_test, y_test)
    low, high = some.predict_interval(X_test, 0.9).T
    assert 0.86 < np.mean((low <= y_test) & (y_test <= high)) < 0.94


def test_few_rows_are_learned_as_without_experts():
    X, y = waves(2400)
    model = BayesianKernelRegressor(random_state=0).fit(X, y)
    alone = BayesianKernelRegressor(random_state=0, n_experts=0).fit(X, y)
    np.testing.assert_array_equal(model.predict_quantiles(X), alone.predict_quantiles(X))


def test_out_of_support_nothing_is_known(rows, model):
    X, y, X_test, _ = rows
    far = np.full((1, 3), 1e3)
    assert model.score_samples(far)[0] < model.score_samples(X_test).min()
    assert model.score_samples(far)[0] == pytest.approx(0.0, abs=1e-3)
    alone = BayesianKernelRegressor(n_experts=0, random_state=0).fit(X, y)
    _, std = model.predict(far, return_std=True)
    assert std > 0.8 * alone.predict(far, return_std=True)[1]


def test_out_of_support_experts_add_nothing_however_much_rows_weigh(rows):
    X, y = rows[:2]
    heavy = BayesianKernelRegressor(random_state=0, n_experts=8).fit(X, y, np.full(len(y), 1e4))
    far = 1e3 * np.array([[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    np.testing.assert_allclose(heavy.predict(far), heavy.target_mean_, atol=1e-3)


def test_predictions_do_not_depend_on_the_rows_beside(rows, model):
    some = rows[2][:40]
    mean, std = model.predict(some, return_std=True)
    for i, row in enumerate(some):
        np.testing.assert_allclose(model.predict(row[None]), mean[i], rtol=1e-8)
        np.testing.assert_allclose(model.predict(row[None], return_std=True)[1], std[i], rtol=1e-8)


def test_draws_of_the_global_model_are_as_wide_as_its_predictions(model):
    draws = model.coef_draws(2000, random_state=0)[:, :, 0]
    variance = model.global_scale_[0] * (model.noise_[0] / model.target_scale_) ** 2
    expected = np.sqrt(variance) * np.linalg.norm(model.roots_[0], axis=0)
    assert model.global_scale_[0] > 1.2
    np.testing.assert_allclose(draws.std(axis=0), expected, rtol=0.1)


# -- how rows come --------------------------------------------------------------------------
def test_same_seed_same_bits_for_any_threads(rows, model):
    X, y, X_test, _ = rows
    two = BayesianKernelRegressor(random_state=0, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(model.predict_interval(X_test), two.predict_interval(X_test))


def test_sparse_and_double_rows_are_the_same(rows, model):
    X, y, X_test, _ = rows
    mean, std = model.predict(X_test, return_std=True)
    for kind in (sparse.csr_array, np.float64):
        other = BayesianKernelRegressor(random_state=0).fit(kind(X), y)
        again, other_std = other.predict(kind(X_test), return_std=True)
        assert np.sqrt(np.mean((again - mean) ** 2)) < 0.1 * NOISE
        np.testing.assert_allclose(other_std, std, rtol=0.2)


@pytest.mark.parametrize("unit", [1e-4, 50.0])
def test_weights_of_rows(rows, unit):
    """Normalised weights carry as much information as rows; heavy rows count as many."""
    X, y, X_test, y_test = rows
    parameters = {"random_state": 0, "n_experts": 8}
    plain = BayesianKernelRegressor(**parameters).fit(X, y)
    weighed = BayesianKernelRegressor(**parameters).fit(X, y, np.full(len(y), unit))
    assert error(weighed, X_test, y_test) == pytest.approx(error(plain, X_test, y_test), rel=0.1)
    assert weighed.noise_[0] == pytest.approx(plain.noise_[0], rel=0.2)


@pytest.mark.parametrize("once", [False, True])
def test_streams_come_close(rows, model, once):
    X, y, X_test, y_test = rows
    cuts = [slice(i, i + 700) for i in range(0, len(y), 700)]

    def blocks():
        return ((X[rows], y[rows]) for rows in cuts)

    read = BayesianKernelRegressor(random_state=0).fit(blocks() if once else blocks)
    assert read.experts_[0]["counts"].sum() == 5000
    assert error(read, X_test, y_test) < 1.1 * error(model, X_test, y_test)
    low, high = read.predict_interval(X_test, 0.9).T
    assert 0.86 < np.mean((low <= y_test) & (y_test <= high)) < 0.94


def test_a_sorted_stream_comes_close(rows, model, monkeypatch):
    """Landmarks of experts cover their regions, not only the first rows."""
    monkeypatch.setattr(kernel_experts, "MAX_BUFFER_ROWS", 50)
    X, y, X_test, y_test = rows
    order = np.argsort(X[:, 0])
    blocks = [(X[part], y[part]) for part in np.array_split(order, 50)]
    read = BayesianKernelRegressor(random_state=0).fit(blocks)
    assert read.experts_[0]["counts"].sum() == 5000
    assert error(read, X_test, y_test) < 1.1 * error(model, X_test, y_test)


def test_batch_by_batch_rows_are_let_go(rows, monkeypatch, tmp_path):
    monkeypatch.setattr(kernel_expert_stream, "BUFFERED_VALUES", 3 * 5500)
    X, y = waves(8000)
    X_test, y_test = rows[2:]
    model, errors = BayesianKernelRegressor(random_state=0), []
    for start in range(0, 8000, 2000):
        model.partial_fit(X[start : start + 2000], y[start : start + 2000])
        errors.append(error(model, X_test, y_test))
    assert model.stream_["expert_rows"] is None
    waiting = sum(len(part["codes"]) for part in model.stream_["waiting"].values())
    assert model.experts_[0]["counts"].sum() + waiting == 8000
    assert waiting > 0 and model.experts_[0]["counts"].sum() > 6000
    assert errors[-1] < 0.7 * errors[0]
    low, high = model.predict_interval(X_test, 0.9).T
    assert 0.86 < np.mean((low <= y_test) & (y_test <= high)) < 0.94
    likelier.save(model, tmp_path / "model")
    again = likelier.load(tmp_path / "model").partial_fit(X[:500], y[:500])
    model.partial_fit(X[:500], y[:500])
    np.testing.assert_array_equal(model.predict_interval(X_test), again.predict_interval(X_test))


def test_experts_of_the_first_rows_are_refitted():
    """The global model has learned the first rows only."""
    X, y = waves(8500)
    model = BayesianKernelRegressor(random_state=0, n_experts=8)
    model.partial_fit(X[:4000], y[:4000])
    assert model.experts_[0]["counts"].sum() == 4000
    model.partial_fit(X[4000:], y[4000:])
    assert model.stream_["n_global"] == 4000
    assert model.experts_[0]["counts"].sum() == 8500


def test_after_a_fit_batches_teach_its_experts(rows, model, tmp_path):
    X_test, y_test = rows[2:]
    likelier.save(model, tmp_path / "model")
    again = likelier.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_interval(X_test), again.predict_interval(X_test))
    X, y = waves(3000, seed=2)
    again.partial_fit(X, y)
    waiting = sum(len(part["codes"]) for part in again.stream_["waiting"].values())
    assert again.experts_[0]["counts"].sum() + waiting == 8000
    assert error(again, X_test, y_test) < error(model, X_test, y_test)


def test_an_ensemble_has_experts_for_each(rows):
    X, y, X_test, y_test = rows
    two = BayesianKernelRegressor(random_state=0, n_particles=2).fit(X, y)
    assert len(two.experts_) == 2 and all(plain["counts"].sum() == 5000 for plain in two.experts_)
    low, high = two.predict_interval(X_test, 0.9).T
    assert 0.86 < np.mean((low <= y_test) & (y_test <= high)) < 0.94
    assert np.isfinite(two.score_samples(X_test)).all()


# -- time, and resuming ---------------------------------------------------------------------
def test_a_fit_out_of_time_resumes_without_a_budget(rows):
    X, y, X_test, y_test = rows
    model = BayesianKernelRegressor(random_state=0, time_budget=1e-9, warm_start=True).fit(X, y)
    assert model.experts_ == [{}] and model.checkpoint_
    assert np.isfinite(model.predict_interval(X_test)).all()
    model.fit(X, y)  # still no time: no change
    assert model.experts_ == [{}] and model.checkpoint_
    before = error(model, X_test, y_test)
    model.set_params(time_budget=None).fit(X, y)
    assert model.checkpoint_ == {}
    assert error(model, X_test, y_test) < 0.8 * before


def test_an_interrupted_fit_resumes_bit_identically(rows, model, monkeypatch, tmp_path):
    X, y, X_test, _ = rows
    part = BayesianKernelRegressor(random_state=0, warm_start=True)
    interrupt(monkeypatch, part, X, y)
    counts = part.experts_[0]["counts"]
    assert (counts[:5] > 0).all() and not counts[5:].any()
    likelier.save(part, tmp_path / "part")
    for again in (part, likelier.load(tmp_path / "part")):  # also in another process
        again.fit(X, y)
        assert again.checkpoint_ == {}
        np.testing.assert_array_equal(
            again.predict_interval(X_test), model.predict_interval(X_test)
        )
        for name in ("weights", "roots", "counts", "landmarks"):
            np.testing.assert_array_equal(again.experts_[0][name], model.experts_[0][name])


def test_where_no_expert_has_learned_the_noise_is_that_of_the_global_model(rows, monkeypatch):
    X, y, X_test, y_test = rows
    part = interrupt(monkeypatch, BayesianKernelRegressor(random_state=0), X, y)
    _, std = part.predict(X_test, return_std=True)
    tree = kernel_experts.Experts(**part.experts_[0])
    alone = part.experts_[0]["counts"][tree.regions(X_test)] == 0
    assert std[alone].mean() > 1.5 * std[~alone].mean()
    low, high = part.predict_interval(X_test, 0.9).T
    inside = (low <= y_test) & (y_test <= high)
    assert inside[alone].mean() > 0.85 and inside[~alone].mean() > 0.85


def test_other_rows_are_refused(rows, monkeypatch):
    X, y, X_test, _ = rows
    part = BayesianKernelRegressor(random_state=0, warm_start=True)
    interrupt(monkeypatch, part, X, y)
    before = part.predict(X_test)
    for other in ((X[:-1], y[:-1]), (X, y + 1.0)):
        with pytest.raises(ValueError, match="resumes an interrupted fit and needs the same"):
            part.fit(*other)
    with pytest.raises(
        ValueError, match="warm_start resumes .* needs X of the same kind, rows in memory; pass it"
    ):
        part.fit([(X, y)])
    np.testing.assert_array_equal(part.predict(X_test), before)
    anew = part.set_params(warm_start=False).fit(X, y + 1.0)
    assert anew.checkpoint_ == {}


@pytest.mark.parametrize(
    "word", [{"loss": "epsilon_insensitive"}, {"temperature": 2.0}, {"features": "fourier"}]
)
def test_parameters_without_experts(rows, word):
    with pytest.raises(ValueError, match="n_experts above one"):
        BayesianKernelRegressor(n_experts=4, **word).fit(rows[0], rows[1])
    model = BayesianKernelRegressor(random_state=0, **word).fit(rows[0][:2600], rows[1][:2600])
    assert model.experts_ == [{}]


@pytest.mark.parametrize("parameters", [{}, {"n_experts": 64}])
def test_few_distinct_rows(parameters):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (6000, 1)).astype(float)
    y = X[:, 0] + rng.normal(size=6000)
    model = BayesianKernelRegressor(random_state=0, **parameters).fit(X, y)
    np.testing.assert_allclose(model.predict([[0.0], [1.0]]), [0.0, 1.0], atol=0.1)
    assert model.noise_[0] == pytest.approx(1.0, rel=0.1)
