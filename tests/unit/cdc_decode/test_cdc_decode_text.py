"""UTF-8 as strict as Python's own decoder, over every combination of bytes that matter."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numba import types

from headgate.kernels.changes.layout import Bytes
from headgate.kernels.changes.text import is_utf8
from headgate.kernels.jit import BYTES_READ, compile_kernel

EDGES = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


def build(sources: int) -> Callable[[Bytes], int]:
    def kernel(src: Bytes) -> int:
        return sources if is_utf8(src, 0, len(src)) else 0

    return kernel


def python_takes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_is_utf8() -> None:
    kernel = compile_kernel(types.int64(BYTES_READ), build)
    for size in range(1, 5):
        for combination in itertools.product(EDGES, repeat=size):
            data = bytes(combination)
            assert bool(kernel(np.frombuffer(data, dtype=np.uint8))) == python_takes(data), data.hex()
