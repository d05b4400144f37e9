"""An API of the protocol: its key, its two messages and the versions that are known of them.

Specification: Apache Kafka protocol guide, "Api Keys" and "The Messages"; KIP-482 (flexible versions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from headgate.model import ProtocolError
from headgate.wire.kafka.decode import read_message
from headgate.wire.kafka.encode import Buffers, write_message
from headgate.wire.kafka.schema import Body

__all__ = ["Api"]

_Q = TypeVar("_Q", bound=Body)
_A = TypeVar("_A", bound=Body)


@dataclass(frozen=True, slots=True)
class Api(Generic[_Q, _A]):
    """One line of the protocol's table. `flexible` is the first version with compact lengths and tagged fields."""

    key: int
    request: type[_Q]
    response: type[_A]
    first: int
    last: int
    flexible: int | None = None

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    def knows(self, version: int) -> bool:
        return self.first <= version <= self.last

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    def decode_request(self, frame: bytes, version: int, position: int = 0, *, allow_rest: bool = False) -> _Q:
        """The request that fills a frame from `position` to its end.

        Brokers have always let bytes behind it pass, and librdkafka sends three when it asks for all topics.
        """
        flexible = self._checked(version)
        return read_message(self.request, frame, position, version, flexible=flexible, allow_rest=allow_rest)

    def decode_response(self, frame: bytes, version: int, position: int = 0) -> _A:
        """The response that fills a frame from `position` to its end."""
        return read_message(self.response, frame, position, version, flexible=self._checked(version))

    def encode_request(self, request: _Q, version: int) -> Buffers:
        """The request's buffers, without frame and header."""
        out: Buffers = []
        write_message(out, request, version, flexible=self._checked(version))
        return out

    def encode_response(self, response: _A, version: int) -> Buffers:
        """The response's buffers, without frame and header."""
        out: Buffers = []
        write_message(out, response, version, flexible=self._checked(version))
        return out

    def _checked(self, version: int) -> bool:
        if not self.knows(version):
            raise ProtocolError(
                f"{self.name} has no version {version}",
                remedy=f"Use a version from {self.first} to {self.last}, as ApiVersions offers.",
            )
        return self.is_flexible(version)
