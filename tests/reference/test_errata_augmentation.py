"""Errors in the printed formulas of the two augmentations: the print fails, ours passes.

Letters are those of the list of errors: (g) the Bernoulli log likelihood, (h) the mixing density of
the Polya-Gamma identity, (i) the square in the joint, (j) the prior's mean in the hinge's update,
(k) labels that are -1/1 in one half and 0/1 in the other. Monte Carlo checks have fixed seeds and
four standard errors of room: one seed in two thousand would fail.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_expit
from tests.reference.bayesian_problem import engine_for, grid_moments, make_model, small_rows

from likelier.bayesian_linear.augmented import (
    augment,
    draw_inverse_gaussian,
    draw_polya_gamma,
)
from likelier.bayesian_linear.gibbs import Gibbs
from likelier.bayesian_linear.loops import logistic_sums

N = 100_000


def test_g_the_log_likelihood_of_a_negative():
    f, y = np.array([0.3, -1.2, 2.0]), np.array([1.0, 0.0, 0.0])
    right = y * log_expit(f) + (1.0 - y) * np.log(1.0 - expit(f))
    printed = y * log_expit(f) + (1.0 - y) * (1.0 - log_expit(f))
    total = np.zeros(1)
    logistic_sums(f[:, None].copy(), 2.0 * y - 1.0, np.empty(0), total)
    np.testing.assert_allclose(total[0], right.sum(), rtol=1e-14)
    assert abs(printed.sum() - right.sum()) > 1.0
    # and only ours is the logarithm of probabilities that sum to one
    np.testing.assert_allclose(expit(f) + np.exp(np.log(1.0 - expit(f))), 1.0)


def test_h_the_mixing_density_is_untilted():
    """``sigma(f) = exp(f/2)/2 E exp(-omega f^2/2)`` holds for PG(1, 0), not for PG(1, f)."""
    f = 2.0
    stream = np.random.default_rng(0)
    for tilt, holds in ((0.0, True), (f, False)):
        omega = draw_polya_gamma(None, np.full(N, tilt), stream)
        parts = 0.5 * np.exp(0.5 * f) * np.exp(-0.5 * omega * f**2)
        error = 4.0 * parts.std() / np.sqrt(N)
        assert bool(abs(parts.mean() - expit(f)) < error) is holds


def test_i_the_joint_has_a_square():
    """Without the square in ``omega/2 (w^T x)^2`` integrating omega gives no likelihood."""
    f = 2.0
    omega = draw_polya_gamma(None, np.zeros(N), np.random.default_rng(1))
    ours = 0.5 * np.exp(0.5 * f - 0.5 * omega * f**2)
    printed = 0.5 * np.exp(0.5 * f - 0.5 * omega * f)
    assert abs(ours.mean() - expit(f)) < 4.0 * ours.std() / np.sqrt(N)
    assert abs(printed.mean() - expit(f)) > 20.0 * printed.std() / np.sqrt(N)
    # the same of the hinge: exp(-2 max(0, u)) as a mixture over lambda with its own density
    grid = np.linspace(1e-6, 80.0, 400_001)
    step = grid[1] - grid[0]
    for u in (0.7, -1.3):
        density = np.exp(-((u + grid) ** 2) / (2.0 * grid)) / np.sqrt(2.0 * np.pi * grid)
        np.testing.assert_allclose(density.sum() * step, np.exp(-2.0 * max(u, 0.0)), rtol=1e-3)
    no_square = np.exp(-(0.7 + grid) / (2.0 * grid)) / np.sqrt(2.0 * np.pi * grid)
    assert abs(no_square.sum() * step - np.exp(-1.4)) > 0.1


def gibbs_by_hand(X, r, d_of, precision, linear, n=4000, seed=2):
    """A plain Gibbs chain whose pieces may be the printed ones."""
    rng = np.random.default_rng(seed)
    w, kept = np.zeros(X.shape[1]), []
    for t in range(n):
        d = d_of(X @ w, rng)
        A = (X * d[:, None]).T @ X + precision * np.eye(X.shape[1])
        mean = np.linalg.solve(A, X.T @ r(d) + linear)
        w = mean + np.linalg.solve(np.linalg.cholesky(A).T, rng.standard_normal(len(w)))
        if t >= 200:
            kept.append(w)
    return np.mean(kept, axis=0)


def test_j_the_hinge_needs_the_mean_of_the_prior():
    X, y = small_rows(15, 2, seed=5)
    sign = np.where(y == 1, 1.0, -1.0)
    mean, sd = grid_moments("hinge", X, y, precision=2.0, mean=1.5)

    def lam(f, rng):
        return draw_inverse_gaussian(np.abs(1.0 - sign * f), rng)

    ours = gibbs_by_hand(X, lambda d: (1.0 + d) * sign, lam, 2.0, 2.0 * 1.5)
    printed = gibbs_by_hand(X, lambda d: (1.0 + d) * sign, lam, 2.0, 0.0)
    assert (np.abs(ours - mean) < 0.15 * sd).all()
    assert (np.abs(printed - mean) > 0.4 * sd).any()
    model, engine = make_model(2, "hinge", precision=2.0, mean=1.5), engine_for(X, y)
    inference = Gibbs(16)
    state = inference.init(model, engine)
    for _ in range(150):
        state, _ = inference.step(state, engine)
    found = state.draws().theta[:, 20:].mean(axis=(0, 1))
    assert (np.abs(found - mean) < 0.15 * sd).all()


def test_k_labels_of_the_two_halves_differ():
    """``kappa = y - 1/2`` wants labels 0/1, ``(1 + 1/lambda) y x`` wants -1/1."""
    X, y = small_rows(25, 2, seed=6)
    sign = np.where(y == 1, 1.0, -1.0)
    mean, sd = grid_moments("log_loss", X, y)

    def omega(f, rng):
        return draw_polya_gamma(None, f, rng)

    right = gibbs_by_hand(X, lambda d: y - 0.5, omega, 1.0, 0.0)
    mixed = gibbs_by_hand(X, lambda d: sign - 0.5, omega, 1.0, 0.0)
    assert (np.abs(right - mean) < 0.15 * sd).all()
    assert (np.abs(mixed - mean) > 0.4 * sd).any()
    # ours takes class numbers for both, and turns them into what each half wants
    for loss in ("log_loss", "hinge"):
        model = make_model(2, loss)
        batch = next(iter(engine_for(X, y).blocks()))
        sums = augment(model, np.zeros((1, 2)), batch, np.random.default_rng(3))
        if loss == "log_loss":
            np.testing.assert_allclose(sums.linear[0], X.T @ (y - 0.5))
        else:
            d = draw_inverse_gaussian(np.ones((25, 1)), np.random.default_rng(3))[:, 0]
            np.testing.assert_allclose(sums.linear[0], X.T @ ((1.0 + d) * sign))


def test_both_sums_of_the_hinge_see_the_same_draws():
    """``P`` holds ``1/lambda``, ``Q`` holds ``1 + 1/lambda`` of one draw; of two it goes wrong."""
    sign = np.where(np.arange(30) % 3 == 0, 1.0, -1.0)
    X, y = np.eye(30), (sign > 0).astype(float)  # every row has a weight of its own
    batch = next(iter(engine_for(X, y).blocks()))
    sums = augment(make_model(30, "hinge"), np.full((2, 30), 0.3), batch, np.random.default_rng(0))
    for gram, linear in zip(sums.gram, sums.linear, strict=True):
        np.testing.assert_allclose(linear, (1.0 + np.diag(gram)) * sign, rtol=1e-12)
    X, y = small_rows(15, 2, seed=5)
    sign = np.where(y == 1, 1.0, -1.0)
    mean, sd = grid_moments("hinge", X, y, precision=2.0)
    apart = np.random.default_rng(9)
    for same in (True, False):
        now = {}

        def lam(f, rng, now=now):
            now["f"] = f
            return draw_inverse_gaussian(np.abs(1.0 - sign * f), rng)

        def pull(d, now=now, same=same):
            other = d if same else draw_inverse_gaussian(np.abs(1.0 - sign * now["f"]), apart)
            return (1.0 + other) * sign

        found = gibbs_by_hand(X, pull, lam, 2.0, 0.0)
        assert bool((np.abs(found - mean) < 0.15 * sd).all()) is same
