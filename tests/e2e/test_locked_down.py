"""A package owned by root and a user without a home, as in a locked-down container."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

import likelier

NOBODY = 65534
FIT = """
import warnings
import numpy as np
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from likelier import SVC, LinearClassifier
print(sum("NUMBA_CACHE_DIR" in str(w.message) and "warm-up" in str(w.message) for w in told))
X = np.random.default_rng(0).normal(size=(60, 3))
for model in (SVC(), LinearClassifier()):
    print(model.fit(X, X[:, 0] > 0.0).score(X, X[:, 0] > 0.0) > 0.8)
"""


@pytest.fixture
def package():
    """A folder with a copy of the package, and one file of data, that only root can write."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # not below tmp_path, which nobody else may enter
    folder = Path(tempfile.mkdtemp(prefix="likelier-locked-"))
    try:
        source = Path(likelier.__file__).parent
        shutil.copytree(
            source, folder / "likelier", ignore=shutil.ignore_patterns("__pycache__", "*.nb?")
        )
        rows = "".join(f"{i % 7},{i % 5},{'ab'[i % 7 > 3]}\n" for i in range(60))
        (folder / "rows.csv").write_text(f"one,two,kind\n{rows}")
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


@cache
def to_nobody():
    """Words that run a command as nobody, who may read all that root may; None if none work.

    Where Python belongs to root alone, nobody needs the capability to read files of others.
    """
    plain = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    readable = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    for words in (plain, (*plain, *readable)):
        probe = [*words, sys.executable, "-c", "import numba"]
        if not subprocess.run(probe, capture_output=True, check=False).returncode:
            return words
    return None


def run_as_nobody(package, *arguments, **environment):
    """Run Python with the package as a user who can write nowhere but to temporary folders."""
    if shutil.which("setpriv") is None or to_nobody() is None:
        pytest.skip("no way to run Python as another user here")
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    environment = kept | {"HOME": "/nonexistent", "PYTHONPATH": str(package)} | environment
    command = [*to_nobody(), sys.executable, "-B", *map(str, arguments)]
    return subprocess.run(
        command, env=environment, cwd=package, capture_output=True, text=True, check=False
    )


def test_models_work_without_a_cache_and_say_so_once(package):
    run = run_as_nobody(package, "-c", FIT)
    assert run.stdout.split() == ["1", "True", "True"], run.stderr


def test_the_command_works_without_a_cache_and_says_so_in_one_line(package):
    with tempfile.TemporaryDirectory() as out:
        os.chown(out, NOBODY, NOBODY)
        output = Path(out) / "model"
        run = run_as_nobody(
            package, "-m", "likelier", "fit", "rows.csv", "-t", "kind", "-m", "linear", "-o", output
        )
        assert run.returncode == 0, run.stderr
        assert output.exists()
    told = [line for line in run.stderr.splitlines() if "warning" in line]
    assert len(told) == 1 and "NUMBA_CACHE_DIR" in told[0] and "likelier warm-up" in told[0]


def test_warm_up_says_that_it_can_keep_nothing(package):
    run = run_as_nobody(package, "-m", "likelier", "warm-up")
    assert run.returncode == 2
    assert "NUMBA_CACHE_DIR" in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("place", ["beside the package", "named folder"])
def test_what_root_compiled_is_used_by_others(place, package):
    own = {"NUMBA_CACHE_DIR": str(package / "compiled")} if place == "named folder" else {}
    code = (
        "import numpy as np\nfrom likelier.fitting.loops.finite import sum_of_squares\n"
        "sum_of_squares(np.ones(3)), sum_of_squares(np.ones(3, {dtype!r}))\n"
        "print(sum(sum_of_squares.stats.cache_hits.values()))"
    )
    environment = {**os.environ, "PYTHONPATH": str(package), **own}
    if not own:
        environment.pop("NUMBA_CACHE_DIR", None)
    first = subprocess.run(
        [sys.executable, "-B", "-c", code.format(dtype="f8")],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert first.stdout.split() == ["0"]
    again = run_as_nobody(package, "-W", "error", "-c", code.format(dtype="f8"), **own)
    assert again.stdout.split() == ["1"], again.stderr
    # what was not compiled before still works
    other = run_as_nobody(package, "-W", "error", "-c", code.format(dtype="f4"), **own)
    assert other.stdout.split() == ["1"], other.stderr
