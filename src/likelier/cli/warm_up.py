"""``likelier warm-up``: compile ahead of time, by small fits of every public estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from inspect import signature
from typing import Any

import numpy as np
from numba import config
from scipy import sparse
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils import get_tags

import likelier
from likelier.base import Array
from likelier.fitting.loops.finite import sum_of_squares
from likelier.jit import ReadOnlyCache

ROWS, COLUMNS = 300, 4  # support vector machines use a different loop for fewer rows
QUICK = {"hidden_dim": 2, "n_inducing": 10, "probability": True}
METHODS = ("predict", "predict_proba", "predict_interval", "transform")
DOCUMENTS = ["one two three", "two three four", "three four five"] * 4


def warm_up(log: Callable[[str], None]) -> None:
    """Fit all estimators on small data, so that later processes find the compiled code."""
    folder = cache_folder()
    if folder is None:
        raise OSError(
            "no writable folder for compiled code; set NUMBA_CACHE_DIR to a writable folder"
        )
    names = public_estimators()
    for number, name in enumerate(names, start=1):
        log(f"{number}/{len(names)} {name}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these short fits do not converge
            _run(name)
    log(f"Compiled code is in {folder}.")


def cache_folder() -> str | None:
    """Folder of the compiled code; None if it is not writable."""
    cache = sum_of_squares._cache
    path: str | None = None if isinstance(cache, ReadOnlyCache) else cache.cache_path
    return None if path is None else str(config.CACHE_DIR or path)


def public_estimators() -> list[str]:
    """Names of all estimators that can be fitted here: deep Gaussian processes need jax."""
    names = [name for name in likelier.__all__ if name[0].isupper()]
    if find_spec("jax") is None:
        names = [name for name in names if not name.startswith("DeepGP")]
    kinds = {name: getattr(likelier, name) for name in names}
    return [name for name, kind in kinds.items() if issubclass(kind, BaseEstimator)]


def _run(name: str) -> None:
    """Fit one estimator and call its methods, with dense and sparse rows."""
    kind = getattr(likelier, name)
    known = signature(kind).parameters
    given: dict[str, Any] = {key: value for key, value in QUICK.items() if key in known}
    if name == "BayesianLinearClassifier":
        given["inference"] = likelier.MCMC(n_draws=10, n_warmup=10)
    if name.startswith("DeepGP"):  # compiled for one data size only, so a short fit suffices
        given |= {"max_iter": 10}
    for X, y in _problems(kind(**given)):
        model = kind(**given).fit(X, y)
        for method in METHODS:
            if hasattr(model, method):
                getattr(model, method)(X)


def _problems(model: Any) -> Iterator[tuple[Any, Array | None]]:
    if not get_tags(model).input_tags.two_d_array:
        yield DOCUMENTS, None
        return
    rng = np.random.default_rng(0)
    dense = rng.poisson(1.0, (ROWS, COLUMNS)).astype(np.float64)
    score = dense @ rng.normal(size=COLUMNS) + rng.normal(size=ROWS)
    ranks = np.argsort(np.argsort(score))
    targets = [score] if is_regressor(model) else [ranks * k // ROWS for k in (2, 3)]
    for X in (dense, sparse.csr_array(dense)):
        for y in targets:
            yield X, y
