"""Shared by all tests: where compiled code is cached, and the real data sets."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import settings
from scipy import sparse

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import numba_cache  # noqa: E402

# Before numba is imported by anyone: it reads this variable once.
os.environ["NUMBA_CACHE_DIR"] = str(numba_cache.cache_dir(ROOT))
# Compiled programs of deep Gaussian processes: not among those of the user. Each is named by its
# sources, so that this folder too can be kept between runs.
os.environ.setdefault("LIKELIER_CACHE_DIR", str(ROOT / ".cache" / "programs"))

# Workers side by side share the cores. XLA starts a thread for every core in each of them, unless
# this variable says how many there are, and small programs then take half as much time again.
if (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
    os.environ.setdefault("NPROC", str(max(1, (os.cpu_count() or 1) // workers)))

# The first example of a property may compile, which no deadline of hypothesis allows for.
settings.register_profile("likelier", parent=settings.default, deadline=None)
settings.load_profile("likelier")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep tests together that share compiled programs; another ``--dist`` is obeyed."""
    if config.getoption("dist") != "load":
        return None
    from tests.groups import GroupScheduling

    return GroupScheduling(config, log)


@dataclass(frozen=True)
class DataSet:
    """A real data set: training rows, a test part where one is shipped, and whatever else."""

    name: str
    X: Any
    y: Any
    Xt: Any = None
    yt: Any = None
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)


@pytest.fixture(scope="session")
def data_set() -> Callable[[str], DataSet]:
    """Load ``<LIKELIER_DATA>/<name>.npz``; skip the test where the folder is not available."""
    return load_data_set


def load_data_set(name: str) -> DataSet:
    """Read one data set; features become floats, sparse ones `scipy.sparse.csr_array`."""
    folder = os.environ.get("LIKELIER_DATA", "")
    if not folder:
        data_not_available("the variable LIKELIER_DATA, which names their folder, is not set")
    if not Path(folder).is_dir():
        data_not_available(f"LIKELIER_DATA names {folder!r}, which is not a folder")
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        data_not_available(f"LIKELIER_DATA has no file {path.name!r}")
    arrays = _read_arrays(path)
    parts = {"X": _features(arrays, "X"), "y": _targets(arrays, "")}
    if any(key == "Xt" or key.startswith("Xt_") for key in arrays):
        parts |= {"Xt": _features(arrays, "Xt"), "yt": _targets(arrays, "t")}
    return DataSet(name, **parts, extra=arrays)


def data_not_available(reason: str) -> NoReturn:
    """Fail on continuous integration, where the data must be there; skip elsewhere."""
    message = f"needs the real data sets: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file, leaving out the odd one stored as a pickle (names in adult)."""
    arrays = {}
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            try:
                arrays[key] = file[key]
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
    return arrays


def _features(arrays: dict[str, np.ndarray], key: str) -> Any:
    """Take the matrix ``key`` out of ``arrays``, dense or CSR."""
    if key in arrays:
        return _as_float(arrays.pop(key))
    data, indices, indptr = (arrays.pop(f"{key}_{part}") for part in ("data", "indices", "indptr"))
    shape = tuple(int(n) for n in arrays.pop(f"{key}_shape"))
    # The files hold the smallest integer type; scipy's own index type is int32 or int64.
    index_type = np.int32 if len(data) < np.iinfo(np.int32).max else np.int64
    return sparse.csr_array(
        (_as_float(data), indices.astype(index_type), indptr.astype(index_type)), shape=shape
    )


def _as_float(values: np.ndarray) -> np.ndarray:
    """Cast integers to the smallest float type that holds them exactly."""
    if np.issubdtype(values.dtype, np.floating):
        return values
    return values.astype(np.float32 if values.dtype.itemsize <= 2 else np.float64)


def _targets(arrays: dict[str, np.ndarray], suffix: str) -> Any:
    """Take labels (``y``), or a 0/1 label matrix (``Y``, or the sparse form of it)."""
    for key in (f"y{suffix}", f"Y{suffix}"):
        if key in arrays:
            return arrays.pop(key)
    indices, indptr, shape = (
        arrays.pop(f"Y{suffix}_{part}") for part in ("indices", "indptr", "shape")
    )
    labels = np.zeros(tuple(int(n) for n in shape), dtype=np.uint8)
    labels[np.repeat(np.arange(labels.shape[0]), np.diff(indptr.astype(np.int64))), indices] = 1
    return labels
