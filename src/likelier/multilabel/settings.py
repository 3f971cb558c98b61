"""The mixture of `MultilabelClassifier` as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from likelier.value import Value, integer, make_value, number, one_of


@dataclass(frozen=True)
class Mixture(Value):
    """Dirichlet-process mixture, as ``mixture=Mixture(...)`` of `MultilabelClassifier`.

    Parameters
    ----------
    n_components : int, default=30
        Maximum number of components, at most one per distinct row; 0 for no mixture.
    features : {"auto", "gaussian", "bernoulli", "multinomial"}, default="auto"
        Distribution of the features: real, binary, or non-negative counts. "auto" infers it.
    label_distribution : {"bernoulli", "multinomial"}, default="bernoulli"
        Distribution of the labels in a component: independent, or one over all labels.
    feature_temperature : float or "auto", default="auto"
        Power in (0, 1] of the features' likelihood; small values keep many features from
        outweighing the labels. "auto" chooses it by the loss of held-out labels.
    batch_size : int or None, default=None
        Rows per stochastic step; None is all at once up to 20,000 rows, and 1,024 above.
    learning_decay : float, default=0.7
        Stochastic steps are proportional to ``t^-learning_decay``, in (0.5, 1].
    max_iter : int, default=100
        Maximum number of passes over the data.
    tol : float, default=1e-4
        Converged when the bound increases by less than this per row.
    """

    kind: ClassVar[str] = "mixture"
    name: ClassVar[str] = "dirichlet_process"
    n_components: int = integer(30, "[0, inf)")
    features: str = one_of("auto", "gaussian", "bernoulli", "multinomial")
    label_distribution: str = one_of("bernoulli", "multinomial")
    feature_temperature: float | str = number("auto", "(0, 1]", "auto")
    batch_size: int | None = integer(None, "[1, inf)", None)
    learning_decay: float = number(0.7, "(0.5, 1]")
    max_iter: int = integer(100, "[1, inf)")
    tol: float = number(1e-4, "[0, inf)")


def make_mixture(mixture: Any) -> Mixture:
    """Return a mixture from itself or its name."""
    return make_value(mixture, Mixture, {"dirichlet_process": Mixture})
