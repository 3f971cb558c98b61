"""How often 95% intervals hold the coefficient they are for.

Each replication draws new rows from a known model, fits it and asks ``coef_interval(0.95)``.
Features are correlated (0.5 between neighbours); in the ill-scaled settings they are multiplied
by factors from 1e-3 to 1e3. The noise of the linear model grows with the first feature, which
a textbook interval would not survive and the sandwich must.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.datasets import Array

KINDS = ("linear", "logistic", "poisson")
SIZES = (5, 20)
ROWS = 1000
LEVEL = 0.95


@dataclass(frozen=True)
class Setting:
    """One cell of the table."""

    kind: str
    d: int
    ill_scaled: bool

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.d}/{'ill-scaled' if self.ill_scaled else 'well-scaled'}"


def run(replications: int = 1000, report: Callable[[str], None] = print) -> dict[str, Any]:
    """Coverage of every setting, and how often fits that must be refused are."""
    results: dict[str, Any] = {"replications": replications, "rows": ROWS, "settings": {}}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in KINDS:
            for d in SIZES:
                for ill_scaled in (False, True):
                    setting = Setting(kind, d, ill_scaled)
                    entry = measure(setting, replications)
                    results["settings"][setting.key] = entry
                    report(f"coverage {setting.key}: {describe(entry)}")
        results["refusals"] = refusals(min(replications, 100))
    report(f"coverage, fits that must be refused: {results['refusals']}")
    return results


def measure(setting: Setting, replications: int) -> dict[str, Any]:
    """Coverage over replications; the error is that of the mean over replications."""
    hits, refused = [], 0
    for replication in range(replications):
        rng = np.random.default_rng([replication, setting.d, KINDS.index(setting.kind)])
        X, y, beta = draw(setting, rng)
        try:
            interval = np.reshape(_model(setting.kind).fit(X, y).coef_interval(LEVEL), (-1, 2))
        except ValueError:
            refused += 1
            continue
        hits.append((interval[:, 0] <= beta) & (beta <= interval[:, 1]))
    if not hits:
        return {"coverage": None, "refused": refused}
    table = np.array(hits, dtype=float)
    per_coefficient = table.mean(axis=0)
    worst = per_coefficient[np.argmax(np.abs(per_coefficient - LEVEL))]
    return {
        "coverage": float(table.mean()),
        "error": float(table.mean(axis=1).std() / np.sqrt(len(table))),
        "worst_coefficient": float(worst),
        "worst_error": float(np.sqrt(LEVEL * (1 - LEVEL) / len(table))),
        "refused": refused,
    }


def draw(setting: Setting, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Rows, targets and the coefficients that made them."""
    d = setting.d
    distance = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    X = rng.normal(size=(ROWS, d)) @ np.linalg.cholesky(0.5**distance).T
    beta = np.where(np.arange(d) % 2 == 0, 1.0, -0.5) / np.sqrt(d)
    score = 0.3 + X @ beta
    if setting.kind == "linear":
        y = score + rng.normal(size=ROWS) * (0.5 + np.abs(X[:, 0]))
    elif setting.kind == "logistic":
        y = (rng.random(ROWS) < 1 / (1 + np.exp(-score))).astype(np.float64)
    else:
        y = rng.poisson(np.exp(score)).astype(np.float64)
    if setting.ill_scaled:
        factors = 10.0 ** np.linspace(-3, 3, d)
        X, beta = X * factors, beta / factors
    return X, y, beta


def _model(kind: str, **words: Any) -> Any:
    from likelier import LinearClassifier, LinearRegressor

    common = {"alpha": 0.0, "random_state": 0, **words}
    if kind == "logistic":
        return LinearClassifier(loss="log_loss", **common)
    return LinearRegressor(loss="poisson" if kind == "poisson" else "squared_error", **common)


def refusals(replications: int) -> dict[str, Any]:
    """Fits whose interval could not be trusted: cut short, or without a finite optimum."""
    cut = separable = 0
    for replication in range(replications):
        rng = np.random.default_rng([replication, 99])
        X, y, _ = draw(Setting("logistic", 20, ill_scaled=False), rng)
        cut += _is_refused(_model("logistic", max_iter=1), X, y)
        separable += _is_refused(_model("logistic", max_iter=30), X, (X[:, 0] > 0) * 1.0)
    return {"of": replications, "cut_short": cut, "separable": separable}


def _is_refused(model: Any, X: Array, y: Array) -> bool:
    try:
        model.fit(X, y).coef_interval(LEVEL)
    except ValueError:
        return True
    return False


def describe(entry: dict[str, Any]) -> str:
    """One line for the terminal."""
    if entry["coverage"] is None:
        return f"all {entry['refused']} fits refused"
    return (
        f"{entry['coverage']:.1%} +- {entry['error']:.1%}, worst coefficient "
        f"{entry['worst_coefficient']:.1%}, refused {entry['refused']}"
    )
