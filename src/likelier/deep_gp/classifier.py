"""`DeepGPClassifier`: a deep Gaussian process for classes."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr, logit, logsumexp, ndtr
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_is_fitted

from likelier.base import Array, Batch, Matrix, Uncertainty
from likelier.deep_gp.estimator import require_jax
from likelier.deep_gp.kernel_choice import find_kernel
from likelier.deep_gp.posterior import label_chances, log_label_chances
from likelier.deep_gp.recipe import DeepFit, Task
from likelier.deep_gp.start import KernelStart
from likelier.engines import StreamEngine
from likelier.fitting.dataset import (
    EncodedSource,
    Summary,
    require_targets,
    stream_classes,
    summarise,
)
from likelier.fitting.moments import ColumnMoments
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
from likelier.predictive import Bernoulli, Categorical, ClassPredictive

SCORE_VALUES = 40_960  # rows times classes of one call of the compiled quadrature
LEAST_SCORE_ROWS, MOST_SCORE_ROWS = 32, 4096
SMALLEST = 1e-300


class DeepGPClassifier(ClassifierMixin, DeepFit):
    """Classification by a deep Gaussian process, trained by power expectation propagation.

    Layers of sparse Gaussian processes, each fed with samples of the one before. Two classes
    have one output and a probit likelihood; more have one output each, and the class is that of
    the largest. A label may be wrong with a probability that is learned. Inputs are standardised
    inside. Needs ``likelier[jax]``.

    Parameters
    ----------
    layers : int, default=2
        Number of layers; 1 is a sparse Gaussian process.
    hidden_dim : int or "auto", default="auto"
        Nodes of inner layers; "auto" is the number of inputs, at most 30. Nodes beyond the
        inputs start as noise that the last layer passes on.
    n_inducing : int or "auto", default="auto"
        Inducing points of every layer; "auto" is 100, and 50 for at most 250 rows.
    kernel : {"rbf", "matern32", "matern52"}, default="rbf"
        See ``length_scales``.
    node_kernels : bool, default=False
        Whether every node has a kernel of its own; otherwise those of a layer share one.
    length_scales : {"auto", "learned", "long"}, default="auto"
        "learned" is one for every input, learned with the rest; "long" is four times what is
        typical of the rows, and kept: nearly linear functions, which do not overfit. "auto" asks
        rows that short fits have not seen, from 12 rows on; with fewer, or with a time
        budget of less than 30 seconds, it is "learned".
    power : float or "auto", default="auto"
        Power of the expectation propagation, in (0, 1]: 1 is the usual one and "auto", towards
        zero it becomes variational inference.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    input_scale : {"column", "common"}, default="column"
        Whether every input is divided by its own spread, or all by one: for pixels and other
        inputs that share a unit, where those that hardly vary should count little.
    n_samples : int, default=10
        Samples that a row takes through the layers in training.
    n_draws : int, default=32
        Samples that a prediction is a mixture of.
    batch_size : int, default=256
        Rows of a minibatch.
    learning_rate : float, default=0.02
        First rate of Adam; it falls to a fiftieth along half a cosine.
    max_iter : int or "auto", default="auto"
        Minibatches; "auto" is eight for every row, between 1000 and 2000.
    early_stopping : bool, default=False
        Whether to hold rows out and keep the parameters that predict them best.
    validation_fraction : float, default=0.1
        Share of the rows that are held out for it, at most 2000 rows.
    n_iter_no_change : int, default=5
        Evaluations, 100 minibatches apart, without a better one before it stops.
    time_budget : float or None, default=None
        Seconds; the schedule is shortened to fit.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the training; single takes about half the time.
    warm_start : bool, default=False
        Go on where an earlier fit was interrupted, or ended, up to ``max_iter`` minibatches in
        all. After an interruption the result is the same as without it, to the last bit. After
        a fit that ended, a larger ``max_iter`` does not give what one long fit would: the first
        minibatches were learned at the falling rates of the shorter schedule, the rest are at
        those of the longer one.
    checkpoint : str or None, default=None
        Path of a file that holds an unfinished training, written every minute. A fit that finds
        it goes on from there, also in another process; at the end it is removed.
    random_state : int, RandomState or None, default=None
        The same seed gives the same bits.
    verbose : int, default=0
        Print progress and the time left.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    layers_ : list of dict of ndarray
        Inducing points, scales, and ``q`` of every layer as if one row were left out.
    removed_ : float
        Share of ``q`` that this row has.
    kernel_, node_kernels_ : str, bool
        The words that these layers belong to.
    label_noise_ : float
        Learned probability that a label is wrong, beyond what the scores leave open. At power 1
        it is no estimate of the share of wrong labels: that energy asks for the predictive
        probability of a label only, which wide scores explain as well, and it may end near zero
        with a fifth of the labels wrong. Towards power 0 scores are asked to be sure, and it
        comes near that share.
    power_ : float
        Power that it was trained with.
    n_iter_ : int
        Minibatches done.
    energy_ : float
        Last mean of the energy per row, which training minimises.

    Notes
    -----
    Cost of a minibatch: ``M^2`` operations for every row and node of the first layer, as many
    for every sample, row and node of the others, and ``M^3`` for every node; the likelihood is
    linear in the number of classes. Programs are compiled once per shape and kept on disk.

    Training takes the likelihood of three and more classes by a quadrature that is right to 2e-5
    in its logarithm, but for rounding; predictions take one that is right to 1e-9, in double
    precision always. Both hold while no variance is more than 1e4 times another.

    Inputs are measured in their standard deviations: a single value far beyond all others of its
    column makes those others alike, so leave such rows out, or take logarithms or ranks.

    All rows share the random numbers that a prediction is made with, so it is a function of the
    row alone: other rows, their order and number change no bit of it. Rows are predicted in
    blocks of 8 to 64, and one row costs as much as a block.

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
        checkpoint: str | None = None,
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

    def _find_power(self, task: Task) -> float:
        return 1.0 if self.power == "auto" else float(self.power)

    def _find_kernel(self, task: Task) -> KernelStart | None:
        return find_kernel(self, task)

    # -- targets -------------------------------------------------------------------------
    def _check_y(self, y: Array) -> Array:
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_no_missing_label(y)
        check_classification_targets(y)
        return y

    def _set_classes(self, classes: Array) -> None:
        self.classes_ = require_two_classes(classes)

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Class numbers, and weights that include the classes'."""
        self._set_classes(np.unique(y))
        codes = class_codes(self.classes_, y)
        per_class = class_weights(self.class_weight, self.classes_, codes, weight)
        return codes, combine_weights(weight, per_class, codes)

    def _standardise(self, y: Array, weight: Array | None) -> Array:
        """Signs for two classes, else class numbers."""
        return 2.0 * y - 1.0 if len(self.classes_) == 2 else y

    def _open_encoded(self, source: Any, seed: int) -> tuple[Any, int, float, Standard]:
        """One pass for the classes and the spreads of the inputs."""

        def look(batch: Batch) -> tuple[Summary, ColumnMoments]:
            self._check_y(require_targets(batch))
            summary = summarise(batch, with_squares=False, with_labels=True)
            return summary, ColumnMoments.of(batch.X, batch.weight)

        summary, inputs = StreamEngine(source, seed=seed, shuffle=False).reduce(
            look, lambda a, b: (a[0] + b[0], a[1] + b[1])
        )
        classes, per_class = stream_classes(summary, self.class_weight)
        self._set_classes(classes)
        standard = Standard.from_moments(inputs)
        encoded = _SignSource(source, classes, per_class, 2)
        total = summary.weight
        if per_class is not None:
            engine = StreamEngine(encoded, seed=seed, shuffle=False)
            total = float(engine.reduce(lambda b: np.asarray(b.weight).sum(), np.add))
        return encoded, summary.n_rows, total, standard

    def _outputs(self) -> tuple[str, int]:
        if len(self.classes_) > 2:
            return "argmax", len(self.classes_)
        return ("probit_ep" if self.power in (1.0, "auto") else "probit"), 1

    def _store_likelihood(self) -> None:
        n_classes = len(self.classes_)
        self.label_noise_ = float((n_classes - 1) / n_classes * expit(self.likelihood_))

    # -- predictions -----------------------------------------------------------------------
    def _predictives(self, X: Matrix) -> Generator[ClassPredictive, None, None]:
        """What is known of the classes of validated rows, block by block."""
        n_classes = len(self.classes_)
        for mean, variance in self._moments(X):
            if n_classes == 2:
                p = ndtr(mean[..., 0] / np.sqrt(1.0 + variance[..., 0]))
                yield Bernoulli(label_chances(p, self.label_noise_, 2))
            else:
                p = _largest(mean, variance)
                yield Categorical(label_chances(p, self.label_noise_, n_classes))

    def _checked(self, X: Any) -> Generator[ClassPredictive, None, None]:
        check_is_fitted(self, "layers_")
        return self._predictives(self._check_X(X, reset=False))

    def _log_density(self, X: Matrix, y: Array) -> Array:
        """Log probability of encoded targets, for early stopping.

        From probabilities, whose program a prediction needs anyway; where one is so small that
        it has few digits, its logarithm is large enough to decide without them.
        """
        p = np.concatenate([part.probabilities() for part in self._predictives(X)])
        codes = 0.5 * (y + 1.0) if len(self.classes_) == 2 else y
        chances = p[np.arange(len(p)), codes.astype(np.intp)]
        return np.asarray(np.log(np.maximum(chances, SMALLEST)))

    def _log_chances(self, X: Matrix, codes: Array) -> Array:
        """Log probability of class numbers, taken in logarithms: small ones keep their digits."""
        n_classes, out, start = len(self.classes_), [], 0
        for mean, variance in self._moments(X):
            mine = codes[start : start + len(mean), None]
            start += len(mean)
            if n_classes == 2:
                sign = 2.0 * mine - 1.0
                log_p = log_ndtr(sign * mean[..., 0] / np.sqrt(1.0 + variance[..., 0]))
            else:
                log_p = _log_largest(mine, mean, variance)
            mixture = logsumexp(log_p, axis=1) - np.log(log_p.shape[1])
            out.append(log_label_chances(mixture, self.label_noise_, n_classes))
        return np.concatenate(out)

    @or_constant
    def predict_proba(self, X: Any) -> Array:
        """Probability of every class: a mean over samples of the layers.

        The same bits whatever other rows are predicted with a row.
        """
        return np.concatenate([part.probabilities() for part in self._checked(X)])

    @or_constant
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @or_constant
    def predict(self, X: Any) -> Array:
        """Most probable class of every row, always that of `predict_proba`."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    @or_constant
    def decision_function(self, X: Any) -> Array:
        """Log odds of the second of two classes, else log probabilities."""
        p = np.clip(self.predict_proba(X), SMALLEST, 1.0)
        return np.asarray(logit(p[:, 1]) if p.shape[1] == 2 else np.log(p))

    @or_constant
    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the class in nats: in all, within the samples, and between them."""
        parts = [part.uncertainty() for part in self._checked(X)]
        return Uncertainty(
            np.concatenate([part.total for part in parts]),
            np.concatenate([part.aleatoric for part in parts]),
            np.concatenate([part.epistemic for part in parts]),
        )

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log probability of the label of each row; that of a tiny one has all its digits."""
        check_is_fitted(self, "layers_")
        rows, labels = self._check_X(X, reset=False), np.asarray(y)
        if labels.shape != (rows.shape[0],):
            raise ValueError(
                f"y must hold one label for each of {rows.shape[0]} rows: {labels.shape}"
            )
        check_no_missing_label(labels)
        return self._log_chances(rows, class_codes(self.classes_, labels))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draws of the label of each row, ``(n, n_samples)``; rows are drawn independently.

        The draws of a row follow from ``random_state`` and its place, whatever rows come after
        it; with one ``RandomState`` for all, batches draw what all rows at once would.
        """
        check_integer("n_samples", n_samples, 1)
        rng = check_random_state(random_state)
        bounds = np.cumsum(self.predict_proba(X), axis=1)
        uniform = rng.random_sample((len(bounds), int(n_samples)))
        codes = (uniform[:, :, None] > bounds[:, None, :-1]).sum(axis=2)
        return np.asarray(self.classes_[codes])


@dataclass(frozen=True)
class _SignSource(EncodedSource):
    """A source whose targets are signs for two classes, else class numbers."""

    def _encode(self, batch: Batch) -> Batch:
        encoded = super()._encode(batch)
        y = np.asarray(encoded.y, dtype=np.float64)
        return replace(encoded, y=2.0 * y - 1.0 if len(self.classes) == 2 else y)


def _largest(mean: Array, variance: Array) -> Array:
    """Chance of every class to have the largest score, in blocks of one compiled size."""
    require_jax()
    from likelier.deep_gp.scores import largest_scores

    return largest_scores(mean, variance, _score_rows(mean.shape[-1]))


def _log_largest(codes: Array, mean: Array, variance: Array) -> Array:
    """Logarithm of the chance of one class to have the largest score, likewise."""
    require_jax()
    from likelier.deep_gp.scores import log_largest_score

    return log_largest_score(codes, mean, variance, _score_rows(mean.shape[-1]))


def _score_rows(n_classes: int) -> int:
    """Rows of one call of the compiled quadrature."""
    rows = 2 ** int(np.log2(SCORE_VALUES / n_classes))
    return int(np.clip(rows, LEAST_SCORE_ROWS, MOST_SCORE_ROWS))
