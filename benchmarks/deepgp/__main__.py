"""The command: ``python -m benchmarks.deepgp [PART ...] [--sets a,b] [--seeds N] [--quick]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.common import DOCS, machine_facts, read_json, results_folder, write_json
from benchmarks.deepgp import (
    classify,
    compiling,
    default,
    likelihood,
    mnist,
    natural,
    race,
    regress,
    speed,
    toys,
)
from benchmarks.deepgp.writer import write

PARTS = (
    "regress", "default", "classify", "noise", "speed", "race", "compile", "natural", "toys",
    "likelihood", "mnist", "write",
)  # fmt: skip
PACKAGES = ("numpy", "scipy", "scikit-learn", "jax", "jaxlib", "torch", "gpytorch")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page; what is stored is not measured again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deepgp", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--sets", help="data sets, separated by commas")
    parser.add_argument("--seeds", type=int, help="how many seeds or splits")
    parser.add_argument("--models", help="of the part regress, separated by commas")
    parser.add_argument("--steps", type=int, help="of the part mnist: minibatches")
    parser.add_argument("--quick", action="store_true", help="few sets and one seed")
    parser.add_argument("--out", type=Path, help="folder of the page and its picture")
    options = parser.parse_args(arguments)
    folder = results_folder("deepgp", options.quick)
    docs = options.out or (folder / "docs" if options.quick else DOCS)
    write_json(folder / "machine.json", machine_facts(PACKAGES))
    for part in options.parts or PARTS:
        if part == "write":
            write(folder, docs)
        else:
            _measure(part, options, folder)


def _measure(part: str, options: argparse.Namespace, folder: Path) -> None:
    """One part, as far as it is not stored yet."""
    quick = bool(options.quick)
    asked = tuple(options.sets.split(",")) if options.sets else None
    models = options.models.split(",") if options.models else None
    seeds = range(options.seeds or (1 if quick else 5))
    if part == "regress":
        sets = asked or (("boston",) if quick else regress.SETS)
        regress.run(folder, sets, seeds, models or regress.MODELS)
    elif part == "default":
        default.run(folder, asked or (("boston",) if quick else regress.SETS))
    elif part in ("classify", "noise"):
        sets = asked or (("vowel",) if quick else classify.SETS)
        classify.run(folder, sets, seeds, models or classify.MODELS, noisy=part == "noise")
    elif part == "speed":
        speed.run(folder)
    elif part == "race":
        race.run(folder, asked or (race.SETS[:1] if quick else race.SETS))
    elif part == "compile":
        compiling.run(folder)
    elif part == "natural":
        natural.run(folder, ("energy",) if quick else natural.SETS)
    elif part == "mnist":
        given = options.steps or (40 if quick else 0)
        mnist.run(folder, (given,) if given else mnist.STEPS)
    elif part == "toys":
        toys.run(folder, seeds)
    elif part == "likelihood":
        path = folder / "likelihood.json"
        for key, record in likelihood.run(known=read_json(path)):
            write_json(path, {**read_json(path), key: record})


if __name__ == "__main__":
    main()
