"""Fit one estimator again and again, each time killed after another write of its checkpoint.

``python -m tests.conformance.resume_worker CASE FOLDER`` forks a process for every kill, so that
nothing has to be compiled or imported again. (A process that has fitted a deep Gaussian process
must not be forked, for JAX has threads: there a child makes the first fit, too.) It prints a line
for each, and exits with 1 where a resumed fit is not the uninterrupted one to the bit, or did a
recorded stage again.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone
from tests.conformance.resume_cases import CASES

from likelier.files import journal
from likelier.fitting import monitor
from likelier.kernel_machine import expert_fit
from likelier.svm import smo

SEED, RANDOM_KILLS = 0, 4


class Writes:
    """Which stage each write of a checkpoint was for, and the write to be killed after."""

    def __init__(self, kill_at=None):
        self.kill_at, self.stages, self.computed = kill_at, [], []

    def watch(self):
        """From now on, in this process."""
        write, stage = journal.Journal._write, monitor.Monitor.stage
        writes = self

        def counted(self):
            write(self)
            writes.stages.append(self._open.stage if self._open else list(self._results)[-1])
            if len(writes.stages) == writes.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        def told(self, name, compute):
            def noted():
                if self.journal is not None:
                    writes.computed.append(name)
                return compute()

            return stage(self, name, noted)

        journal.Journal._write, monitor.Monitor.stage = counted, told


def in_a_child(work):
    """Run some work in a forked process; its exit status, or minus the signal that killed it."""
    child = os.fork()
    if not child:
        status = 1
        try:
            status = work() or 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def attributes(model):
    """Fitted attributes as arrays."""
    return {k: v for k, v in vars(model).items() if k.endswith("_") and not k.startswith("_")}


def same(one, other):
    """Whether two values are equal to the bit, whatever they are made of."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(v, other[k]) for k, v in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "get_params"):  # a model inside of another
        return hasattr(other, "get_params") and same(attributes(one), attributes(other))
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def fitted(model, data, folder):
    """The attributes of a fit with a checkpoint."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return attributes(clone(model).set_params(checkpoint=folder).fit(*data()))


def uninterrupted(name, folder):
    """The attributes of a fit without a checkpoint."""
    model, data = CASES[name]

    def fit():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return attributes(clone(model).fit(*data()))

    if not name.startswith("deep_gp"):
        return fit()
    importlib.import_module("likelier.deep_gp.training")  # which starts no thread yet
    path = folder / "expected"
    in_a_child(lambda: path.write_bytes(pickle.dumps(fit())) and 0)
    return pickle.loads(path.read_bytes())


def main(name, folder):
    """Try all kills; the exit status."""
    model, data = CASES[name]
    folder = Path(folder)
    monitor.CHECKPOINT_SECONDS, monitor.WRITING_SHARE = 0.0, np.inf
    smo.MIN_WORK_SAVED, smo.WORK_PER_REFILL = 1e5, 0.0
    expert_fit.MAX_LANDMARKS = 64
    expected = uninterrupted(name, folder)
    first = Writes()

    def count():
        first.watch()
        found = fitted(model, data, folder / "whole")
        if not same({**expected}, {**found}):
            print("a checkpoint changes the fit")
            return 1
        (folder / "stages").write_text("\n".join(first.stages))
        return 0

    if in_a_child(count):
        return 1
    stages = (folder / "stages").read_text().splitlines()
    if list((folder / "whole").glob("*")):
        print("a finished fit leaves its checkpoint")
        return 1
    ends = {stage: i + 1 for i, stage in enumerate(stages)}  # a write in every stage
    rng = np.random.default_rng(SEED)
    more = rng.integers(1, len(stages) + 1, RANDOM_KILLS).tolist()
    failed = 0
    for kill_at in sorted({*ends.values(), *more}):
        place = folder / f"kill{kill_at}"

        def killed(kill_at=kill_at, place=place):
            Writes(kill_at).watch()
            fitted(model, data, place)
            return 2

        def resumed(kill_at=kill_at, place=place):
            again = Writes()
            again.watch()
            found = fitted(model, data, place)
            done = stages[:kill_at]
            finished = {s for s in done[:-1] if s != done[-1]}
            if finished & set(again.computed):
                print(f"done again: {sorted(finished & set(again.computed))}")
                return 1
            wrong = [key for key in expected if not same(expected[key], found.get(key))]
            if wrong or found.keys() != expected.keys():
                print(f"other than uninterrupted: {wrong}")
                return 1
            return 0

        one, two = in_a_child(killed), in_a_child(resumed)
        print(
            f"killed after write {kill_at} of {len(stages)} ({stages[kill_at - 1]}): {one}, {two}"
        )
        failed += one != -signal.SIGKILL or two != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
