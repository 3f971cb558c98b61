"""Particle inference of kernel machines: accuracy, draws, weights, parameters and saving."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import likelier
from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.fitting.standardize import Standard
from likelier.kernel_machine.fourier_machine import FourierMachine, ScaledMachine

SMALL = {"n_components": 40, "n_particles": 4, "max_iter": 20, "random_state": 0}
KINDS = ["svgd", "stein_gaussian"]


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


def classifier(kind, loss="softmax", **parameters):
    return BayesianKernelClassifier(loss, inference=kind, **(SMALL | parameters))


def regressor(kind, loss="gaussian", **parameters):
    return BayesianKernelRegressor(loss, inference=kind, **(SMALL | parameters))


@pytest.mark.parametrize("loss", ["softmax", "hinge"])
@pytest.mark.parametrize("kind", KINDS)
def test_learns_classes_no_line_can_part(kind, loss):
    X, y = rings()
    new, truth = rings(300, seed=1)
    model = classifier(kind, loss, max_iter=30).fit(X, y)
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
    model = classifier("stein_gaussian", max_iter=50).fit(X, y)
    relevance = model.feature_relevance_
    assert relevance[2] < 0.5 * relevance[:2].min()
    np.testing.assert_allclose(model.gamma_[0] / model.gamma_[1], 100.0, rtol=0.5)


@pytest.mark.parametrize("loss", ["gaussian", "epsilon_insensitive"])
@pytest.mark.parametrize("kind", KINDS)
def test_learns_a_regression(kind, loss):
    X, y = wave()
    new, truth = wave(400, seed=1)
    model = regressor(kind, loss, max_iter=25).fit(X, y)
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
    model = classifier(kind, features="identity", max_iter=40).fit(X, y)
    assert model.score(X, y) > 0.97  # the best rule errs on half a percent
    assert model.coef_draws(5, random_state=0).shape == (5, 3, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_give_the_scores_of_the_particles(kind):
    X, y = rings()
    model = classifier(kind, max_iter=3).fit(X, y)
    draws = model.coef_draws(7, random_state=1)
    assert draws.shape == (7, 41, 2)
    np.testing.assert_array_equal(draws, model.coef_draws(7, random_state=1))
    posterior = model._fitted_posterior().particles
    machine = posterior.model.machine
    parts = machine.split(model.particles_)
    if kind == "svgd":
        np.testing.assert_array_equal(draws[:4, :-1], parts.weights)
        np.testing.assert_array_equal(draws[4], draws[0])
    else:
        many = model.coef_draws(4000, random_state=0)
        mean, variance = posterior.moments()
        sd = np.sqrt(variance)[: 40 * 2].reshape(40, 2)
        away = (many[:, :-1].mean(axis=0) - mean[: 40 * 2].reshape(40, 2)) / sd
        assert np.abs(away).max() < 5.0 / np.sqrt(4000)


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits_and_saving(kind, make, tmp_path):
    X, y = rings() if make is classifier else wave()
    model = make(kind, max_iter=2).fit(X, y)
    again = make(kind, max_iter=2).fit(X, y)
    np.testing.assert_array_equal(model.particles_, again.particles_)
    likelier.save(model, tmp_path / "model")
    loaded = likelier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.coef_draws(3, 0), model.coef_draws(3, 0))


def test_weights_count_rows():
    X, y = rings(120)
    twice = np.concatenate([np.arange(120), np.arange(40)])
    weight = np.ones(120)
    weight[:40] = 2.0
    by_rows = classifier("svgd", max_iter=2).fit(X[twice], y[twice])
    by_weight = classifier("svgd", max_iter=2).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(by_rows.particles_, by_weight.particles_)
    heavy = classifier("svgd", max_iter=10, class_weight={"in": 20.0}).fit(X, y)
    plain = classifier("svgd", max_iter=10).fit(X, y)
    assert heavy.predict_proba(X)[:, 0].mean() > plain.predict_proba(X)[:, 0].mean() + 0.05


def test_sparse_rows_stay_sparse_and_mean_the_same():
    X, y = rings()
    X = np.where(np.abs(X - [5.0, 0.0, 3.0]) > [0.5, 50.0, 0.005], X, 0.0)
    model = classifier("svgd", max_iter=3).fit(sparse.csr_array(X), y)
    expected = model.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(sparse.csr_array(X)), expected, atol=1e-10)
    dense = classifier("svgd", max_iter=3).fit(X, y)
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
    model = classifier("svgd", max_iter=20).fit(path, "y")
    assert model.score(pd.DataFrame(X, columns=list("abc")), y) > 0.8


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"features": "nystroem"}, "features"),
        ({"gamma": 1.0}, "gamma"),
        ({"posterior_scale": 0.5}, "posterior_scale"),
        ({"n_particles": 0}, "n_particles"),
    ],
)
def test_parameters_that_particles_do_not_support(parameters, told):
    X, y = rings(40)
    with pytest.raises(ValueError, match=told):
        classifier("svgd", **parameters).fit(X, y)


def test_methods_without_a_particle_version():
    X, y = rings(40)
    with pytest.raises(ValueError, match="inference must be one of"):
        classifier("mcmc").fit(X, y)
    for make in (classifier, regressor):
        model = make("stein_gaussian")
        for name in ("partial_fit", "score_samples"):
            with pytest.raises(AttributeError, match=name) as raised:
                getattr(model, name)
            assert "inference='evidence'" in str(raised.value.__cause__)
        with pytest.raises(NotFittedError):
            model.coef_draws(3)
    with pytest.raises(ValueError, match="read once"):
        classifier("svgd").fit(iter([(X, y)]))


def test_one_object_can_change_its_inference():
    X, y = rings(100)
    model = classifier("svgd", max_iter=2).fit(X, y)
    model.set_params(inference="evidence", n_particles=1).fit(X, y)
    assert not hasattr(model, "particles_")
    expected = BayesianKernelClassifier(n_components=40, max_iter=2, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_interruption_keeps_what_was_learned(monkeypatch):
    X, y = rings(100)
    calls = []
    step = likelier.kernel_machine.svgd.SVGD.step

    def interrupted(self, state, engine):
        calls.append(1)
        if len(calls) == 15:
            raise KeyboardInterrupt
        return step(self, state, engine)

    monkeypatch.setattr(likelier.kernel_machine.svgd.SVGD, "step", interrupted)
    model = classifier("svgd")
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.predict_proba(X).shape == (100, 2)
    assert not model.converged_


@pytest.mark.parametrize("make", [BayesianKernelClassifier, BayesianKernelRegressor])
def test_draws_by_the_evidence_have_the_moments_of_the_posterior(make):
    X, y = rings(150) if make is BayesianKernelClassifier else wave(150)
    model = make(n_components=20, random_state=0).fit(X, y)
    draws = model.coef_draws(4000, random_state=0)
    assert draws.shape == (4000, 21, 1)
    root, factor = model.roots_[0], 1.0
    centre = model.weights_[0].reshape(21, 1)
    if make is BayesianKernelRegressor:
        factor = model.noise_[0] / model.target_scale_
    else:
        root, centre = root[0], centre + model.mean_shift_[0]
        assert np.abs(model.mean_shift_[0]).max() > 0.0
    sd = factor * np.sqrt((root**2).sum(axis=0))[:, None]
    assert np.abs((draws.mean(axis=0) - centre) / sd).max() < 5.0 / np.sqrt(4000)
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.07)


def test_hinge_by_the_evidence_has_no_draws():
    X, y = rings(60)
    model = BayesianKernelClassifier("hinge", n_components=20, random_state=0).fit(X, y)
    with pytest.raises(AttributeError) as caught:
        model.coef_draws(3)
    assert "posterior" in str(caught.value.__cause__)
