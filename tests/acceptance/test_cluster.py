"""The same file on a cluster: executors that are processes of their own, with nothing of the driver's memory."""

from __future__ import annotations

import json

import msgspec
import psycopg
import pytest

from headgate.embedded import Endpoints
from tests.acceptance.conftest import Project
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CONFIG = """
[postgres]
url = "{postgres}"
[nats]
url = "{nats}"
[spark]
master = "local-cluster[1,2,1024]"
[control]
port = 0
[sources.changes]
type = "postgres-cdc"
slot = "cluster"
publication = "cluster"
[destinations.untouched]
type = "nats"
stream = "CLUSTER"
subjects = ["cdc.cluster.>"]
[pipelines.untouched]
source = "changes"
destinations = ["untouched"]
[sources.numbers]
type = "random"
rows = 1000
[destinations.numbers]
type = "nats"
stream = "NUMBERS"
subjects = ["cluster.>"]
[pipelines.numbers]
source = "numbers"
destinations = ["numbers"]
topic = "cluster.{{kind}}"
[[pipelines.numbers.transforms]]
type = "sql"
query = "select *, amount * 2 as twice from batch"
"""


def test_pipelines_run_on_executors_of_their_own(project: Project, endpoints: Endpoints) -> None:
    assert endpoints.postgres_url is not None
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
        admin.execute("create schema cluster; create table cluster.t (id int primary key, note text)")
        admin.execute("create publication cluster for table cluster.t")
        admin.execute("select pg_create_logical_replication_slot('cluster', 'pgoutput')")
        admin.execute("insert into cluster.t select g, 'n' || g from generate_series(1, 1000) g")
    project.write(CONFIG.format(postgres=endpoints.postgres_url, nats=endpoints.nats_url))
    done = project.run("run", "--once", timeout_s=240)
    assert done.returncode == 0, done.stderr
    changes = read_stream(endpoints.nats_url, "CLUSTER", 1000)
    assert [msgspec.msgpack.decode(message.data)["data"]["id"] for message in changes] == list(range(1, 1001))
    numbers = [json.loads(message.data) for message in read_stream(endpoints.nats_url, "NUMBERS", 1000)]
    assert len(numbers) == 1000
    assert all("twice" in row for row in numbers)
