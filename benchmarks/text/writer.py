"""From the measured results to ``text.md``, ``text.json`` and the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from benchmarks.common import markdown_table, read_json, seconds_text, write_json
from benchmarks.linear.pictures import BLUE, GREEN, GREY, ORANGE, RED, STYLE

PARTS = ("speed", "pipelines", "memory", "machine")
MARKS = ((BLUE, "o"), (GREEN, "^"), (ORANGE, "s"), (RED, "D"), (GREY, "v"))
INTRO = """# Text features

`TextFeatures` against scikit-learn's `TfidfVectorizer`, `CountVectorizer` and `HashingVectorizer`
with the same options. Written by `make bench-text`; the measurements are in
[text.json](text.json). Ratios are speed-ups over scikit-learn in processor time of one thread,
medians over interleaved repeats; below 1 scikit-learn is faster.
"""
SPEED = """## fit_transform

Compilation is excluded, since it happens once and is cached. "Difference" is the largest absolute
difference between the entries of the two matrices, whose columns have the same names and order. For
pairs and characters: the first {rows} documents.
"""
PIPELINES = """## Whole pipelines

20newsgroups, published split, full messages: time from the training documents to the predictions of
all test documents. Both sides minimise the same objective (`alpha = 1 / (C N)`; for
`LinearSVC`, which penalises the intercept, ours gets a column of ones instead), each with its own
default tolerance: scikit-learn's `LogisticRegression` and `LinearSVC` with `C=1`,
`SGDClassifier` with `alpha=1e-4`. "All defaults" uses the default penalty of each side. Accuracy is
on the test part, mean over seeds.
"""
ACCURACY = """
With the same objective, differences are due only to the optimisation error. "Converged" is the
accuracy of scikit-learn at the minimum (tolerance 1e-8; for the log loss of `SGDClassifier`,
which stops early, from one-vs-rest `LogisticRegression`). The other columns count the test
documents that only one of the two predicts correctly (first seed), with the two-sided p-value of
McNemar's exact test; above 0.05 the difference is not significant.
"""
MEMORY = """## Memory of a stream

`fit` on an iterator over the documents of {set}, repeated: peak resident memory above that of
the process after a small fit. The vocabulary is complete after the first repetition.
"""


def write(results: Path, docs: Path) -> None:
    """Write the page from whatever parts have been measured."""
    measured = {part: read_json(results / f"{part}.json") for part in PARTS}
    docs.mkdir(parents=True, exist_ok=True)
    write_json(docs / "text.json", measured)
    sections = [INTRO, _machine(measured["machine"])]
    writers = {"speed": _speed, "pipelines": _pipelines, "memory": _memory}
    sections += [
        section(measured[part], docs) for part, section in writers.items() if measured[part]
    ]
    (docs / "text.md").write_text("\n".join(text.strip() + "\n" for text in sections))


def _machine(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, "
        f"{facts['system']}, Python {facts['python']}; {versions}."
    )


def _speed(results: dict[str, Any], docs: Path) -> str:
    rows = [
        (
            entry["set"],
            entry["case"],
            f"{entry['megabytes']:.1f} MB",
            f"{entry['columns']:,}",
            seconds_text(entry["timings"]["ours"]["cpu_seconds"]),
            seconds_text(entry["timings"]["sklearn"]["cpu_seconds"]),
            f"{entry['ratio']:.1f}x ({entry['quartiles'][0]:.1f}-{entry['quartiles'][1]:.1f})",
            f"{entry['target']:g}x",
            "yes" if entry["ratio"] >= entry["target"] else "**no**",
            f"{entry['difference']:.0e}",
        )
        for entry in results.values()
    ]
    _speed_picture(list(results.values()), docs / "text-speed.png")
    header = ("corpus", "case", "text", "columns", "ours", "scikit-learn", "ratio (quartiles)")
    large = max(e["documents"] for e in results.values() if "characters" in e["case"])
    parts = [SPEED.format(rows=f"{large:,}"), "![Times faster](text-speed.png)\n"]
    parts.append(markdown_table((*header, "target", "met", "difference"), rows))
    return "\n".join(parts)


def _speed_picture(entries: list[dict[str, Any]], path: Path) -> None:
    sets = list(dict.fromkeys(entry["set"] for entry in entries))
    cases = list(dict.fromkeys(entry["case"] for entry in entries))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 0.5 * len(sets) + 1.8))
        for (colour, mark), case in zip(MARKS, cases, strict=False):
            chosen = [entry for entry in entries if entry["case"] == case]
            heights = [-sets.index(entry["set"]) for entry in chosen]
            ratios = [entry["ratio"] for entry in chosen]
            axes.plot(ratios, heights, mark, color=colour, ms=8, label=case)
        axes.axvline(1, color="black", lw=1)
        axes.set_yticks([-k for k in range(len(sets))], sets)
        axes.set_xlim(left=0)
        axes.set_xlabel("times faster than scikit-learn (line: equally fast)")
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, frameon=False)
        figure.savefig(path)
        plt.close(figure)


def _pipelines(results: dict[str, Any], docs: Path) -> str:
    rows = [
        (
            name,
            seconds_text(entry["timings"]["ours"]["cpu_seconds"]),
            seconds_text(entry["timings"]["sklearn"]["cpu_seconds"]),
            f"{entry['ratio']:.1f}x",
            "yes" if entry["ratio"] >= 4 else "**no**",
            f"{entry['accuracy']['ours']:.4f}",
            f"{entry['accuracy']['sklearn']:.4f}",
            "yes" if entry["accuracy"]["ours"] >= entry["accuracy"]["sklearn"] else "**no**",
        )
        for name, entry in results.items()
    ]
    header = ("model", "ours", "scikit-learn", "ratio", "4x", "accuracy", "scikit-learn's")
    table = markdown_table((*header, "not below"), rows)
    return "\n".join([PIPELINES, table, ACCURACY, _accuracy(results)])


def _accuracy(results: dict[str, Any]) -> str:
    """The pairs whose common objective scikit-learn can also solve to the end."""
    rows = [
        (
            name,
            f"{entry['accuracy']['ours']:.4f}",
            f"{entry['accuracy']['sklearn']:.4f}",
            _pair(entry["paired"]),
            f"{entry['accuracy']['converged']:.4f}",
            _pair(entry["paired_converged"]),
        )
        for name, entry in results.items()
        if "paired_converged" in entry
    ]
    header = ("model", "ours", "scikit-learn", "only ours / only theirs right", "converged")
    return markdown_table((*header, "only ours / only converged right"), rows)


def _pair(found: dict[str, Any]) -> str:
    return f"{found['only_ours']} / {found['only_theirs']} (p = {found['p']:.2g})"


def _memory(results: dict[str, Any], docs: Path) -> str:
    rows = [
        (
            f"{entry['mode']}, {entry['factor']} times",
            f"{entry['megabytes']:.0f} MB",
            f"{entry['growth_mb']:.0f} MB",
        )
        for entry in results["runs"]
    ]
    _memory_picture(results["runs"], docs / "text-memory.png")
    picture = "![Peak memory against text](text-memory.png)\n"
    table = markdown_table(("stream", "text", "peak above start"), rows)
    return "\n".join([MEMORY.format(set=results["set"]), picture, table])


def _memory_picture(runs: list[dict[str, Any]], path: Path) -> None:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6, 3.4))
        sizes = sorted({entry["megabytes"] for entry in runs})
        axes.plot(sizes, sizes, "s--", color=GREY, label="text")
        for (colour, mark), mode in zip(MARKS, ("vocabulary", "hashed"), strict=False):
            chosen = [entry for entry in runs if entry["mode"] == mode]
            peaks = [max(entry["growth_mb"], 0.5) for entry in chosen]
            axes.plot([e["megabytes"] for e in chosen], peaks, mark + "-", color=colour, label=mode)
        axes.set(xscale="log", yscale="log", xlabel="MB of text", ylabel="MB above start")
        axes.legend(frameon=False)
        figure.savefig(path)
        plt.close(figure)
