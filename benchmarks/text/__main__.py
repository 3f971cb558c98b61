"""The command: ``python -m benchmarks.text [PART ...] [--sets a,b] [--quick]``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import DOCS, machine_facts, read_json, results_folder, write_json
from benchmarks.linear.__main__ import _use_source_cache

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
PARTS = ("speed", "pipelines", "memory", "write")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--sets", help="corpora, separated by commas")
    parser.add_argument("--models", default="", help="pipelines, separated by semicolons")
    parser.add_argument("--quick", action="store_true", help="few documents, one repeat")
    parser.add_argument("--out", type=Path, help="folder of the page and its pictures")
    options = parser.parse_args(arguments)
    _use_source_cache()
    results = results_folder("text", options.quick)
    docs = options.out or (results / "docs" if options.quick else DOCS)
    for name in options.parts or PARTS:
        start = time.perf_counter()
        if name == "write":
            from benchmarks.text.writer import write

            write(results, docs)
        else:
            _measure(name, _parts(options)[name], results)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


def _measure(name: str, part: Callable[[], Any], folder: Path) -> None:
    """Run one part; each case is stored as soon as it is measured."""
    path = folder / f"{name}.json"
    write_json(folder / "machine.json", machine_facts(PACKAGES))
    if name == "memory":
        write_json(path, part())
        return
    for key, record in part():
        write_json(path, {**read_json(path), key: record})


def _parts(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    from benchmarks.text import memory, pipelines, speed
    from benchmarks.text.corpora import SETS

    sets = tuple(options.sets.split(",")) if options.sets else SETS
    if options.quick:
        return {
            "speed": lambda: speed.run(sets[:1], 1, 300),
            "pipelines": lambda: pipelines.run(1, 500),
            "memory": lambda: memory.run((1, 2)),
        }
    only = [name for name in options.models.split(";") if name]
    measured = partial(pipelines.run, only=only)
    return {"speed": lambda: speed.run(sets), "pipelines": measured, "memory": memory.run}


if __name__ == "__main__":
    main()
