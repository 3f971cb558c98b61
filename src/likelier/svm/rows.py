"""Training rows of an SVM, prepared for its kernel once for all problems."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from likelier.base import Array
from likelier.kernels import Prepared
from likelier.svm.kernel_cache import in_precision
from likelier.svm.model import Subset


@dataclass
class Rows:
    """Rows of positive weight, prepared for the kernel, and their indices in the data.

    ``working`` holds the rows in float32, shared by all problems.
    """

    prepared: Prepared
    indices: Array
    weight: Array | None
    dense_bytes: int
    part: Array | None = None  # indices of the training rows of a cross-validation fold
    working: Prepared | None = None

    def make_working(self, many: bool) -> None:
        """Convert all rows once, to float32 if there are many; not for precomputed kernels."""
        if self.working is not None or self.prepared.kernel.precomputed:
            return
        if many:
            self.working = in_precision(self.prepared, np.float32, self.dense_bytes)
        if self.working is None or isinstance(self.working.X, np.ndarray):
            # dense rows make exact values faster, too
            self.prepared = in_precision(self.prepared, np.float64, self.dense_bytes // 4)

    def subset(self, inside: Array | None) -> Subset:
        """A subset of the rows as a problem."""
        if self.part is not None:
            inside = self.part if inside is None else self.part[inside]
        return Subset(self.prepared, inside, self.working)

    def restricted(self, part: Array) -> Rows:
        """The same rows, restricted to ``part`` for a fit."""
        weight = None if self.weight is None else self.weight[part]
        return replace(self, part=part, weight=weight)
