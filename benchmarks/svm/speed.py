"""Time of a fit against LIBSVM's, and how exact both are."""

from __future__ import annotations

import multiprocessing
import resource
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Cases, interleave
from benchmarks.svm.problem import CS, EPSILON, SETS, Problem, certificate, load

LIMIT = 240.0  # processor seconds that LIBSVM may take for one fit, or thrice ours if more
SLOW = {("kin8nm", 100.0), ("kin8nm", 1e4)}  # known to take LIBSVM minutes
PATH_LIMIT = 120.0  # the same for a fit of a path: there are several
REPEATS, BUDGET = 9, 10.0  # quick problems are repeated more often: their times vary more
PATH = np.geomspace(0.01, 100.0, 10)


def compile_loops(problem: Problem) -> None:
    """Fits nobody times, small ones and larger, so that the compiler is not timed either."""
    for count in (200, 600):
        few = np.random.default_rng(0).permutation(len(problem.y))[:count]
        problem.ours().fit_path(problem.X[few], problem.y[few], PATH[::3])
        problem.ours(C=100.0).fit(problem.X[few], problem.y[few])


def parameters_of(problem: Problem, C: float, **words: Any) -> dict[str, Any]:
    return {"C": C, **({"epsilon": EPSILON} if problem.regression else {}), **words}


def _fit_theirs(problem: Problem, words: dict[str, Any], limit: float, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
    start = time.process_time()
    model = problem.theirs(**words).fit(problem.X, problem.y)
    pipe.send((time.process_time() - start, model))


def limited(problem: Problem, words: dict[str, Any], limit: float) -> tuple[float, Any]:
    """One fit of LIBSVM in a process of its own; after the limit, what it used and no model."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_fit_theirs, args=(problem, words, limit, there))
    before = _children_seconds()
    process.start()
    there.close()  # so that the end of the process is the end of the pipe
    try:
        return here.recv()
    except EOFError:
        pass
    finally:
        process.kill()
        process.join()
    return _children_seconds() - before, None


def _children_seconds() -> float:
    """Processor time of the processes started here that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def case(problem: Problem, C: float, cache: int, repeats: int) -> dict[str, Any]:
    """Median times, iterations, objectives and violations of one problem."""
    words = parameters_of(problem, C, cache_size=cache)
    runs = {"ours": lambda _: problem.ours(**words).fit(problem.X, problem.y)}
    slow = (problem.name, C) in SLOW
    if not slow:
        runs["theirs"] = lambda _: problem.theirs(**words).fit(problem.X, problem.y)
    times, models = interleave(runs, repeats, budget=BUDGET)
    record: dict[str, Any] = {"set": problem.name, "C": C, "cache": cache, "bound": False}
    record["ours"] = times["ours"].to_json()["cpu_seconds"]
    if slow:
        record["theirs"], peer = limited(problem, words, max(LIMIT, 3.0 * record["ours"]))
        record["bound"] = peer is None
    else:
        record["theirs"], peer = times["theirs"].to_json()["cpu_seconds"], models["theirs"][0]
    mine = models["ours"][0]
    record["objective"], record["gap"] = certificate(problem, mine)
    record["updates"], record["converged"] = int(np.sum(mine.n_iter_)), mine.fit_status_ == 0
    if peer is not None:
        record["their_objective"], record["their_gap"] = certificate(problem, peer)
        record["their_updates"] = int(np.sum(peer.n_iter_))
        record["difference"] = difference(problem, mine, peer)
    return record


def difference(problem: Problem, mine: Any, peer: Any) -> float:
    """Share of labels that differ, or the largest difference of numbers."""
    one, two = mine.predict(problem.X), peer.predict(problem.X)
    return float(abs(one - two).max() if problem.regression else (one != two).mean())


def run(sets: tuple[str, ...] = SETS, Cs: tuple[float, ...] = CS, repeats: int = REPEATS,
        caches: tuple[int, ...] = (200, 1000)) -> Cases:  # fmt: skip
    """Every set at every C and cache size."""
    for name in sets:
        problem = load(name)
        compile_loops(problem)
        for cache in caches:
            for C in Cs:
                yield f"{name}/{C:g}/{cache}", case(problem, C, cache, repeats)


SLOW_FINE = {("a9a", 1e4), *SLOW}  # at the finer tolerance
FINE_LIMIT = LIMIT  # about: LIBSVM is then taken as it is
PROBE = 300_000  # updates that tell how long one takes: the first ones take longer


def _fit_briefly(problem: Problem, words: dict[str, Any]) -> tuple[Any, bool]:
    """LIBSVM, and whether it was ended: after as many updates as fill the limit."""
    start = time.process_time()
    problem.theirs(**words, max_iter=PROBE).fit(problem.X, problem.y)
    most = int(PROBE * FINE_LIMIT / (time.process_time() - start))
    model = problem.theirs(**words, max_iter=most).fit(problem.X, problem.y)
    return model, int(np.max(model.n_iter_)) >= most


def run_fine(sets: tuple[str, ...] = SETS, Cs: tuple[float, ...] = CS) -> Cases:
    """Objectives at tol=1e-6."""
    for name in sets:
        problem = load(name)
        for C in Cs:
            words = parameters_of(problem, C, tol=1e-6)
            with threadpool_limits(1):
                start = time.process_time()
                mine = problem.ours(**words).fit(problem.X, problem.y)
                seconds, start = time.process_time() - start, time.process_time()
                if (name, C) in SLOW_FINE:
                    peer, ended = _fit_briefly(problem, words)
                else:
                    peer, ended = problem.theirs(**words).fit(problem.X, problem.y), False
                theirs_seconds = time.process_time() - start
            (value, gap), (theirs, their_gap) = (certificate(problem, m) for m in (mine, peer))
            yield f"{name}/{C:g}", {
                "set": name, "C": C, "objective": value, "their_objective": theirs,
                "gap": gap, "their_gap": their_gap, "difference": difference(problem, mine, peer),
                "ours": seconds, "theirs": theirs_seconds, "ended": ended,
            }  # fmt: skip


def run_path(sets: tuple[str, ...] = SETS, repeats: int = REPEATS) -> Cases:
    """Ten values of C: `fit_path` against ten fits of LIBSVM, which may take `PATH_LIMIT` each."""
    for name in sets:
        problem = load(name)
        compile_loops(problem)
        slow = [C for C in PATH if any(name == known and C > 10.0 for known, _ in SLOW)]
        quick = [C for C in PATH if C not in slow]
        fit = {
            "ours": lambda _, p=problem: p.ours().fit_path(p.X, p.y, PATH),
            "theirs": lambda _, p=problem, Cs=quick: [p.theirs(C=C).fit(p.X, p.y) for C in Cs],
        }
        times, _ = interleave(fit, repeats, budget=BUDGET)
        cpu = {key: value.to_json()["cpu_seconds"] for key, value in times.items()}
        rest = [limited(problem, {"C": C}, PATH_LIMIT) for C in slow]
        cpu["theirs"] += sum(seconds for seconds, _ in rest)
        yield name, {"set": name, "bound": any(model is None for _, model in rest), **cpu}


def run_threads(sets: tuple[str, ...] = SETS, repeats: int = REPEATS) -> Cases:
    """Two threads, by the clock on the wall: trust it only on an idle machine.

    Fits of one kind in a row, then all in turn. Who follows whom matters where a fit takes much
    memory: what the one before has freed comes at once if it is of the same kind.
    """
    for name in sets:
        problem = load(name)
        compile_loops(problem)
        fit = {
            "one": lambda _, p=problem: p.ours(n_jobs=1).fit(p.X, p.y),
            "two": lambda _, p=problem: p.ours(n_jobs=2).fit(p.X, p.y),
            "theirs": lambda _, p=problem: p.theirs().fit(p.X, p.y),
        }
        record: dict[str, Any] = {"set": name}
        for key, run in fit.items():
            timing, _ = interleave({key: run}, repeats, BUDGET, threads=None, keep=lambda _: None)
            record[key] = timing[key].median
        turns, _ = interleave(fit, repeats, 2.5 * BUDGET, threads=None, keep=lambda _: None)
        yield name, {**record, "in_turn": {key: value.median for key, value in turns.items()}}
