"""Wall time until within 1% of the optimal objective, against the tools people use.

For every data set, penalty and loss: the optimum (`optimum`), the cheapest setting of every
peer (`sgd`, `liblinear`, `vowpal`; found once and remembered), then timed fits of all tools in
turn. Every timed fit is checked: it counts only if its objective is within 1%.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Cases, interleave, median_or_none, read_json, timed, write_json
from benchmarks.linear import liblinear, ours, sgd, vowpal
from benchmarks.linear.optimum import solve
from benchmarks.linear.problem import CLOSE, Problem, problem

SEEDS = 3
REPEATS = 5
# repeats of slow fits stop after this many seconds per case
CASE_SECONDS = 40.0
# wall time over processor time of one thread, from which the machine counts as busy
BUSY = 1.15
# times our own time: what a peer may use in one run before it counts as not getting there
CHANCE = 8.0

Fit = Callable[[int], Any]


def run(
    sets: Sequence[str],
    losses: Sequence[str],
    penalties: Sequence[float],
    rows: int | None = None,
    report: Callable[[str], None] = print,
) -> Cases:
    """Measure every case and yield its key and its results."""
    for loss in losses:
        for name in sets:
            for penalty in penalties:
                case = problem(name, loss, penalty, rows)
                record = measure(case)
                report(f"speed {case.key}: {summary(record)}")
                yield case.key, record


def measure(case: Problem) -> dict[str, Any]:
    """Search, then time all tools on one problem."""
    with threadpool_limits(1):
        optimum = solve(case)
        ours.warm_up(case)
        fewest = _fewest(case)
        own = min(timed(partial(ours.fit, case, plan, 0))[2] for plan in fewest)
        plans = {name: _plan(case, name, CHANCE * own) for name in peers()}
        runs, readers = _runs(case, fewest, plans)
    timings, fitted = interleave(runs, REPEATS, CASE_SECONDS)
    record: dict[str, Any] = _facts(case, optimum)
    for name, timing in timings.items():
        entry = timing.to_json()
        if name != "sgd_search":
            gaps = [case.gap(readers[name](value)) for value in fitted[name]]
            entry["gap"] = float(np.median(gaps))
            entry["reached"] = max(gaps) <= CLOSE
        record["tools"][name] = {**record["tools"].get(name, {}), **entry}
    for name, plan in plans.items():
        entry = record["tools"].setdefault(name, {"reached": False, "gap": plan.get("gap")})
        entry["plan"] = plan
        if not entry["reached"]:
            entry["at_least"] = entry.get("seconds", plan["race_seconds"])
    _describe_ours(record, fitted)
    return record


def peers() -> dict[str, Any]:
    """Peers that are installed."""
    found = {"sgd": sgd, "liblinear": liblinear}
    return {**found, "vowpal": vowpal} if vowpal.available() else found


def _plan(case: Problem, name: str, chance: float) -> dict[str, Any]:
    """Setting of a peer: searched for once, and again if it was given up before its ``chance``."""
    tool, path, key = peers()[name], case.reference / "plans.json", f"{case.key}/{name}"
    if name == "vowpal":
        vowpal.cache_file(case.data)
    plan: dict[str, Any] | None = read_json(path).get(key)
    if plan is None or not (plan["reached"] or plan["race_seconds"] >= chance):
        plan = tool.search(case, chance)
        write_json(path, {**read_json(path), key: plan})
    return plan


def _facts(case: Problem, optimum: dict[str, Any]) -> dict[str, Any]:
    data = case.data
    return {
        "set": data.name,
        "loss": case.loss,
        "penalty": case.penalty,
        "rows": data.n_rows,
        "features": data.n_features,
        "values": data.n_values,
        "layout": data.layout,
        "problems": case.n_problems,
        "preparation": data.preparation,
        "optimum": optimum,
        "tools": {},
    }


def _runs(
    case: Problem, fewest: list[dict[str, Any]], plans: dict[str, dict[str, Any]]
) -> tuple[dict[str, Fit], dict[str, Callable[[Any], Any]]]:
    """Fits to time (each takes the number of the repeat) and how to read their weights."""
    runs: dict[str, Fit] = {}
    read: dict[str, Callable[[Any], Any]] = {}
    _add_ours(case, fewest, runs, read)
    if plans["sgd"]["reached"]:
        adapted = [sgd.adapt(case, plans["sgd"], seed) or plans["sgd"] for seed in range(SEEDS)]
        runs["sgd"] = lambda k: sgd.fit(case, adapted[k % SEEDS], k % SEEDS)
        runs["sgd_search"] = lambda k: sgd.fit_search(case, adapted[k % SEEDS], k % SEEDS)
        plans["sgd"] = {**plans["sgd"], "passes_by_seed": [p["passes"] for p in adapted]}
    if plans["liblinear"]["reached"]:
        runs["liblinear"] = lambda k: liblinear.fit(case, plans["liblinear"], k % SEEDS)
    if "vowpal" in plans and plans["vowpal"]["reached"]:
        runs["vowpal"] = lambda k: vowpal.fit(case, plans["vowpal"], k % SEEDS)
        read["vowpal"] = lambda workspace: vowpal.weights(case, workspace)
    for name in runs:
        read.setdefault(name, lambda coef: coef)
    return runs, read


def _fewest(case: Problem) -> list[dict[str, Any]]:
    """Our plan with the fewest passes for every seed; one that never gets there has its default.

    That one is then timed, and counted as not reached.
    """
    found: list[dict[str, Any]] = []
    start = 1
    for seed in range(SEEDS):
        found.append(ours.adapt(case, start, seed) or {})
        start = found[-1].get("max_iter", start)
    return found


def _add_ours(
    case: Problem,
    fewest: list[dict[str, Any]],
    runs: dict[str, Fit],
    read: dict[str, Callable[[Any], Any]],
) -> None:
    """Our fits: the fewest passes, a tolerance of 1%, and the plain default."""
    runs["ours"] = lambda k: ours.fit(case, fewest[k % SEEDS], k % SEEDS)
    runs["ours_tol"] = lambda k: ours.fit(case, {"tol": CLOSE}, k % SEEDS)
    runs["ours_default"] = lambda k: ours.fit(case, {}, k % SEEDS)
    for name in ("ours", "ours_tol", "ours_default"):
        read[name] = ours.coefficients


def _describe_ours(record: dict[str, Any], fitted: dict[str, list[Any]]) -> None:
    for name in ("ours", "ours_tol", "ours_default"):
        estimators = fitted[name]
        record["tools"][name]["iterations"] = [int(value.n_iter_) for value in estimators]
        record["tools"][name]["route"] = estimators[0].route_


def ratio(record: dict[str, Any], peer: str, tool: str = "ours") -> tuple[float | None, bool]:
    """How many times faster we are than a peer, and whether that is only a lower bound.

    Zero where we did not get within 1%: such a row is a loss, whatever the time.
    """
    tools = record["tools"]
    if peer not in tools:
        return None, False
    if not tools[tool]["reached"]:
        return 0.0, False
    own = seconds(record, tool)
    if peer == "sgd_search" or tools[peer]["reached"]:
        return seconds(record, peer) / own, False
    return tools[peer]["at_least"] / own, True


def busy(record: dict[str, Any]) -> bool:
    """Whether other work slowed the machine down, so that wall time says little."""
    single = [tool for tool in record["tools"].values() if "seconds" in tool]
    waits = [tool["seconds"] / tool["cpu_seconds"] for tool in single if tool["cpu_seconds"] > 0]
    return float(np.median(waits)) > BUSY


def seconds(record: dict[str, Any], tool: str) -> float:
    """Wall time; on a busy machine processor time, of which one thread has as much.

    Vowpal Wabbit has two threads, so it gets the smaller of the two clocks.
    """
    entry = record["tools"][tool]
    if not busy(record):
        return float(entry["seconds"])
    if tool == "vowpal":
        return float(min(entry["seconds"], entry["cpu_seconds"]))
    return float(entry["cpu_seconds"])


def ratios(record: dict[str, Any], tool: str = "ours") -> dict[str, tuple[float | None, bool]]:
    """Ratios to every peer; without a winner of the race the search is nine times its cap."""
    found = {peer: ratio(record, peer, tool) for peer in ("sgd", "liblinear", "vowpal")}
    search = ratio(record, "sgd_search", tool)
    if search[0] is None and found["sgd"][0] is not None:
        search = (9 * found["sgd"][0], True)
    return {**found, "sgd_search": search}


def median_ratio(records: Sequence[dict[str, Any]], peer: str, tool: str = "ours") -> float | None:
    """Median over cases; a lower bound counts as what it is."""
    return median_or_none(ratios(record, tool)[peer][0] for record in records)


def summary(record: dict[str, Any]) -> str:
    """One line for the terminal."""
    own = record["tools"]["ours"]
    parts = [f"ours {seconds(record, 'ours') * 1e3:.1f} ms {own['route']} gap {own['gap']:.2%}"]
    for peer, (value, bound) in ratios(record).items():
        if value is not None:
            parts.append(f"{peer} {'>' if bound else ''}{value:.2f}x")
    return ", ".join(parts)
