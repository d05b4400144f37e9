"""How far a consumer has come: small, JSON, and enough to go on exactly there.

sequence         every message up to it has been given out, but for tables that say `after`
stream_created   when the stream was made: sequences of another one of the same name mean nothing
tables           by key: the shape in force and whose it is, the snapshot that it began with, the rule if that is still
                 needed, and `whole`: no message of the table up to there is missing
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.consume.rules import Rule
from headgate.model import StateError

__all__ = ["Bookmark", "TableMark"]


class TableMark(msgspec.Struct, omit_defaults=True):
    """One table that is joined to the stream."""

    schema: str
    table: str
    version: str
    snapshot_id: str = ""
    after: int = 0
    rule: Rule | None = None
    whole: int = -1  # -1: an older version did not look
    relation_id: int = 0  # 0: an older version did not say


class Bookmark(msgspec.Struct):
    """The whole position. `msg_id` is that of the message at `sequence`, to know the stream again."""

    stream: str
    sequence: int
    msg_id: str | None
    tables: dict[str, TableMark]
    format: int = 1
    stream_created: str = ""

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_dict(cls, position: Mapping[str, Any]) -> Bookmark:
        try:
            return msgspec.convert(position, cls)
        except msgspec.ValidationError as error:
            raise StateError(
                f"not a position of a consumer: {error}", remedy="give back what position() returned, or nothing"
            ) from None
