"""Gap markers: messages in the stream which say that changes before them are missing.

The bridge writes them when it knows that it could not read everything, say because its slot was lost. Whoever may
write to the database can write one, so nothing about its content is taken for granted: what cannot be read is a gap of
every table.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

import msgspec

from headgate.consume.change import MESSAGE, Change
from headgate.consume.tables import TableName
from headgate.wire.envelope import GAP_PREFIX

__all__ = ["Gap", "gap_of"]


class _Content(msgspec.Struct):
    reason: str = "unknown"
    tables: list[tuple[str, str]] | None = None


class Gap(NamedTuple):
    """What a marker says. Without `tables` it concerns all."""

    reason: str
    tables: frozenset[TableName] | None

    def concerns(self, table: TableName) -> bool:
        return self.tables is None or table in self.tables


def gap_of(change: Change) -> Gap | None:
    """The gap that a change tells of, if it is a marker."""
    if change.operation != MESSAGE or change.data.get("prefix") != GAP_PREFIX:
        return None
    try:
        found = msgspec.json.decode(_bytes(change.data.get("content")), type=_Content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Gap("an unreadable marker", None)
    tables = None if found.tables is None else frozenset(TableName(*each) for each in found.tables)
    return Gap(found.reason[:80], tables)


def _bytes(content: Any) -> bytes:
    """A message's content is bytes, which JSON has as base64."""
    if isinstance(content, str):
        try:
            return base64.b64decode(content, validate=True)
        except binascii.Error:
            return b""
    return content if isinstance(content, bytes) else b""
