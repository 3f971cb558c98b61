"""Every public estimator survives saving: the same bits predicted, the same life afterwards."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import get_tags

import likelier
from likelier.losses import LOSSES, make_loss

RNG = np.random.default_rng(0)
X = RNG.standard_normal((240, 4)) * [1.0, 10.0, 0.1, 1.0]
SCORES = X @ [1.0, -0.1, 5.0, 0.0] + 0.5 * RNG.standard_normal(240)
LABELS = np.array(["high", "low", "middle"])[np.digitize(SCORES, [-1.0, 1.0])]
COUNTS = RNG.poisson(np.exp(0.3 * SCORES))

ESTIMATORS = sorted(
    name
    for name in likelier.__all__
    if isinstance(getattr(likelier, name), type)
    and issubclass(getattr(likelier, name), BaseEstimator)
)
CASES = [
    (name, loss)
    for name in ("LinearClassifier", "LinearRegressor")
    for loss in sorted(LOSSES)
    if (make_loss(loss).task in ("binary", "multiclass")) == (name == "LinearClassifier")
]


def targets(model):
    return LABELS if is_classifier(model) else COUNTS


def round_trip(model, folder):
    likelier.save(model, folder / "m")
    return likelier.load(folder / "m")


def assert_same_predictions(a, b, rows=X):
    methods = [m for m in ("predict", "predict_proba", "transform") if hasattr(a, m)]
    assert methods
    for method in methods:
        ours, theirs = (np.asarray(getattr(model, method)(rows)) for model in (a, b))
        assert ours.tobytes() == theirs.tobytes()


def seeded(name):
    """The estimator, with a seed where it has one; deep ones train for short."""
    short = {"max_iter": 40, "kernel": likelier.ARD(length_scales="learned")}
    model = getattr(likelier, name)(**(short if name.startswith("DeepGP") else {}))
    return model.set_params(random_state=0) if "random_state" in model.get_params() else model


def numbers_for(model, rows=X):
    """Rows it can learn from: some count, and cannot count below zero."""
    tags = get_tags(model).input_tags
    if tags.string:
        pytest.skip("it reads text; its own tests save and load it")
    return np.abs(rows) if tags.positive_only else rows


def test_there_are_estimators():
    assert {"LinearClassifier", "LinearRegressor"} <= set(ESTIMATORS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_unfitted(name, tmp_path):
    model = getattr(likelier, name)()
    assert repr(round_trip(model, tmp_path).get_params()) == repr(model.get_params())


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, np.float32])
def test_fitted(name, kind, tmp_path):
    model = seeded(name)
    rows = kind(numbers_for(model))
    model.fit(rows, targets(model))
    loaded = round_trip(model, tmp_path)
    assert_same_predictions(model, loaded, rows)
    assert set(vars(loaded)) == set(vars(model))
    # as pickle would have it, but readable by anyone
    assert_same_predictions(pickle.loads(pickle.dumps(loaded)), model, rows)


@pytest.mark.parametrize(("name", "loss"), CASES)
def test_every_loss(name, loss, tmp_path):
    model = getattr(likelier, name)(loss=make_loss(loss), random_state=0)
    model.fit(X, targets(model))
    assert_same_predictions(model, round_trip(model, tmp_path))


@pytest.mark.parametrize("name", [n for n in ESTIMATORS if hasattr(seeded(n), "partial_fit")])
def test_a_stream_goes_on_after_loading(name, tmp_path):
    model = seeded(name)
    rows, y = numbers_for(model), targets(model)
    model.partial_fit(rows[:100], y[:100])
    loaded = round_trip(model, tmp_path)
    for each in (model, loaded):
        each.partial_fit(rows[100:], y[100:])
    assert_same_predictions(model, loaded, rows)


def test_weights_by_any_label(tmp_path):
    model = likelier.LinearClassifier(class_weight={0: 1.0, 1: 2.0}, random_state=0)
    model.fit(X, (SCORES > 0).astype(int))
    loaded = round_trip(model, tmp_path)
    assert loaded.class_weight == {0: 1.0, 1: 2.0}
    assert_same_predictions(model, loaded)
