"""Name of a client that has shown who it is, as Kafka writes it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ANONYMOUS", "Principal"]


@dataclass(frozen=True, slots=True)
class Principal:
    """A kind and a name, written `User:alice` as Kafka's tools do."""

    name: str
    kind: str = "User"

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")
