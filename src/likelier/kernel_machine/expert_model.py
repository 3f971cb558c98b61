"""Local experts: small kernel machines, one per region, that correct a global model.

A kernel machine with ``m`` landmarks has limited resolution, however many rows there are. A
balanced tree of hyperplanes therefore partitions the rows, and in every region an expert with its
own landmarks and a narrower kernel adds to the score of the global model:

``f(x) = f_global(x) + phi_r(x)^T w_r``, ``r`` the region of ``x``.

Each expert is a Gaussian process on the residual of the global model; far from its rows it adds
only its prior variance. A row uses one expert, so cost and memory per row depend on the landmarks
of one region, and the number of experts may grow with the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from likelier.base import Array, Matrix
from likelier.files.declared import check_array, check_number
from likelier.kernel_machine.features import (
    BLOCK_ROWS,
    LandmarkMap,
    as_dense,
    landmark_map,
    scale_rows,
)


@dataclass(frozen=True)
class Tree:
    """A complete binary tree of hyperplanes; its regions are numbered from the left.

    Attributes
    ----------
    directions : array of shape (n_regions - 1, n_inputs)
        Normal vector of every node; the children of node ``i`` are ``2 i + 1`` and ``2 i + 2``.
    cuts : array of shape (n_regions - 1,)
        Thresholds; rows whose projection exceeds the threshold go to the right.
    """

    directions: Array
    cuts: Array

    @property
    def n_regions(self) -> int:
        """Number of regions, a power of two."""
        return len(self.cuts) + 1

    def regions(self, Z: Array) -> Array:
        """Region of every scaled row. Costs regions x inputs per row."""
        found = np.empty(len(Z), dtype=np.intp)
        depth = self.n_regions.bit_length() - 1
        for start in range(0, len(Z), BLOCK_ROWS):
            right = Z[start : start + BLOCK_ROWS] @ self.directions.T > self.cuts
            rows, node = np.arange(len(right)), np.zeros(len(right), dtype=np.intp)
            for _ in range(depth):
                node = 2 * node + 1 + right[rows, node]
            found[start : start + BLOCK_ROWS] = node - (self.n_regions - 1)
        return found


def grow_tree(Z: Array, n_regions: int) -> Tree:
    """Split the rows recursively at the median of their leading principal component.

    Parameters
    ----------
    Z : array of shape (n, n_inputs)
        Scaled rows, in single precision.
    n_regions : int
        A power of two.

    Notes
    -----
    Costs ``n x inputs^2`` per level. Equal rows stay together, so regions of data with few
    distinct rows may differ in size or be empty.
    """
    n_nodes, d = n_regions - 1, Z.shape[1]
    directions = np.zeros((n_nodes, d), dtype=np.float32)
    cuts = np.zeros(n_nodes, dtype=np.float32)
    inside: list[Array] = [np.arange(len(Z))]
    for node in range(n_nodes):
        rows = inside[node]
        directions[node] = _widest(Z[rows])
        along = Z[rows] @ directions[node]
        cuts[node] = _middle(along)
        right = along > cuts[node]
        inside += [rows[~right], rows[right]]
    return Tree(directions, cuts)


def _widest(Z: Array) -> Array:
    """Leading principal component, with a deterministic sign."""
    d = Z.shape[1]
    if len(Z) < 2:
        return np.asarray(np.eye(1, d, dtype=np.float32)[0])
    centred = (Z - Z.mean(axis=0)).astype(np.float64)
    _, vectors = linalg.eigh(centred.T @ centred, subset_by_index=[d - 1, d - 1])
    widest = vectors[:, 0]
    return np.asarray(widest * np.sign(widest[np.abs(widest).argmax()]), dtype=np.float32)


def _middle(values: Array) -> float:
    """A threshold that splits the values as evenly as ties allow."""
    if not len(values):
        return 0.0
    ordered = np.sort(values)
    half = len(ordered) // 2
    fewer, more = (
        np.searchsorted(ordered, ordered[half], "left"),
        np.searchsorted(ordered, ordered[half], "right"),
    )
    if fewer > 0 and half - fewer < more - half:  # ties of the median go to the right
        return float(0.5 * (ordered[fewer - 1] + ordered[half]))
    return float(ordered[half])


@dataclass(frozen=True)
class Experts:
    """Fitted experts, stacked; all have the same number of landmarks.

    Attributes
    ----------
    centre, gamma : array of shape (n_inputs,)
        Rows are centred (dense only) and multiplied by ``gamma``, as in the global model, before
        the tree splits them.
    scale : float
        Inverse kernel width relative to the global model.
    directions, cuts : arrays
        The tree.
    landmarks : array of shape (n_experts, m, n_inputs)
        Scaled by ``gamma`` and ``scale``.
    whiten : array of shape (n_experts, m, m)
    weights : array of shape (n_experts, m + 1, n_outputs)
    roots : array of shape (n_experts, m + 1, m + 1)
        Inverse factors of the precision of the weights, shared by all outputs.
    counts : array of shape (n_experts,)
        Rows learned; experts without any add nothing to scores or variances.
    prior_variance : float
    """

    centre: Array
    gamma: Array
    scale: float
    directions: Array
    cuts: Array
    landmarks: Array
    whiten: Array
    weights: Array
    roots: Array
    counts: Array
    prior_variance: float

    def check(self, n_inputs: int, n_outputs: int) -> None:
        """Raise a ValueError unless all arrays have the shapes that predicting needs."""
        check_array("counts", self.counts, (None,), kind="int", low=0)
        n, d = len(self.counts), n_inputs
        if n.bit_count() != 1:
            raise ValueError(f"the number of experts must be a power of two, and is {n}")
        check_array("landmarks", self.landmarks, (n, None, d))
        m = self.landmarks.shape[1]
        shapes = {
            "centre": (d,), "gamma": (d,), "directions": (n - 1, d), "cuts": (n - 1,),
            "whiten": (n, m, m), "weights": (n, m + 1, n_outputs), "roots": (n, m + 1, m + 1),
        }  # fmt: skip
        for name, shape in shapes.items():
            check_array(name, getattr(self, name), shape)
        check_number("scale", self.scale, 0.0)
        check_number("prior_variance", self.prior_variance, np.finfo(float).tiny)

    @cached_property
    def tree(self) -> Tree:
        """The partition into regions."""
        return Tree(self.directions, self.cuts)

    def scaled(self, X: Matrix) -> Array:
        """Rows as the tree takes them, dense and in single precision."""
        return np.asarray(as_dense(scale_rows(X, self.centre, self.gamma, np.float32)))

    def regions(self, X: Matrix) -> Array:
        """Index of the expert of every row."""
        parts = [
            self.tree.regions(self.scaled(X[start : start + BLOCK_ROWS]))
            for start in range(0, max(1, X.shape[0]), BLOCK_ROWS)
        ]
        return np.concatenate(parts)

    def map(self, expert: int) -> LandmarkMap:
        """Features of one expert, for rows already scaled by ``gamma``."""
        d = len(self.gamma)
        return LandmarkMap(
            np.zeros(d, dtype=np.float32),
            np.full(d, self.scale, dtype=np.float32),
            self.landmarks[expert],
            self.whiten[expert],
        )

    def correct(self, X: Matrix, dtype: Any = np.float32) -> tuple[Array, Array]:
        """Corrections of the scores ``(n, n_outputs)``, and their variance ``(n,)``.

        Features are computed in the precision ``dtype``.
        """
        scores = np.zeros((X.shape[0], self.weights.shape[2]))
        variance = np.zeros(X.shape[0])
        for expert, rows in by_region(self.regions(X)):
            if not self.counts[expert]:
                continue
            feature_map, root = self.map(expert), self.roots[expert].T.astype(dtype, copy=False)
            W = self.weights[expert].astype(dtype, copy=False)
            for start in range(0, len(rows), BLOCK_ROWS):
                part = rows[start : start + BLOCK_ROWS]
                Phi = feature_map(self.scaled(X[part]), dtype)
                pushed = Phi @ root
                scores[part] = Phi @ W
                variance[part] = self.prior_variance * feature_map.residual(Phi)
                variance[part] += np.einsum("ij,ij->i", pushed, pushed)
        return scores, variance

    def to_arrays(self) -> dict[str, Any]:
        """Dict of arrays."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def by_region(regions: Array) -> Iterator[tuple[int, Array]]:
    """Yield the occurring regions and the rows of each, both in order."""
    order = np.argsort(regions, kind="stable")
    ordered = regions[order]
    if not len(order):
        return
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    for start, stop in zip(first, np.append(first[1:], len(order)), strict=True):
        yield int(ordered[start]), order[start:stop]


def expert_map(
    Z: Array, scale: float, n_landmarks: int, rng: np.random.Generator
) -> tuple[LandmarkMap, Array]:
    """Features of an expert with random rows as landmarks, and the rows that are none.

    Landmarks are repeated if there are too few rows.
    """
    order = rng.permutation(len(Z))
    chosen = order[:n_landmarks]
    if len(chosen) < n_landmarks:
        chosen = np.resize(chosen, n_landmarks)
    d = Z.shape[1]
    zero, flat = np.zeros(d, dtype=np.float32), np.full(d, scale, dtype=np.float32)
    return landmark_map(Z[np.sort(chosen)], zero, flat), np.sort(order[n_landmarks:])
