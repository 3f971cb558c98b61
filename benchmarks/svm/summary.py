"""What was to be shown, and whether it was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.common import markdown_table
from benchmarks.svm.problem import CLASSES

TOL, FINE = 1e-3, 1e-6
TEN_CLASSES = ("pendigits", "usps")


def in_short(found: dict[str, Any]) -> str:
    """A table of targets, once all parts have been measured."""
    parts = {
        "speed": _speed, "closeness": _closeness, "fine": _fine, "path": _path,
        "threads": _threads, "scale": _scale, "coverage": _coverage,
    }  # fmt: skip
    if not all(found.get(name) for name in parts):
        return ""
    rows = [row for name, part in parts.items() for row in part(list(found[name].values()))]
    return "## In short\n\n" + markdown_table(("what", "target", "measured", "met"), rows)


def _line(what: str, target: str, measured: str, met: bool) -> list[str]:
    return [what, target, measured, "yes" if met else "**no**"]


def _at_least(what: str, target: float, measured: float) -> list[str]:
    return _line(what, f"{target:g}x", f"{measured:.2f}x", measured >= target)


def _at_most(what: str, target: float, measured: float, digits: str = ".1e") -> list[str]:
    return _line(what, f"{target:g}", f"{measured:{digits}}", measured <= target)


def _ratios(records: Iterable[dict[str, Any]]) -> Any:
    return np.array([r["theirs"] / r["ours"] for r in records])


def _rise(r: dict[str, Any]) -> float:
    """How much higher our objective is, relative to LIBSVM's."""
    return float((r["objective"] - r["their_objective"]) / abs(r["their_objective"]))


def _speed(records: list[dict[str, Any]]) -> list[list[str]]:
    both = [r for r in records if "their_objective" in r]
    rows = []
    for cache in sorted({r["cache"] for r in records}):
        ratios = _ratios(r for r in records if r["cache"] == cache)
        rows.append(_at_least(f"one fit, {cache} MB, median", 2.0, np.median(ratios)))
        rows.append(_at_least(f"one fit, {cache} MB, worst", 1.0, ratios.min()))
    for name in TEN_CLASSES:
        some = [r for r in records if r["set"] == name]
        if some:
            rows.append(_at_least(f"{name}, ten classes, median", 3.0, np.median(_ratios(some))))
    labels = [r["difference"] for r in both if r["set"] in CLASSES]
    rows.append(_at_most("objective below LIBSVM's, worst", 1e-6, max(-_rise(r) for r in both)))
    done = [r for r in records if r["converged"]]
    rows.append(_at_most("violation of optimality, worst", TOL, max(r["gap"] for r in done)))
    for r in (r for r in records if not r["converged"]):
        what = f"{r['set']}, C = {r['C']:g}: ended by `max_iter` with a warning, violation"
        rows.append([what, "", f"{r['gap']:.1e}", ""])
    if labels:
        rows.append(_at_most("share of labels that differ, worst", TOL, max(labels)))
    return rows


def _closeness(records: list[dict[str, Any]]) -> list[list[str]]:
    ours, theirs = (
        max(r[name] for r in records if name in r) for name in ("coarse", "their_coarse")
    )
    rows = [_at_most("numbers predicted, from the optimum, worst", TOL, ours)]
    rows.append(["the same of LIBSVM", "", f"{theirs:.1e}", ""])
    ends = [r["to_converged"] for r in records if converged(r)]
    if ends:
        what = "numbers predicted, from LIBSVM's converged (`tol=1e-6`), worst"
        rows.append(_at_most(what, TOL, max(ends)))
    return rows


def converged(r: dict[str, Any]) -> bool:
    """Whether LIBSVM has: below twice the tolerance asked for; elsewhere it ended before."""
    return bool(r.get("their_gap", np.inf) <= 2.0 * FINE)


def _fine(records: list[dict[str, Any]]) -> list[list[str]]:
    done = [r for r in records if r["their_gap"] <= 2.0 * FINE]
    rows = [_at_most("objectives at `tol=1e-6`, apart, worst", FINE, max(map(_apart, done)))]
    if len(done) < len(records):
        lost = [r for r in records if r not in done]
        rows.append(_at_most("where LIBSVM ends short of `tol=1e-6`: objective below its own",
                             FINE, max(-_rise(r) for r in lost)))  # fmt: skip
    worst = max(r["gap"] for r in records)
    return [*rows, _at_most("violation of optimality at `tol=1e-6`, worst", FINE, worst)]


def _apart(r: dict[str, Any]) -> float:
    return abs(_rise(r))


def _path(records: list[dict[str, Any]]) -> list[list[str]]:
    ratios = _ratios(records)
    names = [r["set"] for r in records]
    lowest = f"ten values of C, worst ({names[int(ratios.argmin())]})"
    median = _at_least("ten values of C, median", 8.0, float(np.median(ratios)))
    return [median, _at_least(lowest, 8.0, ratios.min())]


def _threads(records: list[dict[str, Any]]) -> list[list[str]]:
    """The worse of fits in a row and in turn."""
    rows = []
    for r in records:
        ways = [r, *([r["in_turn"]] if "in_turn" in r else [])]
        worst = min(times["theirs"] / times["two"] for times in ways)
        rows.append(_at_least(f"two threads, {r['set']}", 3.0, worst))
    return rows


def _scale(records: list[dict[str, Any]]) -> list[list[str]]:
    last = max(records, key=lambda r: r["rows"])
    data = 4 * 20 * 8 * last["rows"] / 2**20  # the rows, a copy, and the same in single precision
    limit = round(1.1 * last["cache"] + data)
    return [_at_most(f"memory for {last['rows']:,} rows, MB (`cache_size` and copies of the data)",
                     limit, last["growth_mb"], ".0f")]  # fmt: skip


def _coverage(records: list[dict[str, Any]]) -> list[list[str]]:
    low, high = min(r["coverage"] for r in records), max(r["coverage"] for r in records)
    met = low >= 0.88 and high <= 0.92
    return [_line("coverage of 90% intervals", "88% to 92%", f"{low:.1%} to {high:.1%}", met)]
