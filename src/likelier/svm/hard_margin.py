"""Hard margins, ``C=inf``.

If a solution without errors exists, its coefficients are finite, and every ``C`` above them gives
the same solution. So infinity is replaced by the largest useful ``C``: with larger coefficients
rounding alone would change scores by more than the tolerance. If a coefficient reaches it, there is
no solution without errors, up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array

ROUNDING = float(np.finfo(np.float64).eps)
LARGEST = 1e150  # products of two coefficients are finite


def finite_penalties(Cs: list[float], rows: Any, tol: float) -> list[float]:
    """Values of C for the solver, with infinite ones replaced."""
    known = [float(C) for C in Cs if np.isfinite(C)]
    if len(known) == len(Cs):
        return known
    scale = float(abs(rows.prepared.diagonal()).max(initial=0.0))
    if rows.weight is not None:  # the bound of a row is its weight times C
        scale *= float(rows.weight[rows.weight > 0.0].min(initial=1.0))
    largest = max(min(tol / ROUNDING / max(scale, 1.0 / LARGEST), LARGEST), *known, 0.0)
    return [float(C) if np.isfinite(C) else largest for C in Cs]


def reaches(coefficients: Array, C: float, weight: Array | None) -> bool:
    """Whether a coefficient is at its bound; the last axis is that of the rows."""
    bound = C if weight is None else C * weight
    return bool(((abs(coefficients) >= bound) & (coefficients != 0.0)).any())
