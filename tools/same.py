"""Fit the same models with an old commit and with the present source, and compare every bit.

``python tools/same.py COMMIT`` prints a line for every case and exits with 1 where anything
differs. Both sides run on this machine with one BLAS thread, because bits are only promised
there. Compared are all answers of a model to new rows and all that it has stored; names that
begin with an underscore may come and go, but where both sides have one it must be the same.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numba_cache
import numpy as np
from nets.cases import all_cases
from nets.sides import ROOT, Side, Worker, commit_side, present_side

Arrays = Mapping[str, np.ndarray[Any, Any]]
SHOWN = 6  # differences of one case


def main(arguments: list[str] | None = None) -> int:
    """Compare, print, and return the exit code."""
    words = _parser().parse_args(arguments)
    names = [case.name for case in all_cases() if re.search(words.only, case.name)]
    if words.list:
        print("\n".join(names))
        return 0
    if not names:
        raise SystemExit(f"no case is called like {words.only!r}")
    old = commit_side(words.old)
    new = present_side() if words.new is None else commit_side(words.new)
    before = numba_cache.source_hash(ROOT)
    failed, skipped = _compare_all(old, new, names, words.tolerance)
    changed = words.new is None and numba_cache.source_hash(ROOT) != before
    counts = f"{len(names) - failed - skipped} identical, {failed} different, {skipped} skipped"
    print(f"{old.label} and {new.label}: {counts} of {len(names)} cases")
    if changed:
        print("src/ was changed meanwhile, so that this says nothing: run it again, or with --new")
    return int(failed > 0 or changed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", help="commit to compare with")
    parser.add_argument("--new", help="commit instead of the working tree", metavar="COMMIT")
    parser.add_argument("--only", help="regular expression for names of cases", default="")
    parser.add_argument(
        "--tolerance", type=float, default=0.0, help="largest relative difference that is accepted"
    )
    parser.add_argument("--list", action="store_true", help="only list the cases")
    return parser


def _compare_all(old: Side, new: Side, names: list[str], tolerance: float) -> tuple[int, int]:
    """Run the cases on both sides at a time; count those that differ, and those skipped."""
    failed = skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with (
            Worker(old, place / "old", place / "old.log") as one,
            Worker(new, place / "new", place / "new.log") as other,
        ):
            for name in names:
                for worker in (one, other):
                    worker.send(name, "small", keep=True)
                replies = one.receive(), other.receive()
                skip, found = _case_differences(*replies, tolerance)
                skipped += skip is not None
                failed += bool(found)
                note = skip or "; ".join(_shortened(found)) or "identical"
                print(f"{name:<48} {note}", flush=True)
                for reply in replies:
                    if reply["arrays"]:
                        Path(reply["arrays"]).unlink()
    return failed, skipped


def _shortened(found: list[str]) -> list[str]:
    more = len(found) - SHOWN
    return found[:SHOWN] + ([f"and {more} more"] if more > 0 else [])


def _case_differences(
    old: Mapping[str, Any], new: Mapping[str, Any], tolerance: float
) -> tuple[str | None, list[str]]:
    """Why a case was skipped, if it was; else what differs."""
    errors = {"old": old["error"], "new": new["error"]}
    absent = [side for side, error in errors.items() if "NotImplementedError" in (error or "")]
    if absent:
        return f"skipped: {errors[absent[0]]} ({absent[0]})", []
    raised = [f"error in {side}: {error}" for side, error in errors.items() if error]
    if raised:
        return None, raised
    return None, differences(_load(old["arrays"]), _load(new["arrays"]), tolerance)


def _load(path: str) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path, allow_pickle=False) as file:
        return {str(name): file[f"array{i}"] for i, name in enumerate(file["names"])}


def differences(old: Arrays, new: Arrays, tolerance: float = 0.0) -> list[str]:
    """List what differs: the name, and by how much relative to the largest value."""
    found = []
    for name in [*old, *(name for name in new if name not in old)]:
        if name in old and name in new:
            how = difference(old[name], new[name], tolerance)
            found += [f"{name}: {how}"] if how else []
        elif not is_private(name):
            found.append(f"{name}: missing in {'new' if name in old else 'old'}")
    return found


def is_private(path: str) -> bool:
    """Whether a part of a path begins with an underscore."""
    return re.search(r"(^|\.)_", path) is not None


def difference(
    old: np.ndarray[Any, Any], new: np.ndarray[Any, Any], tolerance: float
) -> str | None:
    """How two arrays differ; None if they do not, or by no more than the tolerance."""
    if old.shape != new.shape:
        return f"shape {old.shape} became {new.shape}"
    if old.dtype.kind != new.dtype.kind or (old.dtype != new.dtype and old.dtype.kind in "biufc"):
        return f"{old.dtype} became {new.dtype}"
    if old.dtype.kind not in "biufc":
        return None if np.array_equal(old, new) else _text_difference(old, new)
    if np.ascontiguousarray(old).tobytes() == np.ascontiguousarray(new).tobytes():
        return None
    if old.dtype.kind in "biu":
        old, new = old.astype(np.float64), new.astype(np.float64)
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    finite = np.isfinite(old) & np.isfinite(new)
    if (~same & ~finite).any():
        return "other values are infinite or missing"
    scale = max(float(np.abs(part[finite]).max(initial=0.0)) for part in (old, new))
    gap = float(np.abs(old[finite] - new[finite]).max(initial=0.0)) / (scale or 1.0)
    if 0.0 < tolerance and gap <= tolerance:
        return None
    return f"{gap:.1e}" if gap else "the sign of a zero, or the bits of a NaN"


def _text_difference(old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> str:
    """First text that differs, and how many there are."""
    places = np.flatnonzero(old.ravel() != new.ravel())
    count = f"{len(places)} of {old.size}: " if old.ndim else ""
    first, other = (str(part.ravel()[places[0]])[:60] for part in (old, new))
    return f"{count}{first} became {other}"


if __name__ == "__main__":
    sys.exit(main())
