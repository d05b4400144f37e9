"""Thirty snapshots while writers write and commits hang: each of them, joined with the stream, is the table."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg

from headgate.consume.decode import read_info
from headgate.consume.rules import Rule
from headgate.consume.snapshots import rule_of
from headgate.wire.nats.fragments import FragmentJoiner
from headgate.wire.pgoutput import parse_lsn
from tests.cdc import KeyedRows, RowBag
from tests.streams import read_stream

from .conftest import Admin, Bridge, wait_until

ROUNDS = 30
WRITERS = 4
TABLES = {
    # A composite key with empty text and negative numbers, and a generated column.
    "composite": "(a text, b int, note text, loud text generated always as (upper(note)) stored, primary key (b, a))",
    "keyless": "(v int, note text)",
    "parted": "(id int primary key, note text) partition by range (id)",
    "large": "(id int primary key, note text, body text)",
    "empty": "(id int primary key)",
}
METHODS = ("export", "filter", "watermark")
_UPSERT = "insert into composite (a, b, note) values (%s, %s, %s) on conflict (b, a) do update set note = excluded.note"


def create(admin: Admin, schema: str) -> None:
    for name, columns in TABLES.items():
        admin.execute(f"create table {schema}.{name} {columns}".encode())
    admin.execute(f"alter table {schema}.keyless replica identity full".encode())
    for number in range(3):
        bounds = f"from ({number * 100}) to ({number * 100 + 100})"
        admin.execute(f"create table {schema}.part{number} partition of {schema}.parted for values {bounds}".encode())
    admin.execute(f"alter publication {schema} set (publish_via_partition_root = true)".encode())
    admin.execute(f"alter table {schema}.large alter body set storage external".encode())


class Writer(threading.Thread):
    """Random transactions, some slow, some rolled back, until told to stop."""

    def __init__(self, url: str, schema: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._url, self._schema, self._random = url, schema, random.Random(seed)
        self.stopped = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._url, options=f"-c search_path={self._schema}") as connection:
                while not self.stopped.is_set():
                    self._transaction(connection)
        except Exception as error:
            self.error = error

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        try:
            for _ in range(self._random.randint(1, 5)):
                connection.execute(*self._change())
                if self._random.random() < 0.3:
                    self.stopped.wait(self._random.random() * 0.02)
        except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
            connection.rollback()
        if self._random.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()

    def _change(self) -> tuple[Any, ...]:
        number, text = self._random.randint(0, 299), self._random.choice(["", " ", "x", "é", "\\", "tab\t"])
        note = f"n{self._random.random()}"
        choices: list[tuple[str, list[Any]]] = [
            (_UPSERT, [text, number % 20 - 10, note]),
            ("delete from composite where b = %s and a = %s", [number % 20 - 10, text]),
            ("update composite set b = b + 100 where b = %s and a = %s and b < 90", [number % 20 - 10, text]),
            ("delete from composite where b > 90", []),
            ("insert into keyless values (%s, %s)", [number % 5, note]),
            ("delete from keyless where ctid in (select ctid from keyless where v = %s limit 1)", [number % 5]),
            ("insert into parted values (%s, %s) on conflict (id) do update set note = excluded.note", [number, note]),
            ("delete from parted where id = %s", [number]),
            (
                "insert into large values (%s, %s, %s) on conflict (id) do update set note = excluded.note",
                [number % 40, note, "b" * (1_200_000 if number == 7 else 9_000)],
            ),
            ("delete from large where id = %s", [number % 40]),
        ]
        return self._random.choice(choices)


@contextmanager
def hanging_commits(url: str) -> Iterator[None]:
    """Now and then commits wait for a standby that does not exist: they are in the stream before anybody sees them."""
    done = threading.Event()

    def pulse() -> None:
        with psycopg.connect(url, autocommit=True) as admin:
            while not done.wait(0.3):
                for setting in ("alter system set synchronous_standby_names = 'nobody'",
                                "alter system reset synchronous_standby_names"):  # fmt: skip
                    admin.execute(setting.encode())
                    admin.execute("select pg_reload_conf()")
                    done.wait(0.15)
            admin.execute("alter system reset synchronous_standby_names")
            admin.execute("select pg_reload_conf()")

    thread = threading.Thread(target=pulse, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(10)


def test_thirty_snapshots_under_load(bridge: Bridge, admin: Admin) -> None:
    url = bridge.endpoints.postgres_url or ""
    create(admin, bridge.name)
    bridge.start()
    writers = [Writer(url, bridge.name, seed) for seed in range(WRITERS)]
    for writer in writers:
        writer.start()
    asked: list[tuple[str, str]] = []
    chance = random.Random(1)
    with hanging_commits(url):
        for turn in range(ROUNDS):
            table = list(TABLES)[turn % len(TABLES)]
            method = METHODS[(turn // len(TABLES)) % (2 if table == "keyless" else 3)]
            payload = b'{"method": "%s", "chunk_rows": %d}' % (method.encode(), chance.choice([3, 50, 10_000]))
            answer = bridge.ask(f"{bridge.name}.{table}", payload)
            assert answer["accepted"], answer
            asked.append((table, answer["snapshot_id"]))
            wait_until(lambda: bridge.ended(asked[-1][1]))
    for writer in writers:
        writer.stopped.set()
        writer.join(20)
        assert writer.error is None, writer.error
    events = all_events(bridge, admin)
    ends, chunks = snapshots(bridge)
    for table, snapshot_id in asked:
        end = ends[snapshot_id]
        assert end["operation"] == "snapshot_end", end
        check(bridge, admin, table, end, chunks.get(snapshot_id, []), events)


def all_events(bridge: Bridge, admin: Admin) -> list[tuple[int, dict[str, Any]]]:
    """The stream up to now, by sequence; rows that came in parts are joined."""
    admin.execute("select pg_logical_emit_message(true, 'end', 'end')")
    deadline = time.monotonic() + 60
    while True:
        messages = read_stream(bridge.endpoints.nats_url, bridge.name, 0)
        if messages and b"end" in messages[-1].data[-80:]:
            break
        assert time.monotonic() < deadline
    joiner, found = FragmentJoiner(), []
    for number, message in enumerate(messages, 1):
        payload = joiner.feed(message.data, (message.headers or {}).get("Headgate-Chunk"))
        if payload is not None:
            found.append((number, msgspec.msgpack.decode(payload)))
    return found


def snapshots(bridge: Bridge) -> tuple[dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """End messages and rows, by the snapshot's id."""
    ends: dict[str, dict[str, Any]] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    joiners: dict[str, FragmentJoiner] = {}
    for message in read_stream(bridge.endpoints.nats_url, "INIT", 0):
        if message.subject.startswith(f"init.meta.{bridge.name}."):
            end = msgspec.msgpack.decode(message.data)
            ends[end["snapshot_id"]] = end
        elif message.subject.startswith(f"init.snap.{bridge.name}."):
            joiner = joiners.setdefault(message.subject, FragmentJoiner())
            payload = joiner.feed(message.data, (message.headers or {}).get("Headgate-Chunk"))
            if payload is not None:
                chunk = msgspec.msgpack.decode(payload)
                rows.setdefault(chunk["snapshot_id"], []).extend(chunk["data"])
    return ends, rows


def check(
    bridge: Bridge,
    admin: Admin,
    table: str,
    end: dict[str, Any],
    rows: list[dict[str, Any]],
    events: list[tuple[int, dict[str, Any]]],
) -> None:
    """The snapshot, then every change that it does not contain, is the table."""
    assert len(rows) == end["row_count"]
    key = {"composite": ("b", "a"), "keyless": ()}.get(table, ("id",))
    copy: KeyedRows | RowBag = KeyedRows(key) if key else RowBag()
    for row in rows:
        copy.insert(row)
    rule = rule_of(read_info(msgspec.msgpack.encode(end)))
    for sequence, event in events:
        if event["table"] == table and sequence > end["cdc_sequence"] and not contained(rule, event):
            (apply if rule else apply_as_it_comes)(copy, event)
    shown = "*" if table != "composite" else "a, b, note"
    with admin.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        wanted = cursor.execute(f"select {shown} from {bridge.name}.{table}".encode()).fetchall()
    found = list(copy.rows.values()) if isinstance(copy, KeyedRows) else list(copy.counts.elements())
    expected = wanted if isinstance(copy, KeyedRows) else [RowBag.text_of(row) for row in wanted]
    assert sorted(map(text, found)) == sorted(map(text, expected)), (table, end)


def text(row: Any) -> str:
    return repr(sorted(row.items())) if isinstance(row, dict) else row


def contained(rule: Rule | None, event: dict[str, Any]) -> bool:
    return rule is not None and rule.contains(parse_lsn(event["commit_lsn"]), event["xid"])


def apply(copy: KeyedRows | RowBag, event: dict[str, Any]) -> None:
    """Strictly: an insert finds no row, an update and a delete find one."""
    match event["operation"]:
        case "INSERT":
            copy.insert(event["data"])
        case "UPDATE":
            copy.update(event["data"], event.get("old"))
        case "DELETE":
            copy.delete(event["data"])


def apply_as_it_comes(copy: KeyedRows | RowBag, event: dict[str, Any]) -> None:
    """As snapshots.md says for the method watermark."""
    assert isinstance(copy, KeyedRows)
    data = event["data"]
    before = copy.rows.pop(copy.key_of(event.get("old") or data), {}) if event["operation"] != "INSERT" else {}
    if event["operation"] in ("INSERT", "UPDATE"):
        copy.rows[copy.key_of(data)] = {**before, **data}
