"""`DeepGPClassifier`: classification by a deep Gaussian process."""

from __future__ import annotations

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
from likelier.deep_gp.recipe import DeepFit, StreamTargets, Task
from likelier.deep_gp.settings import ARD, PowerEP
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

    Requires ``likelier[jax]``.

    Parameters
    ----------
    layers : int, default=2
        Number of layers; 1 is a sparse Gaussian process.
    hidden_dim : int or "auto", default="auto"
        Nodes per inner layer; "auto" is the number of inputs, at most 30.
    n_inducing : int or "auto", default="auto"
        Inducing points per layer; "auto" is 100, or 50 for at most 250 rows.
    kernel : {"rbf", "matern32", "matern52"} or ARD, default="rbf"
        Covariance function; `ARD` also has its length scales and how inputs are scaled.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    inference : "power_ep" or PowerEP, default="power_ep"
        Settings of the training and of early stopping.
    max_iter : int or "auto", default="auto"
        Number of minibatches; "auto" is eight per row, between 1000 and 2000.
    time_budget : float or None, default=None
        Time limit in seconds; the learning rate schedule is shortened to meet it.
    checkpoint : path-like or None, default=None
        Folder for checkpoints: the same fit, run again after an interruption, resumes there, to
        the same bits. Needs an int ``random_state``.
    random_state : int, RandomState or None, default=None
        Seed; results are reproducible bit for bit.
    verbose : int, default=0
        Print progress and the remaining time.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    layers_ : list of dict of ndarray
        Inducing points, kernel parameters and cavity distribution (``q`` without one row).
    kernel_, length_scales_, power_ : str, str, float
        What the layers were trained with; ``length_scales_`` is "learned" or "long".
    n_iter_, energy_ : int, float
        Minibatches, and the mean energy per row (the objective) over the last of them.
    label_noise_ : float
        Learned probability that a label is wrong given the scores; see Notes.

    Notes
    -----
    A stack of sparse Gaussian process layers; the inputs of a layer are samples of the previous
    one. Two classes share one output with a probit likelihood; of more, each has an output and the
    class is the argmax, by a quadrature whose error in training is 2e-5, in predictions 1e-9.
    A minibatch costs ``M^2`` per row, sample and node, and ``M^3`` per node. ``label_noise_`` tends
    to the fraction of wrong labels as the power tends to zero; at power 1 it may be near zero.

    Inputs are standardised: one extreme value makes all others of its column nearly equal, so
    transform such columns to logarithms or ranks. The prediction of a row does not depend on the
    other rows, bit for bit.

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

    _default_draws = 32

    def __init__(
        self,
        layers: int = 2,
        *,
        hidden_dim: int | str = "auto",
        n_inducing: int | str = "auto",
        kernel: str | ARD = "rbf",
        class_weight: Any = None,
        inference: str | PowerEP = "power_ep",
        max_iter: int | str = "auto",
        time_budget: float | None = None,
        checkpoint: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.layers = layers
        self.hidden_dim = hidden_dim
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.class_weight = class_weight
        self.inference = inference
        self.max_iter = max_iter
        self.time_budget = time_budget
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _find_power(self, task: Task, monitor: Monitor) -> float:
        power = self._power_ep.power
        return 1.0 if power == "auto" else float(power)

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

    def _standardise(self, y: Array, weight: Array | None) -> Array:
        """Signs for two classes, else class indices."""
        return 2.0 * y - 1.0 if len(self.classes_) == 2 else y

    def _stream_targets(self, source: Any, seed: int, monitor: Monitor) -> StreamTargets:
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
        return ("probit_ep" if self._power_ep.power in (1.0, "auto") else "probit"), 1

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
