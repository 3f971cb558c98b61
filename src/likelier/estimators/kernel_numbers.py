"""How a kernel regression learns from streams: whole passes, or batch by batch.

Batch by batch, the first rows are kept until there are enough to learn scales and landmarks
from; then a batch only adds to the sums that the weights are solved from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from likelier.base import Array, Batch, Matrix
from likelier.engines import StreamEngine
from likelier.engines.rows import stack_rows
from likelier.engines.threads import one_blas_thread
from likelier.estimators.kernel_fit import KernelFit
from likelier.estimators.kernel_stream import GROWTH, START_ROWS
from likelier.estimators.kernel_words import Clock, by_evidence
from likelier.estimators.problem import NumberSource, Summary, require_targets, summarise
from likelier.inference.kernel_regression import Sums, Weights, batch_sums, solve_weights
from likelier.models.kernel_machine import Standard, restore_map


class NumberStream(KernelFit):
    """Streams of numbers to predict."""

    weights_: list[Array]
    roots_: list[Array]
    ratio_: Array
    noise_: Array

    def _set_units(self, mean: float, spread: float) -> None:
        self.target_mean_ = mean
        constant = not spread > 1e-12 * max(1.0, abs(mean))
        self.target_spread_ = 1.0 if constant else spread

    def _open_encoded(self, source: Any, seed: int) -> tuple[Any, int, Standard]:
        """One pass for the spreads of inputs and targets."""

        def look(batch: Batch) -> tuple[Summary, Array]:
            y = self._check_y(require_targets(batch))
            omega = np.ones(len(y)) if batch.weight is None else batch.weight
            return summarise(batch, True), np.array([omega.sum(), omega @ y, omega @ y**2])

        engine = StreamEngine(source, seed=seed, shuffle=False)
        summary, sums = engine.reduce(look, lambda a, b: (a[0] + b[0], a[1] + b[1]))
        mean = float(sums[1] / sums[0])
        self._set_units(mean, float(np.sqrt(max(sums[2] / sums[0] - mean**2, 0.0))))
        standard = Standard.from_sums(summary.sums, summary.squares, summary.weight)
        return _UnitSource(source, mean, self.target_spread_), summary.n_rows, standard

    @available_if(by_evidence)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn some rows, once.

        Up to 4,000 rows are kept, for scales and landmarks; after that a batch only adds to
        the sums the weights are solved from, ``rows x features^2``, and nothing else is kept.
        """
        self._check_words()
        fresh = not hasattr(self, "stream_")
        X, y, weight = self._check_rows(X, y, sample_weight, fresh and not hasattr(self, "maps_"))
        return self._learn(X, y, weight, self._seed() if fresh else self.stream_["seed"])

    def _learn(self, X: Matrix, y: Array, weight: Array | None, seed: int) -> Self:
        if self._n_particles() != 1 or self.loss != "gaussian":
            raise ValueError('batch by batch needs n_particles=1 and loss="gaussian"')
        if not hasattr(self, "stream_"):
            self.stream_: dict[str, Any] = {"seed": seed, "learned": 0, "absorbing": False}
        omega = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        if self.stream_["absorbing"]:
            self._absorb(X, y, omega)
        else:
            self._keep(X, y, omega, seed)
        return self

    def _keep(self, X: Matrix, y: Array, omega: Array, seed: int) -> None:
        state = self.stream_
        if "X" in state:
            X = stack_rows([state["X"], X])
            y, omega = np.concatenate([state["y"], y]), np.concatenate([state["omega"], omega])
        state.update(X=X, y=y, omega=omega)
        if state["learned"] and len(y) < min(START_ROWS, GROWTH * state["learned"]):
            return
        self._fit_memory(X, y, omega, seed, Clock(self, (X, y)))
        state["learned"] = len(y)
        if len(y) >= START_ROWS:
            state["absorbing"] = True
            for name in ("X", "y", "omega"):
                del state[name]

    def _end_stream(self) -> None:
        state = self.stream_
        if "X" in state and state["learned"] < len(state["y"]):
            state["learned"] = 0
            none = np.empty(0, dtype=np.intp)
            self._keep(state["X"][none], state["y"][none], state["omega"][none], state["seed"])

    def _absorb(self, X: Matrix, y: Array, omega: Array) -> None:
        """Add to the sums; the noise is a running mean of rows before they are learned."""
        made = restore_map(self.maps_[0])
        targets = (y - self.target_mean_) / self.target_spread_
        with one_blas_thread():
            Phi = made(X, np.float64)
            before = Sums(**self.stream_["sums"])
            old = Weights(self.weights_[0], self.roots_[0], float(self.ratio_[0]))
            expected = 1.0 + old.variance(Phi, made.residual(Phi))
            fresh = float(omega @ ((targets - Phi @ old.mean) ** 2 / expected))
            sums = before + batch_sums(Batch(X, targets, omega), Phi)
            weights = solve_weights(sums, old.ratio)
        noise = (self.noise_[0] / self.target_spread_) ** 2
        noise = (noise * before.weight + fresh) / max(sums.weight, 1e-300)
        self.noise_ = np.sqrt([noise]) * self.target_spread_
        self.weights_, self.roots_ = [weights.mean], [weights.root]
        self.stream_["sums"] = {
            "gram": sums.gram, "cross": sums.cross, "weight": sums.weight,
        }  # fmt: skip


@dataclass(frozen=True)
class _UnitSource(NumberSource):
    """A source whose targets have mean zero and unit variance."""

    mean: float
    spread: float

    def _encode(self, batch: Batch) -> Batch:
        return replace(
            batch, y=(require_targets(batch).astype(np.float64) - self.mean) / self.spread
        )
