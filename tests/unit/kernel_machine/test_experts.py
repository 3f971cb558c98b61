"""Fitting, updating and validating local experts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from likelier.kernel_machine.expert_model import expert_map
from likelier.kernel_machine.experts import (
    ClassExpertValidator,
    Region,
    absorb_rows,
    choose_experts,
    expert_problem,
    first_prior,
    fit_expert,
    join_regions,
)
from likelier.kernel_machine.regression import leave_out, regression_sums, solve_weights
from likelier.kernel_machine.regression_experts import (
    LeaveOneOut,
    absorb_regression_rows,
    fit_noise,
    fit_regression_expert,
)
from likelier.kernel_machine.search import Choice
from likelier.kernel_machine.softmax_weights import ClassLoss


def region(n=300, n_classes=2, seed=0, frequency=4.0):
    """Stripes that an offset of the wrong height does not explain."""
    rng = np.random.default_rng(seed)
    Z = rng.uniform(-1.0, 1.0, (n, 2)).astype(np.float32)
    codes = np.floor(frequency * (Z[:, 0] + 1.0)).astype(int) % n_classes
    offset = np.full((n, 1 if n_classes == 2 else n_classes), 0.3, dtype=np.float32)
    offset[:, 0] += Z[:, 1]
    return Region(Z, codes.astype(float), rng.uniform(0.5, 2.0, n), offset)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_optimum_is_that_of_a_plain_minimiser(n_classes):
    rows, loss = region(n_classes=n_classes), ClassLoss(n_classes)
    made = expert_map(rows.Z, 2.0, 12, np.random.default_rng(0))
    choice = Choice(0.5, 2.0)
    prior = first_prior(made, choice, loss)
    Phi = made(rows.Z)

    def objective(flat):
        W = flat.reshape(prior.mean.shape)
        f = rows.offset + Phi @ W
        f = np.hstack([np.zeros((len(f), 1)), f]) if n_classes == 2 else f
        own = f[np.arange(len(f)), rows.codes.astype(int)]
        penalty = 0.5 * (prior.precision[:, None] * W**2).sum()
        return rows.weight @ (logsumexp(f, axis=1) - own) + penalty

    expected = minimize(objective, np.zeros(prior.mean.size), method="BFGS")
    fitted = fit_expert(rows, made, loss, choice, 1e-8)
    assert objective(fitted.mean.ravel()) < expected.fun + 1e-3
    without, _ = expert_problem(Region(rows.Z, rows.codes, rows.weight, 0 * rows.offset), made,
                                loss, prior)  # fmt: skip
    assert without.value_gradient(fitted.mean)[0] > expected.fun + 1.0  # the offset matters


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_gradient_with_an_offset(n_classes):
    rows, loss = region(n_classes=n_classes), ClassLoss(n_classes)
    made = expert_map(rows.Z, 2.0, 6, np.random.default_rng(0))
    prior = first_prior(made, Choice(0.5, 2.0), loss)
    problem, _ = expert_problem(rows, made, loss, prior)
    exact = made(rows.Z)
    double = type(problem)(
        lambda look, merge: look(_whole(rows, exact)), lambda batch: batch.X, loss, prior,
        lambda batch: rows.offset,
    )  # fmt: skip
    W = np.random.default_rng(1).normal(size=prior.mean.shape)
    _, slope = double.value_gradient(W)
    step = 1e-5
    for place in np.ndindex(W.shape):
        change = np.zeros_like(W)
        change[place] = step
        up, down = (double.value_gradient(W + s * change)[0] for s in (1.0, -1.0))
        assert abs((up - down) / (2 * step) - slope[place]) < 1e-6 * max(1.0, abs(slope[place]))


def _whole(rows, Phi):
    from likelier.base import Batch

    return Batch(Phi, rows.codes, rows.weight)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_later_rows_lead_to_nearly_the_same_posterior(n_classes):
    rows, loss, choice = region(800, n_classes), ClassLoss(n_classes), Choice(0.5, 2.0)
    made = expert_map(rows.Z, 2.0, 12, np.random.default_rng(0))
    whole = fit_expert(rows, made, loss, choice, 1e-8)
    half = fit_expert(rows.take(np.arange(400)), made, loss, choice, 1e-8)
    both = absorb_rows(rows.take(np.arange(400, 800)), made, loss, half, 1e-8)
    Phi = made(rows.Z, np.float32)
    away = {name: np.abs(p.scores(Phi) - whole.scores(Phi)).mean()
            for name, p in (("half", half), ("both", both))}  # fmt: skip
    assert away["both"] < 0.5 * away["half"]
    none = np.zeros(len(Phi))
    variance = [p.covariance(Phi, none).mean() for p in (half, both, whole)]
    assert variance[1] < 0.8 * variance[0]
    assert variance[1] == pytest.approx(variance[2], rel=0.15)


def judge(frequency, n_classes=2):
    parts = []
    for seed in range(3):
        whole = region(400, n_classes, seed, frequency)
        parts.append((whole.take(np.arange(300)), whole.take(np.arange(300, 400))))
    return ClassExpertValidator(parts, ClassLoss(n_classes), 64, 0)


def test_narrow_stripes_choose_a_narrow_kernel():
    scales = [choose_experts(judge(frequency), 0.1).scale for frequency in (0.5, 3.0, 6.0)]
    assert scales[0] < scales[1] < scales[2]


def test_no_experts_where_there_is_nothing_to_correct():
    known = judge(2.0)
    for inside, held in known.parts:
        for part in (inside, held):
            rng = np.random.default_rng(part.n)
            p = 1.0 / (1.0 + np.exp(-part.offset[:, 0]))
            part.codes[:] = rng.random(part.n) < p
    assert choose_experts(known, 0.1) is None
    assert choose_experts(known, 0.1, required=True) is not None


def test_no_time_to_choose():
    known, asked = judge(2.0), []
    losses = known.losses
    known.losses = lambda choice: asked.append(choice) or losses(choice)
    assert choose_experts(known, 0.1, lambda: True, required=True) == Choice(0.1, 1.0)
    assert len(asked) == 1


def test_rows_of_several_blocks():
    whole = region(50)
    parts = [whole.take(np.arange(20)), whole.take(np.arange(20, 50))]
    for one, other in zip(vars(join_regions(parts)).values(), vars(whole).values(), strict=True):
        np.testing.assert_array_equal(one, other)


# -- regression --------------------------------------------------------------------------------
def number_region(n=120, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 2)).astype(np.float32)
    weight = rng.uniform(0.5, 2.0, n)
    offset = 0.3 * rng.normal(size=(n, 1))
    return Region(Z, np.sin(2.0 * Z[:, 0]) + 0.1 * rng.normal(size=n), weight, offset)


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


def test_regression_rows_in_parts_or_at_once():
    region, choice = number_region(), Choice(0.1, 2.0)
    made = expert_map(region.Z, 2.0, 30, np.random.default_rng(0))
    whole = fit_regression_expert(region, made, choice)
    parts = fit_regression_expert(region.take(np.arange(50)), made, choice)
    parts = absorb_regression_rows(region.take(np.arange(50, 120)), made, parts)
    Phi = made(region.Z, np.float32)
    np.testing.assert_allclose(parts.scores(Phi), whole.scores(Phi), atol=1e-4)
    residual = made.residual(Phi)
    np.testing.assert_allclose(
        parts.covariance(Phi, residual), whole.covariance(Phi, residual), rtol=1e-3
    )


def test_the_global_model_keeps_its_uncertainty():
    rng = np.random.default_rng(0)
    nothing = np.zeros(5000)
    left = LeaveOneOut(rng.normal(size=5000), nothing, nothing + 0.01, nothing + 1.0)
    law = fit_noise(left, 4.0)
    assert law.noise * law.global_scale == pytest.approx(4.0, rel=0.05)
    assert law.noise == pytest.approx(1.0, rel=0.06)
    alone = fit_noise(left)
    assert alone.global_scale == 1.0 and alone.noise == pytest.approx(1.0, rel=0.05)
    gaussian = 0.5 * np.log(2 * np.pi * np.e)
    assert alone.losses(left).mean() == pytest.approx(gaussian, abs=0.03)
