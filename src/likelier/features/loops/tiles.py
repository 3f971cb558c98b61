"""Matrix products whose sums stay in registers: register tiles.

A general matrix product packs both factors and makes an extra pass over its result. For rows with
few columns that overhead is a large part of the run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from likelier.base import Array

ROWS, VECTORS = 4, 3  # twelve accumulators plus operands fill the AVX2 registers
VECTOR_BYTES = 32
_CONTRACT = ("contract", "nsz")
_int64, _int32 = ir.IntType(64), ir.IntType(32)


def empty_panels(matrix: Array) -> Array:
    """Buffer for the columns grouped by tile: (groups, rows of the matrix, columns)."""
    columns = VECTORS * VECTOR_BYTES // matrix.dtype.itemsize
    groups = -(-matrix.shape[1] // columns)
    return np.empty((groups, matrix.shape[0], columns), dtype=matrix.dtype)


@dataclass
class _Tile:
    """Arrays of a tile during code generation."""

    build: Any
    rows: Any
    panels: Any
    result: Any
    size: int  # bytes per element
    vector: Any

    @classmethod
    def of(cls, context: Any, build: Any, kinds: Any, args: Any) -> _Tile:
        X, panels, result = (
            context.make_array(kinds[k])(context, build, args[k]) for k in (0, 2, 4)
        )
        number = kinds[0].dtype
        size = number.bitwidth // 8
        vector = ir.VectorType(context.get_value_type(number), VECTOR_BYTES // size)
        return cls(build, X, panels, result, size, vector)

    def row_starts(self, first: Any) -> list[Any]:
        """Pointers to the rows; past the end, the last row is repeated."""
        build = self.build
        count, length = cgutils.unpack_tuple(build, self.rows.shape)
        last = build.sub(count, _int64(1))
        indices = [build.add(first, _int64(r)) for r in range(ROWS)]
        clamped = [build.select(build.icmp_unsigned("<", k, last), k, last) for k in indices]
        return [build.gep(self.rows.data, [build.mul(k, length)]) for k in clamped]

    def vectors(self, data: Any, position: Any) -> list[Any]:
        """Pointers to the vectors of a tile row that starts at this element."""
        build = self.build
        offsets = [build.add(position, _int64(v * self.vector.count)) for v in range(VECTORS)]
        kind = self.vector.as_pointer()
        return [build.bitcast(build.gep(data, [offset]), kind) for offset in offsets]

    def broadcast(self, value: Any) -> Any:
        """Broadcast a scalar to a vector."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        single = self.build.insert_element(undefined, value, _int32(0))
        zeros = ir.Constant(ir.VectorType(_int32, self.vector.count), [0] * self.vector.count)
        return self.build.shuffle_vector(single, undefined, zeros)

    def zero_sums(self) -> list[list[Any]]:
        """Accumulators of each row, which the compiler keeps in registers."""
        zeros = ir.Constant(self.vector, [0.0] * self.vector.count)
        return [
            [cgutils.alloca_once_value(self.build, zeros) for _ in range(VECTORS)]
            for _ in range(ROWS)
        ]

    def add_product(self, total: Any, x: Any, column: Any) -> None:
        build = self.build
        product = build.fmul(x, column, flags=_CONTRACT)
        build.store(build.fadd(build.load(total), product, flags=_CONTRACT), total)


@intrinsic
def multiply_tile(_, X, first, panels, p, result):
    """Write rows ``first, first + 1, ...`` of ``X`` times panel ``p`` to the rows of ``result``.

    All arrays are in C order, ``result`` as wide as all panels. Terms are added in the order of the
    columns of ``X``, independently of the other rows.
    """

    def generate(context, build, signature, args):
        tile = _Tile.of(context, build, signature.args, args)
        length = cgutils.unpack_tuple(build, tile.rows.shape)[1]
        columns = _int64(VECTORS * tile.vector.count)
        rows, sums = tile.row_starts(args[1]), tile.zero_sums()
        start = build.mul(args[3], build.mul(length, columns))
        with cgutils.for_range(build, length) as loop:
            offset = build.add(start, build.mul(loop.index, columns))
            addresses = tile.vectors(tile.panels.data, offset)
            vectors = [build.load(address, align=tile.size) for address in addresses]
            for row, totals in zip(rows, sums, strict=True):
                x = tile.broadcast(build.load(build.gep(row, [loop.index])))
                for total, vector in zip(totals, vectors, strict=True):
                    tile.add_product(total, x, vector)
        width = cgutils.unpack_tuple(build, tile.result.shape)[1]
        for r, totals in enumerate(sums):
            offset = build.add(build.mul(_int64(r), width), build.mul(args[3], columns))
            addresses = tile.vectors(tile.result.data, offset)
            for total, address in zip(totals, addresses, strict=True):
                build.store(build.load(total), address, align=tile.size)
        return context.get_dummy_value()

    return types.void(X, types.uintp, panels, types.uintp, result), generate
