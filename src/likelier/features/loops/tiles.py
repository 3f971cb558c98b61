"""Products of rows with groups of columns whose sums stay in registers: tiles of a product.

A general matrix product copies both factors, and clears, reads and writes its result once more
than it must. For rows of few numbers that takes a good part of the time of the product itself.
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

ROWS, VECTORS = 4, 3  # twelve sums and what they are made of fill the registers of AVX2
VECTOR_BYTES = 32
_CONTRACT = ("contract", "nsz")
_int64, _int32 = ir.IntType(64), ir.IntType(32)


def empty_panels(matrix: Array) -> Array:
    """Room for the columns in groups of a tile's: (groups, rows of the matrix, columns)."""
    columns = VECTORS * VECTOR_BYTES // matrix.dtype.itemsize
    groups = -(-matrix.shape[1] // columns)
    return np.empty((groups, matrix.shape[0], columns), dtype=matrix.dtype)


@dataclass
class _Tile:
    """The arrays of a tile while code is generated."""

    build: Any
    rows: Any
    panels: Any
    result: Any
    size: int  # bytes of a number
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
        """Where rows begin; behind the last of all stands that one again."""
        build = self.build
        count, length = cgutils.unpack_tuple(build, self.rows.shape)
        last = build.sub(count, _int64(1))
        numbers = [build.add(first, _int64(r)) for r in range(ROWS)]
        held = [build.select(build.icmp_unsigned("<", k, last), k, last) for k in numbers]
        return [build.gep(self.rows.data, [build.mul(k, length)]) for k in held]

    def vectors(self, data: Any, position: Any) -> list[Any]:
        """Addresses of the vectors of a tile's row, the first of which begins at this number."""
        build = self.build
        places = [build.add(position, _int64(v * self.vector.count)) for v in range(VECTORS)]
        kind = self.vector.as_pointer()
        return [build.bitcast(build.gep(data, [place]), kind) for place in places]

    def everywhere(self, value: Any) -> Any:
        """A vector of this number."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        single = self.build.insert_element(nothing, value, _int32(0))
        zeros = ir.Constant(ir.VectorType(_int32, self.vector.count), [0] * self.vector.count)
        return self.build.shuffle_vector(single, nothing, zeros)

    def zero_sums(self) -> list[list[Any]]:
        """Variables for the sums of each row, which the compiler keeps in registers."""
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

    Each array is in C order, ``result`` as wide as all panels. The terms of a sum are added in
    the order of the columns of ``X``, whatever the other rows are.
    """

    def generate(context, build, signature, args):
        tile = _Tile.of(context, build, signature.args, args)
        length = cgutils.unpack_tuple(build, tile.rows.shape)[1]
        columns = _int64(VECTORS * tile.vector.count)
        rows, sums = tile.row_starts(args[1]), tile.zero_sums()
        start = build.mul(args[3], build.mul(length, columns))
        with cgutils.for_range(build, length) as loop:
            place = build.add(start, build.mul(loop.index, columns))
            addresses = tile.vectors(tile.panels.data, place)
            vectors = [build.load(address, align=tile.size) for address in addresses]
            for row, totals in zip(rows, sums, strict=True):
                x = tile.everywhere(build.load(build.gep(row, [loop.index])))
                for total, vector in zip(totals, vectors, strict=True):
                    tile.add_product(total, x, vector)
        width = cgutils.unpack_tuple(build, tile.result.shape)[1]
        for r, totals in enumerate(sums):
            place = build.add(build.mul(_int64(r), width), build.mul(args[3], columns))
            addresses = tile.vectors(tile.result.data, place)
            for total, address in zip(totals, addresses, strict=True):
                build.store(build.load(total), address, align=tile.size)
        return context.get_dummy_value()

    return types.void(X, types.uintp, panels, types.uintp, result), generate
