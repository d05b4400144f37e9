"""What travels between driver and workers: which dictionaries are in use, and what became of messages."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headgate.model import ProtocolError

__all__ = ["CURRENT_KEY", "Current", "Report"]

CURRENT_KEY = "current"

_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Current:
    """The dictionary of each table that has one, by id."""

    ids: Mapping[str, str] = field(default_factory=dict)

    def dump(self) -> bytes:
        return json.dumps(dict(sorted(self.ids.items()))).encode()

    @classmethod
    def parse(cls, value: bytes) -> Self:
        try:
            ids = json.loads(value)
            good = isinstance(ids, dict) and all(_ID.fullmatch(id_) for id_ in ids.values())
        except (ValueError, TypeError, RecursionError):
            good = False
        if not good:
            raise ProtocolError(
                f"the key {CURRENT_KEY} of the bucket of dictionaries holds something else",
                remedy="delete the key: new dictionaries are made, and old messages stay readable",
            )
        return cls(ids)

    def with_dictionary(self, table: str, dictionary_id: str) -> Current:
        return Current({**self.ids, table: dictionary_id})


@dataclass(frozen=True, slots=True)
class Report:
    """What one task did with the messages of one table under one dictionary."""

    table: str
    dictionary_id: str  # empty: none
    message_count: int
    bytes_in: int
    bytes_out: int  # with the headers of compression
    samples: tuple[bytes, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "dictionary_id": self.dictionary_id,
            "message_count": self.message_count,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "samples": [base64.b64encode(sample).decode() for sample in self.samples],
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        samples = tuple(base64.b64decode(sample) for sample in fields["samples"])
        return cls(**{**fields, "samples": samples})
