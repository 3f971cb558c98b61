"""How the page says where the numbers are scikit-learn's, and who is right where they are not."""

from __future__ import annotations

from typing import Any

from benchmarks.common import markdown_table
from benchmarks.nb.agreement import ATTRIBUTES, MEASURES, MOST_FEATURES, MOST_ROWS, TARGET

NAMES = {
    "attributes": "fitted attributes",
    "probabilities": "probabilities",
    "joint": "joint log probabilities",
}
TEXT = """## Agreement with scikit-learn

Largest differences from scikit-learn's over the training rows (at most {rows:,}) of every open
data set with classes: fitted attributes (means relative to the standard deviation, variances
relative), `predict_proba` (absolute), and `predict_joint_log_proba` (relative to one plus its
absolute value). Text is represented by word counts; with several labels the most frequent one is
used. scikit-learn's `GaussianNB` does not support sparse rows, so both get dense ones, of the
{columns:,} columns with the most entries if there are more. A dash: the model is not applicable
(negative counts).
"""


def agreement_targets(results: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """One line of the summary for each thing that is compared."""
    lines = []
    for measure in MEASURES if results else ():
        found = {name: max(_values(entry, measure)) for name, entry in results.items()}
        above = {name: value for name, value in found.items() if value > TARGET}
        rest = max([value for value in found.values() if value <= TARGET], default=0.0)
        shown = f"{rest:.0e}"
        met = "yes"
        if above:
            shown += "".join(f"; {name}: {value:.1e}" for name, value in above.items())
            explained = measure == "joint" and all(_ours_is_right(results[name]) for name in above)
            met = "except for scikit-learn's rounding, see below" if explained else "NO"
        lines.append((f"largest difference, {NAMES[measure]}", f"{TARGET:.0e}", shown, met))
    return lines


def agreement_section(results: dict[str, Any]) -> str:
    """Write the table of differences, and what extended precision says of the large ones."""
    rows = [
        (
            name,
            f"{entry['rows']:,} x {entry['columns']:,}",
            *(
                _cell(entry["difference"][kind], measure)
                for kind in ATTRIBUTES
                for measure in MEASURES
            ),
        )
        for name, entry in results.items()
    ]
    words = ("attributes", "probabilities", "joint")
    header = [f"{kind}, {word}" for kind in ATTRIBUTES for word in words]
    text = TEXT.format(rows=MOST_ROWS, columns=MOST_FEATURES) + "\n"
    return text + markdown_table(("data", "size", *header), rows) + _truth(results)


def _truth(results: dict[str, Any]) -> str:
    """Who is right where the joint log probabilities differ by more than the target."""
    lines = [
        f"On {name} {kind}'s joint log probabilities differ by more than {TARGET:.0e} in "
        f"{truth['above']:,} rows. Computed from the data in extended precision (the "
        f"{truth['rows']} rows that differ most), the error is {truth['ours']:.0e} for ours and "
        f"{truth['sklearn']:.0e} for scikit-learn's: "
        + (
            "the difference is due to its rounding."
            if truth["ours"] <= TARGET
            else "ours is wrong too."
        )
        for name, entry in results.items()
        for kind, truth in entry["truth"].items()
        if truth
    ]
    return "\n\n" + "\n".join(lines) if lines else ""


def _ours_is_right(entry: dict[str, Any]) -> bool:
    """Whether extended precision agrees with ours wherever the two models differ too much."""
    return all(
        entry["truth"].get(kind) is not None and entry["truth"][kind]["ours"] <= TARGET
        for kind, found in entry["difference"].items()
        if found is not None and found["joint"] > TARGET
    )


def _values(entry: dict[str, Any], measure: str) -> list[float]:
    return [found[measure] for found in entry["difference"].values() if found is not None]


def _cell(found: dict[str, float] | None, measure: str) -> str:
    return "-" if found is None else f"{found[measure]:.0e}"
