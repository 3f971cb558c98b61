"""Finding the cheapest setting of a tool that comes close enough to the optimum."""

from __future__ import annotations

from collections.abc import Callable


def smallest(reached: Callable[[int], bool], start: int, cap: int, floor: int = 1) -> int | None:
    """Smallest number of passes for which ``reached`` holds, or None up to ``cap``.

    Doubles from ``start`` until it holds, then halves the interval; assumes that more passes
    do not hurt, and stops when the answer is known to 5%.
    """
    low, high = floor - 1, max(floor, min(start, cap))
    while not reached(high):
        if high >= cap:
            return None
        low, high = high, min(2 * high, cap)
    while high - low > max(1, high // 20):
        middle = (low + high) // 2
        if reached(middle):
            high = middle
        else:
            low = middle
    return high
