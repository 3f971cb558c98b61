"""The command: ``python -m benchmarks.deepgp [PART ...]``; ``--help`` tells the rest."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.common import DOCS, machine_facts, results_folder, write_json
from benchmarks.deepgp import (
    choices,
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
from benchmarks.deepgp.notes import Notes
from benchmarks.deepgp.writer import write

PARTS = (
    "regress", "default", "choices", "classify", "noise", "speed", "race", "compile",
    "natural", "toys", "likelihood", "mnist", "write",
)  # fmt: skip
PACKAGES = ("numpy", "scipy", "scikit-learn", "jax", "jaxlib", "torch", "gpytorch")


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, then write the page; what is stored is not measured again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deepgp", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--sets", help="data sets, separated by commas")
    parser.add_argument("--seeds", help="how many seeds or splits, or which, as in 3-5")
    parser.add_argument("--models", help="of the part regress, separated by commas")
    parser.add_argument("--steps", type=int, help="of the part mnist: minibatches")
    parser.add_argument("--quick", action="store_true", help="few sets and one seed")
    parser.add_argument("--again", action="store_true", help="measure what is known too")
    parser.add_argument("--out", type=Path, help="folder of the page and its picture")
    options = parser.parse_args(arguments)
    folder = results_folder("deepgp", options.quick)
    docs = options.out or (folder / "docs" if options.quick else DOCS)
    write_json(folder / "machine.json", machine_facts(PACKAGES))
    for part in options.parts or PARTS:
        if part == "write":
            write(folder, docs)
        else:
            _measure(part, options, Notes(folder, options.again))


def _measure(part: str, options: argparse.Namespace, notes: Notes) -> None:
    """One part, as far as it is not stored yet."""
    quick = bool(options.quick)
    asked = tuple(options.sets.split(",")) if options.sets else None
    models = options.models.split(",") if options.models else None
    seeds = _seeds(options.seeds or ("1" if quick else "5"))
    if part == "regress":
        sets = asked or (("boston",) if quick else regress.SETS)
        regress.run(notes, sets, seeds, models or regress.MODELS)
    elif part == "default":
        default.run(notes, asked or (("boston",) if quick else regress.SETS))
    elif part == "choices":
        choices.run(notes, seeds)
    elif part in ("classify", "noise"):
        sets = asked or (("vowel",) if quick else classify.SETS)
        classify.run(notes, sets, seeds, models or classify.MODELS, noisy=part == "noise")
    elif part == "speed":
        speed.run(notes)
    elif part == "race":
        race.run(notes, asked or (race.SETS[:1] if quick else race.SETS))
    elif part == "compile":
        compiling.run(notes)
    elif part == "natural":
        natural.run(notes, ("energy",) if quick else natural.SETS)
    elif part == "mnist":
        given = options.steps or (40 if quick else 0)
        mnist.run(notes, (given,) if given else mnist.STEPS)
    elif part == "toys":
        toys.run(notes, seeds)
    elif part == "likelihood":
        known = {} if notes.again else notes.read(part)
        for key, record in likelihood.run(known=known):
            Notes(notes.folder, again=True).keep(part, key, lambda record=record: record)


def _seeds(told: str) -> range:
    """The first seeds, or those from one to another."""
    first, _, last = told.rpartition("-")
    return range(int(first), int(last) + 1) if first else range(int(last))


if __name__ == "__main__":
    main()
