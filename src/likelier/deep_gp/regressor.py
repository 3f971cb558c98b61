"""`DeepGPRegressor`: regression by a deep Gaussian process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from likelier.base import Array, Batch, Uncertainty, check_flag
from likelier.deep_gp.kernel_choice import find_kernel
from likelier.deep_gp.posterior import RegressorPosterior, regressor
from likelier.deep_gp.power_choice import MANY_ROWS, find_power
from likelier.deep_gp.recipe import DeepFit, Earlier, StreamTargets, Task
from likelier.deep_gp.start import FixedKernel
from likelier.deep_gp.target_scale import TargetMoments, TargetScale
from likelier.fitting.dataset import CheckedSource, NumberSource, require_targets, stream_engine
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.monitor import Monitor
from likelier.fitting.parameters import check_integer
from likelier.fitting.standardize import Standard
from likelier.predictive import Gaussian

MAX_TARGET_SHIFT = (
    3.0  # shift in standard deviations, or ratio of them, that a warm start warns about
)
MIN_PROBABILITY = 2.0**-46  # resolution of a uniform draw after it has chosen one of 128 components


class DeepGPRegressor(RegressorMixin, DeepFit):
    """Regression by a deep Gaussian process, trained by power expectation propagation.

    A stack of sparse Gaussian process layers; the inputs of a layer are samples of the previous
    one. The smoothness of the function may vary over the input space, and predictions are
    mixtures of Gaussians. Inputs and targets are standardised internally. Requires
    ``likelier[jax]``.

    Parameters
    ----------
    layers : int, default=2
        Number of layers; 1 is a sparse Gaussian process.
    hidden_dim : int or "auto", default="auto"
        Nodes per inner layer; "auto" is the number of inputs, at most 30. Nodes beyond the number
        of inputs are initialised with noise, which can model bimodal targets unless the length
        scales are long.
    n_inducing : int or "auto", default="auto"
        Inducing points per layer; "auto" is 100, or 50 for at most 250 rows.
    kernel : {"rbf", "matern32", "matern52"}, default="rbf"
        Covariance function; see ``length_scales``.
    node_kernels : bool, default=False
        Whether every node has its own kernel instead of one per layer.
    length_scales : {"auto", "learned", "long"}, default="auto"
        "learned": one per input, learned. "long": fixed at four times the typical length of the
        rows, for nearly linear functions that do not overfit. "auto" chooses by the held-out log
        density of short fits for 12 to 3000 rows, of one layer, or of all for a ``hidden_dim``
        beyond the number of inputs; otherwise, or for a ``time_budget`` under 30 seconds, it is
        "learned".
    heteroscedastic : bool, default=False
        Whether the noise depends on the inputs, through a second output.
    power : float or "auto", default="auto"
        Power of the expectation propagation, in (0, 1]; the limit zero is variational inference.
        "auto" is 0.5 below 3000 rows, else 1 or 0.5 by the held-out log density of short fits (1
        for a ``time_budget`` under 30 seconds); see Notes.
    input_scale : {"column", "common"}, default="column"
        Divide every input by its own standard deviation, or all by a common scale (for pixels and
        other inputs that share a unit).
    n_samples : int, default=10
        Samples per row in training.
    n_draws : int, default=128
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
        ``max_iter`` minibatches; kernel and widths must be the same. "auto" choices stay.
    checkpoint : path-like or None, default=None
        Folder where a fit under way is recorded every few seconds; the same fit, run again after
        it was killed, resumes there and ends with the same bits. Needs an int ``random_state``.
    random_state : int, RandomState or None, default=None
        Seed; results are reproducible bit for bit.
    verbose : int, default=0
        Print progress and the remaining time.

    Attributes
    ----------
    layers_ : list of dict of ndarray
        Inducing points, kernel parameters and cavity distribution (``q`` without one row) of
        every layer.
    removed_ : float
        Fraction of ``q`` that the cavity leaves out.
    kernel_, node_kernels_, length_scales_ : str, bool, str
        Parameters that the layers were trained with; ``length_scales_`` is "learned" or "long".
    noise_ : float
        Standard deviation of the noise in the units of the target; NaN if it is not constant.
        Too small at power 1; see Notes.
    target_mean_, target_scale_ : float
        Mean and scale that standardise the targets; see Notes.
    noise_floor_ : float
        Minimum variance of the noise, in target_scale of ``target_scale_ ** 2``.
    power_ : float
        Power used in training.
    n_iter_ : int
        Minibatches done.
    energy_ : float
        Mean energy per row, the training objective, over the last minibatches.

    Notes
    -----
    Cost per minibatch: ``M^2`` operations for every row and node of the first layer, ``M^2`` for
    every sample, row and node of the others, and ``M^3`` for every node. Programs are compiled
    once per shape and cached on disk.

    At power 1 part of the noise, often nearly all, is learned as variance of the function:
    densities and intervals include both, but ``noise_`` is too small. With few rows the noise can
    collapse to zero at power 1, hence the default. If the noise depends on the inputs, power 1 or
    ``heteroscedastic`` may be better for few rows too.

    Targets are divided by their standard deviation. For constant targets the scale is a millionth
    of their absolute value, so predictions are nearly certain. A single row carries no information
    about the noise: the scale is the absolute value of its target, or one if that is zero. The
    noise is Gaussian, so a single extreme target dominates the scale and distorts the function
    near it: remove such rows, or transform the target to its logarithm or rank.

    Inputs are standardised, so a single extreme value in a column makes all its other values nearly
    equal: remove such rows, or transform the column to logarithms or ranks.

    All rows share the random numbers of a prediction, so the prediction of a row does not depend on
    the other rows, bit for bit. Rows are predicted in blocks of 8 to 64, and a single row costs as
    much as a block.

    References
    ----------
    Bui et al., "Deep Gaussian processes for regression using approximate expectation
    propagation", 2016. Salimbeni and Deisenroth, "Doubly stochastic variational inference for
    deep Gaussian processes", 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import DeepGPRegressor
    >>> X = np.linspace(0.0, 6.0, 60)[:, None]
    >>> model = DeepGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[3.0], [60.0]], return_std=True)
    >>> bool(std[1] > 3.0 * std[0])
    True
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
        heteroscedastic: bool = False,
        power: float | str = "auto",
        input_scale: str = "column",
        n_samples: int = 10,
        n_draws: int = 128,
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
        self.heteroscedastic = heteroscedastic
        self.power = power
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

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        check_flag("heteroscedastic", self.heteroscedastic)

    def _find_power(self, task: Task, monitor: Monitor) -> float:
        return find_power(self, task, monitor)

    def _find_kernel(self, task: Task, monitor: Monitor) -> FixedKernel | None:
        if self.length_scales == "auto" and task.total >= MANY_ROWS:
            return None  # with so many rows, learned length scales do not overfit
        return find_kernel(self, task, monitor)

    # -- targets -------------------------------------------------------------------------
    def _check_y(self, y: Array) -> Array:
        return checked_numbers(y)

    def _set_target_scale(self, target_scale: TargetScale, earlier: Earlier) -> None:
        if earlier:  # the parameters were learned in its units
            before = (
                earlier[f"{name}_"] for name in ("target_mean", "target_scale", "noise_floor")
            )
            known = TargetScale(*before)
            _warn_if_targets_moved(known, target_scale)
            target_scale = known
        self.target_mean_, self.target_scale_ = target_scale.mean, target_scale.scale
        self.noise_floor_ = target_scale.noise_floor

    def _noise_floor(self) -> float:
        return float(self.noise_floor_)

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        return y, weight

    def _standardise(self, y: Array, weight: Array | None, earlier: Earlier) -> Array:
        """Standardised targets: mean zero and unit variance."""
        self._set_target_scale(TargetMoments.of(y, weight).target_scale(), earlier)
        return np.asarray((y - self.target_mean_) / self.target_scale_)

    def _stream_targets(
        self, source: Any, seed: int, earlier: Earlier, monitor: Monitor
    ) -> StreamTargets:
        """One pass for the moments of inputs and targets."""
        engine = stream_engine(CheckedSource(source, checked_numbers), seed, False)
        sums = monitor.stage("moments", lambda: engine.reduce(NumberSums.of, NumberSums.__add__))
        self._set_target_scale(sums.targets.target_scale(), earlier)
        encoded = StandardisedSource(source, self.target_mean_, self.target_scale_)
        standard = Standard.from_moments(sums.inputs)
        return StreamTargets(encoded, sums.n_rows, sums.inputs.weight, standard)

    def _outputs(self) -> tuple[str, int]:
        return ("heteroscedastic", 2) if self.heteroscedastic else ("gaussian", 1)

    def _noise(self, likelihood: Array) -> dict[str, Any]:
        if self.heteroscedastic:
            return {"noise_": float("nan")}
        variance = self.noise_floor_ + float(np.exp(likelihood))
        return {"noise_": float(np.sqrt(variance)) * self.target_scale_}

    # -- predictions -----------------------------------------------------------------------
    def _posterior_of(self, fitted: Any) -> RegressorPosterior:
        return regressor(fitted)

    def _predictives(self, X: Any) -> Iterator[Gaussian]:
        """Predictive mixtures of the targets, block by block."""
        rows = self._fitted_rows(X)
        posterior = regressor(self)
        return map(posterior.predictive, posterior.outputs.blocks(rows))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of the target; with ``return_std`` also its standard deviation.

        The result for a row does not depend on the other rows, bit for bit.
        """
        check_flag("return_std", return_std)
        parts = [(part.mean(), part.std()) for part in self._predictives(X)]
        mean, std = (np.concatenate(column) for column in zip(*parts, strict=True))
        return (mean, std) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central interval of the target of each row, ``(n, 2)``."""
        return np.concatenate([part.interval(coverage) for part in self._predictives(X)])

    def predict_quantiles(self, X: Any, alpha: Any = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of the target of each row."""
        return np.concatenate([part.quantiles(alpha) for part in self._predictives(X)])

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Variance of the target: of the noise (aleatoric) and of the function (epistemic).

        At power 1 (see ``power_``) much of the noise may be learned as variance of the function and
        counted as epistemic; the total is not affected. Power 0.5 separates the two.
        """
        X = self._fitted_rows(X)
        return regressor(self).uncertainty(X)

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log density of the target of each row, in nats and the target_scale of the target."""
        X, targets = self._fitted_rows(X), checked_numbers(np.asarray(y))
        n_rows = X.shape[0]
        if targets.shape != (n_rows,):
            raise ValueError(f"y must have one value per row ({n_rows}), got shape {targets.shape}")
        return regressor(self).log_density(X, targets)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draws of the target of each row, ``(n, n_samples)``; rows are drawn independently.

        The draws of a row depend on ``random_state`` and the row's position only. Batches that
        share one ``RandomState`` give the same draws as one call with all rows.
        """
        check_integer("n_samples", n_samples, 1)
        rng = check_random_state(random_state)
        out = []
        for part in self._predictives(X):
            # one uniform number per draw, so that the block size does not matter: its integer part
            # chooses the Gaussian, its fractional part is the probability of the quantile
            uniform = rng.random_sample((part.n_rows, int(n_samples))) * part.loc.shape[1]
            chosen = uniform.astype(np.intp)
            loc = np.take_along_axis(part.loc, chosen, axis=1)
            scale = np.take_along_axis(part.scale, chosen, axis=1)
            out.append(loc + scale * ndtri(np.maximum(uniform - chosen, MIN_PROBABILITY)))
        return np.concatenate(out)


def checked_numbers(y: Array) -> Array:
    """Finite targets in double precision."""
    try:
        y = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "y must be numeric for regression; use DeepGPClassifier for class labels"
        ) from None
    if not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity; remove those rows")
    return y


def _warn_if_targets_moved(known: TargetScale, found: TargetScale) -> None:
    """Warn if the targets differ much from those of the fit to start from."""
    moved = abs(found.mean - known.mean) > MAX_TARGET_SHIFT * known.scale
    if moved or not 1.0 / MAX_TARGET_SHIFT < found.scale / known.scale < MAX_TARGET_SHIFT:
        warnings.warn(
            f"warm_start keeps the standardisation of the earlier targets (mean {known.mean:.4g}, "
            f"scale {known.scale:.4g}), but y now has mean {found.mean:.4g} and scale "
            f"{found.scale:.4g}; for other targets fit with warm_start=False",
            UserWarning,
            stacklevel=8,
        )


@dataclass(frozen=True)
class NumberSums:
    """Rows, and moments of inputs and targets."""

    n_rows: int
    inputs: ColumnMoments
    targets: TargetMoments

    @classmethod
    def of(cls, batch: Batch) -> NumberSums:
        """Of a block."""
        targets = TargetMoments.of(require_targets(batch), batch.weight)
        return cls(batch.n_rows, ColumnMoments.of(batch.X, batch.weight), targets)

    def __add__(self, other: NumberSums) -> NumberSums:
        return NumberSums(
            self.n_rows + other.n_rows, self.inputs + other.inputs, self.targets + other.targets
        )


@dataclass(frozen=True)
class StandardisedSource(NumberSource):
    """A source with standardised targets."""

    mean: float
    scale: float

    def _encode(self, batch: Batch) -> Batch:
        return replace(
            batch, y=(require_targets(batch).astype(np.float64) - self.mean) / self.scale
        )
