"""The command: ``python -m benchmarks.svm [PART ...] [--sets a,b] [--quick]``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before NumPy is imported
    os.environ.setdefault(_name, "1")

from benchmarks.common import (  # noqa: E402
    DOCS,
    Cases,
    machine_facts,
    name_processors,
    read_json,
    results_folder,
    write_json,
)

PARTS = ("speed", "closeness", "small", "fine", "path", "threads", "scale", "coverage")
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.svm", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "write", []], help="default: all")
    parser.add_argument("--sets", help="data sets, separated by commas")
    parser.add_argument("--quick", action="store_true", help="few and small problems")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the page")
    options = parser.parse_args(arguments)
    folder = results_folder("svm", options.quick)
    machine = machine_facts(PACKAGES)
    name_processors(folder)
    write_json(folder / "machine.json", machine)
    for name in options.parts or PARTS:
        if name == "write":
            continue
        for key, record in _part(name, options)():
            path = folder / f"{name}.json"
            write_json(path, {**read_json(path), key: {**record, "cpu": machine["cpu"]}})
            print(name, key, flush=True)
    from benchmarks.svm.page import write

    write(folder, options.out)


def _part(name: str, options: argparse.Namespace) -> Callable[[], Cases]:
    """A part as a call without arguments."""
    from benchmarks.svm import closeness, scale, small, speed

    chosen = {"sets": tuple(options.sets.split(","))} if options.sets else {}
    if options.quick:
        few = {"sets": ("boston", "splice"), **chosen}
        return {
            "speed": lambda: speed.run(Cs=(1.0, 100.0), repeats=1, caches=(200,), **few),
            "closeness": lambda: closeness.run(Cs=(1.0,), **few),
            "small": lambda: small.run(repeats=1),
            "fine": lambda: speed.run_fine(Cs=(1.0,), **few),
            "path": lambda: speed.run_path(repeats=1, **few),
            "threads": lambda: speed.run_threads(repeats=1, **few),
            "scale": lambda: scale.run((1000,)),
            "coverage": lambda: scale.run_coverage(("kin8nm",), 2),
        }[name]
    return {
        "speed": lambda: speed.run(**chosen),
        "closeness": lambda: closeness.run(**chosen),
        "small": small.run,
        "fine": lambda: speed.run_fine(**chosen),
        "path": lambda: speed.run_path(**chosen),
        "threads": lambda: speed.run_threads(**chosen),
        "scale": scale.run,
        "coverage": lambda: scale.run_coverage(**chosen),
    }[name]


if __name__ == "__main__":
    main()
