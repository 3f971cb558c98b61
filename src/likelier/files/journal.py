"""The journal of a fit: results of its stages, in one file that is always whole."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from likelier.files.archive import replacing
from likelier.files.states import decode, encode

FORMAT = 1
_MAGIC = b"likelier checkpoint\n"
_HEADER = struct.Struct("<Q32s")  # length and digest of the index, which follows
_SHOWN_DIFFERENCES = 3
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class _Entry:
    """The encoded result of a finished stage, or the state of the one under way."""

    stage: str
    is_open: bool
    data: bytes

    @cached_property
    def digest(self) -> str:
        return _digest(self.data).hex()


class Journal:
    """Results of the stages of one fit, in one file that is always whole.

    The file is ``FOLDER/likelier-<fingerprint>.checkpoint``; the version before it is kept as
    ``.checkpoint.previous``. A kill at any moment leaves one of the two whole. Every byte is
    covered by a digest: a file that is damaged, cut short or of another kind is never used.
    Values may be what `likelier.files.states` can encode; nothing that could run code.

    Attributes
    ----------
    resumed : bool
        Whether results or a state of an earlier fit were found.
    problem : str
        One line on a file that could not be used, or "".
    nearest : str
        One sentence on how the fits whose checkpoints are in the folder differ from this one, if
        there is none of this fit; or "".

    Notes
    -----
    ``record`` and ``keep`` encode and hash their value only (a few hundred megabytes a second),
    then write and flush the whole file: its size is that of all results and the state. The
    encoded results stay in memory. `open` decodes everything once, to be sure that it can.
    Two simultaneous fits with the same fingerprint never damage the file, but the one that ends
    first removes it.
    """

    def __init__(self, folder: Path, fingerprint: str, description: Mapping[str, Any]) -> None:
        self.path = folder / f"likelier-{fingerprint}.checkpoint"
        self.previous = self.path.with_name(f"{self.path.name}.previous")
        self.resumed = False
        self.problem = ""
        self.nearest = ""
        self._fingerprint = fingerprint
        self._description = dict(description)
        self._results: dict[str, _Entry] = {}
        self._open: _Entry | None = None
        self._is_whole = False  # whether the newest file is worth keeping as the previous one
        self._has_warned = False

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], fingerprint: str, description: Mapping[str, Any]
    ) -> Journal:
        """Read what an earlier fit left in a folder; nothing is written yet.

        Parameters
        ----------
        folder : path-like
            Where checkpoints are. It is created when needed, inside a folder that exists.
        fingerprint : str
            Letters and digits that fits of other data or parameters do not have.
        description : mapping of str to None, bool, int, float or str
            What the fingerprint was made of, to name differences.
        """
        if not fingerprint.isalnum():
            raise ValueError(f"fingerprint must be letters and digits, got {fingerprint!r}")
        place = Path(os.path.abspath(folder))
        if not place.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint={str(folder)!r}: the folder {place.parent} does not exist; create it "
                "first"
            )
        if place.exists() and not place.is_dir():
            raise NotADirectoryError(
                f"checkpoint={str(folder)!r} is a file; name a folder for checkpoints"
            )
        journal = cls(place, fingerprint, description)
        journal._remove_unfinished()
        journal._find()
        return journal

    def has(self, stage: str) -> bool:
        """Whether the stage is finished."""
        return stage in self._results

    def result(self, stage: str) -> Any:
        """Return a new copy of the recorded result of a finished stage."""
        return decode(self._results[stage].data)

    def record(self, stage: str, value: Any) -> None:
        """Write the result of a stage that is finished, and drop the state under way."""
        self._results[stage] = _Entry(stage, False, encode(value, f"result of {stage!r}"))
        self._open = None
        self._write()

    def state(self, stage: str) -> Any | None:
        """Return a new copy of the state of the stage, if it is the one under way."""
        if self._open is None or self._open.stage != stage:
            return None
        return decode(self._open.data)

    def keep(self, stage: str, state: Any) -> None:
        """Write the state of the stage under way, in place of any earlier one."""
        self._open = _Entry(stage, True, encode(state, f"state of {stage!r}"))
        self._write()

    def finish(self) -> None:
        """Remove the files: the fit is complete."""
        self._is_whole = False
        try:
            self.previous.unlink(missing_ok=True)  # first: an older file must not be the last
            self.path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(error, "its file stays there: remove it")
        self._remove_unfinished()

    # -- reading ------------------------------------------------------------------------------
    def _find(self) -> None:
        """Take over the newest whole file, or say what the others in the folder are."""
        for path in (self.path, self.previous):
            try:
                entries = _read(path, self._fingerprint)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self._add_problem(path, error)
                continue
            self._results = {entry.stage: entry for entry in entries if not entry.is_open}
            self._open = next((entry for entry in entries if entry.is_open), None)
            self._is_whole = path == self.path
            self.resumed = True
            break
        if self.problem:
            used = "the one before it is used" if self.resumed else "the fit starts anew"
            self.problem = f"{self.problem}; {used}"
        elif not self.resumed:
            self.nearest = _nearest(self.path, self._description)

    def _add_problem(self, path: Path, error: Exception) -> None:
        reason = f"{error.strerror}" if isinstance(error, OSError) else " ".join(f"{error}".split())
        line = f"checkpoint {path} cannot be used: {reason}"
        self.problem = f"{self.problem}; {line}" if self.problem else line

    # -- writing ------------------------------------------------------------------------------
    def _write(self) -> None:
        """Replace the file; one that cannot be written is reported once and left as it was."""
        entries = [*self._results.values(), *([] if self._open is None else [self._open])]
        head = _head(self._fingerprint, self._description, entries)
        try:
            self.path.parent.mkdir(exist_ok=True)
            previous = self.previous if self._is_whole else None
            with replacing(self.path, previous) as temporary, open(temporary, "rb+") as file:
                file.write(head)
                for entry in entries:
                    file.write(entry.data)
        except OSError as error:
            self._warn(error, "the fit goes on, and an earlier checkpoint stays as it was")
        else:
            self._is_whole = True

    def _warn(self, error: OSError, consequence: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            reason = error.strerror or " ".join(str(error).split())
            warnings.warn(
                f"the checkpoint in {self.path.parent} cannot be changed ({reason}); {consequence}",
                RuntimeWarning,
                stacklevel=4,
            )

    def _remove_unfinished(self) -> None:
        """Remove what a kill in the middle of writing left behind."""
        for path in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            with suppress(OSError):
                path.unlink()


# -- the file: magic, header, index (JSON), then the data of the entries, one after another -------


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


def _head(fingerprint: str, description: dict[str, Any], entries: list[_Entry]) -> bytes:
    """Return all that comes before the data."""
    listed = [
        {"stage": e.stage, "open": e.is_open, "bytes": len(e.data), "digest": e.digest}
        for e in entries
    ]
    index = json.dumps(
        {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "description": description,
            "entries": listed,
        }
    ).encode("ascii")
    return _MAGIC + _HEADER.pack(len(index), _digest(index)) + index


def _read_index(file: IO[bytes]) -> dict[str, Any]:
    """Return the index of a file, or raise a ValueError that says what is wrong."""
    size = os.fstat(file.fileno()).st_size
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is of another kind, or damaged")
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise ValueError("it is cut short")
    length, digest = _HEADER.unpack(header)
    data = file.read(length) if length <= size else b""
    if _digest(data) != digest:
        raise ValueError("it is damaged or cut short")
    index = json.loads(data)
    if index["format"] != FORMAT:
        raise ValueError(f"it has format {index['format']}, and this version reads {FORMAT}")
    return dict(index)


def _read(path: Path, fingerprint: str) -> list[_Entry]:
    """Return the entries of a whole file of this fit whose values can all be decoded."""
    with open(path, "rb") as file:
        try:
            index = _read_index(file)
            if index["fingerprint"] != fingerprint:
                raise ValueError("it was written by another fit and renamed")
            entries = [_read_entry(file, item) for item in index["entries"]]
        except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"it is malformed ({error!r})") from error
        if file.read(1):
            raise ValueError("something follows its end")
    for entry in entries:
        decode(entry.data)
    return entries


def _read_entry(file: IO[bytes], item: dict[str, Any]) -> _Entry:
    left = os.fstat(file.fileno()).st_size - file.tell()
    entry = _Entry(item["stage"], item["open"], file.read(min(item["bytes"], left)))
    if len(entry.data) != item["bytes"] or entry.digest != item["digest"]:
        raise ValueError("it is damaged or cut short")
    return entry


# -- other fits -----------------------------------------------------------------------------------


def _nearest(path: Path, description: Mapping[str, Any]) -> str:
    """Say how the nearest of the other fits with checkpoints beside this path differs."""
    found = []
    for other in sorted(path.parent.glob("likelier-*.checkpoint")):
        with suppress(OSError, ValueError, LookupError, TypeError), open(other, "rb") as file:
            differences = _differences(_read_index(file)["description"], description)
            found.append((len(differences), -os.fstat(file.fileno()).st_mtime_ns, differences))
    if not found:
        return ""
    _, _, differences = min(found)
    hidden = len(differences) - _SHOWN_DIFFERENCES
    more = f" and {hidden} more" if hidden > 0 else ""
    shown = ", ".join(differences[:_SHOWN_DIFFERENCES]) or "nothing that was described"
    return f"checkpoints here are of other fits; the nearest differs in {shown}{more}"


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return texts like ``max_iter (500, here 1000)``, in the order of our description."""
    names = [*ours, *(name for name in theirs if name not in ours)]
    pairs = [(name, _text(theirs, name), _text(ours, name)) for name in names]
    return [
        f"{name} ({_shortened(their)}, here {_shortened(our)})"
        for name, their, our in pairs
        if their != our
    ]


def _text(description: Mapping[str, Any], name: str) -> str:
    return repr(description[name]) if name in description else "absent"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
