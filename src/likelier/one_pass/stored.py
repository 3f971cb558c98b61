"""Checks of what a file holds of a stream whose weights have not been computed yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.files.declared import check_array, check_number
from likelier.one_pass.settings import Settings
from likelier.one_pass.streaming import Learned


def check_learned(learned: Learned, settings: Settings, n_classes: int) -> None:
    """Raise a ValueError unless the weights of these rows can be computed."""
    _check_settings(settings)
    labels = [] if learned.announced is None else [learned.announced]
    if learned.stats:
        labels.append(learned.stats["classes"])
        _check_stats(learned, settings)
    if learned.pending:
        labels.append(learned.pending["y"])
        _check_pending(learned.pending, settings.n_features)
    if len(np.unique(np.concatenate(labels))) != n_classes:
        raise ValueError("classes_ are not those of the rows")


def _check_settings(settings: Settings) -> None:
    if not settings.streaming or settings.features not in (None, "fourier"):
        raise ValueError("the parameters are not those of a stream")
    check_number("n_components", settings.n_components, 1)
    check_number("seed_", settings.seed, 0)
    for name, value in (("prior_precision", settings.prior), ("half_life", settings.half_life)):
        if value is not None:
            check_number(name, value, np.finfo(np.float64).tiny)


def _check_stats(learned: Learned, settings: Settings) -> None:
    """Natural parameters of sites, and a sample of the rows."""
    stats, K, d = learned.stats, len(learned.stats["classes"]), settings.width
    p = d + int(settings.fit_intercept)
    shapes: dict[str, tuple[int, ...]] = {
        "centre": (d,), "precision": (p, p), "linear": (p, K + 1), "mean": (p, K + 1),
        "sums": (d,), "calibration": (2,),
    }  # fmt: skip
    for name, shape in shapes.items():
        check_array(name, stats[name], shape)
    check_array("scale", stats["scale"], (d,), low=float(np.finfo(np.float64).tiny))
    check_array("precision", np.diag(stats["precision"]), (p,), low=0.0)
    check_array("squares", stats["squares"], (d,), low=0.0)
    check_array("class_weight", stats["class_weight"], (K,), low=0.0)
    for name in ("shifted_weight", "weight_squares"):
        check_number(name, stats[name])
    for name in ("sorted_rows", "new_rows"):
        _check_sample(stats["reservoir_arrays"][name], d, K)
    for name in ("n_seen", "capacity"):
        check_number(name, stats["reservoir_arrays"][name], 0)
    if settings.features:
        if not learned.frequencies:
            raise ValueError("map_ is empty")
        check_array("map_", learned.frequencies["frequencies"], (settings.n_features, None))


def _check_sample(sample: dict[str, Any], n_features: int, n_classes: int) -> None:
    n_rows = len(sample["codes"])
    check_array("rows", sample["rows"], (n_rows, n_features))
    check_array("codes", sample["codes"], (n_rows,), kind="int", low=0, high=n_classes - 1)
    check_array("keys", sample["keys"], (n_rows,), finite=False)
    check_array("weight", sample["weight"], (n_rows,), low=0.0)


def _check_pending(rows: dict[str, Any], n_features: int) -> None:
    X, n_rows = rows["X"], len(rows["y"])
    if X.shape != (n_rows, n_features):
        raise ValueError(f"pending_ has rows of shape {X.shape}, not {(n_rows, n_features)}")
    values = X if isinstance(X, np.ndarray) else X.data
    check_array("pending_", values, (None,) * values.ndim)
    check_array("pending_", rows["weight"], (n_rows,), low=0.0)
