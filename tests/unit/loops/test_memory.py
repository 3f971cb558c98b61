"""Memory that is touched before threads write to it."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.loops.lanes import aligned_zeros
from likelier.loops.memory import PAGE, touched, touched_empty


@pytest.mark.parametrize("shape", [0, 3, PAGE, (5, PAGE + 1)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint32])
def test_new_memory_has_the_shape_and_the_kind_that_was_asked_for(shape, dtype):
    array = touched_empty(shape, dtype)
    assert array.dtype == dtype and array.flags.c_contiguous
    assert array.shape == (shape if isinstance(shape, tuple) else (shape,))


@pytest.mark.parametrize("order", ["C", "F"])
def test_zeros_stay_zeros_and_every_page_is_written(order):
    zeros = np.zeros((3, PAGE), order=order)
    assert touched(zeros) is zeros and not zeros.any()
    ones = np.frombuffer(bytearray(b"\x01" * (3 * PAGE)), dtype=np.uint8)
    touched(ones)
    assert np.flatnonzero(ones == 0).tolist() == [0, PAGE, 2 * PAGE]


def test_arrays_of_lanes_are_zeros_on_cache_lines():
    arrays = aligned_zeros([5, 1000, 3])
    assert [len(array) for array in arrays] == [5, 1000, 3]
    assert all(array.ctypes.data % 64 == 0 and not array.any() for array in arrays)
