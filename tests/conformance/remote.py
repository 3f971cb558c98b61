"""A pretend cluster: passes over blocks as an engine would make them whose rows live elsewhere.

`elsewhere` replaces the passes of the local engine, whoever made it. The map of a pass is pickled
and so is each block, both are copies where they are used, the blocks are worked on in an order of
their own, perhaps in another process, and only results come back. What writes into the arrays of
its caller, counts on blocks to come in order, or takes the first block for all rows shows here.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import cloudpickle
import numpy as np
from threadpoolctl import threadpool_limits

from likelier.engines import LocalEngine
from likelier.engines.blocks import BlockEngine
from likelier.engines.row_values import RowCache

CACHE = RowCache()  # of this process, as every worker has one


@functools.cache
def worker():
    """One other process for all tests; it imports what maps ask for."""
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    atexit.register(pool.shutdown)
    return pool


def call(task_bytes, batch_bytes):
    """Run a task on a block where it lives; only bytes come in and go out."""
    task = cloudpickle.loads(task_bytes)
    with threadpool_limits(1, user_api="blas"):
        return cloudpickle.dumps(task.on_group([pickle.loads(batch_bytes)], CACHE))


def results(engine, task, place):
    """Results of a task for all blocks, in block order, worked on in another order."""
    sent = cloudpickle.dumps(task)
    found = {}
    order = np.random.default_rng(engine.n_blocks).permutation(engine.n_blocks)
    for number in order.tolist():
        block = pickle.dumps(engine._block(number))
        if place == "process":
            found[number] = worker().submit(call, sent, block).result()
        else:
            found[number] = call(sent, block)
    return [pickle.loads(found[number]) for number in range(engine.n_blocks)]


@contextmanager
def elsewhere(monkeypatch, place):
    """Let every pass of a local engine be one over blocks that live elsewhere.

    ``place`` is "copies" for this process or "process" for another one. A sample of the rows comes
    here, and is an engine like any other.
    """

    def run(self, task):
        yield from results(self, task, place)

    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "_run", run)
        patch.setattr(LocalEngine, "sample", BlockEngine.sample)
        patch.setattr(LocalEngine, "transformed", BlockEngine.transformed)
        patch.setattr(LocalEngine, "folds", BlockEngine.folds)
        patch.setattr(LocalEngine, "is_local", False)
        yield
