"""A dictionary: what messages of one table have in common, named by its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Self

__all__ = ["Dictionary"]


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Bytes in zstd's dictionary format (RFC 8878 section 5). `id` is 16 hexadecimal digits of their SHA-256."""

    id: str
    data: bytes

    @classmethod
    def of(cls, data: bytes) -> Self:
        return cls(hashlib.sha256(data).hexdigest()[:16], data)

    def __repr__(self) -> str:
        return f"Dictionary({self.id}, {len(self.data)} bytes)"  # the bytes are pieces of rows
