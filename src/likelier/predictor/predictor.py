"""`Predictor`: a posterior, the names of its classes and the encoding of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.matrices import as_csr, checked_matrix
from likelier.predictive import Categorical, ClassPredictive, LabelSets, NumberPredictive
from likelier.predictor.unseen_levels import (
    mixed_class_uncertainty,
    mixed_interval,
    mixed_labels,
    mixed_prediction,
    mixed_probability,
    mixed_quantiles,
    mixed_variance,
)


class ConstantPosterior(Posterior):
    """Of a classifier whose training rows were all of one class."""

    def check(self, n_features: int, n_classes: int | None) -> None:
        if n_classes != 1:
            raise ValueError("a constant has a single class")

    def predictive(self, X: Matrix) -> Categorical:
        return Categorical(np.ones((X.shape[0], 1)))


class Predictor:
    """A fitted model without its estimator: it predicts what the estimator would, to the bit.

    `likelier.load_predictor` makes one from a model file, without importing scikit-learn.

    Parameters
    ----------
    posterior : Posterior
        What the fit knows.
    n_features : int
        Number of columns that the posterior takes.
    classes : array of shape (n_classes,), optional
        Classes, or the names of the labels of which a row may have several; None for a regression.
    names : sequence of str, optional
        Columns of a frame, in the order in which the posterior takes them.
    encoding : TableEncoding or LibsvmLayout, optional
        How the columns of a table become features. With it, methods take a path or a frame of
        the columns that the model was fitted to, and without it a matrix of features.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import likelier
    >>> model = likelier.GaussianNB().fit([[0.0], [1.0], [4.0], [5.0]], ["a", "a", "b", "b"])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.likelier"
    >>> likelier.save(model, path)
    >>> predictor = likelier.load_predictor(path)
    >>> predictor.predict([[0.4], [4.6]]).tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        posterior: Posterior,
        n_features: int,
        classes: Array | None = None,
        names: Any = None,
        encoding: Any = None,
    ) -> None:
        self.posterior, self.n_features, self.classes = posterior, n_features, classes
        self.names, self.encoding = names, encoding

    def check(self) -> None:
        """Raise a ValueError unless the parts belong together, so that the model can predict."""
        n_features: Any = self.n_features
        if not isinstance(n_features, int) or n_features < 1:
            raise ValueError(f"n_features_in_ must be a positive integer, not {n_features!r}")
        n_classes = None
        if self.classes is not None:
            if np.ndim(self.classes) != 1 or not len(self.classes):
                raise ValueError("classes_ must be a list of labels")
            n_classes = len(self.classes)
        if self.names is not None and len(self.names) != self.n_features:
            raise ValueError(f"feature_names_in_ must hold {self.n_features} names")
        self.posterior.check(self.n_features, n_classes)

    def predict(self, X: Any) -> Array:
        """Most probable class, the predicted number, or indicators of the labels of every row."""
        return np.concatenate([self._point(*rows) for rows in self._blocks(X)])

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, or of every label."""
        if self.classes is None:
            raise ValueError("predict_proba is for classes; this model is a regression")
        return np.concatenate([self._probability(*rows) for rows in self._blocks(X)])

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central interval of the target of each row, ``(n, 2)``."""
        self._require_regression("predict_interval")
        blocks = self._blocks(X)
        return np.concatenate([self._interval(*rows, coverage) for rows in blocks])

    def predict_quantiles(self, X: Any, alpha: npt.ArrayLike = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of the target of each row, one column for each ``alpha``."""
        self._require_regression("predict_quantiles")
        return np.concatenate([self._quantiles(*rows, alpha) for rows in self._blocks(X)])

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Uncertainty of each prediction: ``total``, ``aleatoric`` and ``epistemic``."""
        found = [self._uncertainty(*rows) for rows in self._blocks(X)]
        parts = ("total", "aleatoric", "epistemic")
        return Uncertainty(*(np.concatenate([getattr(u, name) for u in found]) for name in parts))

    # -- one block of rows, with the rows that hold a level unseen in training ---------------
    def _point(self, X: Matrix, unseen: Unseen) -> Array:
        point = np.asarray(self.posterior.point(X))
        if self.classes is None:
            if unseen is not None:
                point[unseen[0]] = mixed_prediction(self._plain, unseen[1])
            return point
        if self.posterior.label_sets:
            if unseen is not None:
                point[unseen[0]] = mixed_labels(self._plain, unseen[1])
            return point
        if unseen is not None:
            point[unseen[0]] = mixed_probability(self._plain, unseen[1]).argmax(axis=1)
        return np.asarray(self.classes[point])

    def _probability(self, X: Matrix, unseen: Unseen) -> Array:
        predictive = self.posterior.predictive(X)
        assert isinstance(predictive, ClassPredictive | LabelSets)
        probability = predictive.probabilities()
        if unseen is not None:
            probability[unseen[0]] = mixed_probability(self._plain, unseen[1])
        return probability

    def _interval(self, X: Matrix, unseen: Unseen, coverage: float) -> Array:
        interval = self._numbers(X).interval(coverage)
        if unseen is not None:
            interval[unseen[0]] = mixed_interval(self._plain, unseen[1], coverage)
        return interval

    def _quantiles(self, X: Matrix, unseen: Unseen, alpha: npt.ArrayLike) -> Array:
        quantiles = self._numbers(X).quantiles(alpha)
        if unseen is not None:
            quantiles[unseen[0]] = mixed_quantiles(self._plain, unseen[1], alpha)
        return quantiles

    def _uncertainty(self, X: Matrix, unseen: Unseen) -> Uncertainty:
        found = self.posterior.uncertainty(X)
        if unseen is None or self.posterior.label_sets:
            return found
        if self.classes is None:
            copies = self.posterior.uncertainty(unseen[1])
            mixed = mixed_variance(np.asarray(self.posterior.point(unseen[1])), copies)
        else:
            mixed = mixed_class_uncertainty(self._plain.predict_proba(unseen[1]))
        parts = (found.total, found.aleatoric, found.epistemic)
        for part, own in zip(parts, (mixed.total, mixed.aleatoric, mixed.epistemic), strict=True):
            part[unseen[0]] = own
        return found

    def _numbers(self, X: Matrix) -> NumberPredictive:
        predictive = self.posterior.predictive(X)
        assert isinstance(predictive, NumberPredictive)
        return predictive

    @property
    def _plain(self) -> Predictor:
        """The same for encoded rows."""
        return Predictor(self.posterior, self.n_features, self.classes)

    def _require_regression(self, method: str) -> None:
        if self.classes is not None:
            raise ValueError(f"{method} is for regression; this model predicts classes")

    # -- rows ---------------------------------------------------------------------------------
    def _blocks(self, X: Any) -> Iterator[tuple[Matrix, Unseen]]:
        """Rows as the posterior takes them, and copies of rows that hold an unseen level."""
        if self.encoding is None:
            rows = self._checked(X)
            most = self.posterior.most_rows or max(1, rows.shape[0])
            for start in range(0, max(1, rows.shape[0]), most):
                yield rows[start : start + most], None
            return
        from likelier.tables.sources import block_source, encoded_blocks  # loads pyarrow

        empty = True
        for block in encoded_blocks(block_source(X, encoder=self.encoding).unlabelled()):
            unseen = self.encoding.alternatives(block.X, block.strange) if block.strange else None
            empty = False
            yield block.X, unseen
        if empty:
            raise ValueError("X holds no rows")

    def _checked(self, X: Any) -> Matrix:
        """A matrix of features as float32 or float64, dense or CSR."""
        if self.names is not None and hasattr(X, "columns"):
            X = self._named(X)
        X = checked_matrix(X)
        if hasattr(X, "tocsr"):
            rows: Any = as_csr(X.tocsr())
            values = rows.data
        else:
            rows = values = np.asarray(X)
        if rows.dtype.kind == "c":
            raise ValueError("X holds complex numbers; pass real ones, such as X.real")
        if rows.dtype not in (np.float32, np.float64):
            try:
                rows = rows.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"X must hold numbers: {error}") from None
            values = rows.data if hasattr(rows, "tocsr") else rows
        if rows.ndim != 2:
            raise ValueError(f"X must have two dimensions, got {rows.ndim}; reshape it to rows")
        if not rows.shape[0]:
            raise ValueError("X holds no rows")
        if rows.shape[1] != self.n_features:
            raise ValueError(f"X has {rows.shape[1]} features, and the model {self.n_features}")
        takes_missing = self.posterior.takes_missing
        if not (np.isfinite(values) | (takes_missing & np.isnan(values))).all():
            what = "infinity" if takes_missing else "NaN or infinity"
            raise ValueError(f"X contains {what}")
        self.posterior.check_rows(rows)
        return rows if hasattr(rows, "tocsr") else np.ascontiguousarray(rows)

    def _named(self, frame: Any) -> Array:
        """Columns of a frame in the order of the fit, whatever theirs is."""
        import narwhals as nw

        rows = nw.from_native(frame, eager_only=True)
        missing = [name for name in self.names if name not in rows.columns]
        if missing:
            raise ValueError(f"X has no column {missing[0]!r}, which the model was fitted to")
        return np.asarray(rows.select([str(name) for name in self.names]).to_numpy())


Unseen = tuple[Array, Matrix] | None  # numbers of the rows, and copies of them with known levels
