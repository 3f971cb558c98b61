"""The page of the deep Gaussian processes: every number on it comes from stored measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, publish, read_json, seconds_text, write_page
from benchmarks.deepgp import classify, compiling, likelihood, mnist, race, regress, toys
from benchmarks.deepgp.notes import elsewhere
from benchmarks.deepgp.writer_choices import choices_tables
from benchmarks.deepgp.writer_regress import default_table, power_table, regress_table

TITLE = (
    "# Deep Gaussian processes\n\nWritten by `make bench-deepgp`; no number here is typed by "
    "hand, except those of the columns that say they are published. Measurements are in "
    "[deepgp.json](deepgp.json), but for sections that were measured before these were kept.\n"
)
# parts whose records say where they were measured
STORED = (
    *(f"regress-{model.replace(' ', '-')}" for model in regress.MODELS), "default", "choices",
    "classify", "mnist", "speed", "race", "compile", "natural", "toys", "likelihood",
)  # fmt: skip


def write(folder: Path, docs: Path) -> None:
    """Write deepgp.md and its picture from what has been measured so far."""
    docs.mkdir(parents=True, exist_ok=True)
    parts = [
        TITLE, _machine(folder), regress_table(folder, docs), power_table(folder),
        default_table(folder), choices_tables(folder), _classify(folder), _mnist(folder),
        _speed(folder), _race(folder), _compiling(folder), _natural(folder),
        _toys(folder, docs), _likelihood(folder),
    ]  # fmt: skip
    write_page(docs / "deepgp.md", "\n".join(part for part in parts if part))
    publish(folder, docs, "deepgp")


def _machine(folder: Path) -> str:
    facts = read_json(folder / "machine.json")
    if not facts:
        return ""
    measured = {
        path.stem.replace("-", " "): read_json(path)
        for path in sorted(folder.glob("*.json")) if path.stem in STORED
    }  # fmt: skip
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}; processor time of one "
        "thread. The machine was shared: read ratios, not seconds."
        f"{elsewhere(measured, facts['cpu'])}\n"
    )


def _classify(folder: Path) -> str:
    records = read_json(folder / "classify.json")
    out = []
    for noisy, title in ((False, "Labels as they are"), (True, "A tenth of the labels changed")):
        rows, won = [], 0
        for name in classify.SETS:
            by_model = {model: _of(records, name, model, noisy) for model in classify.MODELS}
            if not by_model["power 1"]:
                continue
            cells = [
                f"{np.mean([r['log_loss'] for r in found]):.4f} / "
                f"{100 * np.mean([r['accuracy'] for r in found]):.2f}" if found else "-"
                for found in by_model.values()
            ]  # fmt: skip
            means = {
                model: np.mean([r["log_loss"] for r in found])
                for model, found in by_model.items() if found
            }  # fmt: skip
            peers = [means[model] for model in classify.PEERS if model in means]
            better = "yes" if means["power 1"] <= min(peers, default=np.inf) else "**no**"
            won += means["power 1"] <= means.get("variational", -np.inf)
            rows.append([name, str(len(by_model["power 1"])), *cells, better])
        if rows:
            header = ["data set", "seeds", *classify.MODELS, "no worse than either logistic"]
            told = f"Power 1 beats the variational one on {won} of {len(rows)} sets.\n\n"
            out.append(
                f"### {title}\n\n" + (told if noisy else "") + markdown_table(header, rows) + "\n"
            )
    if not out:
        return ""
    return (
        "## Classification\n\nLog loss / accuracy in percent, means over the seeds. Logistic "
        "regression is multinomial, on standardised inputs, once with the best of ten penalties "
        "in three folds and once with the one it has unasked.\n\n" + "\n".join(out)
    )


def _of(records: dict[str, Any], name: str, model: str, noisy: bool) -> list[Any]:
    end = f"/{model}" + ("/noisy" if noisy else "")
    return [r for key, r in records.items() if key.startswith(f"{name}/") and key.endswith(end)]


def _speed(folder: Path) -> str:
    records = read_json(folder / "speed.json")
    if not records:
        return ""
    rows = [
        [dtype, seconds_text(r["ours"]), seconds_text(r["gpytorch"]), f"{r['ratio']:.2f}",
         seconds_text(r["first_call"])]
        for dtype, r in records.items()
    ]  # fmt: skip
    header = ["precision", "ours", "GPyTorch", "ratio", "our first call"]
    return (
        "## Speed\n\nProcessor time of a minibatch on one core: kin8nm, 2 layers, 128 inducing "
        "points, 10 samples, 1024 rows.\n\n" + markdown_table(header, rows) + "\n"
    )


def _race(folder: Path) -> str:
    records = read_json(folder / "race.json")
    if not records:
        return ""
    rows = []
    for name, r in records.items():
        ours, theirs = ("-" if t is None else seconds_text(t) for t in r["times"])
        ratio = "never reached" if r["ratio"] is None else f"{r['ratio']:.1f}"
        rows.append([name, f"{r['level']:.3f}", ours, theirs, ratio, f"{r['ours'][-1][1]:.3f}"])
    header = ["data set", "GPyTorch's last log density", "ours reaches it in",
              "GPyTorch reaches it in", "ratio", "our last log density"]  # fmt: skip
    return (
        "## Time to equal quality\n\nProcessor time of the training until the mean log density "
        f"of at most {race.MOST_TEST} test rows (standardised targets) first reaches where "
        "GPyTorch's ends. Both have two layers, "
        f"{race.N_INDUCING} inducing points, {race.BATCH} rows and 10 samples in a minibatch, "
        f"{race.DTYPE}; judging and compiling are not counted. Ours is judged every "
        f"{race.STEPS_APART} minibatches, GPyTorch's {race.SHARES} times.\n\n"
        + markdown_table(header, rows) + "\n"
    )  # fmt: skip


def _mnist(folder: Path) -> str:
    records = read_json(folder / "mnist.json")
    if not records:
        return ""
    rows = [
        [key, f"{100 * r['accuracy']:.2f}", f"{r['log_loss']:.4f}", seconds_text(r["cpu"]),
         seconds_text(r["wall"])]
        for key, r in records.items()
    ]  # fmt: skip
    words = ", ".join(f"{name.split('__')[-1]} {value}" for name, value in mnist.WORDS.items())
    return (
        f"## MNIST\n\nAll 60,000 rows, {words}; published for two layers: 97.94 and 0.073.\n\n"
        + markdown_table(["training", "accuracy", "log loss", "processor time", "wall time"], rows)
        + "\n"
    )


def _compiling(folder: Path) -> str:
    records = read_json(folder / "compile.json")
    rows = [
        [key, *(seconds_text(record[f"{name}_{kind}"]) for name in ("first", "second")
                for kind in ("cpu", "wall"))]
        for key, record in records.items() if key != "epochs"
    ]  # fmt: skip
    if not rows:
        return ""
    header = ["target, precision", "first: processor", "wall", "second process: processor", "wall"]
    epochs = ", ".join(
        f"{seconds_text(value)} for {int(n):,} rows"
        for n, value in records.get("epochs", {}).items()
        if n != "processor"
    )
    return (
        "## Compiling\n\nThe shortest fit (20 minibatches, default shapes, "
        f"{compiling.N_ROWS:,} rows) in a new "
        "process with an empty cache, and in a second one that finds the programs on disk; "
        "starting JAX is part of both, and so are the short fits that choose the power or the "
        "kernel; classes are predicted once.\n\n" + markdown_table(header, rows) + "\n\n"
        + (f"Processor time of an epoch: {epochs}.\n" if epochs else "")
    )  # fmt: skip


def _natural(folder: Path) -> str:
    records = read_json(folder / "natural.json")
    if not records:
        return ""
    rows = [
        [*key.split("/"), *(f"{r[name]:.4f}" for name in ("energy", "best_energy")),
         f"{r['energy'] - r['best_energy']:.4f}",
         *(f"{r[name]:.4f}" for name in ("density", "best_density"))]
        for key, r in records.items()
    ]  # fmt: skip
    header = ["data set", "layers", "minibatches", "energy by Adam", "by the best q", "difference",
              "test log density", "with the best q"]  # fmt: skip
    return (
        "## What natural gradients could gain\n\nGaussian, variational: given what comes into the "
        "last layer (of two layers ten draws a row), its best `q` has a closed form, where a "
        "natural gradient of step one on all rows would go. Energies are per row, of the last "
        "layer. The difference bounds what a better way to move this `q` could gain with the "
        "other parameters as Adam left them: much after few minibatches, little after many, as "
        "the default takes. Layers inside and larger powers, which have no such closed form, are "
        "not measured here.\n\n" + markdown_table(header, rows) + "\n"
    )


def _toys(folder: Path, docs: Path) -> str:
    values = toys.means(folder, "log_density")
    if not values:
        return ""
    rows = [
        [toy, *(f"{values[toy, p]:.3f}" if (toy, p) in values else "-" for p in toys.POWERS)]
        for toy in toys.TOYS
    ]
    table = markdown_table(["toy", *toys.POWERS], rows)
    between = toys.means(folder, "between")
    shares = ", ".join(
        f"{100 * between['branches', power]:.0f}% ({power})"
        for power in toys.POWERS if ("branches", power) in between
    )  # fmt: skip
    return (
        "## Toys\n\nMean test log density per row; the picture shows draws. Two hidden nodes for "
        "one input: the second starts as noise, and can tell the branches apart. Draws at "
        f"x = {toys.FAR} that fall between the branches, nearer to zero than to either: {shares}."
        "\n\n" + table + "\n\n" + toys.picture(folder, docs)
    )  # fmt: skip


def _likelihood(folder: Path) -> str:
    results = read_json(folder / "likelihood.json")
    return likelihood.tables(results) if results else ""
