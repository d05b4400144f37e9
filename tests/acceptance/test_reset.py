"""A pipeline that is reset delivers what is there now: no row is taken for one of before the reset.

Every kind of source is run, reset and run again, to a destination that drops ids it has seen and to one that knows
batches by their number. The checkpoints lie where a reset cannot remove them.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from headgate.broker import Message, install, publish_sync
from headgate.cli.reset import reset_stopped
from headgate.commitlog.append import append
from headgate.commitlog.install import install as install_log
from headgate.commitlog.prepare import Rules, prepare
from headgate.commitlog.topics import ensure_topic
from headgate.config import load
from headgate.demo.network.repository import Repository, create
from headgate.destinations.table import open_table
from headgate.embedded import Endpoints
from headgate.eventlog.writer import Entry, LogOptions, LogWriter
from headgate.sources.broker.group import BrokerGroup
from headgate.sources.broker.options import BrokerSourceOptions
from headgate.spool.frames import Request
from headgate.spool.spool import Spool
from headgate.wire.atproto.logged import logged
from headgate.wire.kafka import Record, encode_batch
from tests.acceptance.conftest import Project
from tests.gateway.servers import new_database
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOW_US = 1_790_000_000_000_000
OLD, NEW = range(1, 11), range(101, 111)
# The table of each source, and where its payload is a column: all payloads are JSON objects with an id.
SOURCES = {
    "jobs": ('type = "postgres-poll"\ntable = "jobs"\ntracking_column = "id"\ndelete_after_read = true', ""),
    "lines": ('type = "files"\npath = "lines"\nformat = "jsonl"\nrow_schema = "id bigint"', ""),
    "orders": ('type = "random"\nrows_per_second = 1000\nrows = 10', ""),
    "hooks": ('type = "webhook"\nport = 0', "body"),
    "events": ('type = "broker"\ngroup = "reset"\ntopics = ["events"]', "payload"),
    "topics": ('type = "log"\ntopics = ["shop"]', "value"),
    "messages": ('type = "kafka"\ntopics = ["shop"]\nservers = "127.0.0.1:{port}"', "value"),
    "posts": ('type = "atproto"\npath = "posts"\nstart_at = "earliest"', "record"),
}
# What comes after a reset: sources that let go of what is delivered, or begin again, or have everything still.
AGAIN = {"jobs": [*NEW], "lines": [*NEW], "orders": [*range(10)], "hooks": [*NEW], "events": [*NEW]}
STILL_THERE = [*OLD, *NEW]


def config(endpoints: Endpoints, url: str, port: int, directory: Path) -> str:
    servers = (
        f'[control]\nport = 0\n[postgres]\nurl = "{url}"\n[nats]\nurl = "{endpoints.nats_url}"\n'
        f'[gateway]\nenabled = true\nport = {port}\n[spark]\ncheckpoint_dir = "{directory}/checkpoints"\n'
    )
    parts = [servers]
    for name, (source, column) in SOURCES.items():
        payload = f'format = "raw"\npayload_column = "{column}"\n' if column else ""
        parts.append(
            f"[sources.{name}]\n{source.format(port=port)}\n"
            f'[destinations.{name}]\ntype = "nats"\nstream = "{stream(name)}"\nsubjects = ["reset.{name}.>"]\n'
            f'[destinations.{name}-files]\ntype = "table"\n'
            f'[pipelines.{name}]\nsource = "{name}"\ndestinations = ["{name}", "{name}-files"]\n'
            f'topic = "reset.{name}.all"\n{payload}'
        )
    return "".join(parts)


def stream(name: str) -> str:
    return f"RESET_{name.upper()}"


class Origins:
    """Where the rows come from; a batch of them at a time."""

    def __init__(self, connection: psycopg.Connection, url: str, directory: Path) -> None:
        self._connection = connection
        self._directory = directory
        self._repository = Repository("alice", "pds.example")
        connection.execute("create table jobs (id bigint primary key)")
        install(connection)
        install_log(connection)
        # A group of the broker gets what is published from when it is there.
        group = BrokerGroup(BrokerSourceOptions.from_spark({"url": url, "group": "reset", "subscribe": "events"}))
        group.begin()
        group.close()
        (directory / "lines").mkdir()

    def add(self, ids: range) -> None:
        texts = [json.dumps({"id": number}) for number in ids]
        self._connection.execute("insert into jobs select unnest(%s::bigint[])", [list(ids)])
        (self._directory / "lines/a.jsonl").write_text("".join(f"{text}\n" for text in texts))
        bodies = [text.encode() for text in texts]
        spool = Spool(self._directory / ".headgate/webhooks/hooks")
        spool.append([Request(NOW_US, b"", None, "/webhooks", None, {}, bodies)])
        spool.close()
        publish_sync(self._connection, *(Message("events", {"id": number}) for number in ids))
        records = [Record(n, NOW_US // 1000, None, body, ()) for n, body in enumerate(bodies)]
        (batch,) = prepare(encode_batch(records), Rules())
        append(self._connection, [(ensure_topic(self._connection, "shop", 1, {"retention.ms": "-1"}).parts[0], batch)])
        with LogWriter(self._directory / "posts", LogOptions()) as log:
            for number in ids:
                write = create(f"app.bsky.feed.post/{number}", {"$type": "app.bsky.feed.post", "id": number})
                frame = self._repository.commit([write], seq=number, now_us=NOW_US + number)
                log.append_all([Entry(1, 1, logged(NOW_US, frame))])


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_rows_after_a_reset_are_not_taken_for_those_before(project: Project, endpoints: Endpoints) -> None:
    """Some sources delete what counts as delivered: a row that a destination dropped would be nowhere."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url, psycopg.connect(url, autocommit=True) as connection:
        project.write(config(endpoints, url, free_port(), project.directory))
        origins = Origins(connection, url, project.directory)
        origins.add(OLD)
        run(project)
        first, *others = SOURCES
        assert project.run("reset", first, "--yes").returncode == 0
        for name in others:  # a process for each would take longer than the pipelines
            reset_stopped(load(project.directory / "headgate.toml"), name)
        origins.add(NEW)
        run(project)
        assert connection.execute("select count(*) from jobs").fetchone() == (0,)
    before = {name: [*OLD] for name in SOURCES} | {"orders": [*range(10)]}
    expected = {name: Counter(before[name] + AGAIN.get(name, STILL_THERE)) for name in SOURCES}
    assert {name: Counter(written(project, name)) for name in SOURCES} == expected
    assert {name: Counter(sent(endpoints, name)) for name in SOURCES} == expected


def sent(endpoints: Endpoints, name: str) -> list[int]:
    return [json.loads(message.data)["id"] for message in read_stream(endpoints.nats_url, stream(name), 0)]


def written(project: Project, name: str) -> list[int]:
    rows = open_table(str(project.directory / f".headgate/tables/{name}-files")).to_table()
    return [json.loads(payload)["id"] for payload in rows.column("payload").to_pylist()]


def run(project: Project) -> None:
    done = project.run("run", "--once", timeout_s=300)
    assert done.returncode == 0, done.stderr
