"""From the measured results to ``linear.md``, ``linear.json`` and the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common import (
    markdown_table,
    measured_elsewhere,
    read_json,
    seconds_text,
    write_json,
)
from benchmarks.linear import pictures, tables
from benchmarks.linear.speed import busy

PARTS = ("speed", "throughput", "threads", "stability", "coverage", "memory", "machine")

INTRO = """# Linear models

`LinearClassifier` and `LinearRegressor`, without tuning a learning rate, against scikit-learn's
SGD at its best rate, LIBLINEAR and Vowpal Wabbit. Written by `make bench-linear`; the
measurements are in [linear.json](linear.json). Ratios are speed-ups over the peer: below 1 the
peer is faster, and these rows are listed under each table.
"""

SPEED = """## Time to within 1% of the optimum

All tools solve the same problem: `(1/N) sum_i sum_k loss(y_ik x_i^T w_k) + (alpha/2)|W|^2`,
one weight vector for two classes and one per class otherwise, no intercept, float64, one thread.
Optima come from a Newton solver in float64 with a certificate (log loss: relative gap below 1e-8;
hinge: duality gap below 3e-4). Data: training parts; {preparations}.

Every peer is tuned beforehand, which is not included in its time:

* **SGD** is the fastest of 38 settings (nine rates a factor of 4 apart, constant or `1/sqrt(t)`,
  averaged or not, and its own schedule), at the smallest `max_iter` that gets within 1%.
  **Search** is the sum over nine rates, each run for only as many passes as the winner needed.
* **LIBLINEAR** is the faster of dual and primal at the loosest tolerance that suffices.
* **Vowpal Wabbit** reads its binary cache with rows shuffled once, and uses its defaults with the
  smallest sufficient number of passes; the fastest of `--l2`, no penalty at all, `--l2`
  without normalised updates, and `--bfgs`. It parses in a separate thread.

Ours is `LinearClassifier(alpha=alpha, fit_intercept=False)` at the smallest `max_iter` that gets
within 1%, including the choice of the rate and excluding compilation. "tol=0.01" is the same fit
with that tolerance; "default" is a fit with default parameters; both with the gap they reach.
Medians of interleaved repeats over three seeds, with quartiles. `>` marks a peer that did not get
within 1% in its time limit, and the resulting lower bound. The limit is at least eight times our
time; bounds below 8x are from earlier, shorter searches.
"""

BUSY = """The machine was busy with other work during {loaded} of {total} cases (wall time more
than 15% above processor time). For these the tables show processor time, which for one thread
equals wall time on an idle machine; for Vowpal Wabbit, with two threads, the smaller of the two.
"""


def write(results: Path, docs: Path) -> None:
    """Write the page from whatever parts have been measured."""
    measured = {part: read_json(results / f"{part}.json") for part in PARTS}
    docs.mkdir(parents=True, exist_ok=True)
    write_json(docs / "linear.json", measured)
    sections = [INTRO, _machine(measured["machine"]) + _elsewhere(measured), _targets(measured)]
    writers = {
        "speed": _speed,
        "throughput": _throughput,
        "threads": _threads,
        "stability": _stability,
        "coverage": _coverage,
        "memory": _memory,
    }
    for part, section in writers.items():
        if measured[part]:
            sections.append(section(measured[part], docs))
    (docs / "linear.md").write_text("\n".join(text.strip() + "\n" for text in sections))


def _machine(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, "
        f"{facts['system']}, Python {facts['python']}; {versions}."
    )


def _elsewhere(measured: dict[str, Any]) -> str:
    """Name what was measured on another processor than the last run's."""
    parts = {part: measured[part] for part in ("speed", "throughput", "threads")}
    single = ("stability", "coverage", "memory")
    parts |= {part: {part: measured[part]} for part in single if measured[part]}
    others = measured_elsewhere(parts, measured["machine"]["cpu"])
    told = "".join(f" Measured on {text}." for text in others)
    same = "All tools of a row ran on the same processor, except bounds (`>`) of a stored search."
    return told and f"\n\n{same}{told}"


def _targets(measured: dict[str, Any]) -> str:
    rows = tables.target_rows(measured)
    return "## In short\n\n" + markdown_table(("what", "target", "measured", "met"), rows)


def _speed(results: dict[str, Any], docs: Path) -> str:
    parts = [SPEED.format(preparations=_preparations(results.values()))]
    loaded = sum(busy(record) for record in results.values())
    if loaded:
        parts.append(BUSY.format(loaded=loaded, total=len(results)))
    for loss, title in (("log_loss", "Log loss"), ("hinge", "Hinge")):
        records = [record for record in results.values() if record["loss"] == loss]
        if not records:
            continue
        records = tables.in_order(records)
        name = f"linear-speed-{loss.replace('_', '-')}.png"
        pictures.speed_picture(records, docs / name)
        parts += [
            f"### {title}\n",
            tables.missing_text(records, loss) + "\n",
            f"![Times faster than each peer, {title.lower()}]({name})\n",
            markdown_table(tables.RATIO_HEADER, tables.ratio_rows(records)),
            "",
            tables.losses_text(records),
            "\nTimes and settings:\n",
            markdown_table(tables.TIME_HEADER, tables.time_rows(records)),
            "",
        ]
    return "\n".join(parts)


def _preparations(records: Any) -> str:
    seen: dict[str, str] = {}
    for record in records:
        seen[record["set"]] = f"{record['set']} ({record['preparation']}, {record['layout']})"
    return "; ".join(seen.values())


def _throughput(results: dict[str, Any], docs: Path) -> str:
    header = (
        "data",
        "layout",
        "our fit",
        "scikit-learn's fit",
        "ratio",
        "ratio per pass",
        "values/s",
    )
    rows = [
        (
            name,
            entry["layout"],
            seconds_text(entry["timings"]["ours1"]["seconds"]),
            seconds_text(entry["timings"]["sgd1"]["seconds"]),
            f"{entry['fit_ratio']:.2f}x",
            f"{entry['pass_ratio']:.2f}x",
            f"{entry['values_per_second'] / 1e6:.0f} M",
        )
        for name, entry in results.items()
    ]
    text = """## Throughput of one pass

An implicit pass solves a scalar equation per row; an explicit one only evaluates a derivative.
One fit with `solver=SGD(learning_rate="constant")` and `max_iter=1`, not averaged, against
`SGDClassifier` with the same parameters (several classes are merged into two). "Per pass" is the
marginal cost between fits of one and six passes (processor time of the fastest runs), without
fixed costs.

"""
    return text + markdown_table(header, rows)


def _threads(results: dict[str, Any], docs: Path) -> str:
    header = (
        "data",
        "fit",
        "route",
        "one thread",
        "two threads",
        "speed-up",
        "objective",
        "same bits twice",
    )
    rows = [
        (
            name.split("/")[0],
            entry["kind"],
            entry["route"],
            seconds_text(entry["timings"]["one"]["seconds"]),
            seconds_text(entry["timings"]["two"]["seconds"]),
            f"{entry['speedup']:.2f}x",
            f"{entry['difference']:+.1e}",
            "yes" if entry["deterministic"] else "NO",
        )
        for name, entry in results.items()
    ]
    text = """## Two threads

Wall time of a fit (`alpha = 1/N`, log loss) with `n_jobs=1`, and with `n_jobs=2` until its
objective is within 0.1% of the first: a fit stopped within 1% of the optimum, and one with
its default tolerance. "Objective" is the relative difference of the two.

"""
    return text + markdown_table(header, rows)


def _stability(results: dict[str, Any], docs: Path) -> str:
    pictures.stability_picture(results, docs / "linear-stability.png")
    header = ("features", "update", "finite", "no worse than the zero model", "best loss")
    return "\n".join(
        [
            "## Stability\n",
            f"{results['rows']:,} rows of {results['set']}, {results['passes']} passes at a fixed "
            "rate over nine decades, the worst of three seeds. Right panel: "
            '`solver="auto"` without a penalty while the features are rescaled.\n',
            "![Loss against rate and against feature scale](linear-stability.png)\n",
            markdown_table(header, tables.stability_rows(results)),
            "",
            f"With `auto` the loss stays within {results['auto']['worst_excess']:.2%} of its best "
            "over all scales, and never exceeds that of the zero model "
            f"({results['auto']['zero_model']:.3f}): worst "
            f"{max(results['auto']['common'] + results['auto']['separate']):.4f}.",
        ]
    )


def _coverage(results: dict[str, Any], docs: Path) -> str:
    pictures.coverage_picture(results, docs / "linear-coverage.png")
    refused = results["refusals"]
    header = ("model", "d", "features", "coverage", "worst coefficient", "refused")
    return "\n".join(
        [
            "## Coverage of 95% intervals\n",
            f"{results['replications']:,} replications of {results['rows']:,} rows, `alpha=0`; "
            "features correlated, ill-scaled ones multiplied by factors from 1e-3 to 1e3, the "
            "linear model's noise grows with its first feature. The error is the standard error "
            "over replications, for a single coefficient the binomial one.\n",
            "![Coverage per setting](linear-coverage.png)\n",
            markdown_table(header, tables.coverage_rows(results)),
            "",
            f"Fits for which intervals must be refused, and were: {refused['cut_short']} of "
            f"{refused['of']} cut short after one iteration, {refused['separable']} of "
            f"{refused['of']} on separable classes, where no finite optimum exists.",
        ]
    )


def _memory(results: dict[str, Any], docs: Path) -> str:
    picture = ""
    if len([entry for entry in results["runs"] if entry["trained"]]) > 1:
        pictures.memory_picture(results, docs / "linear-memory.png")
        picture = "![Peak memory and file size against rows](linear-memory.png)\n"
    header = ("file / allowed", "file", "rows", "peak above start", "seconds", "iterations")
    return "\n".join(
        [
            "## A file ten times larger than the memory allowed\n",
            f"`fit(path, target)` on a CSV file in a process that has loaded its libraries and may "
            f"then allocate at most {results['allowed_mb']:.0f} MB more (`RLIMIT_DATA`, which "
            "counts every private writable page; a larger allocation was verified to fail). "
            "The peak is the kernel's high-water mark of resident memory.\n",
            picture,
            markdown_table(header, tables.memory_rows(results)),
        ]
    )
