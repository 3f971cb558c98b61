"""Files and iterators larger than memory: the same model as in memory, in bounded memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from likelier import SGD, LinearClassifier, LinearRegressor
from likelier.losses import LOSSES

SMOOTH = [n for n, loss in LOSSES.items() if loss.smooth]
NAMES = ["age", "height", "weight", "income"]
ignore = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(n=500, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X = np.round(rng.standard_normal((n, 4)), 3) * [1.0, 10.0, 100.0, 1e4] + [0.0, 5.0, 70.0, 0.0]
    signal = rng.permutation(n) / n + X[:, 0] - 0.03 * X[:, 1]
    cuts = np.quantile(signal, np.linspace(0.0, 1.0, n_classes + 1)[1:-1])
    return X, np.digitize(signal, cuts), np.round(abs(signal), 4)


def make(loss, **words):
    kind = LinearClassifier if LOSSES[loss].task in ("binary", "multiclass") else LinearRegressor
    return kind(loss, random_state=0, **words)


def target(loss, y, t):
    return y if LOSSES[loss].task in ("binary", "multiclass") else t


def blocks(X, *columns, size=120):
    for first in range(0, X.shape[0], size):
        part = slice(first, first + size)
        yield (X[part], *(column[part] for column in columns))


def write(path, X, y):
    """A table with the target between the features, or a libsvm file."""
    if path.suffix == ".svm":
        dump_svmlight_file(X, y, str(path), zero_based=False)
        return {}
    frame = pd.DataFrame(X, columns=NAMES)
    frame.insert(2, "what", y)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=100)
    return {"y": "what"}


def same(model, other, X):
    """Coefficients to 1e-6 in the units of the features' spread."""
    spread = X.std(axis=0)
    np.testing.assert_allclose(model.coef_ * spread, other.coef_ * spread, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=1e-5)


# -- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".svm"])
@pytest.mark.parametrize("loss", SMOOTH)
def test_a_file_gives_the_model_of_the_rows_in_memory(loss, suffix, tmp_path):
    X, y, t = draw()
    t = target(loss, y, t)
    path = tmp_path / f"data{suffix}"
    words = write(path, X, t)
    model = make(loss).fit(path, **words)
    same(model, make(loss).fit(X, t), X)
    assert model.converged_
    if suffix == ".svm":
        assert model.n_features_in_ == 4
        assert model.predict(sparse.csr_array(X)).shape == (500,)
    else:
        np.testing.assert_array_equal(model.feature_names_in_, NAMES)
        frame = pd.DataFrame(X, columns=NAMES)
        twin = make(loss).fit(frame, t)
        np.testing.assert_allclose(model.predict(frame), twin.predict(frame), rtol=1e-5)


def test_intervals_of_a_file(tmp_path):
    X, _, t = draw()
    path = tmp_path / "data.csv"
    write(path, X, t)
    model, twin = LinearRegressor().fit(str(path), "what"), LinearRegressor().fit(X, t)
    np.testing.assert_allclose(model.coef_stderr_, twin.coef_stderr_, rtol=1e-6)
    assert model.noise_ == pytest.approx(twin.noise_, rel=1e-6)
    frame = pd.DataFrame(X, columns=NAMES)
    assert model.predict_interval(frame).shape == (500, 2)


def test_text_labels_in_a_file(tmp_path):
    X, y, _ = draw()
    names = np.array(["low", "middle", "high"])[y]
    for suffix in (".csv", ".parquet"):
        path = tmp_path / f"data{suffix}"
        write(path, X, names)
        model = LinearClassifier(random_state=0).fit(path, "what")
        np.testing.assert_array_equal(model.classes_, ["high", "low", "middle"])
        twin = LinearClassifier(random_state=0).fit(X, names)
        same(model, twin, X)


@ignore
@pytest.mark.parametrize("loss", ["hinge", "multiclass_hinge", "quantile", "epsilon_insensitive"])
def test_losses_with_kinks_come_near(loss, tmp_path):
    X, y, t = draw(n_classes=2)
    t = target(loss, y, t)
    path = tmp_path / "data.parquet"
    words = write(path, X, t)
    model, twin = make(loss).fit(path, **words), make(loss).fit(X, t)
    agree = model.predict(pd.DataFrame(X, columns=NAMES))
    if loss in ("hinge", "multiclass_hinge"):
        assert (agree == twin.predict(X)).mean() > 0.95
        assert model.predict_proba(pd.DataFrame(X, columns=NAMES)).shape == (500, 2)
    else:
        np.testing.assert_allclose(agree, twin.predict(X), atol=0.05)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda m, p: m.fit(p / "data.csv", "wat"), "wat"),
        (lambda m, p: m.fit(p / "data.csv"), "target"),
        (lambda m, p: m.fit(p / "missing.csv", "what"), "missing.csv"),
        (lambda m, p: m.fit(p / "data.csv", "what", sample_weight=np.ones(500)), "sample_weight"),
        (lambda m, p: m.fit(p / "data.csv", np.zeros(500)), "name of the target column"),
    ],
    ids=["no_such_column", "no_target", "no_such_file", "weights", "targets"],
)
def test_errors_of_files(call, reason, tmp_path):
    X, y, _ = draw()
    write(tmp_path / "data.csv", X, y)
    model = LinearClassifier()
    with pytest.raises((ValueError, TypeError, OSError), match=reason):
        call(model, tmp_path)
    assert not hasattr(model, "coef_")


def test_missing_values_in_a_file(tmp_path):
    path = tmp_path / "holes.csv"
    path.write_text("a,what\n" + "1,0\n,1\n3,0\n2,\n" * 20)
    model = LinearClassifier(random_state=0).fit(path, "what")
    assert model.feature_names_in_.tolist() == ["a", "a is missing"]
    # a row without a target is left out, and gaps tell the class
    later = pd.DataFrame({"a": [1.0, None, 3.0]})
    np.testing.assert_array_equal(model.predict(later), [0, 1, 0])


def test_early_stopping_has_no_rows_to_hold_out(tmp_path):
    X, y, _ = draw()
    write(tmp_path / "data.csv", X, y)
    with pytest.raises(ValueError, match="early_stopping"):
        LinearClassifier(solver=SGD(early_stopping=True)).fit(tmp_path / "data.csv", "what")


# -- iterators --------------------------------------------------------------------------------


SOURCES = {
    "function": lambda *data: lambda: blocks(*data),
    "list": lambda *data: list(blocks(*data)),
}
every_source = pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))


@every_source
@pytest.mark.parametrize("kind", [np.asarray, np.float32, sparse.csr_array, sparse.csr_matrix])
def test_blocks_that_can_be_read_again(source, kind):
    X, y, _ = draw()
    X = X.astype(np.float32).astype(float)
    model = LinearClassifier(random_state=0).fit(source(kind(X), y))
    twin = LinearClassifier(random_state=0).fit(X, y)
    same(model, twin, X)
    assert model.route_ == twin.route_ == "newton"


@every_source
@pytest.mark.parametrize("loss", ["softmax", "squared_error", "poisson"])
def test_weights_come_with_their_blocks(source, loss):
    X, y, t = draw()
    t = target(loss, y, t)
    weight = np.random.default_rng(1).choice([0.0, 0.5, 3.0], 500)
    model = make(loss).fit(source(X, t, weight))
    twin = make(loss).fit(X, t, sample_weight=weight)
    same(model, twin, X)


@every_source
def test_a_label_that_appears_only_in_the_last_block(source):
    X, y, _ = draw(n_classes=4)
    order = np.argsort(y, kind="stable")
    model = LinearClassifier("softmax", random_state=0).fit(source(X[order], y[order]))
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 3])
    same(model, LinearClassifier("softmax", random_state=0).fit(X, y), X)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.0, 1: 3.0, 2: 0.2}, {1: 4.0}])
def test_class_weights_of_a_stream(class_weight):
    X, y, _ = draw()
    words = {"class_weight": class_weight, "random_state": 0}
    model = LinearClassifier(**words).fit(lambda: blocks(X, y))
    same(model, LinearClassifier(**words).fit(X, y), X)


@every_source
def test_chosen_rates_pass_over_blocks(source):
    X, y, _ = draw()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    words = {"solver": SGD(learning_rate="constant"), "max_iter": 5, "tol": None, "random_state": 0}
    model = LinearClassifier(**words).fit(source(X, y))
    assert model.n_iter_ == 5
    assert model.score(X, y) > 0.6
    again = LinearClassifier(**words).fit(source(X, y))
    np.testing.assert_array_equal(model.coef_, again.coef_)


@ignore
@pytest.mark.parametrize("loss", list(LOSSES))
def test_an_iterator_that_is_used_up_is_learned_in_one_pass(loss):
    X, y, t = draw(3000)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    t = target(loss, y, t)
    model = make(loss).fit(blocks(X, t))
    assert model.route_ == "partial_fit"
    assert model.n_features_in_ == 4
    if LOSSES[loss].task in ("binary", "multiclass"):
        twin = make(loss, alpha=1e-3, probability=False).fit(X, t)
        assert model.score(X, t) > twin.score(X, t) - 0.06
        assert model.predict_proba(X).shape == (3000, 3)
    else:
        error = abs(model.predict(X) - t).mean()
        assert error < 1.3 * abs(make(loss).fit(X, t).predict(X) - t).mean()
    with pytest.raises(ValueError, match="does not certify|partial_fit"):
        model.coef_interval()


def test_an_iterator_whose_first_blocks_hold_one_class():
    X, y, _ = draw(3000)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    first = np.flatnonzero(y == 1)[:300]
    rows = np.concatenate([first, np.setdiff1d(np.arange(3000), first)])
    for loss in ("log_loss", "hinge", "softmax", "multiclass_hinge"):
        model = make(loss).fit(blocks(X[rows], y[rows]))
        np.testing.assert_array_equal(model.classes_, [0, 1, 2])
        assert model.score(X, y) > 0.5
    constant = LinearClassifier().fit(blocks(X, np.zeros(3000)))
    np.testing.assert_array_equal(constant.classes_, [0])
    np.testing.assert_array_equal(constant.predict_proba(X), np.ones((3000, 1)))


def test_used_up_weights_are_checked():
    X, y, _ = draw()
    weight = np.ones(500)
    weight[130] = -1.0
    for source in (blocks(X, y, weight), lambda: blocks(X, y, weight)):
        with pytest.raises(ValueError, match="block 1.*negative"):
            LinearClassifier().fit(source)


@pytest.mark.parametrize("once", [True, False], ids=["iterator", "function"])
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda X, y: (np.where(np.arange(4) == 1, np.nan, X), y), "NaN"),
        (lambda X, y: (X, None), "targets"),
        (lambda X, y: (X[:, :2], y), "columns"),
        (lambda X, y: (X, y[:5]), "rows"),
        (lambda X, y: (X, np.where(y == 0, np.nan, y)), "NaN"),
        (lambda X, y: X, "must be"),
    ],
    ids=["nan", "no_targets", "fewer_columns", "fewer_targets", "nan_labels", "no_pair"],
)
def test_errors_of_blocks(spoil, reason, once):
    X, y, _ = draw()

    def parts():
        for number, (rows, labels) in enumerate(blocks(X, y)):
            yield spoil(rows, labels) if number == 2 else (rows, labels)

    with pytest.raises((ValueError, TypeError), match=reason):
        LinearClassifier().fit(parts() if once else parts)


def test_other_errors_of_streams():
    X, y, t = draw()
    with pytest.raises(ValueError, match="no blocks"):
        LinearClassifier().fit(iter([]))
    with pytest.raises(ValueError, match="sample_weight"):
        LinearClassifier().fit(blocks(X, y), sample_weight=np.ones(500))
    with pytest.raises((TypeError, ValueError), match="target"):
        LinearClassifier().fit(blocks(X, y), y)
    with pytest.raises(ValueError, match="numbers"):
        LinearRegressor().fit(blocks(X, np.where(y == 0, "a", "b")))
    with pytest.raises(ValueError, match=r">= 0"):
        LinearRegressor("poisson").fit(lambda: blocks(X, -t - 1.0))


def test_a_fit_in_memory_and_a_stream_can_follow_each_other():
    X, y, _ = draw()
    model = LinearClassifier(random_state=0)
    expected = model.fit(X, y).coef_
    spread = X.std(axis=0)
    np.testing.assert_allclose(
        model.fit(lambda: blocks(X, y)).coef_ * spread, expected * spread, atol=1e-6
    )
    model.fit(blocks(X, y))
    np.testing.assert_array_equal(model.fit(X, y).coef_, expected)
    assert model.route_ == "newton"


# -- memory -----------------------------------------------------------------------------------


class Endless:
    """Blocks made when asked for: no row is ever stored."""

    def __init__(self, n_blocks):
        self.n_blocks = n_blocks

    def __call__(self):
        for number in range(self.n_blocks):
            rng = np.random.default_rng(number)
            X = rng.standard_normal((2000, 20))
            yield X, (X[:, 0] + rng.standard_normal(2000) > 0).astype(int)


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"solver": SGD(learning_rate="constant"), "max_iter": 2, "tol": None},
        {"loss": "hinge", "tol": 0.05},
    ],
    ids=["newton", "constant", "hinge"],
)
def test_memory_does_not_grow_with_the_rows(words):
    peaks = []
    for n_blocks in (30, 90):  # more than the sample a calibration takes
        model = LinearClassifier(random_state=0, **words)
        model.fit(Endless(2))  # compile first
        tracemalloc.start()
        model.fit(Endless(n_blocks))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert model.score(*next(Endless(1)())) > 0.7
    assert peaks[1] < 1.1 * peaks[0] + 100_000
