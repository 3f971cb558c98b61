"""The fingerprint of a fit: a short text that fits of other data or parameters do not have."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import scipy
from scipy import sparse

from likelier import __version__
from likelier.base import Array, Batch
from likelier.data import Source
from likelier.data.files import as_path
from likelier.data.tables import open_table
from likelier.fitting.dataset import is_stream

# Parameters that no fitted value depends on.
RUN_ONLY = frozenset({"callbacks", "checkpoint", "n_jobs", "verbose"})
_CHUNK_BYTES = 1 << 20  # hashed at each end of a file, and of strided arrays at a time
_FRAME_ROWS = 1 << 14
_LONGEST_TEXT = 200
_PLAIN = (bool, int, float, str, type(None))

Facts = dict[str, Any]


def fingerprint(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[str, Facts]:
    """Return 16 hexadecimal characters that name a fit, and the plain facts they stand for.

    Two fits have the same fingerprint where class, parameters (except `RUN_ONLY`), data and the
    versions of likelier, NumPy and SciPy are equal. Of a file the size, the time of its last
    change and its first and last megabyte count; of blocks the first one.

    Parameters
    ----------
    estimator : estimator
        Its parameters are described by ``get_params(deep=False)``.
    X, y, sample_weight : array-like, sparse matrix, frame, path, blocks or None
        What ``fit`` was given. An array in Fortran order is not the same as one in C order.

    Returns
    -------
    digest : str
        Digest of the facts.
    facts : dict of str to None, bool, int, float or str
        What `likelier.files.journal.Journal.open` stores and compares.

    Raises
    ------
    ValueError
        Where a fit could not be resumed: ``random_state`` is not an int, blocks can be read only
        once, or a parameter is a function, which may have changed without a trace.

    Notes
    -----
    One pass over the data, at about 1 GB/s for arrays and CSR matrices; arrays of objects are
    hashed one by one, at some million a second.
    """
    facts: Facts = {"class": _name(type(estimator)), **_parameters(estimator)}
    for name, data in (("X", X), ("y", y), ("sample_weight", sample_weight)):
        facts |= _data(name, data)
    facts |= {"likelier": __version__, "numpy": np.__version__, "scipy": scipy.__version__}
    text = json.dumps(facts, sort_keys=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=8).hexdigest(), facts


# -- parameters -----------------------------------------------------------------------------------


def _parameters(estimator: Any) -> Facts:
    params = estimator.get_params(deep=False)
    if "random_state" in params:
        _check_random_state(params["random_state"])
    return {name: _plain(item, name) for name, item in params.items() if name not in RUN_ONLY}


def _check_random_state(value: Any) -> None:
    if not isinstance(value, Integral):
        raise ValueError(
            f"checkpoint needs an int as random_state, got {value!r}: only then does a resumed fit "
            "give the same result; set random_state=0, for example"
        )


def _plain(value: Any, name: str) -> Any:
    """Return a parameter as it is, or as text that another value does not have."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, _PLAIN) else _text(value, name)


def _text(value: Any, name: str) -> str:
    """Return a text for a parameter of any kind, which does not depend on where it is stored."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return f"{kind}({', '.join(_text(item, name) for item in value)})"
    if isinstance(value, set | frozenset):
        return f"set({', '.join(sorted(_text(item, name) for item in value))})"
    if isinstance(value, Mapping):
        pairs = (f"{_text(key, name)}: {_text(item, name)}" for key, item in value.items())
        return f"dict({', '.join(sorted(pairs))})"
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, type | np.dtype):
        return _name(value) if isinstance(value, type) else str(value)
    return _object_text(value, name)


def _object_text(value: Any, name: str) -> str:
    if isinstance(value, np.ndarray) or sparse.issparse(value):
        return ", ".join(map(str, _data("array", value).values()))
    parts: Mapping[str, Any]
    if is_dataclass(value):
        parts = {item.name: getattr(value, item.name) for item in fields(value)}
    elif hasattr(value, "get_params"):
        parts = _parameters(value)
    else:
        raise ValueError(
            f"checkpoint cannot tell whether {name}={value!r} is the same when the fit is resumed: "
            "fit without checkpoint, or give a value instead of a function or object"
        )
    inside = ", ".join(f"{key}={_text(item, name)}" for key, item in parts.items())
    return f"{_name(type(value))}({inside})"


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


# -- data -----------------------------------------------------------------------------------------


def _data(name: str, data: Any) -> Facts:
    """Describe what was given as X, y or sample_weight."""
    if data is None:
        return {name: None}
    if name != "X" and isinstance(data, str):  # the target column of a file
        return {name: data}
    if isinstance(data, str | os.PathLike):
        return _file(name, data)
    if isinstance(data, list | tuple) and data and all(map(_is_file, data)):
        return {k: v for i, path in enumerate(data) for k, v in _file(f"{name}[{i}]", path).items()}
    if sparse.issparse(data):
        return _sparse(name, data)
    if isinstance(data, dict) or nw.dependencies.is_into_dataframe(data):
        return _frame(name, data)
    if is_stream(data):
        return _blocks(name, data)
    return _array(name, _as_array(data))


def _is_file(item: Any) -> bool:
    return isinstance(item, os.PathLike) or (isinstance(item, str) and os.path.isfile(item))


def _file(name: str, path: str | os.PathLike[str]) -> Facts:
    digest = _new_digest()
    with open(as_path(path), "rb") as file:
        facts = os.fstat(file.fileno())
        digest.update(file.read(_CHUNK_BYTES))
        file.seek(max(0, facts.st_size - _CHUNK_BYTES))
        digest.update(file.read(_CHUNK_BYTES))
    return {
        f"size of {name}": facts.st_size,
        f"time of {name}": facts.st_mtime_ns,
        f"values of {name}": digest.hexdigest(),
    }


def _blocks(name: str, data: Iterable[Any] | Callable[[], Iterable[Any]]) -> Facts:
    """Describe blocks by the first of them; they must be there again for the resumed fit."""
    if isinstance(data, Source) and not data.repeatable:
        raise _read_once(name)
    blocks = iter(data() if callable(data) else data)
    if blocks is data:
        raise _read_once(name)
    first = next(blocks, None)
    if isinstance(blocks, Generator):
        blocks.close()  # it may hold a file
    if isinstance(first, Batch):
        first = (first.X, first.y, first.weight)
    parts = first if isinstance(first, tuple | list) else (first,)
    facts: Facts = {name: "blocks, of which the first is compared"}
    for part, item in zip(("X", "y", "sample_weight"), parts, strict=False):
        facts |= _data(f"{part} of the first block", item)
    return facts


def _read_once(name: str) -> ValueError:
    return ValueError(
        f"checkpoint needs data that can be read again when the fit is resumed, and {name} can be "
        "read only once: give a function that returns a new iterator, or a file"
    )


def _sparse(name: str, matrix: Any) -> Facts:
    rows = matrix.tocsr()
    digest = _new_digest()
    for part in (rows.data, rows.indices, rows.indptr):
        digest.update(f"{part.dtype.str} {part.shape}".encode("ascii"))
        _hash(digest, part)
    return _facts(name, rows.shape, f"sparse {rows.dtype}", digest)


def _frame(name: str, frame: Any) -> Facts:
    """Describe the columns as Arrow has them, block by block, names and types included."""
    try:
        table = open_table(frame)
    except (TypeError, ValueError):  # such as sparse columns of pandas
        return _array(name, np.asarray(frame))
    digest, writer, n_rows = _new_digest(), None, 0
    for batch in table.blocks(_FRAME_ROWS):
        batch = batch.replace_schema_metadata(None)
        if writer is None:
            writer = pa.ipc.new_stream(_Sink(digest), batch.schema)
        writer.write_batch(batch)
        n_rows += batch.num_rows
    names = ", ".join(map(repr, table.column_names))
    if len(names) > _LONGEST_TEXT:
        names = f"{names[:_LONGEST_TEXT]}..., {hashlib.blake2b(names.encode()).hexdigest()[:16]}"
    facts = _facts(name, (n_rows, len(table.column_names)), "frame", digest)
    return {f"columns of {name}": names, **facts}


class _Sink:
    """A file for Arrow that only hashes."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        pass


def _as_array(data: Any) -> Array:
    try:
        return np.asarray(data)
    except ValueError:  # label sets of different sizes
        array = np.empty(len(data), dtype=object)
        array[:] = data
        return array


def _array(name: str, array: Array) -> Facts:
    digest = _new_digest()
    columns = array.flags.f_contiguous and not array.flags.c_contiguous
    _hash(digest, array.T if columns else array)
    return _facts(name, array.shape, f"{array.dtype}{' in Fortran order' * columns}", digest)


def _facts(name: str, shape: tuple[int, ...], kind: str, digest: Any) -> Facts:
    return {
        f"shape of {name}": " x ".join(map(str, shape)),
        f"type of {name}": kind,
        f"values of {name}": digest.hexdigest(),
    }


def _new_digest() -> Any:
    return hashlib.blake2b(digest_size=8)


def _hash(digest: Any, array: Array) -> None:
    """Add the values of an array in C order; the caller adds shape and type."""
    if array.dtype.hasobject:
        for item in array.ravel():
            digest.update(f"{_item_text(item)}\n".encode("utf8", "surrogatepass"))
    elif array.flags.c_contiguous:
        if array.nbytes:
            digest.update(array.reshape(-1).view(np.uint8))
    else:
        n_rows = max(1, _CHUNK_BYTES * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), n_rows):
            _hash(digest, np.ascontiguousarray(array[start : start + n_rows]))


def _item_text(item: Any) -> str:
    if isinstance(item, set | frozenset):  # whose order depends on the process
        return f"set {sorted(map(repr, item))}"
    return f"{type(item).__name__} {item!r}"
