"""Values of a model to plain JSON and named arrays, and back.

JSON keeps None, bool, int, finite float, str and list as they are; everything else becomes an
object with exactly one key, its kind: ``{"array": {...}}``, ``{"dict": [[key, value], ...]}``.
So no value of a user can be mistaken for a tag.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Loss

ClassOf = Callable[[str], Any]  # the class of this name that may be stored, or None

_ROUTING = "_metadata_request"
_RUN_ONLY = ("_skl_callback", "_callback_fit_ctx", "_parent_callback_ctx")
_DTYPE = re.compile(r"[<>|](?:b1|[iu][1248]|f[248]|c8|c16|[US][1-9]\d{0,8})")


def is_estimator(cls: type) -> bool:
    """Whether instances are stored by their parameters and fitted attributes."""
    return any(f"{c.__module__}.{c.__name__}" == "sklearn.base.BaseEstimator" for c in cls.__mro__)


class Encoder:
    """Turns values into JSON, and collects their arrays.

    ``class_of`` gives the class of a name that may be stored; it is the allow-list.
    """

    def __init__(self, class_of: ClassOf) -> None:
        self._class_of = class_of
        self.arrays: dict[str, Array] = {}
        self.dropped_generators: list[str] = []
        # The original is kept beside its name: an id is unique only while its object lives.
        self._names: dict[int, tuple[Array, str]] = {}

    def estimator(self, model: Any, where: str) -> dict[str, Any]:
        """Return class, parameters and fitted attributes of an estimator."""
        cls: Any = type(model)
        if not is_estimator(cls) or self._class_of(cls.__name__) is not cls:
            raise TypeError(
                f"{where} cannot be saved: {cls.__module__}.{cls.__name__} is not on the list of "
                "savable classes. For an estimator of your own call "
                "likelier.registry.register_savable on its class, before saving and loading."
            )
        getattr(model, "_before_saving", lambda: None)()  # what a model still has to do
        params = model.get_params(deep=False)
        fitted = {
            key: value
            for key, value in vars(model).items()
            if key not in params and key != _ROUTING and not key.startswith(_RUN_ONLY)
        }
        try:
            plain = {
                "class": cls.__name__,
                "params": {k: self._param(v, f"{where}.{k}") for k, v in params.items()},
                "fitted": {k: self.value(v, f"{where}.{k}") for k, v in fitted.items()},
            }
        except RecursionError:
            raise TypeError(f"{where} is nested too deeply, or contains itself.") from None
        if _ROUTING in vars(model):
            plain["routing"] = _routing_of(model)
        return plain

    def _param(self, value: Any, where: str) -> Any:
        if isinstance(value, np.random.RandomState | np.random.Generator):
            self.dropped_generators.append(where)
            return None
        return self.value(value, where)

    def value(self, value: Any, where: str) -> Any:
        """Return the JSON form of any storable value."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if np.isfinite(value) else {"float": str(value)}
        if kind is list:
            return [self.value(item, f"{where}.{i}") for i, item in enumerate(value)]
        if kind is tuple:
            return {"tuple": [self.value(item, f"{where}.{i}") for i, item in enumerate(value)]}
        if kind is dict:
            return {"dict": [self._pair(key, item, where) for key, item in value.items()]}
        if isinstance(value, np.generic):
            return {"scalar": [_checked_dtype(value.dtype, where), value.tobytes().hex()]}
        if isinstance(value, np.ndarray):
            return {"array": self._array(value, where)}
        return self._object(value, where)

    def _pair(self, key: Any, item: Any, where: str) -> list[Any]:
        if not isinstance(key, str | int | float | np.generic):  # class_weight has any label
            raise TypeError(f"{where} cannot be saved: its key {key!r} is not text or a number.")
        return [self.value(key, where), self.value(item, f"{where}.{key}")]

    def _object(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, Loss):
            plain = value.to_json().items()
            return {"loss": {key: self.value(item, f"{where}.{key}") for key, item in plain}}
        if isinstance(value, sparse.csr_array | sparse.csr_matrix):
            return {"csr": self._csr(value, where)}
        if is_estimator(type(value)):
            return {"estimator": self.estimator(value, where)}
        cls: Any = type(value)
        if self._class_of(cls.__name__) is cls:
            return {"object": [cls.__name__, self.value(value.to_json(), where)]}
        advice = ""
        if sparse.issparse(value):
            advice = " Convert it with .tocsr()."
        elif isinstance(value, np.random.RandomState | np.random.Generator):
            advice = " Use an int as random_state."
        elif callable(value):
            advice = " Functions cannot be stored without pickle."
        raise TypeError(f"{where} cannot be saved: it is a {cls.__qualname__}.{advice}")

    def _csr(self, matrix: Any, where: str) -> dict[str, Any]:
        parts = {key: getattr(matrix, key) for key in ("data", "indices", "indptr")}
        return {
            "matrix": isinstance(matrix, sparse.csr_matrix),
            "shape": list(matrix.shape),
            **{key: self._array(part, f"{where}.{key}") for key, part in parts.items()},
        }

    def _array(self, array: Array, where: str) -> dict[str, Any]:
        if type(array) not in (np.ndarray, np.memmap):
            raise TypeError(
                f"{where} cannot be saved: it is a {type(array).__name__}; "
                "convert it with numpy.asarray."
            )
        plain: dict[str, Any] = {"shape": list(array.shape)}
        if array.dtype == object:
            items = enumerate(array.ravel().tolist())
            plain["objects"] = [self.value(item, f"{where}.{i}") for i, item in items]
            return plain
        plain["dtype"] = _checked_dtype(array.dtype, where)
        # Column-major arrays stay so: BLAS may round differently on the other layout.
        plain["columns"] = array.flags.f_contiguous and not array.flags.c_contiguous
        plain["name"] = self._store(array, where)
        return plain

    def _store(self, array: Array, where: str) -> str:
        """Keep the array under its path; the same object met twice is stored once."""
        if id(array) in self._names:
            return self._names[id(array)][1]
        name = base = where.partition(".")[2] or where
        number = 2
        while name in self.arrays:
            name, number = f"{base}#{number}", number + 1
        ordered = array.T if array.flags.f_contiguous else np.ascontiguousarray(array)
        flat = ordered.reshape(-1).view(_carrier(array.dtype))
        self.arrays[name] = flat.reshape(ordered.shape) if flat.size == array.size else flat
        self._names[id(array)] = (array, name)
        return name


class Decoder:
    """Turns JSON and named arrays back into values; trusts nothing."""

    def __init__(self, arrays: dict[str, Array], class_of: ClassOf) -> None:
        self._class_of = class_of
        self._stored = arrays
        self._rebuilt: dict[tuple[Any, ...], Array] = {}

    def estimator(self, plain: dict[str, Any]) -> Any:
        """Return the estimator that `Encoder.estimator` described."""
        cls = self._class(plain["class"], estimator=True)
        params = {key: self.value(item) for key, item in plain["params"].items()}
        known = inspect.signature(cls).parameters
        for key in params:
            if key not in known:
                raise ValueError(
                    f"{cls.__name__} has no parameter {key!r} in this version of likelier; "
                    "load the model with the version that saved it."
                )
        model = cls(**params)
        vars(model).update({key: self.value(item) for key, item in plain["fitted"].items()})
        if plain.get("routing"):
            _route(model, plain["routing"])
        return model

    def _class(self, name: Any, estimator: bool) -> Any:
        cls = self._class_of(name) if isinstance(name, str) else None
        if cls is None or is_estimator(cls) is not estimator:
            raise ValueError(
                f"the model is of class {name!r}, which this program does not know. If it is your "
                "own class, call likelier.registry.register_savable on it before loading; "
                "otherwise upgrade likelier."
            )
        return cls

    def value(self, plain: Any) -> Any:
        """Return the value that `Encoder.value` described."""
        if isinstance(plain, list):
            return [self.value(item) for item in plain]
        if not isinstance(plain, dict):
            return plain
        if len(plain) != 1:
            raise ValueError("a value in the manifest does not have exactly one kind.")
        ((kind, content),) = plain.items()
        kinds: dict[str, Callable[[Any], Any]] = {
            "float": float,
            "tuple": lambda items: tuple(map(self.value, items)),
            "dict": lambda pairs: {self.value(key): self.value(item) for key, item in pairs},
            "scalar": _scalar,
            "array": self._array,
            "csr": self._csr,
            "loss": self._loss,
            "estimator": self.estimator,
            "object": self._object,
        }
        if kind not in kinds:
            raise ValueError(f"the manifest holds a value of unknown kind {kind!r}.")
        return kinds[kind](content)

    def _object(self, content: list[Any]) -> Any:
        name, plain = content
        return self._class(name, estimator=False).from_json(self.value(plain))

    def _loss(self, content: dict[str, Any]) -> Any:
        losses = importlib.import_module("likelier.losses")
        return losses.make_loss({key: self.value(item) for key, item in content.items()})

    def _csr(self, content: dict[str, Any]) -> Any:
        kind: Any = sparse.csr_matrix if content["matrix"] else sparse.csr_array
        parts = tuple(self._array(content[key]) for key in ("data", "indices", "indptr"))
        matrix = kind(parts, shape=_shape(content["shape"]))
        matrix.check_format(full_check=True)
        return matrix

    def _array(self, content: dict[str, Any]) -> Array:
        shape = _shape(content["shape"])
        if "objects" in content:
            items = content["objects"]
            array = np.empty(len(items), dtype=object)
            array[:] = [self.value(item) for item in items]
            return array.reshape(shape)
        # The same description means the same object in the saved model: shared again.
        key = (content["name"], content["dtype"], shape, content["columns"])
        if key not in self._rebuilt:
            self._rebuilt[key] = self._rebuild(*key)
        return self._rebuilt[key]

    def _rebuild(self, name: str, dtype: str, shape: tuple[int, ...], columns: bool) -> Array:
        if name not in self._stored:
            raise ValueError(f"the array {name!r} is missing from the file.")
        kind = _parsed_dtype(dtype)
        carrier = _carrier(kind)
        stored = self._stored[name]
        if stored.dtype != carrier.newbyteorder("="):
            raise ValueError(f"the array {name!r} is stored as {stored.dtype}, not {carrier}.")
        # astype copies: the array owns its memory, and partial_fit may write to it.
        flat = stored.reshape(-1).astype(carrier).view(kind)
        return flat.reshape(shape[::-1]).T if columns else flat.reshape(shape)


@dataclass(frozen=True)
class Fitted:
    """An estimator of a file without its class: parameters and fitted attributes, by name."""

    name: str
    values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"the file holds no {name} of {self.name}") from None


class FittedDecoder(Decoder):
    """Leaves estimators as what the file holds of them, so that scikit-learn is not needed."""

    def estimator(self, plain: dict[str, Any]) -> Any:
        """Return parameters and fitted attributes."""
        parts = {**plain["params"], **plain["fitted"]}
        return Fitted(str(plain["class"]), {key: self.value(item) for key, item in parts.items()})


def _route(model: Any, routing: dict[str, dict[str, Any]]) -> None:
    """Set what was set by ``set_fit_request`` and its like."""
    from sklearn import config_context  # which loading a `Fitted` does not need

    with config_context(enable_metadata_routing=True):
        for method, requests in routing.items():
            if not method.isidentifier():
                raise ValueError(f"{method!r} is not the name of a method.")
            getattr(model, f"set_{method}_request")(**requests)


def _carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type safetensors knows that carries the bytes of this one."""
    if dtype.kind == "c":
        carrier = np.dtype(f"f{dtype.itemsize // 2}")
    elif dtype.kind in "US":
        carrier = np.dtype("u4" if dtype.kind == "U" else "u1")
    else:
        return dtype
    return carrier.newbyteorder(dtype.byteorder)


def _checked_dtype(dtype: np.dtype[Any], where: str) -> str:
    if not _DTYPE.fullmatch(dtype.str):
        raise TypeError(f"{where} cannot be saved: NumPy type {dtype} has no portable form.")
    return dtype.str


def _parsed_dtype(text: str) -> np.dtype[Any]:
    if not _DTYPE.fullmatch(text):
        raise ValueError(f"the manifest names an unknown NumPy type {text!r}.")
    return np.dtype(text)


def _shape(lengths: list[Any]) -> tuple[int, ...]:
    if not all(type(length) is int and length >= 0 for length in lengths):
        raise ValueError(f"{lengths!r} is not the shape of an array.")
    return tuple(lengths)


def _scalar(content: list[str]) -> Any:
    dtype, data = content
    (value,) = np.frombuffer(bytes.fromhex(data), dtype=_parsed_dtype(dtype))
    return value


def _routing_of(model: Any) -> dict[str, dict[str, Any]]:
    """Return what was set by ``set_fit_request`` and its like, by method."""
    routing = model.get_metadata_routing()
    asked = {}
    for method in vars(routing):
        requests = getattr(getattr(routing, method), "requests", None)
        if requests:
            asked[method] = dict(requests)
    return asked
