"""Every implicit step against a brute-force minimiser, over 24 decades of the step size.

The implicit step ``g`` of a loss is right when ``f = m + c g`` minimises the strictly convex
``loss(y, f) + (f - m)^2 / (2 c)``. Nothing here uses the library's own derivatives: losses
are written again as plain NumPy formulas, and minimised by bisection, by exact rational
arithmetic (piecewise quadratic losses) or with 50 decimal digits (log loss, Poisson).

Two errors are measured, since each alone is blind at one end. The *residual*
``dist(g, -loss'(f))`` relative to ``max(1, |y|, |g|)`` says nothing of a large ``c``, where g
is tiny; the *distance of the scores* ``c |g - g*|`` says nothing of a small one. Scores are
only known to rounding, so a residual is the distance to the slopes over a few units in the
last place around ``f``: at a kink that is the whole subdifferential.
"""

from __future__ import annotations

from decimal import Decimal, Overflow, localcontext
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.special import softmax
from tests.reference.plain_losses import EPS, KINKS, PLAIN, SCALAR, kinks, rounding

from likelier import losses

N_CASES = 20_000  # of each loss and run: 13 losses, 260,000 cases
TOL = 1e-10


def test_every_loss_is_covered():
    covered = {loss.name for loss in SCALAR} | {"softmax", "multiclass_hinge"}
    assert covered == set(losses.LOSSES)
    assert N_CASES * len(covered) >= 100_000


def draw(loss, n, rng):
    """Targets, scores before the step and step sizes: ordinary, far out, and at the kinks."""
    c = 10.0 ** rng.uniform(-12, 12, n)
    size = 10.0 ** rng.uniform(-3, 4, n)
    if loss.task == "binary":
        y = rng.choice([-1.0, 1.0], n)
        m = size * rng.standard_normal(n)
    elif loss.task == "count":
        y = rng.poisson(10.0 ** rng.uniform(-2, 5, n)).astype(float)
        m = rng.choice([1.0, 10.0, 40.0], n) * rng.standard_normal(n)
        m[::50] = rng.uniform(-2000.0, -100.0, len(m[::50]))
    else:
        y = 10.0 ** rng.uniform(-3, 3, n) * rng.standard_normal(n)
        m = y + size * rng.standard_normal(n)
    at = np.array(kinks(loss, y[: n // 3]))
    if len(at):  # start so near a kink that the step ends on it, or just passes it
        third = slice(0, n // 3)
        kink = at[rng.integers(0, len(at), at.shape[1]), np.arange(at.shape[1])]
        slope = PLAIN[loss][1](y[third], kink - 10.0)
        m[third] = kink + c[third] * slope * rng.uniform(-2.0, 2.0, len(kink))
    return y, m, c


def residual(slope, y, m, c, g):
    """Distance of ``-g`` to the slopes within rounding of the score after the step."""
    f, off = m + c * g, rounding(y, m, c, g)
    return np.maximum.reduce([slope(y, f - off) + g, -g - slope(y, f + off), np.zeros_like(g)])


def bisect_step(slope, y, m, c):
    """Root of ``g + loss'(m + c g)`` by plain bisection between 0 and the explicit step."""
    explicit = -slope(y, m)
    low, high = np.minimum(explicit, 0.0), np.maximum(explicit, 0.0)
    # A start exactly on a kink: the step may go either way, up to the slope on either side.
    off = rounding(y, m, c, 0.0)
    low, high = np.minimum(low, -slope(y, m + off)), np.maximum(high, -slope(y, m - off))
    for _ in range(400):
        middle = 0.5 * (low + high)
        above = middle + slope(y, m + c * middle) > 0.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_step_is_optimal_and_agrees_with_bisection(loss):
    _, slope = PLAIN[loss]
    y, m, c = draw(loss, N_CASES, np.random.default_rng(20))
    g = loss.prox(y, m, c)
    assert np.isfinite(g).all()

    error = residual(slope, y, m, c, g) / np.maximum.reduce([np.ones_like(g), abs(y), abs(g)])
    assert error.max() <= TOL, (y[error.argmax()], m[error.argmax()], c[error.argmax()])

    # The step is a non-expansive function of m: scores have no excuse but rounding.
    apart = abs(c * (g - bisect_step(slope, y, m, c))) / rounding(y, m, c, g)
    assert apart.max() <= 8.0, (y[apart.argmax()], m[apart.argmax()], c[apart.argmax()])


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_no_other_score_has_a_lower_objective(loss):
    """The same by values alone: neither derivative nor bisection is trusted here."""
    value, _ = PLAIN[loss]
    rng = np.random.default_rng(21)
    y, m, c = draw(loss, 4000, rng)
    keep = abs(m) < 300.0  # keeps the exponential of the Poisson objective finite
    y, m, c = y[keep], m[keep], c[keep]

    def objective(f):
        return value(y, f) + (f - m) ** 2 / (2.0 * c)

    f = m + c * loss.prox(y, m, c)
    best = objective(f)
    assert (best <= objective(m) + 1e-12 * (1.0 + abs(best))).all()
    for size in (1e-5, 1e-3, 1e-1, 10.0):
        for side in (-1.0, 1.0):
            other = objective(np.minimum(f + side * size * np.maximum(abs(f - m), 1e-8), 700.0))
            # values of the size of |y f| come with rounding of that size
            slack = 64.0 * EPS * (abs(best) + abs(y * f) + (f - m) ** 2 / c + 1.0 + abs(y))
            assert (best <= other + slack).all()


def exact_step(loss, y, m, c):
    """Step of the exact rational minimiser of a piecewise quadratic objective.

    Its candidates are the kinks and, for every piece ``a f^2 + b f`` (+ a constant) of the
    loss, the stationary point ``(m - c b) / (1 + 2 c a)``.
    """
    p = next((Fraction(value) for value in loss.get_params().values()), None)
    r = lambda f: y - f  # noqa: E731
    flat, square = (0, 0), lambda a, centre: (a, -2 * a * centre)
    value, pieces = {
        "hinge": (lambda f: max(0, 1 - y * f), lambda: [flat, (0, -y)]),
        "squared_hinge": (lambda f: max(0, 1 - y * f) ** 2, lambda: [flat, square(1, y)]),
        "modified_huber": (
            lambda f: max(0, 1 - y * f) ** 2 if y * f >= -1 else -4 * y * f,
            lambda: [flat, square(1, y), (0, -4 * y)],
        ),
        "squared_error": (lambda f: r(f) ** 2 / 2, lambda: [square(Fraction(1, 2), y)]),
        "squared": (lambda f: r(f) ** 2, lambda: [square(1, y)]),
        "huber": (
            lambda f: r(f) ** 2 / 2 if abs(r(f)) <= p else p * abs(r(f)) - p**2 / 2,
            lambda: [square(Fraction(1, 2), y), (0, p), (0, -p)],
        ),
        "epsilon_insensitive": (
            lambda f: max(0, abs(r(f)) - p),
            lambda: [flat, (0, 1), (0, -1)],
        ),
        "squared_epsilon_insensitive": (
            lambda f: max(0, abs(r(f)) - p) ** 2,
            lambda: [flat, square(1, y + p), square(1, y - p)],
        ),
        "quantile": (lambda f: max(p * r(f), (p - 1) * r(f)), lambda: [(0, -p), (0, 1 - p)]),
    }[loss.name]
    at = KINKS[loss.name](y, *([] if p is None else [p])) if loss.name in KINKS else []
    candidates = at + [(m - c * b) / (1 + 2 * c * a) for a, b in pieces()]
    f = min(candidates, key=lambda f: value(f) + (f - m) ** 2 / (2 * c))
    return (f - m) / c


@pytest.mark.parametrize(
    "loss",
    [loss for loss in SCALAR if loss.name not in ("log_loss", "poisson")],
    ids=repr,
)
def test_piecewise_quadratic_steps_in_exact_arithmetic(loss):
    y, m, c = draw(loss, 300, np.random.default_rng(22))
    g = loss.prox(y, m, c)
    for row in zip(y, m, c, g, strict=True):
        yi, mi, ci, gi = (Fraction(value) for value in row)
        error = ci * abs(gi - exact_step(loss, yi, mi, ci))
        assert float(error) <= rounding(*row), row


def decimal_step(slope, y, m, c):
    """Root of ``g + loss'(m + c g)`` to 45 digits."""
    explicit = -slope(m)
    low, high = min(explicit, Decimal(0)), max(explicit, Decimal(0))
    while high - low > Decimal("1e-45") * max(abs(low), abs(high)) and high - low > Decimal(
        "1e-60"
    ):
        middle = (low + high) / 2
        if middle + slope(m + c * middle) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


@pytest.mark.parametrize("name", ["log_loss", "poisson"])
def test_transcendental_steps_in_50_digits(name):
    loss = losses.make_loss(name)
    y, m, c = draw(loss, 250, np.random.default_rng(23))
    keep = abs(m) < 100.0
    y, m, c = y[keep], m[keep], c[keep]
    g = loss.prox(y, m, c)
    with localcontext(prec=50) as context:
        context.traps[Overflow] = False  # infinity is the right answer far out
        for row in zip(y, m, c, g, strict=True):
            yi, mi, ci, gi = (Decimal(float(value)) for value in row)
            if name == "log_loss":
                exact = decimal_step(lambda f, y=yi: -y / (1 + (y * f).exp()), yi, mi, ci)
            else:
                exact = decimal_step(lambda f, y=yi: f.exp() - y, yi, mi, ci)
            assert float(ci * abs(gi - exact)) <= rounding(*row), row
            assert float(abs(gi - exact)) <= TOL * max(1.0, abs(row[0]), abs(row[3])), row


# -- one score per class ----------------------------------------------------------------


def draw_coupled(n, n_classes, rng):
    y = rng.integers(0, n_classes, n)
    m = (10.0 ** rng.uniform(-3, 3, n))[:, None] * rng.standard_normal((n, n_classes))
    m += rng.choice([0.0, 0.0, 100.0, -1e4], n)[:, None]  # a common shift must not matter
    m[::10, 1:] = m[::10, :1]  # ties between all classes
    c = 10.0 ** rng.uniform(-12, 12, n)
    return y, m, c


def coupled_rounding(m, c, g):
    return 8.0 * EPS * (1.0 + abs(m).max(axis=1) + c * abs(g).max(axis=1))


@pytest.mark.parametrize("n_classes", [2, 3, 5, 20])
def test_softmax_step_is_optimal(n_classes):
    """``g = e_y - softmax(m + c g)``; a residual e moves the scores by at most ``c |e|``."""
    y, m, c = draw_coupled(N_CASES // 4, n_classes, np.random.default_rng(24))
    g = losses.Softmax().prox(y, m, c)
    rows = np.arange(len(y))
    right = -softmax(m + c[:, None] * g, axis=1)
    right[rows, y] = 0.0
    right[rows, y] = -right.sum(axis=1)  # 1 - p_y without cancellation
    error = abs(g - right).max(axis=1)
    assert error.max() <= TOL
    assert (c * error <= 1e-10 * np.maximum(1.0, coupled_rounding(m, c, g) / EPS)).all()
    assert (abs(g.sum(axis=1)) <= TOL).all()


@pytest.mark.parametrize("spread", [1e6, 1e12])
def test_softmax_step_far_outside_the_usual_range(spread):
    rng = np.random.default_rng(25)
    y, m = rng.integers(0, 4, 5000), spread * rng.standard_normal((5000, 4))
    c = spread * 10.0 ** rng.uniform(-2, 2, 5000)
    g = losses.Softmax().prox(y, m, c)
    assert np.isfinite(g).all()
    f, off = m + c[:, None] * g, coupled_rounding(m, c, g)
    # classes well below the top of the scores after the step must get no step at all
    behind = f.max(axis=1, keepdims=True) - f > 50.0 + 16.0 * off[:, None]
    behind[np.arange(len(y)), y] = False
    assert (abs(g[behind]) <= 1e-10).all()
    assert (abs(g.sum(axis=1)) <= 1e-9).all()


def two_class_reduction(y, m, c):
    """Margin and step size of the equivalent scalar problem in ``f_y - f_other``."""
    rows = np.arange(len(y))
    return m[rows, y] - m[rows, 1 - y], 2.0 * c


@pytest.mark.parametrize(
    ("coupled", "scalar"),
    [(losses.Softmax(), losses.LogLoss()), (losses.MulticlassHinge(), losses.Hinge())],
    ids=["softmax", "multiclass_hinge"],
)
def test_two_classes_are_the_binary_loss_of_the_difference(coupled, scalar):
    y, m, c = draw_coupled(N_CASES, 2, np.random.default_rng(26))
    margin, both = two_class_reduction(y, m, c)
    g = coupled.prox(y, m, c)
    expected = bisect_step(PLAIN[scalar][1], np.ones(len(y)), margin, both)
    for column, sign in ((y, 1.0), (1 - y, -1.0)):
        step = sign * g[np.arange(len(y)), column]
        apart = c * abs(step - expected) / coupled_rounding(m, c, g)
        assert apart.max() <= 16.0


@pytest.mark.parametrize("n_classes", [3, 5, 20])
def test_multiclass_hinge_step_satisfies_the_optimality_conditions(n_classes):
    """``g = e_y s - pi``: who pays is a runner-up, and ``s`` is 1 in violation, 0 when safe."""
    y, m, c = draw_coupled(N_CASES // 3, n_classes, np.random.default_rng(27))
    rows = np.arange(len(y))
    # a third starts where the step ends exactly on the margin
    third = rows[: len(y) // 3]
    m[third, y[third]] = (
        m[third].max(axis=1) + 1.0 - c[third] * 10.0 ** np.linspace(-3, 1, len(third))
    )
    g = losses.MulticlassHinge().prox(y, m, c)
    f, off = m + c[:, None] * g, coupled_rounding(m, c, g)
    own = g[rows, y]
    paid = -g
    paid[rows, y] = 0.0
    assert (paid >= 0.0).all()
    assert (abs(paid.sum(axis=1) - own) <= 1e-12).all()
    assert ((own >= 0.0) & (own <= 1.0)).all()

    rivals = f.copy()
    rivals[rows, y] = -np.inf
    top = rivals.max(axis=1)
    payer_gap = np.where(paid > 0.0, top[:, None] - f, 0.0)
    assert (payer_gap <= 4.0 * off[:, None]).all()
    violation = 1.0 + top - f[rows, y]
    assert (violation[own < 1.0 - TOL] <= 4.0 * off[own < 1.0 - TOL]).all()
    assert (violation[own > TOL] >= -4.0 * off[own > TOL]).all()
    assert (own > 0.0).any()
    assert ((own > 0.0) & (own < 1.0)).any()
    assert (own == 0.0).any()


def exact_crammer_singer(y, m, c):
    """Exact step by trying every set of payers: the one that satisfies all conditions."""
    rivals = [k for k in range(len(m)) if k != y]
    if all(1 + m[k] - m[y] <= 0 for k in rivals):
        return [Fraction(0)] * len(m)
    for size in range(1, len(rivals) + 1):
        for payers in combinations(rivals, size):
            total = sum(m[k] for k in payers)
            # in violation: s = 1, payers level at t with sum (m_k - t) = c
            for own in (Fraction(1), (size * (1 - m[y]) + total) / (c * (1 + size))):
                t = (total - c * own) / size
                pays = {k: (m[k] - t) / c for k in payers}
                score = m[y] + c * own
                others = max((m[k] for k in rivals if k not in payers), default=t)
                right = all(value > 0 for value in pays.values()) and others <= t
                if right and (1 + t - score >= 0 if own == 1 else 1 + t - score == 0 <= own <= 1):
                    return [own if k == y else -pays.get(k, Fraction(0)) for k in range(len(m))]
    raise AssertionError("the optimality conditions always have a solution")


def test_multiclass_hinge_step_in_exact_arithmetic():
    rng = np.random.default_rng(28)
    loss = losses.MulticlassHinge()
    for n_classes in (2, 3, 4, 5):
        y, m, c = draw_coupled(100, n_classes, rng)
        m = m[: len(y)] - m.mean(axis=1, keepdims=True)
        g = loss.prox(y, m, c)
        off = coupled_rounding(m, c, g)
        for i in range(len(y)):
            exact = exact_crammer_singer(int(y[i]), [Fraction(v) for v in m[i]], Fraction(c[i]))
            apart = max(abs(Fraction(a) - b) for a, b in zip(g[i], exact, strict=True))
            assert float(apart * Fraction(c[i])) <= 4.0 * off[i], (y[i], m[i], c[i])
