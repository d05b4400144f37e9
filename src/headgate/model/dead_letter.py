"""A row that was refused, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.model.address import Address
from headgate.model.errors import UsageError

__all__ = ["UNREADABLE", "DeadLetter", "Selection"]

UNREADABLE = "unreadable"  # of a source's row that cannot become an event; what is kept of it is no payload


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused row. `destination` is the configured one that could not have it; empty for all of them."""

    message_id: str
    destination: str
    wanted: Address
    reason: str
    position: str
    payload: bytes | None
    error: str = ""
    partition_key: bytes | None = None
    partition: int | None = None
    epoch: int = 0
    batch_id: int = 0
    at: float = 0.0
    number: int = 0

    def as_dict(self, *, payload: bool = False) -> dict[str, Any]:
        """What commands and the API show; the payload as text where it is text."""
        shown: dict[str, Any] = {
            "number": self.number,
            "reason": self.reason,
            "stream": self.wanted.stream or None,
            "topic": self.wanted.topic or None,
            "destination": self.destination or None,
            "position": self.position,
            "message_id": self.message_id,
            "error": self.error or None,
            "epoch": self.epoch,
            "batch_id": self.batch_id,
            "at": self.at,
            "payload_bytes": len(self.payload or b""),
        }
        return shown | ({"payload": _readable(self.payload)} if payload else {})


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters to act on: by number, by reason, or all of them. Naming none of these is refused."""

    numbers: tuple[int, ...] = ()
    reason: str | None = None
    all: bool = False

    def __post_init__(self) -> None:
        if bool(self.numbers) + (self.reason is not None) + self.all != 1:
            raise UsageError(
                "which dead letters? Say one of: their numbers, a reason, all",
                remedy='over HTTP {"numbers": [17]}, {"reason": "cap"} or {"all": true}; of a command --reason, --all',
            )


def _readable(payload: bytes | None) -> str | None:
    if payload is None:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload.hex()
