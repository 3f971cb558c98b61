"""Gaussian sites of a block of rows: the curvature and the pull of a softmax likelihood."""

from __future__ import annotations

import numpy as np

from likelier.base import Array
from likelier.one_pass.model import FROZEN


def softmax(scores: Array) -> Array:
    """Probabilities of the outputs, in place of their scores' copy."""
    p = scores - scores.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    return np.asarray(p)


def polya_gamma_mean(p: Array) -> Array:
    """``E omega`` of PG(1, psi) from ``p = sigma(psi)``: ``(p - 1/2) / psi``, 1/4 at the middle."""
    tiny = 1e-7 if p.dtype == np.float32 else 1e-15
    p = np.clip(p, tiny, 1.0 - tiny)
    psi = np.log(p / (1.0 - p))
    near = np.abs(psi) < 1e-2
    psi[near] = 1.0
    return np.where(near, FROZEN - (p - 0.5) ** 2 / 3.0, (p - 0.5) / psi)


def sites(scores: Array, codes: Array, likeness: float, relaxation: float) -> tuple[Array, Array]:
    """Curvature of every row's site, shared by the outputs, and its pull on every output.

    A learned site expands the likelihood at the present scores. A row moves the differences of
    ``K`` classes, which makes the curvature of one of them ``K / (K - 1)`` times that of its
    logistic problem. A frozen site expands it at zero, where no order of the rows matters.
    """
    p = softmax(scores)
    n_classes = max(2, p.shape[1] - 1)
    omega = polya_gamma_mean(p[:, :-1]).mean(axis=1)
    learned = (likeness / relaxation * n_classes / (n_classes - 1.0)) * omega
    curvature = np.asarray(learned + (1.0 - likeness) * FROZEN, dtype=p.dtype)
    pull = learned.astype(p.dtype)[:, None] * scores - likeness * p
    pull -= (1.0 - likeness) / p.shape[1]
    pull[np.arange(len(codes)), codes] += 1.0
    return curvature, pull
