"""Names that a package offers and imports only when somebody asks for one.

A package that holds both a light module and heavy ones would otherwise make everybody pay for all of it: whoever
imports `destinations.kafka.section` needs no Kafka client.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["lazily"]


def lazily(package: str, **modules: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: it imports each name from the submodule given for it."""

    def __getattr__(name: str) -> Any:  # noqa: N807 - what it becomes
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return __getattr__
