"""How a kernel classifier learns from streams: whole passes, or batch by batch.

Batch by batch, the first rows are kept until there are enough to learn scales and landmarks
from. Then features stay as they are, and the posterior of the weights after one batch is the
prior of the next: memory depends on the number of features, not of rows. After a fit of many
rows it goes on like that; the rows of a small one are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from likelier.base import Array, Batch, Matrix
from likelier.calibration import SignPreserving, Temperature
from likelier.engines import StreamEngine
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import (
    EncodedSource,
    Summary,
    require_targets,
    stream_classes,
    summarise,
)
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.one_class import refuse_constant
from likelier.fitting.rows import NO_WEIGHT, Rows
from likelier.fitting.standardize import Standard
from likelier.fitting.targets import (
    OneClassError,
    check_class_weight,
    class_codes,
    union_classes,
)
from likelier.kernel_machine.estimator import by_evidence
from likelier.kernel_machine.expert_fit import MAX_INPUTS, Common
from likelier.kernel_machine.expert_model import Experts, with_classes
from likelier.kernel_machine.expert_rows import take
from likelier.kernel_machine.expert_stream import ExpertStream
from likelier.kernel_machine.features import restore_map
from likelier.kernel_machine.kept_rows import (
    GROWTH,
    START_ROWS,
    RowKeeper,
    of_one_kind,
    precision_of,
    precision_outside,
)
from likelier.kernel_machine.laplace import (
    FAR_ROWS,
    HeadPosterior,
    class_curvature,
    far_share,
    posterior_from_blocks,
)
from likelier.kernel_machine.recipe import HEAD_BLOCK
from likelier.kernel_machine.search import head_prior
from likelier.kernel_machine.softmax_weights import (
    HeadProblem,
    Prior,
    fit_head,
    ready_features,
    rows_in_memory,
)


class ClassStream(RowKeeper, ExpertStream):
    """Streams of classes that may appear at any time."""

    weights_: list[Array]
    roots_: list[Array]
    bases_: list[Array | None]
    outside_: list[Array | None]
    mean_shift_: list[Array]
    far_scores_: list[Array]
    prior_variance_: Array
    calibration_: list[dict[str, Any]]

    # -- experts ------------------------------------------------------------------------
    _expert_loss = "softmax"

    def _targets(self, y: Array) -> Array:
        return class_codes(self.classes_, y)

    def _target_units(self) -> Array:
        return np.asarray(self.classes_)

    def _common_now(self, n_learned: int = 0) -> Common:
        variance = float(self.prior_variance_[0])
        posterior = HeadPosterior(
            self.weights_[0], self.roots_[0], self.layout_, variance, None, self.bases_[0],
            self.outside_[0],
        )  # fmt: skip
        return Common(self._landmarks(), posterior, self._head_loss())

    def _trust(self, verdict: float | None) -> None:
        """The spread that held-out rows chose together with the experts."""
        if verdict is not None and self.posterior_scale == "auto":
            self.posterior_scale_ = np.array([verdict])

    def _experts_meet_classes(self, n_before: int, places: Array, n_classes: int) -> None:
        """Make room for new classes in the experts, who know nothing about them."""
        self._teach_nothing()
        grown = with_classes(Experts(**self.experts_[0]), n_before, places, n_classes)
        self.experts_ = [grown.to_arrays()]

    # -- whole passes -------------------------------------------------------------------
    def _open_encoded(self, source: Any, seed: int) -> tuple[Any, int, Standard]:
        """One pass for classes and spreads; a source whose labels are class numbers."""
        weights = self.class_weight if isinstance(self.class_weight, Mapping) else {}
        absent = [label for label, weight in weights.items() if weight == 0.0]

        def look(batch: Batch) -> tuple[Summary, ColumnMoments]:
            y = self._check_y(require_targets(batch))
            if not absent:
                return _summary(batch)
            found, moments = _summary(take(batch, np.flatnonzero(~np.isin(y, absent))))
            labels = dict.fromkeys(np.unique(y).tolist(), 0) | (found.labels or {})
            return replace(found, labels=labels), moments  # a class that weighs nothing is a class

        engine = StreamEngine(source, seed=seed, shuffle=False)
        summary, moments = engine.reduce(look, lambda a, b: (a[0] + b[0], a[1] + b[1]))
        classes, per_class = stream_classes(summary, self.class_weight)
        self._set_classes(classes)
        if not summary.n_rows:
            raise ValueError(NO_WEIGHT)
        standard = Standard.from_moments(moments)
        return EncodedSource(source, classes, per_class, 2), summary.n_rows, standard

    # -- batch by batch -----------------------------------------------------------------
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
        Up to 4,000 rows are kept and learned together, anew as they grow by half, and before the
        model predicts or is saved: predictions always know all rows, while fitted attributes
        other than ``classes_`` may wait for them. After that a batch costs
        ``rows x features^2`` for each class. Rows are kept for local experts, at most 2^25
        numbers, and these are made anew whenever the rows have doubled, from 20,000 on; then
        rows are let go, and up to 128 rows of a region wait before its expert learns them.

        After `fit` it goes on from there. Below 4,000 rows (and 2^22 numbers) in memory they
        have been kept and are learned together with the new ones; else features stay as they
        are, and the posterior of the weights is the prior of the new rows.
        """
        self._validate_parameters()
        refuse_constant(self)
        fresh = not hasattr(self, "stream_")
        X, y, weight = self._check_rows(X, y, sample_weight, fresh and not hasattr(self, "maps_"))
        seed = self.stream_["seed"] if not fresh else self._seed()
        return self._learn(X, y, weight, seed, classes)

    def _batch_words(self) -> str | None:
        if self.inference != "evidence" or self._n_particles() != 1:
            return "n_particles must be 1 where rows come batch by batch"
        check_class_weight(self.class_weight)
        if isinstance(self.class_weight, str):
            return (
                "class_weight must be a dict of weights (or None) where rows come batch by batch, "
                f"got {self.class_weight!r}"
            )
        return None

    def _learn(
        self, X: Matrix, y: Array, weight: Array | None, seed: int, classes: Any = None
    ) -> Self:
        with self._batch(seed) as state:
            X = of_one_kind(X, state)
            omega = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
            rows = Rows(X, y, omega).take(np.flatnonzero(omega))
            labels = np.unique(y) if classes is None else union_classes(classes, y)
            known = state.get("classes", self.classes_ if hasattr(self, "maps_") else None)
            state["classes"] = labels if known is None else union_classes(known, labels)
            if "precision" in state:
                omega = self._with_class_weight(rows.y, np.asarray(rows.weight))
                self._absorb(Rows(rows.X, rows.y, omega).take(np.flatnonzero(omega)))
            else:
                self._keep(rows)
        return self

    def _keep(self, rows: Rows) -> None:
        """Add rows to those kept, and learn them anew where there are enough new ones."""
        state = self.stream_
        self._add_rows(rows.X, rows.y, np.asarray(rows.weight))
        self.classes_ = state["classes"]  # their weights come with the next learning
        if self._missing() is not None:
            self._thin()
            return
        n_kept = len(state["y"])
        state["told_apart"] = state.get("told_apart", state["learned"]) + rows.n
        enough = state["told_apart"] >= START_ROWS
        if enough or not state["learned"] or n_kept >= GROWTH * state["learned"]:
            self._learn_kept()
        if enough:
            self._start_absorbing()

    def _missing(self) -> str | None:
        labels: Array = getattr(self, "stream_", {}).get("y", np.empty(0))
        if not len(labels) or (labels != labels[0]).any():
            return None
        return (
            "y needs at least two classes to tell apart; the data hold 1 class so far, "
            f"{labels.tolist()[0]!r}"
        )

    def _thin(self) -> None:
        """Rows of one class may be many before another comes: some then stand for all."""
        state, n = self.stream_, len(self.stream_["y"])
        if n <= 2 * START_ROWS:
            return
        rng = np.random.default_rng([state["seed"], state["n_rows"]])
        some = np.sort(rng.permutation(n)[:START_ROWS])
        omega = state["omega"][some]
        omega = omega * (state["omega"].sum() / omega.sum())
        state.update(X=state["X"][some], y=state["y"][some], omega=omega)

    def _end_stream(self) -> None:
        """Learn what is kept but not learned yet; raise where nothing could be."""
        missing = self._missing()
        if missing is not None:
            raise OneClassError(self.stream_["classes"])
        self._settle()
        if "precision" in self.stream_:
            self._end_experts()

    def _stream_of_fit(self, seed: int) -> dict[str, Any]:
        roots, shape = self.roots_[0], self.weights_[0].shape
        bases, outside = self.bases_[0], self.outside_[0]
        if bases is None or outside is None:
            precision = precision_of(roots, *shape)
        else:
            precision = precision_outside(roots[0], bases, 1.0 / outside)
        n_rows = self.n_rows_seen_
        return {"seed": seed, "n_rows": n_rows, "learned": n_rows, "precision": precision}

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
        state["n_rows"] -= len(state["y"]) - rows.n
        for name in ("X", "y", "omega"):
            del state[name]

    def _first_prior(self) -> Prior:
        start = np.zeros_like(self.weights_[0])
        return head_prior(restore_map(self.maps_[0]), 1.0 / float(self.prior_variance_[0]), start)

    def _batch_problem(
        self, X: Matrix, y: Array, omega: Array, prior: Prior
    ) -> tuple[float, HeadProblem]:
        """Weight of the rows that are far from all landmarks, and what is to be minimised.

        With a temperature the rows count for less, as against the prior of `_first_prior`.
        """
        omega = omega / float(self.temperature)
        codes = class_codes(self.classes_, y)
        made = restore_map(self.maps_[0])
        Phi = np.concatenate(
            [made(X[s : s + HEAD_BLOCK], np.float32) for s in range(0, X.shape[0], HEAD_BLOCK)]
        )
        reduce = rows_in_memory(Phi, codes, omega)
        far = float(omega @ far_share(made.residual(Phi))) if made.local else 0.0
        return far, HeadProblem(reduce, ready_features, self._head_loss(), prior)

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
            far, problem = self._batch_problem(X, y, omega, prior)
            fit = fit_head(problem, self.weights_[0], float(self.tol), int(self.max_iter))
            state["precision"] = state["precision"] + class_curvature(problem, fit.W)
            posterior: HeadPosterior = posterior_from_blocks(
                fit.W, state["precision"], float(self.prior_variance_[0])
            )
        self.weights_, self.roots_ = [posterior.mean], [posterior.roots]
        self.bases_, self.outside_ = [None], [None]
        self.mean_shift_ = [np.zeros_like(posterior.mean)]  # small beside so many rows
        self.layout_ = posterior.layout
        # landmarks cannot follow: what the constants have learned far from them is known there
        state["far"] = state.get("far", 0.0) + far
        self.far_known_ = np.array([state["far"] / (state["far"] + FAR_ROWS)])
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
        W, H, far = self.weights_[0], self.stream_["precision"], self.far_scores_[0]
        if len(self.classes_) == 2:  # one score becomes two that differ by it
            W, H = np.hstack([-0.5 * W, 0.5 * W]), np.concatenate([2.0 * H, 2.0 * H])
            self.prior_variance_ = 0.5 * self.prior_variance_
            far = np.concatenate([-0.5 * far, 0.5 * far])
            self.calibration_ = [_for_more_classes(plain) for plain in self.calibration_]
        grown = np.zeros((len(W), len(classes)))
        grown[-1] = W[-1].min() - np.log1p(self.stream_["n_rows"])
        precision = np.repeat(H.mean(axis=0, keepdims=True), len(classes), axis=0)
        grown[:, old], precision[old] = W, H
        away = np.full(len(classes), far.min() - np.log1p(self.stream_["n_rows"]))
        away[old] = far
        self.far_scores_ = [away]
        posterior = posterior_from_blocks(grown, precision, float(self.prior_variance_[0]))
        self.weights_, self.roots_ = [posterior.mean], [posterior.roots]
        self.bases_, self.outside_ = [None], [None]
        self.mean_shift_, self.layout_ = [np.zeros_like(grown)], posterior.layout
        self.stream_["precision"] = precision
        self.classes_ = classes


def _for_more_classes(calibration: dict[str, Any]) -> dict[str, Any]:
    """Calibration of two scores, from that of their difference: the same where it is typical."""
    if not calibration:
        return {}
    fitted = SignPreserving.from_arrays(calibration)
    return Temperature(0.5 * (fitted.slope_pos + fitted.slope_neg), fitted.scale).to_arrays()


def _summary(batch: Batch) -> tuple[Summary, ColumnMoments]:
    """Labels and spreads of a batch."""
    found = summarise(batch, with_squares=False, with_labels=True)
    return found, ColumnMoments.of(batch.X, batch.weight)
