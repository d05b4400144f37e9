"""How kernels are compiled: lazily, once per machine, and anew whenever any of their sources changes.

Two sorts of compiled functions:

- a **part** (`@part`) is called by kernels only. It is compiled into each kernel that uses it.
- a **kernel** (`compile_kernel`) is called from Python. It has one explicit signature, so that nothing is ever
  compiled a second time because an array happened to be read-only, and its machine code is kept on disk.

Numba keeps a kernel's code as long as the kernel's own file stays the same; it does not see that a part in another
file has changed. But it tells closures apart by the values they close over, so every kernel closes over `SOURCES`,
a fingerprint of this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit

__all__ = ["SOURCES", "compile_kernel", "part"]

P = ParamSpec("P")
R = TypeVar("R")


def _fingerprint() -> int:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")


SOURCES = _fingerprint()


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A compiled function for use inside kernels."""
    return cast(Callable[P, R], njit(nogil=True, error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))


def leaf(function: Callable[P, R]) -> Callable[P, R]:
    """inlined"""
    return cast(Callable[P, R], njit(nogil=True, error_model="numpy", _nrt=False, inline="always")(function))


def compile_kernel(signature: Any, function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel for one signature, or load it if that has been done before."""
    return cast(Callable[P, R], njit(signature, nogil=True, error_model="numpy", cache=True, _nrt=False)(function))
