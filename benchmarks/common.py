"""What every benchmark shares: where results live, honest timing, tables, machine facts."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "benchmarks"
DOCS = ROOT / "docs" / "benchmarks"

# what a part of several cases gives: each case as soon as it is measured
Cases = Iterator[tuple[str, dict[str, Any]]]


# -- where results live ---------------------------------------------------------------------
def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; an absent file is an empty object."""
    return json.loads(path.read_text()) if path.exists() else {}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write through a temporary file, so that an interrupted run leaves the old content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(path.suffix + ".part")
    text = json.dumps(_plain(content), indent=1, allow_nan=False)
    draft.write_text(text + "\n")
    os.replace(draft, path)


def _plain(value: Any) -> Any:
    """JSON form of a value: NumPy becomes Python, infinity (not JSON) becomes "inf"."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def results_folder(page: str, quick: bool = False) -> Path:
    """Where measurements of a page are stored; at first, those that were published with it."""
    folder = CACHE / (f"{page}-quick" if quick else page)
    if not quick and not folder.exists():
        for part, content in read_json(DOCS / f"{page}.json").items():
            write_json(folder / f"{part}.json", content)
    return folder


def publish(folder: Path, docs: Path, page: str) -> None:
    """Put the measurements beside their page, so that others can add to them."""
    parts = {path.stem: read_json(path) for path in sorted(folder.glob("*.json"))}
    write_json(docs / f"{page}.json", parts)


def remember(path: Path, key: str, compute: Callable[[], Any]) -> Any:
    """Return the value stored under ``key`` in a JSON file, computing it the first time."""
    stored = read_json(path)
    if key not in stored:
        value = compute()
        stored = read_json(path)
        stored[key] = value
        write_json(path, stored)
    return stored[key]


def name_processors(folder: Path, single: Sequence[str] = (), key: str = "cpu") -> None:
    """Note where earlier results come from, before the machine of this run takes their place.

    A part holds a record for every case, but for the ``single`` ones, which are records; ``key``
    is where a record names its processor.
    """
    before = read_json(folder / "machine.json").get("cpu")
    for path in sorted(folder.glob("*.json")) if before else ():
        if path.stem == "machine":
            continue
        stored = read_json(path)
        for record in (stored,) if path.stem in single else stored.values():
            record.setdefault(key, before)
        write_json(path, stored)


def measured_elsewhere(
    parts: Mapping[str, Mapping[str, Any]], here: str, place: str = "cpu"
) -> list[str]:
    """What was measured on other processors than ``here``: a text for each of them.

    Cases are named by their data set where they have one.
    """
    groups: dict[str, list[str]] = {}
    for part, records in parts.items():
        by_cpu: dict[str, list[str]] = {}
        for key, record in records.items():
            by_cpu.setdefault(record.get(place, here), []).append(str(record.get("set", key)))
        for cpu, names in by_cpu.items():
            others = {name for other in by_cpu if other != cpu for name in by_cpu[other]}
            told = [f"{n} in part" if n in others else n for n in sorted(set(names))]
            what = part if len(by_cpu) == 1 else f"{part} of {', '.join(told)}"
            groups.setdefault(cpu, []).append(what)
    return [f"{cpu}: {'; '.join(what)}" for cpu, what in groups.items() if cpu != here]


# -- timing ---------------------------------------------------------------------------------
@dataclass
class Timing:
    """Wall and processor seconds of repeated runs of one thing."""

    wall: list[float]
    cpu: list[float]

    @property
    def median(self) -> float:
        """Median wall time: one slow run on a busy machine does not move it."""
        return float(np.median(self.wall))

    def to_json(self) -> dict[str, Any]:
        """Medians, the quartiles as the spread, and every single run."""
        return {
            "seconds": self.median,
            "quartiles": np.percentile(self.wall, [25, 75]).tolist(),
            "cpu_seconds": float(np.median(self.cpu)),
            "cpu_quartiles": np.percentile(self.cpu, [25, 75]).tolist(),
            "runs": [round(value, 6) for value in self.wall],
        }


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """Result, wall seconds and processor seconds of one call, garbage collected before."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = run()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def interleave(
    runs: Mapping[str, Callable[[int], Any]],
    repeats: int,
    budget: float = float("inf"),
    threads: int | None = 1,
    keep: Callable[[Any], Any] = lambda result: result,
) -> tuple[dict[str, Timing], dict[str, list[Any]]]:
    """Time several things in turn, so that a change of the machine's load hits all alike.

    Each run gets the number of the repeat (its seed). The order rotates from one repeat to the
    next. After ``budget`` seconds no further repeat begins; every run happens at least once.
    ``threads`` caps the pools of BLAS and OpenMP; None leaves them alone. ``keep`` says what is
    kept of a result: large ones that stay alive make every later run find new memory, which a
    virtual machine hands out slowly.
    """
    timings = {name: Timing([], []) for name in runs}
    results: dict[str, list[Any]] = {name: [] for name in runs}
    names = list(runs)
    start = time.perf_counter()
    with threadpool_limits(threads):
        for repeat in range(repeats):
            if repeat and time.perf_counter() - start > budget:
                break
            turn = repeat % max(len(names), 1)
            for name in names[turn:] + names[:turn]:
                result, wall, cpu = timed(partial(runs[name], repeat))
                timings[name].wall.append(wall)
                timings[name].cpu.append(cpu)
                results[name].append(keep(result))
                del result
    return timings, results


def median_or_none(values: Iterable[float | None]) -> float | None:
    """Median of the values that exist."""
    known = [value for value in values if value is not None and np.isfinite(value)]
    return float(np.median(known)) if known else None


# -- pages ----------------------------------------------------------------------------------
def write_page(path: Path, text: str) -> None:
    """Write a page; a section ("## ...") that ``text`` lacks stays as it stands there.

    So whoever measures a part of a benchmark does not lose what was measured elsewhere.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    head, *new = _sections(text)
    kept = _sections(path.read_text())[1:] if path.exists() else []
    place = 0
    for section in new:
        titles = [_title(old) for old in kept]
        if _title(section) in titles:
            place = titles.index(_title(section))
            kept[place] = section
        else:
            kept.insert(place, section)
        place += 1
    path.write_text("\n\n".join([head, *kept]) + "\n")


def _sections(text: str) -> list[str]:
    """What stands before the first heading, and each section with its heading."""
    return [part.strip() for part in re.split(r"^(?=## )", text, flags=re.MULTILINE)]


def _title(section: str) -> str:
    return section.split("\n", 1)[0]


# -- tables and facts -----------------------------------------------------------------------
def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a GitHub table: the first column left, the others right aligned."""
    lines = ["| " + " | ".join(header) + " |"]
    lines.append("|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def seconds_text(value: float | None) -> str:
    """Seconds with three significant digits, in milliseconds below one second."""
    if value is None:
        return "-"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def machine_facts(packages: Sequence[str]) -> dict[str, Any]:
    """Processor, cores, memory and versions; no host name and no path."""
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(_memory_bytes() / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": versions,
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
