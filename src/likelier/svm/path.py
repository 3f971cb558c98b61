"""A path of duals with growing ``C``: kernel rows are kept, and each starts from the one before."""

from __future__ import annotations

from dataclasses import replace

from likelier.base import Array
from likelier.svm.kernel_cache import Memory, RowCache
from likelier.svm.loops.smo import on_bounds
from likelier.svm.model import KernelExpansion, Subset
from likelier.svm.small import solve_whole
from likelier.svm.smo import SMALL, SMO, InterruptedSolveError, KernelPosterior
from likelier.svm.start import rough_start
from likelier.svm.state import SMOState, whole_part

HELD_EXACTLY = 1024  # rows whose float64 kernel matrix costs little beside the path


def solve_path(
    inference: SMO, models: list[KernelExpansion], rows: Subset, y: Array,
    weight: Array | None = None, memory: Memory | None = None,
) -> list[KernelPosterior]:  # fmt: skip
    """Solutions for growing ``C``: kernel rows are kept, each starts from the one before.

    ``memory`` is that of a problem solved before. All kernel values together stay within the
    memory of the inference.
    """
    if rows.n_rows <= SMALL:
        small = solve_whole(inference, models, rows, y, weight)
        if small is not None:
            return small
    exact = 8 * rows.n_rows**2
    # beside it the cache holds the matrix in single precision, and the part that is active
    if len(models) > 1 and 2 * exact <= inference.cache_bytes and rows.n_rows <= HELD_EXACTLY:
        rows = rows.hold()
        inference = replace(inference, cache_bytes=inference.cache_bytes - exact)
    cache = inference.cache(rows, memory=memory)
    if len(models) > 1 and (cache.rows_are_dear or rows.held is not None):
        cache.hold_everything(rows.held)  # rows made or copied inside the loop cost too little
    found: list[KernelPosterior] = []
    state = _first_state(inference, models[0], rows, y, weight, cache)
    for model in models:
        if found:
            state = _next_state(inference, state, model, y, weight)
        found.append(inference.solve(state))
        state.cache.restart()
    return found


def _first_state(
    inference: SMO, model: KernelExpansion, rows: Subset, y: Array, weight: Array | None,
    cache: RowCache,
) -> SMOState:  # fmt: skip
    """State to solve from: at zero, or where easier problems have led to.

    Updates of these count as the model's own. An interruption carries away the model as far as
    they have come.
    """
    try:
        ladder, rough = rough_start(inference, model, rows, y, weight, cache)
        state = inference.start((*ladder, model)[0], rows, y, weight, rough, cache)
        for harder in (*ladder, model)[1:]:
            inference.solve(state)
            state.cache.restart()
            spent, state = state.n_iter, _next_state(inference, state, harder, y, weight)
            state.n_iter = spent
    except InterruptedSolveError as stop:  # its coefficients are within the wider bounds
        state = inference.start(model, rows, y, weight, stop.posterior.beta)
        raise InterruptedSolveError(inference.posterior(state)) from None
    except KeyboardInterrupt:
        state = inference.start(model, rows, y, weight)
        raise InterruptedSolveError(inference.posterior(state)) from None
    return state


def _next_state(
    inference: SMO, before: SMOState, model: KernelExpansion, y: Array, weight: Array | None
) -> SMOState:
    """State of a larger ``C``, from a solution and with its kernel rows."""
    state = inference.start(model, before.rows, y, weight, None, before.cache)
    _warm(state, before, model.C / before.model.C)
    return state


def _warm(state: SMOState, before: SMOState, ratio: float) -> None:
    """Start from the coefficients of a smaller ``C``, as they are or in proportion.

    As they are, each one that was on its bound has to be moved to the new bound; in proportion
    these follow the bound, but each that was between the bounds is moved away from its place.
    Both keep the sum and cost nothing: the more of a kind decide.
    """
    box, beta = state.box, before.beta
    product = box.target - before.F  # K beta
    used = beta != 0.0
    bound = used & ((beta <= before.box.lower) | (beta >= before.box.upper))
    factor = ratio if 2 * bound.sum() >= used.sum() else 1.0
    beta, F = factor * beta, box.target - factor * product
    beta = on_bounds(beta, box.lower, box.upper)
    state.beta, state.anchor, state.F = beta, beta.copy(), F
    state.drift = factor * before.drift
    state.part = whole_part(box, beta, F)
