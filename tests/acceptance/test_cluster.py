"""The same file on a cluster: executors on other machines, with nothing of the driver's memory, disk or loopback."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from headgate.embedded import Endpoints
from tests.acceptance.conftest import Project
from tests.cdc.proxy import Proxy
from tests.cluster import Cluster, running_cluster, why_not
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

CONFIG = """
[postgres]
url = "{postgres}"
[nats]
url = "{nats}"
[spark]
master = "{master}"
[spark.conf]
"spark.driver.host" = "{host}"
"spark.executor.memory" = "512m"
[control]
port = 0
[sources.changes]
type = "postgres-cdc"
slot = "cluster"
publication = "cluster"
max_rows_per_batch = 2000
[destinations.changes]
type = "nats"
stream = "CLUSTER"
subjects = ["cdc.cluster.>"]
duplicate_window = "100ms"
[pipelines.changes]
source = "changes"
destinations = ["changes"]
ordering = "key"
tasks = 3
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
KEYS = 200
TRANSACTIONS = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("cluster")
    with running_cluster(directory / "spark", directory / "project") as running:
        yield running


@pytest.fixture
def nats(endpoints: Endpoints, cluster: Cluster) -> Iterator[str]:
    """NATS where workers can reach it."""
    assert endpoints.nats_url is not None
    with Proxy(int(endpoints.nats_url.rpartition(":")[2]), cluster.host) as proxy:
        yield f"nats://{cluster.host}:{proxy.port}"


class Writer:
    """Changes rows until it has done what it was made for; every change of a key has the next number."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.done = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(120)

    def _write(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            for number in range(TRANSACTIONS):
                with connection.transaction():
                    connection.execute("update cluster.t set number = number + 1, note = repeat('x', id % 300)")
                    if number % 20 == 10:  # about more than one key: these are not shared out
                        connection.execute("update cluster.t set id = id + 1000 where id = %s", [number])
                        connection.execute("truncate cluster.log")
                    connection.execute("insert into cluster.log values (%s)", [number])
                self.done = number + 1


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def recorded(project: Project) -> int:
    state = project.directory / ".headgate/pipelines/changes/state.json"
    return int(json.loads(state.read_text())["rows"]) if state.exists() else 0


def test_executors_and_a_driver_that_die_lose_repeat_and_reorder_nothing(
    cluster: Cluster, endpoints: Endpoints, nats: str
) -> None:
    postgres = endpoints.postgres_url
    assert postgres is not None
    project = Project(cluster.hidden)
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute("create schema cluster; create table cluster.t (id int primary key, number int, note text)")
        admin.execute("create table cluster.log (number int primary key)")
        admin.execute("create publication cluster for tables in schema cluster")
        admin.execute("select pg_create_logical_replication_slot('cluster', 'pgoutput')")
        admin.execute("insert into cluster.t select g, 0, '' from generate_series(1, %s) g", [KEYS])
    project.write(CONFIG.format(postgres=postgres, nats=nats, master=cluster.master, host=cluster.host))
    with Writer(postgres) as writer:
        process = project.start("run")
        wait_for(lambda: recorded(project) >= 2000, process)
        victim = cluster.executors()[0]
        victim.send_signal(signal.SIGKILL)
        reached = recorded(project)
        wait_for(lambda: recorded(project) >= reached + 4000, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert writer.done == TRANSACTIONS
    done = project.run("run", "--once", timeout_s=240)
    assert done.returncode == 0, done.stderr
    _check_changes(postgres, endpoints)
    numbers = [json.loads(message.data) for message in read_stream(endpoints.nats_url, "NUMBERS", 1000)]
    assert len(numbers) == 1000
    assert all("twice" in row for row in numbers)


def _check_changes(postgres: str, endpoints: Endpoints) -> None:
    """Every change once, and those of a key in their order."""
    with psycopg.connect(postgres) as admin:
        rows: dict[int, int] = dict(admin.execute("select id, number from cluster.t").fetchall())
    messages = [msgspec.msgpack.decode(each.data) for each in read_stream(endpoints.nats_url, "CLUSTER", 0)]
    changes = [each for each in messages if each["operation"] in ("INSERT", "UPDATE", "DELETE", "TRUNCATE")]
    ids = [each["msg_id"] for each in changes]
    assert len(ids) == len(set(ids))
    assert ids != sorted(ids)  # tasks sent side by side
    of_key: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for each in changes:
        if each["table"] == "t":
            of_key[each["data"]["id"]].append(each)
    for key, number in rows.items():
        history = of_key[key % 1000] + (of_key[key] if key > 1000 else [])
        assert [each["msg_id"] for each in history] == sorted(each["msg_id"] for each in history)
        assert [each["data"]["number"] for each in history if "number" in each["data"]][-1] == number == TRANSACTIONS
    moves = TRANSACTIONS // 20
    assert sum(each["table"] == "t" for each in changes) == KEYS * (TRANSACTIONS + 1) + moves
    assert sum(each["operation"] == "TRUNCATE" for each in changes) == moves
