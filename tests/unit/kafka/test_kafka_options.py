"""The options of the `kafka` destination: names, settings, secrets, and what is refused."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from headgate.destinations.base import Lane
from headgate.destinations.kafka import KafkaDestination, KafkaOptions
from headgate.destinations.kafka.errors import kafka_error
from headgate.kernels.log.partitioner import partitions_of
from headgate.model import ConfigError, ConnectError, DataError, Kind

SECRET = "pa55-w0rd"


@pytest.mark.parametrize(
    ("template", "stream", "topic", "name"),
    [
        ("{stream}.{topic}", "shop", "orders", "shop.orders"),
        ("{stream}.{topic}", None, "orders", "orders"),
        ("cdc-{topic}-{stream}", "shop", "orders", "cdc-orders-shop"),
        ("{topic}", "shop", "orders", "orders"),
    ],
)
def test_names_of_topics(template: str, stream: str | None, topic: str, name: str) -> None:
    assert KafkaOptions(servers="k:1", topic=template).topic_name(stream, topic) == name


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ü", "a/b", "x" * 250, "a\n", "{stream}"])
def test_names_that_kafka_does_not_have(topic: str) -> None:
    with pytest.raises(DataError, match="not a name"):
        KafkaOptions(servers="k:1").topic_name(None, topic)


@pytest.mark.parametrize(
    "wrong",
    [
        {"servers": " "},
        {"topic": "{stream}"},
        {"delivery_timeout_s": 0},
        {"connect_timeout_s": -1},
        {"linger_s": 30},
        {"max_message_bytes": 1},
        {"queue_bytes": 1},
        {"tls_cert": "cert.pem"},
        {"settings": (("acks", "0"),)},
        {"settings": (("enable.idempotence", "false"),)},
        {"settings": (("transactional.id", "x"),)},
    ],
)
def test_options_that_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as raised:
        KafkaOptions(**{"servers": "k:1", **wrong})  # type: ignore[arg-type]
    assert raised.value.remedy


def test_settings_reach_the_client_and_stay_secret() -> None:
    options = KafkaOptions(
        servers="k:1",
        security_protocol="sasl_ssl",
        sasl_mechanism="PLAIN",
        user="me",
        password=SECRET,
        settings=(("client.rack", "a"), ("ssl.key.password", SECRET)),
    )
    settings = options.producer_settings(gapless=True)
    assert (settings["sasl.username"], settings["sasl.password"], settings["client.rack"]) == ("me", SECRET, "a")
    assert (settings["enable.idempotence"], settings["acks"], settings["message.timeout.ms"]) == (True, "all", 0)
    assert "ssl.key.password" in repr(options)
    assert SECRET not in repr(options) + repr(KafkaDestination("k", options))
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_setting_that_librdkafka_refuses_is_told_without_its_value() -> None:
    options = KafkaOptions(servers="k:1", settings=(("compression.level", SECRET),))
    with pytest.raises(ConfigError, match=r"compression\.level") as raised:
        KafkaDestination("k", options).ensure()
    assert SECRET not in str(raised.value)
    with pytest.raises(ConfigError, match=r"no\.such"):
        KafkaDestination("k", KafkaOptions(servers="k:1", settings=(("no.such", "1"),))).ensure()


def test_nobody_at_the_address() -> None:
    destination = KafkaDestination("k", KafkaOptions(servers="127.0.0.1:1", connect_timeout_s=0.3))
    with pytest.raises(ConnectError) as raised:
        destination.ensure()
    assert raised.value.where == "127.0.0.1:1"
    assert raised.value.remedy


def test_several_tasks_cannot_share_a_position() -> None:
    destination = KafkaDestination("k", KafkaOptions(servers="127.0.0.1:1"), exclusive=True)
    with pytest.raises(ConfigError, match="several tasks"), destination.open(Lane(task=1)):
        pass


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, Kind.CONNECT),
        (KafkaError._AUTHENTICATION, Kind.AUTH),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Kind.AUTH),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Kind.STATE),
        (KafkaError.MSG_SIZE_TOO_LARGE, Kind.DATA),
        (KafkaError.KAFKA_STORAGE_ERROR, Kind.CAPACITY),
        (KafkaError.INVALID_REPLICATION_FACTOR, Kind.CONFIG),
        (KafkaError.NOT_ENOUGH_REPLICAS, Kind.DELIVERY),
        (KafkaError.UNKNOWN, Kind.DELIVERY),
    ],
)
def test_errors_have_kinds_and_remedies(code: int, kind: Kind) -> None:
    error = kafka_error(KafkaError(code), "k:1")
    assert (error.kind, error.where) == (kind, "k:1")
    assert error.remedy


def test_partitions_by_request_by_key_and_by_id() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "_topic": pa.array(["t"] * 4),
            "_message_id": pa.array(["db-1", "db-2", "db-3", "db-3"]),
            "_payload": pa.array([b""] * 4, pa.binary()),
            "_partition_key": pa.array([b"foobar", b"foobar", None, None], pa.binary()),
            "_partition": pa.array([5, None, None, None], pa.int64()),
        }
    )
    counts = pa.array([7] * 4, pa.int64()).to_numpy()
    asked, keyed, by_id, again = partitions_of(batch, counts).tolist()
    assert (asked, keyed, by_id) == (5, (-790332482 & 0x7FFFFFFF) % 7, again)
    with pytest.raises(DataError, match="no partition 5"):
        partitions_of(batch, counts - 3)
