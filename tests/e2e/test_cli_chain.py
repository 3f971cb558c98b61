"""The whole chain on every format: fit, predict, evaluate, info; as good as scikit-learn."""

import json

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.e2e.helpers import (
    features,
    flowers,
    houses,
    run,
    run_ok,
    run_process,
    write,
    write_libsvm,
)

import likelier


def read(path):
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    return pyarrow.csv.read_csv(path)


def evaluated(model, path):
    return json.loads(run_ok("evaluate", model, path, "--json").stdout)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_classification(suffix, tmp_path):
    train, test = flowers(1500, 0), flowers(1000, 1)
    train_file = write(tmp_path / f"train{suffix}", train)
    test_file = write(tmp_path / f"test{suffix}", test)
    model, out = tmp_path / "model", tmp_path / f"out{suffix}"

    # softmax, which is what scikit-learn's logistic regression is
    fit = ("fit", train_file, "--target", "species", "-o", model)
    assert "Task: classification, because the target is text" in run_ok(*fit).stderr
    run_ok(*fit, "--loss", "softmax")
    run_ok("predict", model, test_file, "-o", out)
    report = evaluated(model, test_file)

    written = read(out)
    classes = ["iris", "lily", "rose, wild"]
    assert written.column_names == ["prediction", *(f"probability_{c}" for c in classes)]
    assert written.num_rows == 1000
    p = np.column_stack([written[f"probability_{c}"] for c in classes])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    accuracy = np.mean(np.array(written["prediction"].to_pylist()) == test["species"])
    assert report["scores"]["accuracy"]["value"] == pytest.approx(accuracy)
    given = p[np.arange(1000), np.searchsorted(classes, test["species"])]
    assert report["scores"]["log_loss"]["value"] == pytest.approx(-np.log(given).mean())
    assert report["rows"] == 1000

    peer = make_pipeline(StandardScaler(), LogisticRegression())
    peer.fit(features(train, "species"), train["species"])
    peer_p = peer.predict_proba(features(test, "species"))
    peer_loss = -np.log(peer_p[np.arange(1000), np.searchsorted(classes, test["species"])]).mean()
    assert report["scores"]["log_loss"]["value"] < peer_loss + 0.01
    assert accuracy > peer.score(features(test, "species"), test["species"]) - 0.01


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_regression(suffix, tmp_path):
    train, test = houses(1000, 0), houses(800, 1)
    train_file = write(tmp_path / f"train{suffix}", train)
    test_file = write(tmp_path / f"test{suffix}", test)
    model, out = tmp_path / "model", tmp_path / "out.parquet"

    told = run_ok("fit", train_file, "-t", "price", "-o", model).stderr
    assert "regression" in told
    run_ok("predict", model, test_file, "-o", out)
    report = evaluated(model, test_file)

    prediction = np.array(read(out)["prediction"])
    rmse = np.sqrt(np.mean((prediction - test["price"]) ** 2))
    assert report["scores"]["rmse"]["value"] == pytest.approx(rmse)
    peer = LinearRegression().fit(features(train, "price"), train["price"])
    peer_error = test["price"] - peer.predict(features(test, "price"))
    assert rmse < 1.02 * np.sqrt(np.mean(peer_error**2))
    for name in ("rmse", "mae", "r2"):
        assert 0 < report["scores"][name]["stderr"] < 1
    lower, upper = np.array(read(out)["lower"]), np.array(read(out)["upper"])
    assert np.mean((lower <= test["price"]) & (test["price"] <= upper)) == pytest.approx(
        0.9, abs=0.04
    )
    wide = json.loads(run_ok("evaluate", model, test_file, "--json", "--coverage", 0.99).stdout)
    assert wide["scores"]["interval_coverage"]["value"] > 0.97


def test_libsvm(tmp_path):
    X, y = make_classification(2000, 30, n_informative=10, random_state=0)
    X[np.abs(X) < 0.7] = 0.0
    y = 2 * y - 1
    train = write_libsvm(tmp_path / "train.libsvm", X[:1500], y[:1500])
    test = write_libsvm(tmp_path / "test.t", X[1500:], y[1500:])  # told by its first line
    model, out = tmp_path / "model", tmp_path / "out.csv"

    told = run_ok("fit", train, "-o", model).stderr
    assert "classification" in told
    assert "few different whole numbers (2 in 1500 rows)" in told
    run_ok("predict", model, test, "-o", out)
    report = evaluated(model, test)
    accuracy = np.mean(np.array(read(out)["prediction"]) == y[1500:])
    assert report["scores"]["accuracy"]["value"] == pytest.approx(accuracy)
    peer = LogisticRegression(max_iter=1000).fit(X[:1500], y[:1500])
    assert accuracy > peer.score(X[1500:], y[1500:]) - 0.02


def test_the_real_command_in_processes_of_its_own(tmp_path):
    """A model written by one process is read by the next."""
    train = write(tmp_path / "train.csv", flowers(300, 0))
    model, out = tmp_path / "m", tmp_path / "out.csv"
    code, output, told = run_process("fit", train, "-t", "species", "-o", model)
    assert (code, output) == (0, ""), told
    code, _, told = run_process("predict", model, train, "-o", out)
    assert code == 0, told
    code, output, told = run_process("evaluate", model, train)
    assert code == 0, told
    assert "accuracy" in output
    assert "standard error" in output
    code, output, _ = run_process("predict", model, train, "-o", "-")
    assert code == 0
    assert output == out.read_text()
    code, output, _ = run_process("--version")
    assert (code, output) == (0, f"likelier {likelier.__version__}\n")


def test_a_saved_model_predicts_the_same_bits(tmp_path):
    train = write(tmp_path / "train.csv", flowers(300, 0))
    model = likelier.LinearClassifier(random_state=0).fit(train, y="species")
    likelier.save(model, tmp_path / "m")
    for loaded in (likelier.load(tmp_path / "m"), likelier.load_predictor(tmp_path / "m")):
        assert np.array_equal(loaded.predict(train), model.predict(train))
        assert np.array_equal(loaded.predict_proba(train), model.predict_proba(train))


def test_streaming_finds_nearly_the_same_model(tmp_path):
    train, test = flowers(3000, 0), write(tmp_path / "test.csv", flowers(1000, 1))
    file = write(tmp_path / "train.csv", train)
    run_ok("fit", file, "-t", "species", "-o", tmp_path / "whole")
    run_ok("fit", file, "-t", "species", "--memory", 0, "-o", tmp_path / "streamed")
    whole, streamed = evaluated(tmp_path / "whole", test), evaluated(tmp_path / "streamed", test)
    difference = whole["scores"]["log_loss"]["value"] - streamed["scores"]["log_loss"]["value"]
    assert abs(difference) < 0.01


def test_the_same_seed_gives_the_same_file(tmp_path):
    train = write(tmp_path / "train.csv", flowers(300, 0))
    for name in ("a", "b"):
        run_ok("fit", train, "-t", "species", "-o", tmp_path / name, "--seed", 3)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_target_may_be_absent_and_columns_in_any_order(tmp_path):
    columns = flowers(200, 0)
    train = write(tmp_path / "train.csv", columns)
    model = tmp_path / "m"
    run_ok("fit", train, "-t", "species", "-o", model)
    without = {name: columns[name] for name in ("noise", "colour", "width", "length")}
    new = write(tmp_path / "new.parquet", without)
    run_ok("predict", model, train, "-o", tmp_path / "a.csv")
    run_ok("predict", model, new, "-o", tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_no_header(tmp_path):
    lines = write(tmp_path / "train.csv", flowers(200, 0)).read_text().splitlines(keepends=True)
    bare = tmp_path / "bare.csv"
    bare.write_text("".join(lines[1:]))
    run_ok("fit", bare, "--no-header", "-t", "x4", "-o", tmp_path / "m")
    report = evaluated(tmp_path / "m", bare)
    assert report["target"] == "x4"
    assert report["scores"]["accuracy"]["value"] > 0.8


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["yes", "no"], "classification"),
        (["true", "false"], "classification"),
        (["0", "1"], "classification"),
        (["1", "2", "3"], "classification"),
        (["0.5", "1.5"], "regression"),
        ([str(i) for i in range(100)], "regression"),
    ],
)
def test_the_task_is_chosen_from_the_target(values, task, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "t.csv"
    rows = [f"{rng.standard_normal()},{values[i % len(values)]}" for i in range(200)]
    path.write_text("a,target\n" + "\n".join(rows) + "\n")
    told = run_ok("fit", path, "-t", "target", "-o", tmp_path / "m").stderr
    assert f"Task: {task}, because" in told
    assert evaluated(tmp_path / "m", path)["task"] == task


def test_the_task_can_be_given_or_follows_from_the_loss(tmp_path):
    path = tmp_path / "t.csv"
    rng = np.random.default_rng(0)
    path.write_text("a,b\n" + "".join(f"{rng.standard_normal()},{i % 3}\n" for i in range(300)))
    run_ok("fit", path, "-t", "b", "--task", "regression", "-o", tmp_path / "m")
    assert evaluated(tmp_path / "m", path)["task"] == "regression"
    told = run_ok("fit", path, "-t", "b", "--loss", "poisson", "-o", tmp_path / "m").stderr
    assert "Task: regression, because the loss poisson" in told


def test_loss_parameters(tmp_path):
    train = write(tmp_path / "train.csv", houses(2000, 0))
    model = tmp_path / "m"
    run_ok(
        "fit", train, "-t", "price", "--loss", "quantile", "--param", "loss__tau=0.9", "-o", model
    )
    run_ok("predict", model, train, "-o", tmp_path / "out.parquet")
    below = houses(2000, 0)["price"] < np.array(read(tmp_path / "out.parquet")["prediction"])
    assert 0.87 < below.mean() < 0.93
    assert read(tmp_path / "out.parquet").column_names == ["prediction"]  # no interval to offer
    assert likelier.load(model).loss == likelier.losses.Quantile(tau=0.9)


def test_options_reach_the_estimator(tmp_path):
    train = write(tmp_path / "train.csv", flowers(200, 0))
    args = ["--alpha", "0.01", "--max-iter", "7", "--tol", "0", "--jobs", "2", "--seed", "5"]
    args += ["--param", "solver=sgd", "--param", "solver__average=False"]
    result = run("fit", train, "-t", "species", *args, "-o", tmp_path / "m")
    assert result.exit_code == 0, result.output
    estimator = likelier.load(tmp_path / "m")
    assert (estimator.alpha, estimator.max_iter, estimator.tol) == (0.01, 7, 0.0)
    assert (estimator.n_jobs, estimator.random_state, estimator.solver.average) == (2, 5, False)


def test_missing_values(tmp_path):
    columns = houses(500, 0)
    lines = write(tmp_path / "t.csv", columns).read_text().splitlines()
    for i in range(1, 500, 10):
        lines[i] = "," + lines[i].partition(",")[2]
    path = tmp_path / "holes.csv"
    path.write_text("\n".join(lines) + "\n")
    run_ok("fit", path, "-t", "price", "-o", tmp_path / "m")
    assert "area is missing" in likelier.load(tmp_path / "m").feature_names_in_
    assert evaluated(tmp_path / "m", path)["scores"]["r2"]["value"] > 0.8


def test_excluded_columns_are_not_used(tmp_path):
    train = write(tmp_path / "t.csv", {**houses(300, 0), "id": np.arange(300)})
    run_ok(
        "fit", train, "-t", "price", "--exclude", "id", "--exclude", "town", "-o", tmp_path / "m"
    )
    assert list(likelier.load(tmp_path / "m").feature_names_in_) == ["area", "age"]


def test_classes_never_trained_on_are_counted(tmp_path):
    train = write(tmp_path / "t.csv", flowers(300, 0))
    run_ok("fit", train, "-t", "species", "-o", tmp_path / "m")
    other = flowers(100, 1)
    other["species"] = np.where(np.arange(100) < 10, "tulip", other["species"])
    test = write(tmp_path / "o.csv", other)
    assert evaluated(tmp_path / "m", test)["rows_of_unknown_class"] == 10
    assert "10 rows have a class" in run_ok("evaluate", tmp_path / "m", test).stdout


def test_info(tmp_path):
    train = write(tmp_path / "t.csv", flowers(300, 0))
    run_ok("fit", train, "-t", "species", "-m", "linear", "-o", tmp_path / "m")
    facts = json.loads(run_ok("info", tmp_path / "m", "--json").stdout)
    assert facts["model"] == "LinearClassifier"
    assert facts["classes"] == ["iris", "lily", "rose, wild"]
    assert facts["features"] == 6
    assert set(facts["coefficients"]) >= {"length", "width", "colour=red"}
    text = run_ok("info", tmp_path / "m").stdout
    for word in ("LinearClassifier", "species", "colour=red", likelier.__version__):
        assert word in text


def test_info_on_a_model_made_in_python(tmp_path):
    X = np.random.default_rng(0).standard_normal((50, 3))
    likelier.save(likelier.LinearRegressor().fit(X, X[:, 1]), tmp_path / "fitted")
    facts = json.loads(run_ok("info", tmp_path / "fitted", "--json").stdout)
    assert (facts["model"], facts["features"]) == ("LinearRegressor", 3)
    assert next(iter(facts["coefficients"])) == "x1"
    likelier.save(likelier.LinearRegressor(), tmp_path / "new")
    assert "LinearRegressor" in run_ok("info", tmp_path / "new").stdout


def test_quiet_says_nothing(tmp_path):
    train = write(tmp_path / "t.csv", flowers(300, 0))
    result = run_ok("fit", train, "-t", "species", "-q", "-o", tmp_path / "m")
    assert result.output == ""


@pytest.mark.parametrize("command", ["", "fit", "predict", "evaluate", "info", "warm-up"])
def test_help_fits_a_terminal(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run_ok(*([command] if command else []), "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    if command not in ("", "info"):
        assert "Examples:" in text
