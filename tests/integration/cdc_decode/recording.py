"""What the server sends for some work, as messages and as a spool."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from headgate.postgres import connect
from headgate.postgres.catalog import load_types
from headgate.sources.postgres_cdc.intake import Intake
from headgate.sources.postgres_cdc.spool import SpoolWriter
from headgate.wire.envelope import Event, events
from headgate.wire.pgoutput import Decoder, parse_lsn
from headgate.wire.pgtypes import TypeCatalog
from tests.cdc.assembler import Assembler


@dataclass
class Recording:
    """`name` is that of schema, publication and slot."""

    url: str
    connection: psycopg.Connection[Any]
    name: str

    def __post_init__(self) -> None:
        self.sql(f"create schema {self.name}")
        self.sql(f"set search_path = {self.name}")
        self.sql(f"create publication {self.name} for tables in schema {self.name}")
        self.sql("select pg_create_logical_replication_slot(%s, 'pgoutput')", self.name)

    def sql(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement, params or None)
        return list(cursor.fetchall()) if cursor.description else []

    def messages(self) -> list[tuple[int, bytes]]:
        """Everything since the begin: LSN and bytes of each message."""
        rows = self.sql(
            "select lsn::text, data from pg_logical_slot_peek_binary_changes(%s, null, null,"
            " 'proto_version', '1', 'publication_names', %s, 'messages', 'on')",
            self.name,
            self.name,
        )
        return [(parse_lsn(lsn), bytes(data)) for lsn, data in rows]

    def events(self) -> list[Event]:
        """The same as events, read by the reference straight from the stream."""
        decoder, assembler = Decoder(1), Assembler()
        done = (assembler.feed(decoder.decode(payload), lsn) for lsn, payload in self.messages())
        return [event for transaction in done if transaction is not None for event in events(transaction)]

    def spool(self, directory: Path) -> None:
        """The same as a spool, filled by the reader's own intake."""
        with closing(SpoolWriter(directory)) as writer:
            intake = Intake(writer)
            for lsn, payload in self.messages():
                intake.take(payload, lsn)
                writer.flush()

    def types(self) -> TypeCatalog:
        """What the catalog knows of types that are not built in."""
        with connect(self.url) as connection:
            return TypeCatalog(load_types(connection))

    def drop(self) -> None:
        self.sql("select pg_drop_replication_slot(%s)", self.name)
        self.sql(f"drop publication {self.name}; drop schema {self.name} cascade")
