"""What the rate and the scale of the features do to a fit.

First, plain SGD at a fixed rate over nine decades: implicit, explicit, and scikit-learn's, on
standardised and on raw features. Second, ``solver="auto"`` while every feature is
multiplied by its own factor, spread over up to twelve decades (six in each direction). No
penalty is used there, so that rescaling leaves the best possible loss unchanged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from benchmarks.datasets import Array, Dataset, data_folder, load
from benchmarks.linear.optimum import log_loss

RATES = tuple(float(10.0**power) for power in range(-5, 5))
SCALES = tuple(float(10.0**power) for power in range(-3, 4))
SPREADS = (0, 1, 2, 3, 4, 5, 6)
PASSES = 5


def run(
    rows: int = 20_000, seeds: int = 3, report: Callable[[str], None] = print
) -> dict[str, Any]:
    """Measure both halves and return their curves."""
    raw = raw_data(rows)
    spread = raw.X.std(axis=0)
    standard = (raw.X - raw.X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    results: dict[str, Any] = {
        "rows": raw.n_rows,
        "set": raw.name,
        "rates": RATES,
        "scales": SCALES,
        "spreads": SPREADS,
        "passes": PASSES,
    }
    for label, X in (("standardised", standard), ("raw", raw.X)):
        results[label] = rate_curves(X, raw.y, seeds)
        finite = np.isfinite(results[label]["implicit"]).all()
        report(f"stability {label}: implicit finite at every rate: {finite}")
    results["auto"] = auto_curves(standard, raw.y, seeds)
    report(f"stability auto: worst excess {results['auto']['worst_excess']:.2%} over its best")
    return results


def raw_data(rows: int) -> Dataset:
    """Take rows of covtype in their published units, or generated data of wild scales."""
    if data_folder() is None:
        data = load("generated")
        return Dataset(data.name, data.X * 10.0 ** np.linspace(-3, 3, 20), data.y, "scaled")
    data = load("covtype-raw").head(rows)
    varies = data.X.std(axis=0) > 0
    return Dataset("covtype", data.X[:, varies], data.y, "in published units")


def mean_loss(X: Array, y: Array, coef: Array, intercept: Array) -> float:
    """Mean log loss, infinite for weights that are not finite."""
    with np.errstate(all="ignore"):
        scores = X @ np.ravel(coef) + np.ravel(intercept)[0]
        value = float(log_loss(np.where(y == 1, scores, -scores))[0].mean())
    return value if np.isfinite(value) else float("inf")


def rate_curves(X: Array, y: Array, seeds: int) -> dict[str, list[float]]:
    """Worst loss over seeds at every rate, for each of the three updates."""
    return {
        name: [max(fit(X, y, rate, seed) for seed in range(seeds)) for rate in RATES]
        for name, fit in (
            ("implicit", lambda *case: _plain("implicit", *case)),
            ("explicit", lambda *case: _plain("explicit", *case)),
            ("scikit-learn", _scikit_learn),
        )
    }


def _plain(update: str, X: Array, y: Array, rate: float, seed: int) -> float:
    from likelier import SGD, LinearClassifier

    model = LinearClassifier(
        solver=SGD(update, "constant", eta0=rate, average=False),
        alpha=0.0,
        max_iter=PASSES,
        tol=None,
        random_state=seed,
    )
    return _loss_after(model, X, y)


def _scikit_learn(X: Array, y: Array, rate: float, seed: int) -> float:
    model = SGDClassifier(
        loss="log_loss",
        penalty=None,
        learning_rate="constant",
        eta0=rate,
        max_iter=PASSES,
        tol=None,
        random_state=seed,
    )
    return _loss_after(model, X, y)


def _loss_after(model: Any, X: Array, y: Array) -> float:
    """Loss of a fit; infinite where the fit refuses because weights overflowed."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y)
        except (ValueError, FloatingPointError):
            return float("inf")
        return mean_loss(X, y, model.coef_, model.intercept_)


def auto_curves(X: Array, y: Array, seeds: int) -> dict[str, Any]:
    """Loss of ``solver="auto"`` under common and under separate factors."""
    common = [max(_auto(X * scale, y, seed) for seed in range(seeds)) for scale in SCALES]
    separate = []
    for spread in SPREADS:
        rng = np.random.default_rng(spread)
        factors = 10.0 ** rng.uniform(-spread, spread, size=X.shape[1])
        separate.append(max(_auto(X * factors, y, seed) for seed in range(seeds)))
    best = min(common + separate)
    return {
        "common": common,
        "separate": separate,
        "best": best,
        "worst_excess": max(common + separate) / best - 1,
        "zero_model": float(np.log(2)),
    }


def _auto(X: Array, y: Array, seed: int) -> float:
    from likelier import LinearClassifier

    return _loss_after(LinearClassifier(alpha=0.0, random_state=seed), X, y)
