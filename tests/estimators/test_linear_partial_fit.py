"""Learning batch by batch: classes known, announced, or appearing later."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse

from likelier import SGD, LinearClassifier, LinearRegressor
from likelier.losses import LOSSES

CLASSIFICATION = [n for n, loss in LOSSES.items() if loss.task in ("binary", "multiclass")]
REGRESSION = [n for n, loss in LOSSES.items() if loss.task in ("regression", "count")]
every_loss = pytest.mark.parametrize("loss", CLASSIFICATION)


def draw(n=600, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    centres = 2.5 * np.eye(4)[:n_classes]
    return centres[y] + rng.standard_normal((n, 4)), y


def batches(*arrays, size=60):
    for first in range(0, len(arrays[0]), size):
        yield [array[first : first + size] for array in arrays]


@every_loss
@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize(
    "params", [{}, {"solver": SGD(learning_rate="constant")}], ids=["auto", "constant"]
)
def test_batches_learn(loss, n_classes, params):
    X, y = draw(1200, n_classes)
    model = LinearClassifier(loss, **params)
    for rows, labels in batches(X, y):
        model.partial_fit(rows, labels)
    assert model.score(X, y) > 0.85
    assert model.coef_.shape == ((1 if n_classes == 2 else n_classes), 4)
    p = model.predict_proba(X)
    assert p.shape == (1200, n_classes)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize("loss", REGRESSION)
def test_batches_of_numbers_learn(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 3))
    signal = X @ [1.0, -0.5, 0.2] + 0.7
    y = rng.poisson(np.exp(0.5 * signal)) if loss == "poisson" else signal
    model = LinearRegressor(loss)
    for rows, targets in batches(X, y):
        model.partial_fit(rows, targets)
    wanted = 0.5 if loss == "poisson" else 1.0
    np.testing.assert_allclose(model.coef_, wanted * np.array([1.0, -0.5, 0.2]), atol=0.12)


@every_loss
def test_announced_classes_have_probabilities_from_the_start(loss):
    X, y = draw()
    two = y < 2
    model = LinearClassifier(loss).partial_fit(X[two], y[two], classes=[0, 1, 2])
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    p = model.predict_proba(X)
    assert p.shape == (600, 3)
    assert (p >= 0.0).all()
    assert p[two, 2].mean() < p[two, :2].mean()
    for rows, labels in batches(X, y):
        model.partial_fit(rows, labels)
    assert model.score(X, y) > 0.8


@every_loss
@pytest.mark.parametrize("late", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_class_that_appears_later_is_sorted_in(loss, late):
    """Wherever its name sorts among those known already."""
    X, y = draw(1200)
    known = np.array(["a", "b", "c"])
    early = y != late
    model = LinearClassifier(loss)
    for rows, labels in batches(X[early][:400], known[y[early][:400]]):
        model.partial_fit(rows, labels)
    assert len(model.classes_) == 2
    before = model.score(X[early], known[y[early]])
    assert before > 0.85
    model.partial_fit(X[:30], known[y[:30]])
    np.testing.assert_array_equal(model.classes_, known)
    assert model.predict_proba(X).shape == (1200, 3)
    np.testing.assert_array_equal(known[model.predict_proba(X).argmax(axis=1)], model.predict(X))
    for rows, labels in batches(X[400:], known[y[400:]]):
        model.partial_fit(rows, labels)
    assert model.score(X, known[y]) > 0.8


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "softmax"])
def test_the_order_of_announcement_does_not_matter(loss):
    X, y = draw()
    names = np.array(["b", "a", "c"])[y]
    one = LinearClassifier(loss).partial_fit(X, names, classes=["c", "a", "b"])
    two = LinearClassifier(loss).partial_fit(X, names)
    np.testing.assert_array_equal(one.classes_, ["a", "b", "c"])
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


@pytest.mark.parametrize("rate", ["constant", "invscaling"])
def test_a_class_that_appears_later_starts_as_one_that_was_always_negative(rate):
    """With independent outputs and one rate, announcing a class makes no difference."""
    params = {"solver": SGD(learning_rate=rate)}
    X, y = draw(n_classes=4)
    announced = LinearClassifier(**params)
    surprised = LinearClassifier(**params)
    for known in (2, 3, 4):  # one more class with every batch
        rows = y < known
        announced.partial_fit(X[rows], y[rows], classes=[0, 1, 2, 3])
        surprised.partial_fit(X[rows], y[rows])
    np.testing.assert_allclose(announced.coef_, surprised.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(announced.intercept_, surprised.intercept_, rtol=1e-9)


def test_a_first_batch_of_one_class():
    X, y = draw()
    one = y == 1
    model = LinearClassifier()
    with pytest.raises(ValueError, match="at least two classes"):
        model.partial_fit(X[one], y[one])
    assert not hasattr(model, "coef_") and not hasattr(model, "stream_")
    model.partial_fit(X[one], y[one], classes=[0, 1])
    assert model.coef_.shape == (1, 4)
    assert (model.predict(X[one]) == 1).mean() > 0.9


@pytest.mark.parametrize("loss", ["log_loss", "softmax", "squared_hinge"])
def test_batches_after_a_fit_start_from_it(loss):
    """And a batch of the same data does not throw away what was learned."""
    X, y = draw(4000)
    fitted = LinearClassifier(loss, random_state=0).fit(X, y)
    before = fitted.score(X, y)
    fresh = LinearClassifier(loss).partial_fit(X[:40], y[:40])
    after = fitted.partial_fit(X[:40], y[:40]).score(X, y)
    assert after > before - 0.04
    assert after >= fresh.score(X, y) - 0.01
    assert fitted.route_ == "partial_fit"


def test_a_fit_after_batches_starts_afresh():
    X, y = draw()
    model = LinearClassifier(random_state=0).partial_fit(X, np.minimum(y, 1))
    model.fit(X, y)
    np.testing.assert_array_equal(model.coef_, LinearClassifier(random_state=0).fit(X, y).coef_)
    model.partial_fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("params", [{}, {"solver": SGD(learning_rate="invscaling")}])
def test_the_same_batches_give_the_same_bits(params):
    X, y = draw()
    models = [LinearClassifier(**params) for _ in range(2)]
    for rows, labels in batches(X, y):
        for model in models:
            model.partial_fit(rows, labels)
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "softmax"])
def test_dense_and_sparse_batches(loss):
    X, y = draw()
    dense, thin = LinearClassifier(loss), LinearClassifier(loss)
    for rows, labels in batches(X, y):
        dense.partial_fit(rows, labels)
        thin.partial_fit(sparse.csr_array(rows), labels)
    np.testing.assert_allclose(dense.coef_, thin.coef_, rtol=1e-8)


def test_learning_goes_on_after_a_copy():
    X, y = draw()
    model = LinearClassifier("hinge").partial_fit(X[:300], y[:300])
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    model.partial_fit(X[300:], y[300:])
    for other in copies:
        other.partial_fit(X[300:], y[300:])
        np.testing.assert_array_equal(other.coef_, model.coef_)
        np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))


def test_batches_of_single_rows():
    X, y = draw(300, 2)
    model = LinearClassifier("hinge")
    for i in range(300):
        model.partial_fit(X[i : i + 1], y[i : i + 1], classes=[0, 1])
    assert model.score(X, y) > 0.85
    assert np.isfinite(model.predict_proba(X)).all()
    numbers = LinearRegressor()
    for i in range(300):
        numbers.partial_fit(X[i : i + 1], X[i : i + 1, 0])
    np.testing.assert_allclose(numbers.coef_, [1.0, 0.0, 0.0, 0.0], atol=0.1)


def test_intervals_of_numbers_come_from_rows_not_learned_yet():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.5 * rng.standard_normal(3000)
    model = LinearRegressor()
    for rows, targets in batches(X, y, size=500):
        model.partial_fit(rows, targets)
    assert model.noise_ == pytest.approx(0.5, rel=0.15)
    assert model.predict_interval(X[:5]).shape == (5, 2)


def test_many_rows_drop_the_losing_rates():
    X, y = draw(3000, 2)
    model = LinearClassifier()
    n_outputs = []
    for rows, labels in batches(X, y, size=1000):
        model.partial_fit(rows, labels)
        n_outputs.append(len(model.stream_["etas"]))
    assert n_outputs[0] == 8 * 3  # eight rates, two classes and one to come
    assert n_outputs[-1] in (3, 6, 9)  # the best one and up to two larger ones


@pytest.mark.parametrize("batch", [20, 500])
def test_partial_fit_after_fit_keeps_what_was_learned(batch):
    """More rows of the same kind must not undo a fit of many: its rows count in the rates."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, 8))
    y = (X @ rng.standard_normal(8) + rng.logistic(size=12_000) > 0).astype(int)
    target = X @ np.ones(8) + rng.standard_normal(12_000)
    fitted, more = slice(0, 10_000), slice(10_000, 12_000)

    def log_loss(model):
        p = model.predict_proba(X)[np.arange(len(y)), y]
        return -np.log(p).mean()

    model = LinearClassifier(random_state=0).fit(X[fitted], y[fitted])
    before = log_loss(model)
    for first in range(more.start, more.stop, batch):
        model.partial_fit(X[first : first + batch], y[first : first + batch])
        assert log_loss(model) < 1.01 * before
    line = LinearRegressor(random_state=0).fit(X[fitted], target[fitted])
    before = np.mean((line.predict(X) - target) ** 2)
    for first in range(more.start, more.stop, batch):
        line.partial_fit(X[first : first + batch], target[first : first + batch])
        assert np.mean((line.predict(X) - target) ** 2) < 1.01 * before


def frozen(model):
    """Everything a model knows except its parameters."""
    return pickle.dumps({k: v for k, v in vars(model).items() if k.endswith("_")})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"loss": "softmax"}),
        ({"loss": "softmax"}, {"loss": "hinge"}),
        ({"loss": "hinge"}, {"loss": "log_loss"}),
        ({"solver": "sgd"}, {"solver__learning_rate": "constant"}),
        ({"solver": SGD(learning_rate="constant")}, {"solver__learning_rate": "auto"}),
        ({"solver": SGD(learning_rate="constant")}, {"solver__average": False}),
        ({}, {"fit_intercept": False}),
        ({"fit_intercept": False}, {"fit_intercept": True}),
    ],
    ids=str,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_words_that_the_state_is_bound_to_do_not_change_between_batches(before, after, n_classes):
    X, y = draw(120, n_classes)
    model = LinearClassifier(**before).partial_fit(X, y)
    old, name = frozen(model), next(iter(after)).removeprefix("solver__")
    model.set_params(**after)
    with pytest.raises(ValueError, match=f"partial_fit started with {name}=.*fit"):
        model.partial_fit(X, y)
    assert frozen(model) == old
    model.fit(X, y)  # which begins anew
    LinearClassifier(**before).partial_fit(X, y).set_params(**before).partial_fit(X, y)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"loss": "poisson"}),
        ({"solver": SGD(learning_rate="invscaling")}, {"solver__learning_rate": "auto"}),
        ({"solver": "sgd"}, {"solver__learning_rate": "constant"}),
        ({"solver": SGD(learning_rate="constant")}, {"solver__average": 10**6}),
        ({}, {"fit_intercept": False}),
    ],
    ids=str,
)
def test_the_same_words_of_a_regressor(before, after):
    X, y = draw(120)
    model = LinearRegressor(**before).partial_fit(X, y)
    old, name = frozen(model), next(iter(after)).removeprefix("solver__")
    with pytest.raises(ValueError, match=f"partial_fit started with {name}="):
        model.set_params(**after).partial_fit(X, y)
    assert frozen(model) == old


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"alpha": 0.1, "l1_ratio": 1.0, "solver": SGD("explicit", average=False)}),
        ({"loss": "softmax"}, {"alpha": 0.0, "solver": SGD(eta0=0.1)}),
        (
            {"solver": SGD(learning_rate="constant", average=False)},
            {"solver": SGD(learning_rate="invscaling", eta0=0.1), "alpha": 0.1},
        ),
    ],
    ids=str,
)
def test_other_words_change_between_batches(before, after):
    X, y = draw(300)
    model = LinearClassifier(**before).partial_fit(X, y).set_params(**after)
    old = model.coef_
    assert not np.array_equal(model.partial_fit(X, y).coef_, old)
    assert model.score(X, y) > 0.85
