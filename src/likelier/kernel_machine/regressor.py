"""`BayesianKernelRegressor`: kernel regression with automatic relevance determination."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

from sklearn.base import RegressorMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if

from likelier.base import Array, Uncertainty
from likelier.kernel_machine.estimator import (
    COMMON_CONSTRAINTS,
    KernelEstimator,
    by_evidence,
)
from likelier.kernel_machine.posterior import regressor
from likelier.kernel_machine.regression import EpsilonLoss
from likelier.kernel_machine.regression_task import RegressionTask
from likelier.kernel_machine.settings import Evidence, make_inference
from likelier.kernel_machine.targets import NumberTargets
from likelier.losses import EpsilonInsensitive
from likelier.predictive import Gaussian


def _has_covariance(estimator: Any) -> bool:
    """Whether there is a weight posterior."""
    if estimator.loss == "gaussian":
        return by_evidence(estimator)
    raise AttributeError(
        f'loss={estimator.loss!r} has no weight posterior; use loss="gaussian" for score_samples '
        "and partial_fit"
    )


class BayesianKernelRegressor(RegressorMixin, KernelEstimator):
    """Kernel regression with automatic relevance determination and honest intervals.

    ``y = phi(x)^T w + b + noise`` on Nystroem features of ``exp(-1/2 sum_j gamma_j^2 (x_j -
    x'_j)^2)``. The scales ``gamma_j`` maximise the evidence of a Gaussian process on random
    subsets; the ratio of noise to amplitude and the common scale are validated on held-out rows.
    The weights have a Gaussian posterior in closed form, and the noise a symmetric mixture of
    Gaussians, fitted to leave-one-out residuals.

    Parameters
    ----------
    loss : {"gaussian", "epsilon_insensitive"} or EpsilonInsensitive, default="gaussian"
        Noise model. The epsilon-insensitive loss, in units of the standard deviation of the
        targets, is robust to outliers but has no weight posterior.
    inference : {"evidence", "svgd", "stein_gaussian"}, Evidence, SVGD or SteinGaussian
        How scales and weights are found, default "evidence"; a value has parameters of its own.
    features : {"auto", "nystroem", "fourier", "identity"}, default="auto"
        Feature map; "identity" is the linear case. "auto" is "nystroem", for particles "fourier".
    n_components : int or "auto", default="auto"
        Number of features. "auto": a quarter of the rows, between 512 and 1536; 256 for particles.
    gamma : "auto", float or array of shape (n_features,), default="auto"
        Inverse length scales in the units of the data; "auto" learns them.
    alpha : float or "auto", default="auto"
        Ratio of the noise variance to the variance of the function.
    time_budget : float or None, default=None
        Seconds for the fit, which is then limited to fewer features, rows and experts.
    checkpoint : path or None, default=None
        Folder in which the fit is recorded, so that it can be resumed if it is interrupted.
    n_jobs : int or None, default=None
        Threads for passes over the rows.
    random_state : int, RandomState or None, default=None
        Seed of subsets and landmarks; the same seed gives bit-identical results.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    gamma_ : ndarray of shape (n_features,)
        Learned inverse length scales in the units of the data (geometric mean of particles).
    feature_relevance_ : ndarray of shape (n_features,)
        Squared relative scales of the inputs, summing to one.
    noise_ : float
        Standard deviation of the noise, in the units of the target.
    alpha_ : float
        Selected ratio of noise to amplitude.
    n_components_ : int
        Number of features, without the constant.
    n_experts_ : int
        Number of local experts.
    n_iter_ : int

    Notes
    -----
    Cost: the scales as in `BayesianKernelClassifier`, then one pass of
    ``rows x components x (inputs + components)`` and ``components^3``. From 8,192 rows on, local
    experts correct the global model, which then learns at most 50,000 rows; every row costs
    ``landmarks x (inputs + landmarks)`` in addition, with 256 to 512 landmarks.

    "svgd" and "stein_gaussian" cost a gradient of all particles on a minibatch per update, twice: a
    first fit estimates the noise on held-out rows.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import BayesianKernelRegressor
    >>> X = np.linspace(0.0, 6.0, 80)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = BayesianKernelRegressor(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.99
    True
    >>> mean, std = model.predict([[3.0], [60.0]], return_std=True)
    >>> bool(std[1] > 10.0 * std[0])
    True
    """

    _restore: ClassVar[Any] = staticmethod(regressor)
    _values: ClassVar[dict[str, Any]] = {"inference": make_inference}
    _losses: ClassVar[tuple[str, ...]] = ("gaussian", "epsilon_insensitive")
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "loss": [StrOptions(set(_losses)), EpsilonInsensitive],
        **COMMON_CONSTRAINTS,
    }

    target_mean_: float
    target_scale_: float

    def __init__(
        self,
        loss: Any = "gaussian",
        *,
        inference: Any = "evidence",
        features: str = "auto",
        n_components: int | str = "auto",
        gamma: Any = "auto",
        alpha: float | str = "auto",
        time_budget: float | None = None,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.inference = inference
        self.features = features
        self.n_components = n_components
        self.gamma = gamma
        self.alpha = alpha
        self.time_budget = time_budget
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _validate_params(self) -> None:
        super()._validate_params()
        inference = self._value("inference")
        if isinstance(inference, Evidence) and inference.posterior_scale != "auto":
            raise ValueError(
                'inference.posterior_scale must be "auto" in a regression, whose noise sets the '
                "scale of its posterior"
            )

    def _targets(self) -> NumberTargets:
        return NumberTargets()

    def _task(self) -> RegressionTask:
        loss = None
        if self.loss != "gaussian":
            given = EpsilonInsensitive() if isinstance(self.loss, str) else self.loss
            loss = EpsilonLoss(float(given.epsilon))
        alpha = None if self.alpha == "auto" else float(self.alpha)
        task = RegressionTask(self.target_mean_, self.target_scale_, loss, alpha)
        inference = self._value("inference")
        if not isinstance(inference, Evidence):
            return task
        return replace(
            task, temperature=float(inference.temperature), tol=float(inference.tol),
            max_iter=int(inference.max_iter),
        )  # fmt: skip

    @available_if(_has_covariance)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Update the model with a batch of rows.

        The first 4,000 rows are buffered and fitted together, before the model predicts or is
        saved. After that, and after `fit`, features are fixed and a batch adds to the sums of the
        normal equations, at ``rows x features^2``. There are no local experts.
        """
        return self._learn_batch(X, y, sample_weight)

    # -- predictions --------------------------------------------------------------------
    @available_if(_has_covariance)
    def score_samples(self, X: Any) -> Array:
        """Inlier score of each row, as of `BayesianKernelClassifier`."""
        found: Array = super().score_samples(X)
        return found

    def _predictive(self, X: Any) -> Gaussian:
        found: Gaussian = self._posterior().predictive(self._check_X(X, reset=False))
        return found

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean; with ``return_std`` also the standard deviation."""
        predictive = self._predictive(X)
        return (predictive.mean(), predictive.std()) if return_std else predictive.mean()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central predictive interval of each row, ``(n, 2)``."""
        return self._predictive(X).interval(coverage)

    def predict_quantiles(self, X: Any, alpha: Any = (0.05, 0.5, 0.95)) -> Array:
        """Predictive quantiles of each row."""
        return self._predictive(X).quantiles(alpha)

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log predictive density of each target."""
        return self._predictive(X).log_density(y)

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Predictive variance: of the noise (aleatoric) and of the function (epistemic)."""
        found: Uncertainty = self._posterior().uncertainty(self._check_X(X, reset=False))
        return found
