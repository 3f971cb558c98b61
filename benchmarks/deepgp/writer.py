"""The page of the deep Gaussian processes: every number on it comes from stored measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, publish, read_json, seconds_text, write_page
from benchmarks.deepgp import classify, likelihood, mnist, race, regress, toys

TITLE = (
    "# Deep Gaussian processes\n\nWritten by `make bench-deepgp`; no number here is typed by "
    "hand, except those of the columns that say they are published. Measurements are in "
    "[deepgp.json](deepgp.json), but for sections that were measured before these were kept.\n"
)
# Figures to reach; the best published of any depth or method.
AIMS = {
    "boston": -2.41, "energy": -0.72, "kin8nm": 1.33, "naval": 6.36, "power-plant": -2.79,
    "protein-casp": -2.80, "winequality-red": -0.93,
}  # fmt: skip
LEAST_SPLITS = 5
LOWEST_SHOWN = -1.0  # in the picture; what lies lower is drawn there


def write(folder: Path, docs: Path) -> None:
    """Write deepgp.md and its picture from what has been measured so far."""
    docs.mkdir(parents=True, exist_ok=True)
    parts = [
        TITLE, _machine(folder), _regress(folder, docs), _classify(folder), _mnist(folder),
        _speed(folder), _race(folder), _compiling(folder), _natural(folder), _toys(folder, docs),
        _likelihood(folder),
    ]  # fmt: skip
    write_page(docs / "deepgp.md", "\n".join(part for part in parts if part))
    publish(folder, docs, "deepgp")


def _machine(folder: Path) -> str:
    facts = read_json(folder / "machine.json")
    if not facts:
        return ""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}; processor time of one "
        "thread. The machine was shared: read ratios, not seconds.\n"
    )


def _regress(folder: Path, docs: Path) -> str:
    found = {model: regress.means(folder, model) for model in regress.MODELS}
    if not found["ours"]:
        return ""
    models = [model for model in regress.MODELS if found[model]]
    header = ["data set", "splits", *models, "published (1 / 2 / 3 layers)", "aim",
              "short of it by", "RMSE of ours", "CPU of ours", "least wall time"]  # fmt: skip
    rows = []
    for name in regress.SETS:
        if name not in found["ours"]:
            continue
        mean, error, n, cpu = found["ours"][name]
        short = AIMS[name] - (mean + (0.0 if np.isnan(error) else error))
        rows.append([
            name, str(n), *(_value(found[model].get(name), n) for model in models),
            " / ".join(f"{v:.3g}" for v in regress.PUBLISHED[name]), f"{AIMS[name]:.2f}",
            f"{short:.3f}" if short > 0.0 else "-", *_of_ours(folder, name), seconds_text(cpu),
            seconds_text(regress.least_wall(folder, name)),
        ])  # fmt: skip
    _gap_picture(found, docs)
    return (
        "## Regression\n\nMean test log density per row in the units of the target, plus or minus "
        "one standard error over the published splits; one configuration for all sets, single "
        "precision. The noise variance cannot fall below 1e-5 of the targets' variance. \"Short of "
        'it" counts from one standard error above the mean. A number in brackets says how many '
        "splits a cell rests on where they are fewer than ours; the deep process of GPyTorch has "
        "as many inducing points, rows and samples in a minibatch and as much processor time as "
        "ours, and the exact process at most "
        f"{regress.EXACT_ROWS} rows. What power to use by default (1, and 0.5 below 3000 rows) was "
        "chosen by looking at split 0 of these same sets, so that split flatters ours. Power 1 "
        "favours the density over the squared error, which is given beside it. The least wall time "
        "is of two cores, with compiling where the program was not yet on disk."
        + _provisional(found["ours"]) + "\n\n" + markdown_table(header, rows) + "\n\n"
        + _paired(folder)
        + "![log density relative to the figure to reach](deepgp-regression.png)\n"
    )  # fmt: skip


def _value(record: Any, n_ours: int) -> str:
    if record is None:
        return "-"
    mean, error, n, _ = record
    text = f"{mean:.3f}" if np.isnan(error) else f"{mean:.3f} ± {error:.3f}"
    return text if n == n_ours else f"{text} ({n})"


def _of_ours(folder: Path, name: str) -> list[str]:
    records = read_json(folder / "regress-ours.json")
    errors = [r["rmse"] for key, r in records.items() if key.split("/")[0] == name]
    return [f"{np.mean(errors):.3g}"]


def _provisional(ours: dict[str, Any]) -> str:
    """Say which rows rest on fewer splits than are worth a conclusion."""
    few = [name for name, record in ours.items() if record[2] < LEAST_SPLITS]
    if not few:
        return ""
    return f" Fewer than {LEAST_SPLITS} splits, so provisional: {', '.join(few)}."


def _paired(folder: Path) -> str:
    """Ours against each peer on the splits that both have."""
    ours, lines = read_json(folder / "regress-ours.json"), []
    for peer, label in (("gpytorch", "GPyTorch's deep process"), ("exact", "the exact process")):
        theirs = read_json(folder / f"regress-{peer}.json")
        both = [key for key in ours if key in theirs]
        gains = {
            name: np.mean([
                ours[key]["log_density"] - theirs[key]["log_density"]
                for key in both if key.split("/")[0] == name
            ])
            for name in dict.fromkeys(key.split("/")[0] for key in both)
        }  # fmt: skip
        if gains:
            told = ", ".join(f"{name} {gain:+.3f}" for name, gain in gains.items())
            better = sum(gain > 0.0 for gain in gains.values())
            lines.append(
                f"On the splits that both have, ours is better than {label} on {better} of "
                f"{len(gains)} sets: {told}.\n"
            )
    return "\n".join(lines) + "\n" if lines else ""


def _gap_picture(found: dict[str, Any], docs: Path) -> None:
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(8, 3.2))
    shown = [model for model in ("ours", "gpytorch", "exact") if found[model]]
    for offset, model in enumerate(shown):
        names = [name for name in regress.SETS if name in found[model]]
        place = np.array([regress.SETS.index(name) for name in names]) + 0.15 * offset
        gap = [found[model][name][0] - AIMS[name] for name in names]
        error = [np.nan_to_num(found[model][name][1]) for name in names]
        ax.errorbar(place, np.maximum(gap, LOWEST_SHOWN), error, fmt="o", label=model)
    ax.axhline(0.0, color="0.5", linewidth=1)
    ax.set_xticks(range(len(regress.SETS)), regress.SETS, fontsize=8)
    ax.set_ylabel("log density minus aim\n(drawn no lower than -1)")
    ax.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(docs / "deepgp-regression.png", dpi=120)
    plt.close(figure)


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
    words = ", ".join(f"{name} {value}" for name, value in mnist.WORDS.items())
    return (
        f"## MNIST\n\nAll 60,000 rows, {words}; published for two layers: 97.94 and 0.073.\n\n"
        + markdown_table(["training", "accuracy", "log loss", "processor time", "wall time"], rows)
        + "\n"
    )


def _compiling(folder: Path) -> str:
    records = read_json(folder / "compile.json")
    rows = [
        [dtype, *(seconds_text(records[dtype][f"{name}_{kind}"]) for name in ("first", "second")
                  for kind in ("cpu", "wall"))]
        for dtype in ("float32", "float64") if dtype in records
    ]  # fmt: skip
    if not rows:
        return ""
    header = ["precision", "first: processor", "wall", "second process: processor", "wall"]
    epochs = ", ".join(
        f"{seconds_text(value)} for {int(n):,} rows"
        for n, value in records.get("epochs", {}).items()
    )
    return (
        "## Compiling\n\nThe shortest fit (20 minibatches, default shapes) in a new process with "
        "an empty cache, and in a second one that finds the program on disk; starting JAX is "
        "part of both.\n\n" + markdown_table(header, rows) + "\n\n"
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
