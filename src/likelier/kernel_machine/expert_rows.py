"""Buffers of rows for local experts: validation samples, and rows waiting to be learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from likelier.base import Array, Batch
from likelier.engines.rows import stack_rows, take_rows
from likelier.kernel_machine.expert_model import Tree, by_region
from likelier.kernel_machine.experts import Region, join_regions


@dataclass
class RegionBuffers:
    """Per-region buffers that collect rows until their expert is updated."""

    full_size: int
    parts: dict[int, list[Region]] = field(default_factory=dict)

    def add(self, block: Region, tree: Tree) -> Iterator[tuple[int, Region]]:
        """Buffer rows; yield the regions whose buffer is full."""
        for expert, rows in by_region(tree.regions(block.Z)):
            self.parts.setdefault(expert, []).append(block.take(rows))
            if sum(part.n for part in self.parts[expert]) >= self.full_size:
                yield expert, join_regions(self.parts.pop(expert))

    def flush(self) -> Iterator[tuple[int, Region]]:
        """Yield the remaining rows of all regions."""
        for expert in sorted(self.parts):
            yield expert, join_regions(self.parts.pop(expert))

    def to_plain(self) -> dict[int, Any]:
        """Dict of arrays."""
        joined = {expert: join_regions(parts) for expert, parts in self.parts.items()}
        return {expert: vars(region) for expert, region in joined.items()}

    @classmethod
    def from_plain(cls, full_size: int, plain: dict[int, Any]) -> RegionBuffers:
        """Inverse of `to_plain`."""
        return cls(full_size, {int(expert): [Region(**parts)] for expert, parts in plain.items()})


def skip_learned(
    parts: Iterator[tuple[int, Region]], learned: Array
) -> Iterator[tuple[int, Region]]:
    """Yield the rows of experts without the first ``learned`` ones of each.

    ``learned`` is counted down in place, so a stream may arrive in other blocks than before.
    """
    for expert, rows in parts:
        n_known = min(rows.n, int(learned[expert]))
        learned[expert] -= n_known
        if not n_known:
            yield expert, rows
        elif n_known < rows.n:
            yield expert, rows.take(np.arange(n_known, rows.n))


@dataclass
class ReservoirSample:
    """Reservoir sample of rows, without replacement, in bounded memory.

    Every row gets a random key and the ``size`` smallest keys stay, so the sample does not depend
    on the blocks.
    """

    size: int
    rng: np.random.Generator
    parts: list[Batch] = field(default_factory=list)
    keys: Array = field(default_factory=lambda: np.empty(0))
    bound: float = np.inf

    def add(self, batch: Batch) -> None:
        """Offer rows; at most twice the sample size plus a block is stored."""
        keys = self.rng.random(batch.n_rows)
        chosen = np.flatnonzero(keys < self.bound)
        if not len(chosen):
            return
        self.parts.append(take(batch, chosen))
        self.keys = np.concatenate([self.keys, keys[chosen]])
        if len(self.keys) > 2 * self.size:
            self.parts = [self.rows()]
            self.keys = np.sort(self.keys)[: self.size]
            self.bound = float(self.keys[-1])

    def rows(self) -> Batch:
        """The current sample, in random order."""
        weights = [part.weight for part in self.parts if part.weight is not None]
        whole = Batch(
            stack_rows([part.X for part in self.parts]),
            np.concatenate([np.asarray(part.y) for part in self.parts]),
            np.concatenate(weights) if weights else None,
        )
        return take(whole, np.argsort(self.keys, kind="stable")[: self.size])


def take(batch: Batch, rows: Array) -> Batch:
    """Subset of the rows of a batch."""
    weight = None if batch.weight is None else batch.weight[rows]
    return Batch(take_rows(batch.X, rows), np.asarray(batch.y)[rows], weight)
