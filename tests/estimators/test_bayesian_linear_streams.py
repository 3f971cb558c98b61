"""`BayesianLinearClassifier` on blocks and sparse rows: the same answers as on dense arrays."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import BayesianLinearClassifier
from likelier.bayesian_linear import recipe
from likelier.calibration import ece
from likelier.fitting import cross_fit

from .bayesian_linear_problem import bayesian

QUICK = {"n_draws": 60, "n_chains": 2, "random_state": 0}


def noisy_rows(n, d, seed=0):
    """Labels of which few features can be learned from few rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + 1.5 * rng.normal(size=n) > 0.0).astype(int)


def blocks_of(X, y, size=97):
    parts = [slice(first, first + size) for first in range(0, len(y), size)]
    return lambda: iter([(X[part], y[part]) for part in parts])


def test_the_hinge_is_calibrated_on_rows_it_has_not_learned():
    """Of 150 rows with 40 features learned rows score far too well: the error was 0.19."""
    X, y = noisy_rows(4150, 40)
    words = {"sampler": "gibbs", "n_warmup": 40, **QUICK}
    model = bayesian("hinge", **words).fit(blocks_of(X[:150], y[:150]))
    assert ece(model.predict_proba(X[150:]), y[150:]) < 0.1


def test_one_fold_of_many_rows_is_left_out(monkeypatch):
    """Where these are few for each feature."""
    monkeypatch.setattr(cross_fit, "ONE_FOLD_ROWS", 100)
    monkeypatch.setattr(cross_fit, "ENOUGH", 5)
    X, y = noisy_rows(180, 4)
    learned, scored = [], []
    draw, score = recipe.draw, BayesianLinearClassifier._linear_scores

    def watched_draw(start, engine, *words):
        learned.append({row[0] for batch in engine.blocks() for row in batch.X})
        return draw(start, engine, *words)

    def watched_score(self, X, theta):
        scored.append({row[0] for row in X})
        return score(self, X, theta)

    monkeypatch.setattr(recipe, "draw", watched_draw)
    monkeypatch.setattr(BayesianLinearClassifier, "_linear_scores", watched_score)
    model = bayesian("hinge", **QUICK).fit(blocks_of(X, y))
    assert [len(rows) for rows in learned] == [180, 180 - len(scored[0])]
    assert len(scored) == 1 and 15 < len(scored[0]) < 70 and not learned[1] & scored[0]
    assert model.predict_proba(X).shape == (180, 2)


def test_many_rows_for_each_feature_are_calibrated_without_a_further_fit(monkeypatch):
    monkeypatch.setattr(recipe, "MANY_ROWS", 400)
    fits, real = [], recipe.draw

    def draw(*words):
        fits.append(1)
        return real(*words)

    monkeypatch.setattr(recipe, "draw", draw)
    X, y = noisy_rows(2500, 2)
    model = bayesian("hinge", **QUICK).fit(blocks_of(X[:500], y[:500]))
    assert len(fits) == 1
    assert ece(model.predict_proba(X[500:]), y[500:]) < 0.06


@pytest.mark.parametrize(
    ("kind", "sampler"),
    [("blocks", "auto"), ("csr", "auto"), ("csr blocks", "auto"), ("csr", "gibbs")],
)
def test_columns_far_from_zero_count(kind, sampler):
    """A mean of 1e9 leaves no digit of a spread of one in a sum of squares."""
    X, y = noisy_rows(200, 3)
    words = {"n_draws": 150, "n_warmup": 40, "sampler": sampler, "random_state": 0}
    near = bayesian(**words).fit(X, y)
    far = X + np.array([1e9, 0.0, -1e6])
    rows = far if kind == "blocks" else sparse.csr_array(far)
    model = bayesian(**words)
    model.fit(rows, y) if kind == "csr" else model.fit(blocks_of(rows, y))
    sd = near.coef_draws_.std(axis=(0, 1))
    assert (np.abs(model.coef_ - near.coef_) < 0.25 * sd).all()
    assert np.abs(model.predict_proba(rows) - near.predict_proba(X)).max() < 0.05


def test_a_constant_column_far_from_zero_tells_nothing():
    X, y = noisy_rows(150, 2)
    rows = np.column_stack([X, np.full(150, 1e9)])
    for given in (rows, sparse.csr_array(rows)):
        model = bayesian(**QUICK).fit(given, y)
        assert np.abs(model.coef_[0, 2]) < 1e-8 and model.score(given, y) > 0.65
