"""From the measured results to ``nb.md``, ``nb.json`` and the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import SymmetricalLogLocator

from benchmarks.common import markdown_table, read_json, seconds_text, write_json
from benchmarks.nb.agreement_page import agreement_section, agreement_targets
from benchmarks.nb.speed import CALLS

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#666666"
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E5E5E5",
    "axes.axisbelow": True,
    "figure.dpi": 130,
    "savefig.bbox": "tight",
}
PARTS = ("speed", "agreement", "outliers", "missing", "machine")
INTRO = """# Naive Bayes

`GaussianNB`, `MultinomialNB` and `BernoulliNB` against scikit-learn's, both with default
parameters. Written by `make bench-nb`; the measurements are in [nb.json](nb.json).
"""
SPEED = """## Time

One thread, the same matrices (double precision; word counts of 20newsgroups in CSR, absolute
values for the multinomial on the two tables), interleaved, {repeats} repeats. Times are medians
of processor seconds, which for one thread equal wall time on an idle machine. Our `fit` includes
the out-of-fold scores for `is_outlier`, which scikit-learn does not compute. A ratio below 1
means that scikit-learn is faster. `predict` uses the test part of the data set, if there is one.
"""
OUTLIERS = """## Outlier detection

Trained on the mnist training digits, {seeds} seeds. AUROC of `score_samples` for its test digits
against rows that are not digits (worst seed), and the fraction of test digits that `is_outlier`
flags at each coverage. Test and training digits are from different writers.
"""
MISSING = """## Missing values

Largest error of `score_samples` for rows with missing values, relative to brute-force integration
or summation over these values: {errors}.

A fraction of the values of training and test rows is missing at random (half of at most 5,000
rows each, mean over seeds). Accuracy of ours, which marginalises missing values, and of
scikit-learn's with mean or zero imputation, whichever is better. {lost}
"""


def write(results: Path, docs: Path) -> None:
    """Write the page from whatever parts have been measured."""
    measured = {part: read_json(results / f"{part}.json") for part in PARTS}
    docs.mkdir(parents=True, exist_ok=True)
    write_json(docs / "nb.json", measured)
    sections = [INTRO, _machine(measured["machine"])]
    if measured["speed"]:
        sections += [_targets(measured), _speed(measured["speed"], docs)]
    if measured["agreement"]:
        sections.append(agreement_section(measured["agreement"]))
    if measured["outliers"]:
        sections.append(_outliers(measured["outliers"], docs))
    if measured["missing"]:
        sections.append(_missing(measured["missing"]))
    (docs / "nb.md").write_text("\n".join(text.strip() + "\n" for text in sections))


def _machine(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, "
        f"{facts['system']}, Python {facts['python']}; {versions}."
    )


def _targets(measured: dict[str, Any]) -> str:
    ratios = {
        call: [entry["ratio"][call] for entry in measured["speed"].values()] for call in CALLS
    }
    rows = []
    for call in ("fit", "predict"):
        median, worst = float(np.median(ratios[call])), min(ratios[call])
        rows.append((f"{call}, median", "2x", f"{median:.2f}x", _yes(median >= 2.0)))
        rows.append((f"{call}, worst case", "1x", f"{worst:.2f}x", _yes(worst >= 1.0)))
    rows += agreement_targets(measured["agreement"])
    for name, entry in measured["outliers"].items():
        worst = min(min(values) for values in entry["auroc"].values())
        rows.append((f"AUROC, {name}", "0.9", f"{worst:.4f}", _yes(worst >= 0.9)))
    if "brute force" in measured["missing"]:
        error = max(measured["missing"]["brute force"]["error"].values())
        rows.append(("missing values, error", "1e-10", f"{error:.0e}", _yes(error <= 1e-10)))
    return "## In short\n\n" + markdown_table(("what", "target", "measured", "met"), rows)


def _yes(met: bool) -> str:
    return "yes" if met else "NO"


def _speed(results: dict[str, Any], docs: Path) -> str:
    header = ["data", "model"]
    for call in CALLS:
        header += [f"our {call}", "scikit-learn's", "ratio"]
    rows = []
    for entry in results.values():
        row = [f"{entry['set']} ({entry['rows']:,} x {entry['features']:,})", entry["kind"]]
        for call in CALLS:
            times = [
                entry["timings"][f"{who} {call}"]["cpu_seconds"] for who in ("ours", "sklearn")
            ]
            row += [*map(seconds_text, times), f"{entry['ratio'][call]:.2f}x"]
        rows.append(row)
    repeats = max(len(entry["timings"]["ours fit"]["runs"]) for entry in results.values())
    _speed_picture(results, docs / "nb-speed.png")
    lost = [
        f"{entry['set']} {entry['kind']} {call} ({entry['ratio'][call]:.2f}x)"
        for entry in results.values()
        for call in CALLS
        if entry["ratio"][call] < 1.0
    ]
    said = "scikit-learn is faster in: " + "; ".join(lost) if lost else "We lose in no case."
    parts = (
        SPEED.format(repeats=repeats), "![Times faster than scikit-learn](nb-speed.png)\n",
        markdown_table(header, rows), f"\n{said}",
    )  # fmt: skip
    return "\n".join(parts)


def _speed_picture(results: dict[str, Any], path: Path) -> None:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.5, 0.36 * len(results) + 1.6))
        marks = zip(CALLS, (BLUE, ORANGE, GREEN), "osD", strict=True)
        for call, colour, mark in marks:
            ratios = [entry["ratio"][call] for entry in results.values()]
            axes.plot(ratios, -np.arange(len(ratios)), mark, color=colour, label=call)
        labels = [f"{entry['set']}, {entry['kind']}" for entry in results.values()]
        axes.set_yticks(-np.arange(len(labels)), labels)
        axes.axvline(1.0, color="black", lw=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
        axes.set_xlabel("times faster than scikit-learn")
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, frameon=False)
        figure.savefig(path)
        plt.close(figure)


def _outliers(results: dict[str, Any], docs: Path) -> str:
    strange = list(next(iter(results.values()))["auroc"])
    coverages = list(next(iter(results.values()))["accused"])
    rows = [
        (
            name,
            *(f"{min(entry['auroc'][kind]):.4f}" for kind in strange),
            *(f"{np.mean(entry['accused'][c]):.1%}" for c in coverages),
        )
        for name, entry in results.items()
    ]
    seeds = len(next(iter(results.values()))["auroc"][strange[0]])
    _outlier_picture(results, docs / "nb-outliers.png")
    header = ("model", *strange, *(f"flagged at {float(c):.0%}" for c in coverages))
    parts = (
        OUTLIERS.format(seeds=seeds), "![log p(x) of digits and of others](nb-outliers.png)\n",
        markdown_table(header, rows),
    )  # fmt: skip
    return "\n".join(parts)


def _missing(results: dict[str, Any]) -> str:
    sets = {name: entry["accuracy"] for name, entry in results.items() if "accuracy" in entry}
    cases = list(dict.fromkeys(case for entry in sets.values() for case in entry))
    rows, lost = [], []
    for case in cases:
        kind, rate = case.split()
        row = [kind, f"{float(rate):.0%}"]
        for name, entry in sets.items():
            ours, filled = entry[case]["ours"], entry[case]["filled"]
            row.append(f"{ours:.3f} / {filled:.3f}")
            if ours < filled:
                lost.append(f"{name} {kind} {float(rate):.0%}")
        rows.append(row)
    errors = results["brute force"]["error"]
    text = MISSING.format(
        errors=", ".join(f"{error:.0e} ({kind})" for kind, error in errors.items()),
        lost=f"Imputation is more accurate in: {'; '.join(lost)}."
        if lost
        else "We lose in no case.",
    )
    header = ("model", "missing", *(f"{name}, ours / imputed" for name in sets))
    return text + "\n" + markdown_table(header, rows)


def _outlier_picture(results: dict[str, Any], path: Path) -> None:
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, len(results), figsize=(3.6 * len(results), 2.8))
        for axes, (name, entry) in zip(np.atleast_1d(panels), results.items(), strict=True):
            kinds = ["test digits", *(k for k in entry["quantiles"] if k != "test digits")]
            for place, kind in enumerate(kinds):
                low, first, middle, third, high = entry["quantiles"][kind]
                colour = BLUE if place == 0 else ORANGE
                axes.plot([low, high], [-place] * 2, color=colour, lw=1)
                axes.plot([first, third], [-place] * 2, color=colour, lw=5, alpha=0.6)
                axes.plot(middle, -place, "o", color=colour)
            shown = kinds if axes is np.atleast_1d(panels)[0] else [""] * len(kinds)
            axes.set_yticks(-np.arange(len(kinds)), shown)
            axes.set_xscale("symlog", linthresh=100.0)
            axes.set_xlim(right=max(0.0, *map(max, entry["quantiles"].values())) + 10.0)
            axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=100, subs=[1]))
            axes.xaxis.get_major_locator().numticks = 6
            axes.set_title(name, fontsize=10)
            axes.tick_params(axis="x", labelrotation=60, labelsize=8)
            axes.set_xlabel("log p(x)")
        figure.savefig(path)
        plt.close(figure)
