"""Encoding of categorical, high-cardinality and free-text columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from likelier.base import Array
from likelier.tables.cells import Cells, hashed
from likelier.tables.column import N_DRAWS, ColumnCode, with_mark

if TYPE_CHECKING:  # at run time only tables with texts load what counts their terms
    from likelier.tables.terms import Terms


@dataclass(frozen=True, eq=False)
class CategoryColumn(ColumnCode):
    """Few levels: one-hot columns; rare levels share a column.

    Two levels without missing values need a single column. ``frequencies`` are the relative
    frequencies of the output columns in training, with which an unseen level is encoded.
    """

    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    frequencies: tuple[float, ...] = ()
    kind: ClassVar[str] = "category"
    has_levels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if len(self.frequencies) != len(self.levels) + bool(self.rare) or not self.frequencies:
            raise ValueError(f"damaged column {self.name!r}: not one frequency for each level")

    @property
    def single(self) -> bool:
        """Whether a single output column encodes the two levels."""
        return len(self.levels) == 2 and not self.rare and not self.had_missing

    @property
    def values(self) -> list[str]:
        names = [f"{self.name}={level}" for level in self.levels]
        if self.rare:
            names.append(f"{self.name} is rare")
        return names[1:] if self.single else names

    @cached_property
    def _slots(self) -> dict[str, float]:
        slots = {level: float(slot) for slot, level in enumerate(self.levels)}
        return slots | dict.fromkeys(self.rare, float(len(self.levels)))

    def encode(self, cells: Cells, out: Array) -> Array | None:
        absent = cells.absent
        self._mark(absent, out)
        slots = cells.map_texts(
            lambda texts: np.array([self._slots.get(text, -1.0) for text in texts]), -2.0
        ).astype(np.int64)
        rows = np.flatnonzero(slots >= 0)
        if self.single:
            out[rows, 0] = slots[rows]
        else:
            out[rows, slots[rows]] = 1.0
        unseen: Array = (slots == -1) | (absent & (not self.had_missing))
        if not unseen.any():
            return None
        out[unseen, : len(self.values)] = self.frequencies[1:] if self.single else self.frequencies
        return unseen

    def draws(self, cells: Cells) -> Array:
        weights = np.array(self.frequencies) / max(sum(self.frequencies), 1e-300)
        points = (np.arange(N_DRAWS) + 0.5) / N_DRAWS
        slots = np.minimum(np.searchsorted(np.cumsum(weights), points), len(weights) - 1)
        drawn = np.eye(len(weights))[slots]
        drawn = drawn[:, 1:] if self.single else drawn
        return with_mark(np.broadcast_to(drawn, (len(cells), *drawn.shape)), self.had_missing)


@dataclass(frozen=True, eq=False)
class NameColumn(ColumnCode):
    """Many levels: character n-grams reduced to a few dense columns, so similar names are close.

    ``known`` holds the hashes of the levels of training, and ``examples`` some of them drawn by
    frequency; both are empty if most levels occur once, so that unseen levels are expected.
    """

    terms: Terms
    projection: Array
    known: Array
    examples: tuple[str, ...] = ()
    mean: Array = field(default_factory=lambda: np.zeros(0))
    kind: ClassVar[str] = "category"
    has_levels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_projection(self.name, self.terms, self.projection)
        if self.mean.shape not in ((0,), (self.projection.shape[1],)):
            raise ValueError(f"damaged column {self.name!r}: mean of shape {self.mean.shape}")

    @property
    def values(self) -> list[str]:
        return [f"{self.name} {number}" for number in range(self.projection.shape[1])]

    def encode(self, cells: Cells, out: Array) -> Array | None:
        texts, codes = cells.distinct
        absent, n_values = cells.absent, self.projection.shape[1]
        self._mark(absent, out)
        out[:, :n_values] = self.embed([text or "" for text in texts])[codes]
        out[absent, :n_values] = 0.0
        unseen = absent & (not self.had_missing)
        if len(self.known):
            found = np.isin(hashed([text or "" for text in texts]), self.known)
            unseen = unseen | (~found[codes] & ~absent)
        if not unseen.any():
            return None
        if not self.had_missing:
            out[absent] = self.mean
        return unseen

    def embed(self, texts: list[str]) -> Array:
        """Return the dense columns of some texts."""
        return np.asarray(self.terms.matrix(texts) @ self.projection)

    def draws(self, cells: Cells) -> Array | None:
        """Return the levels of training with the most similar spelling to each unseen level."""
        if not self.examples:
            return None
        texts, codes = cells.distinct
        points = self.embed([text or "" for text in texts])
        similarity = points @ self._examples.T
        nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :N_DRAWS]
        nearest = np.resize(nearest.T, (N_DRAWS, len(texts))).T
        return with_mark(self._examples[nearest][codes], self.had_missing)

    @cached_property
    def _examples(self) -> Array:
        return self.embed(list(self.examples))


@dataclass(frozen=True, eq=False)
class TextColumn(ColumnCode):
    """Free text: TF-IDF weights of its words, sparse or reduced to a few dense columns."""

    terms: Terms
    projection: Array | None = None
    kind: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        if self.projection is not None:
            _check_projection(self.name, self.terms, self.projection)
        elif self.terms.terms is None:
            raise ValueError(f"damaged column {self.name!r}: no words")

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether the output columns are words, nearly all of which are zero in a row."""
        return self.projection is None

    @property
    def values(self) -> list[str]:
        if self.projection is None:
            return [f"{self.name}:{term}" for term in self.terms.terms or ()]
        return [f"{self.name} {number}" for number in range(self.projection.shape[1])]

    def matrix(self, cells: Cells) -> Any:
        """Return the weights of the words in CSR form."""
        texts, codes = cells.distinct
        if len(texts) == len(codes) and None not in texts:
            return self.terms.matrix([text or "" for text in texts])
        return self.terms.matrix([texts[code] or "" for code in codes.tolist()])

    def encode(self, cells: Cells, out: Array) -> Array | None:
        matrix = self.matrix(cells)
        dense = matrix.toarray() if self.projection is None else matrix @ self.projection
        out[:, : dense.shape[1]] = dense
        if self.had_missing:
            out[:, -1] = cells.absent
        return None  # a text without known words is encoded as zeros


def _check_projection(name: str, terms: Terms, projection: Array) -> None:
    fits = projection.ndim == 2 and projection.shape[0] == len(terms) and projection.shape[1]
    if not fits or not np.isfinite(projection).all():
        raise ValueError(f"damaged column {name!r}: its projection does not fit its terms")
