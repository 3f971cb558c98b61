"""The Dask engine: neighbouring blocks in the memory of each worker, a task for each group."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from likelier.base import Array, Batch
from likelier.engines import LocalEngine
from likelier.engines.blocks import Node, Task
from spike.cluster import EMBEDDED_BYTES, ClusterEngine, check_complete, packed, read_blocks, work

ALIGNMENT = 16  # bytes, as NumPy's own arrays have


class DaskEngine(ClusterEngine):
    """Rows held by the workers of a Dask cluster, a group of neighbouring blocks by each.

    A group is the result of a task that reads a file, so that Dask makes it again where its worker
    is lost. What is scattered would be lost. Tasks are sent to the worker that holds their group;
    without that Dask copies groups to whoever is free.

    Parameters
    ----------
    client : distributed.Client
    rows : LocalEngine
        The rows; only used to write the blocks.
    """

    def __init__(self, client: Any, rows: LocalEngine, **words: Any) -> None:
        super().__init__(rows, **words)
        self._client = client
        self._held: list[Any] = []

    def _run(self, task: Task) -> Iterator[list[Node[Any]]]:
        """One task for each group; a large state is a task of its own, sent once to each worker."""
        held, homes = self._groups(), self._homes()
        sent: Any = packed(task)
        if len(sent) > EMBEDDED_BYTES:
            sent = self._client.submit(_same, sent, pure=False)
        asked = [
            self._client.submit(_on_group, sent, group, pure=False, **_at(homes, number))
            for number, group in enumerate(held)
        ]
        nodes: list[Node[Any]] = []
        try:
            for future in asked:
                found = pickle.loads(future.result())
                nodes += [replace(node, value=None) for node in found]
                yield found
        finally:  # also where the caller stops reading
            self._client.cancel([future for future in asked if not future.done()])
        check_complete(nodes, self._n_blocks)

    def _groups(self) -> list[Any]:
        """The groups of blocks, read by the workers when first needed."""
        if not self._held:
            homes = self._homes()
            count = min(len(homes), self._n_blocks)
            borders = [k * self._n_blocks // count for k in range(count + 1)]
            self._held = [
                self._client.submit(
                    _load, self._path, borders[k], borders[k + 1], pure=False, **_at(homes, k)
                )
                for k in range(count)
            ]
        return self._held

    def _homes(self) -> list[str]:
        """Addresses of the workers that are there now."""
        return sorted(self._client.scheduler_info(n_workers=-1)["workers"])

    def close(self) -> None:
        """Let the workers forget the rows; the next pass reads them again."""
        self._held = []


def _at(homes: list[str], number: int) -> dict[str, Any]:
    """Where a group is best worked on; another worker may where this one is lost."""
    if not homes:  # all are lost, and started again by those who watch over them
        return {}
    return {"workers": [homes[number % len(homes)]], "allow_other_workers": True}


def _same(sent: bytes) -> bytes:
    return sent


def _load(path: Path, first: int, last: int) -> list[Batch]:
    return read_blocks(path, first, last)


def _on_group(sent: bytes, group: list[Batch]) -> bytes:
    return work(sent, map(_aligned_batch, group))


def _aligned_batch(batch: Batch) -> Batch:
    """The batch, whose arrays lie at odd addresses where Dask has moved it, as it was."""
    X: Any = batch.X
    if isinstance(X, np.ndarray):
        X = _aligned(X)
    elif any(_aligned(part) is not part for part in (X.data, X.indices, X.indptr)):
        X = X.copy()
    y, weight = (None if part is None else _aligned(part) for part in (batch.y, batch.weight))
    return replace(batch, X=X, y=y, weight=weight)


def _aligned(array: Array) -> Array:
    if array.flags.aligned and array.ctypes.data % ALIGNMENT == 0:
        return array
    return array.copy(order="K")
