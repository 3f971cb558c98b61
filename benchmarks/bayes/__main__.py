"""The command: ``python -m benchmarks.bayes [PART ...] [--cases a,b] [--seeds 3] [--quick]``."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import DOCS, Cases, machine_facts, read_json, results_folder, write_json

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "polyagamma", "numpyro", "jax")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page."""
    # one thread for everybody; read when jax is first imported
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    options = _parse(arguments)
    results = results_folder("bayes", options.quick)
    docs = options.out or (results / "docs" if options.quick else DOCS)
    parts = _parts(options)
    for name in options.parts or [*parts, "write"]:
        start = time.perf_counter()
        if name == "write":
            from benchmarks.bayes.writer import write

            write(results, docs)
        else:
            _measure(name, parts[name], results)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bayes", description=__doc__)
    names = ["mixing", "calibration", "write"]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="default: all")
    parser.add_argument("--cases", help="cases, separated by commas")
    parser.add_argument("--seeds", type=int, default=3, help="repeats, each with its own data")
    parser.add_argument("--quick", action="store_true", help="few draws, about a minute")
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
    from benchmarks.bayes import calibration, mixing

    cases = tuple(options.cases.split(",")) if options.cases else None
    seeds = 1 if options.quick else options.seeds
    share = 0.2 if options.quick else 1.0
    return {
        "mixing": lambda: mixing.run(cases or tuple(mixing.CASES), seeds, share),
        "calibration": lambda: calibration.run(cases or calibration.SETS, seeds, options.quick),
    }


if __name__ == "__main__":
    main()
