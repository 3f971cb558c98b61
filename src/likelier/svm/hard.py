"""``C=inf``: no error is allowed, at whatever size of the coefficients.

Coefficients that keep every row on its side (or within epsilon) are finite, so that any ``C`` above
them has the same answer. The largest ``C`` that makes sense takes the place of infinity: with
larger coefficients rounding alone would move scores by more than the tolerance. If one reaches it,
there is no such answer, or none that could be told from rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array

ROUNDING = float(np.finfo(np.float64).eps)
LARGEST = 1e150  # products of two coefficients are finite


def finite_values(Cs: list[float], rows: Any, tol: float) -> list[float]:
    """Values of C for the solver, an infinite one replaced."""
    known = [float(C) for C in Cs if np.isfinite(C)]
    if len(known) == len(Cs):
        return known
    scale = float(abs(rows.prepared.diagonal()).max(initial=0.0))
    if rows.weight is not None:  # the bounds of a row are its weight times C
        scale *= float(rows.weight[rows.weight > 0.0].min(initial=1.0))
    largest = max(min(tol / ROUNDING / max(scale, 1.0 / LARGEST), LARGEST), *known, 0.0)
    return [float(C) if np.isfinite(C) else largest for C in Cs]


def reaches(coefficients: Array, C: float, weight: Array | None) -> bool:
    """Whether a coefficient, in the last axis one of every row, is at its bound."""
    bound = C if weight is None else C * weight
    return bool(((abs(coefficients) >= bound) & (coefficients != 0.0)).any())
