"""Calibration: recovery of known maps, brute force, order and sign kept for every input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_expit, softmax
from sklearn.calibration import _sigmoid_calibration
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from likelier import calibration
from likelier.calibration import (
    Platt,
    SignPreserving,
    Temperature,
    brier,
    conformal_quantile,
    ece,
    fit_platt,
    fit_sign_preserving,
    fit_temperature,
    log_loss,
    restore,
)

MAPS = [
    SignPreserving(2.0, 0.5, 0.7, 3.0),
    SignPreserving(0.0, 1e3, 1.0, 1e-3),
    SignPreserving(1e-5, 1e5, 0.05, 1e200),
    SignPreserving(3.0, 4.0, 60.0, 1.1),
]
BINARY_FITS = [fit_sign_preserving, fit_platt]
fast = settings(max_examples=100, deadline=None, derandomize=True)
finite = st.floats(allow_nan=False, allow_infinity=False)


def draw(truth, n, seed=0):
    """Scores of both signs, and labels whose probabilities are those of a known map."""
    rng = np.random.default_rng(seed)
    f = 2.0 * rng.standard_normal(n)
    return f, np.where(rng.uniform(size=n) < truth.probabilities(f), 1, -1)


# -- sign-preserving map ----------------------------------------------------------------------


def test_formula():
    f = np.array([-3.0, -0.5, 0.25, 2.0])
    found = SignPreserving(2.0, 0.5, 0.7, 3.0).probabilities(f)
    slope = np.where(f > 0.0, 2.0, 0.5)
    np.testing.assert_allclose(found, expit(np.sign(f) * slope * (abs(f) / 3.0) ** 0.7), rtol=1e-12)


@pytest.mark.parametrize(
    "truth",
    [
        SignPreserving(1.5, 0.6),
        SignPreserving(2.0, 1.0, 0.5),
        SignPreserving(0.3, 3.0),
        SignPreserving(1.0, 0.5, 2.0, 2.0),
    ],
)
def test_recovers_a_known_map(truth):
    """Within 0.02 of the probabilities at 50,000 rows: more than five standard errors."""
    f, y = draw(truth, 50_000)
    found = fit_sign_preserving(f, y)
    grid = np.linspace(-5.0, 5.0, 101)
    np.testing.assert_allclose(found.probabilities(grid), truth.probabilities(grid), atol=0.02)
    assert found.power == pytest.approx(truth.power, abs=0.06)


def penalised_loss(f, y, weight, log_slopes, power):
    """The same objective in another form, for brute force."""
    n_pos, n_neg = weight @ (y > 0), weight @ (y < 0)
    target = np.where(y > 0, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    scale = np.exp(
        np.sort(np.log(abs(np.repeat(f, weight.astype(int)))))[(int(weight.sum()) - 1) // 2]
    )
    slopes = np.exp(log_slopes)
    logit = np.sign(f) * np.where(f > 0, *slopes) * (abs(f) / scale) ** power
    fit = -weight @ (target * log_expit(logit) + (1.0 - target) * log_expit(-logit))
    prior = (log_slopes[0] - log_slopes[1]) ** 2 / 2.0 + np.log(power) ** 2 / (2.0 * 0.25)
    return fit + prior + np.mean(log_slopes) ** 2 / (2.0 * 16.0)


@pytest.mark.parametrize("n", [5, 30, 400])
@pytest.mark.parametrize("seed", range(3))
def test_fit_is_the_minimum_found_by_brute_force(n, seed):
    f, y = draw(SignPreserving(1.0, 2.0, 0.6), n, seed)
    weight = np.random.default_rng(seed).integers(0, 3, n).astype(float)
    weight[0] = 1.0
    found = fit_sign_preserving(f, y, weight)

    def objective(theta):
        return penalised_loss(f, y, weight, theta[:2], math.exp(theta[2]))

    starts = [(0.0, 0.0, -0.1), (1.0, -1.0, -1.0), (-1.0, 1.0, 0.5)]
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}
    best = min(
        minimize(objective, start, method="Nelder-Mead", options=options).fun for start in starts
    )
    ours = penalised_loss(f, y, weight, np.log([found.slope_pos, found.slope_neg]), found.power)
    assert ours == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("known", MAPS, ids=repr)
@fast
@given(f=finite, g=finite)
def test_monotone_and_on_the_side_of_the_sign_for_all_numbers(known, f, g):
    low, high = sorted((f, g))
    p, q = known.probabilities([low, high])
    assert 0.0 <= p <= 1.0
    assert p <= q * (1.0 + 1e-15)
    for score, probability in ((low, p), (high, q)):
        assert (probability > 0.5) == (score > 0.0)
        assert (probability < 0.5) == (score < 0.0)
        # and so says the larger of the two classes, the first of equals
        assert np.argmax([1.0 - probability, probability]) == int(score > 0.0)


def test_smallest_and_largest_numbers():
    f = np.array([-1.7e308, -1e300, -5e-324, 0.0, 5e-324, 1e300, 1.7e308])
    for known in MAPS:
        p = known.probabilities(f)
        np.testing.assert_array_equal(np.sign(p - 0.5), np.sign(f))
        assert (np.diff(p) >= 0.0).all()


@pytest.mark.parametrize("fit", BINARY_FITS)
@pytest.mark.parametrize("factor", [1e-300, 1e-6, 1e6, 1e300])
def test_rescaling_all_scores_changes_nothing(fit, factor):
    f, y = draw(SignPreserving(1.5, 0.6), 300)
    plain, scaled = fit(f, y).probabilities(f), fit(f * factor, y).probabilities(f * factor)
    np.testing.assert_allclose(scaled, plain, atol=1e-6)


@pytest.mark.parametrize("fit", BINARY_FITS)
def test_a_weight_counts_rows(fit):
    f, y = draw(SignPreserving(1.5, 0.6), 200)
    weight = np.random.default_rng(1).integers(0, 4, 200)
    weighted = fit(f, y, weight).probabilities(f)
    repeated = fit(np.repeat(f, weight), np.repeat(y, weight)).probabilities(f)
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)
    ones = fit(f, y, np.ones(200)).probabilities(f)
    np.testing.assert_array_equal(ones, fit(f, y).probabilities(f))


@pytest.mark.parametrize("fit", BINARY_FITS)
def test_labels_may_be_signs_codes_or_truth_values(fit):
    f, y = draw(SignPreserving(1.5, 0.6), 100)
    assert fit(f, y) == fit(f, (y > 0).astype(int)) == fit(f, y > 0)


@pytest.mark.parametrize("fit", BINARY_FITS)
@pytest.mark.parametrize(
    ("f", "y"),
    [
        ([0.3, -0.2, 1.0], [1, 1, 1]),  # one class only
        ([0.3, -0.2, 1.0], [-1, -1, -1]),
        ([2.0, 2.0, 2.0, 2.0], [1, -1, 1, 1]),  # constant scores
        ([0.0, 0.0, 0.0], [1, -1, 1]),  # all zero
        ([1.0], [1]),  # a single row
        ([1.0], [-1]),
        ([-3.0, -2.0, 2.0, 3.0], [-1, -1, 1, 1]),  # separated
        ([-3.0, -2.0, 2.0, 3.0], [1, 1, -1, -1]),  # all wrong
        ([1e300, -1e300, 1e-300, 1.0], [1, -1, -1, 1]),  # 600 decades
        ([1.0, 2.0, 3.0], [1, 1, -1]),  # one sign only
    ],
)
def test_odd_samples_give_a_finite_map(fit, f, y):
    found = fit(f, y)
    p = found.probabilities([-1e300, -1.0, 0.0, 1.0, 1e300])
    assert np.isfinite(p).all()
    assert all(math.isfinite(value.item()) for value in found.to_arrays().values())


def test_probabilities_of_a_small_separated_sample_stay_modest():
    """Four rows are no reason for certainty: the smoothed targets are 3/4 and 1/4."""
    p = fit_sign_preserving([-3.0, -2.0, 2.0, 3.0], [-1, -1, 1, 1]).probabilities([2.5])
    assert 0.6 < p < 0.85


def test_scores_that_are_all_wrong_give_one_half():
    f = np.linspace(-3.0, 3.0, 1000)
    p = fit_sign_preserving(f, -np.sign(f + 1e-9)).probabilities([-3.0, 3.0])
    np.testing.assert_allclose(p, 0.5, atol=0.01)


def test_improves_on_the_plain_logistic_of_a_hinge_score():
    """Held out: 1,000 rows for the map, 4,000 for the verdict."""
    X, y = make_classification(
        12_000, 20, n_informative=6, weights=[0.8], flip_y=0.05, class_sep=0.7, random_state=1
    )
    X, Xt, y, yt = train_test_split(X, y, test_size=4000, random_state=0)
    model = LinearSVC(loss="hinge", C=0.01, random_state=0, max_iter=20_000).fit(X[1000:], y[1000:])
    f, ft = model.decision_function(X[:1000]), model.decision_function(Xt)
    p = fit_sign_preserving(f, y[:1000]).probabilities(ft)
    classic = fit_platt(f, y[:1000]).probabilities(ft)
    assert log_loss(p, yt).value < log_loss(expit(ft), yt).value - 0.01
    assert log_loss(p, yt).value < log_loss(classic, yt).value
    assert ece(p, yt) < 0.035
    assert ((p > 0.5) == model.predict(Xt)).all()
    assert ((classic > 0.5) != model.predict(Xt)).any()  # what this map is made to avoid


def test_small_real_sample():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X, Xt, y, yt = train_test_split(X, y, test_size=300, random_state=0, stratify=y)
    model = LinearSVC(loss="hinge", C=0.01, random_state=0, max_iter=20_000).fit(X[100:], y[100:])
    p = fit_sign_preserving(model.decision_function(X[:100]), y[:100]).probabilities(
        model.decision_function(Xt)
    )
    assert log_loss(p, yt).value < 0.2
    assert ece(p, yt) < 0.06


@pytest.mark.parametrize("seed", range(3))
def test_scores_that_crowd_where_one_class_is_rare_are_spread(seed):
    """All scores near -1: one class in twenty, whose probabilities go from 0.01 to one half."""
    rng = np.random.default_rng(seed)
    f = -1.15 + 0.06 * rng.standard_normal(22_000)
    y = rng.uniform(size=22_000) < expit(18.0 * (f + 1.15) - 3.5)
    p = fit_sign_preserving(f[:2000], y[:2000]).probabilities(f[2000:])
    truth = expit(18.0 * (f[2000:] + 1.15) - 3.5)
    rate, held = y[:2000].mean(), y[2000:].astype(int)
    null = log_loss(np.full(20_000, rate), held).value
    best = log_loss(truth, held).value
    assert (p < 0.5).all()  # as their signs are
    assert log_loss(p, held).value < best + 0.2 * (null - best)
    top = np.argsort(p)[-200:]
    assert 0.5 * truth[top].mean() < p[top].mean() < 1.5 * truth[top].mean()
    assert p[top].mean() > 3.0 * rate


# -- Platt's map --------------------------------------------------------------------------------


def test_platt_is_that_of_scikit_learn():
    rng = np.random.default_rng(3)
    f = 3.0 * rng.standard_normal(500) + 1.0
    y = np.where(rng.uniform(size=500) < expit(0.8 * f - 1.0), 1, 0)
    weight = rng.integers(1, 4, 500).astype(float)
    a, b = _sigmoid_calibration(f, y, weight)  # p = 1 / (1 + exp(a f + b))
    grid = np.linspace(-10.0, 10.0, 41)
    np.testing.assert_allclose(
        fit_platt(f, y, weight).probabilities(grid), expit(-(a * grid + b)), atol=2e-4
    )


def test_platt_of_constant_scores_is_the_smoothed_rate():
    p = fit_platt(np.full(100, 2.0), np.repeat([1, 0], [80, 20])).probabilities([2.0])
    target = (80 * 81 / 82 + 20 * 1 / 22) / 100
    assert p[0] == pytest.approx(target, abs=1e-3)


def test_platt_of_extreme_scores():
    p = Platt(2.0, 0.1, 1e-300).probabilities([-1e300, -1.0, 0.0, 1.0, 1e300])
    assert np.isfinite(p).all()
    assert (np.diff(p) >= 0.0).all()
    assert p[2] == pytest.approx(expit(0.1))


# -- temperature --------------------------------------------------------------------------------


def draw_classes(sharpness, n, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    f = rng.standard_normal((n, n_classes))
    p = softmax(sharpness * f, axis=1)
    return f, (rng.uniform(size=(n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, n_classes - 1)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 5.0])
def test_recovers_a_known_temperature(sharpness):
    """Five percent at 20,000 rows: more than five standard errors."""
    f, k = draw_classes(sharpness, 20_000)
    found = fit_temperature(f, k)
    assert found.sharpness / found.scale == pytest.approx(sharpness, rel=0.05)


def test_temperature_by_brute_force():
    f, k = draw_classes(1.5, 80)
    weight = np.random.default_rng(1).integers(0, 3, 80).astype(float)
    found = fit_temperature(f, k, weight)
    doubt = 1.0 / (weight.sum() + 2.0)
    target = np.full((80, 4), doubt / 3.0)
    target[np.arange(80), k] = 1.0 - doubt

    def objective(log_sharpness):
        p = softmax(np.exp(log_sharpness) * f / found.scale, axis=1)
        return -weight @ (target * np.log(p)).sum(axis=1) + log_sharpness**2 / 32.0

    grid = np.linspace(-4.0, 4.0, 80_001)
    values = [objective(level) for level in grid[::200]]
    near = int(np.argmin(values)) * 200
    fine = grid[max(near - 200, 0) : near + 200]
    best = fine[np.argmin([objective(level) for level in fine])]
    assert math.log(found.sharpness) == pytest.approx(best, abs=2e-4)


def test_many_classes_of_few_rows_are_not_underconfident():
    """Ten classes of ten rows, all scored rightly: doubt is worth one row of the hundred."""
    k = np.repeat(np.arange(10), 10)
    p = fit_temperature(np.eye(10)[k], k).probabilities(np.eye(10)[k])
    assert p[np.arange(100), k].mean() > 0.95


@fast
@given(
    f=st.lists(finite, min_size=2, max_size=5),
    sharpness=st.sampled_from([0.0, 1e-12, 1.0, 1e12]),
    scale=st.sampled_from([1e-200, 1.0, 1e200]),
)
def test_largest_score_keeps_the_largest_probability(f, sharpness, scale):
    p = Temperature(sharpness, scale).probabilities([f])
    assert np.isfinite(p).all()
    assert p.sum() == pytest.approx(1.0)
    assert p.argmax() == np.argmax(f)


def test_order_survives_scores_that_differ_by_a_rounding():
    f = np.array([[1.0, 1.0 + 2**-52, 0.0], [1e300, 1e-300, 1.0], [5e-324, 0.0, 1e-323]])
    p = Temperature(1.0).probabilities(f)
    np.testing.assert_array_equal(p.argmax(axis=1), [1, 0, 2])


def test_temperature_weights_count_rows():
    f, k = draw_classes(1.5, 200)
    weight = np.random.default_rng(1).integers(0, 4, 200)
    weighted = fit_temperature(f, k, weight).probabilities(f)
    repeated = fit_temperature(np.repeat(f, weight, axis=0), np.repeat(k, weight)).probabilities(f)
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_temperature_does_not_depend_on_the_unit_of_the_scores(factor):
    f, k = draw_classes(1.5, 200)
    plain, scaled = fit_temperature(f, k), fit_temperature(f * factor, k)
    np.testing.assert_allclose(scaled.probabilities(f * factor), plain.probabilities(f), rtol=1e-5)


@pytest.mark.parametrize(
    ("f", "k"),
    [
        (np.zeros((3, 3)), [0, 1, 2]),  # constant
        (np.eye(3), [0, 1, 2]),  # separated
        (np.eye(3), [1, 2, 0]),  # all wrong
        (np.eye(3), [0, 0, 0]),  # one class only
        ([[1.0, 2.0]], [0]),  # one row
        ([[1e300, -1e300, 0.0], [0.0, 1.0, 2.0]], [0, 2]),
    ],
)
def test_odd_samples_give_a_finite_temperature(f, k):
    found = fit_temperature(f, k)
    assert math.isfinite(found.sharpness)
    assert np.isfinite(found.probabilities(f)).all()


# -- storing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [*MAPS, Platt(1.0, -2.0, 3.0), Temperature(0.5, 2.0)], ids=repr)
def test_plain_arrays_and_back(known):
    arrays = known.to_arrays()
    assert all(array.shape == (1,) and array.dtype == np.float64 for array in arrays.values())
    assert restore(arrays) == known
    assert type(known).from_arrays(arrays) == known


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: restore({"slope": [1.0]}), "must be those of a calibration map"),
        (lambda: Platt.from_arrays({"slope": [1.0]}), "arrays of Platt must be"),
        (lambda: SignPreserving(-1.0, 1.0), "slope_pos and slope_neg"),
        (lambda: SignPreserving(1.0, 1.0, 0.0), "power and scale must be > 0"),
        (lambda: SignPreserving(1.0, 1.0, 1.0, 0.0), "power and scale must be > 0"),
        (lambda: SignPreserving(np.nan, 1.0), "slope_pos of SignPreserving must be finite"),
        (lambda: Temperature(-1.0), "sharpness must be >= 0"),
        (lambda: SignPreserving(1.0, 1.0).probabilities([np.nan]), "scores must be finite"),
        (lambda: SignPreserving(1.0, 1.0).probabilities([[1.0]]), "scores must have 1 dim"),
        (lambda: Temperature(1.0).probabilities([1.0]), "scores must have 2 dim"),
        (lambda: fit_sign_preserving([], []), "at least one row"),
        (lambda: fit_sign_preserving([1.0, 2.0], [1]), "y must have the shape of scores"),
        (lambda: fit_sign_preserving([1.0, 2.0], [1, 2]), "y must contain only the labels"),
        (lambda: fit_sign_preserving([1.0, 2.0], [-1, 0]), "y must contain only the labels"),
        (lambda: fit_platt([np.inf], [1]), "scores must be finite"),
        (lambda: fit_platt([1.0], [1], [0.0]), "weight must be >= 0 with a positive"),
        (lambda: fit_platt([1.0], [1], [-1.0]), "weight must be >= 0"),
        (lambda: fit_platt([1.0], [1], [1.0, 1.0]), "weight must have one entry for each of 1"),
        (lambda: fit_temperature([[1.0, 2.0]], [2]), r"codes must be integers 0\.\.1"),
        (lambda: fit_temperature([[1.0, 2.0]], [0.5]), r"codes must be integers 0\.\.1"),
        (lambda: fit_temperature([[1.0]], [0]), "at least two classes"),
        (lambda: fit_temperature([[1.0, 2.0]], [0, 1]), r"codes must have shape \(1,\)"),
        (lambda: conformal_quantile([1.0], 1.0), "coverage must lie strictly"),
        (lambda: conformal_quantile([np.nan], 0.5), "residuals must be finite"),
        (lambda: conformal_quantile([], 0.5), "at least one row"),
        (lambda: ece([0.5], [0], n_bins=0), "n_bins must be >= 1"),
        (lambda: ece([1.5], [0]), "probabilities must lie between 0 and 1"),
        (lambda: brier([np.nan], [0]), "probabilities must be finite"),
    ],
)
def test_bad_input_is_named(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_every_map_is_a_frozen_value():
    for known in (SignPreserving(1.0, 1.0), Platt(1.0, 0.0), Temperature(1.0)):
        assert hash(known) == hash(restore(known.to_arrays()))
        with pytest.raises(AttributeError):
            known.scale = 2.0
    with pytest.raises(TypeError, match="abstract"):
        calibration.Calibration()
