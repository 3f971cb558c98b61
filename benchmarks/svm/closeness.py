"""How close numbers predicted come to those of the optimum, and to LIBSVM's."""

from __future__ import annotations

from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.common import Cases
from benchmarks.svm.problem import CS, NUMBERS, Problem, certificate, load
from benchmarks.svm.speed import difference, limited, parameters_of

COARSE, FINE, OPTIMUM = 1e-3, 1e-6, 1e-8  # tolerances; ours at the last stands for the optimum
LIMIT = 600.0  # processor seconds that LIBSVM may take for one fit
NOT_RUN = {("kin8nm", 1e4)}  # LIBSVM does not end within minutes at the coarse tolerance


def run(sets: tuple[str, ...] = NUMBERS, Cs: tuple[float, ...] = CS) -> Cases:
    """Both at both tolerances, for targets that are numbers: labels do not differ at all."""
    for name in sets:
        problem = load(name)
        for C in Cs if problem.regression else ():
            with threadpool_limits(1):
                yield f"{name}/{C:g}", case(problem, C)


def case(problem: Problem, C: float) -> dict[str, Any]:
    """Largest differences of predictions, in standard deviations of the target.

    LIBSVM may be ended by its limit, and may end by itself before it has converged: how much it
    violates the conditions is noted.
    """
    record: dict[str, Any] = {"set": problem.name, "C": C, "unit": problem.unit}
    coarse, fine, optimum = (
        problem.ours(**parameters_of(problem, C, tol=tol, cache_size=1000)).fit(
            problem.X, problem.y
        )
        for tol in (COARSE, FINE, OPTIMUM)
    )
    record["coarse"] = difference(problem, coarse, optimum)
    record["fine"] = difference(problem, fine, optimum)
    record["run"] = (problem.name, C) not in NOT_RUN
    if not record["run"]:
        return record
    peers = {}
    for name, tol in (("coarse", COARSE), ("fine", FINE)):
        words = parameters_of(problem, C, tol=tol, cache_size=1000)
        record[f"their_{name}_seconds"], peer = limited(problem, words, LIMIT)
        if peer is not None:
            peers[name] = peer
            record[f"their_{name}"] = difference(problem, peer, optimum)
    if "coarse" in peers:
        record["between_coarse"] = difference(problem, coarse, peers["coarse"])
    if "fine" in peers:
        record["their_gap"] = certificate(problem, peers["fine"])[1]
        record["between_fine"] = difference(problem, fine, peers["fine"])
        record["to_converged"] = difference(problem, coarse, peers["fine"])
        if "coarse" in peers:
            record["their_to_converged"] = difference(problem, peers["coarse"], peers["fine"])
    return record
