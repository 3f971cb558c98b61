"""What deep Gaussian processes choose by rows held out: the power and whether to learn kernels."""

from __future__ import annotations

import numpy as np
import pytest

from likelier import DeepGPClassifier, DeepGPRegressor
from likelier.deep_gp import kernel_choice as deep_gp_kernel
from likelier.deep_gp import probe as deep_gp_probe
from likelier.deep_gp.probe import Probe, fit_probe, is_significant
from likelier.deep_gp.recipe import Task
from likelier.deep_gp.start import LONG
from likelier.engines import LocalEngine
from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard

from .deep_gp_problem import LABELS, WORDS, D, N, X, Y, regressor


def classifier(**words):
    return DeepGPClassifier().set_params(**{**WORDS, "kernel__length_scales": "auto", **words})


def task_of(n_rows, weight=1.0):
    rows = np.random.default_rng(1).standard_normal((n_rows, 2))
    weights = np.full(n_rows, weight)
    engine = LocalEngine(rows, rows[:, 0].copy(), weights, seed=0)
    return Task(engine, Standard.of(rows, None), float(weights.sum()), n_rows, 0)


class Told:
    """A probe whose log densities are given."""

    def __init__(self, rows, value, judged):
        self.rows, self.value, self.judged = rows, value, judged

    def validation_score(self, X, y):
        seen = {tuple(row) for row in self.rows.X}
        assert not any(tuple(row) in seen for row in X)
        self.judged.append(len(y))
        noise = np.random.default_rng(len(self.judged)).standard_normal(len(y))
        return self.value + 5.0 * (noise - noise.mean())


# -- kernels -------------------------------------------------------------------------------
@pytest.fixture
def told(monkeypatch):
    """Log densities of long and learned kernels, and how many rows were judged at a time."""
    value, judged = {LONG: 0.0, None: -1.0}, []

    def fit(estimator, rows, seed, probe):
        assert probe.layers == 1
        return Told(rows, value[probe.kernel], judged)

    monkeypatch.setattr(deep_gp_probe, "fit_probe", fit)
    return value, judged


def test_held_out_rows_judge_kernels_in_folds(told, monkeypatch):
    """All rows are judged once, by models that have not seen them, and the sum decides."""
    value, judged = told
    assert classifier().fit(X, LABELS).length_scales_ == "long"
    assert sum(judged) == 2 * N
    value[LONG] = -2.0
    assert classifier().fit(X, LABELS).length_scales_ == "learned"
    judged.clear()
    assert classifier(kernel__length_scales="learned").fit(X, LABELS).length_scales_ == "learned"
    assert classifier(time_budget=20.0).fit(X, LABELS).length_scales_ == "learned"
    monkeypatch.setattr(deep_gp_kernel, "MIN_ROWS", N + 1)
    assert classifier().fit(X, LABELS).length_scales_ == "learned"
    assert judged == []


def test_what_one_fold_shows_clearly_is_not_asked_of_the_others(told):
    value, judged = told
    value[LONG] = 50.0
    assert classifier().fit(X, LABELS).length_scales_ == "long"
    assert judged == [N // 3, N // 3]


def test_many_rows_are_judged_by_one_part_of_a_sample(told):
    value, judged = told
    assert deep_gp_kernel.find_kernel(classifier(), task_of(3000), Monitor()) is LONG
    assert judged == [1000, 1000]
    judged.clear()
    assert deep_gp_kernel.find_kernel(classifier(), task_of(20_000), Monitor()) is LONG
    assert judged == [2000, 2000]
    value[LONG] = -2.0
    assert deep_gp_kernel.find_kernel(classifier(), task_of(3000), Monitor()) is None


def test_numbers_are_asked_where_rows_are_too_few_to_tell_scales_from_noise(told):
    auto = regressor(kernel__length_scales="auto")
    assert auto.fit(X, Y).length_scales_ == "long"
    assert auto._find_kernel(task_of(2999), Monitor()) is LONG
    assert auto._find_kernel(task_of(3000), Monitor()) is None
    assert regressor(kernel__length_scales="long")._find_kernel(task_of(3000), Monitor()) is LONG
    told[1].clear()
    assert auto._find_kernel(task_of(600), Monitor()) is LONG
    assert told[1] == [200, 200]


def test_nodes_beyond_the_inputs_are_judged_in_all_layers(monkeypatch):
    """One layer cannot learn the branches that such nodes tell apart."""
    judged = set()

    def fit(estimator, rows, seed, probe):
        judged.add(probe.layers)
        return Told(rows, 0.0, [])

    monkeypatch.setattr(deep_gp_probe, "fit_probe", fit)
    for make, layers, hidden, expected in (
        (regressor, 2, "auto", 1), (regressor, 3, 2, 1), (regressor, 1, 3, 1),
        (regressor, 2, 3, 2), (regressor, 3, 3, 3), (classifier, 2, 3, 1),
    ):  # fmt: skip
        model = make(layers=layers, hidden_dim=hidden, kernel__length_scales="auto")
        deep_gp_kernel.find_kernel(model, task_of(600), Monitor())
        assert judged == {expected}
        judged.clear()


def test_few_rows_copied_many_times_are_few_rows(told):
    rows = np.random.default_rng(3).standard_normal((11, 2))
    engine = LocalEngine(np.tile(rows, (4, 1)), np.tile(rows[:, 0], 4), seed=0)
    task = Task(engine, Standard.of(rows, None), 44.0, 44, 0)
    assert deep_gp_kernel.find_kernel(classifier(), task, Monitor()) is None
    assert told[1] == []


def test_a_budget_that_leaves_time_changes_no_choice(told):
    assert classifier(time_budget=100.0).fit(X, LABELS).length_scales_ == "long"


def test_a_probe_takes_a_tenth_of_a_budget(monkeypatch):
    monitors = []

    def train(self, task, monitor):
        monitors.append(monitor)
        raise InterruptedError

    monkeypatch.setattr(DeepGPClassifier, "_train", train)
    with pytest.raises(InterruptedError):
        fit_probe(classifier(time_budget=100.0), Rows(X, Y, None), 0, Probe(1, 20, 1.0))
    assert 9.0 < monitors[0].left <= 10.0


@pytest.mark.parametrize("as_stream", [False, True])
def test_copies_of_a_row_do_not_judge_it(as_stream):
    """Judged by their copies, rows learned by heart would seem right."""
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((600, 3))
    labels = (rng.random(600) < 1.0 / (1.0 + np.exp(-0.7 * rows[:, 0]))).astype(int)
    words = {"layers": 1, "n_inducing": 50, "max_iter": 500, "inference__dtype": "float32"}
    model = DeepGPClassifier().set_params(random_state=0, **words)
    if as_stream:
        model.fit([(rows, labels)] * 4)
    else:
        model.fit(np.tile(rows, (4, 1)), np.tile(labels, 4))
    assert model.length_scales_ == "long"


def test_a_sign_is_clear_when_the_sum_is_far_from_zero_in_its_errors():
    noise = np.random.default_rng(2).standard_normal(400)
    noise = (noise - noise.mean()) / noise.std()
    assert is_significant(noise + 0.25)
    assert is_significant(noise - 0.25)
    assert not is_significant(noise + 0.15)


def test_the_kernels_that_are_judged_are_those_that_are_named():
    """A probe keeps the kernel it is given and learns one otherwise."""
    model = classifier(kernel__length_scales="learned").fit(X, LABELS)
    twice, labels = np.tile(X, (2, 1)), np.tile(LABELS, 2)
    rows = Rows(twice, model._standardise(np.searchsorted(model.classes_, labels), None), None)
    long, learned = (
        fit_probe(model, rows, 0, Probe(1, 100, 1.0, kernel)).outputs.function.layers[0][
            "log_scale"
        ]
        for kernel in (LONG, None)
    )
    assert len(np.unique(long)) == 1
    assert len(np.unique(learned)) == D


@pytest.mark.slow
def test_held_out_rows_choose_the_kernel():
    """A sharp step calls for a learned kernel, a faint trend in all inputs does not."""
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((300, 12))
    sharp = np.sin(3.0 * rows[:, 0]) > 0.0
    faint = rows.sum(axis=1) + 4.0 * rng.standard_normal(300) > 0.0
    words = {"layers": 1, "random_state": 0, "inference__dtype": "float32", "max_iter": 300}
    assert DeepGPClassifier().set_params(**words).fit(rows, sharp).length_scales_ == "learned"
    assert DeepGPClassifier().set_params(**words).fit(rows, faint).length_scales_ == "long"


@pytest.mark.parametrize("n_rows", [150, 2400])
def test_classes_that_overlap_are_not_learned_by_heart(n_rows):
    """Log loss near that of the true chances, for few and for many rows."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((n_rows + 4000, 3))
    chance = 1.0 / (1.0 + np.exp(-0.7 * rows[:, 0]))
    labels = (rng.random(len(chance)) < chance).astype(int)
    words = {"random_state": 0, "inference__dtype": "float32", "layers": 1}
    model = DeepGPClassifier().set_params(**words, n_inducing=50, max_iter=500)
    model.fit(rows[:n_rows], labels[:n_rows])
    p, truth = model.predict_proba(rows[n_rows:])[:, 1], chance[n_rows:]
    lost = truth * np.log(truth / p) + (1.0 - truth) * np.log((1.0 - truth) / (1.0 - p))
    assert lost.mean() < 4.0 / n_rows + 0.002  # two are what four coefficients cost


def test_few_rows_of_mostly_noise_are_not_learned_by_heart():
    """Intervals keep their word; with learned scales those of 90% held 65 to 80%."""
    held = []
    words = {"random_state": 0, "inference__dtype": "float32", "layers": 1, "max_iter": 500}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((1050, 5))
        y = rng.standard_normal(1050)
        low, high = (
            DeepGPRegressor()
            .set_params(**words)
            .fit(rows[:50], y[:50])
            .predict_interval(rows[50:])
            .T
        )
        held.append(np.mean((low <= y[50:]) & (y[50:] <= high)))
    assert 0.82 < np.mean(held) < 0.97


# -- powers --------------------------------------------------------------------------------
@pytest.fixture
def weighed(monkeypatch):
    """What power 1 gains with one layer and with two, and the probes that were asked for."""
    value, asked = {1: -1.0, 2: 1.0}, []

    def density_gains(estimator, rows, out, seed, probes):
        assert [probe.power for probe in probes] == [1.0, 0.5]
        asked.append((probes[0].layers, rows.n, len(out)))
        return np.full(len(out), value[probes[0].layers])

    monkeypatch.setattr(deep_gp_probe, "density_gains", density_gains)
    return value, asked


def test_power_of_few_rows_and_of_words(weighed):
    assert regressor()._find_power(task_of(2999), Monitor()) == 0.5
    assert regressor(inference__power=0.2)._find_power(task_of(4000), Monitor()) == 0.2
    assert regressor(time_budget=9.0)._find_power(task_of(4000), Monitor()) == 1.0  # no time to ask
    assert classifier()._find_power(task_of(10), Monitor()) == 1.0
    assert classifier(inference__power=0.3)._find_power(task_of(10), Monitor()) == 0.3
    assert weighed[1] == []


def test_power_of_many_rows_is_asked_of_one_layer_then_of_two(weighed):
    value, asked = weighed
    assert regressor()._find_power(task_of(4000), Monitor()) == 1.0
    assert asked == [(1, 4000, 1000), (2, 4000, 1000)]
    asked.clear()
    value[1] = 1.0
    assert regressor()._find_power(task_of(20_000), Monitor()) == 1.0
    assert asked == [(1, 10_000, 2000)]
    value.update({1: -1.0, 2: -1.0})
    assert regressor()._find_power(task_of(4000), Monitor()) == 0.5
    asked.clear()
    value[2] = 1.0
    assert regressor(layers=1)._find_power(task_of(4000), Monitor()) == 0.5
    assert regressor(layers=1)._find_power(task_of(40, weight=100.0), Monitor()) == 0.5
    assert asked == [(1, 4000, 1000), (1, 40, 10)]
    assert regressor()._find_power(task_of(1, weight=5000.0), Monitor()) == 0.5  # nobody to ask


@pytest.mark.parametrize(
    ("spread", "power"),
    [(lambda rows: np.ones(len(rows)), 0.5), (lambda rows: 0.1 + np.abs(rows[:, 1]), 1.0)],
    ids=["even", "uneven"],
)
def test_noise_that_is_most_of_the_target_is_not_learned_by_heart(spread, power):
    """Power 1 would take it for a function; noise that differs from place to place needs it."""
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((7000, 3))
    scale = spread(rows)
    y = 0.5 * rows[:, 0] + scale * rng.standard_normal(7000)
    words = {"random_state": 0, "inference__dtype": "float32", "layers": 1}
    model = (
        DeepGPRegressor()
        .set_params(**words, n_inducing=50, max_iter=500)
        .fit(rows[:3000], y[:3000])
    )
    assert model.power_ == power
    truth = -0.5 * np.log(2.0 * np.pi * scale**2) - 0.5 * ((y - 0.5 * rows[:, 0]) / scale) ** 2
    lost = truth[3000:] - model.log_predictive_density(rows[3000:], y[3000:])
    assert lost.mean() < (0.02 if power == 0.5 else 0.12)
