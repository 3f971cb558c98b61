"""Two toys with pictures: two branches at once, and a step; power 1 beside nearly variational.

Two branches need a node that tells them apart: one more than there are inputs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import read_json
from benchmarks.deepgp.notes import Notes
from likelier import DeepGPRegressor, PowerEP

HIDDEN = 2
POWERS = {"power 1": 1.0, "power 0.5": 0.5, "variational": 1e-3}
ROWS, TEST_ROWS = 400, 2000
FAR = 0.8  # where the branches are far apart, and half the way to zero lies between them


def branches(n: int, seed: int) -> tuple[Any, Any]:
    """Targets near ``.5 + x`` or its negative, either with probability one half."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, n)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0) * (0.5 + x) + 0.05 * rng.standard_normal(n)
    return x[:, None], y


def step(n: int, seed: int) -> tuple[Any, Any]:
    """A jump from -1 to 1 at zero."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, n)
    return x[:, None], np.sign(x) + 0.05 * rng.standard_normal(n)


TOYS = {"branches": branches, "step": step}


def run(notes: Notes, seeds: range) -> None:
    """Fit every toy with every power."""
    for toy in TOYS:
        for name in POWERS:
            for seed in seeds:
                key = f"{toy}/{name}/{seed}"
                record = notes.keep("toys", key, partial(measure, toy, name, seed))
                print(f"{key}: {record['log_density']:.3f}", flush=True)


def measure(toy: str, name: str, seed: int) -> dict[str, Any]:
    """Test log density, and quantiles along the inputs for the picture."""
    X, y = TOYS[toy](ROWS, seed)
    model = DeepGPRegressor(
        inference=PowerEP(POWERS[name]), hidden_dim=HIDDEN, random_state=seed, max_iter=2000
    ).fit(X, y)
    density = model.log_predictive_density(*TOYS[toy](TEST_ROWS, seed + 1000))
    grid = np.linspace(-1.2, 1.2, 121)
    draws = model.sample_y(grid[:, None], 40, random_state=0)
    record = {"log_density": float(density.mean()), "grid": grid, "draws": draws.round(4)}
    if toy == "branches":
        far = model.sample_y([[FAR]], 4000, random_state=0)[0]
        record["between"] = float(np.mean(np.abs(far) < (0.5 + FAR) / 2.0))
    return record


def picture(folder: Path, docs: Path) -> str:
    """Draws from the predictive law of every toy and power; returns the lines of the page."""
    from matplotlib import pyplot as plt

    records = read_json(folder / "toys.json")
    found = {key: value for key, value in records.items() if key.endswith("/0")}
    if not found:
        return ""
    figure, axes = plt.subplots(len(TOYS), len(POWERS), figsize=(10, 5), squeeze=False, sharex=True)
    for i, toy in enumerate(TOYS):
        X, y = TOYS[toy](ROWS, 0)
        for j, name in enumerate(POWERS):
            ax, record = axes[i, j], found.get(f"{toy}/{name}/0")
            ax.plot(X[:, 0], y, ".", color="0.6", markersize=2)
            if record:
                grid, draws = np.array(record["grid"]), np.array(record["draws"])
                ax.plot(np.repeat(grid, draws.shape[1]), draws.ravel(), ".", markersize=1)
                ax.set_title(f"{toy}, {name}: {record['log_density']:.2f}", fontsize=9)
    figure.tight_layout()
    docs.mkdir(parents=True, exist_ok=True)
    figure.savefig(docs / "deepgp-toys.png", dpi=120)
    plt.close(figure)
    return "![draws of the two toys](deepgp-toys.png)\n"


def means(folder: Path, field: str) -> dict[tuple[str, str], float]:
    """Mean over the seeds by toy and power."""
    sums: dict[tuple[str, str], list[float]] = {}
    for key, record in read_json(folder / "toys.json").items():
        toy, name, _ = key.split("/")
        if field in record:
            sums.setdefault((toy, name), []).append(record[field])
    return {key: float(np.mean(values)) for key, values in sums.items()}
