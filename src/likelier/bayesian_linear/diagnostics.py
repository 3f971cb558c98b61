"""Convergence diagnostics of posterior draws: R-hat and effective sample size (ESS).

Both are the rank-normalised split versions of Vehtari, Gelman, Simpson, Carpenter and Buerkner
(2021).
"""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri
from scipy.stats import rankdata

from likelier.base import Array


def split_chains(draws: Array) -> Array:
    """Every chain split into halves, (2 chains, draws / 2, ...), without an odd middle draw."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def rank_normal(draws: Array) -> Array:
    """Rank-normalised draws: normal scores of their ranks among all chains."""
    flat = draws.reshape(-1, *draws.shape[2:])
    ranks = rankdata(flat, axis=0)
    return np.asarray(ndtri((ranks - 0.375) / (len(flat) + 0.25))).reshape(draws.shape)


def r_hat(draws: Array) -> Array:
    """Potential scale reduction of every quantity of ``draws`` (chains, draws, ...).

    One if the chains agree in location and scale; NaN with fewer than four draws per chain.
    """
    if draws.shape[1] < 4:
        return np.full(draws.shape[2:], np.nan)
    parts = split_chains(draws)
    middle = np.median(parts, axis=(0, 1))
    folded = _reduction(rank_normal(np.abs(parts - middle)))
    return np.maximum(_reduction(rank_normal(parts)), folded)


def _reduction(parts: Array) -> Array:
    n = parts.shape[1]
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt((n - 1.0) / n + between / within)
    return np.where(within > 0.0, ratio, np.where(between > 0.0, np.inf, 1.0))


def effective_size(draws: Array, ranks: bool = True) -> Array:
    """Effective sample size of ``draws`` (chains, draws, ...).

    With ``ranks`` the bulk ESS, of rank-normalised draws; without, that of the mean. By Geyer's
    initial monotone sequence of autocorrelations of split chains. NaN with fewer than four draws
    per chain. Cost: draws x log(draws) per quantity.
    """
    if draws.shape[1] < 4:
        return np.full(draws.shape[2:], np.nan)
    parts = split_chains(draws)
    if ranks:
        parts = rank_normal(parts)
    shape = parts.shape[2:]
    flat = parts.reshape(*parts.shape[:2], -1)
    return np.array([_effective(flat[:, :, j]) for j in range(flat.shape[2])]).reshape(shape)


def tail_effective_size(draws: Array) -> Array:
    """Tail ESS, the effective sample size for the ends of 90% intervals.

    The smaller effective sample size of the two indicators of lying below the 5% and the 95%
    quantile.
    """
    ends = np.quantile(draws, [0.05, 0.95], axis=(0, 1))
    sizes = [effective_size((draws <= end).astype(np.float64), ranks=False) for end in ends]
    return np.minimum(*sizes)


def _effective(parts: Array) -> float:
    """Effective sample size of one quantity, (chains, draws)."""
    m, n = parts.shape
    centred = parts - parts.mean(axis=1, keepdims=True)
    spectrum = np.abs(rfft(centred, next_fast_len(2 * n), axis=1)) ** 2
    autocovariance = irfft(spectrum, next_fast_len(2 * n), axis=1)[:, :n].mean(axis=0) / n
    within = autocovariance[0] * n / (n - 1.0)
    total = autocovariance[0] + parts.mean(axis=1).var(ddof=1)
    if total <= 0.0:
        return float(m * n)  # a constant
    rho = 1.0 - (within - autocovariance) / total
    rho[0] = 1.0
    pairs = rho[0 : n - 1 : 2] + rho[1:n:2]
    negative = np.flatnonzero(pairs < 0.0)
    last = int(negative[0]) if len(negative) else len(pairs)
    time = -1.0 + 2.0 * np.minimum.accumulate(pairs[:last]).sum()
    return float(m * n / max(time, 1.0 / np.log10(m * n)))
