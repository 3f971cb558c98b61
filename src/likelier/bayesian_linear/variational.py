"""Gaussian approximation of the posterior at every scale of the prior.

For a binary problem it is the variational Gaussian, ``argmin KL(q || posterior)``, found by Newton
steps on expected derivatives; for a multinomial model it is the Laplace approximation, with its
mean moved to the zero of the gradient averaged over antithetic draws. Both are sums over rows. If
the scale of the prior is learned, Gaussians are fitted at a few values of ``eta = log tau`` around
the most probable one, and interpolated: `Transport` maps independent standard normal variables and
``eta`` to weights. The quality of the approximation does not affect the target distribution,
because the moves in `likelier.bayesian_linear.transport_moves` are corrected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import gammaln

from likelier.base import Array, Engine
from likelier.bayesian_linear.model import BayesianLinear, Expected, Prior, add_pairs

MAX_PASSES = 60
TOLERANCE = 1e-2  # nats; the moves tolerate much larger errors
NODE_DISTANCES = (-3.0, -1.5, 0.0, 1.5, 3.0)  # standard deviations of eta
MIN_ETA_SCALE, MAX_ETA_SCALE = 0.1, 1.5  # standard deviation of eta used for the distances of nodes
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
    """The Gaussian with this mean and likelihood Hessian."""
    matrix = hessian + np.diag(model.prior.precision(eta))
    lower = cholesky(matrix, lower=True, check_finite=False)
    inverse = solve_triangular(lower, np.eye(len(matrix)), lower=True, check_finite=False)
    return Gaussian(eta, mean, hessian, np.ascontiguousarray(inverse.T))


def fit_gaussian(
    model: BayesianLinear, engine: Engine, start: Gaussian | None = None, eta: float | None = None
) -> Gaussian:
    """Best Gaussian at a given ``eta``, or at the most probable one.

    By Newton steps, halved while they do not improve the bound. Cost: about ten passes of rows x
    features^2, one or two with a nearby starting point.
    """
    learn_eta = eta is None and model.prior.learned
    if start is None:
        eta = 0.0 if eta is None else eta
        start = gaussian_at(model, eta, model.prior.mean.copy(), _first_hessian(model, engine))
    current = start if eta is None else gaussian_at(model, eta, start.mean, start.hessian)
    best, proposed = current, None
    for _ in range(MAX_PASSES):
        sums = _expected(model, engine, current)
        bound = sums.value + _prior_bound(model, current)
        if proposed is not None and not bound >= best.bound - 1e-9 * abs(bound):
            current = _midpoint(model, best, current)
            continue
        stalled = bound - best.bound < 0.1 * TOLERANCE
        best = Gaussian(current.eta, current.mean, current.hessian, current.root, bound)
        proposed, gain = _newton(model, current, sums, learn_eta)
        if gain < TOLERANCE or stalled:
            return best
        current = proposed
    return best


def _newton(
    model: BayesianLinear, current: Gaussian, sums: Expected, learn_eta: bool
) -> tuple[Gaussian, float]:
    """Next Gaussian and its approximate gain."""
    prior = model.prior
    eta = current.eta
    if learn_eta:
        derivative, curvature = eta_derivatives(model, current)
        eta = eta + float(np.clip(derivative / curvature, -ETA_STEP, ETA_STEP))
        eta = min(max(eta, MIN_ETA), MAX_ETA)
    following = gaussian_at(model, eta, current.mean, sums.hessian)
    gradient = sums.gradient - prior.precision(eta) * (current.mean - prior.mean)
    half = following.root.T @ gradient
    change = np.log(np.diag(following.root)) - np.log(np.diag(current.root))
    gain = 0.5 * float(half @ half) + float(np.abs(change).sum()) ** 2 / len(gradient)
    gain += abs(eta - current.eta) ** 2
    return gaussian_at(model, eta, current.mean + following.root @ half, sums.hessian), gain


def _midpoint(model: BayesianLinear, best: Gaussian, tried: Gaussian) -> Gaussian:
    return gaussian_at(
        model, 0.5 * (best.eta + tried.eta), 0.5 * (best.mean + tried.mean),
        0.5 * (best.hessian + tried.hessian),
    )  # fmt: skip


def _first_hessian(model: BayesianLinear, engine: Engine) -> Array:
    """Upper bound of the curvature: its value at zero scores."""
    if model.joint:
        zero = np.zeros(model.n_parameters)
        return _curvature(model, engine, zero).hessian
    return model.coordinates.standard_hessian(engine.reduce(model.largest_curvature, np.add))


def _expected(model: BayesianLinear, engine: Engine, current: Gaussian) -> Expected:
    """Expected log likelihood and its derivatives; for a multinomial model, those at the mean."""
    if model.joint:
        return _curvature(model, engine, current.mean)
    mean, root = model.raw(current.mean), np.ascontiguousarray(model.raw(current.root.T).T)
    sums: Expected = engine.reduce(model.expected, Expected.__add__, state=(mean, root))
    hessian = model.coordinates.standard_hessian(sums.hessian)
    return Expected(sums.value, model.standard_gradient(sums.gradient), hessian)


def _curvature(model: BayesianLinear, engine: Engine, mean: Array) -> Expected:
    sums: Expected = engine.reduce(model.softmax_curvature, Expected.__add__, state=model.raw(mean))
    # both axes are converted from raw to standard coordinates
    hessian = model.standard_gradient(model.standard_gradient(sums.hessian).T)
    return Expected(sums.value, model.standard_gradient(sums.gradient), 0.5 * (hessian + hessian.T))


def _prior_bound(model: BayesianLinear, q: Gaussian) -> float:
    """Expected log prior plus entropy, up to a constant."""
    prior, square = model.prior, (q.mean - model.prior.mean) ** 2
    if not model.joint:  # a multinomial likelihood is taken at the mean too
        square = square + q.variances
    value = -0.5 * float(square @ prior.fixed) + float(np.log(np.diag(q.root)).sum())
    if prior.learned:
        value += (prior.shape + 0.5 * prior.n_scaled) * q.eta
        value -= float(np.exp(q.eta)) * (prior.rate + 0.5 * float(square @ prior.scaled))
    return value


def eta_derivatives(model: BayesianLinear, q: Gaussian) -> tuple[float, float]:
    """Derivative of the log evidence by ``eta``, and minus its second derivative.

    The first is ``a + P/2 - tau (b + E|w|^2 / 2)``; the second includes the change of the Gaussian.
    """
    prior, tau = model.prior, float(np.exp(q.eta))
    gap = q.mean - prior.mean
    half = 0.5 * float((gap**2 + q.variances) @ prior.scaled)
    derivative = prior.shape + 0.5 * prior.n_scaled - tau * (prior.rate + half)
    pulled = q.root.T @ (prior.scaled * gap)
    inner = (q.root.T * prior.scaled) @ q.root
    response = float(pulled @ pulled) + 0.5 * float((inner**2).sum())
    curvature = tau * (prior.rate + half) - tau**2 * response
    return derivative, max(curvature, 0.5 * prior.shape)


# -- from independent normal variables to weights -------------------------------------------


@dataclass(frozen=True)
class EtaProposal:
    """Proposal of ``eta``: a split Student-t distribution."""

    mode: float
    left: float
    right: float

    def stretched(self, factor: float) -> EtaProposal:
        """The same distribution with its scales multiplied by ``factor``."""
        return EtaProposal(self.mode, factor * self.left, factor * self.right)

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
    """``weights = mean(eta) + root(eta) xi``, linear in ``eta`` between nodes.

    Beyond the outermost nodes, weights with a learned prior scale are proportional to the prior's
    standard deviation.
    """

    etas: Array
    means: Array
    roots: Array
    eta_proposal: EtaProposal | None
    prior: Prior

    def interpolation_weights(self, eta: Array) -> Array:
        """Interpolation weight of each node at each ``eta``, (S, nodes)."""
        if len(self.etas) == 1:
            return np.ones((len(eta), 1))
        at = np.clip(eta, self.etas[0], self.etas[-1])
        upper = np.clip(np.searchsorted(self.etas, at), 1, len(self.etas) - 1)
        part = (at - self.etas[upper - 1]) / (self.etas[upper] - self.etas[upper - 1])
        interpolation_weights = np.zeros((len(eta), len(self.etas)))
        rows = np.arange(len(eta))
        interpolation_weights[rows, upper - 1], interpolation_weights[rows, upper] = (
            1.0 - part,
            part,
        )
        return interpolation_weights

    def _extrapolation(self, eta: Array) -> tuple[Array, Array]:
        """Factor of every parameter beyond the nodes (S, P), and its log determinant."""
        beyond = eta - np.clip(eta, self.etas[0], self.etas[-1])
        factor = np.where(self.prior.scaled > 0.0, np.exp(-0.5 * beyond)[:, None], 1.0)
        return factor, -0.5 * self.prior.n_scaled * beyond

    def forward(self, xi: Array, eta: Array) -> tuple[Array, Array]:
        """Weights (S, P), and the log Jacobian of the map (S,)."""
        interpolation_weights = self.interpolation_weights(eta)
        theta = interpolation_weights @ self.means
        for k, root in enumerate(self.roots):
            used = np.flatnonzero(interpolation_weights[:, k])
            if len(used):
                theta[used] += interpolation_weights[used, k : k + 1] * (xi[used] @ root.T)
        log_volume = np.log(interpolation_weights @ np.diagonal(self.roots, axis1=1, axis2=2)).sum(
            axis=1
        )
        if self.eta_proposal is None:
            return theta, log_volume
        factor, log_factor = self._extrapolation(eta)
        return self.prior.mean + factor * (theta - self.prior.mean), log_volume + log_factor

    def at(self, eta: Array) -> FixedEtaTransport:
        """The map at fixed values of ``eta``."""
        origin, _ = self.forward(np.zeros((len(eta), self.means.shape[1])), eta)
        if self.eta_proposal is None:
            return FixedEtaTransport(origin, self.roots[:1])
        factor, _ = self._extrapolation(eta)
        return FixedEtaTransport(
            origin,
            factor[:, :, None] * np.tensordot(self.interpolation_weights(eta), self.roots, 1),
        )


@dataclass(frozen=True)
class FixedEtaTransport:
    """``weights = origin + root xi`` of each of S chains; chains may share one root."""

    origin: Array
    roots: Array

    def forward(self, xi: Array) -> Array:
        """Weights (S, P)."""
        if len(self.roots) == 1:
            return np.asarray(self.origin + xi @ self.roots[0].T)
        return np.asarray(self.origin + np.matmul(self.roots, xi[:, :, None])[:, :, 0])

    def gradient(self, weight_gradient: Array) -> Array:
        """Gradient by ``xi`` from that by the weights."""
        if len(self.roots) == 1:
            return np.asarray(weight_gradient @ self.roots[0])
        return np.asarray(np.matmul(weight_gradient[:, None], self.roots)[:, 0])

    def backward(self, theta: Array) -> Array:
        """Inverse of `forward`."""
        roots = np.broadcast_to(self.roots, (len(theta), *self.roots.shape[1:]))
        pairs = zip(roots, theta - self.origin, strict=True)
        return np.stack([solve_triangular(root, gap, check_finite=False) for root, gap in pairs])


def fit_transport(model: BayesianLinear, engine: Engine) -> Transport:
    """Gaussians at the nodes, and the proposal of ``eta``."""
    centre = fit_gaussian(model, engine)
    if not model.prior.learned:
        return _with_means(model, engine, [centre], None)
    _, curvature = eta_derivatives(model, centre)
    scale = min(1.0 / np.sqrt(curvature), MAX_ETA_SCALE)
    nodes = _nodes(model, engine, centre, scale)
    derivatives = np.array([eta_derivatives(model, node)[0] for node in nodes])
    eta_proposal = _eta_proposal(np.array([node.eta for node in nodes]), derivatives, scale)
    return _with_means(model, engine, nodes, eta_proposal)


def transport_around(
    model: BayesianLinear, engine: Engine, etas: Array, eta_proposal: EtaProposal | None
) -> Transport:
    """Gaussians at nodes around these draws of ``eta``; the proposal of ``eta`` is unchanged."""
    middle = float(np.clip(np.median(etas), MIN_ETA, MAX_ETA))
    scale = float(np.clip(np.std(etas), MIN_ETA_SCALE, MAX_ETA_SCALE))
    centre = fit_gaussian(model, engine, eta=middle)
    return _with_means(model, engine, _nodes(model, engine, centre, scale), eta_proposal)


def _nodes(model: BayesianLinear, engine: Engine, centre: Gaussian, scale: float) -> list[Gaussian]:
    etas = [centre.eta + distance * scale for distance in NODE_DISTANCES]
    return [centre if e == centre.eta else fit_gaussian(model, engine, centre, e) for e in etas]


def _eta_proposal(etas: Array, derivatives: Array, scale: float) -> EtaProposal:
    """Proposal of ``eta`` with scales from the drop of the log evidence to the inner nodes."""
    drops = 0.5 * (derivatives[1:] + derivatives[:-1]) * np.diff(etas)
    scales = []
    for drop in (drops[1], -drops[2]):
        bounded = max(float(drop), 0.25)  # bounds the scale of a flat side
        scales.append(1.5 * scale / np.sqrt(2.0 * bounded))
    return EtaProposal(float(etas[2]), *scales)


def _with_means(
    model: BayesianLinear, engine: Engine, nodes: list[Gaussian], eta_proposal: EtaProposal | None
) -> Transport:
    means = np.stack([node.mean for node in nodes])
    roots = np.stack([node.root for node in nodes])
    if model.joint:
        means = means + _mean_shift(model, engine, nodes[len(nodes) // 2])
    return Transport(
        np.array([node.eta for node in nodes]), means, roots, eta_proposal, model.prior
    )


def _mean_shift(model: BayesianLinear, engine: Engine, node: Gaussian) -> Array:
    """Approximate shift from mode to mean: the gradient averaged over the Gaussian becomes zero."""
    half = np.random.default_rng(0).standard_normal((ANTITHETIC, len(node.mean)))
    deviations = np.concatenate([half, -half]) @ node.root.T
    shift = np.zeros_like(node.mean)
    eta = np.full(len(deviations), node.eta)
    for _ in range(SHIFTS):
        theta = node.mean + shift + deviations
        _, raw = engine.reduce(model.gradients, add_pairs, state=model.raw(theta))
        gradient = model.standard_gradient(raw) + model.prior.derivative(theta, eta)
        shift += node.root @ (node.root.T @ gradient.mean(axis=0))
    return shift
