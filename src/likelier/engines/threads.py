"""Threads of an engine: results in order, memory bounded, BLAS kept to one thread each."""

from __future__ import annotations

import operator
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, so that the search below finds it)
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


def count_threads(n_jobs: int | None) -> int:
    """Return the number of threads: None means 1, -1 every core this process may use."""
    if n_jobs is None:
        return 1
    try:
        count = operator.index(n_jobs)
    except TypeError:
        raise TypeError(f"n_jobs must be an integer or None, got {n_jobs!r}") from None
    if count == 0:
        raise ValueError("n_jobs must not be 0; use 1 for one thread, -1 for all cores")
    if count > 0:
        return count
    affinity = getattr(os, "sched_getaffinity", None)  # not offered on every platform
    cores = len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)
    return max(1, cores + 1 + count)


class _SingleThreadedBlas:
    """Keeps BLAS at one thread while at least one holder is inside.

    The number of BLAS threads belongs to the whole process, so holders that overlap (two
    engines, two half-read results) must not each restore what they found: the first one in
    sets the limit, the last one out restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._limiter: Any = None

    def enter(self, controller: ThreadpoolController) -> None:
        """Set the limit unless somebody already holds it."""
        with self._lock:
            if self._holders == 0:
                self._limiter = controller.limit(limits=1, user_api="blas")
            self._holders += 1

    def leave(self) -> None:
        """Restore the number of threads if nobody else holds the limit."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._limiter.restore_original_limits()
                self._limiter = None


_single_threaded_blas = _SingleThreadedBlas()
_controllers: list[ThreadpoolController] = []


def _controller() -> ThreadpoolController:
    """The loaded BLAS libraries: finding them takes milliseconds, so once per process."""
    if not _controllers:
        _controllers.append(ThreadpoolController())
    return _controllers[0]


@contextmanager
def one_blas_thread() -> Generator[None, None, None]:
    """Hold BLAS to one thread: threads belong to the engine, and small products gain nothing."""
    _single_threaded_blas.enter(_controller())
    try:
        yield
    finally:
        _single_threaded_blas.leave()


class ThreadTeam:
    """A pool of threads that starts when first used and can be closed and used again."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None
        self._name = f"likelier-{id(self):x}"

    def ordered_map(
        self, function: Callable[[int], Result], count: int
    ) -> Generator[Result, None, None]:
        """Yield ``function(0), ..., function(count - 1)`` in this order.

        The caller takes part: where the next result is not there yet it makes one itself. At
        most two results per thread exist at a time. When a call fails, or the caller
        stops reading, calls that have not begun are dropped and those that have are awaited,
        and the threads end: nothing goes on behind the caller's back.
        """
        if min(self.n_threads, count) <= 1:
            yield from map(function, range(count))
            return
        pending: deque[tuple[int, Future[Result]]] = deque()
        _single_threaded_blas.enter(_controller())
        try:
            for number in range(count):
                if len(pending) == 2 * self.n_threads:
                    yield _next_result(pending, function)
                pending.append((number, self._threads().submit(function, number)))
            while pending:
                yield _next_result(pending, function)
        except BaseException:
            futures = [future for _, future in pending]
            for future in futures:
                future.cancel()
            wait(futures)
            self.close()
            raise
        finally:
            _single_threaded_blas.leave()

    def together(self, function: Callable[[int], None], count: int) -> None:
        """Call ``function(0), ..., function(count - 1)``, the caller taking part; await all.

        For calls that take less than a millisecond: one thread fewer has to be woken.
        """
        numbers = iter(range(count))

        def work() -> None:
            for number in numbers:  # whoever is free takes the next
                function(number)

        helpers = [self._threads().submit(work) for _ in range(min(self.n_threads, count) - 1)]
        try:
            work()
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()

    def close(self) -> None:
        """End the threads; the next use starts new ones."""
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        pool.shutdown(wait=True)
        _join_stray_threads(self._name)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            helpers = self.n_threads - 1  # the caller is the last one
            self._pool = ThreadPoolExecutor(max(1, helpers), thread_name_prefix=self._name)
        return self._pool


def _next_result(
    pending: deque[tuple[int, Future[Result]]], function: Callable[[int], Result]
) -> Result:
    """Result of the first pending call; until it is there, make those nobody has begun."""
    while not pending[0][1].done():
        for place, (number, future) in enumerate(pending):
            if future.cancel():  # nobody has begun it, and nobody will
                own: Future[Result] = Future()
                own.set_result(function(number))
                pending[place] = number, own
                break
        else:
            break
    return pending.popleft()[1].result()


def _join_stray_threads(name: str) -> None:
    """Await threads of a pool that is shut down.

    A thread whose start Ctrl-C interrupted is not in the pool's list: it ends by itself.
    """
    for thread in threading.enumerate():
        if thread.name.startswith(name + "_") and thread.is_alive():
            thread.join()


def read_ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the same items, the next one being made in another thread meanwhile."""
    done = object()
    name = f"likelier-read-{id(done):x}"
    try:
        with ThreadPoolExecutor(1, thread_name_prefix=name) as thread:
            coming: Future[Any] = thread.submit(next, items, done)
            while (item := coming.result()) is not done:
                coming = thread.submit(next, items, done)
                yield item
    finally:
        _join_stray_threads(name)  # an iterator must not be closed while it runs
