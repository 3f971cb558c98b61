"""`DeepGPRegressor`: regression by a deep Gaussian process."""

from __future__ import annotations

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
from likelier.deep_gp.recipe import DeepFit, StreamTargets, Task
from likelier.deep_gp.settings import ARD, PowerEP
from likelier.deep_gp.start import FixedKernel
from likelier.deep_gp.target_scale import TargetMoments, TargetScale
from likelier.fitting.dataset import CheckedSource, NumberSource, require_targets, stream_engine
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.monitor import Monitor
from likelier.fitting.parameters import check_integer
from likelier.fitting.standardize import Standard
from likelier.predictive import Gaussian

MIN_PROBABILITY = 2.0**-46  # resolution of a uniform draw after it has chosen one of 128 components


class DeepGPRegressor(RegressorMixin, DeepFit):
    """Regression by a deep Gaussian process, trained by power expectation propagation.

    The smoothness of the function may vary over the input space, and predictions are mixtures of
    Gaussians. Requires ``likelier[jax]``.

    Parameters
    ----------
    layers : int, default=2
        Number of layers; 1 is a sparse Gaussian process.
    hidden_dim : int or "auto", default="auto"
        Nodes per inner layer; "auto" is the number of inputs, at most 30. More are
        initialised with noise, which can model bimodal targets unless the length scales are long.
    n_inducing : int or "auto", default="auto"
        Inducing points per layer; "auto" is 100, or 50 for at most 250 rows.
    kernel : {"rbf", "matern32", "matern52"} or ARD, default="rbf"
        Covariance function; `ARD` also has its length scales and how inputs are scaled.
    heteroscedastic : bool, default=False
        Whether the noise depends on the inputs, through a second output.
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
    layers_ : list of dict of ndarray
        Inducing points, kernel parameters and cavity distribution (``q`` without one row).
    kernel_, length_scales_, power_ : str, str, float
        What the layers were trained with; ``length_scales_`` is "learned" or "long".
    n_iter_, energy_ : int, float
        Minibatches, and the mean energy per row (the objective) over the last of them.
    noise_ : float
        Standard deviation of the noise; NaN if it is not constant, too small at power 1.
    target_mean_, target_scale_, noise_floor_ : float
        Mean and scale that standardise the targets, and the minimum variance after that.

    Notes
    -----
    A stack of sparse Gaussian process layers; the inputs of a layer are samples of the previous
    one. A minibatch costs ``M^2`` per row, sample and node, and ``M^3`` per node. At power 1 part
    of the noise, often nearly all, is learned as variance of the function, and with few rows the
    noise can collapse to zero; densities and intervals include both.

    Inputs and targets are standardised: one extreme input makes all others of its column nearly
    equal, one extreme target distorts the function near it, so transform such columns to
    logarithms or ranks. The prediction of a row does not depend on the other rows, bit for bit.

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

    _default_draws = 128

    def __init__(
        self,
        layers: int = 2,
        *,
        hidden_dim: int | str = "auto",
        n_inducing: int | str = "auto",
        kernel: str | ARD = "rbf",
        heteroscedastic: bool = False,
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
        self.heteroscedastic = heteroscedastic
        self.inference = inference
        self.max_iter = max_iter
        self.time_budget = time_budget
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _find_power(self, task: Task, monitor: Monitor) -> float:
        return find_power(self, task, monitor)

    def _find_kernel(self, task: Task, monitor: Monitor) -> FixedKernel | None:
        if self._ard.length_scales == "auto" and task.total >= MANY_ROWS:
            return None  # with so many rows, learned length scales do not overfit
        return find_kernel(self, task, monitor)

    # -- targets -------------------------------------------------------------------------
    def _check_y(self, y: Array) -> Array:
        return checked_numbers(y)

    def _set_target_scale(self, target_scale: TargetScale) -> None:
        self.target_mean_, self.target_scale_ = target_scale.mean, target_scale.scale
        self.noise_floor_ = target_scale.noise_floor

    def _noise_floor(self) -> float:
        return float(self.noise_floor_)

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        return y, weight

    def _standardise(self, y: Array, weight: Array | None) -> Array:
        """Standardised targets: mean zero and unit variance."""
        self._set_target_scale(TargetMoments.of(y, weight).target_scale())
        return np.asarray((y - self.target_mean_) / self.target_scale_)

    def _stream_targets(self, source: Any, seed: int, monitor: Monitor) -> StreamTargets:
        """One pass for the moments of inputs and targets."""
        engine = stream_engine(CheckedSource(source, checked_numbers), seed, False)
        sums = monitor.stage("moments", lambda: engine.reduce(NumberSums.of, NumberSums.__add__))
        self._set_target_scale(sums.targets.target_scale())
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
