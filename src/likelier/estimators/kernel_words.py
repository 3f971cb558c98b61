"""What the two kernel machines share apart from fitting: words, checks, and one fitted part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix, check_flag
from likelier.engines.threads import count_threads
from likelier.matrices import validated_rows

FEATURES = ("auto", "nystroem", "fourier", "identity")
INFERENCES = ("evidence", "svgd", "stein_gaussian")
N_PARTICLES = {"evidence": 1, "svgd": 20, "stein_gaussian": 4}
MIN_COMPONENTS, MAX_COMPONENTS, ROWS_PER_COMPONENT = 512, 1536, 4


class KernelWords(CallbackSupportMixin, BaseEstimator):
    """Constructor words of both kernel machines; see the two public classes."""

    _losses: tuple[str, ...] = ()
    # Every input gets a scale of its own, which thousands of words are too many for.
    dense_inputs: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_words(self) -> None:
        """Raise for constructor words that make no sense, naming the word."""
        _one_of("loss", self.loss, self._losses)
        _one_of("features", self.features, FEATURES)
        _one_of("inference", self.inference, INFERENCES)
        _number_or_auto("n_components", self.n_components, 1, integer=True)
        _number_or_auto("alpha", self.alpha, 0.0)
        _number("temperature", self.temperature, 0.0)
        _number("tol", self.tol, 0.0)
        _number_or_auto("n_particles", self.n_particles, 1, integer=True)
        _integer("max_iter", self.max_iter, 1)
        if self.time_budget is not None:
            _number("time_budget", self.time_budget, 0.0)
        if isinstance(self.gamma, str) and self.gamma != "auto":
            raise ValueError(f'gamma must be "auto", a number or one per input, got {self.gamma!r}')
        for word in ("early_stopping", "warm_start"):
            check_flag(word, getattr(self, word))
        if not isinstance(self.verbose, bool | np.bool_):
            _integer("verbose", self.verbose, 0)
        _number("validation_fraction", self.validation_fraction, 0.0)
        if self.validation_fraction >= 1.0:
            raise ValueError(f"validation_fraction must be below 1, got {self.validation_fraction}")
        count_threads(self.n_jobs)
        if self.inference != "evidence":
            self._check_particle_words()

    def _check_particle_words(self) -> None:
        """Raise for words that particles cannot follow."""
        wanted = f"with inference={self.inference!r}"
        if self.features == "nystroem":
            raise ValueError(
                f'features must be "fourier" or "identity" {wanted}: landmarks cannot follow '
                "scales that move"
            )
        if not isinstance(self.gamma, str):
            raise ValueError(f'gamma must be "auto" {wanted}: its scales are learned')

    def _n_particles(self) -> int:
        if self.n_particles == "auto":
            return N_PARTICLES[self.inference]
        return int(self.n_particles)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_X(self, X: Any, reset: bool) -> Matrix:
        return validated_rows(self, X, reset, order="C")

    def _given_gamma(self, n_inputs: int) -> Array | None:
        """Scales the caller chose, in the units of the data; None to learn them."""
        if isinstance(self.gamma, str):
            return None
        gamma = np.asarray(self.gamma, dtype=np.float64)
        if gamma.ndim > 1 or (gamma.ndim == 1 and len(gamma) != n_inputs):
            raise ValueError(
                f"gamma must be one number or one for each of {n_inputs} inputs, got shape "
                f"{gamma.shape}"
            )
        if not (np.isfinite(gamma) & (gamma >= 0.0)).all():
            raise ValueError("gamma must hold finite numbers >= 0")
        return np.broadcast_to(gamma, (n_inputs,)).copy()

    def _n_components(self, n_rows: int) -> int:
        """Features: some for every so many rows, so that cost grows no faster than needed."""
        if self.n_components != "auto":
            return int(self.n_components)
        return int(np.clip(n_rows // ROWS_PER_COMPONENT, MIN_COMPONENTS, MAX_COMPONENTS))

    @property
    def feature_relevance_(self) -> Array:
        """Share of every input in the learned scales: squares of the relative ``gamma_``."""
        check_is_fitted(self, "gamma_")
        squares = (self.gamma_ * self.input_spread_) ** 2
        total = squares.sum()
        return np.asarray(squares / total if total > 0.0 else squares)

    def plot_relevance(self, n_top: int = 20, ax: Any = None) -> Any:
        """Bars of the most relevant inputs; needs matplotlib. Returns the axes."""
        from matplotlib import pyplot as plt  # an optional package, only where it is used

        relevance = self.feature_relevance_
        names = getattr(self, "feature_names_in_", np.arange(len(relevance)))
        order = np.argsort(relevance, kind="stable")[::-1][:n_top][::-1]
        axes = plt.subplots()[1] if ax is None else ax
        axes.barh([str(names[j]) for j in order], relevance[order])
        axes.set_xlabel("share of the learned scales")
        return axes


def by_evidence(estimator: Any) -> bool:
    """Whether a method is there that particles do not have."""
    if estimator.inference == "evidence":
        return True
    raise AttributeError(
        f"this method needs inference='evidence'; inference={estimator.inference!r} has neither "
        "partial_fit nor score_samples: use fit, whose X may be a path"
    )


class OutOfTime(Exception):  # noqa: N818 - no error: what was done is kept
    """The time of a fit that goes on with an earlier one is over, after a piece that is kept."""


@dataclass
class Clock:
    """Time that is left, progress, what callbacks say, and what is needed to go on later.

    Attributes
    ----------
    seed : int, optional
        Of the random numbers of the fit; None where it cannot go on later.
    before, kept : dict
        What an unfinished fit has left, and what this one would leave, as plain values.
    model : dict
        What the unfinished fit predicts by: its fitted attributes.
    held : Rows, optional
        Rows held out to stop in time.
    cut : bool
        Whether anything was left out for want of time.
    thorough : bool
        Nothing is left out, as if there were no budget: when time is over the fit ends by
        `OutOfTime`, but only where a piece has just been done and kept. So every fit that goes
        on gets further, however short its time is.
    """

    estimator: Any
    data: tuple[Any, Any]
    begin: float = field(default_factory=time.perf_counter)
    stopped: bool = False
    n_iter: int = 0
    stage: tuple[str, float] = ("", 0.0)  # the latest one, and how much of it was done
    since: float = 0.0  # when it began
    latest: float = 0.0  # when the latest step was done
    seed: int | None = None
    before: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    held: Any = None
    cut: bool = False
    thorough: bool = False

    def __post_init__(self) -> None:
        self.latest = self.begin

    @property
    def over(self) -> bool:
        """Whether the time budget is used up, or a callback asked to stop."""
        if self.thorough:
            return False
        self.cut = self.cut or self._is_late()  # whoever asks ends what they do
        return self._is_late()

    def _is_late(self) -> bool:
        budget = self.estimator.time_budget
        return self.stopped or (budget is not None and time.perf_counter() - self.begin > budget)

    def pause(self) -> None:
        """A piece of work is done and kept: here a thorough fit may end."""
        if self.thorough and self._is_late():
            raise OutOfTime

    @contextmanager
    def aside(self, *stages: str) -> Iterator[None]:
        """Work that is not counted where an unfinished fit had come to one of these stages.

        It had been done then, and was lost when that fit ended. Were it counted, a budget that
        it fills would leave nothing to get further by.
        """
        begin = time.perf_counter()
        yield
        if self.thorough and not self.before.keys().isdisjoint(stages):
            self.begin += time.perf_counter() - begin

    @property
    def left(self) -> float | None:
        """Seconds that are left, None where there is no budget."""
        budget = self.estimator.time_budget
        if budget is None or self.thorough:
            return None
        return max(0.0, float(budget) - (time.perf_counter() - self.begin))

    def allows(self, seconds: float) -> bool:
        """Whether so many seconds are left for a piece of work; else it is to be left out."""
        left = self.left
        fits = left is None or seconds < left
        self.cut = self.cut or not fits
        return fits

    def progress(self, stage: str, share: float, text: str = "", skipped: float = 0.0) -> bool:
        """As `tick`, for a stage whose length is known: says how long it will still take.

        ``skipped`` is the share that an unfinished fit had done before.
        """
        if stage != self.stage[0] or share <= self.stage[1]:  # it begins, maybe anew
            self.since = self.latest
        self.stage = (stage, share)
        left = (time.perf_counter() - self.since) * (1.0 - share) / (share - skipped)
        done = f"{share:.0%} of the steps, about {left:.0f} s left"
        return self.tick(stage, f"{done}, {text}" if text else done)

    def tick(self, stage: str, text: str = "", **fitted: Any) -> bool:
        """One step of a stage is done, and kept where it may be; True asks for an end."""
        self.tell(stage, text, **fitted)
        self.pause()
        return self.over

    def say(self, text: str) -> None:
        """Print what is being done, where that is asked for."""
        if self.estimator.verbose:
            print(text)

    def tell(self, stage: str, text: str = "", **fitted: Any) -> None:
        """Say that one step of a stage is done."""
        self.n_iter += 1
        self.latest = time.perf_counter()
        self.say(f"{stage} {self.n_iter}: {text}")
        context = getattr(self.estimator, "_callback_fit_ctx", None)
        if context is not None and getattr(self.estimator, "_skl_callbacks", None):
            X, y = self.data
            sub = context.subcontext(task_name=stage)
            sub.call_on_fit_task_begin(estimator=self.estimator, X=X, y=y)
            stop = sub.call_on_fit_task_end(
                estimator=self.estimator, X=X, y=y, reconstruction_attributes=fitted or None
            )
            self.stopped = self.stopped or bool(stop)


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}")


def _number(name: str, value: Any, low: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not (np.isfinite(float(value)) and float(value) > low):
        raise ValueError(f"{name} must be a finite number above {low:g}, got {value}")


def _integer(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")


def _number_or_auto(name: str, value: Any, low: float, integer: bool = False) -> None:
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f'{name} must be a number or "auto", got {value!r}')
    elif integer:
        _integer(name, value, int(low))
    else:
        _number(name, value, low)
