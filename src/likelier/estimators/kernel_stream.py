"""How a kernel classifier learns from streams: whole passes, or batch by batch.

Batch by batch, the first rows are kept until there are enough to learn scales and landmarks
from. Then features stay as they are, and the posterior of the weights after one batch is the
prior of the next: memory depends on the number of features, not of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from likelier.base import Array, Batch, Matrix
from likelier.engines import StreamEngine
from likelier.engines.rows import stack_rows
from likelier.engines.threads import one_blas_thread
from likelier.estimators.kernel_expert_stream import ExpertStream
from likelier.estimators.kernel_experts import MAX_INPUTS, take
from likelier.estimators.kernel_fit import HEAD_BLOCK, NO_WEIGHT, Rows
from likelier.estimators.kernel_words import Clock, by_evidence
from likelier.estimators.problem import (
    EncodedSource,
    Summary,
    require_targets,
    stream_classes,
    summarise,
)
from likelier.estimators.targets import class_codes, union_classes
from likelier.inference.kernel_search import head_prior
from likelier.inference.laplace import HeadPosterior, class_curvature, posterior_from_blocks
from likelier.inference.softmax_head import (
    HeadProblem,
    Prior,
    fit_head,
    ready_features,
    rows_in_memory,
)
from likelier.models.kernel_machine import Standard, restore_map

START_ROWS = 4000  # rows that scales and landmarks are learned from
GROWTH = 1.5  # the kept rows are learned anew when they have grown by this factor


class ClassStream(ExpertStream):
    """Streams of classes that may appear at any time."""

    weights_: list[Array]
    roots_: list[Array]
    mean_shift_: list[Array]
    prior_variance_: Array

    def _open_encoded(self, source: Any, seed: int) -> tuple[Any, int, Standard]:
        """One pass for classes and spreads; a source whose labels are class numbers."""
        weights = self.class_weight if isinstance(self.class_weight, Mapping) else {}
        absent = [label for label, weight in weights.items() if weight == 0.0]

        def look(batch: Batch) -> Summary:
            y = self._check_y(require_targets(batch))
            if not absent:
                return summarise(batch, with_squares=True, with_labels=True)
            present = np.flatnonzero(~np.isin(y, absent))
            found = summarise(take(batch, present), with_squares=True, with_labels=True)
            labels = dict.fromkeys(np.unique(y).tolist(), 0) | (found.labels or {})
            return replace(found, labels=labels)  # a class that weighs nothing is a class

        summary = StreamEngine(source, seed=seed, shuffle=False).reduce(look, Summary.__add__)
        classes, per_class = stream_classes(summary, self.class_weight)
        self._set_classes(classes)
        if not summary.n_rows:
            raise ValueError(NO_WEIGHT)
        standard = Standard.from_sums(summary.sums, summary.squares, summary.weight)
        return EncodedSource(source, classes, per_class, 2), summary.n_rows, standard

    @available_if(by_evidence)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn some rows, once.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like, optional
            Classes that may come; new ones may also appear unannounced.
        sample_weight : array-like of shape (n_samples,), optional

        Notes
        -----
        Up to 4,000 rows are learned anew as they grow; after that a batch costs
        ``rows x features^2`` for each class. Rows are kept for local experts, at most 2^25
        numbers, and these are made anew whenever the rows have doubled, from 20,000 on; then
        rows are let go, and up to 128 rows of a region wait before its expert learns them.
        """
        self._check_words()
        fresh = not hasattr(self, "stream_")
        X, y, weight = self._check_rows(X, y, sample_weight, fresh and not hasattr(self, "maps_"))
        seed = self.stream_["seed"] if not fresh else self._seed()
        return self._learn(X, y, weight, seed, classes)

    def _learn(
        self, X: Matrix, y: Array, weight: Array | None, seed: int, classes: Any = None
    ) -> Self:
        if self._n_particles() != 1:
            raise ValueError("n_particles must be 1 where rows come batch by batch")
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight must be a dict of weights (or None) where rows come batch by batch, "
                f"got {self.class_weight!r}"
            )
        if weight is not None:
            X, y, weight = X[weight > 0.0], y[weight > 0.0], weight[weight > 0.0]
        labels = np.unique(y) if classes is None else union_classes(classes, y)
        known = getattr(self, "stream_", {}).get("classes")
        joined = labels if known is None else union_classes(known, labels)
        if not hasattr(self, "stream_"):
            self.stream_: dict[str, Any] = {"seed": seed, "n_rows": 0, "learned": 0}
        self.stream_["classes"] = joined
        omega = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        if "precision" in self.stream_:
            omega = self._with_class_weight(y, omega)
            self._absorb(Rows(X, y, omega).take(np.flatnonzero(omega)))
        else:
            self._keep(X, y, omega, seed)
        return self

    def _keep(self, X: Matrix, y: Array, omega: Array, seed: int) -> None:
        """Add rows to those kept, and learn them anew where there are enough new ones."""
        state = self.stream_
        if "X" in state:
            X = stack_rows([state["X"], X])
            y, omega = np.concatenate([state["y"], y]), np.concatenate([state["omega"], omega])
        state.update(X=X, y=y, omega=omega, n_rows=len(y))
        if len(state["classes"]) < 2 or len(np.unique(y)) < 2:
            if len(state["classes"]) < 2:
                self._set_classes(state["classes"])  # says what is missing
            self.classes_ = state["classes"]
            return
        if state["learned"] and len(y) < min(START_ROWS, GROWTH * state["learned"]):
            return
        self._fit_memory(X, y, omega, seed, Clock(self, (X, y)))
        state["learned"] = len(y)
        if len(y) >= START_ROWS:
            self._start_absorbing()

    def _end_stream(self) -> None:
        """Learn what is kept but not learned yet; raise where nothing could be."""
        state = self.stream_
        if "X" in state and state["learned"] < len(state["y"]):
            state["learned"] = 0
            nothing = np.empty(0, dtype=np.intp)
            self._keep(state["X"][nothing], state["y"][nothing], state["omega"][nothing],
                       state["seed"])  # fmt: skip
        if "precision" in state:
            self._end_experts()
        if not hasattr(self, "maps_"):
            raise ValueError("y needs at least two classes to tell apart; the data hold 1 class")

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Class numbers among all classes that are known, seen or announced."""
        self._set_classes(self.stream_["classes"])
        omega = np.ones(len(y)) if weight is None else weight
        return class_codes(self.classes_, y), self._with_class_weight(y, omega)

    def _with_class_weight(self, y: Array, omega: Array) -> Array:
        if not isinstance(self.class_weight, Mapping):
            return omega
        of_rows = [float(self.class_weight.get(label, 1.0)) for label in y.tolist()]
        return np.asarray(omega * np.array(of_rows))

    def _start_absorbing(self) -> None:
        """Let the kept rows go; what they said is the curvature of the posterior."""
        state = self.stream_
        omega = self._with_class_weight(state["y"], state["omega"])
        rows = Rows(state["X"], state["y"], omega).present()
        omega = np.asarray(rows.weight)
        _, problem = self._batch_problem(rows.X, rows.y, omega, self._first_prior())
        blocks = class_curvature(problem, self.weights_[0])
        i = np.arange(blocks.shape[1])
        blocks[:, i, i] += self._first_prior().precision
        state["precision"] = blocks
        if self.n_features_in_ <= MAX_INPUTS:
            state["kept"] = [[rows.X, rows.y, omega]]
        state["n_rows"] = rows.n
        for name in ("X", "y", "omega"):
            del state[name]

    def _first_prior(self) -> Prior:
        start = np.zeros_like(self.weights_[0])
        return head_prior(restore_map(self.maps_[0]), 1.0 / float(self.prior_variance_[0]), start)

    def _batch_problem(
        self, X: Matrix, y: Array, omega: Array, prior: Prior
    ) -> tuple[Array, HeadProblem]:
        codes = class_codes(self.classes_, y)
        made = restore_map(self.maps_[0])
        Phi = np.concatenate(
            [made(X[s : s + HEAD_BLOCK], np.float32) for s in range(0, X.shape[0], HEAD_BLOCK)]
        )
        reduce = rows_in_memory(Phi, codes, omega)
        return codes, HeadProblem(reduce, ready_features, self._head_loss(), prior)

    def _absorb(self, rows: Rows) -> None:
        """The posterior so far is the prior of these rows, or that of their experts."""
        state = self.stream_
        self._meet_classes(state["classes"])
        if not rows.n:
            return
        X, y, omega = rows.X, rows.y, np.asarray(rows.weight)
        if not self.experts_[0] or np.isin(y, state.get("late", [])).any():
            self._absorb_common(X, y, omega)
        if self.experts_[0]:
            self._teach_experts(X, y, omega)
        state["n_rows"] += len(y)
        self._remember(X, y, omega)

    def _absorb_common(self, X: Matrix, y: Array, omega: Array) -> None:
        """The posterior of the common machine is the prior of these rows."""
        state = self.stream_
        prior = Prior(state["precision"], self.weights_[0])
        with one_blas_thread():
            _, problem = self._batch_problem(X, y, omega, prior)
            fit = fit_head(problem, self.weights_[0], float(self.tol), int(self.max_iter))
            state["precision"] = state["precision"] + class_curvature(problem, fit.W)
            posterior: HeadPosterior = posterior_from_blocks(
                fit.W, state["precision"], float(self.prior_variance_[0])
            )
        self.weights_, self.roots_ = [posterior.mean], [posterior.roots]
        self.mean_shift_ = [np.zeros_like(posterior.mean)]  # small beside so many rows
        self.layout_ = posterior.layout
        self.objective_, self.converged_ = float(fit.value), fit.converged
        self.n_iter_ += fit.n_iter

    def _meet_classes(self, classes: Array) -> None:
        """Make room for classes that were not there before.

        A new class knows as much of the earlier rows as the others do on average, all of them
        negative, and is as rare as one row among them.
        """
        if len(classes) == len(self.classes_):
            return
        old = np.searchsorted(classes, self.classes_)
        if self.experts_[0]:
            late, new = self.stream_.get("late", []), np.setdiff1d(classes, self.classes_)
            self.stream_["late"] = union_classes(late, new) if len(late) else new
            self._experts_meet_classes(len(self.classes_), old, len(classes))
        W, H = self.weights_[0], self.stream_["precision"]
        if len(self.classes_) == 2:  # one score becomes two that differ by it
            W, H = np.hstack([-0.5 * W, 0.5 * W]), np.concatenate([2.0 * H, 2.0 * H])
            self.prior_variance_ = 0.5 * self.prior_variance_
        grown = np.zeros((len(W), len(classes)))
        grown[-1] = W[-1].min() - np.log1p(self.stream_["n_rows"])
        precision = np.repeat(H.mean(axis=0, keepdims=True), len(classes), axis=0)
        grown[:, old], precision[old] = W, H
        posterior = posterior_from_blocks(grown, precision, float(self.prior_variance_[0]))
        self.weights_, self.roots_ = [posterior.mean], [posterior.roots]
        self.mean_shift_, self.layout_ = [np.zeros_like(grown)], posterior.layout
        self.stream_["precision"] = precision
        self.classes_ = classes
