"""The command: ``python -m benchmarks.kernel [PART ...] [--sets a,b] [--seeds N] [--quick]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.common import DOCS, machine_facts, name_processors, results_folder, write_json
from benchmarks.kernel import classify, features, gp, large, noise, regress, scale
from benchmarks.kernel.peers import PEERS
from benchmarks.kernel.problem import CLASSES, NUMBERS, QUICK
from benchmarks.kernel.writer import PROCESSOR, write

PARTS = (
    "features", "classify", "large", "noise", "regress", "gp", "scale", "write",
)  # fmt: skip
PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm", "torch", "gpytorch", "threadpoolctl")


def main(arguments: list[str] | None = None) -> None:
    """Run the requested measurements, skipping stored ones, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--sets", help="data sets, separated by commas")
    parser.add_argument("--seeds", type=int, help="how many seeds or splits")
    parser.add_argument(
        "--models", default=",".join(("ours", "svc", *PEERS)), help="of the part classify"
    )
    parser.add_argument("--quick", action="store_true", help="few sets and one seed")
    parser.add_argument("--out", type=Path, help="folder of the page and its picture")
    options = parser.parse_args(arguments)
    folder = results_folder("kernel", options.quick)
    docs = options.out or (folder / "docs" if options.quick else DOCS)
    name_processors(folder, key=PROCESSOR)
    write_json(folder / "machine.json", machine_facts(PACKAGES))
    asked = tuple(options.sets.split(",")) if options.sets else None
    seeds = range(options.seeds or (1 if options.quick else 5))
    classes = asked or (QUICK if options.quick else CLASSES)
    for part in options.parts or PARTS:
        if part == "features":
            measure_features(folder / "features.json", options.quick)
        elif part == "classify":
            classify.run(folder, classes, seeds, options.models.split(","))
        elif part == "large":
            large.run(folder, classes)
        elif part == "noise":
            noise.run(folder, classes, seeds)
        elif part == "regress":
            numbers = asked or (NUMBERS[:2] if options.quick else NUMBERS)
            splits = range(options.seeds or (1 if options.quick else 20))
            regress.run(folder, numbers, splits)
        elif part == "gp":
            gp.run(folder, asked or (NUMBERS[1:2] if options.quick else NUMBERS), options.seeds)
        elif part == "scale":
            scale.run(folder, range(options.seeds or 1), options.quick)
        else:
            write(folder, docs)


def measure_features(path: Path, quick: bool) -> None:
    """Time the feature maps and measure their errors anew; takes a minute."""
    results = dict(features.run(3, 2) if quick else features.run())
    write_json(path, results)


if __name__ == "__main__":
    main()
