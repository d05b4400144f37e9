"""Keeps machine code from different processes apart when it meets in one.

Numba names a compiled function after its Python name and a number that counts from 0 in every process. Two kernels
that were made of the same source, one for each format, have the same Python names inside; if they were compiled in two
processes, they may have the same numbers, too. Loaded from disk into a third, the second of them would then call the
functions of the first, and write one format with the words of the other.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import bytecode

__all__ = ["own_symbols"]

_identity: Any = bytecode.FunctionIdentity


@contextmanager
def own_symbols(*kernel: object) -> Iterator[None]:
    """What is compiled inside gets numbers that no other kernel uses, and no other version of this one.

    `kernel` tells it from all others. Hold the compiler's lock meanwhile.
    """
    digest = hashlib.sha256(repr(kernel).encode()).digest()
    before = _identity._unique_ids
    _identity._unique_ids = itertools.count(int.from_bytes(digest[:6], "big") << 14)
    try:
        yield
    finally:
        _identity._unique_ids = before
