"""The ``likelier`` command: from a file to a model, to predictions, to scores.

The commands only translate: options to parameters, results to lines of text. What they do is
done by `likelier.fitting.tabular.TabularModel`, and anything heavy is imported by the
command that needs it, so that ``likelier --help`` answers at once.
"""

from __future__ import annotations

from likelier.cli.commands import main

__all__ = ["main"]
