"""What importing and using likelier loads, and what it must never load."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import likelier

OPTIONAL = frozenset(
    {"dask", "distributed", "jax", "jaxlib", "matplotlib", "pandas", "polars", "pyspark", "torch"}
)
HEAVY = frozenset({"numba", "pyarrow", "rich", "scipy", "sklearn"})

# Notes every attempt to import, so that a package which is not installed here counts as well.
WATCH = """
import sys

class Watch:
    def __init__(self):
        self.asked = set()

    def find_spec(self, name, path=None, target=None):
        self.asked.add(name.partition(".")[0])
        return None

watch = Watch()
sys.meta_path.insert(0, watch)
"""
REPORT = "\nprint(sorted(watch.asked | {name.partition('.')[0] for name in sys.modules}))"

FIT = """
import numpy as np
import likelier

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
y = X @ [1.0, -2.0, 0.5] + rng.normal(size=200)
likelier.LinearRegressor(random_state=0).fit(X, y).predict(X)
likelier.LinearClassifier(random_state=0).fit(X, y > 0).predict_proba(X)
likelier.BayesianKernelRegressor(random_state=0).fit(X, y).predict_interval(X)
likelier.BayesianKernelClassifier(random_state=0).fit(X, y > 0).predict_proba(X)
"""


def packages_loaded_by(code: str) -> set[str]:
    """Top-level packages that ``code`` imports or tries to import in a fresh interpreter."""
    run = subprocess.run(
        [sys.executable, "-c", WATCH + code + REPORT], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(ast.literal_eval(run.stdout.splitlines()[-1]))


def test_the_watch_sees_imports_also_of_what_is_not_installed() -> None:
    code = "import json\ntry:\n    import no_such_package.part\nexcept ImportError:\n    pass"
    assert {"json", "no_such_package"} <= packages_loaded_by(code)


def test_import_likelier_loads_no_optional_and_no_heavy_package() -> None:
    loaded = packages_loaded_by("import likelier")
    assert "likelier" in loaded
    assert not loaded & (OPTIONAL | HEAVY)


def test_losses_load_no_optional_package_and_no_compiler() -> None:
    loaded = packages_loaded_by("from likelier import losses\nlosses.Hinge()")
    assert "scipy" in loaded
    assert not loaded & (OPTIONAL | {"numba"})


def test_fitting_linear_models_and_kernel_machines_loads_no_optional_package() -> None:
    loaded = packages_loaded_by(FIT)
    assert "sklearn" in loaded
    # scikit-learn itself imports pandas where it is installed.
    assert not loaded & (OPTIONAL - {"pandas"})


@pytest.mark.parametrize("name", likelier.__all__)
def test_every_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(likelier, name) is getattr(likelier, name)
    assert name in dir(likelier)


def test_a_public_module_is_the_module_itself() -> None:
    assert likelier.losses is import_module("likelier.losses")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LinearClasifier'"):
        likelier.LinearClasifier  # noqa: B018


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(likelier.__file__).parent / "py.typed").is_file()
