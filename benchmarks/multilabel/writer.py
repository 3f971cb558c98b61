"""From the measured results to ``multilabel.md``, ``multilabel.json`` and the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt

from benchmarks.common import markdown_table, read_json, seconds_text, write_json
from benchmarks.multilabel.data import SETS
from benchmarks.multilabel.quality import OURS, PEERS

PARTS = ("quality", "hidden", "growth", "example", "machine")
METHODS = (OURS, *PEERS)
BASE = "binary relevance"
TARGETS = {"emotions": 0.686, "scene": 0.733, "yeast_ml": 0.655}
SLACK = 0.005  # how far below tuned binary relevance we may be
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 130,
    "savefig.bbox": "tight",
}
INTRO = """# Multi-label classification

`MultilabelClassifier` with its defaults against binary relevance (scikit-learn's logistic
regression, C by five folds for every label), a classifier chain, ML-kNN and linear SVMs with
SCut.FBR thresholds. Written by `make bench-multilabel`; the numbers behind the tables are in
[multilabel.json](multilabel.json).
"""
QUALITY = """## F1

Official splits, or a third of the rows held out where there is none. All thresholds (except
SCut.FBR's) are tuned by the same function on out-of-fold scores: micro-F1 is that of
thresholds for micro-F1, macro-F1 that of thresholds for macro-F1. Means over the seeds
run; the best of each row is bold. Dense columns were standardised for all methods.
"""
HIDDEN = """## Rows without labels

Labels of half, or nine tenths, of the training rows are hidden. "With" is our classifier fitted
to all rows, "without" the same classifier fitted to the labelled rows alone.
"""
GROWTH = """## Growth

Processor seconds of a fit without kernel features, one thread, on growing parts of the data.
"""


def write(results: Path, docs: Path) -> None:
    """Write the page from whatever parts have been measured."""
    measured = {part: read_json(results / f"{part}.json") for part in PARTS}
    docs.mkdir(parents=True, exist_ok=True)
    write_json(docs / "multilabel.json", measured)
    sections = [INTRO, _machine(measured["machine"])]
    quality, hidden = _means(measured["quality"]), _hidden_means(measured["hidden"])
    sections.append(_targets(quality, hidden, measured))
    if quality:
        sections += [QUALITY, _quality(quality), _times(quality)]
    if hidden:
        sections += [HIDDEN, _hidden(hidden)]
    if measured["growth"]:
        sections += [GROWTH, _growth(measured["growth"])]
    if measured["example"]:
        sections.append(_pictures(measured["example"], docs))
    (docs / "multilabel.md").write_text("\n".join(text.strip() + "\n" for text in sections))


def _machine(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, "
        f"{facts['system']}, Python {facts['python']}; {versions}."
    )


def _means(results: dict[str, Any]) -> dict[str, Any]:
    """Means over seeds: set -> method -> micro, macro, cpu; and the number of seeds.

    Only seeds for which all methods of a set were measured; others are left out.
    """
    out: dict[str, Any] = {}
    for name in SETS:
        runs = [entry for key, entry in results.items() if key.rsplit("/", 1)[0] == name]
        there = [method for method in METHODS if any(method in run for run in runs)]
        runs = [run for run in runs if all(method in run for method in there)]
        if runs and {OURS, BASE} <= set(there):
            out[name] = {
                method: {k: float(np.mean([r[method][k] for r in runs])) for k in runs[0][method]}
                for method in there
            }
            out[name]["seeds"] = len(runs)
    return out


def _measured(entry: dict[str, Any]) -> list[str]:
    """Methods measured on a set."""
    return [method for method in METHODS if method in entry]


def _hidden_means(results: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in SETS:
        for share in ("0.5", "0.9"):
            runs = [entry for key, entry in results.items() if key.startswith(f"{name}/{share}/")]
            if runs:
                out[f"{name}/{share}"] = {
                    **{
                        method: {
                            k: float(np.mean([r[method][k] for r in runs])) for k in runs[0][method]
                        }
                        for method in ("with", "without")
                    },
                    "seeds": len(runs),
                }
    return out


def _both(entry: dict[str, float]) -> float:
    return entry["micro"] + entry["macro"]


def _targets(quality: dict[str, Any], hidden: dict[str, Any], measured: dict[str, Any]) -> str:
    rows = []
    for name, target in TARGETS.items():
        if name in quality:
            value = quality[name][OURS]["micro"]
            rows.append((f"micro-F1, {name}", f"{target}", f"{value:.3f}", _yes(value >= target)))
    if quality:
        behind = {
            f"{name} {k}": quality[name][BASE][k] - quality[name][OURS][k]
            for name in quality
            for k in ("micro", "macro")
        }
        worst = max(behind, key=lambda key: behind[key])
        text = f"{behind[worst]:+.3f} ({worst})"
        rows.append(("furthest below binary relevance", f"{SLACK}", text,
                     _yes(behind[worst] <= SLACK)))  # fmt: skip
        best = sum(
            max(_measured(entry), key=lambda method: _both(entry[method])) == OURS
            for entry in quality.values()
        )
        rows.append(("best micro + macro", "2/3 of the sets", f"{best} of {len(quality)}",
                     _yes(3 * best >= 2 * len(quality))))  # fmt: skip
    for share, text in (("0.5", "50%"), ("0.9", "90%")):
        cases = [entry for key, entry in hidden.items() if key.endswith(share)]
        if cases:
            won = sum(_both(entry["with"]) > _both(entry["without"]) for entry in cases)
            rows.append((f"{text} hidden: better with those rows", "2/3 of the sets",
                         f"{won} of {len(cases)}", _yes(3 * won >= 2 * len(cases))))  # fmt: skip
    if "bibtex" in quality:
        ratio = quality["bibtex"][OURS]["cpu"] / quality["bibtex"][BASE]["cpu"]
        rows.append(
            ("time on bibtex / binary relevance", "1/3", f"{ratio:.2f}", _yes(ratio <= 1 / 3))
        )
    for kind in ("rows", "labels"):
        power = _power(measured["growth"], kind)
        if power is not None:
            rows.append((f"growth with {kind}: power", "1", f"{power:.2f}", _yes(power <= 1.1)))
    return "## In short\n\n" + markdown_table(("what", "target", "measured", "met"), rows)


def _yes(met: bool) -> str:
    return "yes" if met else "NO"


def _power(results: dict[str, Any], kind: str) -> float | None:
    """Slope of log time against log size."""
    cases = [entry for key, entry in results.items() if key.startswith(f"{kind}/")]
    if len(cases) < 2:
        return None
    size, time = (np.log([entry[k] for entry in cases]) for k in (kind, "cpu"))
    return float(np.polyfit(size, time, 1)[0])


def _quality(quality: dict[str, Any]) -> str:
    rows, lost = [], []
    for name, entry in quality.items():
        there = _measured(entry)
        for k in ("micro", "macro"):
            best = max(entry[method][k] for method in there)
            cells = [
                _cell(entry[method][k], best) if method in entry else "-" for method in METHODS
            ]
            rows.append([f"{name}, {k} ({entry['seeds']} seeds)", *cells])
            if entry[OURS][k] < best:
                lost.append(f"{name} {k} (to {max(there, key=lambda method: entry[method][k])})")
    said = "We lose in: " + "; ".join(lost) + "." if lost else "We lose in no case."
    return markdown_table(("data", *METHODS), rows) + f"\n\nA dash: not measured. {said}"


def _cell(value: float, best: float) -> str:
    return f"**{value:.3f}**" if value == best else f"{value:.3f}"


def _times(quality: dict[str, Any]) -> str:
    rows = [
        (name,
         *(seconds_text(entry[method]["cpu"]) if method in entry else "-" for method in METHODS),
         f"{entry[OURS]['cpu'] / entry[BASE]['cpu']:.2f}")
        for name, entry in quality.items()
    ]  # fmt: skip
    text = (
        "Processor seconds, one thread: fitting, tuning and out-of-fold scores together. Results "
        "are kept from run to run, so not all of a line were measured at the same time.\n\n"
    )
    return text + markdown_table(("data", *METHODS, "ours / binary relevance"), rows)


def _hidden(hidden: dict[str, Any]) -> str:
    rows = []
    for key, entry in hidden.items():
        name, share = key.rsplit("/", 1)
        cells = [
            f"{entry[method][k]:.3f}" for k in ("micro", "macro") for method in ("with", "without")
        ]
        gain = _both(entry["with"]) - _both(entry["without"])
        rows.append(
            (f"{name}, {float(share):.0%} ({entry['seeds']} seeds)", *cells, f"{gain:+.3f}")
        )
    header = ("data, hidden", "micro with", "without", "macro with", "without", "gain of the sum")
    return markdown_table(header, rows)


def _growth(results: dict[str, Any]) -> str:
    rows = [
        (f"{entry['set']}, by {key.split('/')[0]}", f"{entry['rows']:,}", str(entry["labels"]),
         seconds_text(entry["cpu"]))
        for key, entry in results.items()
    ]  # fmt: skip
    return markdown_table(("data", "rows", "labels", "time"), rows)


# -- pictures -------------------------------------------------------------------------------
def _pictures(examples: dict[str, Any], docs: Path) -> str:
    text = ["## Pictures\n"]
    for name, entry in examples.items():
        for kind, draw, words in (
            ("patterns", _draw_patterns, "Label patterns"),
            ("elbo", _draw_elbo, "Bound of the mixture"),
            ("calibration", _draw_calibration, "Calibration per label"),
        ):
            path = f"multilabel-{name}-{kind}.png"
            with plt.rc_context(STYLE):
                figure = draw(entry)
                figure.savefig(docs / path)
                plt.close(figure)
            text.append(f"![{words}, {name}]({path})\n")
    return "\n".join(text)


def _draw_patterns(entry: dict[str, Any]) -> Any:
    """Draw probabilities of labels (rows) in the most frequent patterns (columns)."""
    shown = entry["patterns"][:12]
    table = np.array([pattern["labels"] for pattern in shown], dtype=np.float64).T
    figure, axes = plt.subplots(figsize=(0.45 * len(shown) + 2.5, 0.28 * len(table) + 1.2))
    picture = axes.imshow(table, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_facecolor("#EEEEEE")  # labels that are not among a pattern's top ones
    axes.set_yticks(range(len(table)), entry["names"])
    shares = [f"{pattern['weight']:.0%}" for pattern in shown]
    axes.set_xticks(range(len(shown)), shares)
    axes.set_xlabel("patterns, by their share of rows")
    figure.colorbar(picture, label="probability of the label")
    return figure


def _draw_elbo(entry: dict[str, Any]) -> Any:
    figure, axes = plt.subplots(figsize=(5.0, 2.8))
    axes.plot(np.arange(1, len(entry["elbo"]) + 1), entry["elbo"], "o-", color="#0072B2", ms=3)
    axes.set_xlabel("pass over the data")
    axes.set_ylabel("evidence lower bound")
    return figure


def _draw_calibration(entry: dict[str, Any]) -> Any:
    n = len(entry["names"])
    columns = min(n, 5)
    figure, panels = plt.subplots(
        -(-n // columns), columns, figsize=(1.7 * columns, 1.8 * -(-n // columns)),
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    for axes in panels.ravel()[n:]:
        axes.set_axis_off()
    for axes, name, case in zip(panels.ravel(), entry["names"], entry["calibration"], strict=False):
        axes.plot([0, 1], [0, 1], color="#AAAAAA", lw=1)
        axes.plot(case["said"], case["seen"], "o-", color="#D55E00", ms=3)
        axes.set_title(f"{name[:14]}, {case['ece']:.3f}", fontsize=7)
    figure.supxlabel("predicted probability (above each: the mean gap)")
    figure.supylabel("share that has the label")
    return figure
