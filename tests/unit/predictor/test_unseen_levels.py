"""Predictions for levels that training never saw: as uncertain as the levels of training differ."""

from __future__ import annotations

import numpy as np
import pytest

from likelier import BayesianKernelRegressor, LinearClassifier, LinearRegressor
from likelier.fitting.tables import fit_source, target_source

COVERAGE = 0.9


def names_of(n):
    """Names that tell nothing about each other."""
    rng = np.random.default_rng(99)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return np.array(["".join(rng.choice(letters, 8)) for _ in range(n)])


def levels_with_effects(n_levels, n, seed, noise=0.3):
    """Rows of levels whose effects are large; a second half of the levels is for later only."""
    rng = np.random.default_rng(seed)
    names = names_of(2 * n_levels)
    effects = 3.0 * rng.standard_normal(2 * n_levels)

    def rows(first, last, size):
        level = rng.integers(first, last, size)
        x = rng.standard_normal(size)
        y = x + effects[level] + noise * rng.standard_normal(size)
        return {"level": names[level].tolist(), "x": x.tolist(), "y": y.tolist()}

    return rows(0, n_levels, n), rows(0, n_levels, n // 2), rows(n_levels, 2 * n_levels, n // 2)


def fitted(model, table):
    return fit_source(model, target_source(table, "y"))


def predicted(model, table):
    return model.predict(table), model.predict_interval(table, coverage=COVERAGE)


@pytest.mark.parametrize("n_levels", [30, 200])
@pytest.mark.parametrize("name", ["linear", "kernel"])
def test_intervals_cover_unseen_levels(name, n_levels):
    """Of these rows 80 % at least; intervals for known levels stay as narrow as they were."""
    seen, known, unseen = levels_with_effects(n_levels, 3000 if n_levels == 30 else 4000, seed=1)
    regressor = {
        "linear": LinearRegressor(random_state=0),
        "kernel": BayesianKernelRegressor(random_state=0, n_components=200),
    }[name]
    model = fitted(regressor, seen)
    with pytest.warns(UserWarning, match=rf"'level' \({len(unseen['y'])}\)"):
        label, interval = predicted(model, unseen)
    y = np.array(unseen["y"])
    covered = ((interval[:, 0] <= y) & (y <= interval[:, 1])).mean()
    own = predicted(model, known)[1]
    wide, narrow = np.median(np.ptp(interval, axis=1)), np.median(np.ptp(own, axis=1))
    print(f"{name}, {n_levels} levels: {covered:.3f} covered, width {wide:.1f}, known {narrow:.1f}")
    assert covered >= 0.8
    assert wide < 4 * np.std(seen["y"]) + 1.0  # 3.3 for a normal distribution
    if n_levels == 30:
        assert narrow < 0.5 * wide
    # not knowing the level, the mean over levels is what is left to say
    everywhere = np.mean(seen["y"]) + np.array(unseen["x"])
    assert np.median(np.abs(label - everywhere)) < 0.5 * np.std(seen["y"])


@pytest.mark.parametrize("n_levels", [8, 30, 200])
def test_probabilities_of_unseen_levels_are_those_of_an_average_level(n_levels):
    rng = np.random.default_rng(0)
    names = names_of(n_levels)
    odds = 4.0 * rng.standard_normal(n_levels)
    level = rng.integers(0, n_levels, 5000)
    x = rng.standard_normal(5000)
    y = np.where(rng.random(5000) < 1 / (1 + np.exp(-odds[level] - x)), "yes", "no")
    table = {"level": names[level].tolist(), "x": x.tolist(), "y": y.tolist()}
    model = fitted(LinearClassifier(random_state=0), table)
    grid = np.linspace(-1, 1, 5)
    known = {"level": np.repeat(names, 5).tolist(), "x": np.tile(grid, n_levels).tolist()}
    each = model.predict_proba(known)[:, 1].reshape(n_levels, 5)
    with pytest.warns(UserWarning, match=r"'level' \(5\)"):
        found = model.predict_proba({"level": ["?!?"] * 5, "x": grid.tolist()})
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    average = each.mean(axis=0)
    # 32 levels stand for all of them, and by many levels those that are spelled like it
    slack = 0.1 if n_levels < 40 else 0.25
    assert (np.abs(found[:, 1] - average) < slack).all()
    extremes = np.abs(each - 0.5).mean(axis=0)
    assert (np.abs(found[:, 1] - 0.5) < extremes + 0.02).all()
    labels = model.predict({"level": names[:3].tolist(), "x": [0.0] * 3})
    assert set(labels.tolist()) <= {"yes", "no"}


def test_rows_of_known_levels_are_predicted_as_ever():
    seen, known, unseen = levels_with_effects(10, 800, seed=2)
    model = fitted(LinearRegressor(random_state=0), seen)
    both = {key: [*known[key][:50], *unseen[key][:50]] for key in known}
    alone = {key: known[key][:50] for key in known}
    with pytest.warns(UserWarning, match=r"of 100 rows.*'level' \(50\)"):
        label, interval = predicted(model, both)
    expected, ends = predicted(model, alone)
    np.testing.assert_allclose(label[:50], expected, rtol=1e-12)
    np.testing.assert_allclose(interval[:50], ends, rtol=1e-12)


def test_labels_agree_with_the_mixed_probabilities():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 5, 600)
    table = {
        "level": names_of(5)[level].tolist(),
        "x": rng.standard_normal(600).tolist(),
        "y": np.array(["a", "b", "c"])[level % 3].tolist(),
    }
    model = fitted(LinearClassifier(random_state=0), table)
    later = {"level": ["new"] * 4, "x": [-1.0, 0.0, 1.0, 2.0]}
    with pytest.warns(UserWarning, match=r"'level' \(4\)"):
        label, probability = model.predict(later), model.predict_proba(later)
    with pytest.warns(UserWarning, match=r"'level' \(4\)"):
        logarithm = model.predict_log_proba(later)
    np.testing.assert_array_equal(label, model.classes_[probability.argmax(axis=1)])
    np.testing.assert_allclose(logarithm, np.log(probability))
    assert probability.max() < 0.7  # two of five levels have each of two labels
