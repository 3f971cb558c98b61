"""Time of a fit against LIBSVM's, and how exact both are."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Cases, interleave
from benchmarks.svm.problem import CS, EPSILON, SETS, Problem, certificate, load

LIMIT = 240.0  # seconds that LIBSVM may take for one fit
SLOW = {("kin8nm", 100.0), ("kin8nm", 1e4)}  # known to take LIBSVM minutes
PATH = np.geomspace(0.01, 100.0, 10)


def _words(problem: Problem, C: float, **words: Any) -> dict[str, Any]:
    return {"C": C, **({"epsilon": EPSILON} if problem.regression else {}), **words}


def _fit_theirs(problem: Problem, words: dict[str, Any], pipe: Any) -> None:
    start = time.process_time()
    model = problem.theirs(**words).fit(problem.X, problem.y)
    pipe.send((time.process_time() - start, model))


def _limited(problem: Problem, words: dict[str, Any]) -> tuple[float, Any]:
    """One fit of LIBSVM in a process of its own; after the limit, the limit and no model."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_fit_theirs, args=(problem, words, there))
    process.start()
    try:
        return here.recv() if here.poll(LIMIT) else (LIMIT, None)
    finally:
        process.kill()
        process.join()


def case(problem: Problem, C: float, cache: int, repeats: int) -> dict[str, Any]:
    """Median times, iterations, objectives and violations of one problem."""
    words = _words(problem, C, cache_size=cache)
    runs = {"ours": lambda _: problem.ours(**words).fit(problem.X, problem.y)}
    slow = (problem.name, C) in SLOW
    if not slow:
        runs["theirs"] = lambda _: problem.theirs(**words).fit(problem.X, problem.y)
    times, models = interleave(runs, repeats, budget=20.0)
    record: dict[str, Any] = {"set": problem.name, "C": C, "cache": cache, "bound": False}
    record["ours"] = times["ours"].to_json()["cpu_seconds"]
    if slow:
        record["theirs"], peer = _limited(problem, words)
        record["bound"] = peer is None
    else:
        record["theirs"], peer = times["theirs"].to_json()["cpu_seconds"], models["theirs"][0]
    mine = models["ours"][0]
    record["objective"], record["gap"] = certificate(problem, mine)
    record["updates"], record["converged"] = int(np.sum(mine.n_iter_)), mine.fit_status_ == 0
    if peer is not None:
        record["their_objective"], record["their_gap"] = certificate(problem, peer)
        record["their_updates"] = int(np.sum(peer.n_iter_))
        record["difference"] = _difference(problem, mine, peer)
    return record


def _difference(problem: Problem, mine: Any, peer: Any) -> float:
    """Share of labels that differ, or the largest difference of numbers."""
    one, two = mine.predict(problem.X), peer.predict(problem.X)
    return float(abs(one - two).max() if problem.regression else (one != two).mean())


def run(sets: tuple[str, ...] = SETS, Cs: tuple[float, ...] = CS, repeats: int = 3,
        caches: tuple[int, ...] = (200, 1000)) -> Cases:  # fmt: skip
    """Every set at every C and cache size."""
    for name in sets:
        problem = load(name)
        for cache in caches:
            for C in Cs:
                if cache > 200 and (name, C) in SLOW:
                    continue
                yield f"{name}/{C:g}/{cache}", case(problem, C, cache, repeats)


def run_fine(sets: tuple[str, ...] = ("svmguide1", "splice", "boston", "energy"),
             Cs: tuple[float, ...] = CS) -> Cases:  # fmt: skip
    """Objectives at tol=1e-6."""
    for name in sets:
        problem = load(name)
        for C in Cs:
            words = _words(problem, C, tol=1e-6)
            with threadpool_limits(1):
                mine = problem.ours(**words).fit(problem.X, problem.y)
                peer = problem.theirs(**words).fit(problem.X, problem.y)
            (value, gap), (theirs, their_gap) = (certificate(problem, m) for m in (mine, peer))
            yield f"{name}/{C:g}", {
                "set": name, "C": C, "objective": value, "their_objective": theirs,
                "gap": gap, "their_gap": their_gap,
            }  # fmt: skip


def run_path(sets: tuple[str, ...] = SETS, repeats: int = 3) -> Cases:
    """Ten values of C: `fit_path` against ten fits of LIBSVM."""
    for name in sets:
        problem = load(name)
        fit = {
            "ours": lambda _, p=problem: p.ours().fit_path(p.X, p.y, PATH),
            "theirs": lambda _, p=problem: [p.theirs(C=C).fit(p.X, p.y) for C in PATH],
        }
        times, _ = interleave(fit, repeats, budget=20.0)
        cpu = {key: value.to_json()["cpu_seconds"] for key, value in times.items()}
        yield name, {"set": name, **cpu}


def run_threads(sets: tuple[str, ...] = ("pendigits", "usps", "a9a"), repeats: int = 3) -> Cases:
    """Two threads, by the clock on the wall: trust it only on an idle machine."""
    for name in sets:
        problem = load(name)
        fit = {
            "one": lambda _, p=problem: p.ours(n_jobs=1).fit(p.X, p.y),
            "two": lambda _, p=problem: p.ours(n_jobs=2).fit(p.X, p.y),
            "theirs": lambda _, p=problem: p.theirs().fit(p.X, p.y),
        }
        times, _ = interleave(fit, repeats, budget=30.0, threads=None)
        yield name, {"set": name, **{key: value.median for key, value in times.items()}}
