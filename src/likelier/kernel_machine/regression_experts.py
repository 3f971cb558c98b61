"""Local experts of a regression: closed forms, validated by leave-one-out residuals.

An expert is a ridge regression on the residual of the global model,
``A = Phi^T Omega Phi + rho I`` as in `regression`; all variances are in units of the noise.
Leaving one row out needs no refit, so every row that is not a landmark validates an expert that
has learned all others.

The noise is re-estimated with the experts, which explain part of what was noise to the global
model. The posterior of the global model keeps its width, by a factor on its variances. The part of
the function that its features do not carry is left to the experts, and stays uncertain in
proportion to their remaining prior variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.expert_model import Experts, by_region, expert_map
from likelier.kernel_machine.experts import FIXED_INTERCEPT, LIMITS, Region
from likelier.kernel_machine.features import LandmarkMap
from likelier.kernel_machine.laplace import WeightPosterior
from likelier.kernel_machine.noise import NoiseShape, noise_shape
from likelier.kernel_machine.regression import (
    MIN_NOISE,
    Weights,
    leave_out,
    regression_sums,
    solve_weights,
)
from likelier.kernel_machine.search import Choice, IndependentFits
from likelier.kernel_machine.softmax_weights import Prior, ridge
from likelier.kernel_machine.triangles import lower_inverse

MIN_NOISE_ROWS = 300  # non-landmark rows that suffice for the noise estimate


def fit_regression_expert(
    region: Region, feature_map: LandmarkMap, choice: Choice
) -> WeightPosterior:
    """Posterior of an expert. Costs rows x landmarks^2 and landmarks^3."""
    prior = _first_prior(region, feature_map, choice)
    return _solved(region, feature_map(region.Z, np.float32), choice.precision, prior)


def _first_prior(region: Region, feature_map: LandmarkMap, choice: Choice) -> Prior:
    """Prior of zero correction; the intercept is fixed at zero, however heavy the rows are."""
    constant = FIXED_INTERCEPT * max(typical_weight(region.weight), 1.0)
    return Prior(ridge(feature_map.n_features, choice.precision, constant))


def absorb_regression_rows(
    region: Region, feature_map: LandmarkMap, before: WeightPosterior
) -> WeightPosterior:
    """Posterior after more rows; the previous posterior is their prior."""
    factor = lower_inverse(before.roots[0].astype(np.float64))
    prior = Prior(factor @ factor.T, before.mean)
    return _solved(region, feature_map(region.Z, np.float32), 1.0 / before.prior_variance, prior)


def _solved(region: Region, Phi: Array, ratio: float, prior: Prior) -> WeightPosterior:
    sums = regression_sums(Phi, region.codes - region.offset[:, 0], region.weight)
    weights = solve_weights(sums, ratio, prior)
    return WeightPosterior(weights.mean[:, None], weights.root[None], "joint", 1.0 / ratio)


def corrected_global_variance(inside: Array, outside: Array, remaining: Array) -> Array:
    """Variance of the global model where experts correct it, in units of the noise.

    ``inside`` is the variance of its weights, ``outside`` that outside of its features, and
    ``remaining`` the remaining fraction of the experts' prior variance: one far away.
    """
    return np.asarray(inside + np.minimum(remaining, 1.0) * outside)


@dataclass(frozen=True)
class LeaveOneOut:
    """Leave-one-out residuals, variances and weights.

    Variances are those of the expert and of the global model, in units of their noise.
    """

    residual: Array
    expert_variance: Array
    global_variance: Array
    omega: Array

    @classmethod
    def of(
        cls,
        region: Region,
        rows: Array,
        Phi: Array,
        feature_map: LandmarkMap,
        posterior: WeightPosterior,
    ) -> LeaveOneOut:
        """Some rows of a region with a fitted expert; ``Phi`` are the features of all its rows."""
        part, ratio = region.take(rows), 1.0 / posterior.prior_variance
        weights = Weights(posterior.mean[:, 0], posterior.roots[0], ratio)
        omega = np.ones(part.n) if part.weight is None else part.weight
        targets = part.codes - part.offset[:, 0]
        residual, inside = leave_out(weights, Phi[rows], targets, omega)
        expert_variance = inside + feature_map.residual(Phi[rows]) / ratio
        variance = np.asarray(part.variance)
        global_variance = corrected_global_variance(
            variance[:, 0], variance[:, 1], ratio * expert_variance
        )
        return cls(residual / variance[:, 2], expert_variance, global_variance, omega)

    @classmethod
    def join(cls, parts: list[LeaveOneOut]) -> LeaveOneOut:
        """Concatenate rows of several regions."""
        names = ("residual", "expert_variance", "global_variance", "omega")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class NoiseModel:
    """Variance and shape of the noise, and a factor on the global model's variances.

    A target has the variance ``noise (1 + expert_variance + global_scale global_variance)``.
    """

    noise: float
    shape: NoiseShape
    global_scale: float

    def losses(self, loo: LeaveOneOut) -> Array:
        """Negative log density of every row."""
        std = np.sqrt(
            self.noise * (1.0 + loo.expert_variance + self.global_scale * loo.global_variance)
        )
        return np.asarray(np.log(std) - self.shape.log_density(loo.residual / std))


def fit_noise(loo: LeaveOneOut, global_noise: float | None = None) -> NoiseModel:
    """Fit the noise model to leave-one-out residuals.

    ``global_noise`` is the noise variance of the global model alone; None if there are no experts.
    """
    scale = 1.0
    if global_noise is not None:
        noise_without_global = float(
            np.average(loo.residual**2 / (1.0 + loo.expert_variance), weights=loo.omega)
        )
        scale = max(global_noise / max(noise_without_global, MIN_NOISE), 1.0)
    variance = 1.0 + loo.expert_variance + scale * loo.global_variance
    noise = max(float(np.average(loo.residual**2 / variance, weights=loo.omega)), MIN_NOISE)
    shape = noise_shape(loo.residual / np.sqrt(noise * variance), loo.omega)
    return NoiseModel(noise * shape.variance, shape, scale)


class RegressionExpertValidator(IndependentFits):
    """Leave-one-out losses of expert hyperparameters on a few regions.

    At most half of the rows of a region are landmarks; the others validate.
    """

    def __init__(
        self, regions: list[Region], global_noise: float, n_landmarks: int, seed: int
    ) -> None:
        self.regions, self.global_noise = regions, global_noise
        self._n_landmarks, self._seed = n_landmarks, seed
        self._maps: dict[int, tuple[float, LandmarkMap, Array]] = {}
        self._validation = [self._validation_rows(number) for number in range(len(regions))]
        self._latest: tuple[Choice, LeaveOneOut] | None = None
        weights = [region.weight for region in regions if region.weight is not None]
        unit = typical_weight(np.concatenate(weights) if weights else None)
        self.limits = (unit * LIMITS[0], unit * LIMITS[1])

    @property
    def omega(self) -> Array:
        """Weights of the validation rows."""
        return self._global_only().omega

    def baseline(self) -> Array:
        """Losses of the global model alone."""
        loo = self._global_only()
        return fit_noise(loo).losses(loo)

    def losses(self, choice: Choice) -> Array:
        """Loss of every validation row, with the noise profiled out."""
        loo = self._leave_out(choice)
        return fit_noise(loo, self.global_noise).losses(loo)

    def noise_model(self, choice: Choice) -> NoiseModel:
        """Noise model with these experts."""
        return fit_noise(self._leave_out(choice), self.global_noise)

    def _global_only(self) -> LeaveOneOut:
        parts = []
        for region, others in zip(self.regions, self._validation, strict=True):
            part = region.take(others)
            omega = np.ones(part.n) if part.weight is None else part.weight
            inside, outside, keep = np.asarray(part.variance).T
            residual, zeros = (part.codes - part.offset[:, 0]) / keep, np.zeros(part.n)
            parts.append(LeaveOneOut(residual, zeros, inside + outside, omega))
        return LeaveOneOut.join(parts)

    def _leave_out(self, choice: Choice) -> LeaveOneOut:
        if self._latest is None or self._latest[0] != choice:
            parts = []
            for number, region in enumerate(self.regions):
                feature_map, Phi = self._features(number, choice.scale)
                prior = _first_prior(region, feature_map, choice)
                posterior = _solved(region, Phi, choice.precision, prior)
                parts.append(
                    LeaveOneOut.of(region, self._validation[number], Phi, feature_map, posterior)
                )
            self._latest = (choice, LeaveOneOut.join(parts))
        return self._latest[1]

    def _landmarks(self, number: int) -> tuple[int, np.random.Generator]:
        """Number of landmarks of a region, and the generator that draws them."""
        half = max(1, self.regions[number].n // 2)
        return min(self._n_landmarks, half), np.random.default_rng([self._seed, number])

    def _validation_rows(self, number: int) -> Array:
        m, rng = self._landmarks(number)
        return np.sort(rng.permutation(self.regions[number].n)[m:])

    def _features(self, number: int, scale: float) -> tuple[LandmarkMap, Array]:
        """Features of a region, cached for the last scale; landmarks do not depend on it."""
        if number not in self._maps or self._maps[number][0] != scale:
            m, rng = self._landmarks(number)
            feature_map = expert_map(self.regions[number].Z, scale, m, rng)
            self._maps[number] = (
                scale,
                feature_map,
                feature_map(self.regions[number].Z, np.float32),
            )
        return self._maps[number][1:]


def expert_noise(experts: Experts, region: Region, global_noise: float) -> NoiseModel | None:
    """Noise model with fitted experts, from some of their rows in all regions.

    Landmarks are excluded if there are enough other rows, since the features were made for them.
    None if no expert has learned any of the rows.
    """
    parts, others = [], []
    for expert, rows in by_region(experts.tree.regions(region.Z)):
        if not experts.counts[expert]:
            continue
        feature_map, inside = experts.map(expert), region.take(rows)
        Phi = feature_map(inside.Z, np.float32)
        W, root = experts.weights[expert].astype(np.float64), experts.roots[expert][None]
        posterior = WeightPosterior(W, root, "joint", experts.prior_variance)
        parts.append(LeaveOneOut.of(inside, np.arange(inside.n), Phi, feature_map, posterior))
        others.append(~_among(inside.Z * np.float32(experts.scale), feature_map.landmarks))
    if not parts:
        return None
    loo, other = LeaveOneOut.join(parts), np.concatenate(others)
    if other.sum() >= MIN_NOISE_ROWS:
        loo = LeaveOneOut(
            loo.residual[other],
            loo.expert_variance[other],
            loo.global_variance[other],
            loo.omega[other],
        )
    return fit_noise(loo, global_noise)


def _among(rows: Array, landmarks: Array) -> Array:
    """Mask of the rows that equal a landmark, bit by bit."""
    known = {row.tobytes() for row in landmarks}
    return np.array([row.tobytes() in known for row in rows], dtype=bool)
