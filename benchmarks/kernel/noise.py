"""Label noise: accuracy lost to 20% wrong training labels, ours and a grid-searched SVC.

Both are measured with and without noise on the same rows, at most 2,000 of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, read_json, remember
from benchmarks.kernel.classify import measured, ours, svc
from benchmarks.kernel.problem import Split, class_split

SHARE, ROWS = 0.2, 2000
MODELS = {"ours": ours, "svc": svc}


def run(folder: Path, sets: Iterable[str], seeds: Iterable[int]) -> None:
    """Measure every set and seed that is not stored yet."""
    for seed in seeds:
        for name in sets:
            for model in MODELS:
                for noisy in (False, True):
                    key = f"{name}/{seed}/{'noisy' if noisy else 'clean'}"
                    found = remember(
                        folder / f"noise-{model}.json", key,
                        partial(measure, model, name, seed, noisy),
                    )  # fmt: skip
                    print(f"{key} {model}: accuracy {found['accuracy']:.4f}", flush=True)


def measure(model: str, name: str, seed: int, noisy: bool) -> dict[str, Any]:
    """Accuracy of one model on one split; test labels are clean."""
    split = class_split(name, seed, ROWS)
    if noisy:
        split = Split(split.X, flipped(split.y, seed), split.X_test, split.y_test)
    return measured(MODELS[model], split, seed)


def flipped(y: Any, seed: int) -> Any:
    """Labels with a fifth of them changed to another class."""
    rng = np.random.default_rng([seed, 78])
    chosen = rng.random(len(y)) < SHARE
    n_classes = int(y.max()) + 1
    other = (y + rng.integers(1, n_classes, len(y))) % n_classes
    return np.where(chosen, other, y)


def text(folder: Path) -> str:
    """The table of the measurements so far."""
    stored = {model: read_json(folder / f"noise-{model}.json") for model in MODELS}
    drops: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for key in stored["ours"]:
        name, seed, kind = key.rsplit("/", 2)
        other = f"{name}/{seed}/clean"
        if kind == "noisy" and all(key in s and other in s for s in stored.values()):
            for model, records in stored.items():
                pair = (records[other]["accuracy"], records[key]["accuracy"])
                drops.setdefault(name, {}).setdefault(model, []).append(pair)
    if not drops:
        return ""
    table, lost = [], {model: [] for model in MODELS}
    for name, by_model in sorted(drops.items()):
        row = [name, str(len(by_model["ours"]))]
        for model, pairs in by_model.items():
            clean, noisy = 100 * np.mean(pairs, axis=0)
            lost[model].append(clean - noisy)
            row += [f"{clean:.2f}", f"{noisy:.2f}", f"{clean - noisy:.2f}"]
        table.append(row)
    header = ["data set", "seeds", "ours, clean", "noisy", "lost", "SVC, clean", "noisy", "lost"]
    means = {model: float(np.mean(values)) for model, values in lost.items()}
    met = "met" if means["ours"] < means["svc"] else "missed"
    return "\n".join([
        "## Label noise", "",
        f"Points of accuracy lost to 20% wrong labels among at most {ROWS:,} training rows; "
        "default options, and the SVC grid-searched as above on the noisy labels.", "",
        markdown_table(header, table), "",
        f"Mean loss: ours {means['ours']:.2f}, SVC {means['svc']:.2f} (target: less, {met}).", "",
    ])  # fmt: skip
