"""Opening of files as byte streams, with decompression, and detection of file formats."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, cast

Format = Literal["csv", "parquet", "libsvm"]

SAMPLE_BYTES = 1 << 18
LONGEST_SAMPLE = 1 << 26
_COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
}
_UNSUPPORTED = {
    ".arff": "ARFF",
    ".xls": "Excel",
    ".xlsx": "Excel",
    ".json": "JSON",
    ".jsonl": "JSON",
    ".feather": "Feather",
    ".npz": "NumPy",
    ".npy": "NumPy",
    ".zip": "ZIP",
    ".zst": "Zstandard",
}
# A label (or several), then entries. A bare label is a row of zeros, but may also be CSV.
_LIBSVM_LINE = re.compile(rb"\s*([-+.,\deE]+\s*)?(qid:\d+\s*)?(\s*\d+:[-+.\deE]+(?=\s|$))*\s*(#|$)")


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of an existing, non-empty file, or raise an error."""
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{str(file)!r} is a folder; name one file")
    if not file.exists():
        raise FileNotFoundError(f"no file {str(file)!r}")
    if file.stat().st_size == 0:
        raise ValueError(f"{str(file)!r} is empty")
    return file


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressing ``.gz``, ``.bz2`` and ``.xz``."""
    opener: Any = _COMPRESSED.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as stream:
            yield cast(IO[bytes], stream)
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # errors of the operating system: not found, no permission, broken disk
        raise ValueError(f"{str(path)!r} is damaged or truncated: {error}") from error


@contextmanager
def open_whole_lines(path: Path, encoding: str) -> Iterator[IO[bytes]]:
    """Open a text file as UTF-8 without trailing empty lines."""
    with open_bytes(path) as stream:
        text: Any = stream
        if codecs.lookup(encoding).name != "utf-8":
            text = codecs.EncodedFile(stream, "utf8", encoding)
        yield cast(IO[bytes], _WithoutLastLines(text))


class _WithoutLastLines(io.RawIOBase):
    """Bytes of a stream; line breaks are held back until other bytes follow."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream
        self._ready, self._held = b"", b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, fewer only at the end, which the reader detects by that."""
        while size < 0 or len(self._ready) < size:
            piece = self._stream.read(SAMPLE_BYTES)
            if not piece:
                break
            held = self._held + piece
            body = held.rstrip(b"\r\n")
            self._ready, self._held = self._ready + body, held[len(body) :]
        end = len(self._ready) if size < 0 else size
        whole, self._ready = self._ready[:end], self._ready[end:]
        return whole


def line_number(path: Path, encoding: str, wanted: Callable[[str], bool]) -> int | None:
    """Return the 1-based number of the first line that is ``wanted``."""
    with open_bytes(path) as stream:
        lines = io.TextIOWrapper(cast(Any, stream), encoding, errors="replace")
        return next((n for n, line in enumerate(lines, 1) if wanted(line.rstrip("\r\n"))), None)


def read_sample(path: Path) -> bytes:
    """Return whole lines from the beginning of a file: `SAMPLE_BYTES`, or three lines if longer."""
    with open_bytes(path) as stream:
        sample = stream.read(SAMPLE_BYTES)
        while sample.count(b"\n") < 3 and len(sample) < LONGEST_SAMPLE:
            more = stream.read(SAMPLE_BYTES)
            if not more:
                return sample
            sample += more
        if stream.read(1):
            sample = sample[: sample.rfind(b"\n") + 1] or sample
    return sample


def detect_format(path: Path) -> Format:
    """Detect the format from the file extension, or else from the first lines.

    libsvm files often have no specific extension (``a9a``, ``a9a.t``).
    """
    inner = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    suffix = inner.suffix.lower()
    if suffix in _UNSUPPORTED:
        raise ValueError(
            f"{path.name!r}: {_UNSUPPORTED[suffix]} files are not supported; "
            "convert it to CSV, Parquet or libsvm, or name its format"
        )
    if suffix in _FORMATS:
        return _FORMATS[suffix]
    sample = read_sample(path)
    if sample.startswith(b"PAR1"):
        return "parquet"
    lines = [line for line in sample.splitlines() if line.strip()][:20]
    entries = any(b":" in line.partition(b"#")[0] for line in lines)
    return "libsvm" if entries and all(map(_LIBSVM_LINE.match, lines)) else "csv"
