"""Deep Gaussian processes that are stopped, resumed, started from, or fed from streams."""

from __future__ import annotations

import copy
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import likelier
from likelier import DeepGPClassifier, DeepGPRegressor
from likelier.deep_gp import adam as deep_adam
from likelier.deep_gp import feed as deep_feed
from likelier.deep_gp import probe, training
from likelier.deep_gp import recipe as deep_gp_fit
from likelier.deep_gp.posterior import RegressorPosterior
from likelier.fitting import monitor as fitting_monitor

from .deep_gp_problem import LABELS, TWO, D, N, X, Y, classifier, interrupt, regressor


@pytest.fixture
def often(monkeypatch):
    """Checkpoints after every call of the compiled loop."""
    monkeypatch.setattr(fitting_monitor, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(fitting_monitor, "WRITING_SHARE", np.inf)


def killed(model, data, after):
    """Fit, and end after some calls of the compiled loop as if the process had been killed."""
    original, calls = deep_adam.DeepAdam.step, []

    def step(self, state, engine):
        if len(calls) == after:
            raise SystemExit
        calls.append(state)
        return original(self, state, engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_adam.DeepAdam, "step", step)
        with pytest.raises(SystemExit):
            model.fit(*data)


def test_a_checkpoint_goes_on_in_another_process(tmp_path, often):
    """What the folder holds is enough: nothing of the interrupted model is used."""
    whole = regressor(max_iter=60).fit(X, Y)
    words = {"max_iter": 60, "checkpoint": tmp_path / "folder"}
    killed(regressor(**words), (X, Y), 2)
    (path,) = (tmp_path / "folder").glob("*.checkpoint")
    for changed, data in (
        ({"inference__power": 0.7}, (X, Y)),
        ({}, (X[1:], Y[1:])),
        ({}, (X, Y[::-1].copy())),
    ):
        with pytest.warns(UserWarning, match="checkpoints here are of other fits"):
            assert regressor(**words, **changed).fit(*data).n_iter_ == 60
    steps, step = [], deep_adam.DeepAdam.step

    def counted(self, state, engine):
        steps.append(state.step)
        return step(self, state, engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_adam.DeepAdam, "step", counted)
        again = regressor(**words).fit(X, Y)
    assert steps == [40]
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert again.energy_ == whole.energy_
    assert not list(path.parent.iterdir())


def test_a_checkpoint_is_a_folder_and_needs_a_seed(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file; name a folder"):
        regressor(checkpoint=tmp_path / "file").fit(X, Y)
    with pytest.raises(ValueError, match="checkpoint needs an int as random_state"):
        regressor(checkpoint=tmp_path, random_state=None).fit(X, Y)
    with pytest.raises(TypeError, match="checkpoint must be the path of a folder"):
        regressor(checkpoint=3).fit(X, Y)


@pytest.mark.parametrize("after", [0, 1])
def test_an_interrupt_keeps_the_earlier_fit_and_the_checkpoint(after, tmp_path):
    model = regressor(max_iter=20, checkpoint=tmp_path).fit(X, Y)
    before, energy = model.predict(X), model.energy_
    interrupt(model.set_params(max_iter=40), after)
    np.testing.assert_array_equal(model.predict(X), before)
    assert (model.n_iter_, model.energy_) == (20, energy)
    again = regressor(checkpoint=tmp_path).fit(X, Y)
    assert again.n_iter_ == 40
    np.testing.assert_array_equal(again.predict(X), regressor().fit(X, Y).predict(X))
    new = regressor()
    interrupt(new, after)
    assert not hasattr(new, "layers_")


def test_choices_are_not_made_again(tmp_path, often):
    """Comparisons by short fits are recorded."""
    words = {"kernel__length_scales": "auto", "checkpoint": tmp_path}
    whole = classifier(kernel__length_scales="auto").fit(X, TWO)
    killed(classifier(**words), (X, TWO), 2 * 3 * 2 + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "fit_probe", None)
        np.testing.assert_array_equal(
            classifier(**words).fit(X, TWO).predict_proba(X), whole.predict_proba(X)
        )


def test_saved_models_predict(tmp_path, fitted, of_three):
    for model, rows in ((fitted, X), (of_three, X)):
        likelier.save(model, tmp_path / "model.lk")
        again = likelier.load(tmp_path / "model.lk")
        np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_streams(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame({**{f"x{j}": X[:, j] for j in range(D)}, "y": Y}).to_csv(path, index=False)
    model = regressor(max_iter=100).fit(str(path), "y")
    frame = pd.read_csv(path)
    assert model.score(frame.drop(columns="y"), frame["y"]) > 0.5
    blocks = [(X[:30], LABELS[:30]), (X[30:], LABELS[30:])]
    assert classifier(max_iter=100).fit(blocks).score(X, LABELS) > 0.6
    with pytest.raises(ValueError, match="can be read only once"):
        classifier().fit(iter(blocks))


def test_a_parquet_file_is_read_in_bounded_memory(tmp_path):
    """NumPy never holds half of the rows."""
    rng = np.random.default_rng(7)
    n_rows, path = 600_000, tmp_path / "rows.parquet"
    columns = {f"x{j}": rng.standard_normal(n_rows) for j in range(4)}
    pd.DataFrame({**columns, "y": np.sin(columns["x0"])}).to_parquet(path, row_group_size=20_000)
    whole = 5 * 8 * n_rows
    tracemalloc.start()
    try:
        model = regressor(max_iter=20, inference__batch_size=64).fit(str(path), "y")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.n_iter_ == 20
    assert peak < 0.5 * whole


def test_a_stream_can_hold_rows_out():
    """Early stopping sees rows that training never does, and every pass parts them alike."""
    blocks = [(X[:30], Y[:30]), (X[30:], Y[30:])]
    seen, held = [], []
    original, judged = deep_feed.Feed.take, RegressorPosterior.validation_score

    def take(self, first, n_steps):
        rows = original(self, first, n_steps)
        seen.append(rows.X[rows.weight > 0.0][:, :D])
        return rows

    def judge(self, rows, targets):
        held.append(self.outputs.standard.apply(rows, np.float64))
        return judged(self, rows, targets)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_feed.Feed, "take", take)
        patch.setattr(RegressorPosterior, "validation_score", judge)
        words = {
            "inference__early_stopping": True,
            "inference__validation_fraction": 0.3,
            "inference__n_iter_no_change": 1,
        }
        model = regressor(max_iter=2000, **words).fit(blocks)
    assert model.n_iter_ < 2000
    trained = {tuple(row.round(9)) for row in np.concatenate(seen)}
    out = {tuple(row.round(9)) for row in np.concatenate(held)}
    assert 5 < len(out) < 30
    assert len(trained) + len(out) == N
    assert not trained & out


def test_early_stopping_keeps_the_best():
    model = regressor(
        max_iter=2000, inference__early_stopping=True, inference__n_iter_no_change=1
    ).fit(X, Y)
    assert model.n_iter_ < 2000
    assert model.n_iter_ % training.VALIDATE_EVERY == 0


def test_early_stopping_remembers_its_best_when_it_goes_on(tmp_path, monkeypatch, often):
    """The best comes before the interruption, and the count of evaluations goes on."""
    monkeypatch.setattr(training, "VALIDATE_EVERY", 20)
    judged = []

    def judge(self, rows, targets):
        judged.append(self)
        return np.full(len(targets), -float(len(judged)))

    monkeypatch.setattr(RegressorPosterior, "validation_score", judge)
    words = {"max_iter": 200, "inference__early_stopping": True, "inference__n_iter_no_change": 3}
    whole = regressor(**words).fit(X, Y)
    assert (whole.n_iter_, len(judged)) == (20, 4)
    judged.clear()
    killed(regressor(**words, checkpoint=tmp_path), (X, Y), 2)
    assert len(judged) == 2
    again = regressor(**words, checkpoint=tmp_path).fit(X, Y)
    assert (again.n_iter_, len(judged)) == (20, 4)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))


def test_early_stopping_judges_also_after_a_step_that_is_no_multiple(monkeypatch):
    """Calls of 20 minibatches pass multiples of 50 by 10."""
    monkeypatch.setattr(training, "VALIDATE_EVERY", 50)
    judged, validated = [], training.Training.validated

    def told(self, score):
        judged.append(self.latest.step)
        return validated(self, score)

    monkeypatch.setattr(training.Training, "validated", told)
    regressor(max_iter=130, inference__early_stopping=True, inference__n_iter_no_change=50).fit(
        X, Y
    )
    assert judged == [60, 100, 130]


@pytest.mark.parametrize("as_stream", [False, True])
def test_rows_that_judging_does_not_need_are_learned_from(as_stream, monkeypatch):
    monkeypatch.setattr(deep_gp_fit, "VALIDATION_ROWS", 6)
    tasks, train = [], DeepGPRegressor._train

    def told(self, task, *rest):
        tasks.append(task)
        return train(self, task, *rest)

    monkeypatch.setattr(DeepGPRegressor, "_train", told)
    model = regressor(
        max_iter=20, inference__early_stopping=True, inference__validation_fraction=0.5
    )
    model.fit([(X, Y)]) if as_stream else model.fit(X, Y)
    (task,) = tasks
    assert 0 < task.held.n <= 6
    assert task.n_rows >= N - 12  # of a stream the share is drawn row by row


def test_a_time_budget_shortens_the_schedule():
    model = regressor(max_iter=10**7, time_budget=1.0).fit(X, Y)
    assert 20 <= model.n_iter_ < 10**7
    assert np.isfinite(model.predict(X)).all()


def test_a_time_budget_counts_the_reading_of_a_stream():
    """What the passes before training take is not there for training."""

    def blocks():
        waited[0] = 100.0  # at the first reading only
        yield X, Y

    waited, now = [0.0], time.perf_counter
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: now() + waited[0])
        model = regressor(max_iter=400, time_budget=50.0).fit(blocks)
    assert model.n_iter_ == 20  # one call of the loop


def test_progress_tells_the_time_left(capsys):
    regressor(verbose=1).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "20 of 40 minibatches" in lines[0] and "s left" in lines[0]
    regressor(verbose=1, max_iter=10**7, time_budget=0.5).fit(X, Y)
    told = [float(line.split(", ")[-1].split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert max(told) <= 1.0  # no longer than the budget allows


def test_choices_tell_what_they_compare(capsys):
    classifier(verbose=1, kernel__length_scales="auto", max_iter=20).fit(X, TWO)
    lines = capsys.readouterr().out.splitlines()
    assert "long or learned length scales, part 0: gain" in lines[0]


def test_callbacks_see_a_model_that_predicts():
    monitor, seen = fitting_monitor.Monitor(), []

    class Callbacks:
        def after_step(self, attributes, task):
            seen.append((task, attributes()))
            return len(seen) == 2

    monitor.callbacks = Callbacks()
    model = regressor(max_iter=100)
    rows, y, weight = model._check_rows(X, Y, None, reset=True)
    task = model._open_memory(rows, y, weight, 0)
    found = model._train(task, monitor)
    assert found.latest.step == 40  # where a callback asked to stop
    assert [name for name, _ in seen] == ["step", "step"]
    vars(model).update(seen[0][1])
    assert model.n_iter_ == 20 and np.isfinite(model.predict(X)).all()


def test_the_time_left_forgets_the_compiling():
    """The first call of the loop takes 60 seconds, all others one."""
    clock = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.time, "perf_counter", lambda: clock[0])
        pace = training.Pace(0)
        left = []
        for seconds, step in ((60.0, 20), (1.0, 40), (1.0, 60)):
            clock[0] += seconds
            left.append(pace.after_call(step) * (200 - step))
    assert left == pytest.approx([540.0, 8.0, 7.0])


def test_streams_far_from_zero_learn_as_rows_in_memory_do(fitted):
    far, high = X + np.array([1.7e9, 0.0, 0.0]), Y + 1e9
    parts = [(far[rows], high[rows]) for rows in np.array_split(np.arange(N), 3)]
    model = regressor(max_iter=400).fit(parts)
    np.testing.assert_allclose(model.target_scale_, fitted.target_scale_, rtol=1e-5)
    np.testing.assert_allclose(model.input_inverse_, fitted.input_inverse_, rtol=1e-5)
    assert model.score(far, high) > 0.9


def test_a_refused_fit_leaves_the_earlier_one_as_it_was(of_three):
    model = clone(of_three).fit(X, LABELS)
    before = model.predict_proba(X)
    for labels in (Y, [None, *LABELS[1:]]):
        with pytest.raises(ValueError, match="label|Unknown"):
            model.fit(X, labels)
        assert list(model.classes_) == ["low", "mid", "top"]
        np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_stop_before_training_leaves_the_earlier_fit_as_it_was(monkeypatch):
    model = classifier().fit(X, TWO)
    before = model.predict_proba(X)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(DeepGPClassifier, "_find_kernel", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], LABELS)
    assert list(model.classes_) == ["no", "yes"]
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize(
    "changed", [{"inference__dtype": "float32"}, {"heteroscedastic": True}, {"kernel": "matern52"}]
)
def test_words_for_the_next_fit_change_no_prediction(changed, fitted):
    model = copy.deepcopy(fitted).set_params(**changed)
    for one, other in zip(*(m.predict(X, return_std=True) for m in (model, fitted)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert model.predict_uncertainty(X).aleatoric[0] == pytest.approx(fitted.noise_**2)


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError(), KeyboardInterrupt()], ids=repr)
def test_a_failure_before_the_first_state_leaves_the_earlier_fit_as_it_was(error, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(DeepGPClassifier, "_first_state", fail)
    model = classifier()
    model.classes_, model.input_mean_ = np.array([7, 8]), np.zeros(2)  # as an earlier fit has them
    before = dict(vars(model))
    with pytest.raises(type(error)):
        model.fit(X, TWO)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


def test_rows_held_out_are_observations_where_inputs_take_few_values():
    """Held out by kinds of row, all of one label in a cell would be taken from training."""
    cells = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    shares = np.array([0.2, 0.4, 0.6, 0.8])
    rows = np.repeat(cells, 50, axis=0)
    y = (np.tile(np.arange(50) / 50.0, 4) < np.repeat(shares, 50)).astype(int)
    model = classifier(
        inference__early_stopping=True, kernel__length_scales="learned", max_iter=200
    ).fit(rows, y)
    np.testing.assert_allclose(model.predict_proba(cells)[:, 1], shares, atol=0.12)
    table, counts = np.unique(np.column_stack([rows, y]), axis=0, return_counts=True)
    words = {"inference__early_stopping": True, "kernel__length_scales": "learned", "max_iter": 200}
    counted = classifier(**words).fit(table[:, :2], table[:, 2], sample_weight=counts)
    np.testing.assert_array_equal(counted.predict_proba(cells), model.predict_proba(cells))
