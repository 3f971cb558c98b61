"""Name the folder where numba keeps compiled code, one per version of the source.

numba's cache notices a change in the file of a compiled function, but not in another file
whose functions it inlined. A folder named by a hash of all of ``src/`` can hold no stale code.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

# Enough that a run in progress keeps its folder while the source is being edited.
KEPT = 8


def source_hash(root: Path) -> str:
    """Hash the names and contents of all Python files under ``src/``."""
    digest = hashlib.sha256()
    for path in sorted((root / "src").rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def cache_dir(root: Path) -> Path:
    """Return the folder for the present source; make it, and remove all but the newest ones."""
    folder = root / ".cache" / f"numba-{source_hash(root)}"
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    newest_first = sorted(folder.parent.glob("numba-*"), key=_last_used, reverse=True)
    for stale in newest_first[KEPT:]:
        shutil.rmtree(stale, ignore_errors=True)
    return folder


def _last_used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:  # removed by another run at this moment
        return 0.0


if __name__ == "__main__":
    print(cache_dir(Path(__file__).resolve().parents[1]))
