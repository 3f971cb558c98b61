"""Fused Fourier features of dense rows: angles of a few rows, then their cosines and sines.

Angles stay in the L1 cache until they are used. Frequencies are divided by pi beforehand, so
angles count half turns: subtracting the nearest integer is exact, and an odd integer flips the
signs of both functions. The remainder lies in ``[-1/2, 1/2]``, where polynomials that include the
feature scale are accurate to 4e-16 (float64) or 2e-7 (float32) of it. Rows whose norm allows
angles beyond `LIMIT`, or that are not finite, get every angle checked; large angles, infinities
and NaN go to the C library.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from likelier.base import Array
from likelier.features.loops.tiles import ROWS, empty_panels, multiply_tile
from likelier.jit import njit
from likelier.loops.rows import prefetch
from likelier.loops.sincos import COSINE, FLAGS, SINE, careful_sincos

# Half turns; adding a large constant still rounds such angles to the nearest integer.
LIMIT = {np.dtype(np.float32): 2.0**21, np.dtype(np.float64): 2.0**50}
LINE_BYTES = 64  # cache line

_compiled = njit(cache=True, nogil=True, fastmath=FLAGS)


class Waves(NamedTuple):
    """Frequencies and phases in the layout of the compiled loop."""

    panels: Array  # frequencies in half turns, grouped by tile
    phase: Array  # of the last frequencies, in half turns
    sine: tuple[Any, ...]  # coefficients, highest power first
    cosine: tuple[Any, ...]
    limit: Any  # half turns
    largest: Any  # squared norm of a row up to which its angles are within the limit


def make_waves(frequencies: Array, phase: Array, width: int) -> Waves:
    """Prepare frequencies (inputs, D) and the phases of the last ones for ``width`` features.

    Costs about as much as the features of twenty rows.
    """
    kind = frequencies.dtype
    panels = empty_panels(frequencies)
    _fill_panels(frequencies, panels)
    sine, cosine = _coefficients(kind, width)
    longest = math.sqrt(len(frequencies)) * max(float(panels.max()), -float(panels.min()))
    reach = min(LIMIT[kind] / max(longest, 1e-150), float(np.finfo(kind).max) ** 0.5 / 2)
    limit, largest = kind.type(LIMIT[kind]), kind.type(reach**2)
    phase = (phase.astype(np.float64) / math.pi).astype(kind)
    return Waves(panels, phase, sine, cosine, limit, largest)


@lru_cache(maxsize=64)
def _coefficients(kind: np.dtype[Any], width: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Coefficients of ``scale sin(pi r)`` and ``scale cos(pi r)``, scaled as the features are."""
    scale = (2.0 / max(width, 1)) ** 0.5
    tables = [(SINE[kind], 2 * len(SINE[kind]) - 1), (COSINE[kind], 2 * len(COSINE[kind]) - 2)]
    sine, cosine = (
        tuple(kind.type(scale * c * math.pi ** (top - 2 * k)) for k, c in enumerate(table))
        for table, top in tables
    )
    return sine, cosine


@_compiled
def _fill_panels(frequencies, panels):
    """Copy the frequencies divided by pi, in double precision: a rounded 1/pi would bias all."""
    columns = panels.shape[2]
    for p in range(len(panels)):
        for k in range(len(frequencies)):
            part = frequencies[k, p * columns : (p + 1) * columns]
            for j in range(len(part)):
                panels[p, k, j] = np.float64(part[j]) / math.pi
            panels[p, k, len(part) :] = 0.0


def map_rows(X: Array, waves: Waves, out: Array) -> None:
    """Write ``sqrt(2/M) [cos(a), sin(a), cos(b + phase)]`` of the rows to the columns of ``out``.

    ``b`` are the angles of the last ``len(phase)`` frequencies, ``a`` the others. ``X`` and ``out``
    have the type of the frequencies, are in C order and do not overlap. The output of a row does
    not depend on the other rows.
    """
    panels = waves.panels
    angles = np.empty((ROWS, panels.shape[0] * panels.shape[2]), dtype=X.dtype)
    _map_rows(X, waves, angles, out)


def waves_at(turns, sine, cosine):
    """Scaled sine and cosine of an angle in half turns; overloaded in compiled code."""
    return np.polyval(sine, turns), np.polyval(cosine, turns)


@overload(waves_at, jit_options={"fastmath": FLAGS})
def _waves_at(turns, sine, cosine):
    return _waves_single if turns == types.float32 else _waves_double


def _waves_single(turns, sine, cosine):
    a, c = sine, cosine
    shifted = turns + np.float32(12582912.0)  # 1.5 * 2^23 rounds
    r = turns - (shifted - np.float32(12582912.0))
    z = r * r
    s = ((((a[0] * z + a[1]) * z + a[2]) * z + a[3]) * z + a[4]) * r
    p = ((((c[0] * z + c[1]) * z + c[2]) * z + c[3]) * z + c[4]) * z + c[5]
    odd = np.float32(shifted).view(np.int32) << np.int32(31)  # parity as a sign bit
    s = np.int32(np.float32(s).view(np.int32) ^ odd).view(np.float32)
    return s, np.int32(np.float32(p).view(np.int32) ^ odd).view(np.float32)


def _waves_double(turns, sine, cosine):
    a, c = sine, cosine
    shifted = turns + 6755399441055744.0  # 1.5 * 2^52 rounds
    r = turns - (shifted - 6755399441055744.0)
    z = r * r
    s = (((a[0] * z + a[1]) * z + a[2]) * z + a[3]) * z + a[4]
    s = (((s * z + a[5]) * z + a[6]) * z + a[7]) * r
    p = (((c[0] * z + c[1]) * z + c[2]) * z + c[3]) * z + c[4]
    p = (((p * z + c[5]) * z + c[6]) * z + c[7]) * z + c[8]
    odd = np.float64(shifted).view(np.int64) << np.int64(63)
    s = np.int64(np.float64(s).view(np.int64) ^ odd).view(np.float64)
    return s, np.int64(np.float64(p).view(np.int64) ^ odd).view(np.float64)


@_compiled
def _pair_row(angles, row, sine, cosine):
    """Write ``[cosines | sines]`` of the angles."""
    half = np.uintp(len(angles))  # unsigned, and one array: see `likelier.loops.sincos`
    for j in range(half):
        s, c = waves_at(angles[j], sine, cosine)
        row[j] = c
        row[j + half] = s


@_compiled
def _phase_row(angles, phase, row, sine, cosine):
    """Add the phases to the angles and write the cosines."""
    count = np.uintp(len(angles))
    for j in range(count):
        angles[j] += phase[j]
    for j in range(count):
        _, c = waves_at(angles[j], sine, cosine)
        row[j] = c


@_compiled
def _fix_row(angles, pairs, row, scale, limit):
    """Recompute features whose angle exceeds the limit, phases included."""
    for j in range(len(angles)):
        if not abs(angles[j]) <= limit:
            s, c = careful_sincos(math.pi * np.float64(angles[j]))
            row[j if j < pairs else j + pairs] = scale * c
            if j < pairs:
                row[j + pairs] = scale * s


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _sum_of_squares(row):
    total = row[0] * row[0]
    for j in range(1, len(row)):
        total += row[j] * row[j]
    return total


@_compiled
def _angles_of(X, first, panels, angles, flat, width):
    """Angles of a tile of rows; prefetches the memory of their features meanwhile."""
    line = LINE_BYTES // flat.itemsize
    begin, stop = first * width, min(first + ROWS, X.shape[0]) * width
    chunk = -(-(stop - begin) // (len(panels) * line)) * line
    for p in range(len(panels)):
        for k in range(begin + p * chunk, min(begin + (p + 1) * chunk, stop), line):
            prefetch(flat, np.uintp(k))
        multiply_tile(X, np.uintp(first), panels, np.uintp(p), angles)


@_compiled
def _map_rows(X, waves, angles, out):
    single, width = len(waves.phase), out.shape[1]
    pairs = (width - single) // 2
    flat = out.reshape(-1)
    for first in range(0, X.shape[0], ROWS):
        _angles_of(X, first, waves.panels, angles, flat, width)
        for i in range(first, min(first + ROWS, X.shape[0])):
            row_angles = angles[i - first, : pairs + single]
            # read before out is written, which may be X itself
            large = not _sum_of_squares(X[i]) <= waves.largest
            _pair_row(row_angles[:pairs], out[i, : 2 * pairs], waves.sine, waves.cosine)
            _phase_row(
                row_angles[pairs:], waves.phase, out[i, 2 * pairs :], waves.sine, waves.cosine
            )
            if large:
                _fix_row(row_angles, pairs, out[i], waves.cosine[-1], waves.limit)
