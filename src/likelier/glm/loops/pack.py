"""Dense rows without their zeros."""

from __future__ import annotations

import numpy as np

from likelier.jit import njit
from likelier.loops.rows import prefetch_ahead


@njit(cache=True, nogil=True)
def pack_rows(data, bits, n_columns, rows, out, columns, indptr):
    """Write the nonzeros of the listed dense rows, concatenated; returns their number.

    ``bits`` are the values as unsigned integers: eight are all zero if their bits are, except for
    signs. ``out`` and ``columns`` (columns) have capacity for all entries and one more: values are
    written without a branch, since mispredicted branches would cost more.
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
                    columns[n] = j + k
                    n += np.uintp(x != 0.0)
            j += eight
        while j < width:
            x = data[first + j]
            out[n] = x
            columns[n] = j
            n += np.uintp(x != 0.0)
            j += one
        indptr[r + 1] = n
    return n
