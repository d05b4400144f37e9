"""Eight, four or two bytes at once, at any address: the one thing that array indexing cannot say.

Copying by words instead of bytes halves a kernel's time: most texts are too short for anything cleverer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import config, types
from numba.extending import intrinsic
from numba.np import arrayobj

from headgate.kernels.jit import inlined, part

__all__ = ["Bytes", "copy", "read16", "read32", "read64", "write16", "write32", "write64"]

Bytes: TypeAlias = npt.NDArray[np.uint8]

# Array indexing is checked when NUMBA_BOUNDSCHECK is set; so is this then.
CHECKED = bool(vars(config)["BOUNDSCHECK"])

_make_array: Any = arrayobj.make_array


def _address(context: Any, builder: Any, signature: Any, args: Any, width: Any) -> Any:
    """Of the element that the first two arguments, an array and an index, denote: as the address of a number."""
    array = _make_array(signature.args[0])(context, builder, args[0])
    pointer = context.get_value_type(width).as_pointer()
    return builder.bitcast(builder.gep(array.data, [args[1]]), pointer)


def _reader(width: Any) -> Callable[[Bytes, int], np.uint64]:
    size = width.bitwidth // 8

    def load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = builder.load(_address(context, builder, signature, args, width), align=1)
        return context.cast(builder, number, width, types.uint64)

    def typed(_typing: Any, array: Any, _at: Any) -> Any:
        return types.uint64(array, types.int64), load

    load_number: Any = intrinsic(typed)

    @inlined
    def read(src: Bytes, at: int) -> np.uint64:
        if CHECKED and (at < 0 or at + size > len(src)):
            raise IndexError("a word is read outside its array")
        number: np.uint64 = load_number(src, at)
        return number

    return read


def _writer(width: Any) -> Callable[[Bytes, int, np.uint64], None]:
    size = width.bitwidth // 8

    def store(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = context.cast(builder, args[2], types.uint64, width)
        builder.store(number, _address(context, builder, signature, args, width), align=1)
        return context.get_dummy_value()

    def typed(_typing: Any, array: Any, _at: Any, _number: Any) -> Any:
        return types.void(array, types.int64, types.uint64), store

    store_number: Any = intrinsic(typed)

    @inlined
    def write(out: Bytes, at: int, number: np.uint64) -> None:
        if CHECKED and (at < 0 or at + size > len(out)):
            raise IndexError("a word is written outside its array")
        store_number(out, at, number)

    return write


# The bytes at an index as an unsigned number, in the machine's order; and back.
read16, read32, read64 = _reader(types.uint16), _reader(types.uint32), _reader(types.uint64)
write16, write32, write64 = _writer(types.uint16), _writer(types.uint32), _writer(types.uint64)


@part
def copy(out: Bytes, at: int, src: Bytes, start: int, stop: int) -> int:
    """Copy bytes; where they end. The last word may overlap the one before it."""
    size = stop - start
    if size >= 8:
        for i in range(0, size - 8, 8):
            write64(out, at + i, read64(src, start + i))
        write64(out, at + size - 8, read64(src, stop - 8))
    elif size >= 4:
        write32(out, at, read32(src, start))
        write32(out, at + size - 4, read32(src, stop - 4))
    elif size >= 2:
        write16(out, at, read16(src, start))
        write16(out, at + size - 2, read16(src, stop - 2))
    elif size == 1:
        out[at] = src[start]
    return at + size
