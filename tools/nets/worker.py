"""Run cases with the source of one commit: a process that takes orders, one JSON line each.

``python worker.py SRC FOLDER`` answers on its standard output. An order is
``{"case": name, "size": "small" or "large", "keep": bool, "repeat": int}``; the answer holds the
processor time of all repetitions, the error, and where the arrays of the last are (``keep``), a
file that numpy can read.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO

TOOLS = Path(__file__).resolve().parents[1]


def main() -> None:
    """Serve orders until the input ends."""
    source, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes elsewhere
    sys.path[:0] = [str(source), str(TOOLS)]
    library = _library(source)
    from nets.cases import all_cases

    cases = {case.name: case for case in all_cases()}
    print(json.dumps({"ready": str(source)}), file=replies)
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        _serve(library, cases[order["case"]], order, folder / f"{number}.npz", replies)


def _library(source: Path) -> Any:
    """Import likelier, and make sure that it is the one asked for."""
    import likelier

    found = Path(str(likelier.__file__)).resolve()
    if source not in found.parents:
        raise RuntimeError(f"likelier was to come from {source}, and came from {found}")
    return likelier


def _serve(library: Any, case: Any, order: Any, keep: Path, replies: TextIO) -> None:
    size = case.size if order["size"] == "small" else case.speed
    reply: dict[str, Any] = {"case": case.name, "error": None, "arrays": None}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = case.prepare(library, size, Path(folder))
            gc.collect()
            start = time.process_time()
            for _ in range(order["repeat"]):
                found = run()
            reply["seconds"] = time.process_time() - start
            if order["keep"]:
                reply["arrays"] = _keep(found, keep)
        except Exception as error:  # reported, and compared with the other side
            reply["error"] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
    print(json.dumps(reply), file=replies)


def _keep(found: Any, path: Path) -> str:
    import numpy as np

    from nets.values import flatten

    arrays = flatten(found)
    names = np.array(list(arrays), dtype=str)
    numbered = {f"array{i}": array for i, array in enumerate(arrays.values())}
    np.savez(path, allow_pickle=False, names=names, **numbered)
    return str(path)


if __name__ == "__main__":
    main()
