"""Where a row goes: a topic inside a stream of some destination."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Address"]


class Address(NamedTuple):
    """`stream` is the container (a JetStream stream, a Kafka cluster's topic prefix), `topic` the address in it."""

    stream: str
    topic: str

    def __str__(self) -> str:
        return f"{self.stream}/{self.topic}"
