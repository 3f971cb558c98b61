"""Gaussian posterior of output weights, as plain arrays: scores of rows and their covariance.

`laplace` makes it; predictions need nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.files.declared import check_array, check_number
from likelier.kernel_machine.features import TINY
from likelier.kernel_machine.integrate import centred
from likelier.kernel_machine.triangles import lower_inverse

# residual above which a row is out of support: about three length scales away
OUT_OF_SUPPORT = 0.9999
TRUST_ROWS = 10.0  # out-of-support rows after which intercepts are half trusted there
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class WeightPosterior:
    """Mean and covariance of the weights.

    Attributes
    ----------
    mean : array of shape (n_features, n_outputs)
    roots : array of shape (blocks, size, size)
        Inverse Cholesky factors of the blocks of ``H``; variances are squared norms.
    layout : {"joint", "reduced", "per_class", "shared"}
    prior_variance : float
        Variance of a score without informative features.
    bases : array of shape (n_outputs, n_features, r), optional
        For the layout "reduced": orthonormal basis per class, in which the roots are given. The
        last column is the constant.
    outside : array of shape (n_outputs,), optional
        Variance of the weights of every class outside of its basis.
    """

    mean: Array
    roots: Array
    layout: str
    prior_variance: float
    bases: Array | None = None
    outside: Array | None = None

    def check(self, n_features: int, n_outputs: int) -> None:
        """Raise a ValueError unless all arrays have the shapes that predicting needs."""
        D, C = n_features, n_outputs
        check_array("weights_", self.mean, (D, C))
        check_number("prior_variance_", self.prior_variance, 0.0)
        if self.layout == "reduced":
            bases: Any = self.bases
            check_array("bases_", bases, (C, D, None))
            check_array("outside_", self.outside, (C,), low=0.0)
            size = C * bases.shape[2]
            check_array("roots_", self.roots, (1, size, size))
            return
        if self.bases is not None or self.outside is not None:
            raise ValueError(f"layout_={self.layout!r} has no bases")
        sizes = {"joint": (1, C * D), "shared": (1, D), "per_class": (C, D)}
        if self.layout not in sizes:
            raise ValueError(f"layout_ must be one of {sorted(sizes)}, and is {self.layout!r}")
        blocks, size = sizes[self.layout]
        check_array("roots_", self.roots, (blocks, size, size))

    def scores(self, Phi: Array) -> Array:
        """Mean scores, ``(n, n_outputs)``."""
        return np.asarray(Phi @ self.mean.astype(Phi.dtype), dtype=np.float64)

    def covariance(self, Phi: Array, residual: Array) -> Array:
        """Covariance of the scores of each row: ``(n, n_outputs)`` variances, or matrices.

        Costs (blocks x) size^2 multiplications per row; half of it for the joint layout, plus
        features x size for the bases.
        """
        extra = self.prior_variance * residual
        n_outputs = self.mean.shape[1]
        if self.bases is not None:
            return self._reduced_covariance(Phi, extra, self.bases)
        if self.layout != "joint" or n_outputs == 1:
            parts = [_squares(Phi, root) for root in self.roots]
            columns = parts * (n_outputs if self.layout == "shared" else 1)
            return np.asarray(np.stack(columns, axis=1) + extra[:, None])
        D = Phi.shape[1]
        root = self.roots[0].reshape(-1, n_outputs, D).astype(Phi.dtype)
        pushed = np.einsum("skd,nd->nsk", root, Phi, optimize=True)
        full = np.einsum("nsk,nsl->nkl", pushed, pushed, optimize=True).astype(np.float64)
        return np.asarray(full + extra[:, None, None] * np.eye(n_outputs))

    def _reduced_covariance(self, Phi: Array, extra: Array, bases: Array) -> Array:
        """Covariance in single precision, which suffices for a scale."""
        C, D, r = bases.shape
        flat = np.ascontiguousarray(bases.transpose(1, 0, 2).reshape(D, C * r), np.float32)
        root = np.asarray(self.roots[0], dtype=np.float32)
        full = np.empty((len(Phi), C, C))
        for start in range(0, len(Phi), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            part = Phi[rows].astype(np.float32)
            part[np.abs(part) < TINY] = 0.0  # avoid slow subnormal arithmetic
            inside = part @ flat
            pushed = np.zeros((C, len(part), C * r), dtype=np.float32)
            for k in range(C):
                own = slice(k * r, (k + 1) * r)
                pushed[k, :, k * r :] = inside[:, own] @ root[k * r :, own].T
            by_row = pushed.transpose(1, 0, 2)
            full[rows] = by_row @ by_row.transpose(0, 2, 1)
            inside = inside.reshape(len(part), C, r)[:, :, :-1]
            known = np.einsum("nkr,nkr->nk", inside, inside, dtype=np.float64)
            length = np.einsum("nd,nd->n", part[:, :-1], part[:, :-1], dtype=np.float64)
            remainder = self.outside * np.maximum(length[:, None] - known, 0.0)
            full[rows, range(C), range(C)] += remainder + extra[rows, None]
        return full

    def draw(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Draws of the weights, ``(n_draws, n_features, n_outputs)``."""
        D, C = self.mean.shape
        if self.bases is not None and self.outside is not None:
            bases, root = self.bases.astype(np.float64), self.roots[0].astype(np.float64)
            inside = (rng.standard_normal((n_draws, len(root))) @ root).reshape(n_draws, C, -1)
            remainder = np.sqrt(self.outside)[:, None] * rng.standard_normal((n_draws, C, D))
            inside -= np.einsum("skd,kdr->skr", remainder, bases, optimize=True)
            return np.asarray(
                self.mean + remainder.transpose(0, 2, 1)
                + np.einsum("skr,kdr->sdk", inside, bases, optimize=True)
            )  # fmt: skip
        if self.layout == "joint":
            z = rng.standard_normal((n_draws, C * D)) @ self.roots[0].astype(np.float64)
            return np.asarray(self.mean + z.reshape(n_draws, C, D).transpose(0, 2, 1))
        roots = self.roots if self.layout == "per_class" else np.repeat(self.roots, C, axis=0)
        z = [rng.standard_normal((n_draws, D)) @ root.astype(np.float64) for root in roots]
        return np.asarray(self.mean + np.stack(z, axis=2))

    def precision(self) -> Array:
        """Precision of the weights of every output, ``(n_outputs, D, D)``, without cross-terms.

        Costs features^3 per output at most.
        """
        D, C = self.mean.shape
        if self.bases is None or self.outside is None:
            whole = [_from_root(root) for root in self.roots]
            if self.layout == "joint":
                return np.stack([whole[0][s : s + D, s : s + D] for s in range(0, C * D, D)])
            return np.stack(whole * (C if self.layout == "shared" else 1))
        full, r, blocks = _from_root(self.roots[0]), self.bases.shape[2], []
        bases = self.bases.astype(np.float64)
        for k, (basis, outer) in enumerate(zip(bases, self.outside, strict=True)):
            own = slice(k * r, (k + 1) * r)
            inner = full[own, own] - np.eye(r) / outer
            blocks.append(basis @ inner @ basis.T + np.eye(D) / outer)
        return np.stack(blocks)


def _from_root(root: Array) -> Array:
    factor = lower_inverse(root.astype(np.float64))
    return np.asarray(factor @ factor.T)


def add_variance(covariance: Array, variance: Array) -> Array:
    """Add a variance per row to the scores of all outputs."""
    if covariance.ndim == 2:
        return np.asarray(covariance + variance[:, None])
    return np.asarray(covariance + variance[:, None, None] * np.eye(covariance.shape[1]))


def extrapolation_degree(residual: Array) -> Array:
    """Extrapolation degree of rows: zero among the data, one where no feature is active."""
    return np.asarray(np.clip((residual - OUT_OF_SUPPORT) / (1.0 - OUT_OF_SUPPORT), 0.0, 1.0))


def mean_score_variance(covariance: Array) -> Array:
    """Mean variance of the scores of each row.

    For matrices it is that of the deviation from the class mean: data never inform the mean of all
    scores, whose variance stays that of the prior.
    """
    if covariance.ndim == 2:
        return np.asarray(covariance.mean(axis=1))
    deviation_variance = centred(covariance).trace(axis1=1, axis2=2)
    return np.asarray(deviation_variance / (covariance.shape[1] - 1))


def restore_prior_variance(
    covariance: Array, degree: Array, prior_variance: float, scale: float
) -> Array:
    """Restore the full prior variance out of support, before scaling by ``scale``.

    Held-out rows chose the posterior scale, which says nothing about rows unlike them. ``degree``
    is the `extrapolation_degree` of the rows.
    """
    if not 0.0 < scale < 1.0:
        return covariance
    return add_variance(covariance, (1.0 / scale - 1.0) * prior_variance * degree)


def _squares(Phi: Array, root: Array) -> Array:
    pushed = Phi @ root.T.astype(Phi.dtype)
    return np.asarray(np.einsum("ij,ij->i", pushed, pushed, dtype=np.float64))
