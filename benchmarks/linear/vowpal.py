"""Vowpal Wabbit through its Python module, learning from its own binary cache.

Its text form and cache are made beforehand and not timed; it parses the cache in a thread of
its own while it learns, which it is allowed to. Several classes go through ``--oaa``, which
reads each row once. Its lazy L2 shrinks all weights by a factor that ignores its per-feature
rates (and once per class), so four variants are tried: ``--l2`` as documented, no penalty at
all, ``--l2`` without its normalised updates, and ``--bfgs``; the objective is always ours, and
the fastest variant counts.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.common import CACHE
from benchmarks.datasets import Array, Dataset
from benchmarks.linear.problem import CLOSE, Problem
from benchmarks.linear.search import smallest

CAP = 1 << 14
SEARCH_SECONDS = 20.0  # of one variant
VARIANTS = ("online, --l2", "online, no penalty", "online, --l2, not normalized", "--bfgs")


def available() -> bool:
    """Whether the Python module is installed."""
    try:
        import vowpalwabbit  # noqa: F401
    except ImportError:
        return False
    return True


def fit(problem: Problem, plan: dict[str, Any], seed: int) -> Any:
    """Learn from the cache; returns the workspace, whose weights are read outside the timing."""
    from vowpalwabbit import pyvw

    return pyvw.Workspace(arg_list=_arguments(problem, plan, seed))


def _arguments(problem: Problem, plan: dict[str, Any], seed: int) -> list[str]:
    loss = "logistic" if problem.loss == "log_loss" else "hinge"
    arguments = ["--cache_file", str(cache_file(problem.data)), "--noconstant", "--quiet"]
    arguments += ["--loss_function", loss, "--holdout_off", "--passes", str(plan["passes"])]
    arguments += ["--random_seed", str(seed), "-b", _bits(problem.data)]
    if problem.n_problems > 1:
        arguments += ["--oaa", str(problem.n_problems), "--scores"]
    if plan["variant"] == "--bfgs":
        # a batch objective: the sum over rows, so the penalty is not divided by N
        # and by itself it ends where a pass gains a thousandth, which may be far from 1%
        arguments += ["--bfgs", "--l2", repr(problem.penalty), "--termination", "1e-9"]
    elif "--l2" in plan["variant"]:
        arguments += ["--l2", repr(problem.alpha / problem.n_problems)]
    if "not normalized" in plan["variant"]:
        arguments += ["--adaptive", "--invariant"]
    return arguments


def _bits(data: Dataset) -> str:
    """Bits of its weight table: its default, or enough that no two weights share a cell.

    A cache made with fewer bits than a run asks for is silently emptied.
    """
    return str(max(18, math.ceil(math.log2(data.n_features * _width(data)))))


def _width(data: Dataset) -> int:
    """Cells of its table per feature: ``--oaa`` rounds the classes up to a power of two."""
    return 1 if data.n_classes == 2 else 1 << (data.n_classes - 1).bit_length()


def weights(problem: Problem, workspace: Any) -> Array:
    """Read the weight matrix, including the factor that ``--l2`` keeps apart, and close."""
    d, k, width = problem.data.n_features, problem.n_problems, _width(problem.data)
    get = workspace.get_weight
    coef = np.array([[get(j * width + c) for j in range(d)] for c in range(k)])
    c, j = np.unravel_index(np.argmax(np.abs(coef)), coef.shape)
    if coef[c, j] != 0:
        # a small value, because predictions are clipped
        value = 0.5 / abs(coef[c, j])
        scores = np.atleast_1d(workspace.predict(f"| {j}:{value:.9g}"))
        coef *= scores[c] / (coef[c, j] * value)
    workspace.finish()
    return coef


def search(problem: Problem, chance: float, budget: float = SEARCH_SECONDS) -> dict[str, Any]:
    """Smallest number of passes of each variant; the fastest one that comes within 1%.

    A variant is given up after ``budget`` seconds, but not before one run took ``chance`` seconds.
    """
    plans: list[dict[str, Any]] = []
    fastest = float("inf")
    for variant in _variants(problem):
        plans.append(_passes(problem, variant, (budget, chance), fastest))
        if plans[-1]["reached"]:
            fastest = min(fastest, plans[-1]["race_seconds"])
    reached = [plan for plan in plans if plan["reached"]]
    if reached:
        return min(reached, key=lambda plan: plan["race_seconds"])
    return min(plans, key=lambda plan: plan["gap"])


def _variants(problem: Problem) -> tuple[str, ...]:
    """List the variants: ``--bfgs`` needs one smooth binary problem."""
    smooth_binary = problem.n_problems == 1 and problem.loss == "log_loss"
    return VARIANTS if smooth_binary else VARIANTS[:3]


def _passes(
    problem: Problem, variant: str, limits: tuple[float, float], fastest: float
) -> dict[str, Any]:
    """Smallest number of passes of one variant; gives up where another was faster."""
    budget, chance = limits
    tried: dict[int, dict[str, Any]] = {}

    def spent() -> float:  # by the tool itself: its weights are read slowly, one by one
        return sum(plan["race_seconds"] for plan in tried.values())

    def longest() -> float:
        return max((plan["race_seconds"] for plan in tried.values()), default=0.0)

    def reached(passes: int) -> bool:
        tired = spent() > budget and longest() >= chance
        if tired or longest() > 1.5 * fastest:
            return False
        plan = {"variant": variant, "passes": passes}
        begun = _clocks()
        workspace = fit(problem, plan, seed=0)
        plan["race_seconds"] = _since(begun)
        plan["gap"] = problem.gap(weights(problem, workspace))
        tried[passes] = plan
        return bool(plan["gap"] <= CLOSE)

    floor = 2 if variant == "--bfgs" else 1  # it refuses a single pass
    passes = smallest(reached, floor, CAP, floor)
    if passes is None:
        # whatever came closest, the longest run did not get there either
        closest = min(tried.values(), key=lambda plan: plan["gap"])
        return {**closest, "reached": False, "race_seconds": longest()}
    return {**tried[passes], "reached": True}


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(start: tuple[float, float]) -> float:
    """The smaller of both clocks: wall time, as it has two threads, unless others hold it up."""
    return min(now - then for now, then in zip(_clocks(), start, strict=True))


def cache_file(data: Dataset) -> Path:
    """Binary cache of a data set; made from text the first time."""
    target = CACHE / "vowpal" / f"{data.name}.cache"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        text = target.with_suffix(".txt")
        _write_text(data, text)
        _convert(data, text, target)
        text.unlink()
    return target


def _write_text(data: Dataset, path: Path) -> None:
    """Write the rows in a random order: some files are sorted by class, and it never shuffles."""
    X = sparse.csr_matrix(data.X)
    labels = np.where(data.y == 1, 1, -1) if data.n_classes == 2 else data.y + 1
    with path.open("w") as out:
        for i in np.random.default_rng(0).permutation(X.shape[0]):
            part = slice(X.indptr[i], X.indptr[i + 1])
            pairs = zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True)
            out.write(f"{labels[i]} | " + " ".join(f"{j}:{v:.9g}" for j, v in pairs) + "\n")


def _convert(data: Dataset, text: Path, target: Path) -> None:
    from vowpalwabbit import pyvw

    draft = target.with_suffix(".draft")
    # a draft left behind by an interrupted run would be taken for the data
    draft.unlink(missing_ok=True)
    arguments = ["-d", str(text), "--cache_file", str(draft), "--quiet", "--noconstant"]
    arguments += ["-b", _bits(data)]
    if data.n_classes > 2:
        arguments += ["--oaa", str(data.n_classes)]
    pyvw.Workspace(arg_list=arguments).finish()
    draft.rename(target)
