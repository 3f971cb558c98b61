"""Where measurements of this page are kept: each says on which processor it was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import read_json, write_json


@dataclass(frozen=True)
class Notes:
    """Records of every part, in a file each; ``again`` measures what is already known."""

    folder: Path
    again: bool = False

    def read(self, part: str) -> dict[str, Any]:
        """All records of a part."""
        return read_json(self.folder / f"{part}.json")

    def keep(self, part: str, key: str, compute: Callable[[], Any]) -> Any:
        """The record of ``key``, computed if it is not known or asked for again."""
        known = self.read(part)
        if self.again or key not in known:
            # read once more: another process may have added to the file meanwhile
            record = {**compute(), "processor": self.read("machine")["cpu"]}
            known = {**self.read(part), key: record}
            write_json(self.folder / f"{part}.json", known)
        return known[key]


def elsewhere(parts: Mapping[str, Mapping[str, Any]], here: str) -> str:
    """A sentence for every other processor than ``here``: which cases were measured on it."""
    told: dict[str, list[str]] = {}
    for part, records in parts.items():
        by_cpu: dict[str, list[str]] = {}
        for key, record in records.items():
            by_cpu.setdefault(record.get("processor", here), []).append(key)
        for cpu, keys in by_cpu.items():
            which = "" if len(by_cpu) == 1 else f" of {_grouped(keys)}"
            told.setdefault(cpu, []).append(f"{part}{which}")
    return "".join(f" Measured on {c}: {'; '.join(t)}." for c, t in told.items() if c != here)


def _grouped(keys: Sequence[str]) -> str:
    """Cases by their data set: ``boston/1`` and ``boston/2`` become ``boston 1 2``.

    Cases with longer names are only counted.
    """
    sets: dict[str, list[str]] = {}
    for key in keys:
        name, _, rest = key.partition("/")
        sets.setdefault(name, []).append(rest)
    return ", ".join(
        f"{name} ({len(rests)})" if any("/" in rest for rest in rests)
        else " ".join([name, *rests]).strip()
        for name, rests in sets.items()
    )  # fmt: skip
