"""Posteriors of deep Gaussian processes: what loading checks, and predictions in parts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from likelier.deep_gp.posterior import ClassifierPosterior, Outputs, RegressorPosterior
from likelier.deep_gp.propagation import DeepPosterior
from likelier.fitting.standardize import Standard
from likelier.predictor import Predictor

D, HIDDEN, M = 3, 2, 5


def outputs(n_outputs, n_samples=4):
    rng = np.random.default_rng(0)
    widths = (D, HIDDEN, n_outputs)
    layers = [
        {"inducing": rng.standard_normal((M, inputs)), "log_scale": np.zeros((1, inputs)),
         "log_amplitude": np.zeros(1), "mean": rng.standard_normal((nodes, M)),
         "root": np.zeros((nodes, M, M)), "log_noise": np.float64(-5.0)}
        for inputs, nodes in itertools.pairwise(widths)
    ]  # fmt: skip
    projections = [np.eye(D, HIDDEN), np.zeros((HIDDEN, n_outputs))]
    normals = rng.standard_normal((n_samples, HIDDEN + 1))
    function = DeepPosterior(layers, projections, "rbf", normals, 0.1)
    return Outputs(function, Standard(np.zeros(D), np.ones(D)))


CLASSES = ClassifierPosterior(outputs(1), 2, 0.01)
NUMBERS = RegressorPosterior(outputs(1), 5.0, 2.0, 0.3, 1e-5)
NOISY = RegressorPosterior(outputs(2), 5.0, 2.0, float("nan"), 1e-5)


def with_layer(posterior, **arrays):
    function = posterior.outputs.function
    layers = [{**function.layers[0], **arrays}, *function.layers[1:]]
    return with_function(posterior, layers=layers)


def with_function(posterior, **parts):
    function = replace(posterior.outputs.function, **parts)
    return replace(posterior, outputs=replace(posterior.outputs, function=function))


def test_whole_posteriors_pass():
    CLASSES.check(D, 2)
    ClassifierPosterior(outputs(3), 3, 0.5).check(D, 3)
    NUMBERS.check(D, None)
    NOISY.check(D, None)


@pytest.mark.parametrize(
    ("posterior", "message"),
    [
        (replace(CLASSES, label_noise=0.6), "label_noise_"),
        (replace(CLASSES, outputs=outputs(2)), "layers_ have 2 outputs, not 1"),
        (with_function(CLASSES, kernel="cosine"), "kernel_ must be one of"),
        (with_function(CLASSES, cavity_fraction=0.9), "removed_"),
        (with_function(CLASSES, normals=np.zeros((4, 1))), "draws for 2 nodes"),
        (with_function(CLASSES, normals=np.zeros((0, 2))), "draws for 2 nodes"),
        (with_function(CLASSES, projections=[np.eye(D, HIDDEN)]), "must be as many"),
        (with_function(CLASSES, layers=[], projections=[]), "."),
        (with_layer(CLASSES, inducing=np.zeros((M, D + 1))), "inducing has shape"),
        (with_layer(CLASSES, log_scale=np.zeros((3, D))), "3 kernels"),
        (with_layer(CLASSES, root=np.full((HIDDEN, M, M), np.nan)), "holds NaN"),
        (with_layer(CLASSES, root=np.full((HIDDEN, M, M), 800.0)), "predict NaN or infinity"),
        (with_layer(CLASSES, log_noise=None), "log_noise must be an array"),
    ],
)
def test_parts_that_cannot_predict_are_named(posterior, message):
    with np.errstate(all="ignore"), pytest.raises((ValueError, LookupError), match=message):
        posterior.check(D, 2)


@pytest.mark.parametrize(
    ("posterior", "message"),
    [
        (replace(NUMBERS, target_scale=-1.0), "target_scale_"),
        (replace(NUMBERS, noise=float("nan")), "noise_"),
        (with_function(NOISY, normals=np.zeros((4, HIDDEN))), "no draws for the noise"),
        (replace(NUMBERS, outputs=replace(NUMBERS.outputs, standard=Standard(
            np.zeros(D), -np.ones(D)))), "input_inverse_"),
    ],
)  # fmt: skip
def test_parts_of_a_regression_are_named(posterior, message):
    with pytest.raises(ValueError, match=message):
        posterior.check(D, None)


@pytest.mark.parametrize("posterior", [NUMBERS, NOISY])
def test_predictors_hold_few_rows_at_a_time(posterior, monkeypatch):
    """Whatever their number, predictions are the same to the bit."""
    rows = np.random.default_rng(1).standard_normal((50, D))
    whole = posterior.predictive(rows).interval(0.8)
    point, uncertainty = posterior.point(rows), posterior.uncertainty(rows)
    monkeypatch.setattr("likelier.deep_gp.posterior.MOST_ROWS", 7)
    predictor = Predictor(posterior, D)
    np.testing.assert_array_equal(predictor.predict_interval(rows, 0.8), whole)
    np.testing.assert_array_equal(predictor.predict(rows), point)
    found = predictor.predict_uncertainty(rows)
    np.testing.assert_array_equal(found.total, uncertainty.total)
    np.testing.assert_array_equal(found.epistemic, uncertainty.epistemic)
    with pytest.raises(ValueError, match="no rows"):  # as the estimators say
        predictor.predict(rows[:0])
