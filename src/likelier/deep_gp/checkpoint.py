"""Checkpoint files, which let a training resume in another process.

A checkpoint holds plain arrays, never code: the parameters, the moments of their gradient, the
step and the seed, and a fingerprint of the estimator's parameters and data.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from likelier.base import Array

SECONDS_BETWEEN = 60.0
# parameters that may differ between the run that wrote a file and the one that resumes it
IGNORED_PARAMETERS = {
    "checkpoint",
    "n_draws",
    "random_state",
    "time_budget",
    "verbose",
    "warm_start",
}


@dataclass
class Checkpoint:
    """A file written atomically, at most once in `SECONDS_BETWEEN` seconds."""

    path: Path
    last: float = field(default_factory=time.perf_counter)

    def read(self) -> dict[str, Any] | None:
        """Content of the file, None if it does not exist."""
        if not self.path.exists():
            return None
        if self.path.is_dir():
            raise ValueError(f"checkpoint {self.path} is a folder; pass the path of a file")
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                found = unflatten({name: archive[name] for name in archive.files})
            if not {"layers", "likelihood", "fingerprint", "training"} <= set(found):
                raise ValueError("not a checkpoint file")
            return found
        except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"checkpoint {self.path} cannot be read ({error}); delete it to start a new fit"
            ) from None

    def check_writable(self) -> None:
        """Raise, before any training, if the file cannot be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
        except OSError as error:
            raise ValueError(
                f"checkpoint {self.path} cannot be written ({error}); pass a path in a writable "
                "folder"
            ) from None

    def check(self, found: Mapping[str, Any], expected: str) -> None:
        """Raise unless the file has this fingerprint."""
        if str(found.get("fingerprint")) != expected:
            raise ValueError(
                f"checkpoint {self.path} belongs to a fit with other parameters or data; delete it "
                "to start a new fit, or pass another path"
            )

    def due(self) -> bool:
        """Whether `SECONDS_BETWEEN` seconds have passed since the last write."""
        return time.perf_counter() - self.last >= SECONDS_BETWEEN

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace the file; an interruption leaves the old one intact."""
        memory = io.BytesIO()
        arrays: dict[str, Any] = flatten(content)  # plain arrays, so nothing is pickled
        np.savez(memory, **arrays)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=self.path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(memory.getbuffer())
            os.replace(draft, self.path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        self.last = time.perf_counter()

    def remove(self) -> None:
        """Delete the file of a completed training."""
        self.path.unlink(missing_ok=True)


def fingerprint(params: Mapping[str, Any], data: tuple[Any, ...]) -> str:
    """Hash of an estimator's parameters and of its data."""
    plain = {name: repr(value) for name, value in params.items() if name not in IGNORED_PARAMETERS}
    if isinstance(params.get("random_state"), int | np.integer):
        plain["random_state"] = repr(int(params["random_state"]))
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for value in data:
        digest.update(np.ascontiguousarray(np.asarray(value, dtype=np.float64)).tobytes())
    return digest.hexdigest()


def flatten(content: Any, path: str = "") -> dict[str, Array]:
    """Flatten nested dictionaries and lists of arrays; keys are joined by slashes."""
    if isinstance(content, Mapping):
        items = [(str(name), value) for name, value in content.items()]
    elif isinstance(content, list):
        items = [(f"#{number:04d}", value) for number, value in enumerate(content)]
    else:
        return {path: np.asarray(content)}
    flat: dict[str, Array] = {}
    for name, value in items:
        flat.update(flatten(value, f"{path}/{name}" if path else name))
    return flat


def unflatten(flat: Mapping[str, Array]) -> dict[str, Any]:
    """Inverse of `flatten`, for a dictionary."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *outer, last = path.split("/")
        inside = tree
        for name in outer:
            inside = inside.setdefault(name, {})
        inside[last] = value
    return dict(_with_lists(tree))


def _with_lists(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    inside = {name: _with_lists(value) for name, value in tree.items()}
    if inside and all(name.startswith("#") for name in inside):
        return [inside[name] for name in sorted(inside)]
    return inside
