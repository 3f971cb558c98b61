"""Chains of a sampler: where they are, all draws so far, and their random numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from likelier.base import Array, Engine, Matrix, Posterior
from likelier.bayesian_linear.model import BayesianLinear
from likelier.bayesian_linear.posterior import DrawsPosterior
from likelier.predictive import ClassPredictive

MAX_PASSES = 1 << 40  # of one problem, so that pass numbers of problems do not overlap


def appended(parts: tuple[Array, ...], new: Array, axis: int = 1) -> tuple[Array, ...]:
    """Parts of an array that grows along an axis, and a new one at its end.

    Neighbours are joined like digits of a binary counter: n parts are kept as about log2(n)
    arrays, each number is copied about log2(n) times, and no array changes.
    """
    parts = (*parts, new)
    while len(parts) > 1 and parts[-2].shape[axis] <= parts[-1].shape[axis]:
        parts = (*parts[:-2], np.concatenate(parts[-2:], axis=axis))
    return parts


@dataclass(frozen=True)
class ChainState:
    """Current positions of the chains, and all draws since the warm-up began or ended.

    ``theta`` has shape (chains, parameters) and is in standard coordinates, ``eta`` (chains,) is
    the logarithm of the learned prior precision. Draws are parts of arrays (chains, draws, ...).
    """

    model: BayesianLinear
    theta: Array
    eta: Array
    iteration: int = 1
    thetas: tuple[Array, ...] = ()
    etas: tuple[Array, ...] = ()

    def recorded(self, thetas: Array, etas: Array) -> Self:
        """The next iteration, with new draws (chains, draws, ...)."""
        return replace(
            self, iteration=self.iteration + 1,
            thetas=appended(self.thetas, thetas), etas=appended(self.etas, etas),
        )  # fmt: skip

    def warmed_up(self) -> Self:
        """Without the draws so far, which were warm-up."""
        return replace(self, thetas=(), etas=())

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return sum(part.shape[1] for part in self.thetas)

    def draws(self) -> ChainDraws:
        """All draws, or the current positions if there are none."""
        if not self.thetas:
            return ChainDraws(self.model, self.theta[:, None], self.eta[:, None])
        joined = [np.concatenate(parts, axis=1) for parts in (self.thetas, self.etas)]
        return ChainDraws(self.model, *joined)


@dataclass(frozen=True)
class ChainDraws(Posterior):
    """Draws of shape (chains, draws, parameters) in standard coordinates, and of ``eta``."""

    model: BayesianLinear
    theta: Array
    eta: Array

    def in_data_units(self) -> Array:
        """Draws (chains, draws, outputs, parameters per output) in the units of the data."""
        return self.model.in_data_units(self.theta)

    def predictive(self, X: Matrix) -> ClassPredictive:
        model = self.model
        theta, d = self.in_data_units(), model.linear.n_features
        return DrawsPosterior.of(theta, d, model.hinge, model.joint).predictive(X)


def pass_number(model: BayesianLinear, iteration: int, output: int = 0) -> int:
    """Number of a pass over the rows, which keys its random stream.

    One-vs-rest problems share an engine. With a common stream their draws would be correlated,
    although their posteriors are independent.
    """
    # problem 0 is that of class 1, the only one of a binary classification
    problem = 0 if model.joint else model.positive_class ^ 1
    return problem * MAX_PASSES + iteration * model.linear.n_outputs + output


def chain_stream(engine: Engine, model: BayesianLinear, iteration: int) -> np.random.Generator:
    """Random stream of an iteration, not tied to a block."""
    return engine.stream(2 * pass_number(model, iteration) + 1, 0)
