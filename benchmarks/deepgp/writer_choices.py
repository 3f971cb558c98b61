"""The section of the page on what rows held out choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, read_json
from benchmarks.deepgp import choices


def choices_tables(folder: Path) -> str:
    """Two tables: powers for numbers, kernels for classes."""
    records = read_json(folder / "choices.json")
    if not records:
        return ""
    numbers = _table(records, "numbers", choices.NUMBERS, tuple(choices.POWERS))
    classes = _table(records, "classes", choices.CLASSES, (*choices.SCALES, "logistic"))
    return (
        "## What rows held out choose\n\nProblems drawn from known chances, means over the seeds: "
        "what is lost against the truth, per row, on "
        f"{choices.N_TEST:,} new rows. "
        "For numbers the words are the power, for classes the length scales; "
        '"auto" is the default, and the last column says how often it chose what. Logistic '
        "regression has the penalty it has unasked.\n\n" + numbers + "\n\n" + classes + "\n"
    )


def _table(
    records: dict[str, Any], kind: str, problems: dict[str, Any], models: tuple[str, ...]
) -> str:
    rows = []
    for name in problems:
        found = [r for key, r in records.items() if key.startswith(f"{kind}/{name}/")]
        if found:
            values = [np.mean([r[model] for r in found]) for model in models]
            chosen = [str(r["chosen"]) for r in found]
            told = ", ".join(f"{c} ({chosen.count(c)})" for c in sorted(set(chosen)))
            rows.append([name, str(len(found)), *(f"{v:.4f}" for v in values), told])
    return markdown_table([kind, "seeds", *models, "chosen"], rows)
