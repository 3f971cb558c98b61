"""The page of the deep Gaussian processes: every number on it comes from stored measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, read_json, seconds_text
from benchmarks.deepgp import classify, likelihood, regress, toys

TITLE = (
    "# Deep Gaussian processes\n\nWritten by `make bench-deepgp`; no number here is typed by "
    "hand, except those of the columns that say they are published.\n"
)
# Figures to reach; the best published of any depth or method.
AIMS = {
    "boston": -2.41, "energy": -0.72, "kin8nm": 1.33, "naval": 6.36, "power-plant": -2.79,
    "protein-casp": -2.80, "winequality-red": -0.93,
}  # fmt: skip


def write(folder: Path, docs: Path) -> None:
    """Write deepgp.md and its picture from what has been measured so far."""
    docs.mkdir(parents=True, exist_ok=True)
    parts = [
        TITLE, _machine(folder), _regress(folder), _classify(folder), _speed(folder),
        _toys(folder, docs), _likelihood(folder),
    ]  # fmt: skip
    (docs / "deepgp.md").write_text("\n".join(part for part in parts if part))


def _machine(folder: Path) -> str:
    facts = read_json(folder / "machine.json")
    if not facts:
        return ""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}; processor time of one "
        "thread. The machine was shared: read ratios, not seconds.\n"
    )


def _regress(folder: Path) -> str:
    found = {model: regress.means(folder, model) for model in regress.MODELS}
    if not found["ours"]:
        return ""
    header = ["data set", "splits", *regress.MODELS, "published (1 / 2 / 3 layers)", "aim",
              "short of it by", "CPU of ours"]  # fmt: skip
    rows = []
    for name in regress.SETS:
        if name not in found["ours"]:
            continue
        mean, error, n, cpu = found["ours"][name]
        short = AIMS[name] - (mean + (0.0 if np.isnan(error) else error))
        rows.append([
            name, str(n), *(_value(found[model].get(name)) for model in regress.MODELS),
            " / ".join(f"{v:.3g}" for v in regress.PUBLISHED[name]), f"{AIMS[name]:.2f}",
            f"{short:.3f}" if short > 0.0 else "-", seconds_text(cpu),
        ])  # fmt: skip
    return (
        "## Regression\n\nMean test log density per row in the units of the target, plus or minus "
        "one standard error over the published splits; one configuration for all sets. The noise "
        'variance cannot fall below 1e-5 of the targets\' variance. "Short of it" counts from '
        "one standard error above the mean.\n\n" + markdown_table(header, rows) + "\n"
    )


def _value(record: Any) -> str:
    if record is None:
        return "-"
    mean, error, _, _ = record
    return f"{mean:.3f}" if np.isnan(error) else f"{mean:.3f} ± {error:.3f}"


def _classify(folder: Path) -> str:
    records = read_json(folder / "classify.json")
    out = []
    for noisy, title in ((False, "Labels as they are"), (True, "A tenth of the labels changed")):
        rows = []
        for name in classify.SETS:
            by_model = {model: _of(records, name, model, noisy) for model in classify.MODELS}
            if not by_model["power 1"]:
                continue
            cells = [
                f"{np.mean([r['log_loss'] for r in found]):.4f} / "
                f"{100 * np.mean([r['accuracy'] for r in found]):.2f}" if found else "-"
                for found in by_model.values()
            ]  # fmt: skip
            peer = by_model["logistic"]
            ours = np.mean([r["log_loss"] for r in by_model["power 1"]])
            better = "-" if not peer else (
                "yes" if ours <= np.mean([r["log_loss"] for r in peer]) else "**no**"
            )  # fmt: skip
            rows.append([name, str(len(by_model["power 1"])), *cells, better])
        if rows:
            header = ["data set", "seeds", *classify.MODELS, "better than logistic"]
            out.append(f"### {title}\n\n" + markdown_table(header, rows) + "\n")
    if not out:
        return ""
    return "## Classification\n\nLog loss / accuracy in percent.\n\n" + "\n".join(out)


def _of(records: dict[str, Any], name: str, model: str, noisy: bool) -> list[Any]:
    end = f"/{model}" + ("/noisy" if noisy else "")
    return [r for key, r in records.items() if key.startswith(f"{name}/") and key.endswith(end)]


def _speed(folder: Path) -> str:
    records = read_json(folder / "speed.json")
    if not records:
        return ""
    rows = [
        [dtype, seconds_text(r["ours"]), seconds_text(r["gpytorch"]), f"{r['ratio']:.2f}",
         seconds_text(r["first_call"])]
        for dtype, r in records.items()
    ]  # fmt: skip
    header = ["precision", "ours", "GPyTorch", "ratio", "our first call"]
    return (
        "## Speed\n\nProcessor time of a minibatch on one core: kin8nm, 2 layers, 128 inducing "
        "points, 10 samples, 1024 rows.\n\n" + markdown_table(header, rows) + "\n"
    )


def _toys(folder: Path, docs: Path) -> str:
    values = toys.mean_densities(folder)
    if not values:
        return ""
    rows = [
        [toy, *(f"{values[toy, p]:.3f}" if (toy, p) in values else "-" for p in toys.POWERS)]
        for toy in toys.TOYS
    ]
    table = markdown_table(["toy", *toys.POWERS], rows)
    return (
        "## Toys\n\nMean test log density per row; the picture shows draws.\n\n"
        + table + "\n\n" + toys.picture(folder, docs)
    )  # fmt: skip


def _likelihood(folder: Path) -> str:
    results = read_json(folder / "likelihood.json")
    return likelihood.tables(results) if results else ""
