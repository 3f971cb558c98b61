"""The deep Gaussian processes as estimators: what they learn and predict."""

from __future__ import annotations

import copy

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.special import logsumexp
from scipy.stats import norm

from likelier.deep_gp import compile as deep_compile
from likelier.deep_gp.argmax import log_z_argmax
from likelier.deep_gp.posterior import classifier as posterior_of
from likelier.deep_gp.posterior import label_probabilities
from likelier.deep_gp.propagation import HELD_VALUES, DeepPosterior
from likelier.deep_gp.start import shared_normals

from .deep_gp_problem import LABELS, TWO, D, N, X, Y, classifier, regressor


def test_it_learns_numbers(fitted):
    assert fitted.score(X, Y) > 0.9
    assert fitted.n_iter_ == 400
    assert np.isfinite(fitted.energy_)
    far = fitted.predict(np.full((1, D), 50.0), return_std=True)[1]
    assert far[0] > 2.0 * fitted.predict(X, return_std=True)[1].mean()


def test_it_learns_classes(of_two, of_three):
    assert of_two.score(X, TWO) > 0.85
    assert of_three.score(X, LABELS) > 0.75
    assert list(of_three.classes_) == ["low", "mid", "top"]
    assert of_three.layers_[-1]["mean"].shape[0] == 3  # one output a class, and no phantom
    assert 0.0 < of_three.label_noise_ < 2.0 / 3.0


@pytest.mark.parametrize("name", ["of_two", "of_three"])
def test_probabilities_are_probabilities(name, request):
    model = request.getfixturevalue(name)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    truth = TWO if name == "of_two" else LABELS
    codes = np.searchsorted(model.classes_, truth)
    expected = np.log(p[np.arange(N), codes])
    np.testing.assert_allclose(model.log_predictive_density(X, truth), expected)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(p))
    told = model.predict_uncertainty(X)
    np.testing.assert_allclose(told.total, told.aleatoric + told.epistemic)
    np.testing.assert_allclose(told.total, -(p * np.log(p)).sum(axis=1), atol=1e-8)
    draws = model.sample_y(X[:5], 4000, random_state=1)
    share = np.mean(draws == model.classes_[0], axis=1)
    np.testing.assert_allclose(share, p[:5, 0], atol=0.04)


@pytest.mark.parametrize("name", ["of_two", "of_three"])
def test_log_densities_of_labels_that_cannot_be_keep_their_digits(name, request):
    """Without label noise, against sums over a fine grid of scores in logarithms."""
    sure = copy.deepcopy(request.getfixturevalue(name))
    sure.label_noise_ = 0.0
    sure.layers_[-1]["mean"] = 40.0 * sure.layers_[-1]["mean"]
    rows = X[:3]
    mean, variance = posterior_of(sure).outputs.moments(rows)
    if name == "of_two":  # the other score of two is zero without a doubt: noise of one
        mean = np.concatenate([np.zeros_like(mean), mean], axis=-1)
        variance = np.concatenate([np.full_like(variance, 0.5), variance + 0.5], axis=-1)
    for code, label in enumerate(sure.classes_):
        told = sure.log_predictive_density(rows, [label] * len(rows))
        sd = np.sqrt(variance)
        low, high = (mean - 60.0 * sd).min(), (mean + 60.0 * sd).max()
        h = np.linspace(low, high, 20_001)[:, None, None]
        log_terms = norm.logpdf(h, mean[..., code], sd[..., code]) + np.log(h[1] - h[0])
        for other in set(range(len(sure.classes_))) - {code}:
            log_terms = log_terms + norm.logcdf((h - mean[..., other]) / sd[..., other])
        samples = logsumexp(log_terms, axis=0)
        expected = logsumexp(samples, axis=1) - np.log(samples.shape[1])
        np.testing.assert_allclose(told, expected, rtol=1e-7, atol=1e-7)
    least = min(sure.log_predictive_density(rows, [label] * 3).min() for label in sure.classes_)
    assert least < -50.0


def in_batches(function, rows, size):
    parts = [function(rows[first : first + size]) for first in range(0, len(rows), size)]
    return np.concatenate(parts)


@pytest.mark.parametrize("size", [1, 7, 50])
def test_predictions_do_not_depend_on_the_other_rows(size, fitted, of_two, of_three):
    """To the last bit: 66 rows are two blocks, and a row may be at any place of one."""
    rows = np.random.default_rng(5).uniform(-2.5, 2.5, (66, D))
    for function in (
        fitted.predict,
        lambda rows: fitted.predict(rows, return_std=True)[1],
        fitted.predict_interval,
        of_two.predict_proba,
        of_three.predict_proba,
    ):
        whole = function(rows)
        np.testing.assert_array_equal(in_batches(function, rows, size), whole)
        np.testing.assert_array_equal(function(rows[::-1]), whole[::-1])


def test_draws_of_a_row_do_not_depend_on_the_rows_after_it(fitted, of_three):
    """Of the first row of the second block, too."""
    rows = np.random.default_rng(5).uniform(-2.5, 2.5, (66, D))
    for model in (fitted, of_three):
        whole = model.sample_y(rows, 9, random_state=3)
        for n_rows in (1, 7, 65):
            first = model.sample_y(rows[:n_rows], 9, random_state=3)
            np.testing.assert_array_equal(first, whole[:n_rows])
            one_stream = np.random.RandomState(3)
            batches = in_batches(lambda r: model.sample_y(r, 9, one_stream), rows, n_rows)  # noqa: B023
            np.testing.assert_array_equal(batches, whole)


def test_fits_of_other_rows_and_inputs_share_their_programs():
    """Shapes are padded: nothing is compiled anew for a few rows more, or an input less."""
    rng = np.random.default_rng(6)
    numbers = set()
    for n_rows, n_inputs in ((40, 4), (50, 4), (60, 3)):
        rows = rng.standard_normal((n_rows, n_inputs))
        regressor(max_iter=20).fit(rows, rows.sum(axis=1))
        numbers.add(len(deep_compile._programs))
    assert len(numbers) == 1


def random_posterior(n_inducing, widths, n_samples):
    rng = np.random.default_rng(0)
    layers = [
        {"inducing": rng.standard_normal((n_inducing, widths[0])),
         "log_scale": np.zeros((1, widths[0])), "log_amplitude": np.zeros(1),
         "mean": rng.standard_normal((nodes, n_inducing)),
         "root": np.zeros((nodes, n_inducing, n_inducing)), "log_noise": np.asarray(-5.0)}
        for nodes in widths[1:]
    ]  # fmt: skip
    projections = [np.eye(widths[0]), np.zeros((widths[0], widths[-1]))]
    return DeepPosterior(layers, projections, "rbf", shared_normals(n_samples, widths[1], 0))


@pytest.mark.parametrize(("n_samples", "n_outputs"), [(128, 1), (32, 10)])
def test_moments_of_default_sizes_do_not_depend_on_the_other_rows(n_samples, n_outputs):
    """To the last bit, with the inducing points, nodes and samples that are used unasked."""
    posterior = random_posterior(100, (8, 8, n_outputs), n_samples)
    rows = np.random.default_rng(1).standard_normal((70, 8))

    def flat(rows):
        parts = [np.concatenate(pair, axis=-1) for pair in posterior.moments(rows)]
        return np.concatenate(parts)

    whole = flat(rows)
    for size in (1, 3, 9, 64):
        np.testing.assert_array_equal(in_batches(flat, rows, size), whole)
    np.testing.assert_array_equal(flat(rows[::-1]), whole[::-1])


def test_blocks_hold_few_values_whatever_the_number_of_outputs():
    """Of a model of a thousand classes, and of one that draws very many samples."""
    for n_outputs, n_samples in ((1000, 32), (1, 5000)):
        posterior = random_posterior(4, (2, 2, n_outputs), n_samples)
        rows = np.random.default_rng(1).standard_normal((300, 2))
        sizes = [mean.size for mean, _ in posterior.moments(rows)]
        assert sum(sizes) == 300 * n_samples * n_outputs
        assert len(sizes) > 1 or n_outputs == 1
        assert max(sizes) <= HELD_VALUES


def test_class_chances_are_those_of_precise_quadrature(of_three):
    """Training may be content with less; predictions are right to 1e-8."""
    mean, variance = posterior_of(of_three).outputs.moments(X[:4])
    with jax.enable_x64(True):
        codes = np.broadcast_to(np.arange(3), (4, len(of_three.normals_), 3))
        laws = (jax.numpy.repeat(a[:, :, None], 3, axis=2) for a in (mean, variance))
        p = np.exp(np.asarray(jax.jit(log_z_argmax)(codes, *laws))).mean(axis=1)
    expected = label_probabilities(p, of_three.label_noise_, 3)
    np.testing.assert_allclose(of_three.predict_proba(X[:4]), expected, rtol=0, atol=1e-8)


def test_predictions_are_one_mixture(fitted):
    """Interval, quantiles, density, deviations and draws all come from the same law."""
    mean, std = fitted.predict(X, return_std=True)
    told = fitted.predict_uncertainty(X)
    np.testing.assert_allclose(told.total, std**2)
    np.testing.assert_allclose(told.aleatoric, fitted.noise_**2)
    interval = fitted.predict_interval(X, 0.8)
    np.testing.assert_allclose(interval, fitted.predict_quantiles(X, [0.1, 0.9]))
    draws = fitted.sample_y(X[:4], 20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), mean[:4], atol=5.0 * std[:4].max() / 100.0)
    inside = (interval[:4, :1] <= draws) & (draws <= interval[:4, 1:])
    np.testing.assert_allclose(inside.mean(axis=1), 0.8, atol=0.02)
    grid = np.linspace(-10.0, 20.0, 3001)
    density = fitted.log_predictive_density(np.repeat(X[:1], len(grid), axis=0), grid)
    assert np.trapezoid(np.exp(density), grid) == pytest.approx(1.0, abs=1e-6)


def test_one_layer_is_a_mixture_of_one():
    model = regressor(layers=1, max_iter=20).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    expected = norm.logpdf(Y, mean, std)
    np.testing.assert_allclose(model.log_predictive_density(X, Y), expected)


def test_same_seed_same_bits_and_other_seed_others():
    one, two = regressor().fit(X, Y), regressor().fit(X, Y)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    assert not np.array_equal(regressor(random_state=1).fit(X, Y).predict(X), one.predict(X))


def test_weights_count_rows():
    weight = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    weight[5] = 0.0
    rows = np.repeat(np.arange(N), weight.astype(int))
    weighted = regressor().fit(X, Y, sample_weight=weight).predict(X)
    np.testing.assert_allclose(regressor().fit(X[rows], Y[rows]).predict(X), weighted, rtol=1e-9)
    one = classifier(class_weight={"yes": 2.0}).fit(X, TWO).predict_proba(X)
    two = classifier().fit(X, TWO, sample_weight=np.where(TWO == "yes", 2.0, 1.0))
    np.testing.assert_allclose(one, two.predict_proba(X), rtol=1e-9)
    with pytest.raises(ValueError, match="at least one non-zero"):
        regressor().fit(X, Y, sample_weight=np.zeros(N))


def test_sparse_rows_and_frames():
    dense = regressor().fit(X, Y).predict(X)
    thin = regressor().fit(sparse.csr_array(X), Y)
    np.testing.assert_allclose(thin.predict(sparse.csr_array(X)), dense, rtol=1e-5)
    for frame in (pd.DataFrame(X, columns=list("abc")), pl.DataFrame(X, schema=list("abc"))):
        model = regressor().fit(frame, Y)
        np.testing.assert_array_equal(model.predict(frame), dense)
        assert list(model.feature_names_in_) == list("abc")


def test_single_precision(fitted):
    double = fitted.predict(X)
    single = regressor(max_iter=400, inference__dtype="float32").fit(X.astype(np.float32), Y)
    assert np.corrcoef(single.predict(X.astype(np.float32)), double)[0, 1] > 0.99
    assert single.layers_[0]["mean"].dtype == np.float32
