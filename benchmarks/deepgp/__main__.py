"""The command: ``python -m benchmarks.deepgp [PART ...] [--sets a,b] [--seeds N] [--quick]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.common import CACHE, DOCS, machine_facts, read_json, write_json
from benchmarks.deepgp import classify, likelihood, regress, speed, toys
from benchmarks.deepgp.writer import write

PARTS = ("regress", "classify", "noise", "speed", "toys", "likelihood", "write")
PACKAGES = ("numpy", "scipy", "scikit-learn", "jax", "jaxlib", "torch", "gpytorch")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page; what is stored is not measured again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deepgp", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--sets", help="data sets, separated by commas")
    parser.add_argument("--seeds", type=int, help="how many seeds or splits")
    parser.add_argument("--models", help="of the part regress, separated by commas")
    parser.add_argument("--quick", action="store_true", help="few sets and one seed")
    parser.add_argument("--out", type=Path, help="folder of the page and its picture")
    options = parser.parse_args(arguments)
    folder = CACHE / ("deepgp-quick" if options.quick else "deepgp")
    docs = options.out or (folder / "docs" if options.quick else DOCS)
    write_json(folder / "machine.json", machine_facts(PACKAGES))
    asked = tuple(options.sets.split(",")) if options.sets else None
    seeds = range(options.seeds or (1 if options.quick else 5))
    for part in options.parts or PARTS:
        if part == "regress":
            sets = asked or (("boston",) if options.quick else regress.SETS)
            models = options.models.split(",") if options.models else regress.MODELS
            regress.run(folder, sets, seeds, models)
        elif part in ("classify", "noise"):
            sets = asked or (("vowel",) if options.quick else classify.SETS)
            classify.run(folder, sets, seeds, noisy=part == "noise")
        elif part == "speed":
            speed.run(folder)
        elif part == "toys":
            toys.run(folder, seeds)
        elif part == "likelihood":
            path = folder / "likelihood.json"
            if not read_json(path):
                write_json(path, dict(likelihood.run()))
        else:
            write(folder, docs)


if __name__ == "__main__":
    main()
