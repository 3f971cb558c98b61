"""Training from a file ten times larger than the memory allowed.

The fit runs in a process of its own, which loads the libraries, compiles by a fit on a small
file, and then forbids itself to allocate more than ``ALLOWED`` beyond what it already has:
``RLIMIT_DATA``, which on Linux counts every private writable page a process asks for (heap and
anonymous mappings), touched or not. ``RLIMIT_AS`` would also count address space that libraries
reserve and never use, and ``RLIMIT_RSS`` is ignored by the kernel. The peak is the kernel's own
high-water mark of resident memory (``VmHWM``), reset before the fit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT

MEGABYTE = 2**20
ALLOWED = 100 * MEGABYTE
FEATURES = 20
CHUNK = 50_000
MAX_ITER = 1


def run(
    report: Callable[[str], None] = print,
    allowed: int = ALLOWED,
    factors: tuple[float, ...] = (0.1, 1, 10),
) -> dict[str, Any]:
    """Fit files of 0.1, 1 and 10 times the memory allowed; return peaks and times."""
    results: dict[str, Any] = {"allowed_mb": allowed / MEGABYTE, "runs": []}
    with tempfile.TemporaryDirectory(prefix="likelier-memory-") as folder:
        small = Path(folder) / "small.csv"
        write_csv(small, 0)
        for factor in factors:
            path = Path(folder) / "rows.csv"
            rows = write_csv(path, int(factor * allowed))
            entry = fit_apart(path, small, allowed)
            entry |= {"factor": factor, "rows": rows, "file_mb": path.stat().st_size / MEGABYTE}
            results["runs"].append(entry)
            report(f"memory {factor}x: {describe(entry)}")
    return results


def write_csv(path: Path, size: int) -> int:
    """Write whole chunks of rows until the file has the size; return the number of rows.

    The same few chunks are repeated: memory and time do not depend on the values.
    """
    rng = np.random.default_rng(1)
    truth = rng.normal(size=FEATURES) / 4
    chunks = [_chunk(rng, truth) for _ in range(3)]
    header = ",".join([f"x{j}" for j in range(FEATURES)] + ["label"]) + "\n"
    rows = written = 0
    with path.open("wb") as out:
        out.write(header.encode())
        while written < size or rows == 0:
            chunk = chunks[(rows // CHUNK) % len(chunks)]
            written += out.write(chunk)
            rows += CHUNK
    return rows


def _chunk(rng: np.random.Generator, truth: np.ndarray) -> bytes:
    X = rng.normal(size=(CHUNK, FEATURES))
    y = rng.random(CHUNK) < 1 / (1 + np.exp(-X @ truth))
    lines = (
        ",".join(f"{value:.6f}" for value in row) + (",yes" if label else ",no")
        for row, label in zip(X, y, strict=True)
    )
    return ("\n".join(lines) + "\n").encode()


def fit_apart(path: Path, small: Path, allowed: int) -> dict[str, Any]:
    """Fit in a process of its own and return what it says, or how it died."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.linear.memory",
        str(path),
        str(small),
        str(allowed),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"trained": False, "error": done.stderr.strip().splitlines()[-1:]}
    return {"trained": True, **json.loads(done.stdout.splitlines()[-1])}


def fit_under_limit(path: str, small: str, allowed: int) -> dict[str, Any]:
    """What the child does: warm up, limit itself, fit, measure."""
    import resource

    from likelier import LinearClassifier

    warnings.simplefilter("ignore")
    words = {"max_iter": MAX_ITER, "random_state": 0, "n_jobs": 1}
    LinearClassifier(**words).fit(small, "label")
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    limit = status("VmData") + allowed
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    start = time.perf_counter()
    model = LinearClassifier(**words).fit(path, "label")
    seconds = time.perf_counter() - start
    return {
        "before_mb": before / MEGABYTE,
        "peak_mb": status("VmHWM") / MEGABYTE,
        "growth_mb": (status("VmHWM") - before) / MEGABYTE,
        "seconds": seconds,
        "iterations": int(model.n_iter_),
        "route": model.route_,
        "refuses_more": refuses(2 * allowed),
    }


def refuses(size: int) -> bool:
    """Whether the limit really binds: more than it allows cannot be allocated."""
    try:
        np.empty(size, dtype=np.uint8)
    except MemoryError:
        return True
    return False


def status(field: str) -> int:
    """Bytes of one line of the kernel's status of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel does not report {field}; this benchmark needs Linux")


def describe(entry: dict[str, Any]) -> str:
    """One line for the terminal."""
    if not entry["trained"]:
        return f"failed: {entry['error']}"
    return (
        f"{entry['file_mb']:.0f} MB, {entry['rows']:,} rows: peak +{entry['growth_mb']:.0f} MB, "
        f"{entry['seconds']:.1f} s"
    )


if __name__ == "__main__":
    print(json.dumps(fit_under_limit(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
