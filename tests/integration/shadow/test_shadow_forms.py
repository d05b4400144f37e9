"""Batches that cannot go as they are, parts of a topic, and clusters that ask for a login."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4
from zlib import crc32

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.embedded import Endpoints
from headgate.gateway.store import StoreSettings
from headgate.model import AuthError, HeadgateError, StateError
from headgate.shadow.client import Client
from headgate.shadow.digest import digest_there
from tests.apache_kafka import ApacheKafka
from tests.gateway.certificates import write_certificate
from tests.gateway.servers import GatewayThread, new_database, running
from tests.integration.shadow.mirroring import Mirror, consumed, offsets_by_map
from tests.integration.shadow.test_shadow_groups import wait_for
from tests.integration.shadow.test_shadow_mirror import assert_mirrored, create, messages, write


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:10]}"


def compact(url: str, gateway: GatewayThread, topic: str, before: int) -> None:
    """Wait until the housekeeper has removed what was overwritten."""

    def is_thin() -> bool:
        with psycopg.connect(url) as connection:
            row = connection.execute("select count(*) from kafka.messages where topic = %s", [topic]).fetchone()
            return row is not None and row[0] < before

    wait_for(is_thin)


def test_a_compacted_topic_is_mirrored_without_its_gaps(url: str, kafka: ApacheKafka, topic: str) -> None:
    """Before compaction and after it; and the offsets of what was removed lead to what follows."""
    with running(url, store_settings=StoreSettings(compaction_interval_s=0.2)) as gateway:
        compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "0"}
        create(gateway.bootstrap, topic, 1, **compacted)
        rows = [row | {"key": b"k%d" % (i % 4)} for i, row in enumerate(messages(40, 0))]
        write(gateway.bootstrap, topic, rows)
        write(gateway.bootstrap, topic, [row | {"value": b"again"} for row in rows[:20]])
        compact(url, gateway, topic, 60)
        mirror = Mirror(url, kafka.servers).ensure()
        mirror.to_the_end()
        (source,) = assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 1)
        kept = [each[0] for each in source]
        expected = [next((i for i, at in enumerate(kept) if at >= offset), len(kept)) for offset in range(61)]
        assert offsets_by_map(url, topic, 0, list(range(61))) == expected
        write(gateway.bootstrap, topic, rows)
        mirror.to_the_end()
        assert [each[1:] for each in consumed(kafka.servers, topic, 1)[0][: len(kept)]] == [each[1:] for each in source]


def test_times_of_the_log_stay_those_of_the_log(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(gateway.bootstrap, topic, 1, message_timestamp_type="LogAppendTime")
    write(gateway.bootstrap, topic, messages(10, 0))
    Mirror(url, kafka.servers).ensure().to_the_end()
    (source,), (target,) = consumed(gateway.bootstrap, topic, 1), consumed(kafka.servers, topic, 1)
    assert [each[1:4] for each in source] == [each[1:4] for each in target]
    assert [each[4][1] for each in source] == [each[4][1] for each in target]


def test_a_part_of_the_keys(gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str) -> None:
    create(gateway.bootstrap, topic, 1)
    rows = [{"partition": 0, "key": b"key-%d" % (i % 50), "value": b"%d" % i} for i in range(400)]
    write(gateway.bootstrap, topic, rows)
    mirror = Mirror(url, kafka.servers, percent=30).ensure()
    mirror.to_the_end()
    (source,), (target,) = consumed(gateway.bootstrap, topic, 1), consumed(kafka.servers, topic, 1)
    expected = [each for each in source if crc32(each[1]) % 100 < 30]
    assert 0 < len(expected) < 400
    assert [each[1:4] for each in target] == [each[1:4] for each in expected]
    assert offsets_by_map(url, topic, 0, [each[0] for each in expected]) == [each[0] for each in target]
    assert offsets_by_map(url, topic, 0, [400]) == [len(target)]
    with pytest.raises(StateError, match="percent of the link"):
        Mirror(url, kafka.servers).ensure()


def test_a_damaged_batch_is_set_aside(gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str) -> None:
    """A new checksum must not hide that the log is damaged."""
    create(gateway.bootstrap, topic, 1)
    for tag in ("a", "b", "c"):
        write(gateway.bootstrap, topic, messages(3, 0, tag))
    with psycopg.connect(url) as connection:
        connection.execute(
            "update kafka.batches set data = set_byte(data, length(data) - 1, get_byte(data, length(data) - 1) # 1)"
            " where base_offset = 3"
        )
    assert Mirror(url, kafka.servers).ensure().to_the_end().rows == 6
    with psycopg.connect(url) as connection:
        row = connection.execute("select base_offset, end_offset, reason from kafka.shadow_rejected").fetchone()
    assert row == (3, 6, "a batch whose checksum is wrong")
    assert offsets_by_map(url, topic, 0, [2, 3, 6]) == [2, 3, 3]


def test_what_lies_there_gives_the_digest_that_was_noted(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(gateway.bootstrap, topic, 1)
    for codec in ("none", "zstd"):
        write(gateway.bootstrap, topic, messages(50, 0), **{"compression.type": codec})
    mirror = Mirror(url, kafka.servers).ensure()
    mirror.to_the_end()
    with psycopg.connect(url) as connection:
        row = connection.execute("select ext_next, digest from kafka.shadow_partitions").fetchone()
    assert row is not None
    client = Client(mirror.destination.cluster)
    found = client.topic(topic)
    assert found is not None
    assert digest_there(client, found, 0, 0, row[0]) == row[1]
    client.close()


def test_two_databases_to_one_cluster(endpoints: Endpoints, url: str, kafka: ApacheKafka, topic: str) -> None:
    """Each with a prefix, and with a link of the same name."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as other_url, running(url) as one, running(other_url) as two:
        for gateway, tag in ((one, "one"), (two, "two")):
            create(gateway.bootstrap, topic, 1)
            write(gateway.bootstrap, topic, messages(20, 0, tag))
        mirrors = [
            Mirror(url, kafka.servers, topic_prefix="one."),
            Mirror(other_url, kafka.servers, topic_prefix="two."),
        ]
        for mirror in mirrors:
            mirror.ensure().to_the_end()
        for gateway, prefix in ((one, "one."), (two, "two.")):
            here = consumed(gateway.bootstrap, topic, 1)
            assert here == consumed(kafka.servers, prefix + topic, 1)
        with pytest.raises(HeadgateError, match="somebody else writes"):
            Mirror(other_url, kafka.servers, name="another", topic_prefix="one.").ensure().run()


@dataclass
class Guarded:
    """A cluster that asks for a login, over TLS."""

    kafka: ApacheKafka
    certificate: Path

    def login(self, user: str, mechanism: str = "SCRAM-SHA-512", password: str = "secret") -> dict[str, str]:
        return {
            "security_protocol": "sasl_ssl",
            "sasl_mechanism": mechanism,
            "user": user,
            "password": password,
            "tls_ca": str(self.certificate),
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    certificate, key = write_certificate(directory)
    pem = directory / "both.pem"
    pem.write_text(key.read_text() + certificate.read_text())
    plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_mirror="secret" user_poor="secret";'
    more = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": plain,
        "listener.name.clients.scram-sha-512.sasl.jaas.config": SCRAM,
        "listener.name.clients.scram-sha-256.sasl.jaas.config": SCRAM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:mirror",
    }
    names = [(size, user) for size in (256, 512) for user in ("mirror", "poor")]
    users = " ".join(f"--add-scram SCRAM-SHA-{size}=[name={user},password=secret]" for size, user in names)
    with ApacheKafka(directory / "kafka", listener="SASL_SSL", more=more, users=users) as kafka:
        yield Guarded(kafka, certificate)


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_over_tls(gateway: GatewayThread, url: str, guarded: Guarded, topic: str, mechanism: str) -> None:
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(20, 0))
    mirror = Mirror(url, guarded.kafka.servers, cluster=guarded.login("mirror", mechanism))
    assert "cluster headgateTest" in mirror.ensure().destination.check()
    mirror.to_the_end()
    assert_mirrored(url, gateway.bootstrap, guarded.kafka.inner, topic, 1)


def test_a_wrong_login_is_told(url: str, guarded: Guarded) -> None:
    wrong = guarded.login("mirror", password="wrong")
    with pytest.raises(AuthError, match="SASL_AUTHENTICATION_FAILED"):
        Mirror(url, guarded.kafka.servers, cluster=wrong).ensure()
    with pytest.raises(AuthError, match="no TLS with the broker"):
        Mirror(url, guarded.kafka.servers, cluster=guarded.login("mirror") | {"tls_ca": ""}).ensure()
    with pytest.raises(HeadgateError, match="without TLS if the port has none"):
        Mirror(url, guarded.kafka.servers).ensure()
    with pytest.raises(AuthError, match="no TLS with the broker"):
        Mirror(url, guarded.kafka.inner, cluster=guarded.login("mirror")).ensure()


def test_a_user_without_rights_is_told_which(gateway: GatewayThread, url: str, guarded: Guarded, topic: str) -> None:
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(5, 0))
    mirror = Mirror(url, guarded.kafka.servers, cluster=guarded.login("poor"))
    with pytest.raises(AuthError, match="CLUSTER_AUTHORIZATION_FAILED") as told:
        mirror.ensure()
    assert "IdempotentWrite" in told.value.remedy
    Mirror(url, guarded.kafka.servers, cluster=guarded.login("mirror")).ensure()
    with pytest.raises(AuthError):
        mirror.run()
    admin = AdminClient({"bootstrap.servers": guarded.kafka.inner, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    with pytest.raises(AuthError, match="TOPIC_AUTHORIZATION_FAILED"):
        mirror.run()
    assert consumed(guarded.kafka.inner, topic, 1) == [[]]


def test_a_large_batch(gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str) -> None:
    create(gateway.bootstrap, topic, 1, max_message_bytes="8000000")
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "message.max.bytes": 8_000_000, "log_level": 0})
    for number in range(4):
        producer.produce(topic, bytes([number]) * 6_000_000, partition=0)
    assert producer.flush(30) == 0
    Mirror(url, kafka.servers).ensure().to_the_end()
    assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 1)
