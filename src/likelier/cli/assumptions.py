"""The report of what a fit assumed about a table, and of the options that override it."""

from __future__ import annotations

from typing import Any

from likelier.tables import TableEncoding

# A wide table would fill the screen; `likelier info` lists every column.
MAX_LINES = 40
_DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon"}


def assumptions(path: str, encoding: Any) -> list[str]:
    """Return one line on the file, and one for each column that is not plain numbers."""
    if not isinstance(encoding, TableEncoding):
        return []
    lines = [_rows(path, encoding)]
    target, notes = encoding.target, encoding.notes()
    if target is not None and target.style is not None and target.style.describe():
        lines.append(f"  {target.name} (the target): {target.style.describe()}")
    for name in encoding.leaks:
        lines.append(
            f"  {name}: nearly determines the target by itself (possible leak); kept. Use "
            "--exclude if it is unknown at prediction time."
        )
    shown = [f"  {name}: {note}" for name, note in notes.items()]
    if len(shown) > MAX_LINES:
        rest = len(shown) - MAX_LINES
        shown = [*shown[:MAX_LINES], f"  and {rest} more columns (likelier info MODEL lists all)"]
    lines += shown
    if notes:
        example = next(iter(notes))
        lines.append(
            f"To override a column: --kind '{example}=KIND', where KIND is number, category, text, "
            "date, boolean, identifier or constant; --exclude drops it."
        )
    return lines


def _rows(path: str, encoding: TableEncoding) -> str:
    n_rows = encoding.n_rows + encoding.n_dropped
    text = f"Read {n_rows:,} row{'s' * (n_rows != 1)} from {path}"
    if encoding.delimiter:
        delimiter = _DELIMITERS.get(encoding.delimiter, repr(encoding.delimiter))
        header, option = ("header", "--no-header") if encoding.header else ("no header", "--header")
        text += f" (delimiter: {delimiter}, {header}; override: --delimiter, {option})"
    if encoding.n_dropped:
        text += f": {encoding.n_rows:,} used, {encoding.n_dropped:,} dropped (missing target)"
    return f"{text}."
