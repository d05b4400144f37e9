"""What `explain` says of a row is what becomes of it: generated rows through real pipelines, to every kind of
destination that can be had here, compared row by row; before the pipeline runs and while it does."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from pyspark.sql import SparkSession

from headgate.broker import install
from headgate.commitlog.install import install as install_log
from headgate.config import Config
from headgate.destinations.kafka import close_idle_clients
from headgate.embedded import Endpoints, Stack
from headgate.pipeline.assemble import assemble
from headgate.pipeline.routing.explain import Explanation
from headgate.pipeline.sampling import explain_samples
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.spool.frames import Request
from headgate.spool.spool import Spool
from tests.gateway.servers import new_database, running
from tests.integration.routing.conftest import Receive

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROWS = 200
KINDS = ["a", "b", "c.d", "denied", "not a name", "", "x*", "late", "1", "1.5", "true", "null", "é"]
ODD: list[Any] = [None, 1, 0, -3, 1.5, 1e3, True, False, [], ["a"], {}, {"k": "a"}, '{"k": "b"}', '"a"', "[1]", "{"]
SUBJECTS = ["a", "b.>", "c.>", "0.>", "1.>", "rest", "rest.>", "ta", "one.>"]
BREAKER = {"failure_threshold": 1, "cool_down": "1h"}
DESTINATIONS: dict[str, dict[str, Any]] = {
    "memory": {"type": "memory", "max_rows": 100_000},
    "log": {"type": "log", "partitions": 1},
    "events": {"type": "broker"},
    "files": {"type": "table"},
    "records": {"type": "eventlog"},
    # Its stream takes some of the topics only.
    "stream": {"type": "nats", "stream": "EXPLAINED", "subjects": SUBJECTS, "exclusive": False},
    "cluster": {"type": "kafka"},
    "hook": {"type": "webhook"},
}


def generated(seed: int) -> list[dict[str, Any]]:
    """Rows of every sort that a route may meet: other types, JSON in text, names with dots, and nothing at all."""
    pick = random.Random(seed)

    def value(depth: int = 0) -> Any:
        choice = pick.random()
        if choice < 0.55:
            return pick.choice(KINDS)
        if choice < 0.75 or depth > 2:
            return pick.choice(ODD)
        inner = {pick.choice(["k", "k.l", "type", "l"]): value(depth + 1) for _ in range(pick.randrange(3))}
        return json.dumps(inner) if choice < 0.85 else inner

    names = ["kind", "doc", "doc.k", "part", "stream", "unknown"]
    return [{name: value() for name in names if pick.random() < 0.8} | {"id": n} for n in range(ROWS)]


ROUTINGS: dict[str, dict[str, Any]] = {
    "columns": {
        "routing": {
            "topic_column": "kind",
            "default_topic": "rest",
            "partition_key_column": "part",
            "partition_key_encoding": "partition_id",
            "topic_defaults": {"partitions_count": 2},
            "admission": {
                "mode": "denylist",
                "denylist": [{"topic": "denied"}],
                "max_destinations": 4,
                "on_admission_failure": "dlq",
            },
            "circuit_breaker": BREAKER,
        }
    },
    "nested": {
        "routing": {"admission": {"on_admission_failure": "dlq"}, "circuit_breaker": BREAKER},
        "transforms": [
            {"type": "filter", "where": "ID % 7 <> 3"},
            {"type": "route", "field": "doc.k", "match": "all", "mapping": {"a": "ta", "b": ["tb", "tc"], "1": "one"}},
            {"type": "route", "field": ["kind", "doc.type"], "mapping": {"a/b": "ab"}, "default_topic": "other"},
        ],
    },
}
COLUMNS = "id bigint, kind string, doc string, part string, stream string, `doc.k` string"
SOURCES = ("files", "webhook")


class Servers(NamedTuple):
    """Where the destinations are."""

    postgres: str
    nats: str
    kafka: str
    hook: str


@pytest.fixture(scope="module")
def url(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as made:
        with psycopg.connect(made, autocommit=True) as connection:
            install(connection)
            install_log(connection)
        yield made


@pytest.fixture(scope="module")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own: the topics are those of rows, and a stream of another test may have such subjects."""
    with Stack(tmp_path_factory.mktemp("nats"), postgres=False) as endpoints:
        assert endpoints.nats_url is not None
        yield endpoints.nats_url


@pytest.fixture(scope="module")
def kafka(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as made, running(made) as gateway:
        yield gateway.bootstrap
        close_idle_clients()


@pytest.fixture
def servers(url: str, nats_url: str, kafka: str, receive: Receive) -> Servers:
    return Servers(url, nats_url, kafka, hook=receive()[0])


def configured(directory: Path, servers: Servers, routing: str, source: str) -> tuple[Config, PipelineSpec]:
    sources = {
        "files": {"type": "files", "path": str(directory / "in"), "format": "jsonl", "row_schema": COLUMNS},
        "webhook": {"type": "webhook", "port": 0},
    }
    destinations = {
        name: dict(section)
        | ({"topic": f"{routing}-{source}.{{topic}}"} if name in ("log", "events", "records") else {})
        for name, section in DESTINATIONS.items()
    }
    destinations["cluster"]["servers"] = servers.kafka
    destinations["hook"]["url"] = servers.hook
    number = "id" if source == "files" else "get_json_object(body, '$.id')"
    routes = json.loads(json.dumps(ROUTINGS[routing]).replace("ID %", f"{number} %"))
    config = Config.model_validate(
        {
            "project": {"name": f"{routing}-{source}", "data_dir": directory / "data"},
            "postgres": {"url": servers.postgres},
            "nats": {"url": servers.nats},
            "sources": {"rows": sources[source]},
            "destinations": destinations,
            "pipelines": {"p": {"source": "rows", "destinations": list(destinations), **routes}},
        }
    )
    (spec,) = assemble(config, nats_url=servers.nats, postgres_url=servers.postgres, until_caught_up=True)
    return config, spec


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("routing", ROUTINGS)
def test_rows_go_where_it_was_said(
    spark: SparkSession, servers: Servers, tmp_path: Path, routing: str, source: str
) -> None:
    config, spec = configured(tmp_path, servers, routing, source)
    rows = generated(len(routing) + len(source))
    assert spec.routing is not None
    before, _ = explain_samples(spark, spec, rows, spec.routing)
    supply(tmp_path, config, source, rows)
    supervisor = Supervisor(spec, spark)
    supervisor.start()
    assert supervisor.join(240), (supervisor.report.error, supervisor.report.last_error)
    assert supervisor.report.error is None, supervisor.report.error
    assert supervisor.routing is not None
    happened = outcome(supervisor)
    differing = {n: (said(each), happened.get(n)) for n, each in enumerate(before) if said(each) != happened.get(n, {})}
    assert differing == {}
    after, _ = explain_samples(spark, spec, rows, supervisor.routing.settings, supervisor.routing.table)
    assert [said(each) for each in after] == [said(each) for each in before]
    kinds = {what for each in happened.values() for what in each.values()}
    assert "sent" in kinds, "the generator is of use"


def supply(directory: Path, config: Config, source: str, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps(row) for row in rows]
    if source == "files":
        (directory / "in").mkdir()
        (directory / "in/rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return
    spool = Spool(config.project.data_dir / "webhooks/rows")
    spool.append([Request(1, b"", None, "/webhooks", None, {}, [line.encode() for line in lines])])
    spool.close()


def said(each: Explanation) -> dict[str, str]:
    """Destinations of a row: `sent`, or why not. The memory destination knows neither partitions nor circuits.

    What fails opens its circuit at once, and is refused for that.
    """
    found = {}
    for verdict in each.verdicts:
        admission = re.sub(
            r"fails: [^;]*", "refused: circuit_open -> dlq", verdict.admission.removeprefix("admitted; ")
        )
        refused = admission.partition("refused: ")[2].partition(" ->")[0]
        is_taken = verdict.admission.startswith("admitted")
        found[verdict.destination] = (
            "sent" if is_taken and not refused else f"partly {refused}" if is_taken else refused
        )
    return found


def outcome(supervisor: Supervisor) -> dict[int, dict[str, str]]:
    """The same, as it happened: what reached the memory destination, and the dead letters."""
    found: dict[int, dict[str, str]] = {}
    memory = next(each for each in supervisor.spec.destinations if each.name == "memory")
    for message in memory.messages:  # type: ignore[attr-defined]
        found.setdefault(row_of(message.payload), {})[message.topic] = "sent"
    letters = supervisor.routing.dead_letters.list(limit=100_000)  # type: ignore[union-attr]
    for letter in sorted(letters, key=lambda each: each.destination, reverse=True):  # the first one is told
        there = found.setdefault(row_of(letter.payload or b""), {})
        is_there = there.get(letter.wanted.topic, "").startswith(("sent", "partly"))
        there[letter.wanted.topic] = f"partly {letter.reason}" if is_there else letter.reason
    return found


def row_of(payload: bytes) -> int:
    fields = json.loads(payload)
    fields = json.loads(fields["body"]) if "body" in fields else fields
    return int(fields["id"])
