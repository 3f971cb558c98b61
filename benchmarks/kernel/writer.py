"""The page of the kernel machines: every number on it comes from stored measurements."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, read_json

TITLE = "# Kernel machines\n\nWritten by `make bench-kernel`; no number here is typed by hand.\n"


def write(folder: Path, docs: Path) -> None:
    """Write kernel.md and its picture from what has been measured so far."""
    parts = [TITLE, _machine(folder), _classify(folder, docs), _noise(folder), _regress(folder)]
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "kernel.md").write_text("\n".join(part for part in parts if part))


def _machine(folder: Path) -> str:
    facts = read_json(folder / "machine.json")
    if not facts:
        return ""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}; processor time of one "
        "thread. The machine was shared: read ratios, not seconds.\n"
    )


def _by_set(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    out: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, value in record.items():
        name, seed = key.rsplit("/", 1)
        out[name][seed] = value
    return out


def _pairs(ours: dict[str, Any], svc: dict[str, Any]) -> list[dict[str, Any]]:
    """One record per data set: means over the seeds that both have."""
    rows = []
    for name in sorted(set(ours) & set(svc)):
        seeds = sorted(set(ours[name]) & set(svc[name]))
        a, b = [ours[name][s] for s in seeds], [svc[name][s] for s in seeds]
        better = [min(r["sigmoid"]["log_loss"], r["temperature"]["log_loss"]) for r in b]
        best_ece = [min(r["sigmoid"]["ece"], r["temperature"]["ece"]) for r in b]
        gaps = [100 * (x["accuracy"] - y["accuracy"]) for x, y in zip(a, b, strict=True)]
        rows.append({
            "name": name, "seeds": len(seeds), "rows": a[0]["rows"], "test": a[0]["test_rows"],
            "accuracy": 100 * np.mean([r["accuracy"] for r in a]),
            "gap": np.mean(gaps), "worst": min(gaps),
            "ratio": np.mean([x["log_loss"] for x in a]) / np.mean(better),
            "ece": np.mean([x["ece"] for x in a]), "svc_ece": np.mean(best_ece),
            "time": np.median([x["cpu"] / y["cpu"] for x, y in zip(a, b, strict=True)]),
            "svc_cpu": np.median([y["cpu"] for y in b]),
        })  # fmt: skip
    return rows


def _classify(folder: Path, docs: Path) -> str:
    ours = _by_set(read_json(folder / "classify-ours.json"))
    rows = _pairs(ours, _by_set(read_json(folder / "classify-svc.json")))
    if not rows:
        return ""
    trees = _by_set(read_json(folder / "classify-boosting.json"))
    header = [
        "data set", "rows", "seeds", "accuracy", "gap to SVC", "worst run", "log loss / SVC's",
        "ECE", "SVC's ECE", "time / grid's", "boosted trees",
    ]  # fmt: skip
    table = [
        [
            r["name"], f"{r['rows']:,}", str(r["seeds"]), f"{r['accuracy']:.2f}",
            f"{r['gap']:+.2f}", f"{r['worst']:+.2f}", f"{r['ratio']:.3f}", f"{r['ece']:.3f}",
            f"{r['svc_ece']:.3f}", f"{100 * r['time']:.1f}%",
            f"{100 * np.mean([v['accuracy'] for v in trees[r['name']].values()]):.2f}"
            if r["name"] in trees else "-",
        ]
        for r in rows
    ]  # fmt: skip
    _picture(rows, docs)
    middle = [r["time"] for r in rows if 2000 <= r["rows"] <= 5000]
    large = [r["gap"] for r in rows if r["test"] >= 1000]
    text = [
        "## Classification with no options, against a grid-searched SVC",
        "",
        "`BayesianKernelClassifier()` beside `SVC` searched over 4 x 5 values of C and gamma in 3 "
        "folds on standardised rows; at most 5,000 training rows. The SVC's log loss and "
        "calibration error are the better of Platt and temperature scaling on each run. Gaps are "
        "in points of accuracy; a negative gap is a loss of ours.",
        "",
        markdown_table(header, table),
        "",
        f"Mean gap {np.mean([r['gap'] for r in rows]):+.2f} points (target +0.3); worst set with "
        f"1,000 test rows or more {min(large):+.2f} (target -0.8); mean ratio of log losses "
        f"{np.mean([r['ratio'] for r in rows]):.3f} (target 0.95), not above one on "
        f"{sum(r['ratio'] <= 1 for r in rows)} of {len(rows)} sets; mean ECE "
        f"{np.mean([r['ece'] for r in rows]):.4f} against "
        f"{np.mean([r['svc_ece'] for r in rows]):.4f}, a ratio of "
        f"{np.mean([r['ece'] for r in rows]) / np.mean([r['svc_ece'] for r in rows]):.2f} "
        f"(target 0.75); median time {100 * np.median(middle):.1f}% of the grid's at 2,000 to "
        "5,000 rows (target 12%).",
        "",
        "![gap](kernel-gap.png)",
        "",
    ]
    found = [v["ood"] for v in ours.get("mnist", {}).values() if "ood" in v]
    if found:
        kinds = ", ".join(f"{kind} {np.mean([f[kind] for f in found]):.4f}" for kind in found[0])
        text += [f"Strange images, by `score_samples` of a model of mnist, AUROC: {kinds}.", ""]
    return "\n".join(text)


def _noise(folder: Path) -> str:
    clean = {m: _by_set(read_json(folder / f"classify-{m}.json")) for m in ("ours", "svc")}
    noisy = {m: _by_set(read_json(folder / f"noise-{m}.json")) for m in ("ours", "svc")}
    names = sorted(set(noisy["ours"]) & set(noisy["svc"]))
    if not names:
        return ""
    drops = {m: [] for m in noisy}
    table = []
    for name in names:
        row = [name]
        for model, by_set in noisy.items():
            seeds = set(by_set[name]) & set(clean[model].get(name, {}))
            if not seeds:
                break
            drop = 100 * np.mean(
                [clean[model][name][s]["accuracy"] - by_set[name][s]["accuracy"] for s in seeds]
            )
            drops[model].append(drop)
            row.append(f"{drop:.2f}")
        if len(row) == 3:
            table.append(row)
    text = [
        "## Label noise", "",
        "Points of accuracy lost when a fifth of the training labels is flipped.", "",
        markdown_table(["data set", "ours", "grid SVC"], table), "",
        f"Mean: ours {np.mean(drops['ours']):.2f}, SVC {np.mean(drops['svc']):.2f}.", "",
    ]  # fmt: skip
    return "\n".join(text)


def _regress(folder: Path) -> str:
    by_set = _by_set(read_json(folder / "regress.json"))
    if not by_set:
        return ""
    table = []
    for name, runs in sorted(by_set.items()):
        values = list(runs.values())

        def mean(key: str, values: Any = values) -> float:
            return float(np.mean([v[key] for v in values]))

        table.append([
            name, f"{values[0]['rows']:,}", str(len(values)), f"{mean('rmse'):.4g}",
            f"{mean('trees_rmse'):.4g}", f"{mean('log_density'):.3f}",
            f"{100 * mean('coverage'):.1f}%", f"{mean('cpu') / mean('trees_cpu'):.2f}",
        ])  # fmt: skip
    header = [
        "data set", "rows", "splits", "RMSE", "boosted trees' RMSE", "log density",
        "coverage at 90%", "time / trees'",
    ]  # fmt: skip
    note = "`BayesianKernelRegressor()` on published splits, beside HistGradientBoosting."
    return "\n".join(["## Regression", "", note, "", markdown_table(header, table), ""])


def _picture(rows: list[dict[str, Any]], docs: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    docs.mkdir(parents=True, exist_ok=True)
    ordered = sorted(rows, key=lambda r: r["gap"])
    figure, axes = plt.subplots(figsize=(7, 0.3 * len(rows) + 1.2))
    axes.barh([r["name"] for r in ordered], [r["gap"] for r in ordered])
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel("points of accuracy above a grid-searched SVC")
    figure.tight_layout()
    figure.savefig(docs / "kernel-gap.png", dpi=100)
    plt.close(figure)
