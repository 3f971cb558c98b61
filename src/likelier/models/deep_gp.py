"""The deep Gaussian process and its energy, as in the formulas, in JAX.

``F = - sum_{layers, nodes} D_{1-e}(q || p) + N/(alpha |B|) sum_{n in B} log (1/S) sum_s Z_{n,s}``
with ``Z_{n,s} = E_{N(h | mean_s, var_s)}[p(y_n | h)^alpha]`` is maximised: power expectation
propagation with one tied factor per layer. ``alpha = 1`` is expectation propagation, and towards
zero it becomes doubly stochastic variational inference.

Samples go from layer to layer, ``h = mean + sqrt(var + noise) xi`` with one ``xi`` per (sample,
row, node), fresh in every layer and seen by all nodes of the next one. The last layer is not
sampled: its mean and variance go to the likelihood.

References
----------
Bui et al., "Deep Gaussian processes for regression using approximate expectation propagation",
2016. Salimbeni and Deisenroth, "Doubly stochastic variational inference for deep Gaussian
processes", 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from likelier.base import Model
from likelier.models.deep_gp_data import log_mean_z
from likelier.models.deep_gp_layer import Law, Layer, layer_moments, node_law
from likelier.models.deep_gp_posterior import MOST_REMOVED


class Parameters(NamedTuple):
    """Everything that is learned: the layers and one number of the likelihood."""

    layers: tuple[Layer, ...]
    likelihood: Any


class Fixed(NamedTuple):
    """What is not learned but may differ between data sets of one compiled shape.

    Attributes
    ----------
    projections : tuple of arrays of shape (D, P)
        Mean functions ``m(x) = x^T B`` of all layers; zero in the last.
    masks : tuple of arrays of shape (M,)
        Which inducing points exist.
    nodes : tuple of arrays of shape (P,)
        Which nodes exist.
    power, total, n_classes, noise_floor : arrays of shape ()
        ``alpha``, ``N`` (the sum of weights), how many classes, least noise of a regression.
    """

    projections: tuple[Any, ...]
    masks: tuple[Any, ...]
    nodes: tuple[Any, ...]
    power: Any
    total: Any
    n_classes: Any
    noise_floor: Any


class Rows(NamedTuple):
    """A minibatch: rows, targets, and weights times ``N / |B|``; padded rows weigh nothing."""

    X: Any
    y: Any
    weight: Any


@dataclass(frozen=True)
class DeepGP(Model):
    """Shape of a deep Gaussian process: what a compiled program depends on.

    Attributes
    ----------
    widths : tuple of int
        Inputs, nodes of every layer; the last are the outputs.
    n_inducing, n_samples : int
    kernel : {"rbf", "matern32", "matern52"}
    per_node : bool
        Whether every node has a kernel of its own, or all nodes of a layer share one.
    likelihood : str
        One of `likelier.models.deep_gp_data.LIKELIHOODS`.
    dtype : {"float32", "float64"}
    """

    has_energy: ClassVar[bool] = True

    widths: tuple[int, ...]
    n_inducing: int
    n_samples: int
    kernel: str = "rbf"
    per_node: bool = False
    likelihood: str = "gaussian"
    dtype: str = "float64"

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return len(self.widths) - 1

    @property
    def n_classes(self) -> int:
        """How many classes there are; two of them have one output."""
        return max(2, self.widths[-1])

    def energy(
        self, parameters: Parameters, fixed: Fixed, rows: Rows, xi: tuple[jax.Array, ...]
    ) -> jax.Array:
        """``-F / N`` estimated from a minibatch, to be minimised; ``xi`` as in `propagate`.

        Cost: ``M^2`` for every node and row of the first layer, ``S M^2`` for the others.
        """
        e = jnp.minimum(fixed.power / fixed.total, MOST_REMOVED)
        laws = tuple(node_law(layer, e) for layer in parameters.layers)
        mean, variance = self.propagate(parameters, fixed, laws, rows.X, xi)
        value = log_mean_z(self.likelihood, rows.y, (mean, variance), parameters.likelihood, fixed)
        data_term = (rows.weight * value).sum()
        divergence = jnp.stack([law.divergence for law in laws]).sum()
        return jnp.asarray((divergence - data_term) / fixed.total)

    def propagate(
        self,
        parameters: Parameters,
        fixed: Fixed,
        laws: tuple[Law, ...],
        X: jax.Array,
        xi: tuple[jax.Array, ...],
    ) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the outputs for every sample and row, ``(S, B, P)`` each.

        ``xi`` holds standard normal numbers of shape ``(S, B, P)`` for every layer but the last.
        All samples share the first layer's moments.
        """
        h, n_rows = X, X.shape[0]
        for depth, (layer, law) in enumerate(zip(parameters.layers, laws, strict=True)):
            mean, variance = layer_moments(self.kernel, layer, fixed.masks[depth], law, h)
            mean = (mean + h @ fixed.projections[depth]).reshape(-1, n_rows, mean.shape[-1])
            variance = variance.reshape(mean.shape)
            if depth + 1 == self.n_layers:
                return mean, variance
            drawn = mean + jnp.sqrt(variance + jnp.exp(layer.log_noise)) * xi[depth]
            h = (drawn * fixed.nodes[depth]).reshape(-1, mean.shape[-1])
        raise ValueError("a deep Gaussian process needs at least one layer")
