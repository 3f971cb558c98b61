"""The command: ``python -m benchmarks.onepass [PART ...] [--sets a,b] [--quick]``."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before NumPy is imported
    os.environ.setdefault(_name, "1")

from benchmarks.common import (  # noqa: E402
    DOCS,
    machine_facts,
    read_json,
    results_folder,
    write_json,
)

PARTS = ("accuracy", "peer", "small", "merge")
PACKAGES = ("numpy", "scipy", "scikit-learn")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onepass", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "write", []], help="default: all")
    parser.add_argument("--sets", help="data sets, separated by commas")
    parser.add_argument("--solvers", default="", help="of the peer, separated by commas")
    parser.add_argument("--quick", action="store_true", help="generated data only")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the page")
    options = parser.parse_args(arguments)
    from benchmarks.onepass import measure, page

    folder = results_folder("onepass", options.quick)
    write_json(folder / "machine.json", machine_facts(PACKAGES))
    solvers = tuple(filter(None, options.solvers.split(",")))
    runs = {
        "accuracy": measure.run_accuracy,
        "peer": partial(measure.run_peer, solvers=solvers),
        "small": measure.run_small,
        "merge": measure.run_merge,
    }
    asked = tuple(options.sets.split(",")) if options.sets else ()
    if options.quick:
        asked = ("generated",)
    for name in options.parts or PARTS:
        if name == "write":
            continue
        own = {"small": measure.SMALL, "merge": measure.MERGED}
        chosen = asked or own.get(name, measure.SETS)
        for key, record in runs[name](chosen):
            path = folder / f"{name}.json"
            write_json(path, {**read_json(path), key: record})
            print(name, key, flush=True)
    page.write(folder, options.out)


if __name__ == "__main__":
    main()
