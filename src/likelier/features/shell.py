"""Shared scikit-learn interface of the feature maps."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state

from likelier.base import FeatureMap, Matrix
from likelier.kernels import make_kernel
from likelier.matrices import validated_rows


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
