"""The command: ``python -m benchmarks.tables [METHOD ...] [--only a,b] [--redo METHOD]``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import (
    DOCS,
    machine_facts,
    name_processors,
    read_json,
    remember,
    results_folder,
    write_json,
)
from benchmarks.tables.command import ours
from benchmarks.tables.data import ALL, Split, split
from benchmarks.tables.page import PROCESSOR, write
from benchmarks.tables.peers import PEERS

METHODS: dict[str, Callable[[Split], dict[str, Any]]] = {"ours": ours, **PEERS}
PACKAGES = ("likelier", "numpy", "pandas", "scikit-learn")
QUICK = ("fitness_class", "miami_housing")


def main(arguments: list[str] | None = None) -> None:
    """Measure what is not stored yet, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    names = [*METHODS, "write"]
    parser.add_argument("methods", nargs="*", choices=[*names, []], help="default: all")
    parser.add_argument("--only", help="data sets, separated by commas")
    parser.add_argument("--seeds", type=int, help="how many splits")
    redo = parser.add_argument("--redo", action="append", choices=METHODS, default=[])
    redo.help = "measure this method anew, on the sets and splits asked for"
    parser.add_argument("--quick", action="store_true", help="two sets and one split")
    parser.add_argument("--out", type=Path, help="folder of the page and its picture")
    options = parser.parse_args(arguments)
    folder = results_folder("tables", options.quick)
    docs = options.out or (folder / "docs" if options.quick else DOCS)
    name_processors(folder, key=PROCESSOR)
    write_json(folder / "machine.json", machine_facts(PACKAGES))
    sets = options.only.split(",") if options.only else QUICK if options.quick else tuple(ALL)
    unknown = sorted(set(sets) - set(ALL))
    if unknown:
        parser.error(f"no data set {', '.join(unknown)}; there are {', '.join(ALL)}")
    keys = [(s, n) for s in range(options.seeds or (1 if options.quick else 3)) for n in sets]
    for method in options.redo:
        _forget(folder / f"{method}.json", keys)
    methods = [name for name in options.methods or METHODS if name != "write"]
    for seed, name in keys:
        for method in methods:
            run = partial(_measure, method, name, seed)
            record = remember(folder / f"{method}.json", f"{name}/{seed}", run)
            print(f"{name} split {seed} {method}: {_in_short(record)}", flush=True)
    write(folder, docs)


def _measure(method: str, name: str, seed: int) -> dict[str, Any]:
    """One method on one split; an error is a result too."""
    lines = split(name, seed)
    try:
        found = METHODS[method](lines)
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {error}"}
    return {"set": name, "task": lines.table.task, **found}


def _forget(path: Path, keys: list[tuple[int, str]]) -> None:
    gone = {f"{name}/{seed}" for seed, name in keys}
    stored = read_json(path)
    write_json(path, {key: record for key, record in stored.items() if key not in gone})


def _in_short(record: dict[str, Any]) -> str:
    if "failed" in record:
        return f"FAILED, {record['failed']}"
    score = "log_loss" if "log_loss" in record else "rmse"
    return f"{score} {record[score]:.4g}, fit {record['fit']:.1f} s"


if __name__ == "__main__":
    main()
