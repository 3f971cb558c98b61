"""`DeepGPClassifier`: classification by a deep Gaussian process."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite

from likelier.base import Array, Batch, Uncertainty
from likelier.deep_gp.kernel_choice import find_kernel
from likelier.deep_gp.posterior import SMALLEST, ClassifierPosterior, classifier
from likelier.deep_gp.recipe import DeepFit, Earlier, StreamTargets, Task
from likelier.deep_gp.start import FixedKernel
from likelier.fitting.dataset import (
    CheckedSource,
    EncodedSource,
    Summary,
    stream_classes,
    stream_engine,
    summarise,
)
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.monitor import Monitor
from likelier.fitting.one_class import or_constant
from likelier.fitting.parameters import check_integer
from likelier.fitting.standardize import Standard
from likelier.fitting.targets import (
    check_no_missing_label,
    class_codes,
    class_weights,
    combine_weights,
    require_two_classes,
)


class DeepGPClassifier(ClassifierMixin, DeepFit):
    """Classification by a deep Gaussian process, trained by power expectation propagation.

    A stack of sparse Gaussian process layers; the inputs of a layer are samples of the previous
    one. Two classes share one output with a probit likelihood; with more classes each has an
    output, and the class is the argmax. The probability of a wrong label is learned. Inputs are
    standardised internally. Requires ``likelier[jax]``.

    Parameters
    ----------
    layers : int, default=2
        Number of layers; 1 is a sparse Gaussian process.
    hidden_dim : int or "auto", default="auto"
        Nodes per inner layer; "auto" is the number of inputs, at most 30. Nodes beyond the number
        of inputs are initialised with noise.
    n_inducing : int or "auto", default="auto"
        Inducing points per layer; "auto" is 100, or 50 for at most 250 rows.
    kernel : {"rbf", "matern32", "matern52"}, default="rbf"
        Covariance function; see ``length_scales``.
    node_kernels : bool, default=False
        Whether every node has its own kernel instead of one per layer.
    length_scales : {"auto", "learned", "long"}, default="auto"
        "learned": one per input, learned. "long": fixed at four times the typical length of the
        rows, for nearly linear functions that do not overfit. "auto" chooses by the held-out log
        density of short fits; "learned" below 12 rows or for a ``time_budget`` under 30 seconds.
    power : float or "auto", default="auto"
        Power of the expectation propagation, in (0, 1]; "auto" is 1. The limit zero is
        variational inference.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    input_scale : {"column", "common"}, default="column"
        Divide every input by its own standard deviation, or all by a common scale (for pixels and
        other inputs that share a unit).
    n_samples : int, default=10
        Samples per row in training.
    n_draws : int, default=32
        Mixture components of a prediction.
    batch_size : int, default=256
        Rows per minibatch.
    learning_rate : float, default=0.02
        Initial learning rate of Adam, with a half-cosine decay to 2 % of it.
    max_iter : int or "auto", default="auto"
        Number of minibatches; "auto" is eight per row, between 1000 and 2000.
    early_stopping : bool, default=False
        Whether to hold out rows and return the parameters with the best validation score.
    validation_fraction : float, default=0.1
        Fraction of the rows held out for early stopping, at most 2000 rows.
    n_iter_no_change : int, default=5
        Stop after this many validations, 100 minibatches apart, without improvement.
    time_budget : float or None, default=None
        Time limit in seconds; the learning rate schedule is shortened to meet it.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the training; "float32" takes about half the time.
    warm_start : bool, default=False
        Start from the fitted parameters, in the units of the earlier fit, with a new schedule of
        ``max_iter`` minibatches; classes, kernel and widths must be the same. "auto" choices stay.
    checkpoint : path-like or None, default=None
        Folder where a fit under way is recorded every few seconds; the same fit, run again after
        it was killed, resumes there and ends with the same bits. Needs an int ``random_state``.
    random_state : int, RandomState or None, default=None
        Seed; results are reproducible bit for bit.
    verbose : int, default=0
        Print progress and the remaining time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    layers_ : list of dict of ndarray
        Inducing points, kernel parameters and cavity distribution (``q`` without one row) of
        every layer.
    removed_ : float
        Fraction of ``q`` that the cavity leaves out.
    kernel_, node_kernels_, length_scales_ : str, bool, str
        Parameters that the layers were trained with; ``length_scales_`` is "learned" or "long".
    label_noise_ : float
        Learned probability that a label is wrong given the scores; see Notes.
    power_ : float
        Power used in training.
    n_iter_ : int
        Minibatches done.
    energy_ : float
        Mean energy per row, the training objective, over the last minibatches.

    Notes
    -----
    Cost per minibatch: ``M^2`` operations for every row and node of the first layer, ``M^2`` for
    every sample, row and node of the others, and ``M^3`` for every node; the likelihood is linear
    in the number of classes. Programs are compiled once per shape and cached on disk.

    With three or more classes, training computes the log likelihood by a quadrature with an error
    of 2e-5 plus rounding; predictions use one with an error of 1e-9, always in double precision.
    Both hold if no variance is more than 1e4 times another.

    ``label_noise_`` at power 1 does not estimate the fraction of wrong labels: that energy depends
    on the predictive probability of the labels only, which scores of large variance explain as
    well, and the noise may be near zero with a fifth of the labels wrong. It approaches that
    fraction as the power tends to zero.

    Inputs are standardised, so a single extreme value in a column makes all its other values nearly
    equal: remove such rows, or transform the column to logarithms or ranks.

    All rows share the random numbers of a prediction, so the prediction of a row does not depend on
    the other rows, bit for bit. Rows are predicted in blocks of 8 to 64, and a single row costs as
    much as a block.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import DeepGPClassifier
    >>> angle = np.linspace(0.0, 6.0, 60)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> model = DeepGPClassifier(random_state=0).fit(X, np.where(X[:, 0] > 0.0, "right", "left"))
    >>> model.predict([[0.9, 0.1], [-0.9, 0.1]])
    array(['right', 'left'], dtype='<U5')
    """

    def __init__(
        self,
        layers: int = 2,
        *,
        hidden_dim: int | str = "auto",
        n_inducing: int | str = "auto",
        kernel: str = "rbf",
        node_kernels: bool = False,
        length_scales: str = "auto",
        power: float | str = "auto",
        class_weight: Any = None,
        input_scale: str = "column",
        n_samples: int = 10,
        n_draws: int = 32,
        batch_size: int = 256,
        learning_rate: float = 0.02,
        max_iter: int | str = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        time_budget: float | None = None,
        dtype: str = "float64",
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.layers = layers
        self.hidden_dim = hidden_dim
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.node_kernels = node_kernels
        self.length_scales = length_scales
        self.power = power
        self.class_weight = class_weight
        self.input_scale = input_scale
        self.n_samples = n_samples
        self.n_draws = n_draws
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.time_budget = time_budget
        self.dtype = dtype
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _find_power(self, task: Task, monitor: Monitor) -> float:
        return 1.0 if self.power == "auto" else float(self.power)

    def _find_kernel(self, task: Task, monitor: Monitor) -> FixedKernel | None:
        return find_kernel(self, task, monitor)

    # -- targets -------------------------------------------------------------------------
    def _check_y(self, y: Array) -> Array:
        return checked_labels(y)

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Class indices, and weights multiplied by class weights."""
        self.classes_ = require_two_classes(np.unique(y))
        codes = class_codes(self.classes_, y)
        per_class = class_weights(self.class_weight, self.classes_, codes, weight)
        return codes, combine_weights(weight, per_class, codes)

    def _standardise(self, y: Array, weight: Array | None, earlier: Earlier) -> Array:
        """Signs for two classes, else class indices."""
        return 2.0 * y - 1.0 if len(self.classes_) == 2 else y

    def _stream_targets(
        self, source: Any, seed: int, earlier: Earlier, monitor: Monitor
    ) -> StreamTargets:
        """One pass for the classes and the moments of the inputs; another for class weights."""
        found = monitor.stage("moments", lambda: stream_moments(source, self.class_weight))
        self.classes_ = require_two_classes(found.classes)
        encoded = SignSource(source, found.classes, found.per_class, 2)
        return StreamTargets(
            encoded, found.n_rows, found.total, Standard.from_moments(found.inputs)
        )

    def _outputs(self) -> tuple[str, int]:
        if len(self.classes_) > 2:
            return "argmax", len(self.classes_)
        return ("probit_ep" if self.power in (1.0, "auto") else "probit"), 1

    def _noise(self, likelihood: Array) -> dict[str, Any]:
        n_classes = len(self.classes_)
        return {"label_noise_": float((n_classes - 1) / n_classes * expit(likelihood))}

    # -- predictions -----------------------------------------------------------------------
    def _posterior_of(self, fitted: Any) -> ClassifierPosterior:
        return classifier(fitted)

    @or_constant
    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, averaged over samples of the layers.

        The result for a row does not depend on the other rows, bit for bit.
        """
        X = self._fitted_rows(X)
        return classifier(self).probabilities(X)

    @or_constant
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @or_constant
    def predict(self, X: Any) -> Array:
        """Most probable class of every row, the argmax of `predict_proba`."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    @or_constant
    def decision_function(self, X: Any) -> Array:
        """Log odds of the second of two classes; log probabilities of three or more."""
        p = np.clip(self.predict_proba(X), SMALLEST, 1.0)
        return np.asarray(logit(p[:, 1]) if p.shape[1] == 2 else np.log(p))

    @or_constant
    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the class in nats: total, within samples (aleatoric), between (epistemic)."""
        X = self._fitted_rows(X)
        return classifier(self).uncertainty(X)

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log probability of the label of each row, accurate for tiny probabilities too."""
        rows, labels = self._fitted_rows(X), np.asarray(y)
        if labels.shape != (rows.shape[0],):
            raise ValueError(
                f"y must have one label per row ({rows.shape[0]}), got shape {labels.shape}"
            )
        check_no_missing_label(labels)
        return classifier(self).log_probability(rows, class_codes(self.classes_, labels))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draws of the label of each row, ``(n, n_samples)``; rows are drawn independently.

        The draws of a row depend on ``random_state`` and the row's position only. Batches that
        share one ``RandomState`` give the same draws as one call with all rows.
        """
        check_integer("n_samples", n_samples, 1)
        rng = check_random_state(random_state)
        bounds = np.cumsum(self.predict_proba(X), axis=1)
        uniform = rng.random_sample((len(bounds), int(n_samples)))
        codes = (uniform[:, :, None] > bounds[:, None, :-1]).sum(axis=2)
        return np.asarray(self.classes_[codes])


def checked_labels(y: Array) -> Array:
    """Labels that can be learned from, as they are."""
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    check_no_missing_label(y)
    check_classification_targets(y)
    return y


@dataclass(frozen=True)
class SignSource(EncodedSource):
    """A source whose targets are signs for two classes, else class indices."""

    def _encode(self, batch: Batch) -> Batch:
        encoded = super()._encode(batch)
        y = np.asarray(encoded.y, dtype=np.float64)
        return replace(encoded, y=2.0 * y - 1.0 if len(self.classes) == 2 else y)


@dataclass(frozen=True)
class LabelSums:
    """How often each label occurs, and moments of the inputs."""

    labels: Summary
    inputs: ColumnMoments

    @classmethod
    def of(cls, batch: Batch) -> LabelSums:
        """Of a block."""
        labels = summarise(batch, with_squares=False, with_labels=True)
        return cls(labels, ColumnMoments.of(batch.X, batch.weight))

    def __add__(self, other: LabelSums) -> LabelSums:
        return LabelSums(self.labels + other.labels, self.inputs + other.inputs)


@dataclass(frozen=True)
class StreamMoments:
    """Sorted classes of a stream and their weights, its rows, and moments of the inputs."""

    classes: Array
    per_class: Array | None
    n_rows: int
    total: float
    inputs: ColumnMoments


def stream_moments(source: Any, class_weight: Any) -> StreamMoments:
    """By one pass, and another one for the sum of weights if classes have any."""
    checked = CheckedSource(source, checked_labels)
    sums = stream_engine(checked, 0, False).reduce(LabelSums.of, LabelSums.__add__)
    classes, per_class = stream_classes(sums.labels, class_weight)
    total = sums.labels.weight
    if per_class is not None and len(classes) > 1:
        encoded = EncodedSource(source, classes, per_class, 2)
        total = float(stream_engine(encoded, 0, False).reduce(_weight_of, np.add))
    return StreamMoments(classes, per_class, sums.labels.n_rows, total, sums.inputs)


def _weight_of(batch: Batch) -> Any:
    return np.asarray(batch.weight).sum()
