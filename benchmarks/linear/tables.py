"""Rows of the tables: numbers to text, and targets to yes or no."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.common import seconds_text
from benchmarks.linear.problem import PENALTIES, SETS
from benchmarks.linear.speed import busy, median_ratio, ratios, seconds

PEERS = (
    ("sgd", "SGD best"),
    ("sgd_search", "search"),
    ("liblinear", "LIBLINEAR"),
    ("vowpal", "VW"),
)
TARGETS = {"sgd": 1.0, "sgd_search": 5.0, "liblinear": 2.0, "vowpal": 5.0}
WORST = 0.5

RATIO_HEADER = (
    "data", "alpha N", "ours", "SGD best", "search", "LIBLINEAR", "VW", "tol=0.01", "default",
)  # fmt: skip
TIME_HEADER = (
    "data", "alpha N", "rows", "features", "classes", "optimum",
    "ours: route, passes", "SGD: setting, passes", "SGD", "LIBLINEAR", "VW",
)  # fmt: skip

Row = tuple[str, ...]


def in_order(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort as the issue lists the data sets, the stronger penalty first."""
    names = list(SETS)

    def place(record: dict[str, Any]) -> tuple[int, float]:
        known = record["set"] in names
        return (names.index(record["set"]) if known else len(names), -record["penalty"])

    return sorted(records, key=place)


def missing_text(records: Iterable[dict[str, Any]], loss: str) -> str:
    """Say which cases have not been measured, so that medians are not read as complete."""
    known = {(record["set"], record["penalty"]) for record in records}
    absent = [
        f"{name} (alpha N = {penalty:g})"
        for name in SETS
        for penalty in PENALTIES
        if (name, penalty) not in known
    ]
    if not absent:
        return ""
    return f"**Incomplete**, so the medians are too. Not measured with {loss}: {', '.join(absent)}."


def ratio_text(value: float | None, bound: bool) -> str:
    """A ratio; bold where we lose, 0 where we did not get there at all."""
    if value is None:
        return "-"
    if value == 0:
        return "**not reached**"
    text = f"{'> ' if bound else ''}{value:.3g}x"
    return f"**{text}**" if value < 1 and not bound else text


def _with_quartiles(record: dict[str, Any], name: str) -> str:
    tool = record["tools"][name]
    low, high = tool["cpu_quartiles" if busy(record) else "quartiles"]
    return f"{seconds_text(seconds(record, name))} ({seconds_text(low)} to {seconds_text(high)})"


def _gap(record: dict[str, Any], name: str) -> str:
    gap = record["tools"][name]["gap"]
    return f"{seconds_text(seconds(record, name))}, {100 * gap:.2g}%"


def ratio_rows(records: Sequence[dict[str, Any]]) -> list[Row]:
    """One row per case, then the medians and the targets."""
    rows: list[Row] = []
    for record in records:
        found = ratios(record)
        tools = record["tools"]
        own = _with_quartiles(record, "ours") if tools["ours"]["reached"] else "not reached"
        cells = [ratio_text(*found[peer]) for peer, _ in PEERS]
        extra = [_gap(record, "ours_tol"), _gap(record, "ours_default")]
        rows.append((record["set"], f"{record['penalty']:g}", own, *cells, *extra))
    medians = [ratio_text(median_ratio(records, peer), False) for peer, _ in PEERS]
    rows.append(("**median**", "", "", *medians, "", ""))
    targets = [f"at least {TARGETS[peer]:g}x" for peer, _ in PEERS]
    rows.append(("target", "", "", *targets, "", ""))
    return rows


def time_rows(records: Sequence[dict[str, Any]]) -> list[Row]:
    """Absolute times of everybody, and with which settings."""
    return [_time_row(record) for record in records]


def _time_row(record: dict[str, Any]) -> Row:
    tools = record["tools"]
    classes = 2 if record["problems"] == 1 else record["problems"]
    route = f"{tools['ours']['route']}, {_range(tools['ours']['iterations'])}"
    return (
        record["set"],
        f"{record['penalty']:g}",
        f"{record['rows']:,}",
        f"{record['features']:,}",
        str(classes),
        f"{record['optimum']['objective']:.6g}",
        route,
        _sgd_setting(tools["sgd"]["plan"]),
        *(_peer_time(record, peer) for peer in ("sgd", "liblinear", "vowpal")),
    )


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _sgd_setting(plan: dict[str, Any]) -> str:
    settings = plan["settings"]
    rate = f" {settings['eta0']:.3g}" if "eta0" in settings else ""
    average = ", averaged" if settings["average"] else ""
    passes = _range(plan.get("passes_by_seed", [plan["passes"]]))
    return f"{settings['learning_rate']}{rate}{average}, {passes}"


def _peer_time(record: dict[str, Any], peer: str) -> str:
    tool = record["tools"].get(peer)
    if tool is None:
        return "-"
    if tool["reached"]:
        return seconds_text(seconds(record, peer))
    gap = float(tool["gap"])
    how_far = f"{100 * gap:.2g}% off" if gap < 1e3 else "far off"
    return f"> {seconds_text(tool['at_least'])} ({how_far})"


def losses_text(records: Sequence[dict[str, Any]]) -> str:
    """Name every row we lose."""
    lost = []
    for record in records:
        for peer, label in PEERS:
            value, bound = ratios(record)[peer]
            if value is not None and value < 1 and not bound:
                case = f"{record['set']} (alpha N = {record['penalty']:g})"
                lost.append(f"{case} against {label}, {value:.2f}x")
    return "We lose: " + "; ".join(lost) + "." if lost else "We lose no row."


def target_rows(measured: dict[str, Any]) -> list[Row]:
    """Every requirement with what was measured."""
    rows: list[Row] = []
    log_loss = [r for r in measured["speed"].values() if r["loss"] == "log_loss"]
    if log_loss:
        rows += _speed_targets(log_loss)
    for layout, target in (("CSR", 1.0), ("dense", 1.8)):
        entries = [e for e in measured["throughput"].values() if e["layout"] == layout]
        if entries:
            for key, what in (("pass_ratio", "pass"), ("fit_ratio", "fit of one pass")):
                worst = min(entry[key] for entry in entries)
                label = f"implicit {what} against an explicit one, {layout}, worst"
                rows.append(_row(label, f"{target:g}x", f"{worst:.2f}x", worst >= target))
    rows += _thread_targets(measured["threads"])
    rows += _stability_targets(measured["stability"])
    rows += _coverage_targets(measured["coverage"])
    rows += _memory_targets(measured["memory"])
    return rows


def _row(what: str, target: str, value: str, met: bool) -> Row:
    return (what, target, value, "yes" if met else "**no**")


def _all(met: bool) -> str:
    return "all" if met else "not all"


def _speed_targets(records: Sequence[dict[str, Any]]) -> list[Row]:
    rows = []
    for peer, label in PEERS:
        value = median_ratio(records, peer)
        if value is not None:
            met = value >= TARGETS[peer]
            what = f"time to 1%, log loss, median of {len(records)} cases against {label}"
            rows.append(_row(what, f"{TARGETS[peer]:g}x", f"{value:.2f}x", met))
    worst = min(ratios(record)["sgd"][0] or 0.0 for record in records)
    what = "time to 1%, log loss, worst case against SGD best"
    rows.append(_row(what, f"{WORST:g}x", f"{worst:.2f}x", worst >= WORST))
    return rows


def _thread_targets(results: dict[str, Any]) -> list[Row]:
    if not results:
        return []
    speedups = [entry["speedup"] for entry in results.values()]
    same = all(entry["same_objective"] and entry["deterministic"] for entry in results.values())
    value = float(np.median(speedups))
    text = f"{value:.2f}x ({min(speedups):.2f}x to {max(speedups):.2f}x)"
    return [
        _row("two threads, median speed-up", "1.6x", text, value >= 1.6),
        _row(
            "two threads, same objective and same bits twice",
            "all",
            _all(same),
            same,
        ),
    ]


def _stability_targets(results: dict[str, Any]) -> list[Row]:
    if not results:
        return []
    finite = all(
        np.isfinite([float(loss) for loss in results[kind]["implicit"]]).all()
        for kind in ("standardised", "raw")
    )
    auto = results["auto"]
    highest = max(auto["common"] + auto["separate"])
    return [
        _row(
            "implicit finite over nine decades of rates",
            "all",
            _all(finite),
            finite,
        ),
        _row(
            '"auto", excess over its best, all feature scales',
            "1%",
            f"{auto['worst_excess']:.2%}",
            auto["worst_excess"] <= 0.01,
        ),
        _row(
            '"auto", worst loss against the zero model\'s',
            f"{auto['zero_model']:.3f}",
            f"{highest:.3f}",
            highest <= auto["zero_model"],
        ),
    ]


def _coverage_targets(results: dict[str, Any]) -> list[Row]:
    if not results:
        return []
    found = [entry["coverage"] for entry in results["settings"].values()]
    if any(value is None for value in found):
        return [_row("coverage of 95% intervals", "93% to 97%", "some setting refused", False)]
    inside = all(0.93 <= value <= 0.97 for value in found)
    text = f"{min(found):.1%} to {max(found):.1%}"
    refused = results["refusals"]
    worst = min(refused["cut_short"], refused["separable"])
    return [
        _row("coverage of 95% intervals, all settings", "93% to 97%", text, inside),
        _row(
            "uncertified fits refused", "all", f"{worst} of {refused['of']}", worst == refused["of"]
        ),
    ]


def _memory_targets(results: dict[str, Any]) -> list[Row]:
    if not results:
        return []
    largest = results["runs"][-1]
    name = f"file {largest['factor']:g}x the memory allowed"
    if not largest["trained"]:
        return [_row(name, "trains", "failed", False)]
    grown = [entry["growth_mb"] for entry in results["runs"] if entry["trained"]]
    text = f"+{max(grown):.0f} MB"
    return [
        _row(name, "trains", "trained", True),
        _row("peak memory of the fit above its start", "200 MB", text, max(grown) <= 200),
    ]


def stability_rows(results: dict[str, Any]) -> list[Row]:
    """How far each update can be trusted."""
    rows: list[Row] = []
    for label in ("standardised", "raw"):
        for name in ("implicit", "explicit", "scikit-learn"):
            losses = np.array([float(value) for value in results[label][name]])
            finite = f"{np.isfinite(losses).sum()} of {len(losses)} rates"
            useful = f"{(losses <= np.log(2)).sum()} of {len(losses)} rates"
            rows.append((label, name, finite, useful, f"{losses.min():.4f}"))
    return rows


def coverage_rows(results: dict[str, Any]) -> list[Row]:
    """One row per setting."""
    rows: list[Row] = []
    for key, entry in results["settings"].items():
        if entry["coverage"] is None:
            rows.append((*key.split("/"), "-", "-", str(entry["refused"])))
            continue
        coverage = f"{entry['coverage']:.1%} +- {entry['error']:.1%}"
        worst = f"{entry['worst_coefficient']:.1%} +- {entry['worst_error']:.1%}"
        rows.append((*key.split("/"), coverage, worst, str(entry["refused"])))
    return rows


def memory_rows(results: dict[str, Any]) -> list[Row]:
    """One row per file."""
    rows: list[Row] = []
    for entry in results["runs"]:
        start = (f"{entry['factor']:g}", f"{entry['file_mb']:.0f} MB", f"{entry['rows']:,}")
        if not entry["trained"]:
            rows.append((*start, f"failed: {' '.join(entry['error'])}", "-", "-"))
            continue
        peak = f"{entry['growth_mb']:.0f} MB"
        rows.append((*start, peak, f"{entry['seconds']:.1f}", str(entry["iterations"])))
    return rows
