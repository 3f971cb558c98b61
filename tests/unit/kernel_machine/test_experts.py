"""Fitting and validating local experts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from likelier.engines import LocalEngine
from likelier.fitting.monitor import Monitor
from likelier.kernel_machine.class_experts import FIXED_INTERCEPT, CorrectedClasses
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.expert_fit import ExpertValidator, Region, choose_experts
from likelier.kernel_machine.expert_model import expert_map
from likelier.kernel_machine.expert_noise import Residuals, fit_noise
from likelier.kernel_machine.features import landmark_map
from likelier.kernel_machine.regression import (
    Sums,
    leave_out,
    regression_sums,
    solve_weights,
    sums_of_rows,
)
from likelier.kernel_machine.regression_experts import CorrectedNumbers
from likelier.kernel_machine.search import Choice, output_precision
from likelier.kernel_machine.weights import ClassLoss, Prior, WeightProblem, ridge


def region(n=300, n_classes=2, seed=0, frequency=4.0):
    """Stripes that an offset of the wrong height does not explain."""
    rng = np.random.default_rng(seed)
    Z = rng.uniform(-1.0, 1.0, (n, 2)).astype(np.float32)
    codes = np.floor(frequency * (Z[:, 0] + 1.0)).astype(int) % n_classes
    offset = np.full((n, 1 if n_classes == 2 else n_classes), 0.3, dtype=np.float32)
    offset[:, 0] += Z[:, 1]
    return Region(Z, codes.astype(float), rng.uniform(0.5, 2.0, n), offset)


def corrected(n_classes=2):
    """What fits experts to regions whose offsets are known: its own scores do not matter."""
    return CorrectedClasses(None, None, ClassLoss(n_classes))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_optimum_is_that_of_a_plain_minimiser(n_classes):
    rows, loss = region(n_classes=n_classes), ClassLoss(n_classes)
    made, _ = expert_map(rows.Z, 2.0, 12, np.random.default_rng(0))
    choice, shape = Choice(0.5, 2.0), (made.n_features, loss.n_outputs)
    precision = ridge(made.n_features, output_precision(0.5, loss), FIXED_INTERCEPT)
    Phi = made(rows.Z)

    def objective(flat, offset=rows.offset):
        W = flat.reshape(shape)
        f = offset + Phi @ W
        f = np.hstack([np.zeros((len(f), 1)), f]) if n_classes == 2 else f
        own = f[np.arange(len(f)), rows.y.astype(int)]
        penalty = 0.5 * (precision[:, None] * W**2).sum()
        return rows.weight @ (logsumexp(f, axis=1) - own) + penalty

    expected = minimize(objective, np.zeros(shape).ravel(), method="BFGS")
    fitted = corrected(n_classes).fit(rows, made, choice).mean
    assert objective(fitted.ravel()) < expected.fun * (1.0 + 1e-3)
    assert objective(fitted.ravel(), 0.0) > expected.fun + 1.0  # the offset matters


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_gradient_with_an_offset(n_classes):
    rows, loss = region(n_classes=n_classes), ClassLoss(n_classes)
    made, _ = expert_map(rows.Z, 2.0, 6, np.random.default_rng(0))
    precision = ridge(made.n_features, output_precision(0.5, loss), FIXED_INTERCEPT)
    engine = LocalEngine(np.hstack([made(rows.Z), rows.offset]), rows.y, rows.weight)
    Phi = engine.map_rows(lambda batch: batch.X[:, : made.n_features])
    offset = engine.map_rows(lambda batch: batch.X[:, made.n_features :])
    problem = WeightProblem(engine, Phi, loss, Prior(precision), offset)
    W = np.random.default_rng(1).normal(size=(made.n_features, loss.n_outputs))
    _, slope = problem.value_gradient(W)
    step = 1e-5
    for place in np.ndindex(W.shape):
        change = np.zeros_like(W)
        change[place] = step
        up, down = (problem.value_gradient(W + s * change)[0] for s in (1.0, -1.0))
        assert abs((up - down) / (2 * step) - slope[place]) < 1e-6 * max(1.0, abs(slope[place]))


def validator(frequency, n_classes=2):
    """Three regions; the last 100 of their 400 rows are held out."""
    regions = {seed: region(400, n_classes, seed, frequency) for seed in range(3)}
    known = ExpertValidator(corrected(n_classes), regions, 64, 0)
    order = np.roll(np.arange(400), 100)  # held-out rows come first
    known.regions = [rows.take(order) for rows in regions.values()]
    return known


def chosen(validator, required=False, **options):
    return choose_experts(validator, 0.1, required, Monitor(**options))


def test_held_out_rows_are_not_learned():
    known = validator(2.0)
    before = known.losses(Choice(0.1))
    assert [rows.n for rows in known.rows] == [100, 100, 100]
    for rows in known.regions:
        rows.y[:100] = 1.0 - rows.y[:100]
    scores = np.concatenate([held.offset + part.scores for held, part in
                             zip(known.rows, known.held(Choice(0.1)), strict=True)])  # fmt: skip
    flipped = np.concatenate([rows.y[:100] for rows in known.regions])
    np.testing.assert_array_equal(ClassLoss(2).terms(scores, 1.0 - flipped)[0], before)


def test_narrow_stripes_choose_a_narrow_kernel():
    scales = [chosen(validator(frequency)).scale for frequency in (0.5, 3.0, 6.0)]
    assert scales[0] < scales[1] < scales[2]


def test_no_experts_where_there_is_nothing_to_correct():
    known = validator(2.0)
    for part in known.regions:
        chance = np.concatenate([np.random.default_rng(n).random(n) for n in (100, 300)])
        part.y[:] = chance < 1.0 / (1.0 + np.exp(-part.offset[:, 0]))
    assert chosen(known) is None
    assert chosen(known, required=True) is not None


def test_no_time_to_choose():
    known, asked = validator(2.0), []
    losses = known.losses
    known.losses = lambda choice: asked.append(choice) or losses(choice)
    first = Choice(0.1 * typical_weight(np.concatenate([r.omega for r in known.regions])), 1.0)
    assert chosen(known, required=True, time_budget=1e-9) == first
    assert len(asked) == 1


def test_rows_of_several_blocks():
    whole = region(50)
    parts = [whole.take(np.arange(20)), whole.take(np.arange(20, 50))]
    for one, other in zip(vars(Region.join(parts)).values(), vars(whole).values(), strict=True):
        np.testing.assert_array_equal(one, other)


# -- regression --------------------------------------------------------------------------------
def number_rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 2)).astype(np.float32)
    return Z, np.sin(2.0 * Z[:, 0]) + 0.1 * rng.normal(size=n), rng.uniform(0.5, 2.0, n)


def test_a_row_that_is_left_out_is_as_one_that_was_never_there():
    rng = np.random.default_rng(0)
    Phi, y, omega = rng.normal(size=(40, 6)), rng.normal(size=40), rng.uniform(0.5, 2.0, 40)
    rest, inside = leave_out(solve_weights(regression_sums(Phi, y, omega), 0.3), Phi, y, omega)
    for i in range(40):
        others = np.arange(40) != i
        sums = regression_sums(Phi[others], y[others], omega[others])
        weights = solve_weights(sums, 0.3)
        assert rest[i] == pytest.approx(y[i] - Phi[i] @ weights.mean)
        assert inside[i] == pytest.approx(weights.variance(Phi[[i]], np.zeros(1))[0])


@pytest.mark.parametrize("learned", [True, False])
def test_rows_that_the_global_model_learned_are_corrected_as_if_left_out(learned):
    Z, y, weight = number_rows()
    made = landmark_map(Z[:10], np.zeros(2), np.ones(2))
    whole = LocalEngine(Z, y, weight).reduce(sums_of_rows, Sums.__add__, state=made)
    model = CorrectedNumbers(made, solve_weights(whole, 0.3), 1.0, 1.0, learned)
    rows = model.region(next(iter(LocalEngine(Z, y, weight).blocks())))
    Phi = made(Z, np.float64)
    np.testing.assert_allclose(rows.offset[:, 0], Phi @ model.weights.mean, atol=1e-10)
    if not learned:
        assert rows.variance is None
        return
    inside, _, kept = rows.variance.T
    for i in range(0, 120, 11):
        others = np.arange(120) != i
        sums = regression_sums(Phi[others], y[others], weight[others])
        weights = solve_weights(sums, 0.3)
        assert (y[i] - rows.offset[i, 0]) / kept[i] == pytest.approx(y[i] - Phi[i] @ weights.mean)
        assert inside[i] == pytest.approx(weights.variance(Phi[[i]], np.zeros(1))[0])


def test_rows_of_a_trial_are_left_out_one_by_one():
    Z, y, weight = number_rows()
    rows = Region(Z, y, weight, 0.3 * np.random.default_rng(1).normal(size=(120, 1)))
    model, choice = CorrectedNumbers(None, None, 1.0, 1.0, False), Choice(0.1, 2.0)
    held = model.trial(rows, 30, choice, np.random.default_rng(0))
    made, others = expert_map(Z, 2.0, 30, np.random.default_rng(0))
    assert len(others) == held.rows.n == 90
    for place in range(0, 90, 11):
        fitted = model.fit(rows.take(np.arange(120) != others[place]), made, choice)
        Phi = made(held.rows.Z[[place]], np.float32)
        assert held.scores[place, 0] == pytest.approx(fitted.scores(Phi)[0, 0], abs=2e-3)
        variance = fitted.covariance(Phi, made.residual(Phi))[0, 0]
        assert held.variance[place] == pytest.approx(variance, rel=0.01)


def test_an_expert_of_a_regression_is_a_ridge_regression_on_the_rest():
    Z, y, weight = number_rows()
    rows = Region(Z, y, weight, 0.3 * np.random.default_rng(1).normal(size=(120, 1)))
    made, _ = expert_map(Z, 2.0, 30, np.random.default_rng(0))
    fitted = CorrectedNumbers(None, None, 1.0, 1.0, False).fit(rows, made, Choice(0.1, 2.0))
    Phi = made(Z)[:, :-1]
    A = (Phi.T * weight) @ Phi + 0.1 * np.eye(30)
    expected = np.linalg.solve(A, Phi.T @ (weight * (y - rows.offset[:, 0])))
    np.testing.assert_allclose(fitted.scores(made(Z))[:, 0], Phi @ expected, atol=2e-3)
    variance = np.einsum("nd,de,ne->n", Phi, np.linalg.inv(A), Phi)
    np.testing.assert_allclose(
        fitted.covariance(made(Z), np.zeros(120))[:, 0], variance, rtol=0.01, atol=1e-4
    )


def test_the_global_model_keeps_its_uncertainty():
    rng = np.random.default_rng(0)
    nothing, one = np.zeros(5000), np.ones(5000)
    rows = Residuals(rng.normal(size=5000), nothing, nothing + 0.01, one)
    model = fit_noise(rows, 4.0)
    assert model.noise * model.global_scale == pytest.approx(4.0, rel=0.05)
    assert model.noise == pytest.approx(1.0, rel=0.06)
    alone = fit_noise(rows)
    assert alone.global_scale == 1.0 and alone.noise == pytest.approx(1.0, rel=0.05)
    gaussian = 0.5 * np.log(2 * np.pi * np.e)
    assert alone.losses(rows).mean() == pytest.approx(gaussian, abs=0.03)
