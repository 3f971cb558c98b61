"""Deep Gaussian processes that are stopped, taken up again, held back or fed from streams."""

from __future__ import annotations

import copy
import time
import tracemalloc
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import likelier
from likelier import DeepGPClassifier, DeepGPRegressor
from likelier.deep_gp import adam as deep_adam
from likelier.deep_gp import checkpoint as deep_gp_checkpoint
from likelier.deep_gp import feed as deep_feed
from likelier.deep_gp import monitor as deep_gp_monitor
from likelier.deep_gp import recipe as deep_gp_fit
from likelier.fitting.time_budget import TimeBudget

from .deep_gp_problem import LABELS, TWO, D, N, X, Y, classifier, interrupt, regressor


def test_going_on_equals_never_having_stopped():
    whole = regressor(max_iter=40).fit(X, Y)
    part = regressor(max_iter=40)
    interrupt(part)
    assert part.n_iter_ == 20
    assert np.isfinite(part.predict(X)).all()
    part.set_params(warm_start=True).fit(X, Y)
    assert part.n_iter_ == 40
    np.testing.assert_array_equal(part.predict(X), whole.predict(X))
    with pytest.raises(ValueError, match="warm_start cannot change the numbers of inputs, nodes"):
        part.set_params(hidden_dim=2).fit(X, Y)


def test_a_checkpoint_goes_on_in_another_process(tmp_path, monkeypatch):
    """What the file holds is enough: nothing else of the interrupted model is used."""
    whole = regressor(max_iter=60, random_state=None)
    monkeypatch.setattr(whole, "_seed", lambda: 11)
    whole.fit(X, Y)
    path = tmp_path / "folder" / "training.npz"
    monkeypatch.setattr(deep_gp_checkpoint, "SECONDS_BETWEEN", 0.0)
    original, calls = deep_adam.DeepAdam.step, []

    def killed(self, state, engine):
        if len(calls) == 2:
            raise RuntimeError("as if the process had been killed")
        calls.append(state)
        return original(self, state, engine)

    part = regressor(max_iter=60, random_state=None, checkpoint=str(path))
    monkeypatch.setattr(part, "_seed", lambda: 11)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_adam.DeepAdam, "step", killed)
        with pytest.raises(RuntimeError, match="killed"):
            part.fit(X, Y)
    assert path.exists()
    with pytest.raises(ValueError, match="belongs to a fit with other parameters or data"):
        regressor(max_iter=60, power=0.7, checkpoint=str(path)).fit(X, Y)
    with pytest.raises(ValueError, match="belongs to a fit with other parameters or data"):
        regressor(max_iter=60, checkpoint=str(path)).fit(X[1:], Y[1:])
    with pytest.raises(ValueError, match="belongs to a fit with other parameters or data"):
        regressor(max_iter=60, checkpoint=str(path)).fit(X, Y[::-1].copy())
    again = regressor(max_iter=60, random_state=None, checkpoint=str(path)).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert not path.exists()
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="delete it to start a new fit"):
        regressor(checkpoint=str(path)).fit(X, Y)
    with pytest.raises(TypeError, match="checkpoint must be None or the path"):
        regressor(checkpoint=path).fit(X, Y)


def test_a_file_of_another_kind_is_no_checkpoint(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, numbers=np.arange(3))
    with pytest.raises(ValueError, match="checkpoint .* cannot be read"):
        regressor(checkpoint=str(path)).fit(X, Y)
    np.save(tmp_path / "other.npy", np.arange(3))
    with pytest.raises(ValueError, match="checkpoint .* cannot be read"):
        regressor(checkpoint=str(tmp_path / "other.npy")).fit(X, Y)
    with pytest.raises(ValueError, match="checkpoint .* is a folder; pass the path of a file"):
        regressor(checkpoint=str(tmp_path)).fit(X, Y)


def test_an_interrupt_writes_the_checkpoint(tmp_path):
    path = tmp_path / "training.npz"
    interrupt(regressor(checkpoint=str(path)))
    again = regressor(checkpoint=str(path)).fit(X, Y)
    assert again.n_iter_ == 40
    np.testing.assert_array_equal(again.predict(X), regressor().fit(X, Y).predict(X))


def test_an_interrupt_before_the_first_minibatch_leaves_an_earlier_fit():
    model = regressor().fit(X, Y)
    before = model.predict(X)
    interrupt(model, after=0)
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.n_iter_ == 40
    new = regressor()
    interrupt(new, after=0)
    assert not hasattr(new, "layers_")


def test_an_interrupt_leaves_the_energy_of_what_is_kept():
    model = regressor().fit(X, Y)
    energy = model.energy_
    interrupt(model)
    assert np.isfinite(model.energy_)
    assert model.energy_ != energy


def test_targets_far_from_those_a_fit_goes_on_from_are_told():
    model = regressor(warm_start=True).fit(X, Y)
    with pytest.warns(UserWarning, match="warm_start keeps the standardisation of the earlier"):
        model.set_params(max_iter=60).fit(X, 1000.0 * Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(max_iter=80).fit(X, Y + 0.5)


def test_saved_models_predict_and_go_on(tmp_path, fitted, of_three):
    for model, rows in ((fitted, X), (of_three, X)):
        likelier.save(model, tmp_path / "model.lk")
        again = likelier.load(tmp_path / "model.lk")
        np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    again.set_params(warm_start=True, max_iter=220).fit(X, LABELS)
    assert again.n_iter_ == 220


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
        model = regressor(max_iter=20, batch_size=64).fit(str(path), "y")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.n_iter_ == 20
    assert peak < 0.5 * whole


def test_a_stream_can_hold_rows_out():
    """Early stopping sees rows that training never does, and every pass parts them alike."""
    blocks = [(X[:30], Y[:30]), (X[30:], Y[30:])]
    seen, held = [], []
    original, judged = deep_feed.Feed.take, DeepGPRegressor._log_density

    def take(self, first, n_steps):
        rows = original(self, first, n_steps)
        seen.append(rows.X[rows.weight > 0.0][:, :D])
        return rows

    def judge(self, rows, targets):
        held.append((rows - self.input_mean_) * self.input_inverse_)
        return judged(self, rows, targets)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_feed.Feed, "take", take)
        patch.setattr(DeepGPRegressor, "_log_density", judge)
        words = {"early_stopping": True, "validation_fraction": 0.3, "n_iter_no_change": 1}
        model = regressor(max_iter=2000, **words).fit(blocks)
    assert model.n_iter_ < 2000
    trained = {tuple(row.round(9)) for row in np.concatenate(seen)}
    out = {tuple(row.round(9)) for row in np.concatenate(held)}
    assert 5 < len(out) < 30
    assert len(trained) + len(out) == N
    assert not trained & out


def test_early_stopping_keeps_the_best():
    model = regressor(max_iter=2000, early_stopping=True, n_iter_no_change=1).fit(X, Y)
    assert model.n_iter_ < 2000
    assert model.n_iter_ % deep_gp_monitor.VALIDATE_EVERY == 0


def test_early_stopping_remembers_its_best_when_it_goes_on(tmp_path, monkeypatch):
    """The best comes before the interruption, and the count of evaluations goes on."""
    monkeypatch.setattr(deep_gp_monitor, "VALIDATE_EVERY", 20)

    def judge(self, rows, targets):
        return np.full(len(targets), -abs(self.n_iter_ - 20.0))

    monkeypatch.setattr(DeepGPRegressor, "_log_density", judge)
    words = {"max_iter": 200, "early_stopping": True, "n_iter_no_change": 3}
    whole = regressor(**words).fit(X, Y)
    assert whole.n_iter_ == 20
    part = regressor(**words, warm_start=True)
    interrupt(part, after=2)
    assert part.n_iter_ == 40
    likelier.save(part, tmp_path / "part.lk")
    done = []
    monkeypatch.setattr(deep_gp_monitor.TrainingMonitor, "finish", finish_and_tell(done))
    for again in (part, likelier.load(tmp_path / "part.lk")):
        again.fit(X, Y)
        assert again.n_iter_ == 20
        np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    path = str(tmp_path / "training.npz")
    interrupt(regressor(**words, checkpoint=path), after=3)
    again = regressor(**words, checkpoint=path).fit(X, Y)
    assert again.n_iter_ == 20
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert done == [80, 80, 80]
    assert whole.set_params(warm_start=True).fit(X, Y).n_iter_ == 20  # nothing later is better


def test_early_stopping_judges_also_after_a_step_that_is_no_multiple():
    """A fit of 50 minibatches that goes on passes 70, 90, 110: never 100 or 200 themselves."""
    judged, judge = [], deep_gp_monitor.TrainingMonitor._validation_score

    def told(self, state):
        judged.append(state.step)
        return judge(self, state)

    words = {"early_stopping": True, "n_iter_no_change": 50, "warm_start": True}
    model = regressor(max_iter=50, **words).fit(X, Y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_gp_monitor.TrainingMonitor, "_validation_score", told)
        model.set_params(max_iter=330).fit(X, Y)
    assert judged == [50, 110, 210, 310, 330]


@pytest.mark.parametrize("as_stream", [False, True])
def test_rows_that_judging_does_not_need_are_learned_from(as_stream, monkeypatch):
    monkeypatch.setattr(deep_gp_fit, "VALIDATION_ROWS", 6)
    tasks, train = [], DeepGPRegressor._train

    def told(self, task, *rest):
        tasks.append(task)
        return train(self, task, *rest)

    monkeypatch.setattr(DeepGPRegressor, "_train", told)
    model = regressor(max_iter=20, early_stopping=True, validation_fraction=0.5)
    model.fit([(X, Y)]) if as_stream else model.fit(X, Y)
    (task,) = tasks
    assert 0 < task.held.n <= 6
    assert task.n_rows >= N - 12  # of a stream the share is drawn row by row


def finish_and_tell(done):
    """Like `TrainingMonitor.finish`, and note how far the training went."""
    finish = deep_gp_monitor.TrainingMonitor.finish

    def told(self, first):
        done.append(self.latest.step)
        finish(self, first)

    return told


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
    assert len(lines) == 3
    assert "choosing" in lines[0]
    assert "of 40" in lines[1] and "s left" in lines[1]
    regressor(verbose=1, max_iter=10**7, time_budget=0.5).fit(X, Y)
    told = [
        float(line.split(", ")[1].split()[0]) for line in capsys.readouterr().out.splitlines()[1:]
    ]
    assert max(told) <= 1.0  # no longer than the budget allows


def test_the_time_left_forgets_the_compiling():
    """The first call of the loop takes 60 seconds, all others one."""
    clock = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_gp_monitor.time, "perf_counter", lambda: clock[0])
        watch = deep_gp_monitor.TrainingMonitor(
            None, None, None, TimeBudget(regressor(), (X, Y)), 0
        )
        left = []
        for seconds, step in ((60.0, 20), (1.0, 40), (1.0, 60)):
            clock[0] += seconds
            left.append(watch._time_left(SimpleNamespace(step=step, horizon=200)))
    assert left[1:] == [", 8 s left", ", 7 s left"]


def test_streams_far_from_zero_learn_as_rows_in_memory_do(fitted):
    far, high = X + np.array([1.7e9, 0.0, 0.0]), Y + 1e9
    parts = [(far[rows], high[rows]) for rows in np.array_split(np.arange(N), 3)]
    model = regressor(max_iter=400).fit(parts)
    np.testing.assert_allclose(model.target_scale_, fitted.target_scale_, rtol=1e-5)
    np.testing.assert_allclose(model.input_inverse_, fitted.input_inverse_, rtol=1e-5)
    assert model.score(far, high) > 0.9


def test_a_refused_fit_leaves_the_earlier_one_as_it_was(of_three):
    model = clone(of_three).set_params(warm_start=True).fit(X, LABELS)
    before = model.predict_proba(X)
    for labels in (TWO, np.char.upper(LABELS)):
        with pytest.raises(ValueError, match="warm_start cannot change the classes"):
            model.fit(X, labels)
        assert list(model.classes_) == ["low", "mid", "top"]
        np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_fit_that_goes_on_keeps_its_units():
    model = regressor(warm_start=True).fit(X, Y)
    before, energy = model.predict(X), model.energy_
    with pytest.warns(UserWarning, match="warm_start keeps the standardisation of the earlier"):
        model.fit(X + 1.0, Y * 100.0)  # max_iter is reached already
    assert model.energy_ == energy
    np.testing.assert_allclose(model.predict(X), before)


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


@pytest.mark.parametrize("changed", [{"dtype": "float32"}, {"heteroscedastic": True}])
def test_words_for_the_next_fit_change_no_prediction(changed, fitted):
    model = copy.deepcopy(fitted).set_params(**changed)
    for one, other in zip(*(m.predict(X, return_std=True) for m in (model, fitted)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert model.predict_uncertainty(X).aleatoric[0] == pytest.approx(fitted.noise_**2)


@pytest.mark.parametrize("changed", [{"kernel": "matern52"}, {"node_kernels": True}])
def test_words_of_another_model_change_no_prediction_and_are_refused_by_a_warm_fit(changed):
    model = regressor(warm_start=True).fit(X, Y)
    before = model.predict(X)
    model.set_params(**changed)
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match=f"warm_start cannot change {next(iter(changed))} from"):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_other_length_scales_are_refused_by_a_warm_fit(of_three):
    model = clone(of_three).set_params(warm_start=True).fit(X, LABELS)
    with pytest.raises(ValueError, match="cannot change length_scales from 'learned'"):
        model.set_params(length_scales="long").fit(X, LABELS)


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
    model = classifier(early_stopping=True, length_scales="learned", max_iter=200).fit(rows, y)
    np.testing.assert_allclose(model.predict_proba(cells)[:, 1], shares, atol=0.12)
    table, counts = np.unique(np.column_stack([rows, y]), axis=0, return_counts=True)
    words = {"early_stopping": True, "length_scales": "learned", "max_iter": 200}
    counted = classifier(**words).fit(table[:, :2], table[:, 2], sample_weight=counts)
    np.testing.assert_array_equal(counted.predict_proba(cells), model.predict_proba(cells))


def test_a_checkpoint_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"checkpoint .* cannot be written"):
        regressor(checkpoint=str(tmp_path / "file" / "inside")).fit(X, Y)
