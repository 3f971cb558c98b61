"""Kernel functions, as frozen values that compute the kernel matrix of two sets of rows.

====================  =========================================================
`Rbf`                 ``exp(-sum_j gamma_j (x_j - y_j)^2)``
`Laplacian`           ``exp(-sum_j gamma_j |x_j - y_j|)``
`Matern`              ``(1 + s) exp(-s)`` for nu = 3/2, ``(1 + s + s^2/3) exp(-s)``
                      for nu = 5/2, ``s^2 = 4 nu sum_j gamma_j (x_j - y_j)^2``
`Poly`                ``(gamma <x, y> + coef0)^degree``
`Sigmoid`             ``tanh(gamma <x, y> + coef0)``
`Linear`              ``<x, y>``
`Precomputed`         rows are rows of the kernel matrix
`Custom`              any function of two matrices
====================  =========================================================

``gamma`` means the same for every Matern kernel and the RBF limit (nu to infinity). In terms of a
length scale, ``gamma = 1 / (2 length^2)``.

`Kernel.prepare` caches per-row work (scaling, squared norms) for callers that need many blocks.
Values are float32 if all rows are, else float64.
"""

from __future__ import annotations

from likelier.kernels.base import Kernel, Prepared
from likelier.kernels.kinds import (
    Custom,
    Laplacian,
    Linear,
    Matern,
    Poly,
    Precomputed,
    Rbf,
    Sigmoid,
)
from likelier.kernels.make import KERNELS, gamma_from_data, kernel_from_json, make_kernel

__all__ = [
    "KERNELS",
    "Custom",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Poly",
    "Precomputed",
    "Prepared",
    "Rbf",
    "Sigmoid",
    "gamma_from_data",
    "kernel_from_json",
    "make_kernel",
]
