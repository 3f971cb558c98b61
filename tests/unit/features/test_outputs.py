"""The pool of output memory: reuse, exclusivity and bounds."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from likelier import FourierFeatures
from likelier.features import outputs


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces of a few kB in place of many MB, and none that other tests have left."""
    monkeypatch.setattr(outputs, "MIN_BYTES", 1000)
    monkeypatch.setattr(outputs, "MAX_POOL_BYTES", 10_000)
    outputs._idle_blocks.clear()
    yield
    outputs._idle_blocks.clear()


def address(array):
    return array.__array_interface__["data"][0]


def idle_bytes():
    return sum(piece.nbytes for piece in outputs._idle_blocks.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_freed_memory_is_reused(dtype):
    first = outputs.new_output((500, 2), dtype)
    assert first.shape == (500, 2)
    assert first.dtype == dtype
    assert first.flags.c_contiguous
    assert first.flags.writeable
    assert first.flags.aligned
    place = address(first)
    del first
    assert address(outputs.new_output((500, 2), dtype)) == place


@pytest.mark.parametrize(
    "part", [lambda a: a[3:4], lambda a: a.T, memoryview, lambda a: a.ravel().view(np.int64)]
)
def test_memory_that_any_view_shows_is_left_alone(part):
    first = outputs.new_output((500, 2), np.float64)
    first.fill(1.0)
    view = part(first)
    before = np.array(view)
    del first
    second = outputs.new_output((500, 2), np.float64)
    second.fill(2.0)
    np.testing.assert_array_equal(np.array(view), before)
    assert not outputs._idle_blocks


def test_a_little_less_fits_and_much_less_does_not():
    place = address(outputs.new_output((500, 2), np.float64))
    little = outputs.new_output((300, 2), np.float64)
    assert address(little) == place
    assert little.shape == (300, 2)
    del little
    assert address(outputs.new_output((200, 2), np.float64)) != place


def test_idle_memory_is_bounded_and_the_latest_is_kept():
    arrays = [outputs.new_output((200, 2), np.float64) for _ in range(9)]
    assert idle_bytes() == 0
    last = address(arrays[-1])
    while arrays:
        del arrays[0]
        assert idle_bytes() <= 10_000
    assert idle_bytes() == 3 * 3200
    assert last in [address(piece) for piece in outputs._idle_blocks.values()]


@pytest.mark.parametrize("n", [10, 2000])
def test_small_and_very_large_outputs_are_plain_arrays(n):
    array = outputs.new_output((n, 1), np.float64)
    assert array.flags.owndata
    del array
    assert not outputs._idle_blocks


def test_memory_in_a_cycle_comes_back_with_the_collector():
    cycle = [outputs.new_output((500, 2), np.float64)]
    cycle.append(cycle)
    place = address(cycle[0])
    del cycle
    gc.collect()
    assert address(outputs.new_output((500, 2), np.float64)) == place


def test_threads_never_share_memory():
    wrong = []

    def work(number):
        for turn in range(300):
            array = outputs.new_output((150 + turn % 3, 2), np.float64)
            array.fill(number)
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert idle_bytes() <= 10_000


def test_transform_gives_right_independent_arrays():
    X = np.random.default_rng(0).normal(size=(150, 3))
    features = FourierFeatures(8, random_state=0).fit(X)
    expected = features.transform(X, out=np.empty((150, 8)))
    first = features.transform(X)
    assert not first.flags.owndata
    other = features.transform(2.0 * X)
    assert not np.shares_memory(first, other)
    np.testing.assert_array_equal(first, expected)
    place = address(other)
    del other
    again = features.transform(X)
    assert address(again) == place
    np.testing.assert_array_equal(again, expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)), expected)


def test_nothing_is_said_when_python_ends_with_an_output_alive():
    code = (
        "import numpy as np\n"
        "from likelier.features import outputs\n"
        "kept = outputs.new_output((5000, 1000), np.float64)\n"
        "cycle = [outputs.new_output((5000, 1000), np.float64)]\n"
        "cycle.append(cycle)\n"
        "del outputs\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr == ""
