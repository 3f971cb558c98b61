"""Local experts of the kernel classifier: in memory, on streams and in `partial_fit`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import likelier
from likelier import BayesianKernelClassifier
from likelier.base import Batch
from likelier.engines import threads
from likelier.kernel_machine import expert_fit as kernel_experts
from likelier.kernel_machine import expert_stream as kernel_expert_stream

BOARD = 8  # squares on a side: too many borders for the landmarks of one machine


@pytest.fixture(scope="module", autouse=True)
def few_are_many():
    """Lower the thresholds so that a few thousand rows count as many."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (kernel_experts, kernel_expert_stream):
            patch.setattr(module, "MIN_EXPERT_ROWS", 2500)
        patch.setattr(kernel_experts, "ROWS_PER_EXPERT", 300)
        patch.setattr(kernel_experts, "MAX_LANDMARKS", 128)
        patch.setattr(kernel_experts, "MAX_BUFFER_ROWS", 150)
        patch.setattr("likelier.kernel_machine.estimator.MIN_COMPONENTS", 64)
        patch.setattr("likelier.kernel_machine.estimator.MAX_COMPONENTS", 64)
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
    alone = BayesianKernelClassifier(n_experts=0, random_state=0).fit(X, y)
    assert alone.experts_ == [{}]
    assert len(model.experts_[0]["counts"]) == 16
    assert model.experts_[0]["counts"].sum() == 5000
    assert model.score(X_test, y_test) > alone.score(X_test, y_test) + 0.2
    p = model.predict_proba(X_test)
    assert (model.classes_[p.argmax(axis=1)] == model.predict(X_test)).all()


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
        alone = BayesianKernelClassifier(random_state=seed, n_experts=0).fit(X[:3000], y[:3000])
        n_let_in += bool(model.experts_[0])
        p, q = (m.predict_proba(X[3000:])[np.arange(3000), y[3000:]] for m in (model, alone))
        excess.append(float(np.log(q / p).mean()))
    assert n_let_in <= 6
    assert np.mean(excess) < 1e-3 and max(excess) < 5e-3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_experts_are_not_worth_it_all_rows_are_learned(seed, monkeypatch):
    monkeypatch.setattr(kernel_experts, "GLOBAL_ROWS", 2000)
    monkeypatch.setattr(kernel_experts, "choose_experts", lambda *_: None)
    X, y = smooth(3000, seed)
    model = BayesianKernelClassifier(random_state=seed).fit(X, y)
    alone = BayesianKernelClassifier(random_state=seed, n_experts=0).fit(X, y)
    assert model.experts_ == [{}]
    np.testing.assert_array_equal(model.weights_[0], alone.weights_[0])


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
    model = BayesianKernelClassifier(random_state=0, n_experts=16)
    model.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y, np.full(4000, 2.0))
    assert model.experts_[0]["weights"].shape[2] == 3
    truth = np.array(["black", "white", "red"])[colour_test]
    assert model.score(pd.DataFrame(X_test, columns=["a", "b", "c"]), truth) > 0.85


def test_a_weight_is_as_many_rows():
    X, y = board(3000)
    twice = np.repeat(np.arange(3000), 2)
    parameters = {"random_state": 0, "n_experts": 4}
    weighted = BayesianKernelClassifier(**parameters).fit(X, y, np.full(3000, 2.0))
    repeated = BayesianKernelClassifier(**parameters).fit(X[twice], y[twice])
    assert weighted.experts_[0]["counts"].sum() == 3000
    away = weighted.predict_proba(X[:500]) - repeated.predict_proba(X[:500])
    assert np.abs(away).mean() < 0.1  # other random subsets and landmarks


def test_sparse_rows_are_the_same(rows):
    X, y, X_test, _ = rows
    X, X_test = X.copy(), X_test.copy()
    parameters = {"random_state": 0, "n_experts": 8}
    dense = BayesianKernelClassifier(**parameters).fit(X, y).predict_proba(X_test)
    thin = BayesianKernelClassifier(**parameters).fit(sparse.csr_array(X), y)
    away = dense - thin.predict_proba(sparse.csr_array(X_test))
    assert np.abs(away).mean() < 0.02  # sparse rows are not centred, which rounds otherwise


def test_save_and_load(rows, model, tmp_path):
    X_test = rows[2]
    likelier.save(model, tmp_path / "model")
    again = likelier.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_proba(X_test), again.predict_proba(X_test))


@pytest.mark.parametrize("once", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_streams_come_close(rows, model, once):
    X, y, X_test, y_test = rows
    cuts = [slice(i, i + 700) for i in range(0, len(y), 700)]

    def blocks():
        return ((X[rows], y[rows]) for rows in cuts)

    read = BayesianKernelClassifier(random_state=0).fit(blocks() if once else blocks)
    assert read.experts_[0]["counts"].sum() == 5000
    assert read.score(X_test, y_test) > model.score(X_test, y_test) - 0.05


def test_batch_by_batch_rows_are_let_go(rows, monkeypatch, tmp_path):
    monkeypatch.setattr(kernel_expert_stream, "BUFFERED_VALUES", 3 * 5500)
    X, y = board(8000)
    X_test, y_test = rows[2:]
    model = BayesianKernelClassifier(random_state=0)
    accuracies = []
    for start in range(0, 8000, 2000):
        model.partial_fit(X[start : start + 2000], y[start : start + 2000], classes=[0, 1])
        accuracies.append(model.score(X_test, y_test))
    assert model.stream_["expert_rows"] is None
    waiting = sum(len(part["codes"]) for part in model.stream_["waiting"].values())
    assert model.experts_[0]["counts"].sum() + waiting == 8000
    assert waiting > 0 and model.experts_[0]["counts"].sum() > 6000
    assert accuracies[-1] > accuracies[0] + 0.2
    likelier.save(model, tmp_path / "model")
    again = likelier.load(tmp_path / "model").partial_fit(X[:500], y[:500])
    model.partial_fit(X[:500], y[:500])
    np.testing.assert_array_equal(model.predict_proba(X_test), again.predict_proba(X_test))


def test_a_class_comes_late():
    X, y = board(4500)
    model = BayesianKernelClassifier(random_state=0)
    model.partial_fit(X[:4000], y[:4000], classes=[0, 1])
    model.partial_fit(X[4000:], y[4000:])
    assert model.experts_[0]
    fresh = X[:200].copy()
    fresh[:, 2] += np.float32(3.0)  # in a corner the others hardly reach
    model.partial_fit(fresh, np.full(200, 7))
    assert list(model.classes_) == [0, 1, 7]
    assert model.experts_[0]["weights"].shape[2] == 3
    np.testing.assert_allclose(model.predict_proba(X[:200]).sum(axis=1), 1.0, atol=1e-12)
    assert (model.predict(X[200:400]) != 7).mean() > 0.7


def test_time_budget_leaves_a_model(rows):
    X, y, X_test, _ = rows
    model = BayesianKernelClassifier(random_state=0, time_budget=1e-9).fit(X, y)
    assert np.isfinite(model.predict_proba(X_test)).all()


def test_interruption_keeps_the_experts_so_far(rows, monkeypatch):
    X, y, X_test, _ = rows
    learn = kernel_experts.ExpertFit.store

    def keep(self, solution):
        if solution.expert == 5:
            raise KeyboardInterrupt
        learn(self, solution)

    monkeypatch.setattr(kernel_experts.ExpertFit, "store", keep)
    model = BayesianKernelClassifier(random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    counts = model.experts_[0]["counts"]
    assert (counts[:5] > 0).all() and not counts[5:].any()
    assert np.isfinite(model.predict_proba(X_test)).all()


def test_progress_reports_the_remaining_time(rows, capsys):
    X, y, _, _ = rows
    BayesianKernelClassifier(random_state=0, verbose=1).fit(X, y)
    out = capsys.readouterr().out
    assert "100.0% of the rows, about 0 s left" in out


@pytest.mark.parametrize("wrong", [-1, 1.5, "many", True])
def test_invalid_parameters_are_named(rows, wrong):
    with pytest.raises((ValueError, TypeError), match="n_experts"):
        BayesianKernelClassifier(n_experts=wrong).fit(rows[0], rows[1])


@pytest.mark.parametrize("word", [{"loss": "hinge"}, {"temperature": 2.0}, {"features": "fourier"}])
def test_parameters_without_experts(rows, word):
    with pytest.raises(ValueError, match="n_experts above one"):
        BayesianKernelClassifier(n_experts=4, **word).fit(rows[0], rows[1])
    model = BayesianKernelClassifier(random_state=0, **word).fit(rows[0][:2600], rows[1][:2600])
    assert model.experts_ == [{}]


@pytest.mark.parametrize("n_experts", ["auto", 4])
def test_a_class_of_weight_zero_has_no_rows(n_experts):
    X, y = board(3600, n_classes=3)
    some = y != 2
    parameters = {"random_state": 0, "n_experts": n_experts}
    nothing = BayesianKernelClassifier(class_weight={2: 0.0}, **parameters).fit(X, y)
    left_out = BayesianKernelClassifier(**parameters)
    left_out.partial_fit(X[some], y[some], classes=[0, 1, 2])  # the same rows, and three classes
    assert list(nothing.classes_) == [0, 1, 2]
    np.testing.assert_array_equal(nothing.predict_proba(X), left_out.predict_proba(X))
    assert nothing.predict_proba(X[some])[:, 2].max() < 0.1
    blocks = [(X[i : i + 500], y[i : i + 500]) for i in range(0, 3600, 500)]
    read = BayesianKernelClassifier(class_weight={2: 0.0}, **parameters).fit(blocks)
    assert list(read.classes_) == [0, 1, 2]
    np.testing.assert_allclose(read.input_scale_, X[some].std(axis=0), rtol=1e-4)
    if n_experts == 4:
        for model in (nothing, read):
            assert model.experts_[0]["counts"].sum() == some.sum()


def test_a_class_of_weight_zero_batch_by_batch():
    X, y = board(6000, n_classes=3)
    model = BayesianKernelClassifier(class_weight={2: 0.0}, random_state=0, n_experts=4)
    for start in range(0, 6000, 1000):
        model.partial_fit(X[start : start + 1000], y[start : start + 1000])
    model.partial_fit(X[y == 2], y[y == 2])
    assert model.stream_["n_rows"] == (y != 2).sum()
    waiting = sum(len(part["codes"]) for part in model.stream_["waiting"].values())
    assert model.experts_[0]["counts"].sum() + waiting == (y != 2).sum()


def test_no_class_weighs_anything():
    X, y = board(600)
    model = BayesianKernelClassifier(class_weight={0: 0.0, 1: 0.0})
    for data in [(X, y), ([(X, y)],)]:
        with pytest.raises(ValueError, match="no row to learn from"):
            model.fit(*data)


@pytest.mark.parametrize("n_experts", [64, 128])
def test_more_experts_than_rows_can_validate(n_experts):
    X, y = board(150)
    model = BayesianKernelClassifier(random_state=0, n_experts=n_experts).fit(X, y)
    assert model.experts_ == [{}]
    alone = BayesianKernelClassifier(random_state=0, n_experts=0).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))


@pytest.mark.parametrize("parameters", [{}, {"n_experts": 64}])
def test_few_distinct_rows(parameters):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (6000, 1)).astype(float)
    y = (rng.random(6000) < 0.2 + 0.6 * X[:, 0]).astype(int)
    model = BayesianKernelClassifier(random_state=0, **parameters).fit(X, y)
    if parameters:
        assert (model.experts_[0]["counts"] > 0).sum() == 2
    np.testing.assert_allclose(model.predict_proba([[0.0], [1.0]])[:, 1], [0.2, 0.8], atol=0.05)


def test_rows_are_drawn_in_bounded_memory_and_any_blocks():
    X, y = np.arange(10_000.0)[:, None], np.arange(10_000) % 2
    found = []
    for size in (10_000, 700, 7):
        drawn, most = kernel_experts.ReservoirSample(50, np.random.default_rng(0)), 0
        for start in range(0, 10_000, size):
            rows = slice(start, start + size)
            drawn.add(Batch(X[rows], y[rows], 2.0 * X[rows, 0]))
            most = max(most, sum(part.n_rows for part in drawn.parts))
        assert most <= 100
        found.append(drawn.rows())
    for rows in found:
        assert rows.n_rows == len(np.unique(rows.X)) == 50
        np.testing.assert_array_equal(rows.X, found[0].X)
        np.testing.assert_array_equal(rows.y, rows.X[:, 0] % 2)
        np.testing.assert_array_equal(rows.weight, 2.0 * rows.X[:, 0])
    assert 3500 < found[0].X.mean() < 6500


def test_validation_uses_few_rows_of_however_many_there_are(rows, monkeypatch):
    X, y = rows[:2]
    monkeypatch.setattr(kernel_experts, "TRIAL_ROWS", 40)
    seen, look = [], kernel_experts.GlobalClassifier.region

    def region(self, batch):
        seen.append(batch.n_rows)
        return look(self, batch)

    def learn(self, choice):
        """Stop after the choice."""

    monkeypatch.setattr(kernel_experts.GlobalClassifier, "region", region)
    monkeypatch.setattr(kernel_experts.ExpertFit, "learn", learn)
    blocks = [(X[i : i + 700], y[i : i + 700]) for i in range(0, 5000, 700)]
    BayesianKernelClassifier(random_state=0, n_experts=16).fit(blocks)
    assert seen == 8 * [40]


def test_earlier_late_classes_are_not_forgotten():
    X, y = board(4500)
    model = BayesianKernelClassifier(random_state=0, n_experts=4)
    model.partial_fit(X[:4000], y[:4000])
    model.partial_fit(X[4000:], y[4000:])
    for label in (7, 9):
        model.partial_fit(X[:50] + np.float32(9.0), np.full(50, label))
    assert list(model.stream_["late"]) == [7, 9]
    before = model.weights_[0]
    model.partial_fit(X[:50] + np.float32(9.0), np.full(50, 7))
    assert not np.array_equal(before, model.weights_[0])


def test_blas_has_one_thread_batch_by_batch(monkeypatch):
    holders = {}
    for name in ("choose", "solve"):
        real = getattr(kernel_experts.ExpertFit, name)

        def spy(self, *given, name=name, real=real):
            holders.setdefault(name, set()).add(threads._single_threaded_blas._holders)
            return real(self, *given)

        monkeypatch.setattr(kernel_experts.ExpertFit, name, spy)
    X, y = board(5500)
    model = BayesianKernelClassifier(random_state=0, n_experts=4).partial_fit(X[:4000], y[:4000])
    for start in (4000, 5000):
        holders.clear()
        model.partial_fit(X[start : start + 1000], y[start : start + 1000])
        assert "solve" in holders and 0 not in set().union(*holders.values())


def test_rows_that_wait_are_learned_at_the_end_by_older_experts(monkeypatch):
    X, y = board(4600)
    model = BayesianKernelClassifier(random_state=0, n_experts=4)
    model.partial_fit(X[:4000], y[:4000])
    model.partial_fit(X[4000:4500], y[4000:4500])
    model.partial_fit(X[4500:], y[4500:])
    assert model.stream_["waiting"] and model.experts_[0]["counts"].sum() < 4600
    monkeypatch.setattr(kernel_experts.ExpertFit, "choose", lambda *_: None)
    model._finish_stream()
    assert not model.stream_["waiting"] and model.experts_[0]["counts"].sum() == 4600


def test_no_experts_are_begun_when_the_time_is_over(rows, monkeypatch):
    """Without time they are not validated, and the global model is not refitted."""
    X, y, X_test, _ = rows
    monkeypatch.setattr(kernel_experts, "GLOBAL_ROWS", 2000)
    monkeypatch.setattr(kernel_experts.ExpertFit, "_validation_regions", None)
    model = BayesianKernelClassifier(random_state=0, time_budget=1e-9).fit(X, y)
    assert model.experts_ == [{}]
    assert np.isfinite(model.predict_proba(X_test)).all()


def test_regions_that_were_not_reached_use_the_global_model(rows, model):
    X_test = rows[2]
    plain = model.experts_[0]
    model.experts_ = [{**plain, "counts": np.zeros_like(plain["counts"])}]
    p, cover = model.predict_proba(X_test), model.score_samples(X_test)
    model.experts_ = [{}]
    common, cover_alone = model.predict_proba(X_test), model.score_samples(X_test)
    model.experts_ = [plain]
    np.testing.assert_array_equal(p, common)
    np.testing.assert_array_equal(cover, cover_alone)
