"""Debezium's messages with their schemas in a registry, as confluent-kafka's deserializer reads and checks them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from psycopg.conninfo import make_conninfo

from headgate.model import AuthError, ConfigError, ConnectError, StateError, UsageError
from headgate.registry.http.server import RegistryServer
from headgate.registry.options import RegistryOptions
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.ranges import Range
from headgate.sources.postgres_cdc.spool import SpoolIndex
from tests.integration.cdc.conftest import Admin, every_version
from tests.integration.cdc.watching import rows, wait_until
from tests.registries import running_registry

pytestmark = pytest.mark.timeout(120)

Start = Callable[..., ReaderProcess]
Row = dict[str, Any]

PASSWORD = "secret-enough"
WORK = Path("conformance/debezium/work.sql")
SETS: list[Row] = [
    {},
    {"unwrap": True},
    {"time_precision_mode": "connect", "decimal_handling_mode": "string", "hstore_handling_mode": "map"},
    {"time_precision_mode": "isostring", "decimal_handling_mode": "double", "binary_handling_mode": "hex"},
]


@pytest.fixture
def registry(server: Any) -> Iterator[RegistryServer]:
    """With a database of its own, beside that of the tables."""
    name = f"registry_{uuid4().hex[:12]}"
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"create database {name}".encode())
        url = make_conninfo(server.url, dbname=name)
        with running_registry(RegistryOptions(postgres_url=url, port=0, users={"ann": PASSWORD})) as running:
            yield running
        admin.execute(f"drop database {name} with (force)".encode())


def address(registry: RegistryServer, password: str = PASSWORD) -> str:
    return registry.url.replace("://", f"://ann:{password}@")


def decoded(url: str, spool: Path, registry: str = "", **debezium: Any) -> list[Row]:
    """Every row of the spool, with its key."""
    given = {"url": url, "slot": "s", "publication": "p", "spool": str(spool), "format": "debezium"}
    given |= {"subject": "{schema}.{table}", "schemaRegistry": registry, "debezium": json.dumps(debezium)}
    options = CdcOptions.from_spark(given)
    index = SpoolIndex(spool)
    index.refresh()
    range_ = Range.of(options.spool_dir, 0, index.end_lsn, "1", 1, (), index.slices(0, index.end_lsn))
    return [row for batch in range_.decode(options, keys=True) for row in batch.to_pylist()]


class Deserializer:
    """What a consumer has: keys and values by the ids of their schemas."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self.client = client
        self._deserialize = JSONDeserializer(None, schema_registry_client=client)

    def __call__(self, row: Row, field: MessageField) -> Any:
        data = row["_partition_key"] if field == MessageField.KEY else row["_payload"]
        return self._deserialize(data, SerializationContext(row["_topic"], field))


@pytest.fixture
def deserialize(registry: RegistryServer) -> Iterator[Deserializer]:
    with SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": f"ann:{PASSWORD}"}) as client:
        yield Deserializer(client)


def parsed(text: bytes | None) -> Any:
    return json.loads(text) if text else None


def timeless(event: Any) -> Any:
    """Drop the clock of an event."""
    return event and {name: part for name, part in event.items() if not name.startswith("ts_")}


@every_version
def test_a_consumer_reads_every_type_and_change(
    admin: Admin, reader: Start, url: str, spool: Path, registry: RegistryServer, deserialize: Deserializer
) -> None:
    tables, work = WORK.read_text().split("-- begin\n")
    admin.execute(tables.encode())
    admin.execute("alter publication p add table every, keyed, by_index, whole, whole_keyed, large, appended, done")
    reader().ensure()
    for statement in work.split(";\n"):
        admin.execute(statement.encode())
    wait_until(lambda: any(row["_topic"] == "public.done" for row in decoded(url, spool)))
    for chosen in SETS:
        framed, bare = decoded(url, spool, address(registry), **chosen), decoded(url, spool, **chosen)
        assert len(framed) == len(bare) > 30
        for row, expected in zip(framed, bare, strict=True):
            assert (row["_topic"], row["_position"]) == (expected["_topic"], expected["_position"])
            assert timeless(deserialize(row, MessageField.VALUE)) == timeless(parsed(expected["_payload"]))
            assert deserialize(row, MessageField.KEY) == parsed(expected["_partition_key"])
        for subject in deserialize.client.get_subjects():  # other options, other types: rightly refused
            deserialize.client.set_compatibility(subject, "NONE")
    assert {"public.every-key", "public.every-value", "message.prefix-value"} <= set(deserialize.client.get_subjects())


def test_a_new_column_is_a_version_and_a_lost_one_is_refused(
    admin: Admin, reader: Start, url: str, spool: Path, registry: RegistryServer, deserialize: Deserializer
) -> None:
    reader().ensure()
    admin.execute("insert into t values (1, 'x')")
    admin.execute("alter table t add size int not null default 3")
    admin.execute("insert into t values (2, 'y', 4)")
    wait_until(lambda: rows(spool) == 2)
    found = decoded(url, spool, address(registry), unwrap=True)
    values = [deserialize(row, MessageField.VALUE) for row in found]
    assert values == [{"id": 1, "note": "x"}, {"id": 2, "note": "y", "size": 4}]
    assert deserialize.client.get_versions("public.t-value") == [1, 2]
    assert deserialize.client.get_versions("public.t-key") == [1]
    admin.execute("alter table t drop note")
    admin.execute("insert into t values (3, 5)")
    wait_until(lambda: rows(spool) == 3)
    with pytest.raises(StateError, match=r"public\.t-value") as refused:
        decoded(url, spool, address(registry), unwrap=True)
    assert "NONE" in (refused.value.remedy or "")
    deserialize.client.set_compatibility("public.t-value", "NONE")
    assert deserialize(decoded(url, spool, address(registry), unwrap=True)[-1], MessageField.VALUE)["size"] == 5
    # Shapes of before, once more: the ids that they had.
    again = decoded(url, spool, address(registry), unwrap=True)
    assert [row["_payload"] for row in again[:2]] == [row["_payload"] for row in found]


def test_errors_say_what_to_do_and_no_password(
    admin: Admin, reader: Start, url: str, spool: Path, registry: RegistryServer, caplog: pytest.LogCaptureFixture
) -> None:
    reader().ensure()
    admin.execute("insert into t values (1, 'x')")
    wait_until(lambda: rows(spool) == 1)
    caplog.set_level("DEBUG")
    with pytest.raises(AuthError, match="lets nobody in") as refused:
        decoded(url, spool, address(registry, "another-secret"))
    with pytest.raises(ConnectError, match="does not answer") as silent:
        decoded(url, spool, "http://ann:another-secret@127.0.0.1:1")
    with pytest.raises(ConfigError, match="404"):
        decoded(url, spool, address(registry) + "/elsewhere")
    with pytest.raises(ConnectError, match="does not answer"):
        decoded(url, spool, "no address")
    assert decoded(url, spool, address(registry) + "/")
    texts = caplog.text + refused.value.to_text() + silent.value.to_text()
    assert "another-secret" not in texts
    assert PASSWORD not in texts


@pytest.mark.parametrize(
    "changes",
    [{"format": "json"}, {"subject": "cdc.{schema}.{table}.{op}"}, {"debezium": '{"schemas_enable": true}'}],
    ids=["format", "subject", "twice"],
)
def test_messages_that_have_no_place_for_it_are_refused(changes: dict[str, str]) -> None:
    given = {"url": "", "slot": "s", "publication": "p", "spool": "x", "format": "debezium", "subject": "{table}"}
    CdcOptions.from_spark({**given, "schemaRegistry": "http://127.0.0.1:8081"})
    with pytest.raises(UsageError, match="registry"):
        CdcOptions.from_spark({**given, "schemaRegistry": "http://127.0.0.1:8081", **changes})
