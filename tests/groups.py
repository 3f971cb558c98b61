"""Which tests go to one worker together, where several run side by side.

Programs of deep Gaussian processes take seconds to compile, and two workers that need the same
one at the same time both compile it. So tests that share programs are a group, and a group is run
by one worker. Groups come first, the longest before the others, and fill both workers about
equally; all other tests are handed out by pytest-xdist as ever.
"""

from __future__ import annotations

import re
from typing import Any

from xdist.scheduler import LoadScheduling

# A test belongs to the first pattern that its name matches. From the longest to the shortest.
GROUPS = (
    "DeepGPClassifier",
    r"/(test_deep_(gp|gp_answers|gp_choices|gp_going_on|inference)|deep_gp/test_compile)\.py",
    "DeepGPRegressor",
    r"/test_(resume|predictor)\.py.*deep",
    r"/test_deep_argmax_mpmath\.py",
    r"/test_deep_gp_energy\.py",
    r"/deep_gp/test_(likelihoods|normal)\.py",
    r"/(test_(errata_deep_gp|deep_argmax_errata)|deep_gp/test_argmax)\.py",
)


def group_of(name: str) -> int | None:
    """Number of the group of a test, or None where it may go anywhere."""
    found = (number for number, pattern in enumerate(GROUPS) if re.search(pattern, name))
    return next(found, None)


class GroupScheduling(LoadScheduling):
    """Hands out whole groups while there are any, then chunks of tests."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.groups: list[list[int]] | None = None

    def check_schedule(self, node: Any, duration: float = 0) -> None:
        """Leave a group to the worker that is free first, whatever the number of its tests."""
        if not self.groups or len(self.node2pending[node]) < 2:
            super().check_schedule(node, duration)

    def _send_tests(self, node: Any, num: int) -> None:
        if self.groups is None:
            self.groups = self._find_groups()
        if self.groups:
            group = set(self.groups.pop(0))
            # what is pending goes out from its front
            self.pending.sort(key=lambda index: index not in group)
            num = max(2, len(group))  # a worker begins a test once it knows the next one
        super()._send_tests(node, num)

    def _find_groups(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in GROUPS]
        for index, name in enumerate(self.collection or ()):
            number = group_of(name)
            if number is not None:
                found[number].append(index)
        return [group for group in found if group]
