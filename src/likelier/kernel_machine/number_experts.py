"""Local experts for numbers: closed forms, judged by rows that are left out one by one.

An expert is a regression on what the common machine leaves over, ``A = Phi^T Omega Phi + rho I``
as in `kernel_regression`; all variances are in units of the noise. Leaving one row out needs no
second fit, so every row that is no landmark judges an expert that has learned all others.

The noise is learned anew with the experts: they explain some of what was noise to the common
machine. Its own posterior stays as wide as it was, by a factor on its variances. What its
features do not carry of the function is for the experts to learn, and open as far as they have
not: by the share of their prior variance that is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.expert_model import Experts, by_region, expert_map
from likelier.kernel_machine.experts import LIMITS, NO_CONSTANT, Region
from likelier.kernel_machine.features import LandmarkMap
from likelier.kernel_machine.laplace import HeadPosterior
from likelier.kernel_machine.noise import NoiseShape, noise_shape
from likelier.kernel_machine.regression import (
    NOISE_LEAST,
    Weights,
    leave_out,
    regression_sums,
    solve_weights,
)
from likelier.kernel_machine.search import Choice, IndependentFits
from likelier.kernel_machine.softmax_weights import Prior, ridge
from likelier.kernel_machine.triangles import lower_inverse

MANY_OTHERS = 300  # rows that are no landmarks; so many tell the noise by themselves


def fit_number_expert(region: Region, made: LandmarkMap, choice: Choice) -> HeadPosterior:
    """Posterior of an expert. Costs rows x landmarks^2 and landmarks^3."""
    prior = _first_prior(region, made, choice)
    return _solved(region, made(region.Z, np.float32), choice.precision, prior)


def _first_prior(region: Region, made: LandmarkMap, choice: Choice) -> Prior:
    """No correction; the constant is held at zero, however much the rows weigh."""
    constant = NO_CONSTANT * max(typical_weight(region.weight), 1.0)
    return Prior(ridge(made.n_features, choice.precision, constant))


def absorb_numbers(region: Region, made: LandmarkMap, before: HeadPosterior) -> HeadPosterior:
    """Posterior after more rows, that before them being their prior."""
    factor = lower_inverse(before.roots[0].astype(np.float64))
    prior = Prior(factor @ factor.T, before.mean)
    return _solved(region, made(region.Z, np.float32), 1.0 / before.prior_variance, prior)


def _solved(region: Region, Phi: Array, ratio: float, prior: Prior) -> HeadPosterior:
    sums = regression_sums(Phi, region.codes - region.offset[:, 0], region.weight)
    weights = solve_weights(sums, ratio, prior)
    return HeadPosterior(weights.mean[:, None], weights.root[None], "joint", 1.0 / ratio)


def beside_experts(inside: Array, outside: Array, left: Array) -> Array:
    """Variance of the common machine where experts correct it, in units of the noise.

    ``inside`` is what its weights leave open, ``outside`` what its features do not carry, and
    ``left`` the share of their prior variance that the experts have left: one far away.
    """
    return np.asarray(inside + np.minimum(left, 1.0) * outside)


@dataclass(frozen=True)
class LeftOut:
    """Rows as if they had not been learned: residuals, variances, weights.

    Variances are those of the expert and of the common machine, in units of their noise.
    """

    rest: Array
    expert: Array
    common: Array
    omega: Array

    @classmethod
    def of(
        cls, region: Region, rows: Array, Phi: Array, made: LandmarkMap, posterior: HeadPosterior
    ) -> LeftOut:
        """Some rows of a region whose expert is known; ``Phi`` are the features of all."""
        part, ratio = region.take(rows), 1.0 / posterior.prior_variance
        weights = Weights(posterior.mean[:, 0], posterior.roots[0], ratio)
        omega = np.ones(part.n) if part.weight is None else part.weight
        targets = part.codes - part.offset[:, 0]
        rest, inside = leave_out(weights, Phi[rows], targets, omega)
        expert = inside + made.residual(Phi[rows]) / ratio
        variance = np.asarray(part.variance)
        common = beside_experts(variance[:, 0], variance[:, 1], ratio * expert)
        return cls(rest / variance[:, 2], expert, common, omega)

    @classmethod
    def join(cls, parts: list[LeftOut]) -> LeftOut:
        """Rows of several regions."""
        names = ("rest", "expert", "common", "omega")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class NoiseLaw:
    """Variance and shape of the noise, and what the common machine's variances count for.

    A target has the variance ``noise (1 + expert + common_scale common)``.
    """

    noise: float
    shape: NoiseShape
    common_scale: float

    def losses(self, left: LeftOut) -> Array:
        """Minus log density of every row."""
        spread = np.sqrt(self.noise * (1.0 + left.expert + self.common_scale * left.common))
        return np.asarray(np.log(spread) - self.shape.log_density(left.rest / spread))


def noise_law(left: LeftOut, common_noise: float | None = None) -> NoiseLaw:
    """The noise that rows left out tell; ``common_noise`` is that of the common machine alone.

    Without it there are no experts, and the noise is that of the common machine.
    """
    scale = 1.0
    if common_noise is not None:
        alone = float(np.average(left.rest**2 / (1.0 + left.expert), weights=left.omega))
        scale = max(common_noise / max(alone, NOISE_LEAST), 1.0)
    spread = 1.0 + left.expert + scale * left.common
    noise = max(float(np.average(left.rest**2 / spread, weights=left.omega)), NOISE_LEAST)
    shape = noise_shape(left.rest / np.sqrt(noise * spread), left.omega)
    return NoiseLaw(noise * shape.variance, shape, scale)


class NumberJudge(IndependentFits):
    """Losses of choices for the experts of a few regions: rows left out one by one.

    In every region at most half of the rows are landmarks, and the others judge.
    """

    def __init__(
        self, regions: list[Region], common_noise: float, n_landmarks: int, seed: int
    ) -> None:
        self.regions, self.common_noise = regions, common_noise
        self._n_landmarks, self._seed = n_landmarks, seed
        self._maps: dict[int, tuple[float, LandmarkMap, Array]] = {}
        self._others = [self._judging(number) for number in range(len(regions))]
        self._latest: tuple[Choice, LeftOut] | None = None
        weights = [region.weight for region in regions if region.weight is not None]
        unit = typical_weight(np.concatenate(weights) if weights else None)
        self.limits = (unit * LIMITS[0], unit * LIMITS[1])

    @property
    def omega(self) -> Array:
        """Weights of the rows that judge."""
        return self._alone().omega

    def without(self) -> Array:
        """Losses of the common machine alone."""
        left = self._alone()
        return noise_law(left).losses(left)

    def losses(self, choice: Choice) -> Array:
        """Loss of every row that judges, the noise being as good as it can be."""
        left = self._left(choice)
        return noise_law(left, self.common_noise).losses(left)

    def law(self, choice: Choice) -> NoiseLaw:
        """The noise with the experts of a choice."""
        return noise_law(self._left(choice), self.common_noise)

    def _alone(self) -> LeftOut:
        parts = []
        for region, others in zip(self.regions, self._others, strict=True):
            part = region.take(others)
            omega = np.ones(part.n) if part.weight is None else part.weight
            inside, outside, keep = np.asarray(part.variance).T
            rest, nothing = (part.codes - part.offset[:, 0]) / keep, np.zeros(part.n)
            parts.append(LeftOut(rest, nothing, inside + outside, omega))
        return LeftOut.join(parts)

    def _left(self, choice: Choice) -> LeftOut:
        if self._latest is None or self._latest[0] != choice:
            parts = []
            for number, region in enumerate(self.regions):
                made, Phi = self._features(number, choice.scale)
                prior = _first_prior(region, made, choice)
                posterior = _solved(region, Phi, choice.precision, prior)
                parts.append(LeftOut.of(region, self._others[number], Phi, made, posterior))
            self._latest = (choice, LeftOut.join(parts))
        return self._latest[1]

    def _landmarks(self, number: int) -> tuple[int, np.random.Generator]:
        """How many landmarks a region has here, and the numbers they are drawn by."""
        half = max(1, self.regions[number].n // 2)
        return min(self._n_landmarks, half), np.random.default_rng([self._seed, number])

    def _judging(self, number: int) -> Array:
        m, rng = self._landmarks(number)
        return np.sort(rng.permutation(self.regions[number].n)[m:])

    def _features(self, number: int, scale: float) -> tuple[LandmarkMap, Array]:
        """Landmarks of a region are the same rows for every scale; the last features are kept."""
        if number not in self._maps or self._maps[number][0] != scale:
            m, rng = self._landmarks(number)
            made = expert_map(self.regions[number].Z, scale, m, rng)
            self._maps[number] = (scale, made, made(self.regions[number].Z, np.float32))
        return self._maps[number][1:]


def experts_law(experts: Experts, region: Region, common_noise: float) -> NoiseLaw | None:
    """The noise with experts that have learned, from some of their rows of all regions.

    Landmarks are left aside where there are others enough: features were made for them, not for
    new rows. None where no expert has learned any of the rows.
    """
    parts, others = [], []
    for expert, rows in by_region(experts.tree.regions(region.Z)):
        if not experts.counts[expert]:
            continue
        made, inside = experts.map(expert), region.take(rows)
        Phi = made(inside.Z, np.float32)
        W, root = experts.weights[expert].astype(np.float64), experts.roots[expert][None]
        posterior = HeadPosterior(W, root, "joint", experts.prior_variance)
        parts.append(LeftOut.of(inside, np.arange(inside.n), Phi, made, posterior))
        others.append(~_among(inside.Z * np.float32(experts.scale), made.landmarks))
    if not parts:
        return None
    left, other = LeftOut.join(parts), np.concatenate(others)
    if other.sum() >= MANY_OTHERS:
        left = LeftOut(left.rest[other], left.expert[other], left.common[other], left.omega[other])
    return noise_law(left, common_noise)


def _among(rows: Array, landmarks: Array) -> Array:
    """Which rows are landmarks, by all of their digits."""
    known = {row.tobytes() for row in landmarks}
    return np.array([row.tobytes() in known for row in rows], dtype=bool)
