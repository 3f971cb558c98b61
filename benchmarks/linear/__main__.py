"""The command: ``python -m benchmarks.linear [PART ...] [--sets a,b] [--quick]``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import (
    DOCS,
    ROOT,
    machine_facts,
    name_processors,
    read_json,
    results_folder,
    write_json,
)

SINGLE = ("stability", "coverage", "memory")  # parts of one record; the others have cases
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "vowpalwabbit", "threadpoolctl")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page."""
    options = _parse(arguments)
    _use_source_cache()
    results = results_folder("linear", options.quick)
    docs = options.out or (results / "docs" if options.quick else DOCS)
    for name in options.parts or [*_parts(options), "write"]:
        start = time.perf_counter()
        if name == "write":
            from benchmarks.linear.writer import write

            write(results, docs)
        else:
            _measure(name, _parts(options)[name], results)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linear", description=__doc__)
    names = ["speed", "throughput", "threads", "stability", "coverage", "memory", "write"]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="default: all")
    parser.add_argument("--sets", help="data sets, separated by commas")
    parser.add_argument("--losses", default="log_loss,hinge", help="for speed")
    parser.add_argument("--quick", action="store_true", help="small data, about two minutes")
    parser.add_argument("--out", type=Path, help="folder of the page and its pictures")
    return parser.parse_args(arguments)


def _measure(name: str, part: Callable[[], Any], folder: Path) -> None:
    """Run one part; cases measured before and not now keep their results.

    Each case is stored as soon as it is measured: an interrupted run loses only the last one.
    """
    path, facts = folder / f"{name}.json", machine_facts(PACKAGES)
    name_processors(folder, SINGLE)
    write_json(folder / "machine.json", facts)
    if name in SINGLE:
        write_json(path, {**part(), "cpu": facts["cpu"]})
        return
    for key, record in part():
        write_json(path, {**read_json(path), key: {**record, "cpu": facts["cpu"]}})


def _parts(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Every part as a call without arguments, in the order of the page."""
    from benchmarks.datasets import data_folder
    from benchmarks.linear import coverage, memory, speed, stability, threads, throughput
    from benchmarks.linear.problem import PENALTIES, SETS

    def chosen(default: tuple[str, ...]) -> tuple[str, ...]:
        if options.sets:
            return tuple(options.sets.split(","))
        if options.quick:
            return ("a9a",) if data_folder() else ("generated",)
        return default

    losses = tuple(options.losses.split(","))
    if options.quick:
        rows, few = 4000, {"repeats": 2, "rows": 4000}
        return {
            "speed": lambda: speed.run(chosen(SETS), losses[:1], (1.0,), rows),
            "throughput": lambda: throughput.run(chosen(throughput.SETS), **few),
            "threads": lambda: threads.run(chosen(threads.SETS), **few),
            "stability": lambda: stability.run(1000, 1),
            "coverage": lambda: coverage.run(20),
            "memory": lambda: memory.run(factors=(0.1,)),
        }
    return {
        "speed": lambda: speed.run(chosen(SETS), losses, PENALTIES),
        "throughput": lambda: throughput.run(chosen(throughput.SETS)),
        "threads": lambda: threads.run(chosen(threads.SETS)),
        "stability": stability.run,
        "coverage": coverage.run,
        "memory": memory.run,
    }


def _use_source_cache() -> None:
    """Keep compiled code per version of the source, as the Makefile does."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        tool = [sys.executable, str(ROOT / "tools" / "numba_cache.py")]
        folder = subprocess.run(tool, capture_output=True, text=True, check=True, cwd=ROOT)
        os.environ["NUMBA_CACHE_DIR"] = folder.stdout.strip()


if __name__ == "__main__":
    main()
