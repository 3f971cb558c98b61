"""The ``likelier`` command: from a file to a model, to predictions, to scores.

The commands only translate options to parameters and results to text; the work is done by
an estimator (``fit``) or a `likelier.predictor.Predictor`. Imports are deferred to the command that
needs them, so that all but ``fit`` start fast.
"""

from __future__ import annotations

from likelier.cli.commands import main

__all__ = ["main"]
