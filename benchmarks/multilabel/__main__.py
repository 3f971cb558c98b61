"""Measure and write the page: ``python -m benchmarks.multilabel [parts]``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import DOCS, Cases, machine_facts, read_json, results_folder, write_json
from benchmarks.multilabel.data import SETS

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
PARTS = ("quality", "hidden", "growth", "example", "write")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page."""
    options = _parse(arguments)
    results = results_folder("multilabel", options.quick)
    docs = options.out or (results / "docs" if options.quick else DOCS)
    parts = _parts(options, results)
    for name in options.parts or PARTS:
        start = time.perf_counter()
        if name == "write":
            from benchmarks.multilabel.writer import write

            write(results, docs)
        else:
            _measure(name, parts[name], results)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multilabel", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--sets", help="data sets, separated by commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="measure what was measured before")
    parser.add_argument("--quick", action="store_true", help="two small sets, two seeds")
    parser.add_argument("--out", type=Path, help="folder of the page and its pictures")
    return parser.parse_args(arguments)


def _measure(name: str, part: Callable[[], Cases], folder: Path) -> None:
    """Store every case as soon as it is measured; cases measured before keep their results."""
    path = folder / f"{name}.json"
    write_json(folder / "machine.json", machine_facts(PACKAGES))
    for key, record in part():
        write_json(path, {**read_json(path), key: record})


def _parts(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[], Cases]]:
    from benchmarks.multilabel import example, growth, hidden, quality

    sets = tuple(options.sets.split(",")) if options.sets else SETS
    seeds = options.seeds
    if options.quick:
        sets, seeds = ("flags", "emotions"), 2
    done = {
        name: {} if options.again else read_json(folder / f"{name}.json")
        for name in ("quality", "hidden")
    }
    return {
        "quality": lambda: quality.run(sets, seeds, done["quality"]),
        "hidden": lambda: hidden.run(sets, seeds, done["hidden"]),
        "example": lambda: example.run(("emotions",) if options.quick else example.SETS),
        "growth": lambda: growth.run("slashdot", "enron") if options.quick else growth.run(),
    }


if __name__ == "__main__":
    main()
