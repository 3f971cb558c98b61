"""The section of the page about numbers predicted."""

from __future__ import annotations

from typing import Any

from benchmarks.common import markdown_table
from benchmarks.svm.closeness import NOT_RUN
from benchmarks.svm.summary import converged

Record = dict[str, Any]


def how_close(cases: dict[str, Record]) -> str:
    """How far numbers predicted lie from LIBSVM's, from the optimum and from its converged ones."""
    if not cases:
        return ""
    records = list(cases.values())
    return "\n\n".join(
        ["## How close predictions are", _between(records), _what_it_means(records), _all(records)]
    )


def _between(records: list[Record]) -> str:
    """Both tools at the same tolerance, the worst of every set."""
    rows = []
    for name in dict.fromkeys(r["set"] for r in records):
        own = [r for r in records if r["set"] == name]
        coarse = [r for r in own if "between_coarse" in r]
        fine = [r for r in own if converged(r)]
        rows.append([name, *_worst(coarse, "between_coarse"), *_worst(fine, "between_fine")])
    header = ("problem", "`tol=1e-3`", "in units of the target", "`tol=1e-6`",
              "in units of the target")  # fmt: skip
    return (
        "Two solutions within the tolerance may predict different numbers (labels are compared in "
        "the table above). Largest difference between likelier and LIBSVM over all rows and values "
        "of C, in standard deviations of the target and in its own units; at `tol=1e-6` where "
        "LIBSVM converges:\n\n" + markdown_table(header, rows)
    )


def _worst(records: list[Record], name: str) -> tuple[str, str]:
    if not records:
        return "-", "-"
    value = max(records, key=lambda r: r[name])
    return f"{value[name]:.1e}", f"{value[name] * value['unit']:.1e}"


def _what_it_means(records: list[Record]) -> str:
    """Who is to blame for the difference, and what was not run."""
    both = [r for r in records if "their_to_converged" in r]
    farther = [r for r in both if r["their_to_converged"] > 1.01 * r["to_converged"]]
    closer = [_name(r) for r in both if r not in farther]
    text = (
        "At `tol=1e-3` LIBSVM is farther from its own answer at `tol=1e-6` than likelier (at "
        f"`tol=1e-3`, too) is in {len(farther)} of {len(both)} cases"
    )
    text += f"; not so: {', '.join(closer)}." if closer else "."
    ended = [r for r in records if r["run"] and "between_fine" not in r]
    if ended:
        spent = min(r["their_fine_seconds"] for r in ended)
        text += (
            f" LIBSVM at `tol=1e-6` was ended after {spent:.0f} s of processor time: "
            f"{', '.join(map(_name, ended))}."
        )
    sets = {r["set"] for r in records}
    missing = [f"{name} at C={C:g}" for name, C in sorted(NOT_RUN) if name in sets]
    if missing:
        text += (
            f" LIBSVM was not run for {', '.join(missing)}: even at `tol=1e-3` it does not end "
            "within minutes (see the table of single fits)."
        )
    return text


def _name(r: Record) -> str:
    return f"{r['set']} at C={r['C']:g}"


def _all(records: list[Record]) -> str:
    names = ("coarse", "their_coarse", "between_coarse", "to_converged", "their_to_converged",
             "between_fine", "their_gap")  # fmt: skip
    rows = [[r["set"], f"{r['C']:g}", *(f"{r[n]:.1e}" if n in r else "-" for n in names)]
            for r in records]  # fmt: skip
    header = ("problem", "C", "likelier to optimum", "LIBSVM to optimum", "between the two",
              "likelier to LIBSVM converged", "LIBSVM to LIBSVM converged",
              "between the two, `tol=1e-6`", "LIBSVM's gap there")  # fmt: skip
    return (
        "In standard deviations of the target; the optimum is ours at `tol=1e-8`, LIBSVM converged "
        "is its answer at `tol=1e-6` (where its gap there is well above that, it has ended before "
        "it had converged):\n\n" + markdown_table(header, rows)
    )
