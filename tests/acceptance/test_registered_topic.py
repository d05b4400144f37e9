"""A pipeline, a gateway and a registry of one file: a stock consumer checks rows by their registered schemas."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headgate.embedded.postgres import PostgresServer
from tests.acceptance.conftest import HEADGATE, Project
from tests.acceptance.test_bridge_gaps import wait_until
from tests.acceptance.test_gateway_chaos import free_port
from tests.integration.cdc.conftest import new_server, prepare

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC = "public.customers"


def configure(project: Project, url: str, gateway: int, registry: int) -> None:
    assert project.run("init", "--recipe", "table-topic").returncode == 0
    path = project.directory / "headgate.toml"
    text = path.read_text().replace('url = "embedded" ', f'url = "{url}" ').replace("port = 9092", f"port = {gateway}")
    text = text.replace('format = "debezium"', f'format = "debezium"\nschema_registry = "http://127.0.0.1:{registry}"')
    path.write_text(f"{text}\n[registry]\nenabled = true\nport = {registry}\n\n[control]\nport = 0\n")


def read(servers: str, registry: str, count: int) -> list[tuple[Any, Any]]:
    """Keys and values of a topic, checked by their schemas."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid4().hex, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found: list[tuple[Any, Any]] = []
    with SchemaRegistryClient({"url": registry}) as client:
        deserialize = JSONDeserializer(None, schema_registry_client=client)
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None, f"no more than {len(found)} messages"
            if message.error() is not None:  # the topic is not there yet
                continue
            key = deserialize(message.key(), SerializationContext(TOPIC, MessageField.KEY))
            found.append((key, deserialize(message.value(), SerializationContext(TOPIC, MessageField.VALUE))))
    consumer.close()
    return found


def test_a_stock_consumer_checks_rows_by_their_registered_schemas(project: Project, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    server: PostgresServer = new_server(tmp_path / "server", 18)
    server.start()
    gateway, registry = free_port(), free_port()
    try:
        prepare(server.url)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(
                "create table customers (id bigint primary key, name text); insert into customers values (1, 'ada')"
            )
            configure(project, server.url, gateway, registry)
            checked = project.run("check")
            assert checked.returncode == 0, checked.stdout + checked.stderr
            process = subprocess.Popen([HEADGATE, "run"], cwd=project.directory, stdin=subprocess.DEVNULL)
            try:
                wait_until(lambda: project.status() is not None)
                servers, schemas = f"127.0.0.1:{gateway}", f"http://127.0.0.1:{registry}"
                assert read(servers, schemas, 1) == [({"id": 1}, {"id": 1, "name": "ada"})]
                connection.execute("alter table customers add size int")
                connection.execute("insert into customers values (2, 'bob', 3)")
                connection.execute("delete from customers where id = 1")
                found = read(servers, schemas, 3)
            finally:
                process.terminate()
                assert process.wait(120) == 0
    finally:
        server.stop()
    assert [value for key, value in found if key == {"id": 1}] == [{"id": 1, "name": "ada"}, None]
    assert [value for key, value in found if key == {"id": 2}] == [{"id": 2, "name": "bob", "size": 3}]
