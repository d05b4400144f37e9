"""A stream that a test writes message by message, with nothing of the bridge in it: whatever order, pause or loss.

written = await Written.open(url, ["a", "b"])     stream, bucket, empty snapshots on request
await written.event(("a", 1), place)              one message, sent when the test wants it
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import nats
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import StreamConfig

__all__ = ["Place", "Written"]

_COLUMNS = [("id", 20, "bigint"), ("text", 25, "text")]


class Place(NamedTuple):
    """An event's place: its transaction, of how many events, and which it is."""

    transaction: int
    event_count: int
    ordinal: int


class Written:
    """Snapshots are empty, or hold `rows` of the table, and stand at the stream's end."""

    def __init__(self, client: Client, tables: Sequence[str], stream: str = "CDC", prefix: str = "cdc") -> None:
        self.client = client
        self.tables = list(tables)
        self.stream = stream
        self.prefix = prefix
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.requests: list[str] = []
        self.refusals: list[dict[str, str]] = []  # the next answers to requests
        self.origin = "7"
        self.chained = False  # whether messages name their predecessors
        self._last: dict[str, int] = {}
        self._numbers = itertools.count(1)

    @classmethod
    async def open(cls, url: str, tables: Sequence[str], **options: Any) -> Written:
        written = cls(await nats.connect(url), tables, **options)
        await written.forget()
        await written.create()
        await written.client.subscribe("snapshot.request.>", cb=written._requested)
        return written

    async def create(self) -> None:
        for stream, subject in ((self.stream, f"{self.prefix}.>"), ("INIT", "init.>"), ("KV_schemas", "$KV.schemas.>")):
            await self.jetstream.add_stream(StreamConfig(name=stream, subjects=[subject]))
        for table in self.tables:
            await self.describe(table)

    async def describe(self, table: str, **fields: Any) -> None:
        await self.jetstream.publish(f"$KV.schemas.public.{table}", _packed(_description(table) | fields))

    async def forget(self) -> None:
        for stream in (self.stream, "INIT", "KV_schemas"):
            with contextlib.suppress(nats.js.errors.NotFoundError):
                await self.jetstream.delete_stream(stream)

    async def close(self) -> None:
        await self.forget()
        await self.client.close()

    @property
    def jetstream(self) -> Any:
        return self.client.jetstream()

    async def event(self, row: tuple[str, int], place: Place, *, parts: int = 1, pause_s: float = 0) -> None:
        """An INSERT of a row, in several messages if it is large."""
        table, number = row
        event = _head(self.origin, place) | {
            "schema": "public", "table": table, "operation": "INSERT", "schema_version": f"v-{table}",
            "data": {"id": number, "text": "x" * 50},
        }  # fmt: skip
        await self.send(f"public.{table}.insert", event, parts=parts, pause_s=pause_s)

    async def schema(self, table: str, transaction: int) -> None:
        """The description of a table before a transaction, as the bridge sends it for a new shape."""
        event = _head(self.origin, Place(transaction, 0, 0)) | {
            "schema": "public", "table": table, "operation": "SCHEMA", "schema_version": f"v-{table}",
            "msg_id": f"{self.origin}-{transaction:016X}-!00000000", "ordinal": None, "event_count": None,
            "data": _description(table),
        }  # fmt: skip
        await self.send(f"public.{table}.schema", event)

    async def message(self, place: Place, content: bytes, prefix: str = "headgate.gap") -> None:
        event = _head(self.origin, place) | {
            "schema": None, "table": None, "operation": "MESSAGE", "schema_version": None,
            "data": {"prefix": prefix, "content": content, "transactional": True},
        }  # fmt: skip
        await self.send(f"message.{prefix.replace('.', '%2E')}.message", event)

    async def send(self, subject: str, event: dict[str, Any], *, parts: int = 1, pause_s: float = 0) -> None:
        payload = _packed(event)
        size = -(-len(payload) // parts)
        for number in range(parts):
            headers = {"Nats-Msg-Id": event["msg_id"]}
            if parts > 1:
                headers = {
                    "Nats-Msg-Id": f"{event['msg_id']}.{number + 1:06d}",
                    "Headgate-Chunk": f"{number + 1}/{parts}",
                }
                await asyncio.sleep(pause_s)
            chain = subject.rpartition(".")[0]
            if self.chained:
                headers["Headgate-Previous"] = str(self._last.get(chain, 0))
            part = payload[number * size : (number + 1) * size]
            ack = await self.jetstream.publish(f"{self.prefix}.{subject}", part, headers=headers)
            self._last[chain] = ack.seq

    async def _requested(self, msg: Msg) -> None:
        table = msg.subject.removeprefix("snapshot.request.")
        self.requests.append(table)
        if self.refusals:
            await msg.respond(json.dumps({"accepted": False, "error": self.refusals.pop(0)}).encode())
            return
        snapshot_id = f"s{next(self._numbers):08d}"
        await msg.respond(json.dumps({"accepted": True, "snapshot_id": snapshot_id}).encode())
        await self.snapshot(table, snapshot_id)

    async def snapshot(self, table: str, snapshot_id: str, **fields: Any) -> None:
        raw = await self.client.request(f"$JS.API.STREAM.INFO.{self.stream}", b"")
        info = json.loads(raw.data)
        rows = self.rows.get(table, [])
        chunk = _packed({"data": rows})
        if rows:
            await self.jetstream.publish(f"init.snap.{table}.{snapshot_id}.0", chunk)
        end = {
            "snapshot_id": snapshot_id, "operation": "snapshot_end", "schema": "public", "table": table,
            "method": "watermark", "cdc_stream": self.stream, "cdc_sequence": info["state"]["last_seq"],
            "stream_created": info["created"],
            "schema_version": f"v-{table}", "checksum": _checksum(chunk) if rows else "0" * 16,
            "row_count": len(rows), "batch_count": 1 if rows else 0,
        }  # fmt: skip
        await self.jetstream.publish(f"init.meta.{table}", _packed(end | fields))


def _head(origin: str, place: Place) -> dict[str, Any]:
    transaction, count, ordinal = place
    return {
        "commit_lsn": f"{transaction >> 32:X}/{transaction & 0xFFFFFFFF:X}", "xid": transaction % 1000,
        "commit_time": None, "event_count": count, "ordinal": ordinal,
        "msg_id": f"{origin}-{transaction:016X}-{ordinal:08X}",
    }  # fmt: skip


def _description(table: str) -> dict[str, Any]:
    columns = [{"name": name, "type": text, "type_oid": oid, "key": name == "id"} for name, oid, text in _COLUMNS]
    return {
        "schema": "public", "table": table, "version": f"v-{table}", "columns": columns, "primary_key": ["id"],
        "key": ["id"], "relation_id": 1,
    }  # fmt: skip


def _packed(fields: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode(fields)


def _checksum(payload: bytes) -> str:

    return hashlib.sha256(payload).digest()[:8].hex()
