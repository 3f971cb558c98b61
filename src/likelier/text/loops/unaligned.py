"""Unaligned loads of four or eight bytes from a byte array, as one machine instruction.

Text is hashed and compared several bytes at a time. There are no bounds checks: an array must have
`PADDING` extra bytes at its end.
"""

import sys
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

PADDING = 8
_LITTLE_ENDIAN = sys.byteorder == "little"


def _loader(bits: int) -> Any:
    """Return the intrinsic that loads a little-endian integer of ``bits`` bits."""

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
