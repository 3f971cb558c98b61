"""Shared scikit-learn interface of the feature maps."""

from __future__ import annotations

import operator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state

from likelier.base import Array, FeatureMap, Matrix
from likelier.kernels import make_kernel
from likelier.matrices import validated_rows

# Intermediate values per block, which should fit the L2 cache of a core.
BLOCK_VALUES = 1 << 17


class KernelFeatures(FeatureMap, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class: a transformer that is also a `FeatureMap`."""

    kernel: Any
    gamma: Any
    random_state: Any
    n_components_: int

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__gamma`` etc. replace the kernel by a modified one.

        If the kernel is given by name, they set the parameters of the transformer itself.
        """
        own = {k: v for k, v in params.items() if not k.startswith("kernel__")}
        super().set_params(**own)
        nested = {k.removeprefix("kernel__"): v for k, v in params.items() if k not in own}
        if isinstance(self.kernel, str) and nested:
            make_kernel(self.kernel, gamma=1.0).set_params(**nested)  # validates
            own = {k: v for k, v in nested.items() if k in self.get_params(deep=False)}
            super().set_params(**own)
            nested = {k: v for k, v in nested.items() if k not in own}
        if nested:
            self.kernel = make_kernel(self.kernel, gamma=self.gamma).set_params(**nested)
        return self

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _rows(self, X: Any, reset: bool) -> Matrix:
        """Validated rows: float32 or float64, dense or CSR."""
        return validated_rows(self, X, reset)

    def _stream(self) -> np.random.Generator:
        """Random generator of one fit."""
        if isinstance(self.random_state, np.random.Generator):
            return self.random_state
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return np.random.default_rng(seed)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def resolve_count(n_components: Any, automatic: int) -> int:
    """Validated number of features; ``automatic`` for "auto"."""
    if isinstance(n_components, str):
        if n_components != "auto":
            raise ValueError(
                f"n_components must be a positive integer or 'auto', got {n_components!r}"
            )
        return automatic
    try:
        if isinstance(n_components, bool):
            raise TypeError
        count = operator.index(n_components)
    except TypeError:
        raise TypeError(
            f"n_components must be a positive integer or 'auto', got {n_components!r}"
        ) from None
    if count < 1:
        raise ValueError(f"n_components must be at least 1, got {count}")
    return count


def block_rows(width: int) -> int:
    """Number of rows per block for this many intermediate values per row."""
    return min(max(BLOCK_VALUES // max(width, 1), 32), 1024)


def output_for(X: Matrix, width: int, out: Array | None) -> Array:
    """Validated ``out``, or a new array."""
    shape = (X.shape[0], width)
    if out is None:
        return np.empty(shape, dtype=X.dtype)
    if out.shape != shape or out.dtype != X.dtype or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be a C-contiguous {X.dtype} array of shape {shape}, "
            f"got {out.dtype} of shape {out.shape}"
        )
    return out
