"""`Predictor`: a posterior, the names of its classes and the encoding of its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.matrices import as_csr, checked_matrix
from likelier.predictive import Categorical, ClassPredictive, LabelSets, NumberPredictive
from likelier.predictor.unseen_levels import answer, answers, table_blocks


@dataclass(frozen=True)
class Predictions:
    """Predictions for one block of rows.

    ``label`` is the predicted class or number, ``probability`` has one column per class (None for
    a regression), ``interval`` the columns lower and upper where the model has them, ``y`` the true
    target where it was read.
    """

    label: Array
    probability: Array | None
    interval: Array | None
    y: Array | None


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
        self.posterior, self.n_features, self.classes_ = posterior, n_features, classes
        self.names, self.encoding = names, encoding

    def check(self) -> None:
        """Raise a ValueError unless the parts belong together, so that the model can predict."""
        n_features: Any = self.n_features
        if not isinstance(n_features, int) or n_features < 1:
            raise ValueError(f"n_features_in_ must be a positive integer, not {n_features!r}")
        n_classes = None
        if self.classes_ is not None:
            array = isinstance(self.classes_, np.ndarray)
            if not array or np.ndim(self.classes_) != 1 or not len(self.classes_):
                raise ValueError("classes_ must be a list of labels")
            n_classes = len(self.classes_)
        if self.names is not None and len(self.names) != self.n_features:
            raise ValueError(f"feature_names_in_ must hold {self.n_features} names")
        if self.encoding is not None and self.encoding.n_features != self.n_features:
            raise ValueError(f"encoding_ must make {self.n_features} features")
        self.posterior.check(self.n_features, n_classes)

    @property
    def task(self) -> str:
        """Whether it predicts classes ("classification") or numbers ("regression")."""
        return "regression" if self.classes_ is None else "classification"

    @property
    def target(self) -> str:
        """Name of the target column; libsvm files, which have no names, call it their label."""
        target = getattr(self.encoding, "target", None)  # a libsvm file has none
        return "label" if target is None else str(target.name)

    @cached_property
    def has_intervals(self) -> bool:
        """Whether it gives intervals of its predictions, which may depend on its loss."""
        if self.classes_ is not None:
            return False
        try:
            self._plain.predict_interval(np.zeros((1, self.n_features)))
        except ValueError:
            return False
        return True

    def predict(self, X: Any) -> Array:
        """Most probable class, the predicted number, or indicators of the labels of every row."""
        if self.encoding is not None:
            return np.asarray(answers(self._plain, self.encoding, "predict", X))
        point = self._by_parts(X, lambda rows: np.asarray(self.posterior.point(rows)))
        if self.classes_ is None or self.posterior.label_sets:
            return point
        return np.asarray(self.classes_[point])

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, or of every label."""
        if self.classes_ is None:
            raise ValueError("predict_proba is for classes; this model is a regression")
        if self.encoding is not None:
            return np.asarray(answers(self._plain, self.encoding, "predict_proba", X))
        return self._by_parts(X, self._probabilities)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central interval of the target of each row, ``(n, 2)``."""
        self._require_regression("predict_interval")
        if self.encoding is not None:
            found = answers(self._plain, self.encoding, "predict_interval", X, coverage=coverage)
            return np.asarray(found)
        return self._by_parts(X, lambda rows: self._numbers(rows).interval(coverage))

    def predict_quantiles(self, X: Any, alpha: npt.ArrayLike = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of the target of each row, one column for each ``alpha``."""
        self._require_regression("predict_quantiles")
        if self.encoding is not None:
            found = answers(self._plain, self.encoding, "predict_quantiles", X, alpha=alpha)
            return np.asarray(found)
        return self._by_parts(X, lambda rows: self._numbers(rows).quantiles(alpha))

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Uncertainty of each prediction: ``total``, ``aleatoric`` and ``epistemic``."""
        if self.encoding is not None:
            found: Uncertainty = answers(self._plain, self.encoding, "predict_uncertainty", X)
            return found
        parts = self._by_parts(X, self._uncertainties)
        return Uncertainty(parts[:, 0], parts[:, 1], parts[:, 2])

    def predict_blocks(
        self, data: Any, coverage: float = 0.9, *, labelled: bool = False, **reading: Any
    ) -> Iterator[Predictions]:
        """Yield the predictions for a table block by block, in the order of its rows.

        Parameters
        ----------
        data : path or data frame
            Rows with the columns of the training data; the target may be absent.
        coverage : float
            Probability with which an interval should hold the target.
        labelled : bool
            Whether to read the targets too; rows without one are left out.
        **reading
            How to read a file; see `likelier.tables.block_source`.
        """
        for block in table_blocks(data, self.encoding, labelled, **reading):
            label = self._answer("predict", block)
            if self.classes_ is not None:
                yield Predictions(label, self._answer("predict_proba", block), None, block.y)
                continue
            interval = None
            if self.has_intervals:
                interval = self._answer("predict_interval", block, coverage=coverage)
            yield Predictions(label, None, interval, block.y)

    def _answer(self, method: str, block: Any, **options: Any) -> Array:
        return np.asarray(answer(self._plain, self.encoding, method, block, **options))

    # -- encoded rows -------------------------------------------------------------------------
    def _probabilities(self, X: Matrix) -> Array:
        predictive = self.posterior.predictive(X)
        assert isinstance(predictive, ClassPredictive | LabelSets)
        return predictive.probabilities()

    def _uncertainties(self, X: Matrix) -> Array:
        found = self.posterior.uncertainty(X)
        return np.stack([found.total, found.aleatoric, found.epistemic], axis=1)

    def _numbers(self, X: Matrix) -> NumberPredictive:
        predictive = self.posterior.predictive(X)
        assert isinstance(predictive, NumberPredictive)
        return predictive

    @cached_property
    def _plain(self) -> Predictor:
        """The same for encoded rows."""
        return Predictor(self.posterior, self.n_features, self.classes_)

    def _require_regression(self, method: str) -> None:
        if self.classes_ is not None:
            raise ValueError(f"{method} is for regression; this model predicts classes")

    def _by_parts(self, X: Any, compute: Callable[[Matrix], Array]) -> Array:
        """Results of a function of rows, as many at a time as the posterior takes."""
        rows = self._checked(X)
        most = self.posterior.most_rows or rows.shape[0]
        return np.concatenate(
            [compute(rows[start : start + most]) for start in range(0, rows.shape[0], most)]
        )

    def _checked(self, X: Any) -> Matrix:
        """A matrix of features as float32 or float64, dense or CSR."""
        if isinstance(X, np.ma.MaskedArray) and self.posterior.takes_missing:
            X = np.ma.filled(X.astype(np.float64), np.nan)
        X = checked_matrix(X)
        if hasattr(X, "columns"):
            X = self._of_frame(X)
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

    def _of_frame(self, frame: Any) -> Array:
        """Columns of a frame; refused under other names or in another order, as by estimators."""
        import narwhals as nw

        rows = nw.from_native(frame, eager_only=True)
        if self.names is not None and list(rows.columns) != list(self.names):
            raise ValueError(_other_names(list(self.names), list(rows.columns)))
        return np.asarray(rows.to_numpy())


def _other_names(expected: list[str], given: list[str]) -> str:
    """What scikit-learn says of a frame with other columns than that of the fit."""
    text = "The feature names should match those that were passed during fit.\n"
    unseen, missing = sorted({*given} - {*expected}), sorted({*expected} - {*given})
    for names, what in (
        (unseen, "Feature names unseen at fit time:\n"),
        (missing, "Feature names seen at fit time, yet now missing:\n"),
    ):
        shown = [*(f"- {name}\n" for name in names[:5]), *["- ...\n"] * (len(names) > 5)]
        text += what + "".join(shown) if names else ""
    same = not unseen and not missing
    return text + "Feature names must be in the same order as they were in fit.\n" * same
