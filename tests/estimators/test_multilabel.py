"""`MultilabelClassifier`: inputs, unknown labels, thresholds, streams, saving."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.special import expit

import likelier
from likelier.multilabel.label_mixture import LabelMixture

from .multilabel_problem import multilabel

RNG = np.random.default_rng(0)
N, D, L = 160, 5, 3
X = RNG.normal(size=(N, D))
SCORES = 2.0 * X @ RNG.normal(size=(D, L)) - [0.0, 1.0, 2.0]
Y = (RNG.random((N, L)) < expit(SCORES)).astype(float)
FAST = {"kernel": False, "n_components": 4, "n_folds": 3, "max_iter": 10, "random_state": 0}


def fast(**params):
    return multilabel(**{**FAST, **params})


@pytest.fixture(scope="module")
def model():
    return fast().fit(X, Y)


def test_predictions_agree_with_each_other(model):
    decision, p = model.decision_function(X), model.predict_proba(X)
    assert decision.shape == p.shape == (N, L)
    np.testing.assert_array_equal(model.predict(X), decision > 0)
    np.testing.assert_allclose(np.log(p / (1 - p)) - model.thresholds_, decision, atol=1e-9)
    assert (model.predict(X) == Y).mean() > 0.8


@pytest.mark.parametrize(
    "form", [sparse.csr_array, sparse.coo_matrix, pd.DataFrame, pl.DataFrame, np.ndarray.tolist]
)
def test_labels_in_any_form_are_the_same(form, model):
    given = form(Y.astype(int)) if form is not np.ndarray.tolist else Y.astype(int).tolist()
    other = fast().fit(X, given)
    assert other.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()


def test_names_of_a_frame_are_kept():
    names = ["red", "green", "blue"]
    columns = [f"x{j}" for j in range(D)]
    model = fast().fit(pd.DataFrame(X, columns=columns), pd.DataFrame(Y, columns=names))
    assert list(model.label_names_) == names
    found, p = model.predict_topk(pd.DataFrame(X[:5], columns=columns), k=2)
    assert set(found.ravel()) <= set(names) and (np.diff(p, axis=1) <= 0).all()
    pattern = model.label_patterns_[0]
    assert {name for name, _ in pattern["labels"]} == set(names)
    assert {name for name, _ in pattern["features"]} == set(columns)


@pytest.mark.parametrize("kind", [sparse.csr_array, np.float32, np.asfortranarray])
def test_rows_in_any_form(kind, model):
    other = fast().fit(kind(X), Y)
    rows = kind(X)
    np.testing.assert_allclose(other.predict_proba(rows), other.predict_proba(X), atol=1e-5)
    assert abs(other.predict_proba(X) - model.predict_proba(X)).mean() < 0.03


def test_unknown_labels_are_left_out():
    """A label that is hidden may be anything; other labels of the row still count."""
    holes = Y.copy()
    holes[:60, 1] = np.nan
    one = fast(n_components=0).fit(X, holes)
    alone = fast(n_components=0).fit(X, np.column_stack([holes[:, 1]] * 2))
    assert np.isfinite(one.predict_proba(X)).all()
    assert (one.predict(X)[:, 1] == Y[:, 1]).mean() > 0.75
    assert (alone.predict(X)[:, 1] == Y[:, 1]).mean() > 0.75


def test_rows_without_labels_move_scales_patterns_and_thresholds():
    holes = Y.copy()
    holes[40:] = np.nan
    with_them, without = fast().fit(X, holes), fast().fit(X[:40], Y[:40])
    assert not np.array_equal(with_them.thresholds_, without.thresholds_)
    assert with_them.n_seen_ == N and without.n_seen_ == 40


def test_a_duplicate_is_a_weight_of_two_and_order_does_not_matter(model):
    weight = RNG.integers(0, 3, N)
    copies = RNG.permutation(np.repeat(np.arange(N), weight))
    one = fast().fit(X, Y, sample_weight=weight)
    two = fast().fit(X[copies], Y[copies])
    assert one.predict_proba(X).tobytes() == two.predict_proba(X).tobytes()
    order = RNG.permutation(N)
    again = fast().fit(X[order], Y[order])
    assert again.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()


def test_the_seed_decides(model):
    assert fast().fit(X, Y).predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    assert fast(random_state=1).fit(X, Y).predict_proba(X).tobytes() != (
        model.predict_proba(X).tobytes()
    )


def test_thresholds_follow_the_objective():
    rare = np.column_stack([Y, (RNG.random(N) < 0.05).astype(float)])
    model = fast().fit(X, rare)
    micro = model.predict(X).sum()
    macro = model.use_threshold("macro").predict(X)[:, 3].sum()
    correct = model.use_threshold("hamming").predict(X)[:, 3].sum()
    assert macro > correct and micro > 0
    np.testing.assert_array_equal(fast(threshold="macro").fit(X, rare).thresholds_,
                                  model.all_thresholds_["macro"])  # fmt: skip
    with pytest.raises(ValueError, match="objective must be one of"):
        model.use_threshold("accuracy")


def test_the_product_rule_multiplies_probabilities():
    model = fast(combine="product").fit(X, Y)
    state, enter = model._mixture()
    pbar = state.model.responsibilities(state.params, enter.apply(X)) @ state.model.label_table(
        state.params, 1.0
    )
    only = fast(combine="product").fit(X, Y)
    only.mixture_ = None
    np.testing.assert_allclose(model.predict_proba(X), pbar * only.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize("label_distribution", ["bernoulli", "multinomial"])
@pytest.mark.parametrize("batch_size", [None, 32])
def test_kinds_of_mixture(label_distribution, batch_size):
    model = fast(label_distribution=label_distribution, batch_size=batch_size).fit(X, Y)
    assert np.isfinite(model.elbo_).all() and len(model.elbo_) >= 1
    if batch_size is None:
        assert (np.diff(model.elbo_) > -1e-7).all()
    assert sum(pattern["weight"] for pattern in model.label_patterns_) == pytest.approx(1.0)


@pytest.mark.parametrize("features", ["bernoulli", "multinomial", "gaussian"])
def test_features_may_be_set(features):
    counts = (np.abs(X) > 0.7).astype(float)
    model = fast(features=features).fit(sparse.csr_array(counts), Y)
    assert model.mixture_["features"] == features


def test_planted_patterns_are_found():
    rng = np.random.default_rng(1)
    z = rng.integers(0, 3, 300)
    rows = 5.0 * np.eye(3, 6)[z] + rng.normal(size=(300, 6))
    labels = (rng.random((300, 4)) < 0.85 * np.eye(3, 4)[z] + 0.05).astype(float)
    model = fast(n_components=10, max_iter=60).fit(rows, labels)
    tops = [pattern["labels"][0][0] for pattern in model.label_patterns_[:3]]
    assert sorted(tops) == [0, 1, 2]
    assert sum(pattern["weight"] for pattern in model.label_patterns_[:3]) > 0.9
    for pattern in model.label_patterns_[:3]:
        assert pattern["features"][0][0] in (0, 1, 2)


def test_uncertainty_adds_up_and_falls_with_data(model):
    found = model.predict_uncertainty(X)
    assert found.total.shape == (N, L)
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic, atol=1e-9)
    assert (found.epistemic >= 0).all()
    p = model.predict_proba(X)
    entropy = -(p * np.log(p) + (1 - p) * np.log1p(-p))
    np.testing.assert_allclose(found.total, entropy, atol=1e-10)
    few = fast(random_state=0).fit(X[:30], Y[:30])
    assert few.predict_uncertainty(X).epistemic.mean() > found.epistemic.mean()


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_uncertainty_of_classes_is_that_of_their_probabilities(n_classes):
    y = (np.arange(N) + (X[:, 0] > 0)) % n_classes
    model = fast().fit(X, y)
    p = model.predict_proba(X)
    rest = np.clip(1 - p, 1e-300, 1.0)
    total = model.predict_uncertainty(X).total
    assert total.shape == p.shape == (N, n_classes)
    np.testing.assert_allclose(total, -(p * np.log(p) + rest * np.log(rest)), atol=1e-10)


def test_squared_kernel_maps_are_added_where_many_rows_are_unlabelled(tmp_path):
    hidden = Y.copy()
    hidden[60:] = np.nan
    model = fast().fit(X, hidden)
    assert len(model.maps_) == len(model.alpha_) == 2 and len(model.stack_weights_) == 3
    likelier.save(model, tmp_path / "model")
    assert likelier.load(tmp_path / "model").predict_proba(X).tobytes() == (
        model.predict_proba(X).tobytes()
    )
    hidden[60:150] = Y[60:150]  # a tenth without labels is not worth twice the cost
    assert len(fast().fit(X, hidden).maps_) == 1


@pytest.mark.parametrize("mislead", [True, False])
def test_unlabelled_rows_that_mislead_the_mixture_are_left_out_of_it(mislead, monkeypatch):
    """The label marks rows near the middle; no linear classifier can, but a mixture of two."""
    rng = np.random.default_rng(0)
    middle = rng.random(600) < 0.5
    rows = rng.normal(size=(600, 4))
    rows[:, 0] *= np.where(middle, 0.2, 3.0)
    if mislead:  # two clusters of unlabelled rows, which have nothing to do with the label
        rows[150:, 1:] = 5.0 * rng.choice([-1.0, 1.0], (450, 1)) + 0.1 * rows[150:, 1:]
    labels = np.repeat(np.where(np.arange(600) < 150, middle, np.nan)[:, None], 3, axis=1)
    sizes = []
    fit = LabelMixture.fit

    def recorded(self, X, Y, weight, *args, **params):
        if params.get("stage") == "mixture":  # the fit that is kept, after those of folds
            sizes.append(len(Y))
        return fit(self, X, Y, weight, *args, **params)

    monkeypatch.setattr(LabelMixture, "fit", recorded)
    model = fast(n_components=2, max_iter=30).fit(rows, labels)
    assert sizes == [150 if mislead else 600]
    assert model.stack_weights_[-1] > 0.1
    assert (model.predict(rows)[:150, 0] == middle[:150]).mean() > 0.8


def test_a_stream_learns_and_stays_near_a_fit():
    model = fast().partial_fit(X[:80], Y[:80])
    before = model.predict_proba(X[80:]).copy()
    model.partial_fit(X[80:120], Y[80:120]).partial_fit(sparse.csr_array(X[120:]), Y[120:])
    after = model.predict_proba(X[80:])
    loss = [-(Y[80:] * np.log(p) + (1 - Y[80:]) * np.log1p(-p)).mean() for p in (before, after)]
    assert loss[1] < loss[0]
    assert model.n_seen_ == N
    whole = fast().fit(X, Y)
    assert abs(after - whole.predict_proba(X[80:])).mean() < 0.1


def test_a_stream_refuses_other_labels():
    model = fast().partial_fit(X, Y)
    with pytest.raises(ValueError, match="3 labels of the first call"):
        model.partial_fit(X, Y[:, :2])
    classes = fast().partial_fit(X, np.arange(N) % 2, classes=[0, 1, 2])
    classes.partial_fit(X, np.arange(N) % 3)
    assert classes.predict_proba(X).shape == (N, 3)
    with pytest.raises(ValueError, match="which was not in the first call"):
        classes.partial_fit(X, np.arange(N) % 4)


def test_saved_and_loaded_it_goes_on(tmp_path, model):
    likelier.save(model, tmp_path / "m")
    again = likelier.load(tmp_path / "m")
    assert again.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    assert again.label_patterns_ == model.label_patterns_
    learner = likelier.load(tmp_path / "m")
    learner.partial_fit(X[:40], Y[:40])
    assert learner.predict_proba(X).tobytes() != model.predict_proba(X).tobytes()


def test_a_time_budget_is_kept():
    model = fast(kernel=True, time_budget=1e-9).fit(X, Y)
    assert len(model.maps_) == 1 and model.mixture_ is None


def test_a_kernel_fits_nonlinear_boundaries():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(300, 2))
    ring = (np.hypot(*rows.T) < 1.1).astype(float)
    labels = np.column_stack([ring, rows[:, 0] > 0]).astype(float)
    bent = fast(kernel=True, n_components=0).fit(rows, labels)
    straight = fast(n_components=0).fit(rows, labels)
    fresh = rng.normal(size=(500, 2))
    truth = np.hypot(*fresh.T) < 1.1
    assert (bent.predict(fresh)[:, 0] == truth).mean() > 0.9
    assert (straight.predict(fresh)[:, 0] == truth).mean() < 0.75


def test_labels_of_no_row_or_every_row():
    odd = np.column_stack([Y[:, 0], np.zeros(N), np.ones(N)])
    predicted = fast().fit(X, odd).predict(X)
    assert predicted[:, 1].sum() == 0 and predicted[:, 2].all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_hardly_any_labelled_rows(n):
    holes = np.full((N, L), np.nan)
    holes[:n] = Y[:n]
    model = fast().fit(X, holes)
    assert np.isfinite(model.predict_proba(X)).all()


def test_one_class_per_row():
    names = np.array(["low", "middle", "high"])[np.digitize(X[:, 0], [-0.7, 0.7])]
    model = fast().fit(X, names)
    assert (model.predict(X) == names).mean() > 0.8
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert set(model.predict_topk(X, 1)[0].ravel()) <= set(names)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full((N, L), np.nan), "no known label"),
        (Y + 1.0, "row . of label . is 2"),
        (np.full((N, 2), "yes"), "0, 1 or NaN"),
        (pd.DataFrame({"red": Y[:, 0], "sad": Y[:, 1] * 3}), "label 'sad' is 3"),
        (np.zeros((N, 0)), "at least one label"),
        (None, "y"),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        fast().fit(X, labels)


def test_missing_features_are_refused():
    holes = X.copy()
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        fast().fit(holes, Y)


@pytest.mark.parametrize(
    "params",
    [{"features": "poisson"}, {"threshold": "f1"}, {"feature_temperature": 0.0},
     {"n_components": -1}, {"combine": "sum"}, {"n_folds": 1}, {"learning_decay": 1.5}],
)  # fmt: skip
def test_invalid_parameters_raise(params):
    with pytest.raises(ValueError, match=next(iter(params))):
        fast(**params).fit(X, Y)


def test_callbacks_see_progress(capsys):
    fast(verbose=1).fit(X, Y)
    text = capsys.readouterr().out
    assert "linear features" in text and "objective" in text
