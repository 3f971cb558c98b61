"""Local experts of the kernel classifier: in memory and on streams."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import likelier
from likelier import BayesianKernelClassifier, Evidence
from likelier.kernel_machine import expert_fit, recipe
from likelier.kernel_machine.class_experts import CorrectedClasses
from likelier.kernel_machine.class_task import ClassTask

BOARD = 8  # squares on a side: too many borders for the landmarks of one machine


@pytest.fixture(scope="module", autouse=True)
def few_are_many():
    """Lower the thresholds so that a few thousand rows count as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassTask, "min_expert_rows", 2500)
        patch.setattr(expert_fit, "ROWS_PER_EXPERT", 300)
        patch.setattr(expert_fit, "MAX_LANDMARKS", 128)
        patch.setattr(recipe, "MIN_COMPONENTS", 64)
        patch.setattr(recipe, "MAX_COMPONENTS", 64)
        yield


def board(n, seed=0, n_classes=2, noise_inputs=1):
    """A checkerboard."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, BOARD, (n, 2))
    y = np.floor(X).sum(axis=1).astype(int) % n_classes
    return np.hstack([X, rng.normal(size=(n, noise_inputs))]).astype(np.float32), y


@pytest.fixture(scope="module")
def rows():
    return *board(5000), *board(2000, seed=1)


@pytest.fixture(scope="module")
def model(rows, few_are_many):
    return BayesianKernelClassifier(random_state=0).fit(rows[0], rows[1])


def test_experts_resolve_what_one_model_cannot(rows, model):
    X, y, X_test, y_test = rows
    alone = BayesianKernelClassifier(inference=Evidence(n_experts=0), random_state=0).fit(X, y)
    assert alone.n_experts_ == 0
    assert model.n_experts_ == 16
    assert counts(model).sum() == 5000
    assert model.score(X_test, y_test) > alone.score(X_test, y_test) + 0.2
    p = model.predict_proba(X_test)
    assert (model.classes_[p.argmax(axis=1)] == model.predict(X_test)).all()


def counts(model):
    """Rows of every expert."""
    return model.posterior_["experts"]["counts"]


def smooth(n, seed):
    """One informative input: a single model suffices."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] + rng.logistic(size=n) > 0).astype(int)


def test_smooth_data_have_experts_by_chance_only():
    """Chance passes the half standard error rule; over six of eight seeds once in 80."""
    n_let_in, excess = 0, []
    for seed in range(8):
        X, y = smooth(6000, seed)
        model = BayesianKernelClassifier(random_state=seed).fit(X[:3000], y[:3000])
        alone = BayesianKernelClassifier(inference=Evidence(n_experts=0), random_state=seed).fit(
            X[:3000], y[:3000]
        )
        n_let_in += bool(model.n_experts_)
        p, q = (m.predict_proba(X[3000:])[np.arange(3000), y[3000:]] for m in (model, alone))
        excess.append(float(np.log(q / p).mean()))
    assert n_let_in <= 6
    assert np.mean(excess) < 1e-3 and max(excess) < 5e-3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_experts_are_not_worth_it_all_rows_are_learned(seed, monkeypatch):
    monkeypatch.setattr(expert_fit, "GLOBAL_ROWS", 2000)
    monkeypatch.setattr(expert_fit, "choose_experts", lambda *_: None)
    X, y = smooth(3000, seed)
    model = BayesianKernelClassifier(random_state=seed).fit(X, y)
    alone = BayesianKernelClassifier(inference=Evidence(n_experts=0), random_state=seed).fit(X, y)
    assert model.n_experts_ == 0
    np.testing.assert_array_equal(
        model.posterior_["weights"]["mean"], alone.posterior_["weights"]["mean"]
    )


def test_out_of_support_nothing_is_known(rows, model):
    X_test = rows[2]
    far = model.predict_proba(np.full((1, 3), 1e3))
    assert far.max() < 0.65
    assert model.score_samples(X_test).min() > model.score_samples(np.full((1, 3), 1e3))[0]


def test_same_seed_same_bits_for_any_threads(rows, model):
    X, y, X_test, _ = rows
    two = BayesianKernelClassifier(random_state=0, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X_test), two.predict_proba(X_test))


def test_more_classes_weights_and_labels(rows):
    X, colour = board(4000, n_classes=3)
    y = np.array(["black", "white", "red"])[colour]
    X_test, colour_test = board(1000, seed=1, n_classes=3)
    model = BayesianKernelClassifier(inference=Evidence(n_experts=16), random_state=0)
    model.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y, np.full(4000, 2.0))
    assert model.posterior_["experts"]["weights"].shape[2] == 3
    truth = np.array(["black", "white", "red"])[colour_test]
    assert model.score(pd.DataFrame(X_test, columns=["a", "b", "c"]), truth) > 0.85


def test_a_weight_is_as_many_rows():
    X, y = board(3000)
    twice = np.repeat(np.arange(3000), 2)
    parameters = {"random_state": 0, "inference": Evidence(n_experts=4)}
    weighted = BayesianKernelClassifier(**parameters).fit(X, y, np.full(3000, 2.0))
    repeated = BayesianKernelClassifier(**parameters).fit(X[twice], y[twice])
    assert counts(weighted).sum() == 3000
    away = weighted.predict_proba(X[:500]) - repeated.predict_proba(X[:500])
    assert np.abs(away).mean() < 0.1  # other random subsets and landmarks


def test_sparse_rows_are_the_same(rows):
    X, y, X_test = rows[0][:1900], rows[1][:1900], rows[2]  # so few have an order of their own
    parameters = {"random_state": 0, "inference": Evidence(n_experts=8)}
    dense = BayesianKernelClassifier(**parameters).fit(X, y).predict_proba(X_test)
    thin = BayesianKernelClassifier(**parameters).fit(sparse.csr_array(X), y)
    away = dense - thin.predict_proba(sparse.csr_array(X_test))
    assert np.abs(away).mean() < 0.02  # sparse rows are not centred, which rounds otherwise


def test_save_and_load(rows, model, tmp_path):
    X_test = rows[2]
    likelier.save(model, tmp_path / "model")
    again = likelier.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_proba(X_test), again.predict_proba(X_test))


def test_streams_come_close(rows, model):
    X, y, X_test, y_test = rows
    cuts = [slice(i, i + 700) for i in range(0, len(y), 700)]

    def blocks():
        return ((X[rows], y[rows]) for rows in cuts)

    read = BayesianKernelClassifier(random_state=0).fit(blocks)
    assert counts(read).sum() == 5000
    assert read.score(X_test, y_test) > model.score(X_test, y_test) - 0.05


def test_time_budget_leaves_a_model(rows):
    X, y, X_test, _ = rows
    model = BayesianKernelClassifier(random_state=0, time_budget=1e-9).fit(X, y)
    assert np.isfinite(model.predict_proba(X_test)).all()


@pytest.mark.parametrize(
    "word", [{"loss": "hinge"}, {"inference__temperature": 2.0}, {"features": "fourier"}]
)
def test_parameters_without_experts(rows, word):
    model = BayesianKernelClassifier(inference=Evidence(n_experts=4), random_state=0)
    with pytest.raises(ValueError, match="n_experts above one"):
        model.set_params(**word).fit(rows[0], rows[1])
    model.set_params(inference__n_experts="auto").fit(rows[0][:2600], rows[1][:2600])
    assert model.n_experts_ == 0


@pytest.mark.parametrize("n_experts", ["auto", 4])
def test_a_class_of_weight_zero_has_no_rows(n_experts):
    X, y = board(3600, n_classes=3)
    some = y != 2
    # with other seeds a few rows far from all landmarks give the class up to 0.2
    parameters = {"random_state": 4, "inference": Evidence(n_experts=n_experts)}
    nothing = BayesianKernelClassifier(class_weight={2: 0.0}, **parameters).fit(X, y)
    weighed = BayesianKernelClassifier(**parameters).fit(X, y, some.astype(float))
    assert list(nothing.classes_) == [0, 1, 2]
    np.testing.assert_array_equal(nothing.predict_proba(X), weighed.predict_proba(X))
    assert nothing.predict_proba(X[some])[:, 2].max() < 0.1
    blocks = [(X[i : i + 500], y[i : i + 500]) for i in range(0, 3600, 500)]
    read = BayesianKernelClassifier(class_weight={2: 0.0}, **parameters).fit(blocks)
    assert list(read.classes_) == [0, 1, 2]
    np.testing.assert_allclose(read.input_scale_, X[some].std(axis=0), rtol=1e-4)
    if n_experts == 4:
        for model in (nothing, read):
            assert counts(model).sum() == some.sum()


def test_no_class_weighs_anything():
    X, y = board(600)
    model = BayesianKernelClassifier(class_weight={0: 0.0, 1: 0.0})
    for data in [(X, y), ([(X, y)],)]:
        with pytest.raises(ValueError, match="no row to learn from"):
            model.fit(*data)


@pytest.mark.parametrize("n_experts", [64, 128])
def test_more_experts_than_rows_can_validate(n_experts):
    X, y = board(150)
    model = BayesianKernelClassifier(inference=Evidence(n_experts=n_experts), random_state=0).fit(
        X, y
    )
    assert model.n_experts_ == 0
    alone = BayesianKernelClassifier(inference=Evidence(n_experts=0), random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))


@pytest.mark.parametrize("parameters", [{}, {"inference": Evidence(n_experts=64)}])
def test_few_distinct_rows(parameters):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (6000, 1)).astype(float)
    y = (rng.random(6000) < 0.2 + 0.6 * X[:, 0]).astype(int)
    model = BayesianKernelClassifier(random_state=0, **parameters).fit(X, y)
    if parameters:
        assert (counts(model) > 0).sum() == 2
    np.testing.assert_allclose(model.predict_proba([[0.0], [1.0]])[:, 1], [0.2, 0.8], atol=0.05)


def test_validation_uses_few_rows_of_however_many_there_are(rows, monkeypatch):
    X, y = rows[:2]
    monkeypatch.setattr(expert_fit, "TRIAL_ROWS", 40)
    seen, learn = [], CorrectedClasses.fit

    def fit(self, region, feature_map, choice):
        seen.append(region.n)
        return learn(self, region, feature_map, choice)

    monkeypatch.setattr(CorrectedClasses, "fit", fit)
    blocks = [(X[i : i + 700], y[i : i + 700]) for i in range(0, 5000, 700)]
    BayesianKernelClassifier(inference=Evidence(n_experts=16), random_state=0).fit(blocks)
    assert len(seen) > 48 and set(seen[:-16]) == {30}  # 40 but for those held out
    assert sum(seen[-16:]) == 5000  # the experts themselves


def test_no_experts_are_begun_when_the_time_is_over(rows, monkeypatch):
    """Without time they are not validated, and the global model is not refitted."""
    X, y, X_test, _ = rows
    monkeypatch.setattr(expert_fit, "GLOBAL_ROWS", 2000)
    monkeypatch.setattr(expert_fit, "ExpertValidator", None)
    model = BayesianKernelClassifier(random_state=0, time_budget=1e-9).fit(X, y)
    assert model.n_experts_ == 0
    assert np.isfinite(model.predict_proba(X_test)).all()


def test_regions_without_rows_use_the_global_model(rows, model):
    X_test = rows[2]
    whole = model.posterior_
    experts = whole["experts"]
    empty = experts | {"counts": np.zeros_like(experts["counts"])}
    model.posterior_ = whole | {"experts": empty}
    p, cover = model.predict_proba(X_test), model.score_samples(X_test)
    model.posterior_ = whole | {"experts": None}
    alone, cover_alone = model.predict_proba(X_test), model.score_samples(X_test)
    model.posterior_ = whole
    np.testing.assert_array_equal(p, alone)
    np.testing.assert_array_equal(cover, cover_alone)


def test_more_rows_do_not_follow_experts(rows, model):
    X, y = rows[:2]
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="has local experts"):
        model.partial_fit(X[:100], y[:100])
    np.testing.assert_array_equal(model.predict_proba(X), before)
