"""Targets of a kernel machine: checked, encoded for the fit, and known from batch to batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite

from likelier.base import Array, Batch
from likelier.fitting.dataset import (
    CheckedSource,
    EncodedSource,
    Summary,
    local_engine,
    require_targets,
    stream_classes,
    stream_engine,
    summarise,
)
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import NO_WEIGHT, Rows
from likelier.fitting.standardize import LARGEST
from likelier.fitting.targets import (
    check_class_weight,
    check_no_missing_label,
    class_codes,
    class_weights,
    combine_weights,
    require_two_classes,
    union_classes,
)

Attributes = dict[str, Any]  # fitted attributes that decode the targets, by name


@dataclass(frozen=True)
class OpenStream:
    """A source with encoded targets, its number of rows, and what decodes the targets."""

    source: Any
    n_rows: int
    attributes: Attributes


class Targets(ABC):
    """A kind of targets."""

    @abstractmethod
    def check(self, y: Array) -> Array:
        """Validated targets."""

    @abstractmethod
    def encode(self, rows: Rows, known: Attributes | None = None) -> tuple[Rows, Attributes]:
        """Rows with encoded targets, and what decodes them; ``known`` is that of a model."""

    @abstractmethod
    def open(self, source: Any, seed: int, monitor: Monitor) -> OpenStream:
        """The same for a stream, in one pass."""

    def missing(self, y: Array) -> str | None:
        """Why these targets are not enough to learn from, or None."""
        return None

    def join(self, known: Array | None, more: Any, y: Array, fixed: bool) -> Array | None:
        """Classes of a stream after another batch; None where there are none."""
        return None


@dataclass(frozen=True)
class ClassTargets(Targets):
    """Labels, and weights of the classes."""

    class_weight: Any = None

    def check(self, y: Array) -> Array:
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_no_missing_label(y)
        check_classification_targets(y)
        return y

    def encode(self, rows: Rows, known: Attributes | None = None) -> tuple[Rows, Attributes]:
        """Class codes, and weights that include the class weights."""
        classes = require_two_classes(np.unique(rows.y) if known is None else known["classes_"])
        codes = class_codes(classes, rows.y)
        if known is None:
            per_class = class_weights(self.class_weight, classes, codes, rows.weight)
            weight = combine_weights(rows.weight, per_class, codes)
        else:
            weight = self._weight(rows)
        return Rows(rows.X, codes, weight), {"classes_": classes}

    def open(self, source: Any, seed: int, monitor: Monitor) -> OpenStream:
        def labels_of(batch: Batch) -> Summary:
            return summarise(replace(batch, y=self.check(require_targets(batch))), False, True)

        engine = stream_engine(source, seed, False)
        summary = monitor.stage("classes", lambda: engine.reduce(labels_of, Summary.__add__))
        classes, per_class = stream_classes(summary, self.class_weight)
        require_two_classes(classes)
        encoded, n_rows = EncodedSource(source, classes, per_class, 2), summary.n_rows
        if per_class is not None and not per_class.all():  # rows of such a class are absent
            labels = summary.labels or {}
            weights = zip(classes.tolist(), per_class.tolist(), strict=True)
            if not any(weight and labels[label] for label, weight in weights):
                raise ValueError(NO_WEIGHT)
            counted = stream_engine(encoded, seed, False)
            n_rows = counted.reduce(lambda batch: batch.n_rows, lambda a, b: a + b)
        return OpenStream(encoded, n_rows, {"classes_": classes})

    def missing(self, y: Array) -> str | None:
        if (y != y[0]).any():
            return None
        return f"y needs at least two classes; the data hold 1 class so far, {y.tolist()[0]!r}"

    def join(self, known: Array | None, more: Any, y: Array, fixed: bool) -> Array:
        check_class_weight(self.class_weight)
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight must be a dict or None for partial_fit and one-pass iterators, "
                f"got {self.class_weight!r}"
            )
        labels: Array = np.unique(y) if more is None else union_classes(more, y)
        joined = labels if known is None else union_classes(known, labels)
        if fixed and known is not None and len(joined) > len(known):
            new = np.setdiff1d(joined, known).tolist()[0]
            raise ValueError(
                f"y holds {new!r}, which is not one of the classes {known.tolist()} that this "
                "model has learned; announce it by classes= in the first call of partial_fit, or "
                "use OnePassClassifier, which takes new classes at any time"
            )
        return joined

    def _weight(self, rows: Rows) -> Array:
        """Weights of rows of a batch."""
        omega = np.ones(rows.n) if rows.weight is None else np.asarray(rows.weight)
        if not isinstance(self.class_weight, Mapping):
            return omega
        of_rows = [float(self.class_weight.get(label, 1.0)) for label in rows.y.tolist()]
        return np.asarray(omega * np.array(of_rows))


@dataclass(frozen=True)
class NumberTargets(Targets):
    """Numbers, scaled to mean zero and unit variance."""

    def check(self, y: Array) -> Array:
        try:
            y = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                "y must be numeric for regression; for labels use BayesianKernelClassifier"
            ) from None
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity; drop those rows")
        if not np.abs(y).max(initial=0.0) < LARGEST:
            raise ValueError(
                f"y contains values whose squares overflow (above {LARGEST:g}); rescale y"
            )
        return y

    def encode(self, rows: Rows, known: Attributes | None = None) -> tuple[Rows, Attributes]:
        rows = rows.present()
        if known is None or "target_mean_" not in known:
            y = rows.y
            with local_engine(rows.X, y, rows.weight, 0, 1, False) as engine:  # adds as a stream
                mean, std = _mean_std(engine.reduce(_moments, ColumnMoments.__add__))
            if not std > 1.0 / LARGEST and np.ptp(y) > 0.0 and not np.ptp(y) > 1.0 / LARGEST:
                raise ValueError(
                    f"y contains values whose squares vanish (below {1 / LARGEST:g}); rescale y"
                )
            known = _units(mean, std)
        return Rows(rows.X, _in_units(rows.y, known), rows.weight), known

    def open(self, source: Any, seed: int, monitor: Monitor) -> OpenStream:
        def moments_of(batch: Batch) -> tuple[int, ColumnMoments]:
            return batch.n_rows, _moments(replace(batch, y=self.check(require_targets(batch))))

        engine = stream_engine(source, seed, False)
        n_rows, moments = monitor.stage(
            "targets", lambda: engine.reduce(moments_of, lambda a, b: (a[0] + b[0], a[1] + b[1]))
        )
        units = _units(*_mean_std(moments))
        encoded = CheckedSource(source, lambda y: _in_units(self.check(y), units))
        return OpenStream(encoded, n_rows, units)


def _moments(batch: Batch) -> ColumnMoments:
    return ColumnMoments.of(np.asarray(batch.y)[:, None], batch.weight)


def _mean_std(moments: ColumnMoments) -> tuple[float, float]:
    return float(moments.mean[0]), float(moments.squares[0] / moments.weight) ** 0.5


def _units(mean: float, std: float) -> Attributes:
    """Centre and scale of targets; constant ones are only centred."""
    return {"target_mean_": mean, "target_scale_": std if std > 1e-12 * abs(mean) else 1.0}


def _in_units(y: Array, units: Attributes) -> Array:
    return np.asarray((y - units["target_mean_"]) / units["target_scale_"])
