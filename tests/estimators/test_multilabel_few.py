"""`MultilabelClassifier` with uninformative labels: constant, mostly unknown, or noise."""

import numpy as np
import pytest
from scipy.special import expit, logit

import likelier
from likelier.multilabel.rows import distinct_rows

from .multilabel_problem import multilabel

N, D, L = 150, 4, 3
W = np.random.default_rng(0).normal(size=(D, L))
FAST = {"kernel": False, "n_components": 0, "random_state": 0}


def draw(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    return X, (rng.random((n, L)) < expit(1.5 * (X @ W) - 1.0)).astype(float)


X, Y = draw(N, 1)
TEST = draw(500, 9)[0]


def fast(**params):
    return multilabel(**{**FAST, **params})


def with_constants(labels, n_zero, n_one):
    n = len(labels)
    return np.column_stack([labels, np.zeros((n, n_zero)), np.ones((n, n_one))])


@pytest.mark.parametrize("n_components", [0, 3])
@pytest.mark.parametrize(("n_zero", "n_one"), [(100, 0), (0, 100)])
def test_constant_labels_do_not_affect_other_probabilities(n_components, n_zero, n_one):
    params = {"n_components": n_components, "feature_temperature": 1.0, "max_iter": 20}
    weights, errors = [], []
    for seed in range(5):
        plain = fast(**params, random_state=seed).fit(X, Y)
        model = fast(**params, random_state=seed).fit(X, with_constants(Y, n_zero, n_one))
        weights.append(abs(model.stack_weights_[0] - plain.stack_weights_[0]))
        p, q = plain.predict_proba(TEST), model.predict_proba(TEST)
        errors.append(abs(p - q[:, :L]).mean())
        expected = (N + 0.5) / (N + 1.0) if n_one else 0.5 / (N + 1.0)
        np.testing.assert_allclose(q[:, L:], expected, rtol=1e-9)
    # a mixture has label parameters for every label, and may merge other components
    assert np.median(weights) < 0.02 and np.median(errors) < 0.005
    assert max(weights) < 0.05 and max(errors) < 0.01


def test_constant_labels_leave_rows_in_their_order():
    """The order deals rows to folds. Rows of weight zero do not make a label vary."""
    weight = np.ones(N)
    weight[7] = 0.0
    nothing = np.full((N, 1), np.nan)
    wide = np.column_stack([np.ones((N, 2)), Y[:, :1], nothing, Y[:, 1:], np.zeros((N, 1))])
    wide[7] = 1.0 - wide[7]
    plain, model = (distinct_rows(X, labels, weight, 0) for labels in (Y, wide))
    np.testing.assert_array_equal(model.X, plain.X)
    np.testing.assert_array_equal(model.Y[:, [2, 4, 5]], plain.Y)


@pytest.mark.parametrize("combine", ["log_odds", "product"])
@pytest.mark.parametrize("threshold", ["micro", "macro", "hamming"])
def test_labels_all_alike_are_predicted_for_none_or_all(combine, threshold):
    model = fast(n_components=3, max_iter=5, combine=combine, threshold=threshold)
    predicted = model.fit(X, with_constants(Y, 2, 2)).predict(TEST)
    assert not predicted[:, L : L + 2].any() and predicted[:, L + 2 :].all()


@pytest.mark.parametrize("n_positive", [0, 3])
def test_labels_that_hardly_any_row_has_are_not_predicted_everywhere(n_positive):
    """No other label holds up the F1 of all together, which any prediction would raise."""
    rare = np.zeros((N, 2))
    rare[:n_positive] = 1.0
    model = fast(n_components=0).fit(X, rare)
    for objective in ("micro", "macro", "hamming"):
        assert model.use_threshold(objective).predict(TEST).mean() <= 10 * n_positive / N


def test_a_label_all_alike_is_learned_when_a_batch_brings_the_other_value():
    late = Y.copy()
    late[:, 0] = 0.0
    model = fast().partial_fit(X, late)
    assert np.ptp(model.predict_proba(TEST)[:, 0]) == 0.0
    model.partial_fit(X, late)
    np.testing.assert_allclose(model.predict_proba(TEST)[:, 0], 0.5 / (2 * N + 1.0))
    more, truth = draw(1000, 3)
    model.partial_fit(more, truth)
    p = model.predict_proba(TEST)[:, 0]
    assert np.corrcoef(logit(p), TEST @ W[:, 0])[0, 1] > 0.95


@pytest.mark.parametrize("rows", [[4], [4, 5], [4, 5, 6]])
def test_hardly_any_labelled_rows_give_their_frequency(rows, tmp_path):
    """One row of two values says three quarters, not certainty."""
    holes = np.full((N, L), np.nan)
    holes[rows] = [[1.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]][: len(rows)]
    model = fast(n_components=5).fit(X, holes)
    p = model.predict_proba(TEST)
    sure = (len(rows) + 0.5) / (len(rows) + 1.0)
    np.testing.assert_allclose(p[:, 0], sure)
    np.testing.assert_allclose(p[:, 1], 1.0 - sure)
    likelier.save(model, tmp_path / "few")
    np.testing.assert_array_equal(likelier.load(tmp_path / "few").predict_proba(TEST), p)


def test_two_different_rows_are_informative():
    holes = np.full((N, L), np.nan)
    holes[4], holes[5] = [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]
    p = fast().fit(X, holes).predict_proba(X)
    assert p[4, 0] > 0.5 > p[5, 0] and p[4, 1] < 0.5 < p[5, 1]
    np.testing.assert_allclose(p[:, 2], 2.5 / 3.0)


def test_a_handful_of_noisy_rows_does_not_make_new_rows_certain():
    """Of ten draws of three rows some are separable by chance, best with the weakest prior."""
    excess = []
    for seed in range(10):
        rng = np.random.default_rng([seed, 3])
        few, labels = rng.normal(size=(3, D)), (rng.random((3, L)) < 0.5).astype(float)
        model = fast(random_state=seed).fit(few, labels)
        p = model.predict_proba(TEST)
        assert 0.03 < p.min() and p.max() < 0.97
        share = np.where(rng.random(p.shape) < 0.5, p, 1.0 - p)
        even = 0.5 * np.log(model.base_rates_ * (1.0 - model.base_rates_)).mean()
        excess.append(even - np.log(share).mean())
    assert np.mean(excess) < 0.01  # of the log loss of frequencies alone


@pytest.mark.parametrize("seed", range(3))
def test_the_mixture_gets_no_weight_on_noise(seed):
    rng = np.random.default_rng(seed)
    labels = (rng.random((200, 3)) < [0.35, 0.6, 0.1]).astype(float)
    model = fast(n_components=5, max_iter=20, feature_temperature=0.3)
    g = model.fit(rng.normal(size=(200, 6)), labels).stack_weights_
    assert g[-1] < 0.5 and 0.5 < g[0] < 1.2


def test_columns_far_from_zero_stay_informative():
    far = np.array([1e9, -1e10, 1e12, 0.0])
    for params in ({}, {"n_components": 4, "max_iter": 20, "feature_temperature": 1.0}):
        near, away = fast(**params).fit(X, Y), fast(**params).fit(X + far, Y)
        p, q = near.predict_proba(TEST), away.predict_proba(TEST + far)
        assert abs(p - q).mean() < 0.02  # folds are not the same


def test_no_more_components_than_rows():
    """What is more than rows only costs time: 5,000 components of 60 rows are 60."""
    few, many = (
        fast(n_components=k, n_folds=2, max_iter=3, feature_temperature=1.0).fit(X[:60], Y[:60])
        for k in (60, 5000)
    )
    assert few.predict_proba(TEST).tobytes() == many.predict_proba(TEST).tobytes()
    np.testing.assert_array_equal(few.elbo_, many.elbo_)
