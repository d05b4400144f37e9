"""A message's bytes -> a change, or the rows of a snapshot's chunk.

MessagePack and JSON are told apart by their first byte. Values are those of MessagePack, whatever the format was; to
read them in JSON the table's shape is needed (`json_values`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headgate.consume.change import SCHEMA, Change, SnapshotInfo
from headgate.consume.json_values import RowReader
from headgate.consume.link import Link
from headgate.consume.loose import raw_items, raw_members
from headgate.consume.schema import Schema
from headgate.model import ProtocolError
from headgate.model.places import DEFAULT_DICTIONARIES
from headgate.wire.compress import DICTIONARY_HEADER, ENCODING_HEADER, Decompressor
from headgate.wire.nats.fragments import FRAGMENT_HEADER, FragmentJoiner

__all__ = ["PartMissing", "Payloads", "read_change", "read_info", "read_rows"]

_MAX_PAYLOAD_BYTES = 64 << 20
_REMEDY = "is the stream made by a bridge of headgate, in its own format (not debezium)?"


class _Chunk(msgspec.Struct):
    data: list[dict[str, Any]]


_change = msgspec.msgpack.Decoder(Change)
_chunk = msgspec.msgpack.Decoder(_Chunk)
_ROWS = ("data", "old")


class PartMissing(Exception):  # noqa: N818 - a fact about the stream; who reads it acts on it
    """A part came whose predecessors did not: they lie before where the read began, or are gone from the stream."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Payloads:
    """Undoes what was done to a payload on its way: each message is decompressed, then parts are joined."""

    def __init__(self, link: Link, dictionaries: str = DEFAULT_DICTIONARIES) -> None:
        self._link = link
        self._buckets = dict.fromkeys([dictionaries, DEFAULT_DICTIONARIES])  # where older bridges put all of them
        self._joiner = FragmentJoiner()
        self._decompressor = Decompressor(max_bytes=_MAX_PAYLOAD_BYTES)

    async def whole(self, payload: bytes, headers: Mapping[str, str] | None) -> bytes | None:
        """The payload, or None while parts of it are missing."""
        if headers is None:
            return payload
        encoding = headers.get(ENCODING_HEADER)
        if encoding:
            dictionary_id = headers.get(DICTIONARY_HEADER, "")
            if dictionary_id and not self._decompressor.knows(dictionary_id):
                await self._learn(dictionary_id)
            payload = self._decompressor.decompress(payload, encoding, dictionary_id)
        chunk = headers.get(FRAGMENT_HEADER)
        try:
            return self._joiner.feed(payload, chunk)
        except ProtocolError:
            self._joiner = FragmentJoiner()
            number = (chunk or "").partition("/")[0]
            if number != "1":
                raise PartMissing(int(number) if number.isdecimal() else 0) from None
            return self._joiner.feed(payload, chunk)  # the rest of the one before will not come

    async def _learn(self, dictionary_id: str) -> None:
        for bucket in self._buckets:
            data = await self._link.value(bucket, dictionary_id)
            if data is not None:
                self._decompressor.learn(dictionary_id, data)
                return
        raise ProtocolError(
            f"the dictionary {dictionary_id[:40]!r} is not in the bucket {' or '.join(self._buckets)}",
            remedy="messages that need it cannot be read; take a new snapshot from a new stream",
        )


def read_change(payload: bytes, schema_of: Callable[[str | None, str | None], Schema | None]) -> Change:
    """One event. `schema_of` gives the shape in force of a table, which JSON needs."""
    try:
        if payload[:1] != b"{":
            return _change.decode(payload)
        members = raw_members(payload)
        fields = {name: msgspec.json.decode(value) for name, value in members.items() if name not in _ROWS}
        change = msgspec.convert({**fields, "data": {}}, Change)
        schema = None if change.operation == SCHEMA else schema_of(change.schema, change.table)
        change.data = _json_values(members["data"], schema)
        if members.get("old", b"null") != b"null":
            change.old = _json_values(members["old"], schema)
        return change
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError) as error:
        raise ProtocolError(f"not an event: {error}", remedy=_REMEDY) from None


def read_rows(payload: bytes, schema: Schema) -> list[dict[str, Any]]:
    """The rows of one chunk."""
    try:
        if payload[:1] != b"{":
            return _chunk.decode(payload).data
        read = RowReader(schema)
        return [read(row) for row in raw_items(raw_members(payload)["data"])]
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError) as error:
        raise ProtocolError(f"not a chunk of a snapshot: {error}", remedy=_REMEDY) from None


def read_info(payload: bytes) -> SnapshotInfo:
    """The message that ends a snapshot."""
    try:
        decode = msgspec.json.decode if payload[:1] == b"{" else msgspec.msgpack.decode
        return decode(payload, type=SnapshotInfo)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ProtocolError(f"not the end of a snapshot: {error}", remedy=_REMEDY) from None


def _json_values(raw: bytes, schema: Schema | None) -> dict[str, Any]:
    """Of a table that is not read nobody wants the values, but they must not stop anybody either."""
    if schema is None:
        return {name: _plain(value) for name, value in raw_members(raw).items()}
    return RowReader(schema)(raw)


def _plain(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except RecursionError:
        return raw.decode()
