"""What goes wrong behind the gateway is answered, and passes."""

from __future__ import annotations

import socket
from contextlib import closing

import psycopg
import pytest
from confluent_kafka import KafkaError, Producer

from headgate.model import OccupiedError
from headgate.runtime.listening import listen
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.produce import INIT_PRODUCER_ID, PRODUCE, InitProducerIdRequest
from headgate.wire.kafka.messages.storage import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from tests.gateway.raw import RawClient, produce_request
from tests.gateway.servers import GatewayThread, running
from tests.integration.gateway.test_gateway_clients import read_confluent

TIMEOUT_S = 20.0


def test_a_handler_that_fails_is_answered_for(
    gateway: GatewayThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(gateway.gateway.services.store, "new_producer_id", broken)
    with RawClient(gateway.port) as client:
        ask = InitProducerIdRequest(transactional_id=None)
        assert client.ask(INIT_PRODUCER_ID, 4, ask).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.undo()
        assert client.ask(INIT_PRODUCER_ID, 4, ask).error_code == 0, "the connection did not survive"
    assert "a handler failed" in caplog.text


def test_a_database_that_does_not_answer_is_told_as_such(
    gateway: GatewayThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> dict[int, int]:
        raise psycopg.OperationalError("the connection is closed")

    monkeypatch.setattr(gateway.gateway.services.store, "sizes", away)
    with RawClient(gateway.port) as client:
        answer = client.ask(DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_one_partition_that_fails_does_not_take_others_with_it(
    gateway: GatewayThread, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """The batch that is in the log says so, or the client would write it again."""
    store = gateway.gateway.services.store
    prepared = store.prepared

    async def sometimes(found: object, index: int, records: bytes, **options: bool) -> object:
        if bytes(records).endswith(b"bad\0"):
            raise RuntimeError("a bug")
        return await prepared(found, index, records, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "prepared", sometimes)
    with RawClient(gateway.port) as client:
        client.create(topic)
        good, bad = produce_request(topic, b"good"), produce_request(topic, b"bad")
        both = type(good)(acks=-1, timeout_ms=10_000, topic_data=good.topic_data + bad.topic_data)
        answer = client.ask(PRODUCE, 9, both)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [0, ErrorCode.UNKNOWN_SERVER_ERROR]


def test_lost_connections_to_the_database_pass(fresh_database: str, topic: str) -> None:
    """All of them are cut while a producer writes: an idempotent producer loses and doubles nothing."""
    errors: list[KafkaError | None] = []
    with running(fresh_database) as gateway, psycopg.connect(fresh_database, autocommit=True) as own:
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for number in range(300):
            producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0.001)
            if number in (100, 200):
                own.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )
        assert producer.flush(TIMEOUT_S) == 0
        assert errors == [None] * 300
        values = [int(message.value() or b"") for message in read_confluent(gateway.bootstrap, topic, 300)]
    assert values == list(range(300))


def _has_ipv6() -> bool:
    try:
        with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")


@needs_ipv6
def test_several_addresses(fresh_database: str) -> None:
    with running(fresh_database, hosts=("127.0.0.1", "::1")) as gateway:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, gateway.port), TIMEOUT_S).close()


@needs_ipv6
def test_all_addresses_of_both_kinds() -> None:
    with listen("::", 0, backlog=2, where="test.port") as listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), TIMEOUT_S).close()
        with pytest.raises(OccupiedError):
            listen("::", port, backlog=1, where="test.port")
