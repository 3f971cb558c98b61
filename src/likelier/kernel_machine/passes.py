"""How a kernel machine is fitted by whole passes over a stream, or in the only one there is."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.engines import StreamEngine
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import open_source
from likelier.fitting.extreme_cells import watched
from likelier.fitting.hold_out import split_stream
from likelier.fitting.rows import Rows
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.recipe import SAMPLE_ROWS, STOP_ROWS, KernelFit


class StreamPasses(KernelFit):
    """Fitting of streams; ``_open_encoded`` encodes the targets of one."""

    def _fit_stream(
        self, X: Any, y: Any, sample_weight: Any, seed: int, budget: TimeBudget
    ) -> None:
        """Hyperparameters from a sample of the stream; every further pass is a sum over it."""
        source = self._open_stream(X, y, sample_weight, bool(budget.before))
        if not source.repeatable:
            if self.inference != "evidence":
                raise ValueError(
                    f"inference={self.inference!r} passes over the data many times, and X can be "
                    "read once only: give a path or a list of blocks, or use inference='evidence'"
                )
            for batch in StreamEngine(source, seed=seed, shuffle=False).blocks():
                self._learn(batch.X, self._check_y(np.asarray(batch.y)), batch.weight, seed)
                if budget.tick("stream", f"block {batch.index}"):
                    break
            self._end_stream()
            return
        encoded, n_rows, standard = self._open_encoded(source, seed)
        if self._stops_early():
            fraction = min(float(self.validation_fraction), STOP_ROWS / n_rows)
            encoded, n_rows, _, budget.held = split_stream(encoded, fraction, STOP_ROWS, seed)
        engine, sample = self._stream_engine(encoded, n_rows, seed)
        rng = np.random.default_rng([seed, 0])
        with one_blas_thread():
            self._fit_engine(engine, sample, n_rows, standard, rng, budget)

    def _open_stream(self, X: Any, y: Any, sample_weight: Any, goes_on: bool) -> Any:
        """Blocks of rows; those of an unfinished fit must be there to be read again."""
        if sample_weight is not None:
            raise ValueError(
                "sample_weight of a stream comes with its blocks: yield (X, y, weight)"
            )
        source = watched(open_source(self, X, y), self)
        if goes_on and not source.repeatable:
            raise ValueError(
                "warm_start goes on with rows that are read again, and X can be read once only: "
                "give a path or a list of blocks, or fit with warm_start=False"
            )
        return source

    @staticmethod
    def _stream_engine(encoded: Any, n_rows: int, seed: int) -> tuple[StreamEngine, Rows]:
        """Passes over a stream, and a sample of it."""
        engine = StreamEngine(encoded, seed=seed, shuffle=False)
        engine.know_rows(n_rows)
        batch = engine.sample(SAMPLE_ROWS)
        return engine, Rows(batch.X, np.asarray(batch.y), batch.weight)
