"""The deep Gaussian process and its energy, in JAX.

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
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from likelier.base import Model
from likelier.deep_gp.chunks import chunk_rows, in_chunks, summed
from likelier.deep_gp.layer import (
    Cavity,
    Layer,
    PreparedLayer,
    layer_cavity,
    prepare_layer,
    row_moments,
)
from likelier.deep_gp.propagation import MAX_CAVITY_FRACTION
from likelier.deep_gp.targets import log_mean_z


class Parameters(NamedTuple):
    """Learned parameters: the layers and one parameter of the likelihood."""

    layers: tuple[Layer, ...]
    likelihood: Any


class Fixed(NamedTuple):
    """Constants of a data set, which are arguments of the compiled program.

    Attributes
    ----------
    projections : tuple of arrays of shape (D, P)
        Mean functions ``m(x) = x^T B`` of all layers; zero in the last.
    masks : tuple of arrays of shape (M,)
        One for inducing points, zero for padding.
    nodes : tuple of arrays of shape (P,)
        One for nodes, zero for padding.
    power, total, n_classes, noise_floor : arrays of shape ()
        ``alpha``, ``N`` (the sum of weights), the number of classes, the minimum noise variance of
        a regression.
    """

    projections: tuple[Any, ...]
    masks: tuple[Any, ...]
    nodes: tuple[Any, ...]
    power: Any
    total: Any
    n_classes: Any
    noise_floor: Any


class Rows(NamedTuple):
    """A minibatch: rows, targets, and weights times ``N / |B|``; padded rows have weight zero."""

    X: Any
    y: Any
    weight: Any


@dataclass(frozen=True)
class DeepGP(Model):
    """Shape of a deep Gaussian process, which determines the compiled program.

    Attributes
    ----------
    widths : tuple of int
        Number of inputs, then of nodes of every layer; the last nodes are the outputs.
    n_inducing, n_samples : int
    kernel : {"rbf", "matern32", "matern52"}
    per_node : bool
        Whether every node has its own kernel instead of one per layer.
    likelihood : str
        One of `likelier.deep_gp.targets.LIKELIHOODS`.
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
        """Number of layers."""
        return len(self.widths) - 1

    @property
    def n_classes(self) -> int:
        """Number of classes; two classes share one output."""
        return max(2, self.widths[-1])

    def energy(
        self, parameters: Parameters, fixed: Fixed, rows: Rows, xi: tuple[jax.Array, ...]
    ) -> jax.Array:
        """``-F / N`` estimated from a minibatch, to be minimised; ``xi`` as in `hidden`.

        Cost: ``M^2`` for every node and row of the first layer, ``S M^2`` for the others.
        """
        e = jnp.minimum(fixed.power / fixed.total, MAX_CAVITY_FRACTION)
        cavities = tuple(layer_cavity(layer, e) for layer in parameters.layers)
        h = self.hidden(parameters, fixed, cavities, rows.X, xi)
        data_term = self.data_term(parameters, fixed, cavities, h, rows)
        divergence = jnp.stack([cavity.divergence for cavity in cavities]).sum()
        return jnp.asarray((divergence - data_term) / fixed.total)

    def hidden(
        self,
        parameters: Parameters,
        fixed: Fixed,
        cavities: tuple[Cavity, ...],
        X: jax.Array,
        xi: tuple[jax.Array, ...],
    ) -> jax.Array:
        """Inputs of the last layer for every sample and row, ``(S, B, D)``.

        ``xi`` holds standard normal draws of shape ``(S, B, P)`` for every layer but the last.
        All samples share the moments of the first layer.
        """
        h = X[None]
        for depth, layer in enumerate(parameters.layers[:-1]):
            prepared = self.prepare(parameters, fixed, cavities, depth, h)
            of_rows = partial(row_moments, self.kernel, prepared)
            moments = in_chunks(of_rows, h.reshape(-1, h.shape[-1]))
            mean, variance = (part.T.reshape(*h.shape[:2], -1) for part in moments)
            mean = mean + h @ fixed.projections[depth]
            h = mean + jnp.sqrt(variance + jnp.exp(layer.log_noise)) * xi[depth]
            h = h * fixed.nodes[depth]
        return h

    def prepare(
        self,
        parameters: Parameters,
        fixed: Fixed,
        cavities: tuple[Cavity, ...],
        depth: int,
        h: jax.Array,
    ) -> PreparedLayer:
        """The layer at ``depth``, prepared for the rows ``h``, ``(S, B, D)``."""
        layer, mask, n_rows = parameters.layers[depth], fixed.masks[depth], h.shape[0] * h.shape[1]
        return prepare_layer(self.kernel, layer, mask, cavities[depth], n_rows)

    def outputs(self, prepared: PreparedLayer, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the outputs for every sample and row of ``h``, ``(S, B, P)`` each.

        The last layer has no mean function.
        """
        moments = row_moments(self.kernel, prepared, h.reshape(-1, h.shape[-1]))
        mean, variance = (part.T.reshape(*h.shape[:2], -1) for part in moments)
        return mean, variance

    def data_term(
        self,
        parameters: Parameters,
        fixed: Fixed,
        cavities: tuple[Cavity, ...],
        h: jax.Array,
        rows: Rows,
    ) -> jax.Array:
        """``N/(alpha |B|) sum_{n in B} log (1/S) sum_s Z_{n,s}``, a sum over chunks of rows."""
        prepared = self.prepare(parameters, fixed, cavities, self.n_layers - 1, h)

        def of_chunk(learned: Any, h: jax.Array, given: Any) -> jax.Array:
            prepared, parameter = learned
            y, weight = given
            value = log_mean_z(self.likelihood, y, self.outputs(prepared, h), parameter, fixed)
            return jnp.asarray((weight * value).sum())

        n_samples, n_rows, width = h.shape
        size = chunk_rows(n_rows, n_samples, self.dtype)
        chunks = jnp.moveaxis(h.reshape(n_samples, -1, size, width), 1, 0)
        given = (rows.y.reshape(-1, size), rows.weight.reshape(-1, size))
        return jnp.asarray(summed(of_chunk, (prepared, parameters.likelihood), chunks, given))
