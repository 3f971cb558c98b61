"""A Gaussian that lies well on the posterior, at every scale of the prior: where moves start from.

For a binary problem it is the variational Gaussian, ``argmin KL(q || posterior)``, found by Newton
steps on expected derivatives; for classes treated jointly the one with the curvature at the mode,
its mean then moved to where the expected gradient over antithetic draws is zero. Both are sums over
rows. Where the prior's scale is learned, Gaussians are found at a few values of ``eta = log tau``
around the most probable one, and interpolated in between: `Transport` maps independent standard
normal numbers, and an ``eta``, to weights. No draw depends on how good any of this is: the moves in
`gibbs_moves` correct for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import gammaln

from likelier.base import Array, Batch, Engine
from likelier.bayesian_linear.model import BayesianLinear, Expected, Prior

MAX_PASSES = 60
TOLERANCE = 1e-2  # nats; the moves correct far larger errors
NODE_DISTANCES = (-3.0, -1.5, 0.0, 1.5, 3.0)  # standard deviations of eta
MIN_SPREAD, MAX_SPREAD = 0.1, 1.5  # of eta, in the distances between nodes
ETA_STEP = 1.5  # largest change of eta in one pass
ETA_DF = 6.0
ANTITHETIC = 32
SHIFTS = 3
MIN_ETA, MAX_ETA = -20.0, 25.0


@dataclass(frozen=True)
class Gaussian:
    """``N(mean, (hessian + prior precision)^-1)`` at one ``eta``."""

    eta: float
    mean: Array
    hessian: Array  # of the negative log likelihood, standard coordinates
    root: Array  # upper triangular, covariance = root root^T
    bound: float = -np.inf  # on the log evidence, up to a constant

    @property
    def variances(self) -> Array:
        """Variance of every parameter."""
        return np.asarray(np.einsum("ij,ij->i", self.root, self.root))


def gaussian_at(model: BayesianLinear, eta: float, mean: Array, hessian: Array) -> Gaussian:
    """The Gaussian of this mean and curvature of the likelihood."""
    matrix = hessian + np.diag(model.prior.precision(eta))
    lower = cholesky(matrix, lower=True, check_finite=False)
    inverse = solve_triangular(lower, np.eye(len(matrix)), lower=True, check_finite=False)
    return Gaussian(eta, mean, hessian, np.ascontiguousarray(inverse.T))


def fit_gaussian(
    model: BayesianLinear, engine: Engine, start: Gaussian | None = None, eta: float | None = None
) -> Gaussian:
    """Best Gaussian at a given ``eta``, or at the most probable one.

    Newton steps, halved while they do not improve the bound. Cost: about ten passes of rows x
    features^2 from nothing, one or two from a neighbour.
    """
    free = eta is None and model.prior.learned
    if start is None:
        eta = 0.0 if eta is None else eta
        start = gaussian_at(model, eta, model.prior.mean.copy(), _first_hessian(model, engine))
    now = start if eta is None else gaussian_at(model, eta, start.mean, start.hessian)
    best, towards = now, None
    for _ in range(MAX_PASSES):
        sums = _expected(model, engine, now)
        bound = sums.value + _prior_bound(model, now)
        if towards is not None and not bound >= best.bound - 1e-9 * abs(bound):
            now = _between(model, best, now)
            continue
        stalled = bound - best.bound < 0.1 * TOLERANCE
        best = Gaussian(now.eta, now.mean, now.hessian, now.root, bound)
        towards, gain = _newton(model, now, sums, free)
        if gain < TOLERANCE or stalled:
            return best
        now = towards
    return best


def _newton(
    model: BayesianLinear, now: Gaussian, sums: Expected, free: bool
) -> tuple[Gaussian, float]:
    """Next Gaussian, and about how much it would gain."""
    prior = model.prior
    eta = now.eta
    if free:
        slope, curvature = eta_slopes(model, now)
        eta = eta + float(np.clip(slope / curvature, -ETA_STEP, ETA_STEP))
        eta = min(max(eta, MIN_ETA), MAX_ETA)
    following = gaussian_at(model, eta, now.mean, sums.hessian)
    pull = sums.gradient - prior.precision(eta) * (now.mean - prior.mean)
    half = following.root.T @ pull
    change = np.log(np.diag(following.root)) - np.log(np.diag(now.root))
    gain = 0.5 * float(half @ half) + float(np.abs(change).sum()) ** 2 / len(pull)
    gain += abs(eta - now.eta) ** 2
    return gaussian_at(model, eta, now.mean + following.root @ half, sums.hessian), gain


def _between(model: BayesianLinear, best: Gaussian, tried: Gaussian) -> Gaussian:
    return gaussian_at(
        model, 0.5 * (best.eta + tried.eta), 0.5 * (best.mean + tried.mean),
        0.5 * (best.hessian + tried.hessian),
    )  # fmt: skip


def _first_hessian(model: BayesianLinear, engine: Engine) -> Array:
    """A bound on the curvature: its value at zero scores."""
    if model.joint:
        zero = np.zeros(model.n_parameters)
        return _curvature(model, engine, zero).hessian
    height = 1.0 if model.hinge else 0.25

    def of_block(batch: Batch) -> Array:
        weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
        return model.linear.gram(model.coordinates.rows(batch.X), height * weight)

    return model.coordinates.pull_both(engine.reduce(of_block, np.add))


def _expected(model: BayesianLinear, engine: Engine, now: Gaussian) -> Expected:
    """Expected log likelihood and its derivatives; at the mean for jointly treated classes."""
    if model.joint:
        return _curvature(model, engine, now.mean)
    mean, root = model.raw(now.mean), model.raw(now.root.T).T
    sums: Expected = engine.reduce(
        lambda batch: model.expected(mean, np.ascontiguousarray(root), batch), Expected.__add__
    )
    hessian = model.coordinates.pull_both(sums.hessian)
    return Expected(sums.value, model.pull(sums.gradient), hessian)


def _curvature(model: BayesianLinear, engine: Engine, mean: Array) -> Expected:
    raw = model.raw(mean)
    sums: Expected = engine.reduce(
        lambda batch: model.softmax_curvature(raw, batch), Expected.__add__
    )
    # both sides of the matrix go from raw to standard coordinates
    hessian = model.pull(model.pull(sums.hessian).T)
    return Expected(sums.value, model.pull(sums.gradient), 0.5 * (hessian + hessian.T))


def _prior_bound(model: BayesianLinear, q: Gaussian) -> float:
    """Expected log prior plus entropy, up to a constant."""
    prior, square = model.prior, (q.mean - model.prior.mean) ** 2
    if not model.joint:  # for joint classes the likelihood is taken at the mean too
        square = square + q.variances
    value = -0.5 * float(square @ prior.fixed) + float(np.log(np.diag(q.root)).sum())
    if prior.learned:
        value += (prior.shape + 0.5 * prior.n_scaled) * q.eta
        value -= float(np.exp(q.eta)) * (prior.rate + 0.5 * float(square @ prior.scaled))
    return value


def eta_slopes(model: BayesianLinear, q: Gaussian) -> tuple[float, float]:
    """Slope of the log evidence in ``eta``, and minus its curvature, with the weights integrated.

    ``d/d eta = a + P/2 - tau (b + E|w|^2 / 2)``; the second derivative lets the Gaussian follow.
    """
    prior, tau = model.prior, float(np.exp(q.eta))
    gap = q.mean - prior.mean
    half = 0.5 * float((gap**2 + q.variances) @ prior.scaled)
    slope = prior.shape + 0.5 * prior.n_scaled - tau * (prior.rate + half)
    pulled = q.root.T @ (prior.scaled * gap)
    inner = (q.root.T * prior.scaled) @ q.root
    follows = float(pulled @ pulled) + 0.5 * float((inner**2).sum())
    curvature = tau * (prior.rate + half) - tau**2 * follows
    return slope, max(curvature, 0.5 * prior.shape)


# -- from independent numbers to weights ----------------------------------------------------


@dataclass(frozen=True)
class EtaLaw:
    """Two halves of Student-t laws around one mode: the proposal of ``eta``."""

    mode: float
    left: float
    right: float

    def stretched(self, factor: float) -> EtaLaw:
        """The same law, wider."""
        return EtaLaw(self.mode, factor * self.left, factor * self.right)

    def draw(self, n: int, stream: np.random.Generator) -> Array:
        """Draw ``n`` values."""
        size = np.abs(stream.standard_t(ETA_DF, n))
        to_left = stream.random(n) * (self.left + self.right) < self.left
        return self.mode + np.where(to_left, -self.left * size, self.right * size)

    def log_density(self, eta: Array) -> Array:
        """Log density at each value."""
        z = (eta - self.mode) / np.where(eta < self.mode, self.left, self.right)
        constant = gammaln(0.5 * (ETA_DF + 1.0)) - gammaln(0.5 * ETA_DF)
        constant += 0.5 * np.log(4.0 / (np.pi * ETA_DF)) - np.log(self.left + self.right)
        return np.asarray(constant - 0.5 * (ETA_DF + 1.0) * np.log1p(z**2 / ETA_DF))


@dataclass(frozen=True)
class Transport:
    """``weights = mean(eta) + root(eta) xi``: linear in ``eta`` between nodes.

    Beyond the last node on either side, what the learned scale multiplies grows or shrinks like
    the prior's standard deviation.
    """

    etas: Array
    means: Array
    roots: Array
    law: EtaLaw | None
    prior: Prior

    def shares(self, eta: Array) -> Array:
        """Share of each node at each ``eta``, (S, nodes)."""
        if len(self.etas) == 1:
            return np.ones((len(eta), 1))
        held = np.clip(eta, self.etas[0], self.etas[-1])
        upper = np.clip(np.searchsorted(self.etas, held), 1, len(self.etas) - 1)
        part = (held - self.etas[upper - 1]) / (self.etas[upper] - self.etas[upper - 1])
        shares = np.zeros((len(eta), len(self.etas)))
        rows = np.arange(len(eta))
        shares[rows, upper - 1], shares[rows, upper] = 1.0 - part, part
        return shares

    def _stretch(self, eta: Array) -> tuple[Array, Array]:
        """Factor of every parameter beyond the nodes (S, P), and the logarithm of its volume."""
        beyond = eta - np.clip(eta, self.etas[0], self.etas[-1])
        factor = np.where(self.prior.scaled > 0.0, np.exp(-0.5 * beyond)[:, None], 1.0)
        return factor, -0.5 * self.prior.n_scaled * beyond

    def forward(self, xi: Array, eta: Array) -> tuple[Array, Array]:
        """Weights (S, P), and the logarithm of the volume the map takes there (S,)."""
        shares = self.shares(eta)
        theta = shares @ self.means
        for k, root in enumerate(self.roots):
            used = np.flatnonzero(shares[:, k])
            if len(used):
                theta[used] += shares[used, k : k + 1] * (xi[used] @ root.T)
        log_volume = np.log(shares @ np.diagonal(self.roots, axis1=1, axis2=2)).sum(axis=1)
        if self.law is None:
            return theta, log_volume
        factor, log_factor = self._stretch(eta)
        return self.prior.mean + factor * (theta - self.prior.mean), log_volume + log_factor

    def held(self, eta: Array) -> Held:
        """The map at these values of ``eta``, for repeated use."""
        origin, _ = self.forward(np.zeros((len(eta), self.means.shape[1])), eta)
        if self.law is None:
            return Held(origin, self.roots[:1])
        factor, _ = self._stretch(eta)
        return Held(origin, factor[:, :, None] * np.tensordot(self.shares(eta), self.roots, 1))


@dataclass(frozen=True)
class Held:
    """``weights = origin + root xi`` of each of S chains; one root may serve them all."""

    origin: Array
    roots: Array

    def forward(self, xi: Array) -> Array:
        """Weights (S, P)."""
        if len(self.roots) == 1:
            return np.asarray(self.origin + xi @ self.roots[0].T)
        return np.asarray(self.origin + np.matmul(self.roots, xi[:, :, None])[:, :, 0])

    def pull(self, slope: Array) -> Array:
        """Derivatives by ``xi`` from those by the weights."""
        if len(self.roots) == 1:
            return np.asarray(slope @ self.roots[0])
        return np.asarray(np.matmul(slope[:, None], self.roots)[:, 0])

    def backward(self, theta: Array) -> Array:
        """The numbers that `forward` maps to these weights."""
        roots = np.broadcast_to(self.roots, (len(theta), *self.roots.shape[1:]))
        pairs = zip(roots, theta - self.origin, strict=True)
        return np.stack([solve_triangular(root, gap, check_finite=False) for root, gap in pairs])


def fit_transport(model: BayesianLinear, engine: Engine) -> Transport:
    """Gaussians at the nodes, and the proposal of ``eta``."""
    centre = fit_gaussian(model, engine)
    if not model.prior.learned:
        return _with_means(model, engine, [centre], None)
    _, curvature = eta_slopes(model, centre)
    spread = min(1.0 / np.sqrt(curvature), MAX_SPREAD)
    nodes = _nodes(model, engine, centre, spread)
    slopes = np.array([eta_slopes(model, node)[0] for node in nodes])
    law = _eta_law(np.array([node.eta for node in nodes]), slopes, spread)
    return _with_means(model, engine, nodes, law)


def transport_around(
    model: BayesianLinear, engine: Engine, etas: Array, law: EtaLaw | None
) -> Transport:
    """Gaussians at nodes among these draws of ``eta``; the proposal of ``eta`` is left alone."""
    middle = float(np.clip(np.median(etas), MIN_ETA, MAX_ETA))
    spread = float(np.clip(np.std(etas), MIN_SPREAD, MAX_SPREAD))
    centre = fit_gaussian(model, engine, eta=middle)
    return _with_means(model, engine, _nodes(model, engine, centre, spread), law)


def _nodes(
    model: BayesianLinear, engine: Engine, centre: Gaussian, spread: float
) -> list[Gaussian]:
    etas = [centre.eta + distance * spread for distance in NODE_DISTANCES]
    return [centre if e == centre.eta else fit_gaussian(model, engine, centre, e) for e in etas]


def _eta_law(etas: Array, slopes: Array, spread: float) -> EtaLaw:
    """Halves as wide as the drop of the log evidence to the nodes beside the middle says."""
    drops = 0.5 * (slopes[1:] + slopes[:-1]) * np.diff(etas)
    wide = []
    for drop in (drops[1], -drops[2]):
        sure = max(float(drop), 0.25)  # a flat side is proposed no wider than twice
        wide.append(1.5 * spread / np.sqrt(2.0 * sure))
    return EtaLaw(float(etas[2]), *wide)


def _with_means(
    model: BayesianLinear, engine: Engine, nodes: list[Gaussian], law: EtaLaw | None
) -> Transport:
    means = np.stack([node.mean for node in nodes])
    roots = np.stack([node.root for node in nodes])
    if model.joint:
        means = means + _mean_shift(model, engine, nodes[len(nodes) // 2])
    return Transport(np.array([node.eta for node in nodes]), means, roots, law, model.prior)


def _mean_shift(model: BayesianLinear, engine: Engine, node: Gaussian) -> Array:
    """From the mode to about the mean: where the gradient vanishes on average over the Gaussian."""
    half = np.random.default_rng(0).standard_normal((ANTITHETIC, len(node.mean)))
    away = np.concatenate([half, -half]) @ node.root.T
    shift = np.zeros_like(node.mean)
    eta = np.full(len(away), node.eta)
    for _ in range(SHIFTS):
        theta = node.mean + shift + away
        gradient = model.pull(_slopes(model, engine, theta)) + model.prior.derivative(theta, eta)
        shift += node.root @ (node.root.T @ gradient.mean(axis=0))
    return shift


def _slopes(model: BayesianLinear, engine: Engine, theta: Array) -> Array:
    """Derivatives of the log likelihood by the raw parameters at S points."""
    raw = model.raw(theta)
    return engine.reduce(lambda batch: model.slopes(raw, batch)[1], np.add)
