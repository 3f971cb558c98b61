"""The command: ``python -m benchmarks.nb [PART ...] [--sets a,b] [--quick]``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import DOCS, Cases, machine_facts, read_json, results_folder, write_json

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page."""
    options = _parse(arguments)
    results = results_folder("nb", options.quick)
    docs = options.out or (results / "docs" if options.quick else DOCS)
    parts = _parts(options)
    for name in options.parts or [*parts, "write"]:
        start = time.perf_counter()
        if name == "write":
            from benchmarks.nb.writer import write

            write(results, docs)
        else:
            _measure(name, parts[name], results)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nb", description=__doc__)
    names = ["speed", "agreement", "outliers", "missing", "write"]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="default: all")
    parser.add_argument("--sets", help="data sets, separated by commas")
    parser.add_argument("--quick", action="store_true", help="few rows, about a minute")
    parser.add_argument("--out", type=Path, help="folder of the page and its pictures")
    return parser.parse_args(arguments)


def _measure(name: str, part: Callable[[], Cases], folder: Path) -> None:
    """Store every case as soon as it is measured; cases measured before keep their results."""
    path = folder / f"{name}.json"
    write_json(folder / "machine.json", machine_facts(PACKAGES))
    for key, record in part():
        write_json(path, {**read_json(path), key: record})


def _parts(options: argparse.Namespace) -> dict[str, Callable[[], Cases]]:
    """Every part as a call without arguments, in the order of the page."""
    from benchmarks.nb import agreement, missing, outliers, speed

    sets = tuple(options.sets.split(",")) if options.sets else None
    if options.quick:
        return {
            "speed": lambda: speed.run(sets or speed.SETS, 3, 5000),
            "agreement": lambda: agreement.run(sets or ("vowel", "segment")),
            "outliers": lambda: outliers.run(1, 3000),
            "missing": lambda: missing.run(sets or ("breast-cancer",), 1),
        }
    return {
        "speed": lambda: speed.run(sets or speed.SETS),
        "agreement": lambda: agreement.run(sets or agreement.SETS),
        "outliers": outliers.run,
        "missing": lambda: missing.run(sets or missing.SETS),
    }


if __name__ == "__main__":
    main()
