"""A pipeline that is reset delivers what is there now: no row is taken for one of before the reset."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import psycopg
import pytest

from headgate.embedded import Endpoints
from tests.acceptance.conftest import Project
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

STREAMS = {"jobs": "RESET_JOBS", "lines": "RESET_LINES", "orders": "RESET_ORDERS"}


def config(endpoints: Endpoints, directory: str) -> str:
    destinations = "".join(
        f'[destinations.{name}]\ntype = "nats"\nstream = "{stream}"\nsubjects = ["reset.{name}.>"]\n'
        f'[pipelines.{name}]\nsource = "{name}"\ndestinations = ["{name}"]\ntopic = "reset.{name}.all"\n'
        for name, stream in STREAMS.items()
    )
    return f"""
[control]
port = 0
[postgres]
url = "{endpoints.postgres_url}"
[nats]
url = "{endpoints.nats_url}"
[sources.jobs]
type = "postgres-poll"
table = "reset_jobs"
tracking_column = "id"
delete_after_read = true
[sources.lines]
type = "files"
path = "{directory}"
format = "jsonl"
row_schema = "id bigint"
[sources.orders]
type = "random"
rows_per_second = 1000
rows = 10
{destinations}
"""


def ids(endpoints: Endpoints, name: str, expected: int) -> list[int]:
    messages = read_stream(endpoints.nats_url, STREAMS[name], expected)
    return [json.loads(message.data)["id"] for message in messages]


def test_rows_after_a_reset_are_not_taken_for_those_before(project: Project, endpoints: Endpoints) -> None:
    """Polled rows are deleted once they count as delivered: one that a destination dropped would be nowhere."""
    lines = project.directory / "lines"
    lines.mkdir()
    (lines / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    project.write(config(endpoints, str(lines)))
    assert endpoints.postgres_url is not None
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as connection:
        connection.execute("drop table if exists reset_jobs; create table reset_jobs (id bigint primary key)")
        connection.execute("insert into reset_jobs select generate_series(1, 10)")
        run(project)
        assert count(connection) == 0
        for name in STREAMS:
            assert project.run("reset", name, "--yes").returncode == 0
        connection.execute("insert into reset_jobs select generate_series(101, 110)")
        (lines / "a.jsonl").write_text('{"id": 3}\n{"id": 4}\n')
        run(project)
        assert count(connection) == 0
        connection.execute("drop table reset_jobs")
    assert ids(endpoints, "jobs", 20) == [*range(1, 11), *range(101, 111)]
    assert Counter(ids(endpoints, "lines", 4)) == Counter([1, 2, 3, 4])
    assert ids(endpoints, "orders", 20) == [*range(10), *range(10)]


def run(project: Project) -> None:
    done = project.run("run", "--once")
    assert done.returncode == 0, done.stderr


def count(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("select count(*) from reset_jobs").fetchone()
    assert row is not None
    return int(row[0])
