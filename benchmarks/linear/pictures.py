"""The pictures of the page; every mark differs in shape as well as in colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.linear.speed import ratios

# the palette of Okabe and Ito, which stays apart for colour-blind readers
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
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
PEERS = (
    ("sgd", "scikit-learn SGD, best of 38 settings", BLUE, "o"),
    ("sgd_search", "scikit-learn SGD, nine-rate search", ORANGE, "s"),
    ("liblinear", "LIBLINEAR, best of dual and primal", GREEN, "^"),
    ("vowpal", "Vowpal Wabbit", RED, "D"),
)


def speed_picture(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw how many times faster we are, one line per case and one mark per peer."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8.5, 0.36 * len(records) + 1.9))
        for position, record in enumerate(records):
            _speed_row(axes, -position, ratios(record))
        labels = [f"{record['set']}, {_penalty(record['penalty'])}" for record in records]
        axes.set_yticks([-k for k in range(len(records))], labels)
        axes.axvline(1, color="black", lw=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
        axes.set_xlabel("times faster than the peer (left of 1: the peer is faster)")
        for _, label, colour, mark in PEERS:
            axes.plot([], [], mark, color=colour, label=label)
        axes.plot([], [], ">", color=GREY, label="peer did not get there: at least this")
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, frameon=False)
        figure.savefig(path)
        plt.close(figure)


def _speed_row(axes: Axes, height: float, found: dict[str, tuple[float | None, bool]]) -> None:
    for peer, _, colour, mark in PEERS:
        value, bound = found.get(peer, (None, False))
        if value:
            axes.plot(value, height, ">" if bound else mark, color=colour, ms=6.5, alpha=0.9)


def _penalty(penalty: float) -> str:
    return f"alpha = {penalty:g}/N"


def stability_picture(results: dict[str, Any], path: Path) -> None:
    """Draw loss against rate on two kinds of data, and ``auto`` against feature scale."""
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, 3, figsize=(12.5, 3.9))
        for axes, label in zip(panels[:2], ("standardised", "raw"), strict=True):
            _rate_panel(axes, results, label)
        panels[0].set_ylabel(f"mean log loss after {results['passes']} passes")
        panels[0].legend(loc="upper left", frameon=False, fontsize=9)
        _scale_panel(panels[2], results)
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)


def _rate_panel(axes: Axes, results: dict[str, Any], label: str) -> None:
    rates = np.array(results["rates"])
    ceiling = 1e6
    marks = (("implicit", BLUE, "o-"), ("explicit", RED, "s--"), ("scikit-learn", ORANGE, "^:"))
    for name, colour, style in marks:
        losses = np.array([float(value) for value in results[label][name]])
        axes.plot(rates, np.minimum(losses, ceiling), style, color=colour, label=name, ms=5)
        failed = ~(losses < ceiling)
        axes.plot(rates[failed], np.full(failed.sum(), ceiling), "x", color=colour, ms=9, mew=2)
    axes.axhline(np.log(2), color=GREY, lw=1, ls="-.")
    axes.text(rates[-1], np.log(2) * 0.93, "knows nothing", color=GREY, ha="right", va="top")
    axes.set(xscale="log", yscale="log", xlabel="eta0", ylim=(0.3, 2e6))
    axes.set_title(f"{label} features, fixed rate\n(x: above 1e6 or not finite)", fontsize=10)


def _scale_panel(axes: Axes, results: dict[str, Any]) -> None:
    auto = results["auto"]
    spread = np.array(results["spreads"])
    exponents = np.log10(np.array(results["scales"]))
    best = auto["best"]
    axes.plot(
        exponents, np.array(auto["common"]) / best, "o-", color=BLUE, label="all features by 10^s"
    )
    axes.plot(
        spread,
        np.array(auto["separate"]) / best,
        "D--",
        color=GREEN,
        label="each by its own factor,\n10^-s to 10^s",
    )
    axes.axhline(1.01, color=GREY, lw=1, ls="-.")
    axes.text(exponents[0], 1.0101, "1% above the best", color=GREY, va="bottom")
    top = max(1.013, 1.1 * max(auto["common"] + auto["separate"]) / best - 0.1)
    axes.set(ylim=(0.999, top), xlabel="s", ylabel="loss / best loss")
    axes.set_title('solver="auto",\nfeatures rescaled', fontsize=10)
    axes.legend(loc="center left", bbox_to_anchor=(0.0, 0.55), frameon=False, fontsize=9)


def coverage_picture(results: dict[str, Any], path: Path) -> None:
    """Draw coverage of every setting with twice its standard error."""
    settings = [(k, v) for k, v in results["settings"].items() if v["coverage"] is not None]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.5, 0.3 * len(settings) + 1.4))
        axes.axvspan(0.93, 0.97, color="#F0F0F0")
        axes.axvline(0.95, color="black", lw=1)
        for position, (key, entry) in enumerate(settings):
            ill = key.endswith("ill-scaled")
            axes.errorbar(
                entry["coverage"],
                -position,
                xerr=2 * entry["error"],
                fmt="D" if ill else "o",
                color=ORANGE if ill else BLUE,
                capsize=3,
            )
        labels = ["{}, d = {}, {}".format(*key.split("/")) for key, _ in settings]
        axes.set_yticks([-k for k in range(len(settings))], labels)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_xlim(0.925, 0.975)
        axes.set_xlabel("coverage of 95% intervals, with twice its error (band: 93% to 97%)")
        figure.savefig(path)
        plt.close(figure)


def memory_picture(results: dict[str, Any], path: Path) -> None:
    """Draw peak memory of a fit and the size of its file against rows."""
    runs = [entry for entry in results["runs"] if entry["trained"]]
    rows = [entry["rows"] for entry in runs]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.5, 3.6))
        axes.plot(rows, [entry["file_mb"] for entry in runs], "s--", color=ORANGE, label="file")
        peaks = [max(entry["growth_mb"], 0.5) for entry in runs]
        axes.plot(rows, peaks, "o-", color=BLUE, label="peak memory of the fit, above the start")
        axes.axhline(results["allowed_mb"], color=GREY, ls="-.", lw=1)
        axes.text(rows[0], results["allowed_mb"] * 1.1, "allowed", color=GREY, va="bottom")
        axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="MB")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 1.16), ncols=2, frameon=False)
        figure.savefig(path)
        plt.close(figure)
