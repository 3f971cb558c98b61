"""Problems of the output weights on features that are at hand."""

from __future__ import annotations

from likelier.engines import LocalEngine
from likelier.kernel_machine.search import BLOCK_ROWS
from likelier.kernel_machine.weights import WeightProblem


def weight_problem(Phi, targets, weight, loss, prior):
    """Problem of the weights on these features, in their own precision."""
    engine = LocalEngine(Phi, targets, weight, block_rows=BLOCK_ROWS)
    return WeightProblem(engine, engine.map_rows(lambda batch: batch.X), loss, prior)
