"""Training of a deep Gaussian process: Adam on its energy, many steps per call.

A call runs a fixed number of steps inside one compiled loop. The program depends on padded shapes
only; rows, random numbers, learning rates and the number of rows are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from likelier.base import Array, Engine, Inference, Info
from likelier.deep_gp.compile import compiled_program, program_settings
from likelier.deep_gp.feed import Feed
from likelier.deep_gp.layer import Layer
from likelier.deep_gp.model import DeepGP, Fixed, Parameters, Rows
from likelier.deep_gp.propagation import DeepPosterior, cavity_fraction
from likelier.deep_gp.start import (
    FixedKernel,
    cut,
    pad,
    padded_size,
    shared_normals,
    start_layers,
    with_kernel,
)
from likelier.fitting.standardize import Standard

STEPS = 20  # minibatches per call of the compiled loop
FIRST_DECAY, SECOND_DECAY, TINY = 0.9, 0.999, 1e-10
LAST_RATE = 0.02  # final learning rate as a fraction of the first (half-cosine schedule)
SAMPLE_ROWS = 10_000  # rows used to place inducing points and principal axes
START_NOISE, START_LABEL_NOISE = 0.1, 0.01
INPUT_SIZES = (4, 8, 16, 32, 64, 128)
NODE_SIZES = (4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
INDUCING_SIZES = (50, 100, 128, 160, 200, 256, 384, 512)
# Compiling takes longer than adam_state with at most SMALL inducing points and outputs (as with one
# layer) or at most SHORT minibatches.
SMALL = 50
SHORT = 200
BATCH_SIZES = (64, 256, 512)


class AdamState(NamedTuple):
    """Carry of the compiled loop: parameters and the two moments of their gradient."""

    parameters: Parameters
    first: Parameters
    second: Parameters
    step: Any


@dataclass(frozen=True)
class DeepState:
    """State of the training, as plain values.

    Attributes
    ----------
    model : DeepGP
        Has true shapes.
    arrays : tuple of arrays
        Padded arrays of `AdamState`, one after another.
    projections : tuple of arrays
        Mean functions.
    horizon : int
        Minibatches at the end of the schedule.
    """

    model: DeepGP
    arrays: tuple[Array, ...]
    projections: tuple[Array, ...]
    horizon: int

    @property
    def step(self) -> int:
        """Number of minibatches done."""
        return int(self.adam_state.step)

    @property
    def adam_state(self) -> AdamState:
        """The arrays by their names."""
        layer = Layer(*Layer._fields)  # anything but None has a place in the structure
        learned = Parameters((layer,) * self.model.n_layers, "likelihood")
        names = AdamState(learned, learned, learned, "step")
        found: AdamState = jax.tree.unflatten(jax.tree.structure(names), self.arrays)
        return found

    def after(self, adam_state: AdamState) -> DeepState:
        """The state with other arrays."""
        return replace(self, arrays=tuple(map(np.asarray, jax.tree.leaves(adam_state))))


def training_loop(model: DeepGP) -> Callable[..., tuple[AdamState, jax.Array]]:
    """The loop to compile; a step with a non-finite gradient or learning rate zero is skipped."""
    value_and_gradient = jax.value_and_grad(model.energy)

    def one_step(
        fixed: Fixed, trainable: jax.Array, adam_state: AdamState, inputs: Any
    ) -> tuple[AdamState, jax.Array]:
        rows, xi, rate = inputs
        energy, gradient = value_and_gradient(adam_state.parameters, fixed, Rows(*rows), xi)
        gradient = gradient._replace(
            layers=tuple(mask_kernel_gradient(g, trainable) for g in gradient.layers)
        )
        finite = jnp.isfinite(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient)))
        accepted = (rate > 0.0) & finite
        step = adam_state.step + 1
        first_scale = 1.0 / (1.0 - FIRST_DECAY ** step.astype(rate.dtype))
        second_scale = 1.0 / (1.0 - SECOND_DECAY ** step.astype(rate.dtype))

        def update(old: Any, new: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(accepted, b, a), old, new)

        first = update(adam_state.first, jax.tree.map(
            lambda m, g: FIRST_DECAY * m + (1.0 - FIRST_DECAY) * g, adam_state.first, gradient
        ))  # fmt: skip
        second = update(adam_state.second, jax.tree.map(
            lambda v, g: SECOND_DECAY * v + (1.0 - SECOND_DECAY) * g * g,
            adam_state.second, gradient,
        ))  # fmt: skip
        parameters = update(adam_state.parameters, jax.tree.map(
            lambda p, m, v: p - rate * first_scale * m / (jnp.sqrt(second_scale * v) + TINY),
            adam_state.parameters, first, second,
        ))  # fmt: skip
        step = jnp.where(rate > 0.0, step, adam_state.step)
        return AdamState(parameters, first, second, step), energy

    def loop(
        adam_state: AdamState, fixed: Fixed, rows: Any, xi: Any, rates: Any, trainable: jax.Array
    ) -> Any:
        def body(carry: AdamState, inputs: Any) -> tuple[AdamState, jax.Array]:
            return one_step(fixed, trainable, carry, inputs)

        return jax.lax.scan(body, adam_state, (rows, xi, rates))

    return loop


def mask_kernel_gradient(gradient: Layer, trainable: jax.Array) -> Layer:
    """Gradient of a layer, with that of its kernel set to zero unless ``trainable`` is one."""
    return gradient._replace(
        log_scale=trainable * gradient.log_scale, log_amplitude=trainable * gradient.log_amplitude
    )


@dataclass(frozen=True)
class DeepAdam(Inference):
    """Adam with a cosine schedule; a step of the inference is `STEPS` minibatches.

    It is ``local_only``: each minibatch needs the parameters after the one before, and takes less
    time than a message to another machine. Rows may come from anywhere, block by block.

    Attributes
    ----------
    standard : Standard
        Standardisation of the inputs.
    total : float
        Sum of the weights, ``N``.
    power : float
        ``alpha``, in (0, 1].
    max_iter : int
        Total number of minibatches.
    batch_size : int
    rate : float
        Initial learning rate.
    n_draws : int
        Samples per prediction.
    noise_floor : float
        Minimum noise variance of a regression, in units of the targets' variance.
    seed : int
    kernel : FixedKernel or None
        A fixed kernel; None learns the kernel, starting from the typical length of the rows.
    feeds : list of Feed
        The place in the rows that the latest step has come to, which saves the next one the way
        there; no result depends on it.

    Notes
    -----
    Cost per minibatch: ``M^2`` for every row and node of the first layer, ``M^2`` for every sample,
    row and node of the others, and ``M^3`` for every node.

    Natural gradients are not used. The optimal ``q`` of the last layer, which they converge to,
    lowers the energy per row by at most 0.0063 after 2,000 minibatches of Adam on the benchmark
    data sets (small data sets run fewer minibatches and would gain more). At power 1 the energy is
    not a bound, and the precision of a natural gradient step need not be positive definite.
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
    kernel: FixedKernel | None = None
    feeds: list[Feed] = field(default_factory=list, init=False, repr=False, compare=False)

    resumable: ClassVar[bool] = True
    local_only: ClassVar[bool] = True

    def init(self, model: DeepGP, engine: Engine) -> DeepState:
        """Initialise inducing points and mean functions from a sample of the rows."""
        batch = engine.sample(SAMPLE_ROWS)
        X = self.standard.apply(batch.X, np.float64)
        rng = np.random.default_rng([self.seed, 2])
        start = start_layers(X, batch.weight, model.widths, model.n_inducing, model.per_node, rng)
        if self.kernel is not None:
            start = with_kernel(start, self.kernel)
        model = replace(model, n_inducing=len(start.layers[0]["inducing"]))
        noise = np.log(START_NOISE)
        if model.likelihood in ("probit", "probit_ep", "argmax"):
            sigmoid = START_LABEL_NOISE * model.n_classes / (model.n_classes - 1.0)
            noise = np.log(sigmoid / (1.0 - sigmoid))
        parameters = _pad_parameters(padded_model(model), start.layers, np.asarray(noise))
        none = jax.tree.map(np.zeros_like, parameters)
        first = AdamState(parameters, none, none, np.asarray(0, np.int32))
        return DeepState(model, (), tuple(start.projections), self.max_iter).after(first)

    def step(self, state: DeepState, engine: Engine) -> tuple[DeepState, Info]:
        """Run `STEPS` minibatches, fewer at the end of the schedule."""
        padded, fixed = padded_model(state.model), self._fixed(state)
        first = state.step
        rows = self._feed(padded, engine).take(first, STEPS)
        xi = self._normals(padded, first, rows.y.shape[1])
        rates = self._rates(first, state.horizon).astype(padded.dtype)
        trainable = np.asarray(self.kernel is None, padded.dtype)
        arguments = (state.adam_state, fixed, tuple(rows), xi, rates, trainable)
        with program_settings():
            name = (repr(padded), STEPS)
            program = compiled_program(
                lambda: training_loop(padded), arguments, name, self._effort(padded)
            )
            adam_state, energies = program(*arguments)
            energy = np.asarray(energies)[rates > 0.0]
            state = state.after(adam_state)
        done = state.step - first
        passes = done * rows.y.shape[1] / max(1, engine.n_rows or 1)
        value = float(np.mean(energy)) if len(energy) else float("nan")
        return state, Info(value, passes=passes, converged=state.step >= state.horizon)

    def _feed(self, padded: DeepGP, engine: Engine) -> Feed:
        """Minibatches of the rows of an engine."""
        rows = min(self.batch_size, engine.n_rows or self.batch_size)
        size = padded_size(rows, BATCH_SIZES) if rows < self.batch_size else rows
        new = Feed(engine, self.standard, size, padded.widths[0], padded.dtype)
        if not (self.feeds and self.feeds[-1].gives_as(new)):
            self.feeds[:] = [new]
        return self.feeds[-1]

    def posterior(self, state: DeepState) -> DeepPosterior:
        """Posterior of the current parameters, for standardised rows."""
        n_hidden = sum(state.model.widths[1:-1])
        normals = shared_normals(self.n_draws, n_hidden, self.seed)
        fraction = cavity_fraction(self.power, self.total)
        return DeepPosterior(
            plain_layers(state), state.projections, state.model.kernel, normals, fraction
        )

    def _effort(self, padded: DeepGP) -> str:
        """Compiler effort that minimises compile time plus run time of this fit."""
        if padded.n_inducing > SMALL and len(padded.widths) > 2:
            return "full"
        short = self.max_iter <= SHORT and padded.widths[-1] <= SMALL
        return "minimal" if short else "reduced"

    def _rates(self, first: int, horizon: int) -> Array:
        steps = first + np.arange(STEPS)
        progress = np.minimum(steps / max(1, horizon), 1.0)
        rates = self.rate * (LAST_RATE + (1.0 - LAST_RATE) * 0.5 * (1.0 + np.cos(np.pi * progress)))
        return np.where(steps < horizon, rates, 0.0)

    def _normals(self, padded: DeepGP, first: int, batch_rows: int) -> tuple[Array, ...]:
        """Standard normal draws for all steps, samples, rows and hidden nodes."""
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
    """The model with its sizes rounded up to those of compiled programs; outputs are not padded."""
    widths = (
        padded_size(model.widths[0], INPUT_SIZES),
        *(padded_size(nodes, NODE_SIZES) for nodes in model.widths[1:-1]),
        model.widths[-1],
    )
    n_samples = model.n_samples if model.n_layers > 1 else 1
    n_inducing = padded_size(model.n_inducing, INDUCING_SIZES)
    return replace(model, widths=widths, n_inducing=n_inducing, n_samples=n_samples)


def plain_layers(state: DeepState) -> list[dict[str, Array]]:
    """Parameters of the layers as NumPy arrays without padding: what predictions need."""
    return [
        {name: cut(array, shape[name]) for name, array in layer._asdict().items()}
        for layer, shape in zip(
            state.adam_state.parameters.layers, _shapes(state.model), strict=True
        )
    ]


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
