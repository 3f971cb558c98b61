"""`DeepGPRegressor`: a deep Gaussian process for numbers."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Batch, Matrix, Uncertainty, check_flag
from likelier.deep_gp.kernel_choice import find_kernel
from likelier.deep_gp.power_choice import MANY_ROWS, find_power
from likelier.deep_gp.recipe import DeepFit, Task
from likelier.deep_gp.start import KernelStart
from likelier.deep_gp.units import TargetSizes, Units
from likelier.engines import StreamEngine
from likelier.fitting.dataset import NumberSource, require_targets
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.parameters import check_integer
from likelier.fitting.standardize import Standard
from likelier.predictive import Gaussian

FAR_TARGETS = 3.0  # spreads of the mean, or times the spread
LEAST_SHARE = 2.0**-46  # the digits that a uniform number has left after it chose of 128


class DeepGPRegressor(RegressorMixin, DeepFit):
    """Regression by a deep Gaussian process, trained by power expectation propagation.

    Layers of sparse Gaussian processes, each fed with samples of the one before: a function
    whose smoothness may differ from place to place, with predictions that are mixtures of
    Gaussians. Inputs and targets are standardised inside. Needs ``likelier[jax]``.

    Parameters
    ----------
    layers : int, default=2
        Number of layers; 1 is a sparse Gaussian process.
    hidden_dim : int or "auto", default="auto"
        Nodes of inner layers; "auto" is the number of inputs, at most 30. Nodes beyond the
        inputs start as noise that the last layer passes on: with one of them a target can be on
        either of two branches.
    n_inducing : int or "auto", default="auto"
        Inducing points of every layer; "auto" is 100, and 50 for at most 250 rows.
    kernel : {"rbf", "matern32", "matern52"}, default="rbf"
        See ``length_scales``.
    node_kernels : bool, default=False
        Whether every node has a kernel of its own; otherwise those of a layer share one.
    length_scales : {"auto", "learned", "long"}, default="auto"
        "learned" is one for every input, learned with the rest; "long" is four times what is
        typical of the rows, and kept: nearly linear functions, which do not overfit. "auto" asks
        rows that short fits have not seen, for 12 to 3000 rows; with fewer or more, or with a
        time budget of less than 30 seconds, it is "learned".
    heteroscedastic : bool, default=False
        Whether the noise depends on the inputs, by a second output.
    power : float or "auto", default="auto"
        Power of the expectation propagation, in (0, 1]: 1 is the usual one, towards zero it
        becomes variational inference. "auto" is 0.5 for less than 3000 rows, which let the noise
        collapse with power 1; for more it is 1 or 0.5, whichever predicts rows better that short
        fits have not seen (1 with a time budget of less than 30 seconds). Where the noise differs
        from place to place, few rows too may be better off with 1 or with ``heteroscedastic``.
    input_scale : {"column", "common"}, default="column"
        Whether every input is divided by its own spread, or all by one: for pixels and other
        inputs that share a unit, where those that hardly vary should count little.
    n_samples : int, default=10
        Samples that a row takes through the layers in training.
    n_draws : int, default=128
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
    layers_ : list of dict of ndarray
        Inducing points, scales, and ``q`` of every layer as if one row were left out.
    removed_ : float
        Share of ``q`` that this row has.
    kernel_, node_kernels_ : str, bool
        The words that these layers belong to.
    noise_ : float
        Standard deviation of the noise in the units of the target; NaN if it is not constant.
        With power 1 part of the noise is learned as spread of the function, often nearly all of
        it: densities and intervals have both, but this number is then too small.
    target_mean_, target_spread_ : float
        What targets are measured from, and in; see the notes.
    noise_floor_ : float
        Least variance of the noise, in units of ``target_spread_ ** 2``.
    power_ : float
        Power that it was trained with.
    n_iter_ : int
        Minibatches done.
    energy_ : float
        Last mean of the energy per row, which training minimises.

    Notes
    -----
    Cost of a minibatch: ``M^2`` operations for every row and node of the first layer, as many
    for every sample, row and node of the others, and ``M^3`` for every node. Programs are
    compiled once per shape and kept on disk.

    Targets are measured in their standard deviation. Constant ones are measured in a millionth of
    their size, so their predictions are nearly sure. One row says nothing about the noise, and
    the size of its target stands for it; where that is zero, one does. The noise is Gaussian: a
    single target far beyond all others sets that unit and bends the function near it, so leave
    such rows out, or measure the target in its logarithm or rank.

    Inputs are measured in their standard deviations: a single value far beyond all others of its
    column makes those others alike, so leave such rows out, or take logarithms or ranks.

    All rows share the random numbers that a prediction is made with, so it is a function of the
    row alone: other rows, their order and number change no bit of it. Rows are predicted in
    blocks of 8 to 64, and one row costs as much as a block.

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

    def _find_power(self, task: Task) -> float:
        return find_power(self, task)

    def _find_kernel(self, task: Task) -> KernelStart | None:
        if self.length_scales == "auto" and task.total >= MANY_ROWS:
            return None  # so many rows tell scales from noise by themselves
        return find_kernel(self, task)

    # -- targets -------------------------------------------------------------------------
    def _check_y(self, y: Array) -> Array:
        try:
            y = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                "y must hold numbers for regression; for labels use DeepGPClassifier"
            ) from None
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity; leave those rows out")
        return y

    def _set_units(self, sizes: TargetSizes) -> None:
        units = sizes.units()
        if self.warm_start and hasattr(self, "training_"):
            self._compare_units(units)
            return  # a fit that goes on measures its targets as before
        self.target_mean_, self.target_spread_ = units.mean, units.spread
        self.noise_floor_ = units.noise_floor

    def _compare_units(self, units: Units) -> None:
        """Warn where targets are far from those that a fit goes on from."""
        known = self.target_spread_
        moved = abs(units.mean - self.target_mean_) > FAR_TARGETS * known
        if moved or not 1.0 / FAR_TARGETS < units.spread / known < FAR_TARGETS:
            warnings.warn(
                f"warm_start measures targets as those of the earlier fit (mean "
                f"{self.target_mean_:.4g}, spread {known:.4g}), but y now has mean "
                f"{units.mean:.4g} and spread {units.spread:.4g}; for other targets fit with "
                "warm_start=False",
                UserWarning,
                stacklevel=6,
            )

    def _least_noise(self) -> float:
        return float(self.noise_floor_)

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        return y, weight

    def _standardise(self, y: Array, weight: Array | None) -> Array:
        """Targets of mean zero and unit variance."""
        self._set_units(TargetSizes.of(y, weight))
        return np.asarray((y - self.target_mean_) / self.target_spread_)

    def _open_encoded(self, source: Any, seed: int) -> tuple[Any, int, float, Standard]:
        """One pass for the spreads of inputs and targets."""

        def look(batch: Batch) -> tuple[int, ColumnMoments, TargetSizes]:
            y = self._check_y(require_targets(batch))
            inputs = ColumnMoments.of(batch.X, batch.weight)
            return batch.n_rows, inputs, TargetSizes.of(y, batch.weight)

        engine = StreamEngine(source, seed=seed, shuffle=False)
        n_rows, inputs, targets = engine.reduce(
            look, lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2])
        )
        self._set_units(targets)
        encoded = _UnitSource(source, self.target_mean_, self.target_spread_)
        return encoded, n_rows, inputs.weight, Standard.from_moments(inputs)

    def _outputs(self) -> tuple[str, int]:
        return ("heteroscedastic", 2) if self.heteroscedastic else ("gaussian", 1)

    def _store_likelihood(self) -> None:
        variance = self.noise_floor_ + float(np.exp(self.likelihood_))
        self.noise_ = float(np.sqrt(variance)) * self.target_spread_
        if self._learns_noise():
            self.noise_ = float("nan")

    def _learns_noise(self) -> bool:
        """Whether the fitted model has an output for the noise; the word may have changed."""
        return len(self.layers_[-1]["mean"]) == 2

    # -- predictions -----------------------------------------------------------------------
    def _parts(self, X: Matrix) -> Generator[tuple[Array, Array, Array], None, None]:
        """Mean, variance of the function and of the noise, ``(rows, S)`` each, by blocks."""
        for mean, variance in self._moments(X):
            noise = np.full(mean.shape[:2], self.noise_**2)
            if self._learns_noise():
                log_noise = mean[..., 1] + np.sqrt(variance[..., 1]) * self.normals_[:, -1]
                noise = self.target_spread_**2 * (self.noise_floor_ + np.exp(log_noise))
            yield (
                self.target_mean_ + self.target_spread_ * mean[..., 0],
                self.target_spread_**2 * variance[..., 0],
                noise,
            )

    def _predictives(self, X: Any) -> Generator[Gaussian, None, None]:
        check_is_fitted(self, "layers_")
        return self._mixtures(self._check_X(X, reset=False))

    def _mixtures(self, X: Matrix) -> Generator[Gaussian, None, None]:
        """What is known of the targets of validated rows, block by block."""
        for mean, inside, noise in self._parts(X):
            yield Gaussian(mean, np.sqrt(inside + noise))

    def _log_density(self, X: Matrix, y: Array) -> Array:
        """Log density of encoded targets, to judge by rows held out."""
        return _log_densities(self._mixtures(X), self.target_mean_ + self.target_spread_ * y)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of the target; with ``return_std`` also its standard deviation.

        The same bits whatever other rows are predicted with a row.
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

        With power 1 (see ``power_``), much of the noise may be learned as spread of the function
        and be called epistemic; the total is what it should be. A power of 0.5 keeps the two apart.
        """
        check_is_fitted(self, "layers_")
        aleatoric, epistemic = [], []
        for mean, inside, noise in self._parts(self._check_X(X, reset=False)):
            aleatoric.append(noise.mean(axis=1))
            epistemic.append(inside.mean(axis=1) + mean.var(axis=1))
        known, open_ = np.concatenate(aleatoric), np.concatenate(epistemic)
        return Uncertainty(known + open_, known, open_)

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log density of the target of each row, in nats and the units of the target."""
        check_is_fitted(self, "layers_")
        X, targets = self._check_X(X, reset=False), self._check_y(np.asarray(y))
        n_rows = X.shape[0]
        if targets.shape != (n_rows,):
            raise ValueError(f"y must hold one number for each of {n_rows} rows: {targets.shape}")
        return _log_densities(self._mixtures(X), targets)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draws of the target of each row, ``(n, n_samples)``; rows are drawn independently.

        The draws of a row follow from ``random_state`` and its place, whatever rows come after
        it; with one ``RandomState`` for all, batches draw what all rows at once would.
        """
        check_integer("n_samples", n_samples, 1)
        rng = check_random_state(random_state)
        out = []
        for part in self._predictives(X):
            # one number for a draw, so that the size of blocks does not matter: where it lies
            # among equal shares chooses the Gaussian, where within the share the place in it
            place = rng.random_sample((part.n_rows, int(n_samples))) * part.loc.shape[1]
            chosen = place.astype(np.intp)
            loc = np.take_along_axis(part.loc, chosen, axis=1)
            scale = np.take_along_axis(part.scale, chosen, axis=1)
            out.append(loc + scale * ndtri(np.maximum(place - chosen, LEAST_SHARE)))
        return np.concatenate(out)


def _log_densities(parts: Iterable[Gaussian], targets: Array) -> Array:
    """Log density of each target by its row's mixture; mixtures are not kept."""
    out, start = np.empty(len(targets)), 0
    for part in parts:
        rows = slice(start, start + part.n_rows)
        out[rows] = part.log_density(targets[rows])
        start = rows.stop
    return out


@dataclass(frozen=True)
class _UnitSource(NumberSource):
    """A source whose targets have mean zero and unit variance."""

    mean: float
    spread: float

    def _encode(self, batch: Batch) -> Batch:
        return replace(
            batch, y=(require_targets(batch).astype(np.float64) - self.mean) / self.spread
        )
