"""A column of running text on the command line: fit, predict and evaluate, model by model."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from tests.e2e.helpers import run_ok, write

from likelier.cli.options import MODELS

# the default (kernel), then the others but chains, which take longer than all of these together
SLOW_OR_SAME = ("bayesian_linear", "kernel")
CLASSIFIERS = [None, *(n for n, c in MODELS.items() if c.classifier and n not in SLOW_OR_SAME)]
COMMON = [f"word{i}" for i in range(60)]
TOPICS = {
    "sport": ["goal", "match", "Läufer", "team", "coach"],
    "money": ["bank", "loan", "crédit", '"rate"', "market"],
    "space": ["orbit", "moon", "ракета", "probe", "launch, again"],
}


def letters(n, seed):
    """Texts of common words and one or two of their topic; the number says a little about it."""
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    topic = rng.integers(0, 3, n)
    texts = [
        " ".join(
            rng.permutation(
                [*rng.choice(COMMON, 8), *rng.choice(TOPICS[names[k]], rng.integers(1, 3))]
            )
        )
        for k in topic
    ]
    return {
        "body": np.array(texts),
        "pages": np.round(np.exp(0.3 * topic + 0.5 * rng.standard_normal(n)), 3),
        "topic": np.array(names)[topic],
    }


def read(path):
    return (pyarrow.parquet.read_table if path.suffix == ".parquet" else pyarrow.csv.read_csv)(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_texts_are_told_apart(name, ending, tmp_path):
    train = write(tmp_path / f"train.{ending}", letters(400, 0))
    columns = letters(300, 1)
    test = write(tmp_path / f"test.{ending}", columns)
    model, out = tmp_path / "model.likelier", tmp_path / f"out.{ending}"
    chosen = ["--model", name] if name else []
    run_ok("fit", train, "--target", "topic", *chosen, "--seed", 0, "-o", model)
    facts = json.loads(run_ok("info", model, "--json").stdout)
    assert facts["features"] > len(COMMON)  # words, not categories
    run_ok("predict", model, test, "-o", out)
    accuracy = np.mean(np.array(read(out)["prediction"]) == columns["topic"])
    assert accuracy > 0.85, accuracy  # one in three by chance, less than half by the number alone
    scores = json.loads(run_ok("evaluate", model, test, "--json").stdout)
    assert scores["scores"]["accuracy"]["value"] == pytest.approx(accuracy)


# not svm: its C = 1 is in units of the target, as scikit-learn's
@pytest.mark.parametrize("name", ["kernel", "linear"])
def test_numbers_are_read_from_texts(name, tmp_path):
    columns = letters(400, 0)
    level = {"sport": 0.0, "money": 5.0, "space": 10.0}
    for part, table in (("train", columns), ("test", letters(300, 1))):
        price = np.array([level[topic] for topic in table.pop("topic")])
        noise = np.random.default_rng(len(part)).standard_normal(len(price))
        write(tmp_path / f"{part}.csv", {**table, "price": price + 0.3 * noise})
    model = tmp_path / "model.likelier"
    run_ok("fit", tmp_path / "train.csv", "-t", "price", "--model", name, "-o", model)
    run_ok("predict", model, tmp_path / "test.csv", "-o", tmp_path / "out.csv")
    predicted = np.array(read(tmp_path / "out.csv")["prediction"])
    true = np.array(read(tmp_path / "test.csv")["price"])
    assert np.mean((predicted - true) ** 2) < 0.25 * true.var()


def test_rows_without_a_text_are_predicted(tmp_path):
    train = write(tmp_path / "train.csv", letters(400, 0))
    run_ok("fit", train, "-t", "topic", "-o", tmp_path / "m", "--model", "linear")
    empty = tmp_path / "empty.csv"
    empty.write_text('pages,body\n1.5,\n2.5,""\n1.0,"never seen before"\n')
    run_ok("predict", tmp_path / "m", empty, "-o", tmp_path / "out.csv")
    assert set(read(tmp_path / "out.csv")["prediction"].to_pylist()) <= set(TOPICS)
