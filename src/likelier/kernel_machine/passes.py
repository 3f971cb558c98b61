"""Fitting of kernel machines on streams, in several passes or one."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Engine
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import open_source, stream_engine
from likelier.fitting.extreme_cells import watched
from likelier.fitting.hold_out import split_stream
from likelier.fitting.rows import Rows
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.recipe import MAX_STOP_ROWS, SAMPLE_ROWS, KernelFit


class StreamPasses(KernelFit):
    """Fitting on streams; ``_open_encoded`` encodes their targets."""

    def _fit_stream(
        self, X: Any, y: Any, sample_weight: Any, seed: int, budget: TimeBudget
    ) -> None:
        """Hyperparameters from a sample of the stream; every further pass computes a sum."""
        source = self._open_stream(X, y, sample_weight, bool(budget.before))
        if not source.repeatable:
            if self.inference != "evidence":
                raise ValueError(
                    f"inference={self.inference!r} needs several passes, but X can be read once "
                    "only; pass a path or a list of blocks, or use inference='evidence'"
                )
            for batch in stream_engine(source, seed, False).blocks():
                self._learn(batch.X, self._check_y(np.asarray(batch.y)), batch.weight, seed)
                if budget.tick("stream", f"block {batch.index}"):
                    break
            self._finish_stream()
            return
        encoded, n_rows, standard = self._open_encoded(source, seed)
        if self._stops_early():
            fraction = min(float(self.validation_fraction), MAX_STOP_ROWS / n_rows)
            encoded, n_rows, _, budget.held = split_stream(encoded, fraction, MAX_STOP_ROWS, seed)
        engine, sample = self._stream_engine(encoded, n_rows, seed)
        rng = np.random.default_rng([seed, 0])
        with one_blas_thread():
            self._fit_engine(engine, sample, n_rows, standard, rng, budget)

    def _open_stream(self, X: Any, y: Any, sample_weight: Any, resumed: bool) -> Any:
        """Source of blocks; a resumed fit needs one that can be read again."""
        if sample_weight is not None:
            raise ValueError(
                "sample_weight is not supported for streams; yield (X, y, weight) blocks instead"
            )
        source = watched(open_source(self, X, y), self)
        if resumed and not source.repeatable:
            raise ValueError(
                "warm_start resumes an interrupted fit and must read X again, but X can be read "
                "once only; pass a path or a list of blocks, or set warm_start=False"
            )
        return source

    @staticmethod
    def _stream_engine(encoded: Any, n_rows: int, seed: int) -> tuple[Engine, Rows]:
        """Engine over a stream, and a sample of it."""
        engine = stream_engine(encoded, seed, False)
        engine.know_rows(n_rows)
        batch = engine.sample(SAMPLE_ROWS)
        return engine, Rows(batch.X, np.asarray(batch.y), batch.weight)
