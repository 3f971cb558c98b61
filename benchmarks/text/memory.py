"""Peak memory of `fit` on a stream of documents that is never in memory.

Each fit runs in a process of its own, after a small one that loads the libraries. The stream
repeats the documents of a corpus; the peak is the kernel's high-water mark of resident memory.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from benchmarks.linear.memory import MEGABYTE, status
from benchmarks.text.corpora import load

SET = "reuters_r8"
TIMES = (1, 10, 100)
MODES = {"vocabulary": {}, "hashed": {"n_features": 2**18}}


def run(times: tuple[int, ...] = TIMES, report: Callable[[str], None] = print) -> dict[str, Any]:
    """Fit streams of 1, 10 and 100 times the corpus; return peaks."""
    runs = []
    for mode in MODES:
        for factor in times:
            command = [sys.executable, "-m", "benchmarks.text.memory", mode, str(factor)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            entry = json.loads(done.stdout.splitlines()[-1])
            runs.append({"mode": mode, "factor": factor, **entry})
            report(
                f"memory {mode}, {entry['megabytes']:.0f} MB of text: +{entry['growth_mb']:.0f} MB"
            )
    return {"set": SET, "runs": runs}


def fit_stream(mode: str, factor: int) -> dict[str, Any]:
    """What the child does: warm up, fit, measure."""
    from likelier import TextFeatures

    corpus = load(SET)
    TextFeatures(**MODES[mode]).fit(corpus.train[:100])
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    stream = itertools.chain.from_iterable(itertools.repeat(corpus.train, factor))
    TextFeatures(**MODES[mode]).fit(stream)
    growth = (status("VmHWM") - before) / MEGABYTE
    return {"growth_mb": growth, "megabytes": factor * corpus.megabytes}


if __name__ == "__main__":
    print(json.dumps(fit_stream(sys.argv[1], int(sys.argv[2]))))
