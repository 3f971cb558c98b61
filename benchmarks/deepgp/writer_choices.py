"""The section of the page on what rows held out choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, read_json
from benchmarks.deepgp import choices

HELD = ("learned", "auto", "scikit-learn")


def choices_tables(folder: Path) -> str:
    """Three tables: powers for numbers, kernels for few of them and for classes."""
    records = read_json(folder / "choices.json")
    if not records:
        return ""
    numbers = _table(records, "numbers", choices.NUMBERS, tuple(choices.POWERS))
    few = _table(records, "few", choices.FEW, (*choices.SCALES, "scikit-learn"), HELD)
    classes = _table(records, "classes", choices.CLASSES, (*choices.SCALES, "logistic"))
    return (
        "## What rows held out choose\n\nProblems drawn from known chances, means over the seeds: "
        "what is lost against the truth, per row, on "
        f"{choices.N_TEST:,} new rows. "
        "For numbers the words are the power, for few of them and for classes the length scales; "
        '"auto" is the default, and the last column says how often it chose what. Logistic '
        "regression has the penalty it has unasked; scikit-learn's Gaussian process a length scale "
        "for every input, noise and two starts. Intervals are meant to hold "
        f"{choices.COVERAGE:.0%} of the targets.\n\n"
        + "\n\n".join(part for part in (numbers, few, classes) if part)
        + "\n"
    )


def _table(
    records: dict[str, Any],
    kind: str,
    problems: dict[str, Any],
    models: tuple[str, ...],
    held: tuple[str, ...] = (),
) -> str:
    """One table; ``held`` are models whose intervals are told of."""
    rows = []
    for name in problems:
        found = [r for key, r in records.items() if key.startswith(f"{kind}/{name}/")]
        if found:
            values = [np.mean([r[model] for r in found]) for model in models]
            chosen = [str(r["chosen"]) for r in found]
            told = ", ".join(f"{c} ({chosen.count(c)})" for c in sorted(set(chosen)))
            holds = [np.mean([r[f"{model} holds"] for r in found]) for model in held]
            shares = [f"{v:.0%}" for v in holds]
            rows.append([name, str(len(found)), *(f"{v:.4f}" for v in values), told, *shares])
    columns = [kind, "seeds", *models, "chosen", *(f"{model} holds" for model in held)]
    return markdown_table(columns, rows) if rows else ""
