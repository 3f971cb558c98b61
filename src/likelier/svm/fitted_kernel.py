"""Which kernel an SVM has, from its parameters and the gamma that the fit has found.

``fitted`` has the parameters and fitted attributes by their names: an estimator, or what a model
file holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array
from likelier.kernels import Kernel, Linear, Precomputed, make_kernel

KERNELS_WITH_GAMMA = ("rbf", "poly", "sigmoid", "laplacian", "matern", "matern32", "matern52")


@dataclass(frozen=True)
class Constant(Linear):
    """Constant kernel, the limit of kernels at ``gamma=0`` or ``degree=0``."""

    value: float = 1.0

    name: ClassVar[str] = "constant"

    def _values(self, G: Array) -> None:
        G[:] = self.value


def is_custom(kernel: Any) -> bool:
    """Whether the kernel is a function of the user."""
    return callable(kernel) and not isinstance(kernel, Kernel)


def is_precomputed(kernel: Any) -> bool:
    """Whether the solver works on a kernel matrix, from the user or a kernel function."""
    if isinstance(kernel, Kernel):
        return kernel.precomputed
    return callable(kernel) or bool(kernel == "precomputed")


def fitted_kernel(fitted: Any) -> Kernel:
    """The kernel with the fitted gamma."""
    kernel, gamma = fitted.kernel, fitted._gamma
    if is_custom(kernel):
        return Precomputed()
    if isinstance(kernel, str) and _is_constant(kernel, gamma, fitted.degree):
        return Constant(_constant_value(kernel, float(fitted.coef0), int(fitted.degree)))
    return make_kernel(kernel, gamma=gamma, degree=int(fitted.degree), coef0=float(fitted.coef0))


def _is_constant(kernel: str, gamma: float, degree: int) -> bool:
    """Whether the kernel is constant."""
    if kernel == "poly" and degree == 0:
        return True
    return gamma == 0.0 and kernel in KERNELS_WITH_GAMMA


def _constant_value(kernel: str, coef0: float, degree: int) -> float:
    """The value of the kernel for ``gamma`` or ``degree`` zero."""
    if kernel == "sigmoid":
        return float(np.tanh(coef0))
    return coef0**degree if kernel == "poly" else 1.0


def dense(table: Any) -> Any:
    """A matrix as a plain array; anything else as it is."""
    to_array = getattr(table, "toarray", None)
    return table if to_array is None else to_array()
