"""What is run on every engine: fits, and what engines offer that no fit asks for yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from likelier.base import Array, Batch, Engine

SOME_ROWS = 200  # of which predictions are compared


@dataclass(frozen=True)
class Case:
    """Results by name, from an engine that stands for rows in memory."""

    name: str
    run: Callable[[Callable[..., Engine]], Mapping[str, Any]]
    fits: bool = True


def all_cases(n: int, n_wide: int) -> list[Case]:
    """All cases; ``n`` rows, ``n_wide`` where there are many columns."""
    import likelier

    quick: dict[str, Any] = {"random_state": 0}
    linear, regressor = likelier.LinearClassifier, likelier.LinearRegressor
    newton = linear(alpha=1e-3, **quick)
    fits: list[tuple[str, Any, tuple[Any, Array]]] = [
        ("gaussian_nb", likelier.GaussianNB(**quick), _dense(n)),
        ("multinomial_nb", likelier.MultinomialNB(**quick), _counts(n)),
        ("bernoulli_nb", likelier.BernoulliNB(**quick), _counts(n)),
        ("newton", newton, _dense(n)),
        ("newton_fortran", newton, _fortran(_dense(n))),
        ("newton_numbers", regressor(alpha=1e-3, **quick), _numbers(n)),
        ("newton_classes", newton, _dense(n, k=4)),
        ("lbfgs_dense", linear(alpha=1e-4, **quick), _dense(n_wide, d=2000)),
        ("lbfgs_sparse", linear(alpha=1e-4, **quick), _sparse(n_wide)),
    ]
    cases = [Case(name, _Fit(model, *data)) for name, model, data in fits]
    rows = _dense(n)
    for check in (row_values, replayed, large_state, samples, transformed):
        cases.append(Case(check.__name__, _Direct(check, *rows), fits=False))
    return cases


@dataclass(frozen=True)
class _Fit:
    """A fit; engines are made by the recipe of the estimator."""

    model: Any
    X: Any
    y: Array

    def __call__(self, make: Callable[..., Engine]) -> Mapping[str, Any]:
        fitted = clone(self.model).fit(self.X, self.y)
        few = self.X[:SOME_ROWS]
        names = ("predict", "predict_proba", "decision_function")
        found = {name: getattr(fitted, name)(few) for name in names if hasattr(fitted, name)}
        return {**vars(fitted), **found}


@dataclass(frozen=True)
class _Direct:
    """A use of an engine."""

    check: Callable[[Engine], Mapping[str, Any]]
    X: Array
    y: Array

    def __call__(self, make: Callable[..., Engine]) -> Mapping[str, Any]:
        return self.check(make(self.X, self.y, None, 0, 1, True))


def _dense(n: int, d: int = 6, k: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d))
    score = X @ rng.standard_normal((d, k)) + 0.5 * rng.standard_normal((n, k))
    return X, score.argmax(axis=1)


def _fortran(data: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.asfortranarray(data[0]), data[1]


def _numbers(n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 6))
    return X, X @ rng.standard_normal(6) + 0.5 * rng.standard_normal(n)


def _counts(n: int) -> tuple[Array, Array]:
    X, y = _dense(n, k=3)
    return np.random.default_rng(2).poisson(np.exp(0.3 * X)).astype(float), y


def _sparse(n: int, d: int = 3000) -> tuple[Any, Array]:
    rng = np.random.default_rng(0)
    X: Any = sparse.random_array((n, d), density=0.01, format="csr", rng=rng)
    return X, (X @ rng.standard_normal(d) > 0.0).astype(int)


# -- what no fit asks for yet --------------------------------------------------------------
def _move(batch: Batch, scores: Array, direction: Array) -> Array:
    return np.asarray(scores + batch.X @ direction)


def _sums(batch: Batch, scores: Array) -> Array:
    return np.append(batch.X.T @ np.tanh(scores), np.square(scores).sum())


def row_values(engine: Engine) -> Mapping[str, Any]:
    """Scores that move step by step, as in a line search."""
    theta = np.ones(engine.n_features)
    scores = engine.map_rows(lambda batch, state: batch.X @ state, state=theta)
    found = {}
    for step in range(8):
        sums = engine.reduce(_sums, np.add, scores)
        found[f"step {step}"] = sums
        direction = -0.1 * sums[:-1] / np.linalg.norm(sums[:-1])
        scores = engine.map_rows(_move, scores, state=direction)
    found["scores"] = np.concatenate(list(engine.map_blocks(lambda batch, own: own, scores)))
    return found


def replayed(engine: Engine) -> Mapping[str, Any]:
    """A long recipe, none of whose values is cached."""
    scores = engine.map_rows(lambda batch: batch.X[:, 0])
    for step in range(20):
        direction = np.full(engine.n_features, 0.1 / (1.0 + step))
        scores = engine.map_rows(_move, scores, state=direction)
    return {"sums": engine.reduce(_sums, np.add, scores)}


def large_state(engine: Engine) -> Mapping[str, Any]:
    """A state of 4 MB."""
    state = np.random.default_rng(3).standard_normal((engine.n_features, 1 << 16))
    return {
        "sums": engine.reduce(lambda b, s: b.X[:5].T @ np.tanh(b.X[:5] @ s), np.add, state=state)
    }


def samples(engine: Engine) -> Mapping[str, Any]:
    """Samples of rows."""
    few, some, drawn = engine.sample(100, 1), engine.sample(700, 2), engine.draw(50, 3).compact()
    return {"X": few.X, "y": few.y, "some": some.X, "drawn": drawn.X}


def _standardised(batch: Batch) -> Batch:
    X = 2.0 * (np.asarray(batch.X) - 0.5)
    return Batch(X, batch.y, batch.weight, index=batch.index, start=batch.start)


def transformed(engine: Engine) -> Mapping[str, Any]:
    """Rows after a transform, and their order."""
    moved = engine.transformed(_standardised)
    scores = moved.map_rows(lambda batch: batch.X[:, 1])
    blocks = [batch.index for batch in engine.blocks()]
    return {"sums": moved.reduce(_sums, np.add, scores), "blocks": np.array(blocks)}
