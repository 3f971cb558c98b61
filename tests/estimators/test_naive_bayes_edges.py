"""Naive Bayes where it is easily wrong: weights, thresholds after batches, odd priors, failures."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import sklearn.naive_bayes
from scipy import sparse
from scipy.special import logsumexp

from likelier import BernoulliNB, GaussianNB, MultinomialNB
from likelier.naive_bayes.inliers import MAX_SCORES, InlierScores

every = pytest.mark.parametrize("kind", [GaussianNB, MultinomialNB, BernoulliNB])
every_mode = pytest.mark.parametrize("bayesian", [False, True])
every_matrix = pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])


def gaussian_rows(n, seed, d=5):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, d)) + 2.0 * y[:, None], y


# -- weights ----------------------------------------------------------------------------------
@every_mode
@every_matrix
@pytest.mark.parametrize("holes", [False, True])
def test_a_weight_is_as_many_rows(bayesian, matrix, holes):
    """Also where a class takes mean and variance of all rows, or has them as its prior."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), np.arange(12) % 2
    weight = rng.integers(1, 9, 12)
    X[0], weight[0] = [4.0, 4.0], 60
    if holes:
        X[y == 1, 1] = np.nan
    new = rng.normal(size=(5, 2))
    one = GaussianNB(bayesian=bayesian).fit(matrix(X), y, weight)
    two = GaussianNB(bayesian=bayesian).fit(matrix(np.repeat(X, weight, 0)), np.repeat(y, weight))
    # smoothing is relative to the variance of the rows without weights, as in scikit-learn
    np.testing.assert_allclose(one.predict_proba(new), two.predict_proba(new), atol=1e-8)
    np.testing.assert_allclose(one.score_samples(new), two.score_samples(new), atol=1e-8)
    if not holes:
        theirs = sklearn.naive_bayes.GaussianNB(var_smoothing=0.1).fit(X, y, weight)
        ours = GaussianNB(var_smoothing=0.1, bayesian=bayesian).fit(matrix(X), y, weight)
        assert abs(ours.epsilon_ - theirs.epsilon_) < 1e-12
        np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-12)


# -- the threshold of is_outlier after batches and merges ----------------------------------------
def mean_share(learn, n, seeds):
    """Share of new rows that are outliers at coverage 0.9, over models of ``n`` rows."""
    shares = []
    for seed in range(seeds):
        X, y = gaussian_rows(n, [seed, n])
        fresh = gaussian_rows(500, [seed, n, 1])[0]
        shares.append(learn(GaussianNB(random_state=seed), X, y).is_outlier(fresh, 0.9).mean())
    return np.mean(shares)


def in_batches(order, n_batches):
    def learn(model, X, y):
        for part in np.array_split(order(y), n_batches):
            model.partial_fit(X[part], y[part])
        return model

    return learn


def by_row(y):
    return np.arange(len(y))


def by_class(y):
    return np.argsort(y, kind="stable")


@pytest.mark.parametrize(
    ("order", "n", "n_batches", "seeds"),
    [(by_row, 100, 10, 20), (by_row, 200, 200, 3), (by_class, 1500, 30, 4), (by_row, 3000, 20, 4)],
    ids=["small_batches", "single_rows", "class_by_class", "more_than_are_kept"],
)
def test_batches_leave_the_threshold_where_a_fit_has_it(order, n, n_batches, seeds):
    """Within three standard errors and 0.02 for scores made with half of the rows.

    With the scores of all rows it was 0.017 for small batches, 0.06 class by class.
    """
    share = mean_share(in_batches(order, n_batches), n, seeds)
    error = np.sqrt(0.1 * 0.9 / (seeds * min(n // 2, MAX_SCORES)))
    assert abs(share - 0.1) < 0.02 + 3.0 * error


@pytest.mark.parametrize(("order", "fewest"), [(by_row, 0.006), (by_class, 0.002)])
def test_no_score_weighs_much_after_many_batches(order, fewest):
    """One score stood for 0.7% of all rows, so that hardly any row was an outlier at 0.99.

    Class by class there are fewer still: rows that a later class explains were outliers before it.
    """
    X, y = gaussian_rows(6000, 0)
    model = in_batches(order, 150)(GaussianNB(random_state=0), X, y)
    weight = model.inlier_weight_
    assert len(weight) == MAX_SCORES and abs(weight.sum() - 6000) < 1e-6
    assert weight.max() < 0.0025 * weight.sum()
    assert fewest < model.is_outlier(gaussian_rows(20_000, 1)[0], 0.99).mean() < 0.015


def test_merged_models_count_for_as_many_rows_as_they_have_seen():
    rng = np.random.default_rng(0)
    many, few = rng.normal(size=(20_000, 3)), 30.0 + 20.0 * rng.normal(size=(500, 3))
    one = GaussianNB(random_state=0).fit(many[::2], np.zeros(10_000))
    two = GaussianNB(random_state=0).fit(few[::2], np.ones(250))
    fresh = np.concatenate([many[1::2], few[1::2]])
    for first, second in ((one, two), (two, one)):
        model = copy.deepcopy(first).merge(second)
        assert abs(model.inlier_weight_.sum() - 10_250) < 1e-6
        assert len(model.inlier_scores_) <= MAX_SCORES
        assert abs(model.is_outlier(fresh, 0.9).mean() - 0.1) < 0.03


def test_models_of_one_class_each_merge_to_one_threshold():
    def learn(model, X, y):
        model.fit(X[y == 2], y[y == 2])
        for label in (0, 1):
            model.merge(GaussianNB(random_state=0).fit(X[y == label], y[y == label]))
        return model

    assert abs(mean_share(learn, 1500, 4) - 0.1) < 0.03  # 0.2 with the class priors of then


def test_shards_of_one_law_merge_to_one_threshold():
    def learn(model, X, y):
        shards = [GaussianNB(random_state=0).fit(X[i::4], y[i::4]) for i in range(4)]
        for shard in shards:
            model = shard if not hasattr(model, "classes_") else model.merge(shard)
        return model.partial_fit(X[:3], y[:3])  # which must not replace all that is known

    assert abs(mean_share(learn, 2000, 4) - 0.1) < 0.03


def inlier_scores(scores, weight, codes, count):
    values = [np.asarray(a, dtype=float) for a in (scores, weight, count)]
    codes = np.asarray(codes)
    return InlierScores(values[0], values[1], codes, values[2], np.ones(len(codes)))


def test_scores_made_when_a_class_was_little_known_are_forgotten():
    early = inlier_scores([-9, -2, -5], [1, 1, 3], [0, 1, 0], [10, 7, 12])
    late = inlier_scores([-1, -3, -4], [1, 2, 1], [0, 0, 0], [24, 24, 24])
    both = early.merge(late, 0.5)
    np.testing.assert_array_equal(both.scores, [-2, -5, -1, -3, -4])
    np.testing.assert_allclose(both.weight, np.array([1, 3, 1, 2, 1]) * ([1] + [8 / 7] * 4))
    few = inlier_scores([-1], [1], [0], [99])
    assert len(early.merge(few, 0.5).scores) == 4  # one good score is worse than four fair ones


def test_of_too_many_scores_each_stays_with_a_chance_like_its_weight():
    rng = np.random.default_rng(0)
    n = MAX_SCORES
    known = inlier_scores(rng.normal(size=n), np.full(n, 30.0), np.arange(n) % 2, np.full(n, 100.0))
    new = inlier_scores([-7.0, 0.1], [1.0, 1.0], [0, 1], [100.0, 100.0])
    starts = (np.arange(300) + 0.5) / 300
    merged_scores = [known.merge(new, start) for start in starts]
    for rows in merged_scores:
        assert len(rows.scores) <= n
        assert abs(rows.weight.sum() - (30 * n + 2)) < 1e-6
        assert abs(rows.weight[rows.codes == 0].sum() - (15 * n + 1)) < 2 * 30.1
    entered = [np.isin(rows.scores, new.scores).sum() for rows in merged_scores]
    assert abs(np.mean(entered) - 2 / 30) < 0.01


# -- priors that do not sum to one ----------------------------------------------------------------
@pytest.mark.parametrize("kind", [MultinomialNB, BernoulliNB])
@every_mode
def test_class_priors_are_shares(kind, bayesian):
    rng = np.random.default_rng(0)
    X, y = rng.poisson(1.0, size=(60, 4)).astype(float), np.arange(60) % 3
    params = {"bayesian": bayesian, "random_state": 0}
    given = kind(class_prior=[2.0, 1.0, 1.0], **params).fit(X, y)
    scaled = kind(class_prior=[0.5, 0.25, 0.25], **params).fit(X, y)
    np.testing.assert_array_equal(given.sample(30)[1], scaled.sample(30)[1])
    for name in ("score_samples", "predict_proba"):
        np.testing.assert_allclose(getattr(given, name)(X), getattr(scaled, name)(X), rtol=1e-12)
    np.testing.assert_array_equal(given.is_outlier(X, 0.8), scaled.is_outlier(X, 0.8))
    np.testing.assert_allclose(
        given.predict_joint_log_proba(X), scaled.predict_joint_log_proba(X) + np.log(4.0)
    )
    if not bayesian:
        theirs = getattr(sklearn.naive_bayes, kind.__name__)(class_prior=[2.0, 1.0, 1.0]).fit(X, y)
        np.testing.assert_allclose(
            given.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X), rtol=1e-12
        )


def test_the_sum_of_the_priors_does_not_move_the_threshold_of_a_merge():
    rng = np.random.default_rng(0)
    X, y = rng.poisson(3.0, size=(400, 4)).astype(float), np.arange(400) % 2
    merged = [
        MultinomialNB(class_prior=[share, share], random_state=0).fit(X[:200], y[:200])
        .merge(MultinomialNB(random_state=0).fit(X[200:], y[200:]))
        for share in (0.5, 50.0)
    ]  # fmt: skip
    one, two = (model.inlier_scores_ for model in merged)
    np.testing.assert_allclose(one, two, rtol=1e-12)
    assert abs(merged[0].is_outlier(X, 0.8).mean() - 0.2) < 0.05


def test_priors_that_nearly_sum_to_one_draw_rows():
    X, y = gaussian_rows(60, 0)
    model = GaussianNB(priors=[0.333333] * 3, random_state=0).fit(X, y)
    assert set(model.sample(50)[1]) == {0, 1, 2}


# -- missing values without smoothing -------------------------------------------------------
@every_matrix
def test_missing_presence_is_summed_over_without_smoothing_too(matrix):
    """Against the sum over both values of whatever is missing, for every row there is."""
    X = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 1], [0, 1, 1.0]])
    model = BernoulliNB(alpha=0.0, random_state=0).fit(X, [0, 0, 1, 1])
    for row in itertools.product([0.0, 1.0, np.nan], repeat=3):
        choices = [[0.0, 1.0] if np.isnan(value) else [value] for value in row]
        complete = np.array(list(itertools.product(*choices)))
        with np.errstate(divide="ignore"):
            expected = logsumexp(model.predict_joint_log_proba(complete), axis=0)
        query = matrix(np.array([row]))
        np.testing.assert_allclose(model.predict_joint_log_proba(query)[0], expected, atol=1e-12)
        np.testing.assert_allclose(
            model.score_samples(query)[0], np.logaddexp(*expected), atol=1e-12
        )
        p = np.full(2, 0.5) if np.isneginf(expected).all() else np.exp(expected)
        np.testing.assert_allclose(model.predict_proba(query)[0], p / p.sum())
    np.testing.assert_allclose(
        model.predict_joint_log_proba(matrix([[np.nan, 0.0, 1.0]]))[0], np.log([1 / 8, 1 / 4])
    )


@every_matrix
def test_a_feature_of_which_a_class_knows_nothing_may_be_missing(matrix):
    X = np.array([[1, np.nan], [0, np.nan], [0, 1.0], [1, 0.0]])
    model = BernoulliNB(alpha=0.0, random_state=0).fit(matrix(X), [0, 0, 1, 1])
    joint = model.predict_joint_log_proba(matrix(np.array([[1.0, np.nan]])))
    np.testing.assert_allclose(joint[0], np.log([0.25, 0.25]))


# -- failures -------------------------------------------------------------------------------
def refused_calls(X, y):
    wide = np.hstack([X, X])

    def broken_stream():
        yield wide[:50], y[:50]
        yield np.full((50, wide.shape[1]), np.inf), y[50:100]

    return [
        lambda model: model.fit(wide, y[:-1]),
        lambda model: model.fit(np.where(wide > 2.0, np.inf, wide), y),
        lambda model: model.partial_fit(X, y[:-1]),
        lambda model: model.partial_fit(np.where(X > 2.0, np.inf, X), y),
        lambda model: model.fit(broken_stream()),
    ]


@every
def test_a_call_that_fails_changes_nothing(kind):
    X, y = gaussian_rows(100, 0)
    X = np.abs(X)
    for call in refused_calls(X, y):
        model = kind(random_state=0).fit(X, y)
        before = dict(vars(model))
        with pytest.raises(ValueError, match=r"infinity|inconsistent"):
            call(model)
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[name] is value for name, value in before.items())
        new = kind(random_state=0)
        with pytest.raises(ValueError, match=r"infinity|inconsistent"):
            call(new)
        assert not hasattr(new, "n_features_in_")


@every
def test_a_stream_interrupted_before_its_first_block_changes_nothing(kind):
    X, y = gaussian_rows(100, 0)
    X = np.abs(X)

    def blocks():
        raise KeyboardInterrupt
        yield X, y

    model = kind(random_state=0).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(blocks())
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


@every
@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_labels_are_counted(kind, missing):
    X, y = gaussian_rows(60, 0)
    labels = np.where(y == 0, missing, np.array(["a", "b", "c"], dtype=object)[y])
    with pytest.raises(ValueError, match=rf"y holds {(y == 0).sum()} missing labels"):
        kind().fit(np.abs(X), labels)


# -- rows of counts of any length ----------------------------------------------------------------
@every_mode
@pytest.mark.parametrize("concentration", [None, 20.0])
def test_odd_rows_of_any_length_are_outliers_and_length_alone_makes_none(bayesian, concentration):
    """Rows as the distribution has them, and rows that vary more (shares drawn anew for every row).

    Per counted event, short rows were outliers and no long row was. 1,000 inliers and 500
    of a kind: a share that should be 0.05 has a standard deviation below 0.012.
    """
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(50))
    q = np.empty(50)
    q[np.argsort(p)] = np.sort(p)[::-1]  # the rare terms are the common ones

    def draw(lengths):
        shares = (p if concentration is None else rng.dirichlet(concentration * p) for _ in lengths)
        return np.array([rng.multinomial(n, s) for n, s in zip(lengths, shares, strict=True)])

    model = MultinomialNB(bayesian=bayesian, random_state=0)
    model.fit(draw(rng.integers(20, 400, 1000)), np.zeros(1000))
    assert abs(model.is_outlier(draw(rng.integers(20, 400, 2000)), 0.95).mean() - 0.05) < 0.03
    for length in (20, 50, 400, 4000):
        assert model.is_outlier(draw(np.full(500, length)), 0.95).mean() < 0.15
    odd = [rng.multinomial(length, q) for length in (50, 100, 200, 400)]
    assert model.is_outlier(odd, 0.95).all()
    rare = np.zeros((4, 50))
    rare[:, np.argmin(p)] = [20, 50, 400, 5000]
    assert model.is_outlier(rare, 0.99).all()


def test_rows_of_one_length_or_none_say_nothing_of_other_lengths():
    rng = np.random.default_rng(0)
    X = rng.multinomial(30, [0.5, 0.3, 0.2], 200)
    same = InlierScores(**MultinomialNB(random_state=0).fit(X, np.zeros(200)).inliers_)
    assert same.growth() == 0.5
    empty = MultinomialNB(random_state=0).fit(np.zeros((20, 3)), np.zeros(20))
    assert not empty.is_outlier(np.zeros((1, 3)), 0.9).any()
    other = InlierScores(**GaussianNB(random_state=0).fit(X, np.zeros(200)).inliers_)
    np.testing.assert_array_equal(other.per_size(other.size), 1.0)


# -- rows that no distribution allows -----------------------------------------------------------
@every_mode
@every_matrix
def test_negative_counts_have_no_log_probability(bayesian, matrix):
    rng = np.random.default_rng(0)
    X, y = rng.poisson(2.0, (60, 4)).astype(float), np.arange(60) % 3
    model = MultinomialNB(bayesian=bayesian, random_state=0).fit(matrix(X), y)
    bad = X[:5].copy()
    bad[2, 1], bad[1, 3] = -1.0, np.nan
    judges = [model.score_samples, model.is_outlier]
    judges += [model.predict, model.predict_proba, model.predict_joint_log_proba]
    for judge in judges:
        with pytest.raises(ValueError, match=r"Negative values.*column 1: counts must not"):
            judge(matrix(bad))


@every_matrix
def test_rows_that_are_not_binary_have_no_log_probability(matrix):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, (60, 4)).astype(float), np.arange(60) % 3
    model = BernoulliNB(binarize=None, random_state=0).fit(matrix(X), y)
    for value in (-1.0, 5.0):
        bad = X[:5].copy()
        bad[2, 1], bad[3] = value, np.nan
        for judge in (model.score_samples, model.is_outlier):
            with pytest.raises(ValueError, match="binarize=None needs X of zeros and ones"):
                judge(matrix(bad))
    any_sign = BernoulliNB(random_state=0).fit(matrix(X), y)  # a threshold understands all values
    rows = matrix(np.where(X[:5] > 0.0, 3.0, -2.0))
    np.testing.assert_array_equal(any_sign.score_samples(rows), any_sign.score_samples(X[:5]))


# -- numbers whose squares are none ----------------------------------------------------------------
@every_mode
@every_matrix
@pytest.mark.parametrize("scale", [1e-160, 1e-170])
def test_variances_too_small_for_their_digits_are_refused(bayesian, matrix, scale):
    X, y = gaussian_rows(100, seed=0)
    model = GaussianNB(bayesian=bayesian).fit(matrix(X), y)
    before = copy.deepcopy(vars(model))
    for learn in (model.fit, GaussianNB(bayesian=bayesian).partial_fit):
        with pytest.raises(ValueError, match="X is too small.*rescale X"):
            learn(matrix(scale * X), y)
    np.testing.assert_array_equal(model.theta_, before["theta_"])


@every_mode
def test_small_and_constant_rows_are_learned_all_the_same(bayesian):
    X, y = gaussian_rows(100, seed=0)
    usual = GaussianNB(bayesian=bayesian).fit(X, y).predict_proba(X)
    small = GaussianNB(bayesian=bayesian).fit(1e-140 * X, y).predict_proba(1e-140 * X)
    np.testing.assert_allclose(small, usual, atol=1e-12)
    mixed = np.c_[X, 1e-170 * X]  # smoothing is relative to the largest variance
    with pytest.warns(UserWarning, match="columns 5, 6, 7 and 2 more of X: all values are below"):
        model = GaussianNB(bayesian=bayesian).fit(mixed, y)
    assert (model.predict(mixed) == usual.argmax(1)).all()
    for constant in (0.0, 1e-170, 3.0):
        same = np.full((6, 2), constant)
        same[0, 1] = np.nan
        GaussianNB(bayesian=bayesian).fit(same, [0, 0, 1, 1, 2, 2])
