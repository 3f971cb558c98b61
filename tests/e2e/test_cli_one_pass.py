"""One-pass learning on the command line: fit, evaluate and predict."""

from __future__ import annotations

import numpy as np
import pandas as pd
from click.testing import CliRunner

from likelier.cli.commands import main
from likelier.registry import load


def test_from_a_file_to_predictions(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    kind = np.array(["u", "v", "w"])[np.argmax(X + 0.3 * rng.gumbel(size=X.shape), axis=1)]
    frame = pd.DataFrame(X, columns=list("abc")).assign(kind=kind)
    data, model, out = (tmp_path / name for name in ("rows.csv", "model.likelier", "out.csv"))
    frame.to_csv(data, index=False)
    runner = CliRunner()
    words = ["fit", str(data), "--target", "kind", "--model", "one_pass", "-o", str(model)]
    assert runner.invoke(main, words).exit_code == 0
    assert runner.invoke(main, ["predict", str(model), str(data), "-o", str(out)]).exit_code == 0
    predictions = pd.read_csv(out)["prediction"]
    assert list(predictions) == list(load(model).predict(X))
    assert (predictions == kind).mean() > 0.8
    assert runner.invoke(main, ["evaluate", str(model), str(data)]).exit_code == 0
