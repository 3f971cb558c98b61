"""Gaussian sites of a block of rows: curvature and linear term of a softmax likelihood."""

from __future__ import annotations

import numpy as np

from likelier.base import Array
from likelier.one_pass.model import FROZEN


def softmax(scores: Array) -> Array:
    """Softmax over the outputs; the scores are not modified."""
    p = scores - scores.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    return np.asarray(p)


def polya_gamma_mean(p: Array) -> Array:
    """``E omega`` of PG(1, psi) from ``p = sigma(psi)``: ``(p - 1/2) / psi``, 1/4 at the middle."""
    tiny = 1e-7 if p.dtype == np.float32 else 1e-15
    p = np.clip(p, tiny, 1.0 - tiny)
    psi = np.log(p / (1.0 - p))
    near_zero = np.abs(psi) < 1e-2
    psi[near_zero] = 1.0
    return np.where(near_zero, FROZEN - (p - 0.5) ** 2 / 3.0, (p - 0.5) / psi)


def sites(scores: Array, codes: Array, similarity: float, relaxation: float) -> tuple[Array, Array]:
    """Curvature of every row's site, shared by the outputs, and its linear term for every output.

    A learned site expands the likelihood at the current scores. A row moves the differences of
    ``K`` classes, which makes the curvature of one of them ``K / (K - 1)`` times that of its
    logistic problem. A frozen site expands it at zero, so the order of the rows has no effect.
    """
    p = softmax(scores)
    n_classes = max(2, p.shape[1] - 1)
    omega = polya_gamma_mean(p[:, :-1]).mean(axis=1)
    learned = (similarity / relaxation * n_classes / (n_classes - 1.0)) * omega
    curvature = np.asarray(learned + (1.0 - similarity) * FROZEN, dtype=p.dtype)
    linear = learned.astype(p.dtype)[:, None] * scores - similarity * p
    linear -= (1.0 - similarity) / p.shape[1]
    linear[np.arange(len(codes)), codes] += 1.0
    return curvature, linear
