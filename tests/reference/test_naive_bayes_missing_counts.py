"""Missing counts of MultinomialNB, against sums over all their values and a generic optimiser."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sklearn.naive_bayes as peer
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

from likelier import MultinomialNB

RNG = np.random.default_rng(4)
Y = np.arange(60) % 3
SHARES = RNG.dirichlet(np.ones(4), size=3)
COUNTS = np.array([RNG.multinomial(12, SHARES[k]) for k in Y], dtype=float)
ALPHA = np.array([0.5, 1.0, 2.0, 0.7])
every_matrix = pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])


def with_holes(X, share=0.3, seed=0):
    rows = X.copy()
    rows[np.random.default_rng(seed).random(rows.shape) < share] = np.nan
    return rows


def log_joint_by_brute_force(log_prior, log_p, row, most):
    """Sum of ``p(class) p(n) p(x | n, class)`` over the missing counts, with ``p(n) = 1 / n``.

    ``log_p`` gives the log probability of whole rows given their length, under every class.
    Divided by ``p(n)`` at the sum of the known counts: a factor that all classes share.
    """
    holes = np.flatnonzero(np.isnan(row))
    fills = np.array(list(itertools.product(range(most), repeat=len(holes))), dtype=float)
    fills = fills[fills.sum(axis=1) < most]
    rows = np.repeat(row[None], len(fills), axis=0)
    rows[:, holes] = fills
    length = rows.sum(axis=1)
    terms = log_p(rows) - np.log(length)[:, None]
    return log_prior + logsumexp(terms, axis=0) + np.log(np.nansum(row))


def multinomial(shares):
    def log_p(rows):
        measure = gammaln(rows.sum(axis=1) + 1.0) - gammaln(rows + 1.0).sum(axis=1)
        return measure[:, None] + rows @ np.log(shares).T

    return log_p


def dirichlet_multinomial(pseudo):
    def log_p(rows):
        n = rows.sum(axis=1)
        measure = gammaln(n + 1.0) - gammaln(rows + 1.0).sum(axis=1)
        out = [
            gammaln(a.sum()) - gammaln(a.sum() + n) + (gammaln(a + rows) - gammaln(a)).sum(axis=1)
            for a in pseudo
        ]
        return measure[:, None] + np.array(out).T

    return log_p


def balanced_counts(low):
    """Counts of three classes whose shares differ but none of which is rare."""
    shares = np.array([[0.4, 0.2, 0.2, 0.2], [0.2, 0.4, 0.2, 0.2], [low, 0.3, 0.3, 0.4 - low]])
    return 40.0 * shares[Y]


# -- predicting -------------------------------------------------------------------------------
ROWS = [
    [2.0, np.nan, 1.0, 3.0],
    [np.nan, 1.0, 0.0, 1.0],
    [1.0, np.nan, 2.0, np.nan],
    [0.0, 0.0, np.nan, 3.0],
]


@every_matrix
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_missing_counts_are_summed_out(row, matrix):
    """Plug-in: the sum over up to 250 further events, whose tail is below 1e-13."""
    row = np.array(row)
    model = MultinomialNB(alpha=ALPHA, random_state=0).fit(balanced_counts(0.1), Y)
    shares = np.exp(model.feature_log_prob_)
    brute = log_joint_by_brute_force(model.class_log_prior_, multinomial(shares), row, 250)
    given = matrix(row[None])
    assert abs(model.score_samples(given)[0] - logsumexp(brute)) < 1e-11
    np.testing.assert_allclose(
        model.predict_log_proba(given)[0], brute - logsumexp(brute), atol=1e-11
    )
    assert model.predict(given)[0] == brute.argmax()


@every_matrix
@pytest.mark.parametrize("row", ROWS[:2] + ROWS[3:], ids=str)
def test_missing_counts_are_summed_out_of_the_predictive_law(row, matrix):
    """Dirichlet-multinomial: heavier tails, summed over 30,000 further events."""
    row = np.array(row)
    model = MultinomialNB(alpha=ALPHA, bayesian=True, random_state=0)
    model.fit(balanced_counts(0.1), Y)
    distribution = dirichlet_multinomial(model.feature_count_ + ALPHA)
    brute = log_joint_by_brute_force(model.class_log_prior_, distribution, row, 30_000)
    given = matrix(row[None])
    assert abs(model.score_samples(given)[0] - logsumexp(brute)) < 1e-8
    np.testing.assert_allclose(
        model.predict_log_proba(given)[0], brute - logsumexp(brute), atol=1e-8
    )


@every_matrix
@pytest.mark.parametrize("bayesian", [False, True])
def test_the_law_of_known_counts_whatever_the_length(bayesian, matrix):
    """Given a length and the sum of the known counts, no distribution of the length is needed."""
    model = MultinomialNB(alpha=ALPHA, bayesian=bayesian, random_state=0).fit(COUNTS, np.zeros(60))
    whole = np.array([r for r in itertools.product(range(10), repeat=4) if sum(r) == 9], float)
    log_p = model.score_samples(whole)
    for holes, n_known in (([1], 5), ([0, 3], 4), ([0, 1, 2], 2)):
        known = np.delete(whole, holes, axis=1)
        same_sum = known.sum(axis=1) == n_known
        total = logsumexp(log_p[same_sum])
        for values in np.unique(known[same_sum], axis=0):
            brute = logsumexp(log_p[(known == values).all(axis=1)]) - total
            row = np.full((1, 4), np.nan)
            row[0, np.delete(np.arange(4), holes)] = values
            assert abs(model.score_samples(matrix(row))[0] - brute) < 1e-12


@every_matrix
@pytest.mark.parametrize("bayesian", [False, True])
def test_a_row_of_which_nothing_is_known_leaves_the_prior(bayesian, matrix):
    model = MultinomialNB(bayesian=bayesian, random_state=0).fit(COUNTS[:50], Y[:50])
    rows = np.array([[np.nan] * 4, [np.nan, 0.0, 0.0, np.nan]])
    prior = np.exp(model.class_log_prior_)
    np.testing.assert_allclose(model.predict_proba(matrix(rows)), [prior, prior], rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(matrix(rows)), 0.0, atol=1e-12)
    assert not model.is_outlier(matrix(rows)).any()


@every_matrix
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("bayesian", [False, True])
def test_rows_beside_them_are_scored_as_ever(kind, bayesian, matrix):
    model = MultinomialNB(bayesian=bayesian, random_state=0).fit(COUNTS, Y)
    rows = with_holes(COUNTS, 0.1).astype(kind)
    complete = ~np.isnan(rows).any(axis=1)
    for name in ("predict_joint_log_proba", "score_samples", "predict_proba"):
        call = getattr(model, name)
        mixed, alone = call(matrix(rows)), call(matrix(rows[complete]))
        assert np.isfinite(mixed).all()
        # the very same sums; how many rows BLAS is given may change their order
        np.testing.assert_allclose(mixed[complete], alone, rtol=1e-14)


@pytest.mark.parametrize("bayesian", [False, True])
def test_rare_known_terms_do_not_drown_in_rounding(bayesian):
    """All but a millionth of the probability is missing, and only its details count."""
    X = np.array([[1e12, 3.0, 1.0], [1e12, 1.0, 3.0]])
    model = MultinomialNB(bayesian=bayesian, random_state=0).fit(X, [0, 1])
    row = np.array([[np.nan, 2.0, 1.0]])
    exact = multinomial(np.array([[4.0, 2.0], [2.0, 4.0]]) / 6.0)
    if bayesian:
        exact = dirichlet_multinomial(np.array([[4.0, 2.0], [2.0, 4.0]]))
    joint = exact(row[:, 1:])[0] + np.log(0.5)
    for matrix in (np.asarray, sparse.csr_array):
        assert abs(model.score_samples(matrix(row))[0] - logsumexp(joint)) < 1e-9


def test_without_smoothing_known_terms_can_be_impossible():
    X = np.array([[2.0, 0.0, 1.0], [1.0, 0.0, 3.0], [0.0, 2.0, 1.0]])
    model = MultinomialNB(alpha=0.0, random_state=0).fit(X, ["a", "a", "b"])
    rows = np.array([[np.nan, 1.0, np.nan], [1.0, np.nan, 2.0], [np.nan, 0.0, np.nan]])
    for matrix in (np.asarray, sparse.csr_array):
        found = model.predict_proba(matrix(rows))
        np.testing.assert_allclose(found, [[0, 1], [1, 0], [2 / 3, 1 / 3]])


# -- learning -----------------------------------------------------------------------------------
def energy_of(X, weight, alpha):
    """Minus the log probability of the known counts given their sums, and pseudocounts."""
    X, weight = X[~np.isnan(X).all(axis=1)], weight[~np.isnan(X).all(axis=1)]
    known = ~np.isnan(X)
    counts = np.where(known, X, 0.0) * weight[:, None]

    def energy(log_probabilities):
        shares = np.exp(log_probabilities)
        sums = known @ shares
        value = (counts.sum(axis=1) * np.log(sums)).sum() + alpha.sum() * np.log(shares.sum())
        rate = (counts.sum(axis=1) / sums) @ known + alpha.sum() / shares.sum()
        total = counts.sum(axis=0) + alpha
        return value - total @ log_probabilities, shares * rate - total

    return energy


@every_matrix
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("share", [0.05, 0.4, 0.7])
def test_learned_shares_are_most_probable(share, weighted, matrix):
    X = with_holes(COUNTS, share)
    weight = RNG.uniform(0.5, 2.0, 60) if weighted else np.ones(60)
    model = MultinomialNB(alpha=ALPHA, random_state=0)
    model.fit(matrix(X), Y, weight if weighted else None)
    for k in range(3):
        energy = energy_of(X[Y == k], weight[Y == k], ALPHA)
        found = minimize(energy, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-9})
        ours = model.feature_log_prob_[k]
        np.testing.assert_allclose(ours, found.x - logsumexp(found.x), atol=1e-7)
        assert energy(ours)[0] <= found.fun + 1e-10
        assert abs(energy(ours)[1]).max() < 1e-12 * 60 * 12
        assert abs(logsumexp(ours)) < 1e-14


def test_large_tables_of_patterns_give_the_same(monkeypatch):
    import likelier.naive_bayes.missing_counts as shares

    X = with_holes(COUNTS, 0.4)
    one = MultinomialNB(random_state=0).fit(X, Y)
    monkeypatch.setattr(shares, "DENSE_SIZE", 0)
    two = MultinomialNB(random_state=0).fit(X, Y)
    np.testing.assert_allclose(one.feature_log_prob_, two.feature_log_prob_, rtol=1e-12)


def test_two_sources_that_count_different_terms_are_joined_by_what_they_share():
    """Few rows hold both: a simple iteration would take thousands of rounds."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(5.0 * np.ones(12))
    X = rng.multinomial(40, p, size=4000).astype(float)
    X[:2000, :6] = np.nan
    X[2000:3990, 6:] = np.nan
    model = MultinomialNB(alpha=1e-6, random_state=0).fit(X, np.zeros(4000))
    gradient = energy_of(X, np.ones(4000), np.full(12, 1e-6))(model.feature_log_prob_[0])[1]
    assert abs(gradient).max() < 1e-9
    both = X[3990:]
    ours = np.exp(model.feature_log_prob_[0])
    # only the ten complete rows identify the source of a term
    assert abs(ours[:6].sum() - both[:, :6].sum() / both.sum()) < 1e-6
    first = np.nansum(X[2000:, :6], axis=0)
    np.testing.assert_allclose(ours[:6] / ours[:6].sum(), first / first.sum(), rtol=1e-6)


def test_no_smoothing_and_shares_without_a_maximum():
    """The second term is never seen beside the first: its share goes to zero, not to NaN."""
    model = MultinomialNB(alpha=0.0, random_state=0)
    model.fit([[3.0, 0.0], [np.nan, 4.0], [2.0, 0.0]], [0, 0, 0])
    np.testing.assert_allclose(np.exp(model.feature_log_prob_[0]), [1.0, 0.0], atol=1e-12)
    apart = MultinomialNB(alpha=0.0, random_state=0)
    apart.fit([[3.0, 1.0, np.nan], [np.nan, np.nan, 4.0]], [0, 0])
    share = np.exp(apart.feature_log_prob_[0])
    assert abs(share[0] / share[1] - 3.0) < 1e-12
    assert abs(share.sum() - 1.0) < 1e-14


@every_matrix
def test_a_class_with_complete_rows_has_scikit_learns_numbers(matrix):
    X = COUNTS.copy()
    X[Y == 1, 2] = np.nan
    ours = MultinomialNB(alpha=ALPHA, random_state=0).fit(matrix(X), Y)
    theirs = peer.MultinomialNB(alpha=ALPHA).fit(COUNTS, Y)
    for k in (0, 2):
        np.testing.assert_allclose(ours.feature_log_prob_[k], theirs.feature_log_prob_[k], 1e-14)
    complete = MultinomialNB(alpha=ALPHA, random_state=0).fit(matrix(COUNTS), Y)
    np.testing.assert_array_equal(
        ours.feature_log_prob_[[0, 2]], complete.feature_log_prob_[[0, 2]]
    )


def test_a_column_that_no_row_has_is_left_to_the_pseudocounts():
    """Shares of the others are as if the column did not exist, but for its pseudocount."""
    X = COUNTS.copy()
    X[:, 3] = np.nan
    model = MultinomialNB(random_state=0).fit(X, Y)
    shares = np.exp(model.feature_log_prob_)
    for k in range(3):
        n = COUNTS[Y == k][:, :3].sum(axis=0)
        np.testing.assert_allclose(shares[k, :3] / shares[k, :3].sum(), (n + 1) / (n.sum() + 3))
        assert abs(shares[k, 3] - 0.25) < 1e-12  # of four pseudocounts, one
