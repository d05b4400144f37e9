"""Kafka clients while gateways and PostgreSQL are killed: what was acknowledged is there, once and in order."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.embedded import Stack
from tests.acceptance.conftest import HEADGATE
from tests.cdc import Chaos, Fault, Victim, crash, kill, restart
from tests.gateway.history import History, check
from tests.gateway.workers import Reader, Writer, read_log, wait_until

pytestmark = pytest.mark.timeout(300)

TOPIC, PARTITIONS, SECONDS = "orders", 3, 25


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


CANNOT_CONNECT = 4  # how a gateway ends that has no PostgreSQL when it starts


def gateway_process(directory: Path, url: str, port: int) -> Victim:
    config = directory / f"gateway-{port}.toml"
    config.write_text(f'[postgres]\nurl = "{url}"\n[gateway]\nport = {port}\n')

    def start() -> subprocess.Popen[bytes]:
        with (directory / "gateways.log").open("ab") as log:
            command = [HEADGATE, "gateway", "--config", str(config)]
            return subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)

    return Victim(start, may_end_with=CANNOT_CONNECT)


def end_backends(url: str) -> Fault:
    """End all connections of the gateways, from the server's side."""

    def strike(_rng: object) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where pid <> pg_backend_pid() and backend_type = 'client backend'"
            )

    return Fault("end of all connections", strike, 2)


def test_nothing_is_lost_repeated_or_reordered(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "stack", nats=False, durable=True)
    with stack as endpoints:
        assert stack.postgres is not None
        url = endpoints.postgres_url
        assert url is not None
        ports = [free_port(), free_port()]
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        with gateway_process(tmp_path, url, ports[0]) as first, gateway_process(tmp_path, url, ports[1]) as second:
            wait_until(lambda: all(map(listening, ports)), 240, "the gateways do not start")
            admin = AdminClient({"bootstrap.servers": servers})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(20)
            history = History()
            writers = [Writer(f"w{n}", servers, TOPIC, PARTITIONS, history, per_second=300) for n in range(2)]
            readers = [Reader(f"r{n}", servers, TOPIC, "group", history) for n in range(2)]
            for worker in (*readers, *writers):
                worker.start()
            faults = [
                kill(first, weight=2),
                kill(second, weight=2),
                end_backends(url),
                restart(stack.postgres),
                crash(stack.postgres),
            ]
            began = time.monotonic()
            strikes = Chaos(seed=5, faults=faults, count=8, seconds=SECONDS, pause_s=(1, 3)).run()
            assert len(strikes) >= 5, strikes
            for gateway in (first, second):
                if not gateway.alive():  # it was about to start when PostgreSQL went away
                    gateway.start()
            for writer in writers:
                writer.stop(120)
            log = read_log(servers, TOPIC, PARTITIONS)
            ends = {partition: len(messages) for partition, messages in log.items()}

            def caught_up() -> bool:
                reached = {p: max(reader.reached.get(p, 0) for reader in readers) for p in ends}
                return reached == ends

            wait_until(caught_up, 60, f"the readers do not catch up: {[reader.reached for reader in readers]}, {ends}")
            for reader in readers:
                reader.stop(60)
            assert check(history, log, exactly_once=True) == [], strikes
            assert sum(ends.values()) > 1000, (ends, time.monotonic() - began)
