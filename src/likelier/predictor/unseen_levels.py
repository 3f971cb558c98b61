"""Predictions for the rows of a table, also for those with a level that training never saw.

A model knows nothing of such a level but that it is one, so what it predicts is the mixture of what
it predicts for copies of the row with levels of training: as uncertain as these differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from likelier.base import Array, Matrix, Uncertainty
from likelier.predictive import Categorical
from likelier.tables.column import N_DRAWS
from likelier.tables.sources import Encoded, block_source, encoded_blocks

# So many quantiles stand for the distribution of each copy of a row; more for wide intervals.
N_QUANTILES = 20
MOST_QUANTILES = 100


def table_blocks(
    data: Any, encoding: Any, labelled: bool = False, **reading: Any
) -> Iterator[Encoded]:
    """Yield the encoded rows of a path or a frame; targets, which may be absent, if ``labelled``.

    ``reading`` says how to read a file; see `likelier.tables.block_source`.
    """
    if encoding is None:
        raise ValueError("the model was fitted on a matrix of features, and reads no tables")
    source = block_source(data, encoder=encoding, **reading)
    block = None
    for block in encoded_blocks(source if labelled else source.unlabelled()):
        yield block
    if block is None:
        raise ValueError(f"{data!s} holds no rows")


def answer(
    model: Any, encoding: Any, method: str, block: Encoded, *args: Any, **options: Any
) -> Any:
    """What a method of a model of encoded rows says of a block.

    ``model`` has scikit-learn's methods: an estimator, or a `Predictor` without an encoding.
    Methods without a mixture get rows with unseen levels as the average over levels of training.
    """
    found = getattr(model, method)(block.X, *args, **options)
    if not block.strange or method not in _MIXED:
        return found
    rows, copies = encoding.alternatives(block.X, block.strange)
    if not len(rows):
        return found
    mixed = _MIXED[method](model, copies, *args, **options)
    for part, own in zip(_parts(found), _parts(mixed), strict=True):
        part[rows] = own
    return found


def answers(model: Any, encoding: Any, method: str, data: Any, *args: Any, **options: Any) -> Any:
    """What a method of a model of encoded rows says of all rows of a path or a frame."""
    blocks = table_blocks(data, encoding)
    found = [answer(model, encoding, method, block, *args, **options) for block in blocks]
    whole = [np.concatenate(parts) for parts in zip(*map(_parts, found), strict=True)]
    if isinstance(found[0], Uncertainty):
        return Uncertainty(*whole)
    return tuple(whole) if isinstance(found[0], tuple) else whole[0]


def _parts(found: Any) -> tuple[Array, ...]:
    """The arrays of an answer, one entry for each row."""
    if isinstance(found, Uncertainty):
        return found.total, found.aleatoric, found.epistemic
    return found if isinstance(found, tuple) else (found,)


# -- mixtures over the copies of each row ------------------------------------------------------
def _mixed_probability(model: Any, copies: Matrix) -> Array:
    """Class probabilities, averaged over the copies."""
    probability = np.asarray(model.predict_proba(copies))
    mixed: Array = probability.reshape(-1, N_DRAWS, probability.shape[1]).mean(axis=1)
    return mixed


def _mixed_log_probability(model: Any, copies: Matrix) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(_mixed_probability(model, copies))


def _mixed_point(model: Any, copies: Matrix, return_std: bool = False) -> Any:
    """The most probable class, or the mean and the standard deviation of a number."""
    classes = _classes(model)
    if classes is not None:
        try:
            return classes[_mixed_probability(model, copies).argmax(axis=1)]
        except (AttributeError, ValueError):  # a loss without probabilities
            return _most_common(np.asarray(model.predict(copies)))
    if not return_std:
        return np.asarray(model.predict(copies)).reshape(-1, N_DRAWS).mean(axis=1)
    mean, std = (part.reshape(-1, N_DRAWS) for part in model.predict(copies, return_std=True))
    return mean.mean(axis=1), np.sqrt((std**2).mean(axis=1) + mean.var(axis=1))


def _most_common(labels: Array) -> Array:
    """The label that most of the copies of each row have."""
    names, codes = np.unique(labels, return_inverse=True)
    counts = (codes.reshape(-1, N_DRAWS)[:, :, None] == np.arange(len(names))).sum(axis=1)
    return np.asarray(names[counts.argmax(axis=1)])


def _mixed_interval(model: Any, copies: Matrix, coverage: float = 0.9) -> Array:
    """Central intervals of the mixture of the copies' distributions, ``(n, 2)``."""
    return _mixed_quantiles(model, copies, [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])


def _mixed_quantiles(model: Any, copies: Matrix, alpha: npt.ArrayLike = (0.05, 0.5, 0.95)) -> Array:
    """Quantiles of the mixture of the copies' distributions, ``(n, len(alpha))``.

    Each copy is represented by quantiles at equally spaced levels.
    """
    levels = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    tail = float(min(levels.min(), 1.0 - levels.max()))
    half = int(np.clip(np.ceil(1.0 / tail), N_QUANTILES, MOST_QUANTILES)) // 2
    points = _quantiles(model, copies, half).reshape(-1, N_DRAWS * 2 * half)
    found: Array = np.quantile(points, levels, axis=1, method="inverted_cdf").T
    return found


def _quantiles(model: Any, copies: Matrix, half: int) -> Array:
    """Return twice so many quantiles of each row; where there are none, ends of intervals are."""
    coverages = (np.arange(half) + 0.5) / half
    if hasattr(model, "predict_quantiles"):  # optional, as scikit-learn's methods are
        alpha = 0.5 + 0.5 * np.concatenate([-coverages[::-1], coverages])
        return np.asarray(model.predict_quantiles(copies, alpha=alpha))
    ends = [np.asarray(model.predict_interval(copies, coverage=float(c))) for c in coverages]
    return np.concatenate(ends, axis=1)


def _mixed_uncertainty(model: Any, copies: Matrix) -> Uncertainty:
    """Entropy or variance of the mixture; not knowing the level is part of the epistemic one."""
    if _classes(model) is not None:
        probability = np.asarray(model.predict_proba(copies))
        return Categorical(probability.reshape(-1, N_DRAWS, probability.shape[1])).uncertainty()
    parts, point = model.predict_uncertainty(copies), np.asarray(model.predict(copies))
    by_row = point.reshape(-1, N_DRAWS)
    total = parts.total.reshape(-1, N_DRAWS).mean(axis=1) + by_row.var(axis=1)
    aleatoric = parts.aleatoric.reshape(-1, N_DRAWS).mean(axis=1)
    return Uncertainty(total, aleatoric, total - aleatoric)


def _classes(model: Any) -> Array | None:
    """Classes of a classifier, None for a regression."""
    return getattr(model, "classes_", None)


_MIXED: Mapping[str, Any] = {
    "predict": _mixed_point,
    "predict_proba": _mixed_probability,
    "predict_log_proba": _mixed_log_probability,
    "predict_interval": _mixed_interval,
    "predict_quantiles": _mixed_quantiles,
    "predict_uncertainty": _mixed_uncertainty,
}
