"""Progress bar with the estimated remaining time, shown only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SAMPLE_BYTES = 1 << 18
_COMPRESSED = (".gz", ".bz2", ".xz")


class Bar:
    """A progress bar that is not shown, because there is no terminal."""

    def advance(self, rows: int) -> None:
        """Add a number of finished rows."""

    def show(self, description: str, done: float, total: float | None) -> None:
        """Set the description and the progress so far."""


class TerminalBar(Bar):
    """A progress bar on a terminal."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, rows: int) -> None:
        self._progress.advance(self._task, rows)

    def show(self, description: str, done: float, total: float | None) -> None:
        self._progress.update(self._task, description=description, completed=done, total=total)


class ProgressCallback:
    """A scikit-learn callback that shows the progress of a fit.

    In memory the bar counts iterations. A pass over a file takes long, so there the bar counts
    rows and restarts with every pass.
    """

    def __init__(self, bar: Bar, rows: float | None) -> None:
        self._bar = bar
        self._rows = rows
        self._in_this_pass = 0
        self._passes = 0

    def rows_read(self, rows: int, first: bool) -> None:
        """Count rows read from the file; ``first`` marks the start of a pass."""
        if first:
            self._in_this_pass = 0
            self._passes += 1
        self._in_this_pass += rows
        total = None if self._rows is None else max(self._rows, self._in_this_pass)
        self._bar.show(f"Pass {self._passes} over the file", self._in_this_pass, total)

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def on_fit_task_begin(self, estimator: Any, context: Any, **_: Any) -> None:
        """Do nothing."""

    def on_fit_task_end(self, estimator: Any, context: Any, **_: Any) -> bool:
        """Show the finished iteration; never stop the fit."""
        if context.parent is not None:
            done = context.task_id + 1
            self._bar.show(f"Iteration {done}", done, context.parent.max_subtasks)
        return False


@contextmanager
def progress_bar(description: str, total: float | None, quiet: bool) -> Iterator[Bar]:
    """Show a bar on stderr during the ``with`` block, and remove it at the end."""
    if quiet or not sys.stderr.isatty():
        yield Bar()
        return
    from rich import progress as parts  # which takes longer to load than to predict a small file
    from rich.console import Console

    columns = (
        parts.TextColumn("{task.description}", markup=False),
        parts.BarColumn(),
        parts.TaskProgressColumn(),
        parts.TimeElapsedColumn(),
        parts.TextColumn("left"),
        parts.TimeRemainingColumn(),
    )
    with parts.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield TerminalBar(progress, progress.add_task(description, total=total))


def estimate_rows(path: str) -> float | None:
    """Estimate the number of rows of a file for a bar; None if that would take a pass."""
    try:
        with open(path, "rb") as file:
            sample = file.read(_SAMPLE_BYTES)
        if sample.startswith(b"PAR1"):
            import pyarrow.parquet

            return float(pyarrow.parquet.read_metadata(path).num_rows)
        lines = sample.count(b"\n")
        if lines == 0 or Path(path).suffix.lower() in _COMPRESSED:
            return None
        return lines * Path(path).stat().st_size / len(sample)
    except Exception:  # the reader reports what is wrong with the file
        return None
