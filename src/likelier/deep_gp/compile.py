"""Cache of compiled training programs, in memory and on disk.

Compiling a program takes seconds, often longer than running it. A program depends on shapes only,
never on data, so it is cached: in this process, and as a file in the folder given by the
environment variable ``LIKELIER_CACHE_DIR`` (default: the user's cache folder). JAX has a cache of
its own, but enabling it changes JAX's global configuration, which belongs to the user.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.scipy.linalg import solve_triangular

Program = Callable[..., Any]
# XLA's fusion emitters take most of the compile time, and the programs run no faster. Products of
# matrices this small gain nothing from a second thread, and lose time if the other core is busy.
DEFAULT_OPTIONS: dict[str, str | bool] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_multi_thread_eigen": False,
}
# Small models run as fast at level 1. At level 0 they compile in a third of the time and run at
# half the speed, which pays off up to about a thousand minibatches.
EFFORTS: dict[str, dict[str, str | bool]] = {
    "full": DEFAULT_OPTIONS,
    "reduced": {**DEFAULT_OPTIONS, "xla_backend_optimization_level": "1"},
    "minimal": {**DEFAULT_OPTIONS, "xla_backend_optimization_level": "0"},
}
_programs: dict[str, Program] = {}
_lock = threading.Lock()


def compiled_program(
    make: Callable[[], Callable[..., Any]],
    arguments: tuple[Any, ...],
    name: tuple[Any, ...],
    effort: str = "full",
) -> Program:
    """Return the compiled ``make()`` for arguments of these shapes, from the cache if possible.

    Parameters
    ----------
    make : callable
        Returns the function to compile; its first argument and first result have the same
        structure, and its second result is one array.
    arguments : tuple
        Arrays (or trees of them) of the shapes to compile for.
    name : tuple
        Key of the function among others of the same shapes: plain values.
    effort : {"full", "reduced", "minimal"}
        Less effort compiles faster, to a slower program.
    """
    key = _key(arguments, (*name, effort))
    with _lock:
        if key not in _programs:
            _programs[key] = _from_disk(key, arguments) or _compile(make, arguments, key, effort)
        return _programs[key]


@contextmanager
def program_settings() -> Iterator[None]:
    """JAX settings that our programs need, in this thread and context only.

    The user's settings are restored afterwards. Models in single precision need float64 as well,
    for the kernel matrices of their inducing points.
    """
    with (
        jax.enable_x64(True),
        jax.numpy_rank_promotion("allow"),
        jax.disable_jit(False),
        jax.transfer_guard("allow"),  # rows and parameters are NumPy arrays
    ):
        yield


def forget_programs() -> None:
    """Clear the cache in memory; files on disk are kept."""
    with _lock:
        _programs.clear()


def _compile(make: Callable[[], Any], arguments: tuple[Any, ...], key: str, effort: str) -> Program:
    lowered = jax.jit(make()).lower(*arguments)
    try:
        program = lowered.compile(compiler_options=EFFORTS[effort])
    except Exception:  # an option unknown to this version of XLA
        program = lowered.compile()
    with suppress(Exception):  # an unwritable cache must not make the fit fail
        payload, _, _ = serialize_executable.serialize(program)
        _write(_folder() / key, payload)
    return program


def _from_disk(key: str, arguments: tuple[Any, ...]) -> Program | None:
    with suppress(Exception):  # a damaged or foreign file: compile again
        folder = _folder()
        if not _is_private(folder):
            return None
        payload = (folder / key).read_bytes()
        _load_lapack()
        into = jax.tree.structure((arguments, {}))
        out = jax.tree.structure((arguments[0], 0.0))
        program: Program = serialize_executable.deserialize_and_load(payload, into, out)
        return program
    return None


def _load_lapack() -> None:
    """Make JAX register its LAPACK kernels, which it does when a program is lowered.

    A deserialised program that factorises a matrix would otherwise call an unregistered function
    and crash the process.
    """
    matrix = np.eye(2, dtype=np.float32)
    jax.jit(lambda a: solve_triangular(jnp.linalg.cholesky(a), a, lower=True)).lower(matrix)


def _folder() -> Path:
    named = os.environ.get("LIKELIER_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "likelier" / "programs"


def _is_private(folder: Path) -> bool:
    """Whether only this user can write to the folder, since cached programs are executed."""
    if os.name != "posix":
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _write(path: Path, payload: bytes) -> None:
    """Write atomically: another process sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _key(arguments: tuple[Any, ...], name: tuple[Any, ...]) -> str:
    leaves = [(str(leaf.dtype), list(leaf.shape)) for leaf in jax.tree.leaves(arguments)]
    plain = json.dumps([list(name), leaves, str(jax.tree.structure(arguments)), _environment()])
    return hashlib.sha256(plain.encode()).hexdigest()


def _environment() -> list[str]:
    """Versions, hardware and settings that a compiled program depends on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return [
        jax.__version__,
        version("jaxlib"),
        jax.default_backend(),
        str(jax.config.values.get("jax_default_matmul_precision")),
        os.environ.get("XLA_FLAGS", ""),
        str(len(affinity(0)) if affinity else os.cpu_count()),
        _processor(),
        _sources(),
    ]


@functools.cache
def _processor() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        features = {line for line in lines if line.startswith(("flags", "Features", "model"))}
        return hashlib.sha256("\n".join(sorted(features)).encode()).hexdigest()
    return platform.machine() + platform.processor()


@functools.cache
def _sources() -> str:
    """Hash of the source files that define the programs."""
    files = Path(__file__).parent.glob("*.py")
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()
