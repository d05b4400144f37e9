"""Receiving COPY's rows without Python per row.

libpq hands out one row at a time, and calling it from Python costs more than encoding the row. Here a kernel calls it,
through the addresses of the library that psycopg has loaded anyway. Where those cannot be found, `fast_receiver` is
None, and whoever asks goes the slow way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from headgate.kernels.changes.layout import Bytes, Numbers
from headgate.kernels.jit import BYTES, NUMBERS, compile_kernel

__all__ = ["CopyReceiver", "Received", "fast_receiver", "receive_kernel"]

_MAPS = Path("/proc/self/maps")

# The state: rows and bytes so far; libpq's last answer (a size, -1 at the end, -2 for an error); the row it made, if
# that has no room yet; see `jit`.
ROWS, SIZE, ANSWER, WAITING, COMPILED_FROM = range(5)
_STATE_FIELDS = 5

Receive: TypeAlias = Callable[[Numbers, int, Numbers, Bytes, int, int], None]

# The addresses of functions.
GET, FREE, COPY = range(3)


def _call_c(typingctx: Any, address: Any, first: Any, second: Any, third: Any) -> Any:
    """A C function by its address. Every argument is a word; one that the function does not have is ignored."""
    word = ir.IntType(64)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word] * 3).as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(*[types.int64] * 4), code


call_c: Any = intrinsic(_call_c)


def _kernel(sources: int) -> Receive:
    def kernel(functions: Numbers, connection: int, state: Numbers, out: Bytes, most_rows: int, room: int) -> None:
        state[COMPILED_FROM] = sources
        cell = state[WAITING : WAITING + 1].ctypes.data
        target = out.ctypes.data
        while state[ROWS] < most_rows and room > 0:
            if state[WAITING] == 0:
                # libpq gives an int, whose upper half is whatever the register held.
                state[ANSWER] = np.int32(call_c(functions[GET], connection, cell, 0) & 0xFFFFFFFF)
                if state[ANSWER] < 0:
                    return
            size = state[ANSWER]
            if size > len(out) - state[SIZE]:
                return
            call_c(functions[COPY], target + state[SIZE], state[WAITING], size)
            call_c(functions[FREE], state[WAITING], 0, 0)
            state[WAITING] = 0
            state[SIZE] += size
            state[ROWS] += 1
            room -= size

    return kernel


@cache
def receive_kernel() -> Receive:
    """Goes on until the rows or the room are used up, the buffer is full, or libpq has no more."""
    return compile_kernel(types.void(NUMBERS, types.int64, NUMBERS, BYTES, types.int64, types.int64), _kernel)


class CopyReceiver:
    """Reads from one connection that is in the middle of COPY TO."""

    def __init__(self, functions: Numbers, connection: int, buffer_bytes: int = 256 << 10) -> None:
        self._functions = functions
        self._connection = connection
        self._state = np.zeros(_STATE_FIELDS, dtype=np.int64)
        self._buffer = np.empty(buffer_bytes, dtype=np.uint8)
        self._receive = receive_kernel()

    def receive(self, most_rows: int, most_bytes: int) -> Received:
        """Up to so many rows, or about so many bytes. The text is good until the next call."""
        self._state[[ROWS, SIZE]] = 0
        while True:
            room = most_bytes - int(self._state[SIZE])
            self._receive(self._functions, self._connection, self._state, self._buffer, most_rows, room)
            if not self._state[WAITING] or self._state[ROWS]:
                break
            # A row that is larger than the whole buffer.
            self._buffer = np.empty(2 * int(self._state[ANSWER]), dtype=np.uint8)
        rows, size, answer = self._state[[ROWS, SIZE, ANSWER]].tolist()
        return Received(self._buffer[:size].data, rows, min(0, answer))


class Received(NamedTuple):
    """Whole rows. `end` is 0 while more may come, -1 when all is received, -2 after an error."""

    text: memoryview
    rows: int
    end: int


@cache
def _functions() -> Numbers | None:
    """The functions of the libpq that is loaded: a second one could not read the first one's connections."""
    try:
        paths = {line.split(maxsplit=5)[5].strip() for line in _MAPS.read_text().splitlines() if "/libpq" in line}
        if len(paths) != 1:
            return None
        library, standard = ctypes.CDLL(paths.pop()), ctypes.CDLL(None)
        found = (library.PQgetCopyData, library.PQfreemem, standard.memcpy)
    except (OSError, AttributeError, IndexError):
        return None
    return np.array([ctypes.cast(each, ctypes.c_void_p).value for each in found], dtype=np.int64)


def fast_receiver(connection_pointer: int | None) -> CopyReceiver | None:
    """A receiver for a connection of psycopg, by `PGconn.pgconn_ptr`; None where there is no such way."""
    functions = _functions()
    return CopyReceiver(functions, connection_pointer) if functions is not None and connection_pointer else None
