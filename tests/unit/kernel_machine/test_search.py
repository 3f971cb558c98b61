"""Validation search for precision and scale: which choices are tried."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.fitting.monitor import Monitor
from likelier.kernel_machine.class_task import SEARCH_RANGE
from likelier.kernel_machine.search import Choice, Search, is_between, search


class Told:
    """Held-out losses that grow with the distance from the best choice."""

    omega = np.ones(50)

    def __init__(self, precision, scale=1.0):
        self.best, self.tried = Choice(precision, scale), []

    def losses(self, choice):
        self.tried.append(choice)
        away = np.log(choice.precision / self.best.precision) ** 2
        return np.full(50, away + np.log(choice.scale / self.best.scale) ** 2)


@pytest.mark.parametrize("precision", [0.02, 0.05, 0.1, 0.5, 2.0])
def test_the_best_of_the_grid_is_found(precision):
    judge = Told(precision, 1.5)
    found = search(judge, Choice(0.1), Search(True, True, 9, SEARCH_RANGE), Monitor())
    assert 3.0**-0.5 <= found.precision / precision <= 3.0**0.5
    assert found.scale == 1.5
    assert len(set(judge.tried)) == len(judge.tried)


def test_no_trials_beyond_a_worse_choice():
    """From 0.008 the lower limit 0.005 is better; 0.015 lies beyond 0.008 and is skipped."""
    judge = Told(0.001)
    options = Search(True, False, 4, (0.005, 5.0))
    found = search(judge, Choice(0.008), options, Monitor())
    assert found.precision == 0.005
    assert [choice.precision for choice in judge.tried] == [0.008, 0.005]


def test_between_is_of_one_scale_and_open():
    low, high = Choice(0.1), Choice(0.9)
    assert is_between(Choice(0.3), low, high) and is_between(Choice(0.3), high, low)
    assert not is_between(low, low, high) and not is_between(Choice(1.0), low, high)
    assert not is_between(Choice(0.3, 1.5), low, high)
    assert not is_between(Choice(0.3), low, Choice(0.9, 1.5))


def test_time_ends_the_search():
    judge = Told(2.0)
    options, out_of_time = Search(True, True, 2, SEARCH_RANGE), Monitor(time_budget=1e-9)
    assert search(judge, Choice(0.1), options, out_of_time) == Choice(0.1)
    assert len(judge.tried) == 1
