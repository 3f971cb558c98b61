"""What a fit assumed about a table, in lines for people, and how to say otherwise."""

from __future__ import annotations

from typing import Any

from likelier.tables import TableEncoding

# A wide table would fill the screen; `likelier info` has them all.
MOST_LINES = 40
_DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons"}


def assumptions(path: str, encoding: Any) -> list[str]:
    """Return what was assumed: rows, the form of the file, and columns not simply numbers."""
    if not isinstance(encoding, TableEncoding):
        return []
    lines = [_rows(path, encoding)]
    target, notes = encoding.target, encoding.notes()
    if target is not None and target.style is not None and target.style.describe():
        lines.append(f"  {target.name} (the target): {target.style.describe()}")
    for name in encoding.leaks:
        lines.append(
            f"  {name}: alone nearly determines the target; kept, but --exclude it if it is not "
            "known when predictions are made."
        )
    shown = [f"  {name}: {note}" for name, note in notes.items()]
    if len(shown) > MOST_LINES:
        rest = len(shown) - MOST_LINES
        shown = [*shown[:MOST_LINES], f"  and {rest} columns more (likelier info MODEL lists all)"]
    lines += shown
    if notes:
        example = next(iter(notes))
        lines.append(
            f"To read a column otherwise: --kind '{example}=KIND' with number, category, text, "
            "date, boolean, identifier or constant; --exclude leaves it out."
        )
    return lines


def _rows(path: str, encoding: TableEncoding) -> str:
    n_rows = encoding.n_rows + encoding.n_dropped
    text = f"Read {n_rows:,} row{'s' * (n_rows != 1)} of {path}"
    if encoding.delimiter:
        between = _DELIMITERS.get(encoding.delimiter, repr(encoding.delimiter))
        names = "names in the first line" if encoding.header else "no line of names"
        text += f" ({between} between cells, {names}; --delimiter, --no-header)".replace(
            "--no-header", "--no-header" if encoding.header else "--header"
        )
    if encoding.n_dropped:
        text += f": {encoding.n_rows:,} used, {encoding.n_dropped:,} dropped without a target"
    return f"{text}."
