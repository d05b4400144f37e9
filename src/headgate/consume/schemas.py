"""The bucket of schemas, with its history."""

from __future__ import annotations

import logging

from headgate.consume.link import Link
from headgate.consume.reader import StreamReader
from headgate.consume.schema import Schema
from headgate.consume.tables import TableName
from headgate.model import ConfigError
from headgate.wire.envelope import DEFAULT_SUBJECT

__all__ = ["Schemas"]

logger = logging.getLogger(__name__)


class Schemas:
    """Reads it whenever it is asked; the stream of changes tells what becomes different."""

    def __init__(self, link: Link, bucket: str) -> None:
        self._link = link
        self._bucket = bucket
        self._prefix = f"$KV.{bucket}."
        self._known: dict[str, TableName] = {}  # tables that were told, by their subjects
        self._told_at = -1  # the bucket's last sequence by then
        self._subject = ""

    async def tables(self) -> list[TableName]:
        """Every table that the bridge publishes now."""
        self._known, self._told_at = {}, -1
        return (await self.changed())[0]

    async def changed(self) -> tuple[list[TableName], list[TableName]]:
        """Tables that came and tables that went since it was last asked; cheap to ask again and again."""
        stream = f"KV_{self._bucket}"
        try:
            last = (await self._link.state(stream)).last
        except ConfigError:
            return [], []
        if last == self._told_at:
            return [], []
        before = set(self._known.values())
        if self._told_at < 0:
            await self._list(stream)
        else:
            await self._read_on(stream, last)
        self._told_at = last
        now = set(self._known.values())
        return sorted(now - before), sorted(before - now)

    async def _list(self, stream: str) -> None:
        for subject in sorted(await self._link.subjects(stream, f"{self._prefix}>")):
            self._note(subject, await self._link.value(self._bucket, subject.removeprefix(self._prefix)))

    async def _read_on(self, stream: str, last: int) -> None:
        reader = StreamReader(self._link, stream, self._told_at, [f"{self._prefix}>"], may_skip=True)
        try:
            while not await reader.has_read_all(last):
                for message in await reader.read(timeout_s=1):
                    self._note(message.subject, message.payload)
        finally:
            await reader.close()

    def _note(self, subject: str, document: bytes | None) -> None:
        """A document that is empty says that the table is published no more."""
        if document:
            schema = Schema.read(document)
            self._known[subject] = schema.name
            self._subject = schema.subject or self._subject
        else:
            self._known.pop(subject, None)

    async def template(self) -> str:
        """Where the bridge sends events, as it says itself; an older one says nothing."""
        if not self._subject:
            for subject in await self._link.subjects(f"KV_{self._bucket}", f"{self._prefix}>"):
                if document := await self._link.value(self._bucket, subject.removeprefix(self._prefix)):
                    self._subject = Schema.read(document).subject
                    break
        return self._subject or DEFAULT_SUBJECT

    async def current(self, table: TableName) -> Schema:
        document = await self._link.value(self._bucket, table.key)
        if not document:
            known = ", ".join(map(str, await self.tables())) or "none"
            raise ConfigError(
                f"the bridge describes no table {table}; it has: {known}",
                where=f"bucket {self._bucket}",
                remedy="check the table's name, its publication, and that the bridge runs with snapshots",
            )
        return Schema.read(document)

    async def of_version(self, table: TableName, version: str) -> Schema | None:
        """A shape that the table has or had; None if nobody remembers it."""
        document = await self._link.value(self._bucket, table.key)
        if document and (schema := Schema.read(document)).version == version:
            return schema
        for schema in await self._history(table):
            if schema.version == version:
                return schema
        return None

    async def _history(self, table: TableName) -> list[Schema]:
        stream = f"KV_{self._bucket}"
        if not await self._link.subjects(stream, f"$KV.{self._bucket}.{table.key}"):
            return []
        state = await self._link.state(stream)
        reader = StreamReader(self._link, stream, state.first - 1, [f"$KV.{self._bucket}.{table.key}"], may_skip=True)
        found: list[Schema] = []
        try:
            while not found or reader.pending:
                messages = await reader.read(timeout_s=5)
                found += [Schema.read(message.payload) for message in messages if message.payload]
                if not messages:
                    break
        finally:
            await reader.close()
        return found[::-1]
