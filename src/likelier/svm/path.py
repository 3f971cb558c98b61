"""Regularisation path: duals for increasing ``C`` with shared kernel rows and warm starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from likelier.base import Array
from likelier.svm.kernel_cache import BufferPool, RowCache
from likelier.svm.loops.smo import on_bounds
from likelier.svm.model import KernelExpansion, Subset
from likelier.svm.saved_state import SavedState
from likelier.svm.small import solve_whole
from likelier.svm.smo import SMALL, SMO
from likelier.svm.solution import KernelPosterior
from likelier.svm.start import rough_start
from likelier.svm.state import SMOState, whole_part

MAX_EXACT_ROWS = 1024  # rows up to which a float64 kernel matrix is cheap compared with the path


def solve_path(
    inference: SMO, models: list[KernelExpansion], rows: Subset, y: Array,
    weight: Array | None = None, memory: BufferPool | None = None,
) -> list[KernelPosterior]:  # fmt: skip
    """Solutions for increasing ``C`` with shared kernel rows and warm starts.

    ``memory`` holds reusable buffers. All kernel values stay within the cache size of the
    inference.
    """
    saved = inference.watch.saved() if inference.watch and inference.watch.single else None
    if saved is not None:
        return [_resumed(inference, models[0], rows, y, weight, memory, saved)]
    if rows.n_rows <= SMALL:
        small = solve_whole(inference, models, rows, y, weight)
        if small is not None:
            return small
    exact = 8 * rows.n_rows**2
    # the cache also holds the matrix in single precision and a copy of its active part
    if len(models) > 1 and 2 * exact <= inference.cache_bytes and rows.n_rows <= MAX_EXACT_ROWS:
        rows = rows.hold()
        inference = replace(inference, cache_bytes=inference.cache_bytes - exact)
    cache = inference.cache(rows, memory=memory)
    if len(models) > 1 and (cache.rows_are_expensive or rows.held is not None):
        cache.store_whole_matrix(rows.held)  # rows computed inside the loop are cheap enough
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
    """Initial state: zero, or the solution of easier problems, whose updates are counted."""
    ladder, rough = rough_start(inference, model, rows, y, weight, cache)
    state = inference.start((*ladder, model)[0], rows, y, weight, rough, cache)
    return _after_easier(inference, state, (*ladder, model)[1:], y, weight)


def _after_easier(
    inference: SMO, state: SMOState, harder: Sequence[KernelExpansion], y: Array,
    weight: Array | None,
) -> SMOState:  # fmt: skip
    """Solve problems of increasing ``C`` up to the last one, which is only started."""
    for k, model in enumerate(harder):
        inference.solve(state, tuple(later.C for later in harder[k:]))
        state.cache.restart()
        spent, state = state.n_iter, _next_state(inference, state, model, y, weight)
        state.n_iter = spent
    return state


def _resumed(
    inference: SMO, model: KernelExpansion, rows: Subset, y: Array, weight: Array | None,
    memory: BufferPool | None, saved: SavedState,
) -> KernelPosterior:  # fmt: skip
    """The solution, from a state in a checkpoint on."""
    state = inference.resume(saved, model, rows, y, weight, memory)
    harder = [replace(model, C=C) for C in saved.later]
    return inference.solve(_after_easier(inference, state, harder, y, weight))


def _next_state(
    inference: SMO, before: SMOState, model: KernelExpansion, y: Array, weight: Array | None
) -> SMOState:
    """State for a larger ``C``, warm-started from a solution, with its kernel rows."""
    state = inference.start(model, before.rows, y, weight, None, before.cache)
    _warm_start(state, before, model.C / before.model.C)
    return state


def _warm_start(state: SMOState, before: SMOState, ratio: float) -> None:
    """Warm start from the coefficients of a smaller ``C``, unchanged or scaled by ``ratio``.

    Unchanged, coefficients on their bound have to move to the new bound; scaled, these are on the
    new bound, but those between the bounds are displaced. Both keep the sum at no cost; the larger
    group decides.
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
