"""Limits of clients: set by Kafka's clients and with SQL, enforced on whoever they are for and on nobody else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import psycopg
import pytest

from headgate.embedded import Endpoints
from headgate.gateway.quotas import Metric
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages import cluster, fetch, produce
from headgate.wire.kafka.messages.security import (
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterQuota,
    DescribeClientQuotasRequest,
    QuotaComponent,
    QuotaEntity,
    QuotaOperation,
)
from tests.gateway.access import USERS, login
from tests.gateway.raw import RawClient, fetch_request, produce_request
from tests.gateway.servers import GatewayThread, new_database, running

Parts = dict[str, str | None]


@pytest.fixture(scope="module")
def gateway(endpoints: Endpoints) -> Iterator[GatewayThread]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url, running(url, users=USERS) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_is_limited(gateway: GatewayThread) -> Iterator[None]:
    yield
    limit(gateway, "delete from kafka.quotas")


def limit(gateway: GatewayThread, statement: str) -> None:
    """Change quotas with SQL; when it returns the gateway knows."""
    with psycopg.connect(gateway.gateway.options.postgres_url, autocommit=True) as connection:
        connection.execute(statement.encode())
    services = gateway.gateway.services
    gateway.call(services.meter.refresh(services.store.pool))


def alter(client: RawClient, parts: Mapping[str, str | None], *, is_trial: bool = False, **values: float | None) -> int:
    entity = tuple(QuotaEntity(kind, name) for kind, name in parts.items())
    ops = tuple(QuotaOperation(key, value or 0.0, value is None) for key, value in values.items())
    request = AlterClientQuotasRequest(entries=(AlterQuota(entity, ops),), validate_only=is_trial)
    (result,) = client.ask(ALTER_CLIENT_QUOTAS, 1, request).entries
    assert bool(result.error_message) == bool(result.error_code)
    return int(result.error_code)


def shown(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[Parts, dict[str, float]]]:
    request = DescribeClientQuotasRequest(tuple(QuotaComponent(*each) for each in components), strict)
    answer = client.ask(DESCRIBE_CLIENT_QUOTAS, 1, request)
    assert answer.error_code == 0
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]


def test_quotas_are_set_shown_and_removed(gateway: GatewayThread) -> None:
    alice, anybody, both = {"user": "alice"}, {"user": None}, {"user": "alice", "client-id": "raw"}
    with login(gateway, "admin") as client:
        assert alter(client, alice, producer_byte_rate=1000.0, request_percentage=50.0) == 0
        assert alter(client, anybody, consumer_byte_rate=7.5) == 0
        assert alter(client, both, producer_byte_rate=3.0) == 0
        assert alter(client, {"client-id": "trial"}, is_trial=True, producer_byte_rate=3.0) == 0
        mine = (alice, {"producer_byte_rate": 1000.0, "request_percentage": 50.0})
        default, together = (anybody, {"consumer_byte_rate": 7.5}), (both, {"producer_byte_rate": 3.0})
        assert shown(client) == [default, mine, together]
        assert shown(client, ("user", 0, "alice")) == [mine, together]
        assert shown(client, ("user", 0, "alice"), strict=True) == [mine]
        assert shown(client, ("user", 1, None)) == [default]
        assert shown(client, ("user", 2, None), ("client-id", 2, None)) == [together]
        assert shown(client, ("client-id", 0, "x")) == []
        assert alter(client, alice, producer_byte_rate=2000.0, request_percentage=None) == 0
        assert shown(client, ("user", 0, "alice"), strict=True) == [(alice, {"producer_byte_rate": 2000.0})]
        assert alter(client, alice, producer_byte_rate=None) == 0
        assert shown(client, ("user", 0, "alice"), strict=True) == []


@pytest.mark.parametrize(
    ("parts", "values"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "*"}, {"producer_byte_rate": 1.0}),
        ({"user": "a\0"}, {"producer_byte_rate": 1.0}),
        ({"client-id": "x" * 1001}, {"producer_byte_rate": 1.0}),
        ({"user": "a"}, {"controller_mutation_rate": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": 0.0}),
        ({"user": "a"}, {"producer_byte_rate": -1.0}),
        ({"user": "a"}, {"producer_byte_rate": float("nan")}),
        ({"user": "a"}, {"producer_byte_rate": float("inf")}),
    ],
    ids=str,
)
def test_what_is_no_quota_is_refused(gateway: GatewayThread, parts: Parts, values: dict[str, float]) -> None:
    with login(gateway, "admin") as client:
        assert alter(client, parts, is_trial=False, **values) == ErrorCode.INVALID_REQUEST
        assert shown(client) == []


@pytest.mark.parametrize("wrong", [("ip", 0, "a"), ("user", 3, None), ("user", 0, None), ("user", 1, "a")], ids=str)
def test_what_is_no_filter_is_refused(gateway: GatewayThread, wrong: tuple[str, int, str | None]) -> None:
    with login(gateway, "admin") as client:
        request = DescribeClientQuotasRequest((QuotaComponent(*wrong),))
        answer = client.ask(DESCRIBE_CLIENT_QUOTAS, 1, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert not answer.entries


def test_a_producer_is_told_to_wait_and_made_to(gateway: GatewayThread, topic: str) -> None:
    limit(gateway, "insert into kafka.quotas values ('alice', '', 'producer_byte_rate', 10000)")
    before = gateway.gateway.metrics.throttled_total
    with login(gateway, "alice") as client, login(gateway, "bob") as other:
        client.create(topic)
        assert client.produce(topic, b"x" * 100).throttle_time_ms == 0
        throttled = client.produce(topic, b"x" * 19_000)
        answered_at = time.monotonic()
        assert throttled.responses[0].partition_responses[0].error_code == 0, "what was sent is written"
        assert 500 <= throttled.throttle_time_ms <= 2100
        assert other.produce(topic, b"x" * 19_000).throttle_time_ms == 0, "others do not wait"
        assert time.monotonic() - answered_at < throttled.throttle_time_ms / 1000
        client.ask(cluster.METADATA, 9, cluster.MetadataRequest(topics=()))
        assert time.monotonic() - answered_at >= throttled.throttle_time_ms / 1000 - 0.05, "it is not listened to"
    assert gateway.gateway.metrics.throttled_total == before + 1


def test_a_producer_that_wants_no_answer_waits_too(gateway: GatewayThread, topic: str) -> None:
    limit(gateway, "insert into kafka.quotas values ('alice', '', 'producer_byte_rate', 20000)")
    with login(gateway, "alice") as client:
        client.create(topic)
        began, metrics = time.monotonic(), gateway.gateway.metrics
        before = metrics.throttled_total
        client.send(produce.PRODUCE, 9, produce_request(topic, b"x" * 30_000, acks=0))
        with login(gateway, "bob") as other:
            while metrics.throttled_total == before:
                other.ask(cluster.METADATA, 9, cluster.MetadataRequest(topics=()))
            other.ask(cluster.METADATA, 9, cluster.MetadataRequest(topics=()))  # what came before has left by then
        client.ask(cluster.METADATA, 9, cluster.MetadataRequest(topics=()))
        assert time.monotonic() - began >= 0.4


def test_readers_share_the_limit_of_their_user(gateway: GatewayThread, topic: str) -> None:
    with login(gateway, "bob") as client:
        client.create(topic)
        client.produce(topic, b"x" * 20_000)
    limit(gateway, "insert into kafka.quotas values ('*', '', 'consumer_byte_rate', 10000)")
    with login(gateway, "alice") as client, login(gateway, "alice") as second, login(gateway, "bob") as other:
        first = client.fetch(topic)
        assert first.responses[0].partitions[0].records
        assert 500 <= first.throttle_time_ms <= 2100  # two seconds, less what alice has saved in tests before
        held = second.fetch(topic)
        assert held.responses == ()
        assert held.throttle_time_ms > 0
        assert other.fetch(topic).responses[0].partitions[0].records, "bob has a limit of his own"
        again = second.fetch(topic)  # after the time that it was told
        assert again.responses[0].partitions[0].records


def test_a_session_goes_on_after_a_wait(gateway: GatewayThread, topic: str) -> None:
    with login(gateway, "bob") as client:
        client.create(topic)
        client.produce(topic, b"x" * 20_000)
    with login(gateway, "alice") as client, login(gateway, "alice") as second:
        request = fetch_request(topic, 1)
        begun = client.ask(
            fetch.FETCH, 11, fetch.FetchRequest(max_bytes=1 << 20, session_epoch=0, topics=request.topics)
        )
        assert begun.session_id
        limit(gateway, "insert into kafka.quotas values ('alice', '', 'consumer_byte_rate', 10000)")
        second.fetch(topic)
        for epoch in (1, 2):
            again = fetch.FetchRequest(max_bytes=1 << 20, session_id=begun.session_id, session_epoch=epoch)
            answer = client.ask(fetch.FETCH, 11, again)
            assert (answer.error_code, answer.session_id) == (0, begun.session_id)
            assert bool(answer.throttle_time_ms) == (epoch == 1)


def test_requests_are_counted_by_their_time(gateway: GatewayThread, topic: str) -> None:
    limit(gateway, "insert into kafka.quotas values ('', 'raw', 'request_percentage', 0.1)")
    request = cluster.MetadataRequest(topics=None)
    with login(gateway, "alice") as client:
        waits = (client.ask(cluster.METADATA, 9, request).throttle_time_ms for _ in range(1000))
        assert next(filter(None, waits)) > 0


def test_a_row_of_nonsense_limits_nobody(fresh_database: str, topic: str) -> None:
    with running(fresh_database, users=USERS) as gateway, login(gateway, "alice") as client:
        client.create(topic)
        limit(
            gateway,
            "alter table kafka.quotas drop constraint quotas_value_check, drop constraint quotas_key_check;"
            " insert into kafka.quotas values ('alice', '', 'producer_byte_rate', 'nan'), ('alice', '', 'x', 1),"
            " ('bob', '', 'producer_byte_rate', 10)",
        )
        assert gateway.gateway.told()["quota_rows_not_understood"] == 2
        assert client.produce(topic, b"x" * 10_000).throttle_time_ms == 0
        limits = gateway.gateway.services.meter.limits.of("bob", "")
        assert limits[Metric.PRODUCED].rate == 10


def test_a_drain_waits_for_nobody_who_is_muted(fresh_database: str, topic: str) -> None:
    with running(fresh_database, users=USERS) as gateway, login(gateway, "alice") as client:
        client.create(topic)
        limit(gateway, "insert into kafka.quotas values ('alice', '', 'producer_byte_rate', 10)")
        assert client.produce(topic, b"x" * 10_000).throttle_time_ms == 30_000
        sent = client.send(cluster.METADATA, 9, cluster.MetadataRequest(topics=()))
        began = time.monotonic()
        gateway.stop()
        assert time.monotonic() - began < 8
        assert sent
