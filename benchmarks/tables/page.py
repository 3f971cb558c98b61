"""The page, generated from stored measurements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import NullLocator

from benchmarks.common import markdown_table, measured_elsewhere, publish, read_json, write_page
from benchmarks.tables.data import ALL, CLASSES, MOST, NUMBERS, SHARE, TABLES
from benchmarks.tables.peers import MAX_CATEGORIES

PROCESSOR = "processor"
METHODS = ("ours", "plain", "boosting", "trivial")
PEERS = METHODS[1:]
RATIO, LOG_LOSS = 1.005, 0.0005  # tolerances for rounding
TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)  # of the picture
STEPS = ("fit", "evaluate", "predict")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E5E5E5",
    "axes.axisbelow": True,
    "figure.dpi": 130,
    "savefig.bbox": "tight",
}
COLOURS = {"plain": "#0072B2", "boosting": "#E69F00"}
INTRO = f"""# Real tables

Written by `make bench-tables`; the measurements are in [tables.json](tables.json).

Every table goes through `likelier fit FILE -t TARGET -o MODEL` without other options, then
`likelier evaluate MODEL HELD --json` and `likelier predict MODEL HELD -o OUT`. The files contain
random lines of the source, unmodified: {SHARE:.0%} for training, at most {MOST:,}, the others held
out. Files without a header (abalone, both versions of adult, auto_imports, german) have the TARGET
-1. Scores are computed from the file of predictions. The peers, on the same rows:

- *plain*: the model of the command (`BayesianKernelClassifier` or `BayesianKernelRegressor`,
  `random_state=0`) after a `ColumnTransformer`: median imputation and `StandardScaler` for numbers,
  the most frequent value and `OneHotEncoder(max_categories={MAX_CATEGORIES})` for text;
- *boosting*: scikit-learn's `HistGradientBoosting` with default parameters, text as ordinal codes;
- *trivial*: class frequencies, or the mean, of the training rows.

The peers get the table from `pandas.read_csv` with the options it needs, without date columns, and
without rows whose target is missing. Identifiers and known leaks are kept for all methods.

Figures are medians over the splits. Ratios are computed per split, since splits differ more than
methods do, with the lowest and the highest in brackets. A ratio of log losses or RMSEs below one
means that ours is better. *Not below plain*: our ratio to *plain* is at most {RATIO:g}, or the log
losses differ by less than {LOG_LOSS:g}, and the command failed on no split. Times are wall times of
whole commands, including start-up, on a shared machine; those of the peers are fit and prediction
only, with one thread.
"""


@dataclass(frozen=True)
class Case:
    """Measurements of one table: a record per method and split."""

    name: str
    records: dict[str, dict[str, dict[str, Any]]]

    @property
    def task(self) -> str:
        return ALL[self.name].task

    @property
    def score(self) -> str:
        return "log_loss" if self.task == CLASSES else "rmse"

    @property
    def measured(self) -> bool:
        """Whether the command has been run."""
        return bool(self.records["ours"])

    @property
    def failures(self) -> list[str]:
        """Failures of the command, one per split."""
        return [r["failed"] for r in self.records["ours"].values() if "failed" in r]

    @property
    def works(self) -> bool:
        return self.measured and not self.failures

    def values(self, method: str, name: str) -> list[float]:
        """One figure for every split on which the method did not fail."""
        return [float(r[name]) for r in self.records[method].values() if name in r]

    def median(self, method: str, name: str) -> float:
        values = self.values(method, name)
        return float(np.median(values)) if values else float("nan")

    def pairs(self, peer: str) -> tuple[Any, Any]:
        """Our scores and those of a peer on their common splits."""
        mine, theirs = self.records["ours"], self.records[peer]
        both = [k for k in mine if self.score in mine[k] and self.score in theirs.get(k, {})]
        one, two = ([records[k][self.score] for k in both] for records in (mine, theirs))
        return np.array(one, dtype=float), np.array(two, dtype=float)

    def ratio(self, peer: str) -> float:
        """Median over splits of our score divided by that of a peer."""
        mine, theirs = self.pairs(peer)
        return float(np.median(mine / theirs)) if len(mine) else float("nan")

    def not_below(self, peer: str) -> bool:
        """Whether our median score is no worse than that of a peer, up to rounding."""
        mine, theirs = self.pairs(peer)
        if not self.works or not len(mine):
            return False
        close = self.task == CLASSES and float(np.median(mine - theirs)) < LOG_LOSS
        return self.ratio(peer) <= RATIO or close


def write(folder: Path, docs: Path) -> None:
    """Write tables.md and its picture from what has been measured so far."""
    docs.mkdir(parents=True, exist_ok=True)
    found = {method: read_json(folder / f"{method}.json") for method in METHODS}
    cases = [case for name in ALL if any((case := _case(name, found)).records.values())]
    parts = [
        INTRO, _machine(folder, found), _in_short(cases, docs), _command(cases), _peers(cases),
        _output(cases),
    ]  # fmt: skip
    write_page(docs / "tables.md", "\n".join(part for part in parts if part))
    publish(folder, docs, "tables")


def _case(name: str, found: dict[str, dict[str, Any]]) -> Case:
    return Case(name, {
        method: {key: r for key, r in sorted(records.items()) if r["set"] == name}
        for method, records in found.items()
    })  # fmt: skip


def _machine(folder: Path, found: dict[str, Any]) -> str:
    facts = read_json(folder / "machine.json")
    if not facts:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}, {versions}."
        + "".join(f" Measured on {text}." for text in measured_elsewhere(
            found, facts["cpu"], PROCESSOR))
        + "\n"
    )  # fmt: skip


def _in_short(cases: list[Case], docs: Path) -> str:
    measured = [case for case in cases if case.measured]
    if not measured:
        return "## In short\n\nThe command has not been measured yet.\n"
    groups = {
        "tables": [case for case in measured if case.name in TABLES],
        "raw files": [case for case in measured if case.name not in TABLES],
    }
    questions = {
        "the command succeeds on every split": lambda case: case.works,
        "not below plain": lambda case: case.not_below("plain"),
        "not below boosting": lambda case: case.not_below("boosting"),
        "not below trivial": lambda case: case.not_below("trivial"),
    }
    total = {"tables": len(TABLES), "raw files": len(ALL) - len(TABLES)}
    rows = [
        [what, *(f"{sum(map(holds, some))} of {total[name]}" for name, some in groups.items())]
        for what, holds in questions.items()
    ]
    text = "## In short\n\n" + markdown_table(["", *groups], rows) + "\n\n"
    if len(measured) < len(ALL):
        missing = ", ".join(name for name in ALL if name not in {case.name for case in measured})
        text += f"Not measured yet: {missing}.\n\n"
    below = [c for c in measured if c.works and not c.not_below("plain")]
    told = "; ".join(f"{case.name} ({case.ratio('plain'):.3f})" for case in below)
    text += f"Below plain: {told or 'none'}. "
    text += f"Failed: {', '.join(c.name for c in measured if c.failures) or 'none'}.\n\n"
    text += _agreement(measured)
    shown = [case for case in measured if case.works]
    if shown:
        _picture(shown, docs / "tables-ratios.png")
        text += "\n![Scores relative to the peers'](tables-ratios.png)\n"
    return text


def _agreement(cases: Iterable[Case]) -> str:
    """Largest difference between scores printed by `evaluate` and those of the predictions."""
    worst, name = 0.0, ""
    for case in cases:
        for record in case.records["ours"].values():
            told = record.get("evaluated", {}).get(case.score)
            if told is not None:
                apart = abs(told - record[case.score]) / max(abs(record[case.score]), 1e-3)
                worst, name = max((worst, name), (apart, case.name))
    if not name:
        return ""
    text = "The relative difference to the scores printed by `evaluate` is at most"
    return f"{text} {worst:.0e} ({name}).\n"


def _picture(cases: list[Case], path: Path) -> None:
    """Ratios to the two peers: medians as dots, splits as lines, clipped at the edges."""
    low, *_, high = TICKS
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7, 0.3 * len(cases) + 0.8))
        for peer, colour in COLOURS.items():
            for place, case in enumerate(cases):
                mine, theirs = case.pairs(peer)
                if len(mine):
                    single = np.clip(mine / theirs, low, high)
                    axes.plot(single, [-place] * len(single), color=colour, lw=1)
            ratios = np.clip([case.ratio(peer) for case in cases], low, high)
            axes.plot(ratios, -np.arange(len(cases)), "o", color=colour, label=f"to {peer}")
        axes.set_yticks(-np.arange(len(cases)), [case.name for case in cases])
        axes.axvline(1.0, color="black", lw=1)
        axes.set_xscale("log")
        axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(0.97 * low, 1.03 * high)
        axes.set_xlabel(
            f"log loss or RMSE of the command / the peer's (at {low:g} and {high:g}: or beyond)"
        )
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, frameon=False)
        figure.savefig(path)
        plt.close(figure)


def _command(cases: list[Case]) -> str:
    text = "## The command\n"
    for task, names in (
        (CLASSES, {"log_loss": "log loss", "accuracy": "accuracy"}),
        (NUMBERS, {"rmse": "RMSE", "r2": "R2", "coverage": "coverage of 90%"}),
    ):
        chosen = [case for case in cases if case.task == task]
        header = (
            "data set", "rows", "held out", "columns", "splits", " / ".join(STEPS) + ", s",
            *names.values(), "/ plain", "/ boosting", "/ trivial", "not below plain",
        )  # fmt: skip
        rows = [_command_row(case, tuple(names)) for case in chosen]
        text += f"\n{task.capitalize()}:\n\n{markdown_table(header, rows)}\n"
    return text


def _command_row(case: Case, names: tuple[str, ...]) -> list[str]:
    times = [case.median("ours", step) for step in STEPS]
    return [
        case.name,
        *(_count(case.median("plain", size)) for size in ("rows", "held_rows", "columns")),
        str(len(case.records["ours"])),
        " / ".join("-" if np.isnan(value) else f"{value:.1f}" for value in times),
        *(_number(case.median("ours", name), name) for name in names),
        *(_ratio(case, peer) for peer in PEERS),
        _status(case),
    ]


def _status(case: Case) -> str:
    if not case.measured:
        return "not measured"
    if case.failures:
        return f"**failed** on {len(case.failures)} of {len(case.records['ours'])}"
    return "yes" if case.not_below("plain") else "**no**"


def _ratio(case: Case, peer: str) -> str:
    mine, theirs = case.pairs(peer)
    if not len(mine):
        return "-"
    single = mine / theirs
    return f"{case.ratio(peer):.3f} ({single.min():.3f} to {single.max():.3f})"


def _count(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:,.0f}"


def _number(value: float, name: str) -> str:
    if np.isnan(value):
        return "-"
    if name in ("accuracy", "coverage"):
        return f"{value:.1%}"
    if name == "rmse":
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    if name == "log_loss":
        return f"{value:.4f}" if value >= 0.001 else f"{value:.1e}"
    return f"{value:.3f}"


def _peers(cases: list[Case]) -> str:
    """Scores of the peers themselves, and the time of fit and prediction."""
    text = (
        "## The peers\n\nEach cell: score, accuracy or R2, and seconds of fit and prediction; "
        "for *plain* also the coverage of its 90% intervals.\n"
    )
    for task, title, second in (
        (CLASSES, "log loss, accuracy, seconds", "accuracy"),
        (NUMBERS, "RMSE, R2, seconds", "r2"),
    ):
        rows = [
            [case.name, *(_peer(case, peer, second) for peer in PEERS),
             *([_number(case.median("plain", "coverage"), "coverage")] if task == NUMBERS else [])]
            for case in cases if case.task == task
        ]  # fmt: skip
        header = ["data set", *PEERS, *(["coverage"] if task == NUMBERS else [])]
        text += f"\n{task.capitalize()} ({title}):\n\n{markdown_table(header, rows)}\n"
    return text


def _peer(case: Case, peer: str, second: str) -> str:
    failed = [r["failed"] for r in case.records[peer].values() if "failed" in r]
    if failed:
        return f"failed: {_cell(failed[0])}"
    if not case.records[peer]:
        return "-"
    seconds = case.median(peer, "fit") + case.median(peer, "predict")
    score = _number(case.median(peer, case.score), case.score)
    return f"{score}, {_number(case.median(peer, second), second)}, {seconds:.2g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _output(cases: list[Case]) -> str:
    """Output of the command on the first split, and failures on all splits."""
    measured = [case for case in cases if case.measured]
    if not measured:
        return ""
    text = "## Output of the command\n\nOn the first split, with failures on other splits.\n"
    for case in measured:
        record = next(iter(case.records["ours"].values()))
        lines = [f"$ likelier fit {case.name}.csv -t {ALL[case.name].target} -o model.likelier"]
        lines += record.get("told", [])
        for step, told in record.get("told_later", {}).items():
            lines += [f"$ likelier {step} ...", *told] if told else []
        new = [why for why in dict.fromkeys(case.failures) if not any(x in why for x in lines[1:])]
        lines += [f"(failed on a split: {why})" for why in new]
        text += f"\n### {case.name}\n\n```text\n" + "\n".join(lines) + "\n```\n"
    return text
