"""How kernels are compiled: when first needed, once per machine, and anew whenever one of their sources changes.

Two sorts of compiled functions:

- a **part** (`@part`, or `@inlined` for the smallest) is called by kernels and other parts only, and becomes part of
  each kernel that uses it;
- a **kernel** (`compile_kernel`) is called from Python. It has one explicit signature, so that nothing is ever
  compiled a second time because an array happened to be read-only, and its machine code is kept on disk.

Numba takes a kernel from disk as long as the kernel's own file stays the same; it does not see that a part in
another file has changed. But it tells closures apart by the values they close over, so every kernel closes over
`SOURCES`, a fingerprint of this room.

Kernels neither allocate nor keep arrays, so they do without reference counts: those would be a third of the time.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numba import config, njit, types
from numba.core.compiler_lock import global_compiler_lock

from headgate.kernels.symbols import own_symbols

__all__ = ["BYTES", "BYTES_READ", "NUMBERS", "SOURCES", "TABLE", "compile_kernel", "inlined", "part", "signed"]

logger = logging.getLogger(__name__)

# Numba looks for a directory that it does not use, and tells everybody that a server has none.
warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")

# An element of an array as a signed number. Unsigned numbers that meet signed ones become floats in compiled code.
signed = cast("Callable[[Any], int]", np.int64)

P = ParamSpec("P")
R = TypeVar("R")

# The types of which signatures are made.
BYTES = types.Array(types.uint8, 1, "C")
BYTES_READ = types.Array(types.uint8, 1, "C", readonly=True)
NUMBERS = types.Array(types.int64, 1, "C")
TABLE = types.Array(types.int64, 2, "C")

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_PART_OPTIONS: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def fingerprint(directory: Path) -> int:
    """A number that changes with the sources in a directory, and below it."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")


SOURCES = fingerprint(Path(__file__).parent)


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A compiled function for use inside kernels."""
    compiled: Callable[P, R] = njit(**_PART_OPTIONS)(function)
    return compiled


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A part that is copied into its callers before they are compiled: cheaper than a function, if it is small."""
    compiled: Callable[P, R] = njit(inline="always", **_PART_OPTIONS)(function)
    return compiled


def compile_kernel(signature: Any, build: Callable[[int], Callable[P, R]]) -> Callable[P, R]:
    """Compile a kernel for one signature, or load it if that has been done before.

    `build` makes the kernel, which must close over the number it is given, and over nothing else but numbers.
    """
    function = build(SOURCES)
    numbers = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    assert SOURCES in numbers
    compiled: Callable[P, R]
    with global_compiler_lock, _without_vectors(), own_symbols(function.__module__, function.__qualname__, *numbers):
        try:
            compiled = njit(signature, cache=True, **_OPTIONS)(function)
        except RuntimeError:  # nowhere to keep it, neither beside the sources nor in the user's cache
            logger.warning("compiled code cannot be kept, so every process compiles anew: set NUMBA_CACHE_DIR")
            compiled = njit(signature, **_OPTIONS)(function)
    return compiled


@contextmanager
def _without_vectors() -> Iterator[None]:
    """Vector loops pay from hundreds of bytes on. Most values are shorter, and the preparations cost them a third."""
    settings = vars(config)
    before = {name: settings[name] for name in ("LOOP_VECTORIZE", "SLP_VECTORIZE")}
    settings.update(dict.fromkeys(before, 0))
    try:
        yield
    finally:
        settings.update(before)
