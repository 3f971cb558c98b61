"""Particle inference of kernel machines: accuracy, draws, weights, parameters and saving."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import likelier
from likelier import SVGD, BayesianKernelClassifier, BayesianKernelRegressor, SteinGaussian
from likelier.fitting.standardize import Standard
from likelier.kernel_machine.fourier_machine import FourierMachine, ScaledMachine

SMALL = {"n_components": 40, "random_state": 0}
KINDS = [SVGD, SteinGaussian]


def rings(n=200, seed=0):
    """A disk and its surroundings; the third input is uninformative, the units differ."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    inside = (X[:, :2] ** 2).sum(axis=1) < 1.4
    return X * [1.0, 100.0, 0.01] + [5.0, 0.0, 3.0], np.where(inside, "in", "out")


def wave(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 2))
    return X, 10.0 + 4.0 * (np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=n))


def classifier(kind, loss="softmax", n_updates=200, **parameters):
    inference = kind(n_particles=4, n_updates=n_updates)
    return BayesianKernelClassifier(loss, inference=inference, **(SMALL | parameters))


def regressor(kind, loss="gaussian", n_updates=200, **parameters):
    inference = kind(n_particles=4, n_updates=n_updates)
    return BayesianKernelRegressor(loss, inference=inference, **(SMALL | parameters))


def theta(model):
    return model.posterior_["particles"]["theta"]


@pytest.mark.parametrize("loss", ["softmax", "hinge"])
@pytest.mark.parametrize("kind", KINDS)
def test_learns_classes_no_line_can_part(kind, loss):
    X, y = rings()
    new, truth = rings(300, seed=1)
    model = classifier(kind, loss, n_updates=300).fit(X, y)
    p = model.predict_proba(new)
    assert model.score(new, truth) > 0.85  # the larger class has half of the rows
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (model.predict(new) == model.classes_[p.argmax(axis=1)]).all()
    given = p[np.arange(len(truth)), (truth == "out").astype(int)]
    assert -np.log(given).mean() < 0.45  # 0.69 knows nothing
    parts = model.predict_uncertainty(new)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic)
    assert parts.epistemic.min() >= -1e-12
    assert parts.epistemic.max() > 1e-3
    assert model.feature_relevance_.sum() == pytest.approx(1.0)


def test_scales_find_the_inputs_that_tell():
    X, y = rings(500)
    model = classifier(SteinGaussian, n_updates=500).fit(X, y)
    relevance = model.feature_relevance_
    assert relevance[2] < 0.5 * relevance[:2].min()
    np.testing.assert_allclose(model.gamma_[0] / model.gamma_[1], 100.0, rtol=0.5)


@pytest.mark.parametrize("loss", ["gaussian", "epsilon_insensitive"])
@pytest.mark.parametrize("kind", KINDS)
def test_learns_a_regression(kind, loss):
    X, y = wave()
    new, truth = wave(400, seed=1)
    model = regressor(kind, loss, n_updates=250).fit(X, y)
    assert model.score(new, truth) > 0.8
    low, high = model.predict_interval(new, 0.9).T
    assert 0.8 < np.mean((low <= truth) & (truth <= high)) < 0.99
    mean, std = model.predict(new, return_std=True)
    parts = model.predict_uncertainty(new)
    np.testing.assert_allclose(std**2, parts.total)
    np.testing.assert_allclose(mean, model.predict(new))


@pytest.mark.parametrize("kind", KINDS)
def test_several_classes_and_the_linear_case(kind):
    rng = np.random.default_rng(0)
    y = np.arange(180) % 3
    X = rng.normal(size=(180, 2)) + 6.0 * np.array([[0, 0], [0, 1], [1, 0]])[y]
    model = classifier(kind, features="identity", n_updates=400).fit(X, y)
    assert model.score(X, y) > 0.97  # the best rule errs on half a percent


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits_and_saving(kind, make, tmp_path):
    X, y = rings() if make is classifier else wave()
    model = make(kind, n_updates=20).fit(X, y)
    again = make(kind, n_updates=20).fit(X, y)
    np.testing.assert_array_equal(theta(model), theta(again))
    likelier.save(model, tmp_path / "model")
    loaded = likelier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(theta(loaded), theta(model))


def test_weights_count_rows():
    X, y = rings(120)
    twice = np.concatenate([np.arange(120), np.arange(40)])
    weight = np.ones(120)
    weight[:40] = 2.0
    by_rows = classifier(SVGD, n_updates=20).fit(X[twice], y[twice])
    by_weight = classifier(SVGD, n_updates=20).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(theta(by_rows), theta(by_weight))
    heavy = classifier(SVGD, n_updates=100, class_weight={"in": 20.0}).fit(X, y)
    plain = classifier(SVGD, n_updates=100).fit(X, y)
    assert heavy.predict_proba(X)[:, 0].mean() > plain.predict_proba(X)[:, 0].mean() + 0.05


def test_sparse_rows_stay_sparse_and_mean_the_same():
    X, y = rings()
    X = np.where(np.abs(X - [5.0, 0.0, 3.0]) > [0.5, 50.0, 0.005], X, 0.0)
    model = classifier(SVGD, n_updates=30).fit(sparse.csr_array(X), y)
    expected = model.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(sparse.csr_array(X)), expected, atol=1e-10)
    dense = classifier(SVGD, n_updates=30).fit(X, y)
    np.testing.assert_allclose(
        dense.predict_proba(sparse.csr_array(X)), dense.predict_proba(X), atol=1e-10
    )


def test_scaled_machine_keeps_zeros():
    machine = FourierMachine(likelier.losses.Softmax(), 3, 2, np.ones((4, 3)))
    X = sparse.random_array((6, 3), density=0.4, format="csr", rng=np.random.default_rng(0))
    scaled = ScaledMachine(machine, Standard(np.zeros(3), np.array([2.0, 0.0, 3.0]))).scale(X)
    assert sparse.issparse(scaled)
    np.testing.assert_allclose(scaled.toarray(), X.toarray() * [2.0, 0.0, 3.0])
    moved = ScaledMachine(machine, Standard(np.ones(3), np.ones(3))).scale(X)
    np.testing.assert_allclose(moved, X.toarray() - 1.0)


def test_a_path_is_read_in_passes(tmp_path):
    X, y = rings(300)
    path = tmp_path / "rows.csv"
    lines = [f"{a},{b},{c},{label}" for (a, b, c), label in zip(X, y, strict=True)]
    path.write_text("a,b,c,y\n" + "\n".join(lines) + "\n")
    model = classifier(SVGD, n_updates=200).fit(path, "y")
    assert model.score(pd.DataFrame(X, columns=list("abc")), y) > 0.8


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"features": "nystroem"}, "features"),
        ({"gamma": 1.0}, "gamma"),
        ({"inference": "mcmc"}, "inference"),
    ],
)
def test_parameters_that_particles_do_not_support(parameters, told):
    X, y = rings(40)
    with pytest.raises(ValueError, match=told):
        classifier(SVGD).set_params(**parameters).fit(X, y)
    with pytest.raises(ValueError, match=r"inference\.n_particles"):
        SVGD(n_particles=0)


def test_methods_without_a_particle_version():
    X, y = rings(40)
    for make in (classifier, regressor):
        model = make(SteinGaussian)
        for name in ("partial_fit", "score_samples"):
            with pytest.raises(AttributeError, match=name) as raised:
                getattr(model, name)
            assert "inference='evidence'" in str(raised.value.__cause__)
    with pytest.raises(ValueError, match="read once"):
        classifier(SVGD).fit(iter([(X, y)]))


def test_one_object_can_change_its_inference():
    X, y = rings(100)
    model = classifier(SVGD, n_updates=20).fit(X, y)
    model.set_params(inference="evidence").fit(X, y)
    assert "particles" not in model.posterior_
    expected = BayesianKernelClassifier(n_components=40, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
