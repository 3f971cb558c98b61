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
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from likelier.base import Model
from likelier.deep_gp.chunks import chunk_rows, in_chunks, summed
from likelier.deep_gp.layer import Law, Layer, Ready, node_law, ready_layer, row_moments
from likelier.deep_gp.posterior import MOST_REMOVED
from likelier.deep_gp.targets import log_mean_z


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
        """How many layers there are."""
        return len(self.widths) - 1

    @property
    def n_classes(self) -> int:
        """How many classes there are; two of them have one output."""
        return max(2, self.widths[-1])

    def energy(
        self, parameters: Parameters, fixed: Fixed, rows: Rows, xi: tuple[jax.Array, ...]
    ) -> jax.Array:
        """``-F / N`` estimated from a minibatch, to be minimised; ``xi`` as in `hidden`.

        Cost: ``M^2`` for every node and row of the first layer, ``S M^2`` for the others.
        """
        e = jnp.minimum(fixed.power / fixed.total, MOST_REMOVED)
        laws = tuple(node_law(layer, e) for layer in parameters.layers)
        h = self.hidden(parameters, fixed, laws, rows.X, xi)
        data_term = self.data_term(parameters, fixed, laws, h, rows)
        divergence = jnp.stack([law.divergence for law in laws]).sum()
        return jnp.asarray((divergence - data_term) / fixed.total)

    def hidden(
        self,
        parameters: Parameters,
        fixed: Fixed,
        laws: tuple[Law, ...],
        X: jax.Array,
        xi: tuple[jax.Array, ...],
    ) -> jax.Array:
        """What the last layer is fed with: every sample of every row, ``(S, B, D)``.

        ``xi`` holds standard normal numbers of shape ``(S, B, P)`` for every layer but the last.
        All samples share the first layer's moments.
        """
        h = X[None]
        for depth, layer in enumerate(parameters.layers[:-1]):
            ready = self.ready(parameters, fixed, laws, depth, h)
            of_rows = partial(row_moments, self.kernel, ready)
            moments = in_chunks(of_rows, h.reshape(-1, h.shape[-1]))
            mean, variance = (part.T.reshape(*h.shape[:2], -1) for part in moments)
            mean = mean + h @ fixed.projections[depth]
            h = mean + jnp.sqrt(variance + jnp.exp(layer.log_noise)) * xi[depth]
            h = h * fixed.nodes[depth]
        return h

    def ready(
        self, parameters: Parameters, fixed: Fixed, laws: tuple[Law, ...], depth: int, h: jax.Array
    ) -> Ready:
        """The layer of this depth, made ready for the rows ``h``, ``(S, B, D)``."""
        layer, mask, n_rows = parameters.layers[depth], fixed.masks[depth], h.shape[0] * h.shape[1]
        return ready_layer(self.kernel, layer, mask, laws[depth], n_rows)

    def outputs(self, ready: Ready, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the outputs for every sample and row of ``h``, ``(S, B, P)`` each.

        The last layer has no mean function.
        """
        moments = row_moments(self.kernel, ready, h.reshape(-1, h.shape[-1]))
        mean, variance = (part.T.reshape(*h.shape[:2], -1) for part in moments)
        return mean, variance

    def data_term(
        self, parameters: Parameters, fixed: Fixed, laws: tuple[Law, ...], h: jax.Array, rows: Rows
    ) -> jax.Array:
        """``N/(alpha |B|) sum_{n in B} log (1/S) sum_s Z_{n,s}``, a sum over chunks of rows."""
        ready = self.ready(parameters, fixed, laws, self.n_layers - 1, h)

        def of_chunk(learned: Any, h: jax.Array, given: Any) -> jax.Array:
            ready, parameter = learned
            y, weight = given
            value = log_mean_z(self.likelihood, y, self.outputs(ready, h), parameter, fixed)
            return jnp.asarray((weight * value).sum())

        n_samples, n_rows, width = h.shape
        size = chunk_rows(n_rows, n_samples, self.dtype)
        chunks = jnp.moveaxis(h.reshape(n_samples, -1, size, width), 1, 0)
        given = (rows.y.reshape(-1, size), rows.weight.reshape(-1, size))
        return jnp.asarray(summed(of_chunk, (ready, parameters.likelihood), chunks, given))
