"""Debezium's embedded engine and headgate read the same changes; every field of every event is compared.

What differs must be listed in `DIFFERENT`, with its reason, and what is listed must differ: the list may only shrink.
`docs/debezium.md` says the same in words.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo

from conformance.maven import jars
from headgate.embedded import Stack
from headgate.model import Position
from headgate.sources.postgres_cdc.initial import InitialSnapshot
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.ranges import Range
from headgate.sources.postgres_cdc.reader import ReaderOptions
from headgate.sources.postgres_cdc.spool import SpoolIndex
from headgate.wire.envelope import HEARTBEAT_PREFIX, DebeziumEncoder, Event, Operation
from headgate.wire.pgtypes import TypeCatalog

_VERSION = "3.3.1.Final"
_HERE = Path(__file__).parent
_TIMEOUT_S = 180.0
_HEARTBEATS = "__debezium-heartbeat.shop\t"

Message = dict[str, Any]
Difference = tuple[str, str, str]  # table, field, what

_MODES: dict[str, dict[str, Any]] = {
    "defaults": {"schemas_enable": True},
    "isostring": {
        "time_precision_mode": "isostring",
        "decimal_handling_mode": "string",
        "interval_handling_mode": "string",
        "binary_handling_mode": "hex",
    },
    "connect": {
        "time_precision_mode": "connect",
        "decimal_handling_mode": "double",
        "binary_handling_mode": "base64-url-safe",
        "tombstones_on_delete": False,
        "skipped_operations": ["none"],
    },
}

_ONLY_OURS = "a type that Debezium leaves out; ours has PostgreSQL's text"
_ONLY_OURS_ARRAY = "a type that Debezium leaves out"

# Where the two differ, and why. A field is a column, or a path in the envelope.
DIFFERENT = {
    "source.version": "ours says who wrote it",
    "source.lsn": "the commit's, since the spool keeps no LSN of single rows",
    "source.sequence": "the commit's LSN twice",
    "ts_ms": "each has its own clock",
    "ts_us": "each has its own clock",
    "ts_ns": "each has its own clock",
    "every.bx": _ONLY_OURS,
    "every.ln": _ONLY_OURS,
    "every.ls": _ONLY_OURS,
    "every.mr": _ONLY_OURS,
    "every.pr": _ONLY_OURS,
    "every.tq": _ONLY_OURS,
    "every.x8": _ONLY_OURS,
    "every.iva": _ONLY_OURS_ARRAY,
    "every.nm": "Debezium writes null for a name that comes through the stream",
    "every.ia2": "Debezium writes nulls for arrays inside of arrays",
    "every.dt": "isostring: Debezium writes far dates for infinity",
    "every.ts": "isostring: Debezium writes far times for infinity",
    "every.tm": "isostring: Debezium writes 24:00 as 00:00",
    "keyed.f": "Kafka Connect's converter replaces NULL by the column's default",
    "large.bt": "base64-url-safe: Debezium writes null for a value left out of line",
    "every.n": "string: Debezium writes NAN and POSITIVE_INFINITY",
    # Of rows that were there already, which Debezium reads by JDBC, and marks with `(r)` here.
    "every (r).dt": "Debezium's own snapshot and stream differ: infinity, and BC by another calendar",
    "every (r).ts": "Debezium's own snapshot and stream differ: BC by another calendar",
    "every (r).tstz": "Debezium's own snapshot and stream differ: BC by another calendar",
    "every (r).m": "string: Debezium leaves out a final zero",
    "source.ts_ms (r)": "when the rows were read: each has its own clock",
    "source.ts_us (r)": "when the rows were read: each has its own clock",
    "source.ts_ns (r)": "when the rows were read: each has its own clock",
    "source.txId (r)": "Debezium's own transaction; ours has none",
}


def run(work: Path) -> int:
    """Returns the exit code."""
    directory = work / "debezium"
    classes = jars(
        directory, f"io.debezium:debezium-embedded:{_VERSION}", f"io.debezium:debezium-connector-postgres:{_VERSION}"
    )
    for left in (directory / "stack", *(directory / name for name in _MODES)):
        shutil.rmtree(left, ignore_errors=True)
    found: dict[str, str] = {}
    compared = 0
    with Stack(directory / "stack", nats=False, durable=False) as endpoints:
        url = endpoints.postgres_url
        assert url is not None
        assert endpoints.postgres_tcp_url is not None
        for name, options in _MODES.items():
            theirs, ours = _both(directory / name, classes, url, endpoints.postgres_tcp_url, name, options)
            compared += sum(map(len, theirs.values()))
            for where, what in _differences(theirs, ours):
                known = where in DIFFERENT or where.replace(" (r)", "") not in DIFFERENT
                found.setdefault(where if known else where.replace(" (r)", ""), f"{name}: {what}")
    return _verdict(found, compared)


def _verdict(found: dict[str, str], compared: int) -> int:
    unknown = sorted(set(found) - set(DIFFERENT))
    stale = sorted(set(DIFFERENT) - set(found))
    for where in unknown:
        sys.stdout.write(f"{where:40} DIFFERENT  {found[where][:300]}\n")
    for where in stale:
        sys.stdout.write(f"{where:40} is listed as different and is not\n")
    known = len(found) - len(unknown)
    sys.stdout.write(f"Debezium {_VERSION}: {compared} events compared, {known} known differences\n")
    return 1 if unknown or stale else 0


def _both(
    directory: Path, classes: Path, url: str, tcp_url: str, name: str, options: dict[str, Any]
) -> tuple[dict[str, list[Message | None]], dict[str, list[Message | None]]]:
    """The same work, read by both. Each mode has a database of its own."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"drop database if exists {name}".encode())
        admin.execute(f"create database {name}".encode())
    url, tcp_url = (conninfo.make_conninfo(each, dbname=name) for each in (url, tcp_url))
    before, work = (_HERE / "work.sql").read_text().split("-- begin\n")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(before.encode())
        admin.execute("create publication p for all tables")
        spool = directory / "spool"
        reader = ReaderProcess(ReaderOptions(url=url, slot=f"headgate_{name}", publications=("p",), spool=str(spool)))
        try:
            reader.ensure()
            with _engine(directory, classes, tcp_url, name, options, admin) as lines:
                for statement in work.split(";\n"):
                    admin.execute(statement.encode())
                theirs = _theirs(lines)
            ours = _ours(url, spool, name, options)
        finally:
            reader.stop()
        # And what is left of it all, by newcomers: rows under the names of their tables with `(r)` behind.
        initial = {**options, "snapshot_mode": "initial", "heartbeat_interval_ms": 100}
        with _engine(directory, classes, tcp_url, f"{name}_r", initial, admin) as lines:
            theirs |= _named(_read_by_them(lines))
        ours |= _named(_read_by_us(url, directory / "initial", f"{name}_r", initial))
        for slot in (f"{who}_{each}" for who in ("headgate", "debezium") for each in (name, f"{name}_r")):
            admin.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [slot]
            )
    return theirs, ours


@contextmanager
def _engine(
    directory: Path, classes: Path, tcp_url: str, name: str, options: dict[str, Any], admin: psycopg.Connection[Any]
) -> Iterator[list[str]]:
    """Debezium's engine while the block runs; what it says grows in the list."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "engine.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in _properties(tcp_url, name, options).items()))
    command = ["java", "-cp", f"{classes}/*", str(_HERE / "Capture.java"), str(settings)]
    lines: list[str] = []
    with (directory / "engine.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        output = process.stdout
        collector = threading.Thread(target=lambda: lines.extend(output), daemon=True)
        collector.start()
        try:
            active = "select 1 from pg_replication_slots where slot_name = %s and active"
            _wait(lambda: admin.execute(active, [f"debezium_{name}"]).fetchone() is not None, process)
            yield lines
        finally:
            process.terminate()
            process.wait(_TIMEOUT_S)


def _properties(tcp_url: str, name: str, options: dict[str, Any]) -> dict[str, Any]:
    server = conninfo.conninfo_to_dict(tcp_url)
    password = str(server.get("password") or _password(str(server.get("passfile") or "")))
    chosen = {key.replace("_", "."): value for key, value in options.items() if key != "schemas_enable"}
    skipped = chosen.get("skipped.operations")
    return {
        "name": name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "database.hostname": server["host"],
        "database.port": server["port"],
        "database.user": server["user"],
        "database.password": password,
        "database.dbname": server["dbname"],
        "topic.prefix": "shop",
        "plugin.name": "pgoutput",
        "publication.name": "p",
        "publication.autocreate.mode": "disabled",
        "slot.name": f"debezium_{name}",
        "snapshot.mode": options.get("snapshot_mode", "no_data"),
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": str(options.get("schemas_enable", False)).lower(),
        **{key: str(value).lower() for key, value in chosen.items()},
        **({"skipped.operations": ",".join(skipped)} if skipped else {}),
    }


def _password(passfile: str) -> str:
    """The last field of the file's only line."""
    return Path(passfile).read_text().strip().rsplit(":", 1)[-1]


def _wait(condition: Any, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise SystemExit("Debezium's engine did not come to an end; see engine.log")
        time.sleep(0.1)  # nothing tells what another process has read


def _named(found: dict[str, list[Message | None]]) -> dict[str, list[Message | None]]:
    return {f"{table} (r)": events for table, events in found.items()}


def _read_by_them(lines: list[str]) -> dict[str, list[Message | None]]:
    _wait(lambda: any('"snapshot":"last"' in line for line in lines))
    _wait(lambda: any(line.startswith(_HEARTBEATS) for line in lines))
    found = _by_table(lines)
    return found | {"shop": found["shop"][:1]}  # the last part of a heartbeat's topic; how many come is chance


def _read_by_us(url: str, spool: Path, name: str, options: dict[str, Any]) -> dict[str, list[Message | None]]:
    source = _source(url, spool, name, options)
    found: dict[str, list[Message | None]] = {}
    for batch in InitialSnapshot(source).rows([]):
        for row in batch.select(["_topic", "_payload"]).to_pylist():
            found.setdefault(row["_topic"].rsplit(".", 2)[-2], []).append(json.loads(row["_payload"]))
    encoder = DebeziumEncoder(TypeCatalog(), source.debezium_options)
    assert f"{encoder.options.heartbeat_topic}\t" == _HEARTBEATS
    beat = Event(Operation.MESSAGE, Position(0, 0), 0, 0, 0, None, detail={"prefix": HEARTBEAT_PREFIX})
    return found | {"shop": [json.loads(encoder.encode(beat, 0))]}


def _theirs(lines: list[str]) -> dict[str, list[Message | None]]:
    _wait(lambda: any(line.startswith("shop.public.done") for line in lines))
    return _by_table(lines)


def _by_table(lines: list[str]) -> dict[str, list[Message | None]]:
    found: dict[str, list[Message | None]] = {}
    for line in lines:
        topic, _, value = line.rstrip("\n").split("\t")
        found.setdefault(topic.rsplit(".", 1)[-1], []).append(json.loads(value))
    return found


def _source(url: str, spool: Path, name: str, options: dict[str, Any]) -> CdcOptions:
    return CdcOptions(
        url=url,
        slot=f"headgate_{name}",
        publication="p",
        spool=str(spool),
        format="debezium",
        debezium=json.dumps({"topic_prefix": "shop", **options}),
    )


def _ours(url: str, spool: Path, name: str, options: dict[str, Any]) -> dict[str, list[Message | None]]:
    source = _source(url, spool, name, options)
    index = SpoolIndex(spool)
    found: dict[str, list[Message | None]] = {}

    def complete() -> bool:
        index.refresh()
        found.clear()
        for batch in Range.of(spool, 0, index.end_lsn, "", 0, (), index.slices(0, index.end_lsn)).decode(source):
            for row in batch.select(["_table", "_payload"]).to_pylist():
                event = json.loads(row["_payload"]) if row["_payload"] else None
                found.setdefault(row["_table"] or "message", []).append(event)
        return "done" in found

    _wait(complete)
    return found


def _differences(
    theirs: dict[str, list[Message | None]], ours: dict[str, list[Message | None]]
) -> Iterator[tuple[str, str]]:
    for table in sorted({*theirs, *ours}):
        their_events, our_events = theirs.get(table, []), ours.get(table, [])
        if len(their_events) != len(our_events):
            yield table, f"{len(their_events)} events of theirs, {len(our_events)} of ours"
        for their, our in zip(their_events, our_events, strict=False):
            yield from _of_event(table, their, our)


def _of_event(table: str, their: Message | None, our: Message | None) -> Iterator[tuple[str, str]]:
    if their is None or our is None:
        if their is not our:
            yield f"{table} tombstone", f"{their} {our}"
        return
    if "payload" in their or "payload" in our:
        yield from _of_schema(table, their.get("schema"), our.get("schema"))
        their, our = their["payload"], our["payload"]
    for field in {*their, *our}:
        if field in ("before", "after"):
            yield from _of_row(table, their[field], our[field])
        elif field == "source":
            if list(their[field]) != list(our[field]):
                yield "source", f"{list(their[field])} {list(our[field])}"
            of_read = " (r)" if our["op"] == "r" else ""
            for name, value in their[field].items():
                if value != our[field].get(name):
                    yield f"source.{name}{of_read}", f"{value} {our[field].get(name)}"
        elif their.get(field) != our.get(field):
            yield field, f"{their.get(field)} {our.get(field)}"


def _of_row(table: str, their: Message | None, our: Message | None) -> Iterator[tuple[str, str]]:
    if their is None or our is None:
        if their is not our:
            yield f"{table} row", f"{their} {our}"
        return
    for column in {*their, *our}:
        if column not in their:
            yield f"{table}.{column}", f"is in ours alone: {our[column]}"
        elif their[column] != our.get(column):
            yield f"{table}.{column}", f"{their[column]!s:.100} {our.get(column)!s:.100}"


def _of_schema(table: str, their: Message | None, our: Message | None) -> Iterator[tuple[str, str]]:
    if their is None or our is None:
        if their is not our:
            yield f"{table} schema", "one has none"
        return
    their_fields, our_fields = ({field["field"]: field for field in each["fields"]} for each in (their, our))
    for name in {*their_fields, *our_fields}:
        if name in ("before", "after"):
            mine, others = ({f["field"]: f for f in fields[name]["fields"]} for fields in (our_fields, their_fields))
            for column, schema in others.items():
                if schema != mine.get(column):
                    yield f"{table}.{column} schema", f"{schema} {mine.get(column)}"
        elif their_fields.get(name) != our_fields.get(name):
            yield f"{name} schema", f"{their_fields.get(name)} {our_fields.get(name)}"
    if (their["name"], their.get("version")) != (our["name"], our.get("version")):
        yield f"{table} schema", f"{their['name']} {our['name']}"
