"""The container of a saved model: a sealed zip, written atomically and read with suspicion."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

FORMAT = 1
MANIFEST = "manifest.json"
ARRAYS = "arrays.safetensors"
SEAL = b"likelier model; SHA-256 of every byte before this digest: "
_DIGEST_LENGTH = 64
_ZIP_START = b"PK\x03\x04"
_MAX_MANIFEST_BYTES = 1 << 30
_NO_TIME = (1980, 1, 1, 0, 0, 0)  # fixed, so that equal models give equal files


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Return the real path of a file to write, or say at once why it cannot be written."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is a device or a pipe, not a file; give the name of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {target.parent} does not exist; create it first.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"No permission to write in the folder {target.parent}.")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"{path} is write-protected; choose another name.")
    return target


def is_model_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins and ends like a saved model of any version, damaged or not."""
    with open(path, "rb") as file:
        start = file.read(len(_ZIP_START))
        file.seek(max(0, file.seek(0, os.SEEK_END) - _DIGEST_LENGTH - len(SEAL)))
        return start == _ZIP_START and file.read().startswith(SEAL)


@contextmanager
def replacing(path: str | os.PathLike[str], previous: Path | None = None) -> Iterator[Path]:
    """Give a temporary path to write; it takes the place of ``path`` only if all went well.

    The file that was there becomes ``previous``, where that is given.

    The temporary file lies in the folder of ``path`` (a rename is atomic only within one
    file system) and is removed on any exception, KeyboardInterrupt included. A symbolic
    link is followed, and the permissions of a file that is replaced are kept.
    """
    target = check_writable(path)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb"):
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        if previous is not None and target.exists():
            os.replace(target, previous)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _flush_folder(target.parent)


def _flush_folder(folder: Path) -> None:
    """Make a rename survive a power cut, on systems where a folder can be flushed."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def canonical(manifest: dict[str, Any]) -> bytes:
    """Return the one byte string for this manifest: sorted keys, no spaces, ASCII."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def write_archive(path: Path, manifest: bytes, arrays: bytes) -> None:
    """Write both members into an existing empty file, and seal it."""
    with open(path, "rb+") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.comment = SEAL + b"0" * _DIGEST_LENGTH
            for name, data in ((MANIFEST, manifest), (ARRAYS, arrays)):
                archive.writestr(zipfile.ZipInfo(name, _NO_TIME), data)
        length = file.seek(0, os.SEEK_END) - _DIGEST_LENGTH
        digest = _digest(file, length)
        file.seek(length)
        file.write(digest)


def _digest(file: IO[bytes], length: int) -> bytes:
    """SHA-256 of the first ``length`` bytes, as hexadecimal ASCII."""
    sha = hashlib.sha256()
    file.seek(0)
    while length > 0:
        chunk = file.read(min(length, 1 << 20))
        if not chunk:
            break
        sha.update(chunk)
        length -= len(chunk)
    return sha.hexdigest().encode("ascii")


def read_archive(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the manifest and the bytes of the arrays, after every check on the container."""
    with open(path, "rb") as file:
        _check_seal(path, file)
        members = _read_members(path, file)
    try:
        manifest = json.loads(members[MANIFEST])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the manifest is not valid JSON ({error}).") from error
    _check_manifest(path, manifest)
    if hashlib.sha256(members[ARRAYS]).hexdigest() != manifest.get("arrays_sha256"):
        raise ValueError(f"{path}: the arrays do not match their SHA-256; the file is damaged.")
    return manifest, members[ARRAYS]


def _check_seal(path: Path, file: IO[bytes]) -> None:
    start = file.read(16)
    if not start.startswith(_ZIP_START):
        raise ValueError(f"{path} is not a likelier model: {_guess_kind(start)}.")
    length = file.seek(0, os.SEEK_END) - _DIGEST_LENGTH
    file.seek(max(0, length - len(SEAL)))
    ending = file.read()
    if not ending.startswith(SEAL) or len(ending) != len(SEAL) + _DIGEST_LENGTH:
        raise ValueError(
            f"{path} is a zip without the seal of a likelier model: the file is of another kind, "
            "or was damaged or cut short. Save or copy the model again."
        )
    if _digest(file, length) != ending[-_DIGEST_LENGTH:]:
        raise ValueError(
            f"{path} is damaged: its contents do not match their SHA-256. "
            "Save or copy the model again."
        )


def _guess_kind(start: bytes) -> str:
    """Say what a file that is not a model seems to be."""
    kinds = {
        b"PAR1": "it is a Parquet file",
        b"\x1f\x8b": "it is gzip data",
        b"\x80\x02": "it is a pickle, which likelier never loads",
        b"\x80\x03": "it is a pickle, which likelier never loads",
        b"\x80\x04": "it is a pickle, which likelier never loads",
        b"\x80\x05": "it is a pickle, which likelier never loads",
        b"PK": "it is an empty or unusual zip",
    }
    if not start:
        return "it is empty"
    for magic, kind in kinds.items():
        if start.startswith(magic):
            return kind
    if start.isascii() and all(byte >= 32 or byte in b"\t\r\n" for byte in start):
        return "it looks like a text file"
    return "it does not begin like a zip, so it is of another kind or damaged"


def _read_members(path: Path, file: IO[bytes]) -> dict[str, bytes]:
    """Return both members; memory stays below the size of the file, since nothing is packed."""
    size = file.seek(0, os.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if [entry.filename for entry in entries] != [MANIFEST, ARRAYS]:
                raise ValueError(f"{path} is not a likelier model: it holds other members.")
            for entry in entries:
                if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > size:
                    raise ValueError(f"{path}: {entry.filename} is compressed; refused.")
            if entries[0].file_size > _MAX_MANIFEST_BYTES:
                raise ValueError(f"{path}: the manifest is absurdly large; refused.")
            return {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path}: the zip is malformed ({error}).") from error
    except (struct.error, OverflowError, MemoryError) as error:
        raise ValueError(f"{path}: the zip is malformed ({error!r}).") from error


def _check_manifest(path: Path, manifest: Any) -> None:
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError(f"{path}: the manifest states no format version; it is malformed.")
    unsigned = {key: value for key, value in manifest.items() if key != "sha256"}
    try:
        expected = hashlib.sha256(canonical(unsigned)).hexdigest()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the manifest is malformed ({error}).") from error
    if expected != manifest.get("sha256"):
        raise ValueError(f"{path}: the manifest does not match its SHA-256; it was changed.")
    if version != FORMAT:
        writer = f"likelier {manifest.get('likelier')}"
        remedy = f"Fit the model again, or load it with {writer}."
        raise ValueError(
            f"{path} has format {version}, written by {writer}; this version reads format "
            f"{FORMAT}. {'Upgrade likelier to load it.' if version > FORMAT else remedy}"
        )
