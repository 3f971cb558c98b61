"""The deep Gaussian processes as estimators: inputs, words, resuming, what they predict.

Few shapes and few minibatches: every new shape is compiled. Rows, inputs and minibatches are
chosen so that tests share programs, with each other and with other files.
"""

from __future__ import annotations

import copy
import importlib.util
import tracemalloc
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import likelier
from likelier import DeepGPClassifier, DeepGPRegressor
from likelier.estimators import (
    deep_gp_checkpoint,
    deep_gp_fit,
    deep_gp_watch,
    kernel_words,
)
from likelier.estimators.deep_gp_units import NOISE_FLOOR, TargetSizes, Units
from likelier.estimators.kernel_words import Clock
from likelier.inference import deep_adam, deep_compile, deep_feed
from likelier.inference.deep_compile import forget_programs
from likelier.models.deep_argmax import log_z_argmax
from likelier.models.deep_gp_posterior import (
    HELD_VALUES,
    DeepPosterior,
    label_chances,
    shared_normals,
)
from likelier.models.deep_gp_start import mean_projection, typical_length

RNG = np.random.default_rng(0)
N, D = 60, 3
X = RNG.uniform(-2.0, 2.0, (N, D)) * (RNG.random((N, D)) < 0.9)
Y = 5.0 + 2.0 * np.sin(2.0 * X[:, 0]) + 0.2 * RNG.standard_normal(N)
LABELS = np.array(["low", "mid", "top"])[np.digitize(Y, [4.0, 6.0])]
TWO = np.where(Y > 5.0, "yes", "no")
WORDS = {"n_inducing": 20, "max_iter": 40, "n_draws": 16, "random_state": 0}


def regressor(**words):
    return DeepGPRegressor(**{**WORDS, **words})


def classifier(**words):
    return DeepGPClassifier(**{**WORDS, "length_scales": "learned", **words})


@pytest.fixture(scope="module")
def fitted():
    return regressor(max_iter=400).fit(X, Y)


@pytest.fixture(scope="module")
def of_two():
    return classifier(max_iter=200).fit(X, TWO)


@pytest.fixture(scope="module")
def of_three():
    return classifier(max_iter=200).fit(X, LABELS)


def test_it_learns_numbers(fitted):
    assert fitted.score(X, Y) > 0.9
    assert fitted.n_iter_ == 400
    assert np.isfinite(fitted.energy_)
    far = fitted.predict(np.full((1, D), 50.0), return_std=True)[1]
    assert far[0] > 2.0 * fitted.predict(X, return_std=True)[1].mean()


def test_it_learns_classes(of_two, of_three):
    assert of_two.score(X, TWO) > 0.85
    assert of_three.score(X, LABELS) > 0.75
    assert list(of_three.classes_) == ["low", "mid", "top"]
    assert of_three.layers_[-1]["mean"].shape[0] == 3  # one output a class, and no phantom
    assert 0.0 < of_three.label_noise_ < 2.0 / 3.0


@pytest.mark.parametrize("name", ["of_two", "of_three"])
def test_probabilities_are_probabilities(name, request):
    model = request.getfixturevalue(name)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    truth = TWO if name == "of_two" else LABELS
    codes = np.searchsorted(model.classes_, truth)
    expected = np.log(p[np.arange(N), codes])
    np.testing.assert_allclose(model.log_predictive_density(X, truth), expected)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(p))
    told = model.predict_uncertainty(X)
    np.testing.assert_allclose(told.total, told.aleatoric + told.epistemic)
    np.testing.assert_allclose(told.total, -(p * np.log(p)).sum(axis=1), atol=1e-8)
    draws = model.sample_y(X[:5], 4000, random_state=1)
    share = np.mean(draws == model.classes_[0], axis=1)
    np.testing.assert_allclose(share, p[:5, 0], atol=0.04)


@pytest.mark.parametrize("name", ["of_two", "of_three"])
def test_log_densities_of_labels_that_cannot_be_keep_their_digits(name, request):
    """Without label noise, against sums over a fine grid of scores in logarithms."""
    sure = copy.deepcopy(request.getfixturevalue(name))
    sure.label_noise_ = 0.0
    sure.layers_[-1]["mean"] = 40.0 * sure.layers_[-1]["mean"]
    rows = X[:3]
    mean, variance = next(iter(sure._moments(sure._check_X(rows, reset=False))))
    if name == "of_two":  # the other score of two is zero without a doubt: noise of one
        mean = np.concatenate([np.zeros_like(mean), mean], axis=-1)
        variance = np.concatenate([np.full_like(variance, 0.5), variance + 0.5], axis=-1)
    for code, label in enumerate(sure.classes_):
        told = sure.log_predictive_density(rows, [label] * len(rows))
        sd = np.sqrt(variance)
        low, high = (mean - 60.0 * sd).min(), (mean + 60.0 * sd).max()
        h = np.linspace(low, high, 20_001)[:, None, None]
        log_terms = norm.logpdf(h, mean[..., code], sd[..., code]) + np.log(h[1] - h[0])
        for other in set(range(len(sure.classes_))) - {code}:
            log_terms = log_terms + norm.logcdf((h - mean[..., other]) / sd[..., other])
        samples = logsumexp(log_terms, axis=0)
        expected = logsumexp(samples, axis=1) - np.log(samples.shape[1])
        np.testing.assert_allclose(told, expected, rtol=1e-7, atol=1e-7)
    least = min(sure.log_predictive_density(rows, [label] * 3).min() for label in sure.classes_)
    assert least < -50.0


def in_batches(function, rows, size):
    parts = [function(rows[first : first + size]) for first in range(0, len(rows), size)]
    return np.concatenate(parts)


@pytest.mark.parametrize("size", [1, 7, 50])
def test_predictions_do_not_depend_on_the_other_rows(size, fitted, of_two, of_three):
    """To the last bit: 66 rows are two blocks, and a row may be at any place of one."""
    rows = np.random.default_rng(5).uniform(-2.5, 2.5, (66, D))
    for function in (
        fitted.predict,
        lambda rows: fitted.predict(rows, return_std=True)[1],
        fitted.predict_interval,
        of_two.predict_proba,
        of_three.predict_proba,
    ):
        whole = function(rows)
        np.testing.assert_array_equal(in_batches(function, rows, size), whole)
        np.testing.assert_array_equal(function(rows[::-1]), whole[::-1])


def test_draws_of_a_row_do_not_depend_on_the_rows_after_it(fitted, of_three):
    """Of the first row of the second block, too."""
    rows = np.random.default_rng(5).uniform(-2.5, 2.5, (66, D))
    for model in (fitted, of_three):
        whole = model.sample_y(rows, 9, random_state=3)
        for n_rows in (1, 7, 65):
            first = model.sample_y(rows[:n_rows], 9, random_state=3)
            np.testing.assert_array_equal(first, whole[:n_rows])
            one_stream = np.random.RandomState(3)
            batches = in_batches(lambda r: model.sample_y(r, 9, one_stream), rows, n_rows)  # noqa: B023
            np.testing.assert_array_equal(batches, whole)


def test_fits_of_other_rows_and_inputs_share_their_programs():
    """Shapes are padded: nothing is compiled anew for a few rows more, or an input less."""
    rng = np.random.default_rng(6)
    numbers = set()
    for n_rows, n_inputs in ((40, 4), (50, 4), (60, 3)):
        rows = rng.standard_normal((n_rows, n_inputs))
        regressor(max_iter=20).fit(rows, rows.sum(axis=1))
        numbers.add(len(deep_compile._programs))
    assert len(numbers) == 1


def random_posterior(n_inducing, widths, n_samples):
    rng = np.random.default_rng(0)
    layers = [
        {"inducing": rng.standard_normal((n_inducing, widths[0])),
         "log_scale": np.zeros((1, widths[0])), "log_amplitude": np.zeros(1),
         "mean": rng.standard_normal((nodes, n_inducing)),
         "root": np.zeros((nodes, n_inducing, n_inducing)), "log_noise": np.asarray(-5.0)}
        for nodes in widths[1:]
    ]  # fmt: skip
    projections = [np.eye(widths[0]), np.zeros((widths[0], widths[-1]))]
    return DeepPosterior(layers, projections, "rbf", shared_normals(n_samples, widths[1], 0))


@pytest.mark.parametrize(("n_samples", "n_outputs"), [(128, 1), (32, 10)])
def test_moments_of_default_sizes_do_not_depend_on_the_other_rows(n_samples, n_outputs):
    """To the last bit, with the inducing points, nodes and samples that are used unasked."""
    posterior = random_posterior(100, (8, 8, n_outputs), n_samples)
    rows = np.random.default_rng(1).standard_normal((70, 8))

    def flat(rows):
        parts = [np.concatenate(pair, axis=-1) for pair in posterior.moments(rows)]
        return np.concatenate(parts)

    whole = flat(rows)
    for size in (1, 3, 9, 64):
        np.testing.assert_array_equal(in_batches(flat, rows, size), whole)
    np.testing.assert_array_equal(flat(rows[::-1]), whole[::-1])


def test_blocks_hold_few_values_whatever_the_number_of_outputs():
    """Of a model of a thousand classes, and of one that draws very many samples."""
    for n_outputs, n_samples in ((1000, 32), (1, 5000)):
        posterior = random_posterior(4, (2, 2, n_outputs), n_samples)
        rows = np.random.default_rng(1).standard_normal((300, 2))
        sizes = [mean.size for mean, _ in posterior.moments(rows)]
        assert sum(sizes) == 300 * n_samples * n_outputs
        assert len(sizes) > 1 or n_outputs == 1
        assert max(sizes) <= HELD_VALUES


def test_class_chances_are_those_of_precise_quadrature(of_three):
    """Training may be content with less; predictions are right to 1e-8."""
    mean, variance = next(of_three._moments(X[:4]))
    with jax.enable_x64(True):
        codes = np.broadcast_to(np.arange(3), (4, len(of_three.normals_), 3))
        laws = (jax.numpy.repeat(a[:, :, None], 3, axis=2) for a in (mean, variance))
        p = np.exp(np.asarray(jax.jit(log_z_argmax)(codes, *laws))).mean(axis=1)
    expected = label_chances(p, of_three.label_noise_, 3)
    np.testing.assert_allclose(of_three.predict_proba(X[:4]), expected, rtol=0, atol=1e-8)


def test_predictions_are_one_mixture(fitted):
    """Interval, quantiles, density, deviations and draws all come from the same law."""
    mean, std = fitted.predict(X, return_std=True)
    told = fitted.predict_uncertainty(X)
    np.testing.assert_allclose(told.total, std**2)
    np.testing.assert_allclose(told.aleatoric, fitted.noise_**2)
    interval = fitted.predict_interval(X, 0.8)
    np.testing.assert_allclose(interval, fitted.predict_quantiles(X, [0.1, 0.9]))
    draws = fitted.sample_y(X[:4], 20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), mean[:4], atol=5.0 * std[:4].max() / 100.0)
    inside = (interval[:4, :1] <= draws) & (draws <= interval[:4, 1:])
    np.testing.assert_allclose(inside.mean(axis=1), 0.8, atol=0.02)
    grid = np.linspace(-10.0, 20.0, 3001)
    density = fitted.log_predictive_density(np.repeat(X[:1], len(grid), axis=0), grid)
    assert np.trapezoid(np.exp(density), grid) == pytest.approx(1.0, abs=1e-6)


def test_one_layer_is_a_mixture_of_one():
    model = regressor(layers=1, max_iter=20).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    expected = norm.logpdf(Y, mean, std)
    np.testing.assert_allclose(model.log_predictive_density(X, Y), expected)


def test_same_seed_same_bits_and_other_seed_others():
    one, two = regressor().fit(X, Y), regressor().fit(X, Y)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    assert not np.array_equal(regressor(random_state=1).fit(X, Y).predict(X), one.predict(X))


def interrupt(model, after=1, y=Y):
    """Fit, and press Ctrl-C after some calls of the compiled loop."""
    original, calls = deep_adam.DeepAdam.step, []

    def interrupted(self, state, engine):
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(state)
        return original(self, state, engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_adam.DeepAdam, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)


def test_going_on_equals_never_having_stopped():
    whole = regressor(max_iter=40).fit(X, Y)
    part = regressor(max_iter=40)
    interrupt(part)
    assert part.n_iter_ == 20
    assert np.isfinite(part.predict(X)).all()
    part.set_params(warm_start=True).fit(X, Y)
    assert part.n_iter_ == 40
    np.testing.assert_array_equal(part.predict(X), whole.predict(X))
    with pytest.raises(ValueError, match="warm_start goes on with"):
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
    with pytest.raises(ValueError, match="belongs to other words or data"):
        regressor(max_iter=60, power=0.7, checkpoint=str(path)).fit(X, Y)
    with pytest.raises(ValueError, match="belongs to other words or data"):
        regressor(max_iter=60, checkpoint=str(path)).fit(X[1:], Y[1:])
    with pytest.raises(ValueError, match="belongs to other words or data"):
        regressor(max_iter=60, checkpoint=str(path)).fit(X, Y[::-1].copy())
    again = regressor(max_iter=60, random_state=None, checkpoint=str(path)).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert not path.exists()
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="delete it to start anew"):
        regressor(checkpoint=str(path)).fit(X, Y)
    with pytest.raises(TypeError, match="checkpoint must be the path"):
        regressor(checkpoint=path).fit(X, Y)


def test_a_file_of_another_kind_is_no_checkpoint(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, numbers=np.arange(3))
    with pytest.raises(ValueError, match="checkpoint .* cannot be read"):
        regressor(checkpoint=str(path)).fit(X, Y)
    np.save(tmp_path / "other.npy", np.arange(3))
    with pytest.raises(ValueError, match="checkpoint .* cannot be read"):
        regressor(checkpoint=str(tmp_path / "other.npy")).fit(X, Y)
    with pytest.raises(ValueError, match="checkpoint .* is a folder; name a file"):
        regressor(checkpoint=str(tmp_path)).fit(X, Y)


def test_an_interrupt_writes_the_checkpoint(tmp_path):
    path = tmp_path / "training.npz"
    interrupt(regressor(checkpoint=str(path)))
    again = regressor(checkpoint=str(path)).fit(X, Y)
    assert again.n_iter_ == 40
    np.testing.assert_array_equal(again.predict(X), regressor().fit(X, Y).predict(X))


def test_saved_models_predict_and_go_on(tmp_path, fitted, of_three):
    for model, rows in ((fitted, X), (of_three, X)):
        likelier.save(model, tmp_path / "model.lk")
        again = likelier.load(tmp_path / "model.lk")
        np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    again.set_params(warm_start=True, max_iter=220).fit(X, LABELS)
    assert again.n_iter_ == 220


def test_weights_count_rows():
    weight = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    weight[5] = 0.0
    rows = np.repeat(np.arange(N), weight.astype(int))
    weighted = regressor().fit(X, Y, sample_weight=weight).predict(X)
    np.testing.assert_allclose(regressor().fit(X[rows], Y[rows]).predict(X), weighted, rtol=1e-9)
    one = classifier(class_weight={"yes": 2.0}).fit(X, TWO).predict_proba(X)
    two = classifier().fit(X, TWO, sample_weight=np.where(TWO == "yes", 2.0, 1.0))
    np.testing.assert_allclose(one, two.predict_proba(X), rtol=1e-9)
    with pytest.raises(ValueError, match="at least one non-zero"):
        regressor().fit(X, Y, sample_weight=np.zeros(N))


def test_sparse_rows_and_frames():
    dense = regressor().fit(X, Y).predict(X)
    thin = regressor().fit(sparse.csr_array(X), Y)
    np.testing.assert_allclose(thin.predict(sparse.csr_array(X)), dense, rtol=1e-5)
    for frame in (pd.DataFrame(X, columns=list("abc")), pl.DataFrame(X, schema=list("abc"))):
        model = regressor().fit(frame, Y)
        np.testing.assert_array_equal(model.predict(frame), dense)
        assert list(model.feature_names_in_) == list("abc")


def test_inputs_of_one_unit_keep_their_proportions():
    """A column that hardly varies counts little, unless every column has its own unit."""
    small = X * [1.0, 1.0, 1e-3]
    model = regressor(input_scale="common").fit(small, Y)
    assert len(set(model.input_inverse_)) == 1
    spread = ((small - small.mean(axis=0)) * model.input_inverse_).var(axis=0)
    assert spread.mean() == pytest.approx(1.0)
    same = regressor(input_scale="common").fit(7.0 * small, Y)
    np.testing.assert_allclose(same.predict(7.0 * small), model.predict(small), rtol=1e-6)
    moved = small + np.array([0.0, 0.0, 1e-3])
    np.testing.assert_allclose(model.predict(moved), model.predict(small), atol=1e-2)
    own = regressor().fit(small, Y)
    assert np.abs(own.predict(moved) - own.predict(small)).max() > 1e-2


def test_single_precision(fitted):
    double = fitted.predict(X)
    single = regressor(max_iter=400, dtype="float32").fit(X.astype(np.float32), Y)
    assert np.corrcoef(single.predict(X.astype(np.float32)), double)[0, 1] > 0.99
    assert single.layers_[0]["mean"].dtype == np.float32


def test_streams(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame({**{f"x{j}": X[:, j] for j in range(D)}, "y": Y}).to_csv(path, index=False)
    model = regressor(max_iter=100).fit(str(path), "y")
    frame = pd.read_csv(path)
    assert model.score(frame.drop(columns="y"), frame["y"]) > 0.5
    blocks = [(X[:30], LABELS[:30]), (X[30:], LABELS[30:])]
    assert classifier(max_iter=100).fit(blocks).score(X, LABELS) > 0.6
    with pytest.raises(ValueError, match="can be read once only"):
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
    assert model.n_iter_ % deep_gp_watch.VALIDATE_EVERY == 0


def test_early_stopping_remembers_its_best_when_it_goes_on(tmp_path, monkeypatch):
    """The best comes before the interruption, and the count of evaluations goes on."""
    monkeypatch.setattr(deep_gp_watch, "VALIDATE_EVERY", 20)

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
    monkeypatch.setattr(deep_gp_watch.Watch, "finish", finish_and_tell(done))
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
    judged, judge = [], deep_gp_watch.Watch._judge

    def told(self, state):
        judged.append(state.step)
        return judge(self, state)

    words = {"early_stopping": True, "n_iter_no_change": 50, "warm_start": True}
    model = regressor(max_iter=50, **words).fit(X, Y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_gp_watch.Watch, "_judge", told)
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
    """Like `Watch.finish`, and note how far the training went."""
    finish = deep_gp_watch.Watch.finish

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

    waited, now = [0.0], kernel_words.time.perf_counter
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_words.time, "perf_counter", lambda: now() + waited[0])
        model = regressor(max_iter=400, time_budget=50.0).fit(blocks)
    assert model.n_iter_ == 20  # one call of the loop


def test_progress_tells_the_time_left(capsys):
    regressor(verbose=1).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "of 40" in lines[0] and "s left" in lines[0]
    regressor(verbose=1, max_iter=10**7, time_budget=0.5).fit(X, Y)
    told = [float(line.split(", ")[1].split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert max(told) <= 1.0  # no longer than the budget allows


def test_the_time_left_forgets_the_compiling():
    """The first call of the loop takes 60 seconds, all others one."""
    clock = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_gp_watch.time, "perf_counter", lambda: clock[0])
        watch = deep_gp_watch.Watch(None, None, None, Clock(regressor(), (X, Y)), 0)
        left = []
        for seconds, step in ((60.0, 20), (1.0, 40), (1.0, 60)):
            clock[0] += seconds
            left.append(watch._time_left(SimpleNamespace(step=step, horizon=200)))
    assert left[1:] == [", 8 s left", ", 7 s left"]


def test_the_configuration_of_jax_is_left_alone(fitted, of_three):
    before = dict(jax.config.values)
    regressor().fit(X, Y).predict(X)
    of_three.predict_proba(X)
    assert dict(jax.config.values) == before
    assert jax.numpy.ones(1).dtype == np.float32


@pytest.mark.parametrize(
    "setting",
    [
        {"jax_numpy_rank_promotion": "raise"},
        {"jax_disable_jit": True},
        {"jax_transfer_guard": "disallow"},
    ],
)
def test_settings_of_the_user_for_his_own_programs_do_not_matter(setting, of_three, tmp_path):
    """Programs are made anew, as where nothing is on disk yet."""
    expected = of_three.predict_proba(X)
    ((name, value),) = setting.items()
    before = getattr(jax.config, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIKELIER_CACHE_DIR", str(tmp_path))
        forget_programs()
        jax.config.update(name, value)
        try:
            np.testing.assert_allclose(of_three.predict_proba(X), expected, rtol=1e-6)
            assert getattr(jax.config, name) == value
        finally:
            jax.config.update(name, before)


def test_a_training_that_diverges_says_so():
    with (
        np.errstate(over="ignore"),
        pytest.warns(ConvergenceWarning, match="training diverged with learning_rate"),
    ):
        regressor(learning_rate=1e6, max_iter=60).fit(X, Y)


def test_without_jax_one_line_says_what_to_install(monkeypatch, fitted, of_two):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "jax" else find(name, *a)
    )
    for model in (regressor(), classifier()):
        with pytest.raises(ImportError, match=r'pip install "likelier\[jax\]"') as error:
            clone(model).fit(X, Y)
        assert "\n" not in str(error.value)
    assert np.isfinite(fitted.predict(X)).all()  # prediction needs NumPy only
    assert np.isfinite(of_two.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"layers": 0}, "layers must be at least 1"),
        ({"power": 0.0}, "power must be a finite number above 0"),
        ({"power": 1.5}, "power must lie in"),
        ({"power": "most"}, "power must be a number or"),
        ({"input_scale": "row"}, "input_scale must be one of"),
        ({"kernel": "cosine"}, "kernel must be one of"),
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"hidden_dim": "wide"}, "hidden_dim must be a number or"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie in"),
    ],
)
def test_words_that_make_no_sense_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        regressor(**words).fit(X, Y)


@pytest.mark.parametrize("word", ["node_kernels", "early_stopping", "warm_start"])
@pytest.mark.parametrize("make", [regressor, classifier])
def test_flags_are_true_or_false(make, word):
    with pytest.raises(TypeError, match=f"{word} must be True or False, got 'no'"):
        make(**{word: "no"}).fit(X, TWO)


def test_heteroscedastic_is_true_or_false():
    with pytest.raises(TypeError, match="heteroscedastic must be True or False"):
        regressor(heteroscedastic="no").fit(X, Y)


def test_length_scales_are_named():
    with pytest.raises(ValueError, match="length_scales must be one of"):
        classifier(length_scales="some").fit(X, LABELS)


def test_long_length_scales_are_kept():
    """Training neither moves them nor forgets them when it is taken up again."""
    words = {"length_scales": "long", "warm_start": True}
    model = classifier(**words).fit(X, LABELS)
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = 4.0 * typical_length(rows, None)
    np.testing.assert_allclose(np.exp(model.layers_[0]["log_scale"]), expected)
    assert model.layers_[0]["log_amplitude"] == 0.0
    np.testing.assert_allclose(np.exp(model.layers_[-1]["log_amplitude"]), 16.0)
    part = classifier(**words)
    interrupt(part, y=LABELS)
    assert part.n_iter_ == 20
    np.testing.assert_array_equal(part.fit(X, LABELS).predict_proba(X), model.predict_proba(X))
    learned = classifier().fit(X, LABELS).layers_[0]["log_scale"]
    assert len(np.unique(learned)) == D


def test_power_one_finds_two_branches_where_the_variational_bound_finds_none():
    rng = np.random.default_rng(5)
    rows = rng.uniform(-1.0, 1.0, (300, 1))
    y = rng.choice([-1.0, 1.0], 300) + 0.05 * rng.standard_normal(300)
    words = {"hidden_dim": 2, "n_inducing": 20, "max_iter": 500, "batch_size": 64}
    words["dtype"] = "float32"
    between = {}
    for power in (1.0, 1e-3):
        model = DeepGPRegressor(power=power, random_state=0, **words).fit(rows, y)
        between[power] = np.mean(np.abs(model.sample_y([[0.3]], 2000, random_state=0)) < 0.5)
    assert between[1.0] < 0.2
    assert between[1e-3] > 0.3


def test_missing_values_and_wrong_targets_are_answered():
    holes = X.copy()
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        regressor().fit(holes, Y)
    with pytest.raises(ValueError, match="use DeepGPClassifier"):
        regressor().fit(X, LABELS)
    with pytest.raises(ValueError, match="y contains NaN"):
        regressor().fit(X, np.where(Y > 7.0, np.nan, Y))
    with pytest.raises(ValueError, match="at least two classes"):
        classifier().fit(X, np.ones(N))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([None, "a", "b"], dtype=object),
        np.array([0.0, 1.0, np.nan], dtype=object),
        pd.Series([0, 1, None], dtype="Int64"),
        pd.Series(["a", "b", None], dtype="category"),
    ],
    ids=["none", "nan", "nullable", "category"],
)
def test_missing_labels_are_named(labels, of_two):
    rows = X[:3]
    for data in ((rows, labels), ([(rows, np.asarray(labels, dtype=object))],)):
        with pytest.raises(ValueError, match=r"y (contains NaN|holds (1 missing|nan))"):
            classifier().fit(*data)
    with pytest.raises(ValueError, match="y holds 1 missing labels"):
        of_two.log_predictive_density(rows, np.array(["yes", None, "no"], dtype=object))


@pytest.mark.parametrize("layers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_thousand_classes(layers):
    """Training and prediction stay finite with as many classes as rows are few."""
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((2000, 2))
    labels = np.arange(2000) % 1000
    words = {"n_inducing": 8, "batch_size": 64, "max_iter": 20, "n_samples": 2, "n_draws": 4}
    words |= {"length_scales": "learned", "dtype": "float32"}
    model = DeepGPClassifier(layers, random_state=0, **words).fit(rows, labels)
    assert np.isfinite(model.energy_)
    assert all(np.isfinite(a).all() for layer in model.layers_ for a in layer.values())
    p = model.predict_proba(rows[:20])
    assert p.shape == (20, 1000)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-9)


def test_wrong_labels_are_counted_at_a_small_power():
    """Three classes far apart, a fifth of the labels changed: at power 1 scores become wide."""
    rng = np.random.default_rng(6)
    truth = np.arange(240) % 3
    rows = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])[truth] + rng.standard_normal((240, 2))
    labels = np.where(rng.random(240) < 0.2, (truth + rng.integers(1, 3, 240)) % 3, truth)
    words = {"layers": 1, "max_iter": 600, "learning_rate": 0.05, "length_scales": "learned"}
    model = classifier(power=0.01, dtype="float32", **words).fit(rows, labels)
    assert 0.1 < model.label_noise_ < 0.3
    assert np.mean(model.predict(rows) == truth) > 0.97


@pytest.mark.slow
def test_noise_that_depends_on_the_inputs():
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1.0, 1.0, (600, 1))
    spread = np.where(rows[:, 0] > 0.0, 1.0, 0.1)
    y = np.sin(3.0 * rows[:, 0]) + spread * rng.standard_normal(600)
    model = DeepGPRegressor(1, heteroscedastic=True, random_state=0).fit(rows, y)
    noise = np.sqrt(model.predict_uncertainty([[-0.5], [0.5]]).aleatoric)
    assert noise[0] < 0.25
    assert 0.7 < noise[1] < 1.4


@pytest.mark.slow
@pytest.mark.parametrize("words", [{"kernel": "matern32"}, {"node_kernels": True}, {"layers": 3}])
def test_other_kernels_and_depths_learn(words):
    assert regressor(max_iter=400, **words).fit(X, Y).score(X, Y) > 0.8


def test_streams_far_from_zero_learn_as_rows_in_memory_do(fitted):
    far, high = X + np.array([1.7e9, 0.0, 0.0]), Y + 1e9
    parts = [(far[rows], high[rows]) for rows in np.array_split(np.arange(N), 3)]
    model = regressor(max_iter=400).fit(parts)
    np.testing.assert_allclose(model.target_spread_, fitted.target_spread_, rtol=1e-5)
    np.testing.assert_allclose(model.input_inverse_, fitted.input_inverse_, rtol=1e-5)
    assert model.score(far, high) > 0.9


def test_a_refused_fit_leaves_the_earlier_one_as_it_was(of_three):
    model = clone(of_three).set_params(warm_start=True).fit(X, LABELS)
    before = model.predict_proba(X)
    for labels in (TWO, np.char.upper(LABELS)):
        with pytest.raises(ValueError, match="warm_start goes on with"):
            model.fit(X, labels)
        assert list(model.classes_) == ["low", "mid", "top"]
        np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_fit_that_goes_on_keeps_its_units():
    model = regressor(warm_start=True).fit(X, Y)
    before, energy = model.predict(X), model.energy_
    model.fit(X + 1.0, Y * 100.0)  # max_iter is reached already
    assert model.energy_ == energy
    np.testing.assert_allclose(model.predict(X), before)


@pytest.mark.parametrize(
    ("y", "size"),
    [
        (Y * 1e200, "large that its squares overflow"),
        (np.full(N, 1e200), "large that its squares overflow"),
        (Y * 1e-200, "small that its squares underflow"),
        (np.where(np.arange(N) % 2, 1e-200, -1e-200), "small that its squares underflow"),
        (np.full(N, 1e-300), "small that its squares underflow"),
    ],
)
def test_targets_that_cannot_be_squared_are_refused(y, size):
    for data in ((X, y), ([(X, y)],)):
        with pytest.raises(ValueError, match=f"y is so {size}; divide it by its size"):
            regressor().fit(*data)


def units_of(y, weight=None, in_two=False):
    """Mean, spread and least noise of targets, as rows in memory and as a stream see them."""
    parts = np.array_split(np.arange(len(y)), 2 if in_two else 1)
    y, weight = np.asarray(y), np.ones(len(y)) if weight is None else np.asarray(weight)
    sizes = [TargetSizes.of(y[rows], weight[rows]) for rows in parts]
    return (sizes[0] + sizes[1] if in_two else sizes[0]).units()


@pytest.mark.parametrize("in_two", [False, True])
@pytest.mark.parametrize("scale", [1e-100, 1e-4, 1.0, 1e100])
def test_targets_have_units_of_their_own(scale, in_two):
    units = units_of(Y * scale, in_two=in_two)
    assert units.mean == pytest.approx(scale * Y.mean())
    assert units.spread == pytest.approx(scale * Y.std())
    constant = units_of(np.full(N, -3.0 * scale), in_two=in_two)
    assert constant.spread == pytest.approx(3e-6 * scale)
    assert constant.noise_floor == units.noise_floor == NOISE_FLOOR


@pytest.mark.parametrize(
    ("y", "weight"), [([-3.0], None), ([-3.0], [0.5]), ([7.0, -3.0, 1e300], [0.0, 1.0, 0.0])]
)
def test_one_row_says_nothing_about_the_noise(y, weight):
    for in_two in (False, True):
        assert units_of(y, weight, in_two) == Units(-3.0, 3.0, 1.0)
    assert units_of([-3.0], [2.0]) == Units(-3.0, pytest.approx(3e-6), NOISE_FLOOR)  # two rows
    assert units_of([0.0]) == Units(0.0, 1.0, 1.0)
    assert units_of([0.0, 0.0]).spread < 1e-5


@pytest.mark.parametrize(("n_rows", "least", "most"), [(1, 1.0, 2.0), (N, 0.0, 1e-5)])
def test_spreads_of_one_row_and_of_constant_targets_are_of_their_size(n_rows, least, most):
    """The same in memory and from a stream."""
    rows, y = X[:n_rows], np.full(n_rows, 1e-4)
    for data in ((rows, y), ([(rows, y)],)):
        mean, std = regressor(max_iter=20).fit(*data).predict(X, return_std=True)
        np.testing.assert_allclose(mean, 1e-4, atol=1e-4 * most)
        assert (std > 1e-4 * least).all() and (std < 1e-4 * most).all()


def test_rows_far_beyond_all_others_overflow_nothing(fitted, of_two, of_three):
    matern = copy.deepcopy(fitted)
    matern.kernel_ = "matern52"
    for function in (of_two.predict_proba, of_three.predict_proba, fitted.predict, matern.predict):
        far = function(np.full((1, D), 1e50))
        for size in (1e160, 1e300, 1.7e308):
            np.testing.assert_array_equal(function(np.full((1, D), size)), far)


def test_small_targets_are_not_constant(fitted):
    model = regressor(max_iter=400).fit(X, (Y - Y.mean()) * 1e-13)
    assert model.score(X, (Y - Y.mean()) * 1e-13) > 0.9


def test_axes_of_few_rows_are_those_of_many():
    rows = RNG.normal(size=(8, 30))
    few = mean_projection(rows, None, 4)
    many = mean_projection(np.repeat(rows, 5, axis=0), None, 4)  # more rows than inputs
    np.testing.assert_allclose(few, many, atol=1e-10)
    wide = mean_projection(rows, None, 12)
    np.testing.assert_allclose(wide.T @ wide, np.eye(12), atol=1e-10)


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
    with pytest.raises(ValueError, match=f"warm_start goes on with {next(iter(changed))}"):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), before)


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
