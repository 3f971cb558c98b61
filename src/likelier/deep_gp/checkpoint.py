"""Files that let a long training go on after its process has ended.

A checkpoint holds plain arrays, never code: the parameters, the moments of their slopes, the
step and the seed, and a mark of the words and data that they belong to.
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
# words that may differ between the run that wrote a file and the one that goes on
FREE_WORDS = {"checkpoint", "n_draws", "random_state", "time_budget", "verbose", "warm_start"}


@dataclass
class Checkpoint:
    """One file, written at most once in `SECONDS_BETWEEN` seconds, and all at once."""

    path: Path
    last: float = field(default_factory=time.perf_counter)

    def read(self) -> dict[str, Any] | None:
        """What an unfinished training left behind, or None where there is no file."""
        if not self.path.exists():
            return None
        if self.path.is_dir():
            raise ValueError(f"checkpoint {self.path} is a folder; name a file, such as one in it")
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                found = unflatten({name: archive[name] for name in archive.files})
            if not {"layers", "likelihood", "mark", "training"} <= set(found):
                raise ValueError("it is another kind of file")
            return found
        except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"checkpoint {self.path} cannot be read ({error}); delete it to start anew"
            ) from None

    def check_place(self) -> None:
        """Raise before any training where the file could not be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
        except OSError as error:
            raise ValueError(
                f"checkpoint {self.path} cannot be written ({error}); name a file in a folder of "
                "yours"
            ) from None

    def check(self, found: Mapping[str, Any], mark: str) -> None:
        """Raise unless the file belongs to these words and data."""
        if str(found.get("mark")) != mark:
            raise ValueError(
                f"checkpoint {self.path} belongs to other words or data; delete it to start anew, "
                "or name another file"
            )

    def due(self) -> bool:
        """Whether it is time to write."""
        return time.perf_counter() - self.last >= SECONDS_BETWEEN

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace the file; whoever stops in between leaves the old one."""
        memory = io.BytesIO()
        arrays: dict[str, Any] = flatten(content)  # all plain, so nothing is pickled
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
        """The training is complete: nothing is left to go on with."""
        self.path.unlink(missing_ok=True)


def mark_of(words: Mapping[str, Any], data: tuple[Any, ...]) -> str:
    """A mark that other words or other data would not have."""
    told = {name: repr(value) for name, value in words.items() if name not in FREE_WORDS}
    if isinstance(words.get("random_state"), int | np.integer):
        told["random_state"] = repr(int(words["random_state"]))
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for value in data:
        digest.update(np.ascontiguousarray(np.asarray(value, dtype=np.float64)).tobytes())
    return digest.hexdigest()


def flatten(content: Any, place: str = "") -> dict[str, Array]:
    """Dictionaries and lists of arrays as one dictionary; places are joined by slashes."""
    if isinstance(content, Mapping):
        items = [(str(name), value) for name, value in content.items()]
    elif isinstance(content, list):
        items = [(f"#{number:04d}", value) for number, value in enumerate(content)]
    else:
        return {place: np.asarray(content)}
    flat: dict[str, Array] = {}
    for name, value in items:
        flat.update(flatten(value, f"{place}/{name}" if place else name))
    return flat


def unflatten(flat: Mapping[str, Array]) -> dict[str, Any]:
    """Inverse of `flatten`, for a dictionary."""
    tree: dict[str, Any] = {}
    for place, value in flat.items():
        *outer, last = place.split("/")
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
