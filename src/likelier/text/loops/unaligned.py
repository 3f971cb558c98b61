"""Loads of four or eight bytes at any position of a byte array, as one machine instruction.

Text is hashed and compared several bytes at a time. Nothing is checked: an array must hold
`PADDING` bytes more than are meant.
"""

import sys
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

PADDING = 8
_LITTLE_ENDIAN = sys.byteorder == "little"


def _loader(bits: int) -> Any:
    """Return the intrinsic that loads a number of ``bits`` bits, its first byte lowest."""

    def load(typing_context: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = context.make_array(signature.args[0])(context, builder, arguments[0])
            word = cgutils.ir.IntType(bits)
            place = builder.gep(view.data, [arguments[1]])
            loaded = builder.load(builder.bitcast(place, word.as_pointer()))
            loaded.align = 1
            return loaded if _LITTLE_ENDIAN else builder.bswap(loaded)

        result = types.uint64 if bits == 64 else types.uint32
        return result(array, types.intp), generate

    return intrinsic(load)


load64 = _loader(64)
load32 = _loader(32)
