"""State of ``partial_fit``: online learning with classes that may appear at any time.

Every class has an output, in the order of arrival. An additional output learns every row as
negative; a new class starts as its copy, as if it had been known from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Loss
from likelier.fitting.dataset import check_squares, column_sums, informative_squares, wide_counts
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.sgd import MIN_AVERAGE_ROWS, AdaptiveSGD, ScheduledSGD
from likelier.glm.sgd_state import AdaptiveState, SGDState
from likelier.linear.penalty import Columns, Penalty
from likelier.loops.rows import column_counts, column_squares

FEWER_RATES = 2000  # rows after which three global rates are kept
ONE_RATE = 20_000  # rows after which only the best one is kept
AVERAGES_PER_FOLD = 12  # averages taken while the number of rows grows e-fold


@dataclass(frozen=True)
class StreamLearner:
    """Learns batches; the state is a plain dictionary of arrays."""

    inference: AdaptiveSGD | ScheduledSGD
    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    classification: bool
    parameters: dict[str, Any]  # of the estimator, which must not change between batches

    @property
    def spare_outputs(self) -> int:
        """One output for future classes, if outputs are independent."""
        return int(self.classification and not self.loss.coupled)

    def start(self, n_features: int, n_outputs: int, theta: Array | None = None) -> dict[str, Any]:
        """First state, from ``theta`` or from zero."""
        model = self._model(n_features, n_outputs + self.spare_outputs)
        if theta is not None and self.spare_outputs:
            theta = np.hstack([theta, np.zeros((len(theta), 1))])
        inference = self.inference
        if theta is not None and isinstance(inference, AdaptiveSGD):
            # rates above one are for a cold start; here noise could select them
            inference = replace(inference, factors=inference.factors[inference.factors <= 1.0])
        return {"parameters": self.parameters, **pack(inference.start(model, theta))}

    def require_same_kind(self, plain: dict[str, Any]) -> None:
        """Raise for parameters that would change the shape or meaning of the state."""
        known = dict(plain.get("parameters", self.parameters))
        if "auto" not in (known["learning_rate"], self.parameters["learning_rate"]):
            known.pop("learning_rate")  # plain schedules share their state
        else:
            known.pop("average")  # not used by "auto"
        start = getattr(self.inference, "average_from", 0)
        if plain["counters"][1] == 0 or start <= plain["counters"][0]:
            known.pop("average", None)  # averaging has not started
        for name, value in known.items():
            if self.parameters[name] != value:
                raise ValueError(
                    f"partial_fit started with {name}={value!r}, but it is now "
                    f"{self.parameters[name]!r}; restore it, or start again with fit"
                )

    def remember(self, plain: dict[str, Any], batch: Batch, n_rows: int) -> dict[str, Any]:
        """Continue after a fit of ``n_rows`` rows, assumed to be like those of the batch.

        Rates and averaging weights decrease with the number of rows: without this history the first
        batch would have as much influence as the whole fit.
        """
        if "etas" not in plain or n_rows < 1 or batch.n_rows < 1:
            return plain
        out, times = dict(plain), n_rows / batch.n_rows
        out["squares"] = times * column_squares(batch.X)
        out["counts"] = times * column_counts(batch.X)
        out["sums"] = times * column_sums(batch.X)
        averages = AVERAGES_PER_FOLD * np.log1p(n_rows / MIN_AVERAGE_ROWS)
        out["counters"] = np.array([n_rows, int(averages)], dtype=np.int64)
        return out

    def learn(self, plain: dict[str, Any], batch: Batch, n_outputs: int) -> dict[str, Any]:
        """Learn the rows of a batch, in order."""
        n_features = batch.X.shape[1]
        seen = int(plain["counters"][0]) + batch.n_rows
        squares = column_squares(batch.X) + plain.get("squares", 0.0)
        check_squares(squares, seen)
        sums = column_sums(batch.X) + plain.get("sums", 0.0)
        informative = informative_squares(sums, squares, seen, self.fit_intercept)
        counts = wide_counts(batch.X) + plain.get("counts", 0.0)
        columns = Columns(informative, np.broadcast_to(counts / seen, informative.shape))
        strengths = self.penalty.strengths(columns, seen, self.fit_intercept, self.loss)
        model = self._model(n_features, n_outputs + self.spare_outputs, strengths)
        state = self._unpack(plain, model)
        self.inference.learn(state, batch)
        if isinstance(state, AdaptiveState):
            state = self._drop_rates(state)
        else:
            state.fold()
        return {"parameters": self.parameters, "sums": sums, **pack(state)}

    def theta(self, plain: dict[str, Any], n_features: int, n_outputs: int) -> Array:
        """Parameters of the classes in the order of arrival."""
        state = self._unpack(plain, self._model(n_features, n_outputs + self.spare_outputs))
        return np.asarray(state.theta()[:, :n_outputs])

    def add_classes(
        self, plain: dict[str, Any], n_features: int, n_outputs: int, n_new: int
    ) -> dict[str, Any]:
        """Append outputs for new classes."""
        total = n_outputs + self.spare_outputs
        out = dict(plain)
        for name in ("weights", "average"):
            groups = plain[name].reshape(n_features, -1, total)
            fresh = groups[:, :, -1:] if self.spare_outputs else np.zeros_like(groups[:, :, :1])
            grown = np.concatenate([groups] + [fresh] * n_new, axis=2)
            out[name] = np.ascontiguousarray(grown).ravel()
        for name, of in (("intercept", "weights"), ("average_intercept", "average")):
            groups = plain[name].reshape(-1, total)
            fresh = groups[:, -1:]
            if not self.spare_outputs:  # at the mean row, as probable as one row among all
                mean = plain.get("sums", np.zeros(n_features)) / max(1, int(plain["counters"][0]))
                if of == "weights":  # without their common factor
                    mean = mean * plain.get("lazy", 1.0)
                scores = groups + (mean @ plain[of].reshape(n_features, -1)).reshape(-1, total)
                fresh = scores.min(axis=1, keepdims=True) - np.log1p(plain["counters"][0])
            out[name] = np.concatenate([groups] + [fresh] * n_new, axis=1).ravel()
        if "etas" in plain:
            etas = plain["etas"].reshape(-1, total)[:, :1]
            out["etas"] = np.repeat(etas, total + n_new, axis=1).ravel()
        return out

    def _model(
        self, n_features: int, n_outputs: int, strengths: ElasticNet | None = None
    ) -> LinearModel:
        if strengths is None:
            zeros = np.zeros(n_features + int(self.fit_intercept))
            strengths = ElasticNet(zeros, zeros)
        return LinearModel(
            self.loss, n_features, n_outputs, self.classification, self.fit_intercept, strengths
        )

    def _unpack(self, plain: dict[str, Any], model: LinearModel) -> Any:
        kind: Any = AdaptiveState if isinstance(self.inference, AdaptiveSGD) else SGDState
        own = {f.name for f in fields(kind)}  # SGDState has no sums
        arrays = {
            k: np.array(v) if isinstance(v, np.ndarray) else v for k, v in plain.items() if k in own
        }
        state = kind(model=model, **arrays)
        if "lazy" in arrays:  # saved by an earlier version
            state.fold()
        return state

    def _drop_rates(self, state: AdaptiveState) -> AdaptiveState:
        rows = int(state.counters[0])
        if rows >= ONE_RATE and state.n_groups > 1:
            return AdaptiveSGD.keep_groups(state, 1)
        if rows >= FEWER_RATES and state.n_groups > 3:
            return AdaptiveSGD.keep_groups(state, 3)
        return state


def pack(state: Any) -> dict[str, Any]:
    """State as a plain dictionary, for pickling and saving."""
    derived = ("model", "norms", "lazy", "summing")
    return {f.name: getattr(state, f.name) for f in fields(state) if f.name not in derived}
