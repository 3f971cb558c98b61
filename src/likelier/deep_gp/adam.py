"""Training of a deep Gaussian process: Adam on its energy, many steps per call.

A call runs a fixed number of steps inside one compiled loop. What the program depends on are
padded shapes; rows, random numbers, learning rates and the number of rows are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from likelier.base import Array, Engine, Inference, Info
from likelier.deep_gp.compile import compiled_program, own_settings
from likelier.deep_gp.feed import Feed
from likelier.deep_gp.layer import Layer
from likelier.deep_gp.model import DeepGP, Fixed, Parameters, Rows
from likelier.deep_gp.posterior import (
    DeepPosterior,
    plain_layers,
    removed_share,
    shared_normals,
)
from likelier.deep_gp.start import (
    KernelStart,
    Start,
    cut,
    pad,
    padded_size,
    start_layers,
    with_kernel,
)
from likelier.fitting.standardize import Standard

STEPS = 20  # of one call
FIRST_DECAY, SECOND_DECAY, TINY = 0.9, 0.999, 1e-10
LAST_RATE = 0.02  # of the first one; the rate falls along half a cosine
SAMPLE_ROWS = 10_000  # rows that inducing points and principal axes are found from
START_NOISE, START_LABEL_NOISE = 0.1, 0.01
INPUT_SIZES = (4, 8, 16, 32, 64, 128)
NODE_SIZES = (4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
INDUCING_SIZES = (50, 100, 128, 160, 200, 256, 384, 512)
# inducing points and outputs up to which, as with one layer, compiling takes longer than running
SMALL = 50
SHORT = 200  # minibatches
BATCH_SIZES = (64, 256, 512)


class Running(NamedTuple):
    """What the compiled loop carries: parameters and the two moments of their slopes."""

    parameters: Parameters
    first: Parameters
    second: Parameters
    step: Any


@dataclass(frozen=True)
class DeepState:
    """State of the training; ``model`` has true shapes, ``running`` holds padded arrays."""

    model: DeepGP
    running: Running
    projections: list[Array]
    feed: Feed | None
    horizon: int

    @property
    def step(self) -> int:
        """How many steps have been done."""
        return int(self.running.step)


def training_loop(model: DeepGP) -> Callable[..., tuple[Running, jax.Array]]:
    """The loop to compile; a step whose slopes are not finite, or of rate zero, changes nothing."""
    slopes_of = jax.value_and_grad(model.energy)

    def one_step(
        fixed: Fixed, moving: jax.Array, running: Running, inputs: Any
    ) -> tuple[Running, jax.Array]:
        rows, xi, rate = inputs
        energy, slopes = slopes_of(running.parameters, fixed, Rows(*rows), xi)
        slopes = slopes._replace(layers=tuple(kernel_slopes(g, moving) for g in slopes.layers))
        finite = jnp.isfinite(sum(jnp.vdot(g, g) for g in jax.tree.leaves(slopes)))
        moves = (rate > 0.0) & finite
        step = running.step + 1
        first_scale = 1.0 / (1.0 - FIRST_DECAY ** step.astype(rate.dtype))
        second_scale = 1.0 / (1.0 - SECOND_DECAY ** step.astype(rate.dtype))

        def keep(old: Any, new: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(moves, b, a), old, new)

        first = keep(running.first, jax.tree.map(
            lambda m, g: FIRST_DECAY * m + (1.0 - FIRST_DECAY) * g, running.first, slopes
        ))  # fmt: skip
        second = keep(running.second, jax.tree.map(
            lambda v, g: SECOND_DECAY * v + (1.0 - SECOND_DECAY) * g * g, running.second, slopes
        ))  # fmt: skip
        parameters = keep(running.parameters, jax.tree.map(
            lambda p, m, v: p - rate * first_scale * m / (jnp.sqrt(second_scale * v) + TINY),
            running.parameters, first, second,
        ))  # fmt: skip
        step = jnp.where(rate > 0.0, step, running.step)
        return Running(parameters, first, second, step), energy

    def loop(
        running: Running, fixed: Fixed, rows: Any, xi: Any, rates: Any, moving: jax.Array
    ) -> Any:
        def body(carry: Running, inputs: Any) -> tuple[Running, jax.Array]:
            return one_step(fixed, moving, carry, inputs)

        return jax.lax.scan(body, running, (rows, xi, rates))

    return loop


def kernel_slopes(slopes: Layer, moving: jax.Array) -> Layer:
    """Slopes of a layer whose kernel moves where ``moving`` is one, and stays where it is zero."""
    return slopes._replace(
        log_scale=moving * slopes.log_scale, log_amplitude=moving * slopes.log_amplitude
    )


@dataclass(frozen=True)
class DeepAdam(Inference):
    """Adam with a cosine schedule; a step of the inference is `STEPS` minibatches.

    Attributes
    ----------
    standard : Standard
        How inputs are scaled.
    total : float
        Sum of the weights, ``N``.
    power : float
        ``alpha``, in (0, 1].
    max_iter : int
        Minibatches in all.
    batch_size : int
    rate : float
        First learning rate.
    n_draws : int
        Samples of a prediction.
    noise_floor : float
        Least noise variance of a regression, in units of the targets' variance.
    seed : int
    kernel : KernelStart or None
        A kernel to keep; None starts with a length scale typical of the rows and learns.

    Notes
    -----
    Cost of a minibatch: ``M^2`` for every row and node of the first layer, as much for every
    sample, row and node of the others, and ``M^3`` for every node.

    There are no natural gradients: the best ``q`` of the last layer, where they would lead, lowers
    the energy per row by at most 0.0063 after 2,000 minibatches of Adam (few rows have fewer, and
    more to gain), on the sets of the page of benchmarks. At power 1 the energy is no bound, and the
    precision that such a step asks for need not be positive definite.
    """

    standard: Standard
    total: float
    power: float = 0.5
    max_iter: int = 2000
    batch_size: int = 256
    rate: float = 0.02
    n_draws: int = 128
    noise_floor: float = 1e-5
    seed: int = 0
    kernel: KernelStart | None = None

    def init(self, model: DeepGP, engine: Engine) -> DeepState:
        """Place inducing points and mean functions by a sample of the rows."""
        batch = engine.sample(SAMPLE_ROWS)
        X = self.standard.apply(batch.X, np.float64)
        rng = np.random.default_rng([self.seed, 2])
        start = start_layers(X, batch.weight, model.widths, model.n_inducing, model.per_node, rng)
        if self.kernel is not None:
            start = with_kernel(start, self.kernel)
        model = replace(model, n_inducing=len(start.layers[0]["inducing"]))
        noise = np.log(START_NOISE)
        if model.likelihood in ("probit", "probit_ep", "argmax"):
            share = START_LABEL_NOISE * model.n_classes / (model.n_classes - 1.0)
            noise = np.log(share / (1.0 - share))
        return self.resume(model, start, np.asarray(noise), None, engine)

    def resume(
        self, model: DeepGP, start: Start, likelihood: Array, moments: Any, engine: Engine
    ) -> DeepState:
        """State from true arrays; ``moments`` are those of `plain_state`, or None at the start."""
        padded = padded_model(model)
        parameters = _pad_parameters(padded, start.layers, likelihood)
        first = second = jax.tree.map(np.zeros_like, parameters)
        step = np.asarray(0, np.int32)
        if moments is not None:
            first = _pad_parameters(padded, moments["first"], moments["first_likelihood"])
            second = _pad_parameters(padded, moments["second"], moments["second_likelihood"])
            step = np.asarray(moments["step"], np.int32)
        rows = min(self.batch_size, engine.n_rows or self.batch_size)
        batch_rows = padded_size(rows, BATCH_SIZES) if rows < self.batch_size else rows
        feed = Feed(engine, self.standard, batch_rows, padded.widths[0], model.dtype)
        running = Running(parameters, first, second, step)
        return DeepState(model, running, start.projections, feed, self.max_iter)

    def step(self, state: DeepState, engine: Engine) -> tuple[DeepState, Info]:
        """Run `STEPS` minibatches, fewer at the end of the schedule."""
        assert state.feed is not None
        padded, fixed = padded_model(state.model), self._fixed(state)
        first = state.step
        rows = state.feed.take(first, STEPS)
        xi = self._normals(padded, first, rows.y.shape[1])
        rates = self._rates(first, state.horizon).astype(padded.dtype)
        moving = np.asarray(self.kernel is None, padded.dtype)
        arguments = (state.running, fixed, tuple(rows), xi, rates, moving)
        with own_settings():
            name = (repr(padded), STEPS)
            program = compiled_program(
                lambda: training_loop(padded), arguments, name, self._effort(padded)
            )
            running, energies = program(*arguments)
            energy = np.asarray(energies)[rates > 0.0]
            running = jax.tree.map(np.asarray, running)
        done = int(running.step) - first
        passes = done * rows.y.shape[1] / max(1, engine.n_rows or 1)
        value = float(np.mean(energy)) if len(energy) else float("nan")
        over = int(running.step) >= state.horizon
        return replace(state, running=running), Info(value, passes=passes, converged=over)

    def posterior(self, state: DeepState) -> DeepPosterior:
        """What the state says about new rows."""
        plain = plain_state(state)
        n_hidden = sum(state.model.widths[1:-1])
        normals = shared_normals(self.n_draws, n_hidden, self.seed)
        removed = removed_share(self.power, self.total)
        return DeepPosterior(
            plain["layers"], state.projections, state.model.kernel, normals, removed
        )

    def _effort(self, padded: DeepGP) -> str:
        """How much it is worth to optimise a program of this model and so many minibatches."""
        if padded.n_inducing > SMALL and len(padded.widths) > 2:
            return "usual"
        short = self.max_iter <= SHORT and padded.widths[-1] <= SMALL
        return "least" if short else "little"

    def _rates(self, first: int, horizon: int) -> Array:
        steps = first + np.arange(STEPS)
        share = np.minimum(steps / max(1, horizon), 1.0)
        rates = self.rate * (LAST_RATE + (1.0 - LAST_RATE) * 0.5 * (1.0 + np.cos(np.pi * share)))
        return np.where(steps < horizon, rates, 0.0)

    def _normals(self, padded: DeepGP, first: int, batch_rows: int) -> tuple[Array, ...]:
        """Standard normal numbers of all steps, samples, rows and hidden nodes."""
        rng = np.random.default_rng([self.seed, 1, first])
        number: Any = padded.dtype
        return tuple(
            rng.standard_normal((STEPS, padded.n_samples, batch_rows, nodes), dtype=number)
            for nodes in padded.widths[1:-1]
        )

    def _fixed(self, state: DeepState) -> Fixed:
        model, padded = state.model, padded_model(state.model)
        dtype, widths = padded.dtype, padded.widths
        ones = np.ones(model.n_inducing)
        return Fixed(
            tuple(
                pad(B, widths[depth : depth + 2], dtype)
                for depth, B in enumerate(state.projections)
            ),
            tuple(pad(ones, (padded.n_inducing,), dtype) for _ in state.projections),
            tuple(
                pad(np.ones(true), (size,), dtype)
                for true, size in zip(model.widths[1:], widths[1:], strict=True)
            ),
            *(
                np.asarray(value, dtype)
                for value in (self.power, self.total, model.n_classes, self.noise_floor)
            ),
        )


def padded_model(model: DeepGP) -> DeepGP:
    """The same with sizes that a compiled program exists for; outputs stay as they are."""
    widths = (
        padded_size(model.widths[0], INPUT_SIZES),
        *(padded_size(nodes, NODE_SIZES) for nodes in model.widths[1:-1]),
        model.widths[-1],
    )
    n_samples = model.n_samples if model.n_layers > 1 else 1
    n_inducing = padded_size(model.n_inducing, INDUCING_SIZES)
    return replace(model, widths=widths, n_inducing=n_inducing, n_samples=n_samples)


def plain_state(state: DeepState) -> dict[str, Any]:
    """Everything needed to predict or to go on, as NumPy arrays without padding."""
    running, shapes = state.running, _shapes(state.model)

    def cut_layers(parameters: Parameters) -> list[dict[str, Array]]:
        layers = plain_layers(parameters.layers)
        return [
            {name: cut(array, shape[name]) for name, array in layer.items()}
            for layer, shape in zip(layers, shapes, strict=True)
        ]

    return {
        "layers": cut_layers(running.parameters),
        "likelihood": np.asarray(running.parameters.likelihood),
        "first": cut_layers(running.first),
        "first_likelihood": np.asarray(running.first.likelihood),
        "second": cut_layers(running.second),
        "second_likelihood": np.asarray(running.second.likelihood),
        "step": state.step,
    }


def _shapes(model: DeepGP) -> list[dict[str, tuple[int, ...]]]:
    """Shapes of the arrays of every layer."""
    out = []
    for inputs, nodes in zip(model.widths[:-1], model.widths[1:], strict=True):
        M, kernels = model.n_inducing, nodes if model.per_node else 1
        out.append(Layer((M, inputs), (kernels, inputs), (kernels,), (nodes, M), (nodes, M, M), ())
                   ._asdict())  # fmt: skip
    return out


def _pad_parameters(padded: DeepGP, layers: Any, likelihood: Array) -> Parameters:
    made = tuple(
        Layer(**{name: pad(plain[name], shape, padded.dtype) for name, shape in shapes.items()})
        for plain, shapes in zip(layers, _shapes(padded), strict=True)
    )
    return Parameters(made, np.asarray(likelihood, padded.dtype))
