"""Threads that work together with their caller."""

from __future__ import annotations

import threading

import pytest

from likelier.engines.threads import ThreadTeam


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_together_calls_each_number_once(n_threads, count):
    team, seen = ThreadTeam(n_threads), []
    try:
        assert team.together(seen.append, count) is None
    finally:
        team.close()
    assert sorted(seen) == list(range(count))


def test_the_caller_takes_part():
    team, both, who = ThreadTeam(2), threading.Barrier(2, timeout=60), set()

    def meet(_: int) -> None:
        both.wait()  # broken unless two threads are here at the same time
        who.add(threading.current_thread())

    try:
        team.together(meet, 2)
    finally:
        team.close()
    assert threading.main_thread() in who and len(who) == 2


@pytest.mark.parametrize("culprit", [0, 1, 5])
def test_an_error_is_raised_when_all_have_ended(culprit):
    team, running = ThreadTeam(2), []

    def fail(number: int) -> None:
        running.append(number)
        if number == culprit:
            raise OSError(f"number {number}")
        running.remove(number)

    try:
        with pytest.raises(OSError, match=f"number {culprit}"):
            team.together(fail, 6)
    finally:
        team.close()
    assert running == [culprit]


def test_an_error_of_the_caller_in_the_middle_of_a_map_ends_it():
    """The helper holds the first call, so the caller makes the second, and fails."""
    team, held = ThreadTeam(2), threading.Event()
    main = threading.current_thread()

    def work(number):
        if threading.current_thread() is main:
            held.set()
            raise RuntimeError("the caller's own")
        assert held.wait(10)
        return number

    with pytest.raises(RuntimeError, match="the caller's own"):
        list(team.ordered_map(work, 6))
    assert list(team.ordered_map(lambda number: number, 6)) == list(range(6))
    team.close()
