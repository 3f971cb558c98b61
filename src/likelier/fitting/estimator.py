"""What goes around a fit: callbacks, a checkpoint, and a model that a failure leaves as it was."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from likelier.files.journal import Journal
from likelier.fitting.dataset import is_stream
from likelier.fitting.fingerprint import fingerprint
from likelier.fitting.monitor import Callbacks, Monitor
from likelier.fitting.rollback import unchanged_on_failure


@contextmanager
def fitting(
    estimator: Any, X: Any, y: Any, sample_weight: Any, unless_new: str | None = None
) -> Iterator[Monitor]:
    """Give the monitor of a fit, and see to what begins and ends with it.

    A failed fit leaves the estimator as it was (``unless_new`` as in `unchanged_on_failure`); a
    checkpoint is removed once the fit has succeeded.
    """
    journal = open_journal(estimator, X, y, sample_weight)
    # Rows that were read from a stream are gone: callbacks are given none.
    callbacks = Callbacks(estimator, *((None, None) if is_stream(X, y) else (X, y)))
    verbose = bool(getattr(estimator, "verbose", False))
    with unchanged_on_failure(estimator, unless_new=unless_new):
        yield Monitor(
            verbose=verbose, callbacks=callbacks, journal=journal,
            time_budget=getattr(estimator, "time_budget", None),
        )  # fmt: skip
    if journal is not None:
        journal.finish()
    callbacks.end()


def open_journal(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Journal | None:
    """The journal of a fit in the folder ``checkpoint`` of the estimator, if it names one."""
    folder = estimator.checkpoint
    if folder is None:
        return None
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"checkpoint must be the path of a folder or None, got {folder!r}")
    journal = Journal.open(folder, *fingerprint(estimator, X, y, sample_weight))
    for notice in (journal.problem, journal.nearest):
        if notice:
            warnings.warn(notice, UserWarning, stacklevel=4)
    return journal
