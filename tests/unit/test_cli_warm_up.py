"""``likelier warm-up`` fits every public estimator, and says where compiled code is."""

from __future__ import annotations

import numba
import pytest
from click.testing import CliRunner
from sklearn.base import BaseEstimator

import likelier
from likelier.cli import main, warm_up


def test_every_public_estimator_is_fitted():
    values = {name: getattr(likelier, name) for name in likelier.__all__}
    kinds = {n for n, v in values.items() if isinstance(v, type) and issubclass(v, BaseEstimator)}
    assert set(warm_up.public_estimators()) == kinds


def test_deep_gaussian_processes_are_left_out_without_jax(monkeypatch):
    monkeypatch.setattr(warm_up, "find_spec", lambda name: None)
    names = warm_up.public_estimators()
    assert "SVC" in names
    assert not any(name.startswith("DeepGP") for name in names)


# the others are run by tests of their own with data like these, and all by the command itself
@pytest.mark.parametrize("name", ["GaussianNB", "LinearRegressor", "TextFeatures"])
def test_progress_and_the_folder_are_told(name, monkeypatch):
    monkeypatch.setattr(warm_up, "public_estimators", lambda: [name])
    run = CliRunner().invoke(main, ["warm-up"])
    assert run.exit_code == 0, run.output
    told = run.stderr.splitlines()
    assert told == [f"1/1 {name}", f"Compiled code is in {numba.config.CACHE_DIR}."]


@pytest.mark.slow
@pytest.mark.parametrize("name", warm_up.public_estimators())
@pytest.mark.filterwarnings("ignore")
def test_every_one_can_be_fitted(name):
    warm_up._run(name)


def test_no_folder_is_an_error_with_code_2(monkeypatch):
    monkeypatch.setattr(warm_up, "cache_folder", lambda: None)
    run = CliRunner().invoke(main, ["warm-up"])
    assert run.exit_code == 2
    assert "NUMBA_CACHE_DIR" in run.stderr
