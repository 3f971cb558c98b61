"""Naive Bayes on the command line: fit, evaluate and predict with each of the three."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from likelier.cli.commands import main
from likelier.registry import load


@pytest.mark.parametrize("name", ["gaussian_nb", "multinomial_nb", "bernoulli_nb"])
def test_from_a_file_to_predictions(name, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = rng.poisson(np.array([[5, 0.2, 1], [0.2, 5, 1], [1, 1, 6]])[y])
    frame = pd.DataFrame(X, columns=list("abc")).assign(kind=np.array(["u", "v", "w"])[y])
    data, model = tmp_path / "rows.csv", tmp_path / "model.likelier"
    frame.to_csv(data, index=False)
    runner = CliRunner()
    words = ["fit", str(data), "--target", "kind", "--model", name, "--seed", "1", "-o", str(model)]
    assert runner.invoke(main, words).exit_code == 0
    out = tmp_path / "out.csv"
    words = ["predict", str(model), str(data), "-o", str(out)]
    assert runner.invoke(main, words).exit_code == 0
    fitted = load(model)
    predictions = pd.read_csv(out)
    assert list(predictions["prediction"]) == list(fitted.predict(X.astype(float)))
    assert (predictions["prediction"] == frame["kind"]).mean() > 0.6
    assert runner.invoke(main, ["evaluate", str(model), str(data)]).exit_code == 0
