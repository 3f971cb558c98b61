"""How tests are handed out to workers: groups as a whole, every test once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.groups import GROUPS, GroupScheduling, group_of

DEEP = [
    "tests/estimators/test_sklearn_checks.py::test_sklearn_check[DeepGPClassifier()-check_{}]",
    "tests/estimators/test_deep_gp.py::test_{}",
    "tests/reference/test_deep_gp_energy.py::test_{}",
]
OTHERS = "tests/unit/test_losses.py::test_{}"


class Worker:
    """Takes note of the tests it is given."""

    def __init__(self):
        self.given, self.shutting_down, self.gateway = [], False, SimpleNamespace(id="worker")

    def send_runtest_some(self, indices):
        self.given.append(list(indices))

    def shutdown(self):
        self.shutting_down = True


def scheduler(names, n_workers):
    config = SimpleNamespace(
        getoption=lambda name: None, getvalue=lambda name: ["popen"] * n_workers, option=None
    )
    made, workers = GroupScheduling(config), [Worker() for _ in range(n_workers)]
    for worker in workers:
        made.add_node(worker)
    for worker in workers:
        made.add_node_collection(worker, names)
    made.schedule()
    return made, workers


@pytest.mark.parametrize("n_workers", [1, 2, 5])
@pytest.mark.parametrize("n_others", [0, 1, 300])
def test_groups_stay_whole_and_every_test_runs_once(n_workers, n_others):
    names = [OTHERS.format(i) for i in range(n_others)]
    names += [name.format(i) for i in range(7) for name in DEEP]  # not in the order of groups
    made, workers = scheduler(names, n_workers)
    for _ in range(len(names)):  # the workers do one test each in turn
        for worker in workers:
            if made.node2pending[worker]:
                made.mark_test_complete(worker, made.node2pending[worker][0], duration=0.01)
    assert made.tests_finished and not made.has_pending
    chunks = [chunk for worker in workers for chunk in worker.given]
    assert sorted(index for chunk in chunks for index in chunk) == list(range(len(names)))
    for number in {group_of(name.format(0)) for name in DEEP}:
        holding = [chunk for chunk in chunks if any(group_of(names[i]) == number for i in chunk)]
        assert len(holding) == 1
        assert [names[i] for i in holding[0]] == [n for n in names if group_of(n) == number]


def test_a_worker_takes_no_second_group_while_it_has_one():
    names = [name.format(i) for i in range(7) for name in DEEP]
    made, (one, two) = scheduler(names, 2)
    made.mark_test_complete(one, made.node2pending[one][0], duration=0.01)
    assert [len(worker.given) for worker in (one, two)] == [1, 1]


def test_every_file_of_deep_gaussian_processes_that_compiles_is_in_a_group():
    """The others need no program, or are one short test of many."""
    files = (
        *Path(__file__).parent.glob("estimators/test_deep_gp*.py"),
        *map(Path, ("test_errata_deep_gp.py", "deep_gp/test_argmax.py", "deep_gp/test_normal.py")),
    )
    assert len(files) > 5
    for file in files:
        assert group_of(f"tests/{file.parent.name}/{file.name}::test") is not None
    assert group_of(OTHERS) is None
    assert len({group_of(name) for name in DEEP}) == len(DEEP) <= len(GROUPS)
