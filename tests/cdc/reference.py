"""The smallest bridge there can be: reads a slot by SQL, decodes with `headgate.wire`, gives the messages back.

Slow and simple, for tests of the tests: it shows what a correct stream looks like without any of the machinery that
the correctness tests are about. It works with the rights of the shop's reader.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import psycopg
from psycopg import sql

from headgate.wire.envelope import JsonEncoder, MessagePackEncoder, events
from headgate.wire.pgoutput import Decoder, Transaction, parse_lsn
from headgate.wire.pgtypes import SESSION
from tests.cdc.assembler import Assembler
from tests.cdc.catalog import read_types
from tests.cdc.shop import Connection

__all__ = ["ReferenceBridge", "decoded"]

_Encoder: TypeAlias = type[MessagePackEncoder] | type[JsonEncoder]


def decoded(messages: list[bytes]) -> list[dict[str, Any]]:
    """Messages of either format as the values they carry."""
    return [
        msgspec.json.decode(message) if message.startswith(b"{") else msgspec.msgpack.decode(message)
        for message in messages
    ]


class ReferenceBridge:
    """Reads what is new in a slot whenever it is asked. `url` is read anew each time, so that a server may restart."""

    def __init__(
        self, url: str, slot: str, publication: str, *, protocol: int = 2, encoder: _Encoder = MessagePackEncoder
    ) -> None:
        self._url = url
        self._slot = slot
        self._publication = publication
        self._protocol = protocol
        self._encoder = encoder
        self._published_lsn = 0

    def create_slot(self) -> None:
        """From here on no change is missed."""
        with self._connect() as connection:
            connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot])

    def drop_slot(self) -> None:
        """Let the server forget it."""
        with self._connect() as connection:
            connection.execute("select pg_drop_replication_slot(%s)", [self._slot])

    def read(self) -> list[bytes]:
        """The messages of all transactions that committed since the last call.

        A server that crashed forgets how far the slot was read, and sends some transactions again.
        """
        with self._connect() as connection:
            row = connection.execute("select system_identifier from pg_control_system()").fetchone()
            assert row is not None
            encoder = self._encoder(row[0], read_types(connection))
            fresh = [each for each in self._transactions(connection) if each.commit_lsn > self._published_lsn]
        self._published_lsn = max([self._published_lsn, *(each.commit_lsn for each in fresh)])
        return [encoder.encode(event) for transaction in fresh for event in events(transaction)]

    def _transactions(self, connection: Connection) -> list[Transaction]:
        options = {
            "proto_version": str(self._protocol),
            "publication_names": f'"{self._publication}"',
            "messages": "on",
        }
        if self._protocol > 1:
            options["streaming"] = "on"
        query = sql.SQL("select lsn::text, data from pg_logical_slot_get_binary_changes({}, null, null, {})").format(
            sql.Literal(self._slot),
            sql.SQL(", ").join(sql.Literal(word) for item in options.items() for word in item),
        )
        decoder, assembler = Decoder(self._protocol), Assembler()
        fed = (assembler.feed(decoder.decode(bytes(data)), parse_lsn(lsn)) for lsn, data in connection.execute(query))
        return [transaction for transaction in fed if transaction is not None]

    def _connect(self) -> Connection:
        options = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
        return psycopg.connect(self._url, autocommit=True, options=options, client_encoding="UTF8")
