"""The bucket of schemas, with its history."""

from __future__ import annotations

import logging

from headgate.consume.link import Link
from headgate.consume.reader import StreamReader
from headgate.consume.schema import Schema
from headgate.consume.tables import TableName
from headgate.model import ConfigError

__all__ = ["Schemas"]

logger = logging.getLogger(__name__)


class Schemas:
    """Reads it whenever it is asked; the stream of changes tells what becomes different."""

    def __init__(self, link: Link, bucket: str) -> None:
        self._link = link
        self._bucket = bucket
        self._known: set[str] = set()  # subjects of tables that were told
        self._told_at = -1  # the bucket's last sequence by then

    async def tables(self) -> list[TableName]:
        """Every table that the bridge publishes now."""
        self._known, self._told_at = set(), -1
        return await self.added()

    async def added(self) -> list[TableName]:
        """Tables that were not told before; cheap to ask for again and again."""
        prefix, stream = f"$KV.{self._bucket}.", f"KV_{self._bucket}"
        try:
            last = (await self._link.state(stream)).last
        except ConfigError:
            return []
        if last == self._told_at:
            return []
        found: list[TableName] = []
        for subject in sorted((await self._link.subjects(stream, f"{prefix}>")).keys() - self._known):
            if document := await self._link.value(self._bucket, subject.removeprefix(prefix)):
                self._known.add(subject)
                found.append(Schema.read(document).name)
        self._told_at = last
        return found

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
