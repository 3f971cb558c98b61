"""Time the same fits with an old commit and with the present source, in turns.

``python tools/speed.py COMMIT`` prints the ratio of processor times, new over old: the median
of several rounds with a 95% bootstrap interval, for every headline case and every family. It
exits with 1 where an interval lies above the limit. Both sides live in a process of their own,
have run each case once before, and take turns, so that a busy machine slows both down.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from nets.cases import Case, all_cases
from nets.sides import Worker, commit_side, present_side

Array = np.ndarray[Any, Any]
RESAMPLES = 2_000
ROUND_SECONDS, MOST_REPEATS = 0.4, 50


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    words = _parser().parse_args(arguments)
    cases = [case for case in all_cases() if case.speed and re.search(words.only, case.name)]
    if not cases:
        raise SystemExit(f"no case with a size for timing is called like {words.only!r}")
    old = commit_side(words.old)
    new = present_side() if words.new is None else commit_side(words.new)
    print(f"processor time of {new.label} over {old.label}, {words.rounds} rounds")
    slow: list[str] = []
    logarithms: dict[str, list[Array]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with (
            Worker(old, place / "old", place / "old.log") as one,
            Worker(new, place / "new", place / "new.log") as other,
        ):
            for case in cases:
                try:
                    times = measure(case, one, other, words.rounds)
                except RuntimeError as error:
                    print(f"{case.name:<42} not measured: {error}", flush=True)
                    slow += [case.name] if "NotImplementedError" not in str(error) else []
                    continue
                ratios = np.log(times[:, 1] / times[:, 0])
                logarithms.setdefault(case.family, []).append(ratios)
                seconds = "{:.3f} s to {:.3f} s".format(*np.median(times, axis=0))
                slow += _report(case.name, [ratios], words.limit, seconds)
    for family, ratios_of_cases in logarithms.items():
        slow += _report(family, ratios_of_cases, words.limit, f"{len(ratios_of_cases)} cases")
    print(f"slower than {words.limit}, or not measured: {', '.join(slow) or 'none'}")
    return int(bool(slow))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", help="commit to compare with")
    parser.add_argument("--new", help="commit instead of the working tree", metavar="COMMIT")
    parser.add_argument("--only", help="regular expression for names of cases", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=float, default=1.05, help="ratio that is accepted")
    return parser


def measure(case: Case, old: Worker, new: Worker, rounds: int) -> Array:
    """Processor times of the case, a row for every round: old, new. The first to run alternates.

    Short cases are repeated within a round.
    """
    for worker in (old, new):
        _seconds(worker, case, 1)  # compiles, loads
    repeat = min(MOST_REPEATS, math.ceil(ROUND_SECONDS / _seconds(old, case, 1)))
    times = np.empty((rounds, 2))
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            times[number, side] = _seconds((old, new)[side], case, repeat) / repeat
    return times


def _seconds(worker: Worker, case: Case, repeat: int) -> float:
    reply = worker.run(case.name, repeat)
    if reply["error"]:
        raise RuntimeError(f"{worker.side.label}: {reply['error']}")
    return max(float(reply["seconds"]), 1e-6)


def interval(ratios: list[Array], seed: int = 0) -> tuple[float, float, float]:
    """Median ratio of the rounds, the geometric mean of these over cases, and its interval."""
    rng = np.random.default_rng(seed)
    centre = np.mean([np.median(case) for case in ratios])
    means = np.zeros(RESAMPLES)
    for case in ratios:
        chosen = rng.integers(len(case), size=(RESAMPLES, len(case)))
        means += np.median(case[chosen], axis=1) / len(ratios)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(np.exp(centre)), float(np.exp(low)), float(np.exp(high))


def _report(name: str, ratios: list[Array], limit: float, note: str) -> list[str]:
    """Print a line; return the name if it is too slow."""
    middle, low, high = interval(ratios)
    mark = "  SLOWER" if low > limit else ""
    print(f"{name:<42} {middle:.3f} [{low:.3f}, {high:.3f}]  {note}{mark}", flush=True)
    return [name] if low > limit else []


if __name__ == "__main__":
    sys.exit(main())
