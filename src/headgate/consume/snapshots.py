"""Snapshots in the stream INIT: found when one is complete and still joins the changes, asked for when not."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from headgate.consume.change import SnapshotInfo
from headgate.consume.decode import Payloads, read_info, read_rows
from headgate.consume.link import Link
from headgate.consume.reader import StreamReader
from headgate.consume.rules import ExportRule, FilterRule, Rule
from headgate.consume.schema import Schema
from headgate.consume.tables import TableName
from headgate.model import ConnectError, DataError, HeadgateError, Kind, ProtocolError
from headgate.model.places import init_prefix
from headgate.wire.pgoutput import parse_lsn

__all__ = ["SnapshotBroken", "SnapshotFailed", "Snapshots", "rule_of"]

logger = logging.getLogger(__name__)

_ANSWER_S = 5.0
_POLL_S = 2.0
_POLLS_PER_REQUEST = 15
_SILENCE_S = 10.0
_MAX_FAILURES = 5


class SnapshotBroken(Exception):  # noqa: N818 - a fact about the stream; the consumer acts on it
    """Chunks are missing, or are not those that were written."""


class SnapshotFailed(DataError, kind=Kind.DATA):  # noqa: N818 - a fact about one table; whoever reads others acts on it
    """The bridge cannot copy a table. Others can be read without it."""

    def __init__(self, table: TableName, message: str) -> None:
        super().__init__(f"its snapshot failed: {message}", where=str(table), remedy="mend what the bridge says")
        self.table = table


def _is_final(error: Any) -> bool:
    """Whether another attempt finds the same: a row that cannot be read is still there."""
    return isinstance(error, dict) and error.get("kind") in (Kind.DATA.value, Kind.PROTOCOL.value)


def _told(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    where = f"{error['where']}: " if error.get("where") else ""
    return f"{where}{error.get('message', '')}"


def rule_of(info: SnapshotInfo) -> Rule | None:
    """What of the stream is in the snapshot already; None: nothing has to be left out."""
    if info.method == "export":
        return ExportRule(parse_lsn(info.lsn))
    if info.method == "filter" and info.xmin is not None and info.xmax is not None:
        return FilterRule(info.xmin, info.xmax, info.xip or [], parse_lsn(info.lsn))
    if info.method == "watermark":
        return None
    raise ProtocolError(
        f"a snapshot of the unknown method {info.method!r}", remedy="is the bridge newer than this consumer?"
    )


class Snapshots:
    """Finds and requests snapshots of one bridge. `options` go into every request: `{"method": "filter"}`."""

    def __init__(self, link: Link, stream: str, cdc_stream: str, options: dict[str, Any] | None = None) -> None:
        self._link = link
        self._stream = stream
        self._cdc_stream = cdc_stream
        self._options = {"cdc_stream": cdc_stream, **(options or {})}
        self._prefix = init_prefix(stream)

    async def find(self, table: TableName) -> SnapshotInfo | None:
        """The latest one, if it can still be used."""
        _, info = await self._latest(table)
        if info is None or info.operation != "snapshot_end":
            return None
        reason = await self._unfit(table, info)
        if reason:
            logger.info("%s: the snapshot %s cannot be used: %s", table, info.snapshot_id, reason)
            return None
        return info

    async def request(self, table: TableName, behind: int = 0) -> SnapshotInfo:
        """Ask for one and wait until it is complete. Any that ends from now on and has that place will do."""
        failures = 0
        while True:
            before, _info = await self._latest(table)
            info = await self._await_end(table, before)
            if info.operation != "snapshot_end":
                failures += 1
                logger.warning("%s: the snapshot %s failed: %s", table, info.snapshot_id, info.error)
                if failures == _MAX_FAILURES or _is_final(info.error):
                    raise SnapshotFailed(table, _told(info.error))
            elif info.cdc_sequence >= behind:
                return info
            elif (await self._link.state(self._cdc_stream)).last < behind:
                return info  # the stream is another one by now, which whoever reads it will see
            else:  # somebody asked for it before
                logger.info("%s: the snapshot %s was begun too early; asking again", table, info.snapshot_id)

    async def rows(self, table: TableName, info: SnapshotInfo, schema: Schema) -> AsyncIterator[list[dict[str, Any]]]:
        """Chunk by chunk. What was given out counts only if this comes to its end."""
        state = await self._link.state(self._stream)
        subject = f"{self._prefix}.snap.{table.token}.{info.snapshot_id}.>"
        reader = StreamReader(self._link, self._stream, state.first - 1, [subject], may_skip=True)
        payloads = Payloads(self._link)
        checksum = chunk_count = row_count = 0
        try:
            while chunk_count < info.batch_count:
                messages = await reader.read(timeout_s=_SILENCE_S)
                if not messages:
                    raise SnapshotBroken(f"{chunk_count} of {info.batch_count} chunks are there")
                for message in messages:
                    payload = await payloads.whole(message.payload, message.headers)
                    if payload is None:
                        continue
                    chunk_count += 1
                    checksum += int.from_bytes(hashlib.sha256(payload).digest()[:8], "big")
                    rows = read_rows(payload, schema)
                    row_count += len(rows)
                    yield rows
        finally:
            await reader.close()
        found = (chunk_count, row_count, f"{checksum % (1 << 64):016x}")
        if found != (info.batch_count, info.row_count, info.checksum.lower()):
            raise SnapshotBroken(f"chunks, rows and checksum are {found}")

    async def _latest(self, table: TableName) -> tuple[int, SnapshotInfo | None]:
        """What was said last about a snapshot of the table, and where."""
        message = await self._link.last_on(self._stream, f"{self._prefix}.meta.{table.token}")
        if message is None or not message.data:
            return 0, None
        payload = await Payloads(self._link).whole(message.data, message.headers)
        return message.seq or 0, None if payload is None else read_info(payload)

    async def _unfit(self, table: TableName, info: SnapshotInfo) -> str:
        if reason := await self._foreign(info):
            return reason
        state = await self._link.state(self._cdc_stream)
        if not state.first - 1 <= info.cdc_sequence <= state.last:
            return f"{self._cdc_stream} has no more what follows its sequence {info.cdc_sequence}"
        if state.deleted_count and (await self._link.deleted(self._cdc_stream))[-1] > info.cdc_sequence:
            return f"messages behind its sequence {info.cdc_sequence} were deleted"
        chunks = await self._link.subjects(self._stream, f"{self._prefix}.snap.{table.token}.{info.snapshot_id}.>")
        return "" if len(chunks) == info.batch_count else f"{len(chunks)} of its {info.batch_count} chunks are left"

    async def _foreign(self, info: SnapshotInfo) -> str:
        """Why the numbers of a snapshot mean nothing here."""
        if info.cdc_stream not in ("", self._cdc_stream):
            return f"it belongs to the stream {info.cdc_stream}"
        state = await self._link.state(self._cdc_stream)
        if info.stream_created not in ("", state.created):
            return f"it belongs to the stream that was made at {info.stream_created}, not at {state.created}"
        return ""

    async def _ask(self, table: TableName) -> dict[str, Any]:
        """Until somebody answers: the bridge may be starting."""
        said = False
        while True:
            try:
                reply = await self._link.client.request(
                    f"snapshot.request.{table.token}", json.dumps(self._options).encode(), timeout=_ANSWER_S
                )
                return _accepted(table, reply.data)
            except (
                nats.errors.NoRespondersError,
                nats.errors.TimeoutError,
                nats.errors.ConnectionReconnectingError,
                ConnectError,  # in the words of a bridge that has just started
            ) as error:
                if not said:
                    why = error.message if isinstance(error, ConnectError) else "nobody makes snapshots now"
                    logger.warning("%s: %s; asking until somebody does", table, why)
                said = True
                await asyncio.sleep(1.0)

    async def _await_end(self, table: TableName, before: int) -> SnapshotInfo:
        """The first end behind a sequence. Asks again now and then: a bridge that was killed forgets who asked."""
        woken = asyncio.Event()

        async def wake(_: Msg) -> None:
            woken.set()

        subscription = await self._link.client.subscribe(f"{self._prefix}.meta.{table.token}", cb=wake)
        try:
            for turn in itertools.count():
                if turn % _POLLS_PER_REQUEST == 0:
                    answer = await self._ask(table)
                    logger.info("%s: waiting for the snapshot %s", table, answer["snapshot_id"])
                woken.clear()
                sequence, info = await self._latest(table)
                if info is not None and sequence > before:
                    reason = await self._foreign(info)
                    if not reason:
                        return info
                    before = sequence
                    logger.info("%s: the snapshot %s is not ours: %s", table, info.snapshot_id, reason)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await woken.wait()
            raise AssertionError  # a count has no end
        finally:
            await subscription.unsubscribe()


def _accepted(table: TableName, reply: bytes) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(reply)
    except ValueError:
        raise ProtocolError(
            "the answer to a request for a snapshot is not JSON", remedy="does a bridge of headgate answer?"
        ) from None
    if answer.get("accepted"):
        return answer
    error = answer.get("error") or {}
    cls = HeadgateError._by_kind.get(Kind(error.get("kind", "data")), DataError)
    raise cls(error.get("message", "refused"), where=str(table), remedy=error.get("remedy", ""))
