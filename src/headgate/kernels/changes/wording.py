"""What is constant in an event: its first fields and the names between its values, in the words of each format.

All of it is made with the reference's own functions, so that there is one place where a field's name is spelled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headgate.kernels.changes import layout
from headgate.model import Position
from headgate.wire.envelope import message_id, packb
from headgate.wire.pgtypes import Value, quote

__all__ = ["Wording", "wording_of"]

Fields = Mapping[str, str | int | None]

_FIRST_FIELDS = ("schema", "table", "operation", "relation_id", "schema_version", "subject")
_NAMES = ("commit_lsn", "commit_time", "xid", "event_count", "lsn", "ordinal", "msg_id", "data", "old")
_MAP_OF_14 = b"\x8e"


@dataclass(frozen=True)
class Wording:
    """`pieces` are those of `layout`, `name` writes a column's name before its value, `head` the first fields."""

    form: int
    pieces: tuple[bytes, ...]
    name: Callable[[str], bytes]
    head: Callable[[Fields], bytes]


def wording_of(form: int, origin: str, timeline: int = 0) -> Wording:
    """The words of a format."""
    first_id = message_id(origin, Position(0, 0, timeline))
    return _json(first_id) if form == layout.JSON else _msgpack(first_id)


def _first(fields: Fields) -> dict[str, Value]:
    return {name: fields[name] for name in _FIRST_FIELDS}


def _msgpack(first_id: str) -> Wording:
    names = [packb(name) for name in _NAMES]
    names[layout.MSG_ID] += packb(first_id)[: -layout.POSITION_BYTES]
    return Wording(layout.MSGPACK, (*names, b""), packb, lambda fields: _MAP_OF_14 + packb(_first(fields))[1:])


def _json(first_id: str) -> Wording:
    id_begin = quote(first_id[: -layout.POSITION_BYTES])[:-1]
    pieces = (
        ',"commit_lsn":"',
        '","commit_time":',
        ',"xid":',
        ',"event_count":',
        ',"lsn":"',
        '","ordinal":',
        f',"msg_id":{id_begin}',
        '","data":',
        ',"old":',
        "}",
    )
    return Wording(
        layout.JSON,
        tuple(piece.encode() for piece in pieces),
        lambda name: f"{quote(name)}:".encode(),
        lambda fields: json.dumps(_first(fields), ensure_ascii=False, separators=(",", ":"))[:-1].encode(),
    )
