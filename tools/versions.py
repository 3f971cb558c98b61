"""Try the wheel in environments of their own: without extras, and with other versions.

``versions.py [NAME ...]`` builds the wheel, installs it into a new virtual environment for each
name, and runs there what `ENVIRONMENTS` says: the demo, or a short selection of tests. Where the
interpreter of an environment is not installed, it says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The checks of older scikit-learn are deprecated use of newer pytest.
FOR_TESTS = ("pytest==8.4.*", "pytest-timeout", "hypothesis", "pandas")
# Imports, model files, losses, and scikit-learn's checks of two estimators: minutes.
SELECTION = (
    *("tests/unit/test_imports.py", "tests/unit/test_registry.py", "tests/unit/test_losses.py"),
    *("tests/unit/test_predictive.py", "tests/estimators/test_sklearn_checks.py"),
    *("-k", "not sklearn_check or LinearClassifier or GaussianNB"),
)
NO_JAX = """
import likelier
try:
    likelier.DeepGPClassifier().fit([[0.0], [1.0]], [0, 1])
except ImportError as error:
    assert 'pip install "likelier[jax]"' in str(error), error
else:
    raise SystemExit("a deep Gaussian process was fitted without its extra")
"""


@dataclass(frozen=True)
class Environment:
    """An interpreter, versions of packages (else those of constraints.txt), and what runs."""

    python: str | None = None  # None: the one that runs this
    pins: tuple[str, ...] = ()
    lowest: bool = False  # the lowest version of every dependency instead
    tests: bool = True  # a short selection of tests; without: the demo, and no other package


ENVIRONMENTS = {
    "wheel": Environment(tests=False),
    "lowest": Environment("3.11", lowest=True),
    "3.12": Environment("3.12", ("scikit-learn==1.8.*",)),
    "3.13": Environment("3.13"),
}


def interpreter(version: str | None) -> str | None:
    """Path of an interpreter of that version that runs, on the path or of pyenv; None if none."""
    if version is None or sys.version.startswith(f"{version}."):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    for path in (shutil.which(f"python{version}"), *map(str, reversed(found))):
        # A name on the path may be a shim for a version that is not there.
        runs = path and subprocess.run([path, "-c", ""], capture_output=True, check=False)
        if runs and runs.returncode == 0:
            return path
    return None


def requirements(environment: Environment) -> list[str]:
    """Versions of packages that the environment prescribes."""
    if environment.lowest:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extra = project["optional-dependencies"]["jax"]
        return [text.replace(">=", "==") for text in (*project["dependencies"], *extra)]
    given = [pin.split("==")[0] for pin in (*environment.pins, *FOR_TESTS)]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    others = [pin for pin in pins if pin and pin[0] != "#" and pin.split("==")[0] not in given]
    return [*others, *environment.pins]


def build(folder: Path) -> Path:
    """Build the wheel into a folder."""
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))
    return next(folder.glob("likelier-*.whl"))


def try_out(environment: Environment, wheel: Path, folder: Path) -> None:
    """Install the wheel into a new environment in the folder, and run what it is there for."""
    base = interpreter(environment.python)
    assert base is not None
    _run(base, "-m", "venv", str(folder / "venv"))
    python = str(folder / "venv" / "bin" / "python")
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(requirements(environment)) + "\n", encoding="utf-8")
    given = [f"likelier[jax] @ {wheel.as_uri()}", *FOR_TESTS] if environment.tests else [str(wheel)]
    _run(python, "-m", "pip", "install", "-q", "-c", str(constraints), *given)
    if environment.tests:
        _run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTION)
    else:
        _run(python, str(ROOT / "examples" / "demo.py"))
        _run(python, "-c", NO_JAX)


def _run(*command: str) -> None:
    """Run a command in the project's folder, which is not on the path of modules."""
    hidden = ("PYTHONPATH", "NUMBA_CACHE_DIR", "VIRTUAL_ENV")
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    subprocess.run(command, cwd=ROOT, env=environ, check=True)


def main(names: list[str]) -> int:
    """Try the named environments, or all."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = build(folder)
        for name in names or ENVIRONMENTS:
            if interpreter(ENVIRONMENTS[name].python) is None:
                print(f"{name}: no such interpreter here")
                continue
            (folder / name).mkdir()
            try_out(ENVIRONMENTS[name], wheel, folder / name)
            print(f"{name}: works", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
