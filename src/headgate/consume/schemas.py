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

    async def tables(self) -> list[TableName]:
        """Every table that the bridge publishes now."""
        prefix = f"$KV.{self._bucket}."
        subjects = await self._link.subjects(f"KV_{self._bucket}", f"{prefix}>")
        found = [await self._link.value(self._bucket, subject.removeprefix(prefix)) for subject in sorted(subjects)]
        return [Schema.read(document).name for document in found if document]

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
