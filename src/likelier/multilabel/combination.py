"""How scores of classifiers and of the mixture become log-odds of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit

from likelier.base import Array, Matrix
from likelier.multilabel.features import column_moments
from likelier.multilabel.mixture import DirichletMixture, MixtureParameters

MAX_PROBABILITY = 1.0 - 1e-9


@dataclass(frozen=True)
class MixtureScaling:
    """Standardisation of the rows for a Gaussian mixture."""

    centre: Array
    scale: Array

    @classmethod
    def fit(cls, X: Matrix, weight: Array, kind: str) -> MixtureScaling:
        """Means and scales of Gaussian columns; empty for other distributions."""
        if kind != "gaussian":
            return cls(np.zeros(0), np.zeros(0))
        centre, std = column_moments(X, weight / weight.sum())
        scale = 1.0 / np.where(std > 0.0, std, 1.0)
        return cls(centre if isinstance(X, np.ndarray) else np.zeros(0), scale)

    def apply(self, X: Matrix) -> Any:
        """Standardised rows in double precision."""
        if not len(self.scale):
            return X.astype(np.float64)
        if len(self.centre):
            return (X - self.centre) * self.scale
        return sparse.csr_array(sparse.csr_array(X).multiply(self.scale[None])).astype(np.float64)


def base_rates(Y: Array, weight: Array) -> Array:
    """Smoothed frequency of every label."""
    known = np.isfinite(Y)
    positive = weight @ np.where(known, Y, 0.0)
    return np.asarray((positive + 0.5) / (weight @ known + 1.0))


def cardinality(base: Array) -> float:
    """Average number of labels per row."""
    return float(base.sum())


def label_probabilities(
    model: DirichletMixture, params: MixtureParameters, X: Matrix, base: Array
) -> Array:
    """``pbar_c = sum_k r_k(x) E psi_kc``, with ``r`` from features alone."""
    table = model.label_table(params, cardinality(base))
    return np.asarray(model.responsibilities(params, X) @ table)


def log_odds(model: DirichletMixture, params: MixtureParameters, X: Matrix, base: Array) -> Array:
    """``logit pbar - logit base``: the mixture's contribution to the log-odds of labels."""
    p = np.clip(label_probabilities(model, params, X, base), 1.0 - MAX_PROBABILITY, MAX_PROBABILITY)
    return np.asarray(np.log(p / (1.0 - p)) - np.log(base / (1.0 - base)))


def product_scores(scores: Array, log_odds_ratio: Array, base: Array) -> Array:
    """Log-odds of the unnormalised product ``pbar sigma(score)``."""
    pbar = expit(log_odds_ratio + np.log(base / (1.0 - base)))
    p = np.clip(pbar * expit(scores), 1.0 - MAX_PROBABILITY, MAX_PROBABILITY)
    return np.asarray(np.log(p / (1.0 - p)))


def use_base_rates(scores: Array, base: Array, counts: Array) -> None:
    """Replace scores of labels with a single observed value by their smoothed log-odds.

    Stacking weights, which are estimated on other labels, would make such a label more or less
    certain than the number of rows allows. A label that is never known has even odds.

    Parameters
    ----------
    scores : array of shape (n, L)
        Log-odds; changed in place.
    base : array of shape (L,)
        Smoothed frequencies.
    counts : array of shape (L,)
        Weight of the rows in which each label is known.
    """
    rarer = np.minimum(base, 1.0 - base) * (counts + 1.0) - 0.5  # weight of the rarer value
    constant = rarer <= 1e-12 * (counts + 1.0)  # 0 up to rounding
    scores[:, constant] = np.log(base[constant] / (1.0 - base[constant]))
