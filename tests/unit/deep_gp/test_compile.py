"""Compiled programs: kept in memory and on disk, and never trusted blindly."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from likelier.deep_gp import compile as deep_compile
from likelier.deep_gp.compile import compiled_program, forget_programs

MATRIX = np.array([[4.0, 1.0], [1.0, 3.0]], dtype=np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "programs"
    monkeypatch.setenv("LIKELIER_CACHE_DIR", str(place))
    forget_programs()
    yield place
    forget_programs()


def make():
    """How often it is traced is what the tests count."""
    make.calls += 1
    return lambda a, b: (jnp.linalg.cholesky(a) * b, a.sum())


def call(name="test"):
    arguments = (MATRIX, np.float32(2.0))
    return [np.asarray(part) for part in compiled_program(make, arguments, (name,))(*arguments)]


def expect(n_calls):
    root, total = call()
    np.testing.assert_allclose(root, 2.0 * np.linalg.cholesky(MATRIX), rtol=1e-6)
    assert total == MATRIX.sum()
    assert make.calls == n_calls


@pytest.fixture(autouse=True)
def count():
    make.calls = 0


def test_a_program_is_made_once_and_found_again(folder):
    expect(1)
    expect(1)
    forget_programs()
    expect(1)  # from disk
    assert len(list(folder.iterdir())) == 1
    assert oct(folder.stat().st_mode & 0o777) == "0o700"


def test_a_damaged_file_is_made_anew(folder):
    expect(1)
    (file,) = folder.iterdir()
    file.write_bytes(b"not a program")
    forget_programs()
    expect(2)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_that_others_can_write_is_not_read(folder):
    expect(1)
    folder.chmod(0o777)
    forget_programs()
    expect(2)


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LIKELIER_CACHE_DIR", str(tmp_path / "file" / "below"))
    forget_programs()
    expect(1)


def test_other_shapes_names_and_processors_are_other_programs(folder, monkeypatch):
    call()
    call("other")
    monkeypatch.setattr(deep_compile, "_processor", lambda: "another")
    call()
    assert make.calls == 3
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("effort", deep_compile.EFFORTS)
def test_the_compiler_knows_the_options_of_quick_programs(effort):
    """Else they would be left out in silence, and small models wait longer than they need."""
    lowered = jax.jit(lambda a: a @ a).lower(MATRIX)
    program = lowered.compile(compiler_options=deep_compile.EFFORTS[effort])
    np.testing.assert_allclose(program(MATRIX), MATRIX @ MATRIX)


def test_an_option_unknown_to_the_compiler_is_left_out(folder, monkeypatch):
    monkeypatch.setitem(deep_compile.EFFORTS, "little", {"xla_no_such_option": True})
    arguments = (MATRIX, np.float32(1.0))
    program = compiled_program(make, arguments, ("quick",), effort="little")
    np.testing.assert_allclose(np.asarray(program(*arguments)[1]), MATRIX.sum())


CODE = """
import numpy as np, sys
sys.path.insert(0, {here!r})
from tests.unit.deep_gp.test_compile import call, make
make.calls = 0
root, _ = call()
assert make.calls == 0, "was compiled again"
np.testing.assert_allclose(root, {expected!r}, rtol=1e-6)
"""


def test_another_process_runs_a_program_from_disk(folder):
    """LAPACK is only known to JAX once something was lowered: without care this crashes."""
    root, _ = call()
    code = CODE.format(here=os.getcwd(), expected=root.tolist())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", ".", *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert jax.numpy.ones(1).dtype == np.float32


FIT = """
import numpy as np
from likelier import DeepGPRegressor
X = np.random.default_rng(0).uniform(-2.0, 2.0, (60, 3))
words = {"n_inducing": 20, "max_iter": 60, "random_state": 0}
words |= {"inference__n_draws": 16, "kernel__per_node": True}
model = DeepGPRegressor().set_params(**words).fit(X, np.sin(X[:, 0]))
assert np.isfinite(model.predict(X)).all()
"""


def test_several_threads_do_not_wait_for_each_other():
    """Matrices of many nodes, factorised at once, do: with two threads this would never end.

    Workers of these tests may have one thread only.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", *sys.path]), "NPROC": "2"}
    done = subprocess.run(
        [sys.executable, "-c", FIT], capture_output=True, text=True, env=environment, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
