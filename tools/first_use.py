"""Measure the first fits of a user: processor time of one fit with an empty cache of compiled code.

Each case runs in a process and with a cache folder of its own, then once more with the filled
cache; the difference is what compiling takes. ``--list`` also names the compiled functions and
how long each took. Usage: ``first_use.py [--list] [CASE ...]``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = """
import time, sys, json
import numpy as np
rng = np.random.default_rng(0)
X = rng.standard_normal((400, 8))
y = (X[:, 0] + .5 * X[:, 1] > .3 * rng.standard_normal(400)).astype(int)
wide = rng.standard_normal((400, 2000))
t = X[:, 0] + .1 * rng.standard_normal(400)
"""
# What is measured, in seconds of processor time at most, and the statement.
CASES: dict[str, tuple[float, str]] = {
    "linear": (5, "likelier.LinearClassifier(random_state=0).fit(X, y)"),
    "linear-regression": (5, "likelier.LinearRegressor(random_state=0).fit(X, t)"),
    "svc": (8, "likelier.SVC(random_state=0).fit(X, y)"),
    "svc-small": (8, "likelier.SVC(random_state=0).fit(X[:150], np.arange(150) // 50)"),
    "svc-probability": (8, "likelier.SVC(probability=True, random_state=0).fit(X, y)"),
    "svr": (8, "likelier.SVR().fit(X, t)"),
    "hinge-l1": (
        8,
        "likelier.LinearClassifier(loss='hinge', l1_ratio=1.0, random_state=0).fit(wide, y)",
    ),
    "streamed": (
        8,
        "likelier.LinearClassifier(random_state=0).fit([(X[:200], y[:200]), (X[200:], y[200:])])",
    ),
    "streamed-hinge": (
        8,
        "likelier.LinearClassifier(loss='hinge', random_state=0)"
        ".fit([(X[:200], y[:200]), (X[200:], y[200:])])",
    ),
}
PROGRAM = """
import likelier, likelier.jit
{data}
likelier.LinearClassifier, likelier.SVC  # their modules are imported before the clock starts
start = time.process_time()
{fit}
seconds = time.process_time() - start
print("SECONDS", seconds)
"""
TRACE = """
from numba.core import event
class _Times(event.Listener):
    def __init__(self): self.open, self.rows = [], []
    def on_start(self, e): self.open.append([time.process_time(), 0.0])
    def on_end(self, e):
        began, inside = self.open.pop()
        whole = time.process_time() - began
        if self.open: self.open[-1][1] += whole
        d, a = e.data["dispatcher"], e.data["args"]
        self.rows.append((whole - inside, d.py_func.__module__, d.py_func.__name__, str(a)))
times = _Times(); event.register("numba:compile", times)
"""


def first_and_second(name: str, named: bool) -> tuple[float, float, str]:
    """Return the seconds of a fit with an empty cache, and in a new process with the filled one."""
    program = PROGRAM.replace("{data}", DATA + (TRACE if named else ""))
    program = program.replace("{fit}", CASES[name][1])
    if named:
        program += "for row in sorted(times.rows, reverse=True): print('%7.2f %s.%s %s' % row)\n"
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "NUMBA_CACHE_DIR": folder,
            "PYTHONPATH": str(ROOT / "src"),
            "OMP_NUM_THREADS": "1",
        }
        seconds, text = [], ""
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", program],
                env=environment, capture_output=True, text=True, check=True,
            )  # fmt: skip
            line = next(s for s in done.stdout.splitlines() if s.startswith("SECONDS"))
            seconds.append(float(line.split()[1]))
            text = text or done.stdout
    return seconds[0], seconds[1], text


def main(arguments: list[str]) -> int:
    """Print a line for every case; 1 where one takes longer than it may."""
    named = "--list" in arguments
    slow = 0
    for name in [a for a in arguments if a != "--list"] or CASES:
        first, second, text = first_and_second(name, named)
        limit = CASES[name][0]
        slow += first > limit
        print(f"{name:20} {first:6.1f} s (at most {limit:.0f}), then {second:6.2f} s", flush=True)
        if named:
            print(text)
    return int(slow > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
