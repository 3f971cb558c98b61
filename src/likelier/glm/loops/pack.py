"""Dense rows without their zeros."""

from __future__ import annotations

import numpy as np

from likelier.jit import njit
from likelier.loops.rows import prefetch_ahead


@njit(cache=True, nogil=True)
def pack_rows(data, bits, n_columns, rows, out, places, indptr):
    """Write what is not zero of the listed dense rows, one after another; how many there are.

    ``bits`` are the same numbers as unsigned integers: eight of them are all zero where their
    bits are, but for the signs. ``out`` and ``places`` (columns) have room for all and one more:
    no branch depends on a single number, since guessing takes longer than writing it in vain.
    """
    eight, one, n = np.uintp(8), np.uintp(1), np.uintp(0)
    width = np.uintp(n_columns)
    indptr[0] = 0
    for r in range(len(rows)):
        prefetch_ahead(data, None, None, n_columns, rows, r)
        first = np.uintp(rows[r]) * width
        j = np.uintp(0)
        while j + eight <= width:
            p = first + j
            some = bits[p]
            for k in range(one, eight):
                some |= bits[p + k]
            if some << 1:
                for k in range(eight):
                    x = data[p + k]
                    out[n] = x
                    places[n] = j + k
                    n += np.uintp(x != 0.0)
            j += eight
        while j < width:
            x = data[first + j]
            out[n] = x
            places[n] = j
            n += np.uintp(x != 0.0)
            j += one
        indptr[r + 1] = n
    return n
