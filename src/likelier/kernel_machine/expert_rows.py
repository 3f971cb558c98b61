"""Rows on their way to local experts: drawn at random to judge by, or waiting to be learned."""

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
class Waiting:
    """Rows that wait, region by region, until there are enough for their expert to learn."""

    enough: int
    parts: dict[int, list[Region]] = field(default_factory=dict)

    def add(self, block: Region, tree: Tree) -> Iterator[tuple[int, Region]]:
        """Let rows wait; yield the regions that have enough."""
        for expert, rows in by_region(tree.regions(block.Z)):
            self.parts.setdefault(expert, []).append(block.take(rows))
            if sum(part.n for part in self.parts[expert]) >= self.enough:
                yield expert, join_regions(self.parts.pop(expert))

    def rest(self) -> Iterator[tuple[int, Region]]:
        """Yield what is left."""
        for expert in sorted(self.parts):
            yield expert, join_regions(self.parts.pop(expert))

    def to_plain(self) -> dict[int, Any]:
        """Plain form, of arrays."""
        joined = {expert: join_regions(parts) for expert, parts in self.parts.items()}
        return {expert: vars(region) for expert, region in joined.items()}

    @classmethod
    def from_plain(cls, enough: int, plain: dict[int, Any]) -> Waiting:
        """From the plain form."""
        return cls(enough, {int(expert): [Region(**parts)] for expert, parts in plain.items()})


def not_learned(
    parts: Iterator[tuple[int, Region]], learned: Array
) -> Iterator[tuple[int, Region]]:
    """What is left of rows of experts after those they have learned, the first ``learned`` each.

    These are counted down, so that the rows of a stream may come in other blocks than before.
    """
    for expert, rows in parts:
        known = min(rows.n, int(learned[expert]))
        learned[expert] -= known
        if not known:
            yield expert, rows
        elif known < rows.n:
            yield expert, rows.take(np.arange(known, rows.n))


@dataclass
class Drawn:
    """Rows drawn at random without replacement from all that pass by, in bounded memory.

    Every row gets a key and the ``most`` smallest stay: the same rows in whatever blocks they
    come.
    """

    most: int
    rng: np.random.Generator
    parts: list[Batch] = field(default_factory=list)
    keys: Array = field(default_factory=lambda: np.empty(0))
    bound: float = np.inf

    def add(self, batch: Batch) -> None:
        """Let rows pass by; at most twice as many as wanted are kept, and a block."""
        keys = self.rng.random(batch.n_rows)
        chosen = np.flatnonzero(keys < self.bound)
        if not len(chosen):
            return
        self.parts.append(take(batch, chosen))
        self.keys = np.concatenate([self.keys, keys[chosen]])
        if len(self.keys) > 2 * self.most:
            self.parts = [self.rows()]
            self.keys = np.sort(self.keys)[: self.most]
            self.bound = float(self.keys[-1])

    def rows(self) -> Batch:
        """The rows drawn so far, in random order."""
        weights = [part.weight for part in self.parts if part.weight is not None]
        whole = Batch(
            stack_rows([part.X for part in self.parts]),
            np.concatenate([np.asarray(part.y) for part in self.parts]),
            np.concatenate(weights) if weights else None,
        )
        return take(whole, np.argsort(self.keys, kind="stable")[: self.most])


def take(batch: Batch, rows: Array) -> Batch:
    """Some rows of a batch."""
    weight = None if batch.weight is None else batch.weight[rows]
    return Batch(take_rows(batch.X, rows), np.asarray(batch.y)[rows], weight)
