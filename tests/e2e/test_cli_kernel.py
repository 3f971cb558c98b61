"""Losses of kernel machines from the command line."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from tests.e2e.helpers import run, run_ok

from likelier import load


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "kind", "size"])
        for a, b in X.tolist():
            writer.writerow([a, b, "in" if a * a + b * b < 1.4 else "out", a + b])
    return path


@pytest.mark.parametrize(
    ("loss", "target", "kind"),
    [
        ("hinge", "kind", "BayesianKernelClassifier"),
        ("epsilon_insensitive", "size", "BayesianKernelRegressor"),
    ],
)
def test_a_loss_by_its_name(table, tmp_path, loss, target, kind):
    model = tmp_path / "model"
    done = run_ok("fit", table, "-t", target, "-m", "kernel", "--loss", loss, "-o", model)
    assert f"because the loss {loss} implies it" in done.output
    fitted = load(model)
    assert (type(fitted).__name__, fitted.loss) == (kind, loss)


def test_a_loss_it_does_not_have_is_named(table, tmp_path):
    done = run("fit", table, "-t", "kind", "-m", "kernel", "--loss", "squared_error",
               "-o", tmp_path / "model")  # fmt: skip
    assert done.exit_code != 0
    assert "squared_error" in done.output and "softmax" in done.output
