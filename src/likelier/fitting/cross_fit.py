"""Scores of rows by fits without them, to calibrate classifiers on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from likelier.base import Array, Batch, Engine, Matrix
from likelier.fitting.monitor import Monitor
from likelier.fitting.probabilities import ENOUGH

FOLDS, KEY = 5, 2
ONE_FOLD_ROWS = 2000  # from so many rows on, one fold is enough
MAX_HELD = 20_000  # rows of a fold that are scored


@dataclass(frozen=True)
class ClassWeights:
    """The map to the total weight of every class in a block."""

    n_classes: int

    def __call__(self, batch: Batch) -> Array:
        codes = np.asarray(batch.y).astype(np.intp)
        return np.bincount(codes, batch.weight, minlength=self.n_classes)


def held_out_scores(
    engine: Engine, n_classes: int, monitor: Monitor, score: Callable[[Engine, Matrix, str], Array]
) -> Batch | None:
    """Out-of-fold scores as the rows of a batch, with codes and weights; None where there are none.

    ``score`` gets the rows to learn from, those to score and a name for its stages. A fold that
    holds all rows of a class cannot be left out.
    """
    n_rows = engine.n_rows or 0
    if n_rows < 2 * FOLDS:
        return None
    weigh, found = ClassWeights(n_classes), list[Batch]()
    present = engine.reduce(weigh, np.add) > 0.0
    for number, (rest, held) in enumerate(engine.folds(FOLDS, KEY)):
        if n_rows >= ONE_FOLD_ROWS and _enough(found, n_classes):
            break
        if not np.array_equal(rest.reduce(weigh, np.add) > 0.0, present):
            continue
        stage = f"fold {number}"

        def scored(rest: Engine = rest, held: Engine = held, stage: str = stage) -> Batch:
            batch = held.sample(MAX_HELD)
            return Batch(score(rest, batch.X, stage), batch.y, batch.weight)

        found.append(monitor.stage(stage, scored))
        rest.close()
        held.close()
    if not found:
        return None
    codes = np.concatenate([np.asarray(batch.y) for batch in found])
    weights = [batch.weight for batch in found if batch.weight is not None]
    return Batch(
        np.concatenate([np.asarray(batch.X) for batch in found]), codes,
        np.concatenate(weights) if weights else None,
    )  # fmt: skip


def _enough(found: list[Batch], n_classes: int) -> bool:
    """Whether the rows left out so far will do: one number for several classes, or both."""
    if not found or n_classes > 2:
        return bool(found)
    codes = np.concatenate([np.asarray(batch.y) for batch in found]).astype(np.intp)
    return bool(np.bincount(codes, minlength=2).min() >= ENOUGH)
