"""The concepts every part of likelier is made of.

Every estimator is a *model* over *features* that offers an energy (usually a *loss* on its
scores) or additive statistics, fitted by an *inference*; every pass over all rows goes
through an *engine*. This module holds them as small abstract types, and the plain
records that travel between them.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from likelier.value import Value

Array = npt.NDArray[Any]
Matrix = npt.NDArray[Any] | sparse.csr_array | sparse.csr_matrix
Statistics = TypeVar("Statistics")
Output = TypeVar("Output")


@dataclass(frozen=True)
class Batch:
    """Some rows of the data, in a definite order.

    ``rows`` lists which rows of ``X`` (and ``y``, ``weight``) belong to the batch; ``None``
    means all of them, in order. A shuffled pass over data in memory is therefore a sequence
    of batches that share one ``X`` and differ in ``rows``: nothing is copied.

    ``y`` is None for unlabelled data and ``weight`` None for weight one. ``index`` is the
    number of the block in the data's own order, and keys its random stream. ``start`` is the
    position of row 0 of ``X`` in the whole data, so ``start + rows`` numbers rows globally.
    """

    X: Matrix
    y: Array | None = None
    weight: Array | None = None
    rows: Array | None = None
    index: int = 0
    start: int = 0

    @property
    def n_rows(self) -> int:
        """How many rows the batch holds."""
        return int(self.X.shape[0]) if self.rows is None else len(self.rows)

    def compact(self) -> Batch:
        """Return the same rows with ``rows=None``: gathered into arrays of their own."""
        if self.rows is None:
            return self
        return replace(
            self,
            X=self.X[self.rows],
            y=None if self.y is None else self.y[self.rows],
            weight=None if self.weight is None else self.weight[self.rows],
            rows=None,
        )


@dataclass(frozen=True)
class Info:
    """What one step of an inference has to say about itself; never needed to go on.

    ``objective`` is the training objective where the step knows it, ``gap`` an estimate of
    how far above its optimum it still is, ``passes`` how many passes over all rows the step
    cost (a fraction for a step on a subset), ``converged`` whether the tolerance is met.
    """

    objective: float = float("nan")
    gap: float = float("nan")
    passes: float = 0.0
    converged: bool = False
    message: str = ""


@dataclass(frozen=True)
class Loss(Value, ABC):
    """A per-row function of target and score; a frozen value.

    Convention at a kink: ``derivative`` returns the derivative of the side where the loss is zero
    (or flat). Subclasses are frozen dataclasses whose fields are the loss's own parameters
    (``epsilon``, ``delta``, ``tau``), all floats. What a loss can do is declared here on the
    type, never discovered by trying:

    ``task``           what it is for: "binary", "multiclass", "regression" or "count".
    ``coupled``        the score is a vector with one entry per class (softmax).
    ``smooth``         has a second derivative almost everywhere that is not just zero.
    ``probabilistic``  ``link`` maps scores to probabilities or means of a normalised
                       likelihood; otherwise scores need calibration first.
    ``max_curvature``  the largest second derivative, where there is a finite one.
    ``flat_tails``     no second derivative far from the target, though it is smooth.
    ``degree``         of homogeneity: targets, scores and the parameters named in ``lengths``
                       times s give the loss times s^degree; None where units mean nothing.
    ``has_prox``, ``has_log_expectation``, ``has_augmentation``  optional abilities.
    """

    kind: ClassVar[str] = "loss"
    code: ClassVar[int]
    task: ClassVar[str]
    coupled: ClassVar[bool] = False
    smooth: ClassVar[bool] = True
    probabilistic: ClassVar[bool] = False
    max_curvature: ClassVar[float] = float("inf")
    flat_tails: ClassVar[bool] = False
    degree: ClassVar[int | None] = None
    lengths: ClassVar[tuple[str, ...]] = ()
    has_prox: ClassVar[bool] = True
    has_log_expectation: ClassVar[bool] = False
    has_augmentation: ClassVar[bool] = False

    @cached_property
    def parameters(self) -> Array:
        """Parameters as the array that compiled functions take (never empty)."""
        return np.array([*self.get_params().values(), 0.0], dtype=np.float64)

    @abstractmethod
    def value(self, y: Array, f: Array) -> Array:
        """Loss of each row; for a coupled loss ``f`` has one column per class."""

    @abstractmethod
    def derivative(self, y: Array, f: Array) -> Array:
        """Derivative with respect to the score, of the shape of ``f``."""

    @abstractmethod
    def prox(self, y: Array, m: Array, c: Array) -> Array:
        """Implicit step: ``g = -loss'(m + c g)``, of the shape of ``m``."""

    @abstractmethod
    def link(self, f: Array) -> Array:
        """From scores to what is predicted: a probability, a mean or a quantile."""

    def in_units(self, unit: float) -> Self:
        """Return this loss for targets that were divided by ``unit``."""
        return replace(self, **{name: getattr(self, name) / unit for name in self.lengths})

    @property
    def curved_width(self) -> float:
        """How far from the target the loss bends, at most one; beyond, flat tails pull no more."""
        lengths = [float(getattr(self, name)) for name in self.lengths if self.flat_tails]
        return min([1.0, *lengths])


class FeatureMap(ABC):
    """Rows to features. Parameters are arrays apart from the map itself."""

    @abstractmethod
    def init(self, key: np.random.Generator, sample: Matrix) -> Mapping[str, Array]:
        """Draw or learn the parameters from a sample of rows."""

    @abstractmethod
    def apply(self, params: Mapping[str, Array], X: Matrix) -> Matrix:
        """Features of the rows of ``X``."""


class Posterior(ABC):
    """What is known about the parameters after inference: all that a prediction needs.

    ``takes_missing`` declares that NaN in a row is understood as a missing value, ``label_sets``
    that a row has any number of labels: a point is a row of a matrix of 0 and 1.
    """

    takes_missing: ClassVar[bool] = False
    label_sets: ClassVar[bool] = False

    @property
    def most_rows(self) -> int | None:
        """Rows to be predicted at a time, where a predictive holds much of each; None for all."""
        return None

    @abstractmethod
    def predictive(self, X: Matrix) -> Any:
        """Distribution of the target of each row, a `likelier.predictive.Predictive`."""

    def point(self, X: Matrix) -> Array:
        """What is predicted where one value is asked for: a class number, or a number."""
        found: Array = self.predictive(X).point()
        return found

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Uncertainty of each prediction."""
        found: Uncertainty = self.predictive(X).uncertainty()
        return found

    def check_rows(self, X: Matrix) -> None:  # noqa: B027 (most take any numbers)
        """Raise for rows that the model cannot have made, such as negative counts."""

    def check(self, n_features: int, n_classes: int | None) -> None:  # noqa: B027
        """Raise a ValueError unless all arrays have the shapes and ranges that predicting needs.

        Loading a model calls this: what a file holds may have been changed. ``n_classes`` is None
        for a regression.
        """


class Model(ABC):
    """Parameters and what they mean.

    A model declares what it can offer: ``has_energy`` (a negative log joint on a batch that
    can be differentiated) or ``has_stats`` (additive statistics and a global update).
    """

    has_energy: ClassVar[bool] = False
    has_stats: ClassVar[bool] = False


class Inference(ABC):
    """How parameters are found: pure ``init`` and ``step``, State apart from Info.

    ``resumable`` declares that the State is frozen plain values, so that it can be kept in a file
    and gone on with elsewhere; values per row in it are made again where they are missing.
    ``local_only`` declares that its steps run in this process alone, on rows that are here or are
    brought here; its docstring says why.
    """

    resumable: ClassVar[bool] = False
    local_only: ClassVar[bool] = False

    @abstractmethod
    def init(self, model: Any, engine: Engine) -> Any:
        """Return the first State."""

    @abstractmethod
    def step(self, state: Any, engine: Engine) -> tuple[Any, Info]:
        """Return the next State, and what the step says about itself."""

    @abstractmethod
    def posterior(self, state: Any) -> Posterior:
        """Return what the State says about the parameters."""


@dataclass(frozen=True, eq=False)
class RowValues:
    """Values per row, such as scores: how to make them, and no values.

    They stay with the rows they belong to. A map makes those of a block from the block, from other
    values of the same rows and from a state; whoever needs them makes them where the block is, or
    finds them there. So nothing is lost with a machine, and nothing is sent.

    Whoever makes values from values again and again starts anew from the block now and then, so
    that what may have to be made again stays short.
    """

    map: Callable[..., Array]
    parents: tuple[RowValues, ...] = ()
    state: Any = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


class Engine(ABC):
    """Where rows live, and the only way to pass over all of them.

    Rows come in numbered blocks. Results are merged in block order whatever order they
    arrive in, and random numbers are keyed on (seed, iteration, block): one run equals
    another bit for bit, also when a block had to be computed twice.
    """

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """Number of rows, or None while a stream has not been read to its end."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of columns of the data."""

    @property
    @abstractmethod
    def repeatable(self) -> bool:
        """Whether the data can be passed over more than once."""

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Whether all rows are in the memory of this process, and can be addressed by number."""

    @abstractmethod
    def blocks(self, iteration: int | None = None) -> Iterable[Batch]:
        """Yield the blocks one after another, for work that is sequential by nature.

        With an ``iteration`` number the rows are shuffled by the stream of that iteration
        (over all rows in memory, within blocks on a stream); without one they come in order.
        """

    @abstractmethod
    def reduce(
        self,
        map: Callable[..., Statistics],
        merge: Callable[[Statistics, Statistics], Statistics],
        *rows: RowValues,
        state: Any = None,
    ) -> Statistics:
        """Map every block to statistics and merge them along one tree over block numbers.

        ``map`` is called with a batch, its part of each of the ``rows``, and ``state`` where there
        is one. It writes into nothing it is given; ``merge`` is associative.
        """

    @abstractmethod
    def map_blocks(
        self, map: Callable[..., Output], *rows: RowValues, state: Any = None
    ) -> Iterator[Output]:
        """Map every block; results come in block order."""

    @abstractmethod
    def map_rows(self, map: Callable[..., Array], *rows: RowValues, state: Any = None) -> RowValues:
        """Values per row, made block by block when they are first needed."""

    @abstractmethod
    def transformed(self, transform: Callable[[Batch], Batch]) -> Engine:
        """The same rows after a transform that treats each of them alike."""

    @abstractmethod
    def sample(self, n: int, iteration: int = 0) -> Batch:
        """Return ``n`` rows (all, if there are fewer) without replacement, in random order.

        The same rows whatever engine they are on.
        """

    @abstractmethod
    def sampler(self, n: int, iteration: int = 0) -> Callable[[Batch], Any]:
        """The map of `sample`, to be part of another pass; ``+`` merges, ``batch`` are the rows."""

    @abstractmethod
    def subsets(self, sizes: Sequence[int], iteration: int = 0) -> list[Engine]:
        """Samples of growing size as engines of their own, in memory; each holds the one before."""

    @abstractmethod
    def folds(self, n_folds: int, key: int = 0) -> Iterator[tuple[Engine, Engine]]:
        """Yield the rows to learn from and the rows held out, for every fold.

        At least as many rows as folds; the same folds whatever engine the rows are on.
        """

    @abstractmethod
    def stream(self, iteration: int, block: int) -> np.random.Generator:
        """Random numbers keyed on (seed, iteration, block)."""

    def streams(self, iteration: int) -> Callable[[int], np.random.Generator]:
        """`stream` of one iteration, as a function of the block; maps that draw carry it."""
        return partial(self.stream, iteration)

    @property
    def n_jobs(self) -> int:
        """Threads of this process that may work at a time."""
        return 1

    def draw(self, n: int, iteration: int = 0) -> Batch:
        """Return ``n`` random rows as fast as can be; another sample on another engine."""
        return self.sample(n, iteration)

    def each(self, work: Callable[[int], Output], count: int) -> Iterator[Output]:
        """Yield ``work(0), ..., work(count - 1)`` in this order, made by the engine's threads.

        For work that is not over blocks of rows: chunks of a sample, classes, parameters.
        """
        return map(work, range(count))

    def close(self) -> None:  # noqa: B027 (most engines hold nothing)
        """Give back what the engine holds, such as threads; it may be used again."""


@dataclass(frozen=True)
class Uncertainty:
    """Uncertainty of each prediction, in three arrays: ``total = aleatoric + epistemic``."""

    total: Array
    aleatoric: Array
    epistemic: Array = field(repr=False)


def check_flag(name: str, value: Any) -> None:
    """Raise unless ``value`` is true or false: a text such as "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_share(name: str, value: Any) -> float:
    """Return a share such as a coverage; raise unless it is a number between 0 and 1."""
    number: Any = np.asarray(value)[()] if np.ndim(value) == 0 else None
    if not isinstance(number, Real):
        raise TypeError(f"{name} must be a number strictly between 0 and 1, got {value!r}")
    share = float(number)
    if not 0.0 < share < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return share
