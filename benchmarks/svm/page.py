"""The page: tables and pictures from what was measured, and nothing by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.common import (
    markdown_table,
    measured_elsewhere,
    publish,
    read_json,
    seconds_text,
    write_page,
)
from benchmarks.svm.close_page import how_close
from benchmarks.svm.problem import SETS
from benchmarks.svm.scale import COVERAGE_ROWS
from benchmarks.svm.summary import in_short

SECTIONS = ("speed", "closeness", "small", "fine", "path", "threads", "scale", "coverage")


def write(results: Path, docs: Path) -> None:
    """Write ``svm.md`` and its pictures."""
    docs.mkdir(parents=True, exist_ok=True)
    found = {path.stem: _in_order(read_json(path)) for path in sorted(results.glob("*.json"))}
    parts = ["# Support vector machines against LIBSVM", _intro(found)]
    parts += [in_short(found)]
    parts += [_speed(found.get("speed", {}), docs), how_close(found.get("closeness", {}))]
    parts += [_small(found.get("small", {}))]
    parts += [_fine(found.get("fine", {}))]
    parts += [_path(found.get("path", {})), _threads(found.get("threads", {}))]
    parts += [_scale(found.get("scale", {}), docs), _coverage(found.get("coverage", {}))]
    write_page(docs / "svm.md", "\n\n".join(part for part in parts if part))
    publish(results, docs, "svm")


def _in_order(cases: dict[str, Any]) -> dict[str, Any]:
    """Cases by data set, cache and C, whenever they were measured."""
    if not all(isinstance(case, dict) and case.get("set") in SETS for case in cases.values()):
        return cases
    return dict(sorted(cases.items(), key=lambda item: _place(item[1])))


def _place(case: dict[str, Any]) -> tuple[float, ...]:
    return (SETS.index(case["set"]), case.get("cache", 0), case.get("C", 0.0))


def _older(found: dict[str, Any]) -> str:
    """What was measured on other processors, and not again since."""
    parts = {part: found.get(part, {}) for part in SECTIONS}
    others = measured_elsewhere(parts, found["machine"]["cpu"])
    told = "".join(f" Measured on {text}." for text in others)
    return told and f"{told} Every ratio is of two times of one run."


def _intro(found: dict[str, Any]) -> str:
    machine = found.get("machine", {})
    versions = ", ".join(f"{k} {v}" for k, v in machine.get("versions", {}).items())
    return (
        "Written by `make bench-svm`; measurements are in [svm.json](svm.json), but for sections "
        "that were measured before these were kept. Processor time, one thread, both tools in turn "
        'in one process, medians; equal `cache_size`, `tol=1e-3`, `gamma="scale"`, features '
        f"standardised (usps and a9a as published, 10,000 rows at most). {machine.get('cpu', '')}, "
        f"{versions}.{_older(found) if machine else ''}\n\n"
        "*times* is LIBSVM's time divided by ours: below 1 we lose. *objective* is how much "
        "higher our dual objective is, relative to LIBSVM's (negative: lower); *gap* the largest "
        "violation of the optimality conditions, recomputed in float64, which is to be at most "
        "`tol`."
    )


def _speed(cases: dict[str, Any], docs: Path) -> str:
    if not cases:
        return ""
    records = list(cases.values())
    rows = [_speed_row(record) for record in records]
    header = ("problem", "C", "cache", "LIBSVM", "likelier", "times", "objective", "gap",
              "LIBSVM's gap", "predictions differ by")  # fmt: skip
    ratios = np.array([record["theirs"] / record["ours"] for record in records])
    lost = [f"{r['set']} at C={r['C']:g}" for r, x in zip(records, ratios, strict=True) if x < 1]
    _speed_picture(records, docs / "svm-speed.png")
    return (
        "## One fit\n\n"
        f"Median over all {len(records)} rows of the table: {np.median(ratios):.2f} times as fast; "
        f"worst {ratios.min():.2f}. Slower than LIBSVM: {', '.join(lost) or 'nowhere'}. A time of "
        "LIBSVM after >= is that at which it was ended.\n\n"
        "![times](svm-speed.png)\n\n" + markdown_table(header, rows)
    )


def _speed_row(r: dict[str, Any]) -> list[str]:
    more = ">= " if r["bound"] else ""
    rise = "-"
    if "their_objective" in r:
        rise = f"{(r['objective'] - r['their_objective']) / abs(r['their_objective']):.1e}"
    return [
        r["set"], f"{r['C']:g}", f"{r['cache']} MB", more + seconds_text(r["theirs"]),
        seconds_text(r["ours"]), f"{more}{r['theirs'] / r['ours']:.2f}", rise, f"{r['gap']:.1e}",
        f"{r['their_gap']:.1e}" if "their_gap" in r else "-",
        f"{r['difference']:.1e}" if "difference" in r else "-",
    ]  # fmt: skip


def _speed_picture(records: list[dict[str, Any]], path: Path) -> None:
    records = [record for record in records if record["cache"] == 200]
    figure, axes = plt.subplots(figsize=(8, 0.25 * len(records) + 1.2))
    ratios = [record["theirs"] / record["ours"] for record in records]
    axes.barh(
        range(len(records)), ratios, color=["#4477AA" if x >= 1 else "#CC3311" for x in ratios]
    )
    axes.set_yticks(range(len(records)), [f"{r['set']}, C={r['C']:g}" for r in records])
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", lw=1)
    axes.set_xscale("log")
    axes.set_xlabel("times as fast as LIBSVM (200 MB cache)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _small(cases: dict[str, Any]) -> str:
    if not cases:
        return ""
    records = list(cases.values())
    rows = [[r["name"], seconds_text(r["theirs"]), seconds_text(r["ours"]),
             f"{r['theirs'] / r['ours']:.2f}", f"{r['difference']:.1e}"]
            for r in records]  # fmt: skip
    lost = [r["name"] for r in records if r["theirs"] < r["ours"]]
    return (
        "## Small data and given kernels\n\nOne fit at `C=1`, where checking the input counts as "
        "much as solving. A given kernel matrix is a float64 matrix of the rbf kernel. Slower than "
        f"LIBSVM: {'; '.join(lost) or 'nowhere'}.\n\n"
        + markdown_table(("problem", "LIBSVM", "likelier", "times", "predictions differ by"), rows)
    )


def _fine(cases: dict[str, Any]) -> str:
    if not cases:
        return ""
    rows = []
    for r in cases.values():
        rise = (r["objective"] - r["their_objective"]) / abs(r["their_objective"])
        rows.append([r["set"], f"{r['C']:g}", f"{rise:.1e}", f"{r['gap']:.1e}",
                     f"{r['their_gap']:.1e}" + (" (ended)" if r.get("ended") else ""),
                     f"{r['difference']:.1e}" if "difference" in r else "-"])  # fmt: skip
    header = ("problem", "C", "objective", "gap", "LIBSVM's gap", "predictions differ by")
    ended = [r["theirs"] for r in cases.values() if r.get("ended")]
    text = f"LIBSVM was ended after {seconds_text(min(ended))} or more.\n\n" if ended else ""
    return "## At `tol=1e-6`\n\n" + text + markdown_table(header, rows)


def _path(cases: dict[str, Any]) -> str:
    if not cases:
        return ""
    rows = [[r["set"], ("> " if r.get("bound") else "") + seconds_text(r["theirs"]),
             seconds_text(r["ours"]),
             ("> " if r.get("bound") else "") + f"{r['theirs'] / r['ours']:.2f}"]
            for r in cases.values()]  # fmt: skip
    ratio = np.median([r["theirs"] / r["ours"] for r in cases.values()])
    return (
        "## Ten values of C\n\n`fit_path` over ten values from 0.01 to 100 against ten fits of "
        f"LIBSVM. Median {ratio:.2f} times as fast. Of LIBSVM's fits that take minutes only the "
        'beginning is counted: ">".\n\n'
        + markdown_table(("problem", "LIBSVM", "likelier", "times"), rows)
    )


def _threads(cases: dict[str, Any]) -> str:
    if not cases:
        return ""
    rows = []
    for r in cases.values():
        row = [r["set"]]
        for times in (r, r.get("in_turn")):
            if times is None:
                row += ["-"] * 4
            else:
                row += [seconds_text(times[key]) for key in ("theirs", "one", "two")]
                row += [f"{times['theirs'] / times['two']:.2f}"]
        rows.append(row)
    header = ("problem", "LIBSVM", "one thread", "two threads", "times", "in turn: LIBSVM",
              "one thread", "two threads", "times")  # fmt: skip
    return (
        "## Two threads\n\nWall time at `C=1`, medians, LIBSVM in its one thread: fits of one kind "
        "in a row, then all three in turn. In turn, a large fit of ours (kin8nm fills the cache of "
        "200 MB) that follows one of LIBSVM waits for the system to hand out its memory, which on "
        "this virtual machine can take longer than the fit; one that follows another of ours does "
        "not.\n\n" + markdown_table(header, rows)
    )


def _scale(cases: dict[str, Any], docs: Path) -> str:
    if not cases:
        return ""
    records = list(cases.values())
    whole = [r for r in records if r["whole"]]
    figure, axes = plt.subplots(figsize=(6, 3.6))
    axes.plot([r["rows"] for r in whole], [r["seconds"] for r in whole], "o-", color="#4477AA")
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="processor seconds of a fit")
    figure.tight_layout()
    figure.savefig(docs / "svm-rows.png", dpi=110)
    plt.close(figure)
    rows = [[f"{r['rows']:,}", seconds_text(r["seconds"]), f"{r['support']:,}",
             f"{r['growth_mb']:.0f} MB", "yes" if r["whole"] else "stopped"]
            for r in records]  # fmt: skip
    return (
        f"## Rows\n\nGenerated data of 20 features, `cache_size={records[0]['cache']}`; the memory "
        "is what the process grew by at its peak, data included. The largest fit is stopped "
        "early: it shows the memory.\n\n![rows](svm-rows.png)\n\n"
        + markdown_table(("rows", "time", "support vectors", "memory", "converged"), rows)
    )


def _coverage(cases: dict[str, Any]) -> str:
    if not cases:
        return ""
    rows = [[r["set"], f"{r['coverage']:.1%}", f"{r['spread']:.1%}", f"{r['width']:.2f}"]
            for r in cases.values()]  # fmt: skip
    splits = next(iter(cases.values()))["splits"]
    return (
        f"## Coverage of 90% intervals\n\nMean over {splits} random splits, the spread between "
        "them, and the width in standard deviations of the target. A split draws at most "
        f"{COVERAGE_ROWS:,} rows to learn from and as many others to test on, however many there "
        "are; of less than twice as many rows, one half each.\n\n"
        + markdown_table(("data", "coverage", "spread", "width"), rows)
    )
