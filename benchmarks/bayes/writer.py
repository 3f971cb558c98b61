"""From the measured results to ``bayes.md``, ``bayes.json`` and the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt

from benchmarks.bayes.mixing import CASES
from benchmarks.common import markdown_table, read_json, write_json

BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#666666"
COLOURS = {"likelier": BLUE, "NUTS": ORANGE, "Polya-Gamma Gibbs": GREY}
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
INTRO = """# Bayesian linear classifier

`BayesianLinearClassifier` against NUTS (NumPyro), plain Polya-Gamma Gibbs and, for its
probabilities, scikit-learn. Written by `make bench-bayes`; the numbers behind the tables are in
[bayes.json](bayes.json).
"""
MIXING = """## Effective draws per second

Generated rows, one posterior for everybody: standard normal prior of the weights (or, in the last
case, a learned scale), `N(0, 10^2)` of the intercept. One process, one thread, processor seconds;
the smallest effective size over all weights; medians over seeds, each with data of its own. NUTS is
timed after compiling and warm-up, in single precision as it comes; "with setup" adds our fit of the
Gaussian and warm-up, or its compiling and warm-up. A ratio below 1 means that NUTS is faster.
"gap" is the largest difference of posterior means between NUTS and us, in posterior standard
deviations; about three over the root of the effective size of NUTS is its own error.
"""
CALIBRATION = """## Calibration

Default settings, {train} training rows or fewer, the remaining rows (20,000 at most) judged; means
over {seeds} seed(s). The hinge's probabilities are calibrated on rows left out of a short fit.
"""


def write(results: Path, docs: Path) -> None:
    """Write the page from whatever parts have been measured."""
    measured = {
        part: read_json(results / f"{part}.json") for part in ("mixing", "calibration", "machine")
    }
    docs.mkdir(parents=True, exist_ok=True)
    write_json(docs / "bayes.json", measured)
    sections = [INTRO, _machine(measured["machine"])]
    if measured["mixing"]:
        sections += [_targets(measured), _mixing(measured["mixing"], docs)]
    if measured["calibration"]:
        sections.append(_calibration(measured["calibration"]))
    (docs / "bayes.md").write_text("\n".join(text.strip() + "\n" for text in sections))


def _machine(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, "
        f"{facts['system']}, Python {facts['python']}; {versions}."
    )


def _runs(mixing: dict[str, Any], case: str) -> list[dict[str, Any]]:
    return [entry for entry in mixing.values() if entry["case"] == case]


def _median(runs: list[dict[str, Any]], tool: str, what: str) -> float:
    return float(np.median([run["tools"][tool][what] for run in runs]))


def _ratio(runs: list[dict[str, Any]], tool: str, what: str = "ess_per_second") -> float:
    """Median over seeds of ours over theirs."""
    ours = [run["tools"]["likelier"][what] for run in runs]
    theirs = [run["tools"][tool][what] for run in runs]
    return float(np.median(np.array(ours) / np.array(theirs)))


def _targets(measured: dict[str, Any]) -> str:
    rows = []
    for case in CASES:
        runs = _runs(measured["mixing"], case)
        if not runs:
            continue
        ratio = _ratio(runs, "NUTS")
        rows.append((f"{case}: draws per second, to NUTS", "1x", f"{ratio:.1f}x", _yes(ratio >= 1)))
        if CASES[case].positives is not None:
            plain = _ratio(runs, "Polya-Gamma Gibbs")
            name = f"{case}: to plain Polya-Gamma"
            rows.append((name, "10x", f"{plain:.0f}x", _yes(plain >= 10)))
        gap = float(np.median([run["gap"] for run in runs]))
        rows.append((f"{case}: means, to NUTS", "0.1 sd", f"{gap:.3f} sd", _yes(gap <= 0.1)))
    if measured["calibration"]:
        errors = [entry["tools"]["hinge"]["ece"] for entry in measured["calibration"].values()]
        error = float(np.mean(errors))
        rows.append(("hinge, mean calibration error", "0.02", f"{error:.4f}", _yes(error <= 0.02)))
    return "## Targets\n\n" + markdown_table(["what", "target", "measured", "reached"], rows)


def _yes(reached: bool) -> str:
    return "yes" if reached else "**no**"


def _mixing(mixing: dict[str, Any], docs: Path) -> str:
    rows = []
    for case in CASES:
        runs = _runs(mixing, case)
        if not runs:
            continue
        row = [case]
        for tool in COLOURS:
            row.append(f"{_median(runs, tool, 'ess_per_second'):.3g}")
        row.append(f"{_ratio(runs, 'NUTS'):.1f}x")
        row.append(f"{_ratio(runs, 'NUTS', 'ess_per_second_all'):.1f}x")
        row.append(f"{_ratio(runs, 'Polya-Gamma Gibbs'):.0f}x")
        row.append(f"{float(np.median([run['gap'] for run in runs])):.3f}")
        row.append("/".join(sorted({run["tools"]["likelier"]["route"] for run in runs})))
        row.append(str(len(runs)))
        rows.append(row)
    header = ["case", *COLOURS, "to NUTS", "with setup", "to Gibbs", "gap", "our route", "seeds"]
    _picture(mixing, docs / "bayes-mixing.png")
    picture = "![Effective draws per second](bayes-mixing.png)"
    return "\n".join([MIXING, markdown_table(header, rows), "", picture])


def _picture(mixing: dict[str, Any], path: Path) -> None:
    cases = [case for case in CASES if _runs(mixing, case)]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.5, 0.8 * len(cases) + 1.2))
        for i, (tool, colour) in enumerate(COLOURS.items()):
            values = [_median(_runs(mixing, case), tool, "ess_per_second") for case in cases]
            places = np.arange(len(cases)) + 0.26 * (i - 1)
            axes.barh(places, values, height=0.24, color=colour, label=tool)
        axes.set_yticks(np.arange(len(cases)), cases)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlabel("effective draws per processor second (log scale)")
        axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        figure.savefig(path)
        plt.close(figure)


def _calibration(found: dict[str, Any]) -> str:
    from benchmarks.bayes.calibration import TRAIN

    names = list(dict.fromkeys(entry["set"] for entry in found.values()))
    tools = ("hinge", "log_loss", "scikit-learn")
    rows = []
    for name in names:
        entries = [entry["tools"] for entry in found.values() if entry["set"] == name]
        row = [name]
        for what, digits in (("ece", 4), ("log_loss", 4), ("accuracy", 4)):
            for tool in tools:
                row.append(f"{np.mean([entry[tool][what] for entry in entries]):.{digits}f}")
        rows.append(row)
    header = ["set"]
    for what in ("ECE", "log loss", "accuracy"):
        header += [f"{what}, {tool}" for tool in tools]
    seeds = len({entry["seed"] for entry in found.values()})
    text = CALIBRATION.format(train=TRAIN, seeds=seeds)
    return "\n".join([text, markdown_table(header, rows)])
