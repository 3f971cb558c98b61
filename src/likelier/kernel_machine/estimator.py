"""What both kernel estimators share: opening the rows, the fit, learning in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Engine, Matrix
from likelier.engines.threads import count_threads, one_blas_thread
from likelier.fitting.dataset import (
    checked_rows,
    is_stream,
    local_engine,
    open_source,
    require_targets,
    stream_engine,
)
from likelier.fitting.estimator import fitting
from likelier.fitting.extreme_cells import warn_extreme_cells, watched
from likelier.fitting.monitor import CallbackSupportMixin, Monitor, with_callbacks
from likelier.fitting.one_class import one_class_is_constant, refuse_constant
from likelier.fitting.parameters import ValueParameters
from likelier.fitting.predictions import TableInput
from likelier.fitting.rollback import unchanged_on_failure
from likelier.fitting.rows import Rows
from likelier.fitting.targets import OneClassError
from likelier.kernel_machine.batches import START_ROWS, State, buffered, without_unseen
from likelier.kernel_machine.data import Data
from likelier.kernel_machine.particles import ParticleFit
from likelier.kernel_machine.posterior import to_plain
from likelier.kernel_machine.recipe import Settings, fit
from likelier.kernel_machine.settings import Evidence, make_inference
from likelier.kernel_machine.targets import Attributes, Targets
from likelier.kernel_machine.task import Task
from likelier.matrices import validated_rows

FEATURES = ("auto", "nystroem", "fourier", "identity")
POSTERIOR_ATTRIBUTES = (
    "alpha_",
    "posterior_scale_",
    "noise_",
    "n_experts_",
    "objective_",
    "converged_",
)
MIN_LARGEST_WEIGHT, MAX_LARGEST_WEIGHT = 1e-30, 1e30  # limits of the largest weight
COMMON_CONSTRAINTS: dict[str, Any] = {
    "features": [StrOptions(set(FEATURES))],
    "n_components": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "gamma": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left"), "array-like"],
    "alpha": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    "time_budget": [None, Interval(Real, 0, None, closed="neither")],
    "n_jobs": [None, Integral],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


def by_evidence(estimator: Any) -> bool:
    """Whether methods without a particle version are available."""
    inference = make_inference(estimator.inference)
    if isinstance(inference, Evidence):
        return True
    raise AttributeError(
        f"inference={inference.name!r} supports neither partial_fit nor score_samples; use "
        "inference='evidence', or call fit (X may be a path)"
    )


def learns_in_batches(estimator: Any) -> bool:
    """Whether there is a posterior of the weights that can be the prior of further rows."""
    evidence = isinstance(make_inference(estimator.inference), Evidence)
    return evidence and (estimator.loss == "gaussian" or isinstance(estimator, ClassifierMixin))


class KernelEstimator(TableInput, ValueParameters, CallbackSupportMixin, BaseEstimator, ABC):
    """Kernel machine; see the two public classes."""

    # Every input has its own length scale, which is infeasible for thousands of text features.
    dense_inputs: ClassVar[bool] = True

    _restore: ClassVar[Any]  # from the stored values to the posterior
    stream_: State
    posterior_: dict[str, Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- fitting ------------------------------------------------------------------------
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), path or iterator
            Training rows. A path (CSV, Parquet, libsvm) or an iterator of ``(X, y)`` or
            ``(X, y, sample_weight)`` blocks is read in bounded memory.
        y : array-like of shape (n_samples,), or the target column of a path
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; a row of weight 2 counts as two rows, of weight 0 as none. Length scales
            and prior depend on relative weights only, so a common factor above one just narrows the
            posterior. Weights below one (e.g. normalised to sum to one) do not widen probabilities
            and intervals compared with rows of weight one. Equal rows are merged as duplicates of
            one observation, unless their targets often differ or there are few distinct rows, as in
            a table of counts: then each counts, and integer weights are such counts.
        """
        self._validate_params()
        seed = self._seed()
        around = fitting(self, X, y, sample_weight)
        with around as monitor, one_blas_thread(), one_class_is_constant(self):
            monitor.attributes = lambda posterior: None  # nothing predicts before the end
            self.__dict__.pop("stream_", None)
            if is_stream(X, y):
                self._fit_stream(X, y, sample_weight, seed, monitor)
            else:
                self._fit_rows(self._check_rows(X, y, sample_weight, True), seed, monitor)
        return self

    def _fit_rows(
        self, rows: Rows, seed: int, monitor: Monitor, known: Attributes | None = None
    ) -> None:
        """Fit rows in memory."""
        rows, attributes = self._targets().encode(rows, known)
        rows = rows.present()
        with local_engine(rows.X, rows.y, rows.weight, seed, self.n_jobs, False) as engine:
            self._fit_engine(engine, attributes, seed, monitor)

    def _fit_stream(self, X: Any, y: Any, sample_weight: Any, seed: int, monitor: Monitor) -> None:
        if sample_weight is not None:
            raise ValueError(
                "sample_weight is not supported for streams; yield (X, y, weight) blocks instead"
            )
        source = watched(open_source(self, X, y), self)
        if source.repeatable:
            opened = self._targets().open(source, seed, monitor)
            engine = stream_engine(opened.source, seed, False)
            engine.know_rows(opened.n_rows)
            self._fit_engine(engine, opened.attributes, seed, monitor)
            return
        if not learns_in_batches(self):
            raise ValueError(
                f"inference={self._value('inference').name!r} and loss={self.loss!r} need several "
                "passes, but X can be read once only; pass a path or a list of blocks, or use "
                'inference="evidence" and a loss with a weight posterior'
            )
        self.__dict__.pop("posterior_", None)
        for batch in stream_engine(source, seed, False).blocks():
            labels = self._targets().check(require_targets(batch))
            self._learn(Rows(batch.X, labels, batch.weight), seed)
            if monitor.tick("stream", f"block {batch.index}", lambda: None):
                break
        self._learn_pending(OneClassError)

    def _fit_engine(
        self, engine: Engine, attributes: Attributes, seed: int, monitor: Monitor
    ) -> None:
        """Fit rows with encoded targets, wherever they are."""
        self.__dict__.update(attributes)
        task, inference = self._task(), self._value("inference")
        settings, data = self._settings(engine.n_features), Data.of(engine, task.merged, seed)
        check_weight_range(data.sample.weight)
        if isinstance(inference, Evidence):
            posterior: Any = fit(data, task, settings, monitor)
        else:
            posterior = ParticleFit(task, inference).fit(data, settings, monitor)
        self.input_scale_ = data.standard.spread()
        self.n_iter_ = monitor.n_steps
        self._store(posterior)

    def _settings(self, n_inputs: int) -> Settings:
        inference, features = self._value("inference"), self.features
        evidence = isinstance(inference, Evidence)
        if features == "auto":
            features = "nystroem" if evidence else "fourier"
        n_components = None if self.n_components == "auto" else int(self.n_components)
        # experts could not follow further batches
        n_experts = inference.n_experts if evidence and not hasattr(self, "stream_") else 0
        return Settings(
            features, n_components, given_gamma(self.gamma, n_inputs),
            None if n_experts == "auto" else int(n_experts), self.alpha == "auto",
        )  # fmt: skip

    def _validate_params(self) -> None:
        super()._validate_params()
        count_threads(self.n_jobs)
        check_inference(self._value("inference"), self.loss, self.features, self.gamma)

    def _check_rows(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> Rows:
        """Validated rows, targets and weights."""
        check_y = self._targets().check
        X, y, weight = checked_rows(self, X, y, sample_weight, reset, check_y)
        check_weight_range(weight)
        warn_extreme_cells(self, X, weight, tiny=False)
        return Rows(X, y, weight)

    def _check_X(self, X: Any, reset: bool) -> Matrix:
        return validated_rows(self, X, reset, order="C")

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _store(self, posterior: Any) -> None:
        """Set the fitted attributes."""
        for name in POSTERIOR_ATTRIBUTES:  # another inference has others
            self.__dict__.pop(name, None)
        self.posterior_ = to_plain(posterior)
        self.__dict__.update(posterior.attributes())

    # -- learning in batches ------------------------------------------------------------
    def _learn_batch(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """Update the model with a batch of rows."""
        self._validate_params()
        refuse_constant(self)
        fresh = not hasattr(self, "stream_") and not hasattr(self, "posterior_")
        rows = self._check_rows(X, y, sample_weight, fresh)
        seed = self.stream_["seed"] if hasattr(self, "stream_") else self._seed()
        self._learn(rows, seed, classes)
        return self

    def _learn(self, rows: Rows, seed: int, classes: Any = None) -> None:
        """Buffer the first rows; later ones update the posterior."""
        with unchanged_on_failure(self), one_blas_thread():
            state = getattr(self, "stream_", None)
            fixed = hasattr(self, "posterior_") and (state is None or "X" not in state)
            if state is None:
                state = self._continued(seed) if fixed else {"seed": seed}
            rows = rows.present()
            known = self._targets().join(state.get("classes_"), classes, rows.y, fixed)
            if known is not None:
                state, self.classes_ = state | {"classes_": known}, known
            if fixed:
                rows, _ = self._targets().encode(rows, dict(vars(self)))
                if rows.weight is not None and not rows.weight.any():
                    self.stream_ = state  # rows of classes without weight teach nothing
                    return
                posterior, self.stream_ = self._task().absorb(
                    self._restore(self), state, rows.present()
                )
                self._store(posterior)
                return
            self.stream_ = buffered(state, rows)
            if len(self.stream_["y"]) >= START_ROWS and not self._missing():
                y = self.stream_["y"]
                self._learn_pending()
                self.stream_ = self._continued(seed, y)

    def _continued(self, seed: int, y: Array | None = None) -> State:
        """State in which the posterior replaces the rows; ``y`` are their targets if at hand."""
        state = {"seed": seed, **self._task().continued(self._restore(self))}
        if y is not None and hasattr(self, "classes_"):
            state = without_unseen(state, np.isin(self.classes_, y))
        return state | ({"classes_": self.classes_} if hasattr(self, "classes_") else {})

    def _learn_pending(self, error: type[Exception] = NotFittedError) -> None:
        """Fit the buffered rows if they have not been; called before the model is read."""
        state = getattr(self, "stream_", {})
        if not state.get("pending"):
            return
        if missing := self._missing():
            if error is OneClassError:
                raise OneClassError(state["classes_"])
            raise NotFittedError(f"{missing}; call partial_fit with more rows first")
        rows = Rows(state["X"], state["y"], state["omega"])
        with unchanged_on_failure(self), one_blas_thread():
            monitor = Monitor(verbose=bool(self.verbose))
            self._fit_rows(rows, state["seed"], monitor, state)
            self.stream_ = state | {"pending": False}

    def _missing(self) -> str | None:
        """Why buffered rows cannot be learned yet, or None."""
        state = getattr(self, "stream_", {})
        return self._targets().missing(state["y"]) if state.get("pending") else None

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the model can predict."""
        if getattr(self, "stream_", {}).get("pending"):
            return self._missing() is None
        return hasattr(self, "posterior_") or bool(getattr(self, "constant_", False))

    def _before_saving(self) -> None:
        """Learn pending rows if possible, so that a loaded model can predict."""
        if self._missing() is None:
            self._learn_pending()

    def __getstate__(self) -> Any:
        self._before_saving()
        return super().__getstate__()

    # -- predictions --------------------------------------------------------------------
    def _posterior(self) -> Any:
        self._learn_pending()
        check_is_fitted(self)
        return self._restore(self)

    @available_if(by_evidence)
    def score_samples(self, X: Any) -> Array:
        """Inlier score: how well the training data cover each row; low for outliers.

        Minus the logarithm of the posterior-to-prior variance ratio of the function: about zero out
        of support. This needs features that vanish there ("nystroem"); "fourier" and "identity"
        cannot detect outliers.
        """
        refuse_constant(self)
        posterior = self._posterior()
        if not hasattr(posterior, "inlier_score"):  # inference was changed since the fit
            raise AttributeError("particles have no score_samples")
        found: Array = posterior.inlier_score(self._check_X(X, reset=False))
        return found

    @property
    def feature_relevance_(self) -> Array:
        """Squared relative ``gamma_``, normalised to sum to one."""
        self._learn_pending()
        check_is_fitted(self, "gamma_")
        squares = (self.gamma_ * self.input_scale_) ** 2
        total = squares.sum()
        return np.asarray(squares / total if total > 0.0 else squares)

    # -- what the two classes add -------------------------------------------------------
    @abstractmethod
    def _targets(self) -> Targets:
        """How targets are encoded."""

    @abstractmethod
    def _task(self) -> Task:
        """The task of the encoded targets."""


def given_gamma(gamma: Any, n_inputs: int) -> Array | None:
    """User-given scales in the units of the data; None to learn them."""
    if isinstance(gamma, str):
        return None
    gamma = np.asarray(gamma, dtype=np.float64)
    if gamma.ndim > 1 or (gamma.ndim == 1 and len(gamma) != n_inputs):
        raise ValueError(
            f"gamma must be a number or an array of {n_inputs} values, one per input, got "
            f"shape {gamma.shape}"
        )
    if not (np.isfinite(gamma) & (gamma >= 0.0)).all():
        raise ValueError("gamma must hold finite numbers >= 0")
    return np.broadcast_to(gamma, (n_inputs,)).copy()


def check_inference(inference: Any, loss: Any, features: str, gamma: Any) -> None:
    """Raise where loss, features or scales do not go with the inference."""
    if isinstance(inference, Evidence):
        possible = loss in ("softmax", "gaussian") and features in ("auto", "nystroem")
        if inference.n_experts not in ("auto", 0, 1) and not (
            possible and inference.temperature == 1.0
        ):
            raise ValueError(
                'inference.n_experts above one needs a loss with a posterior, features="auto" or '
                '"nystroem", and inference.temperature=1; use "auto" or 0 otherwise'
            )
        return
    wanted = f"with inference={inference.name!r}"
    if features == "nystroem":
        raise ValueError(
            f'features must be "auto", "fourier" or "identity" {wanted}: landmarks '
            "cannot follow length scales that change during the fit"
        )
    if not isinstance(gamma, str):
        raise ValueError(f'gamma must be "auto" {wanted}, which learns it')


def check_weight_range(weight: Array | None) -> None:
    """Raise where weights are all zero, or too large or small to be squared."""
    if weight is None:
        return
    if not weight.any():
        raise ValueError("sample_weight is zero for every row; at least one must be positive")
    if not MIN_LARGEST_WEIGHT <= weight.max() <= MAX_LARGEST_WEIGHT:
        raise ValueError(
            f"sample_weight has the maximum {weight.max():.3g}, which must be between "
            f"{MIN_LARGEST_WEIGHT:g} and {MAX_LARGEST_WEIGHT:g}; divide it by its mean"
        )
