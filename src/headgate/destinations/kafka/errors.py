"""What librdkafka and the brokers say, as headgate errors with a remedy."""

from __future__ import annotations

from confluent_kafka import KafkaError

from headgate.model import (
    AuthError,
    CapacityError,
    ConfigError,
    ConnectError,
    DataError,
    DeliveryError,
    HeadgateError,
    StateError,
)

__all__ = ["UNREACHABLE", "is_missing_topic", "kafka_error"]

_CREDENTIALS = "check security_protocol, sasl_mechanism, user, password and the TLS files"
_RIGHTS = "grant the user the rights to describe, create and write the topic, and to write idempotently"
_SERVERS = "check servers, and that the brokers run and can be reached under the names they advertise"
_LATER = "the cluster is busy or electing a leader; delivery is tried again"
_LARGE = "raise max_message_bytes here and max.message.bytes of the topic, or shorten the payload"
_TOPIC = "create the topic, or let the brokers do it (auto.create.topics.enable)"
_LAYOUT = "correct partitions, replicas and retention for topics that headgate creates"

_ERRORS: dict[int, tuple[type[HeadgateError], str]] = {
    KafkaError._ALL_BROKERS_DOWN: (ConnectError, _SERVERS),
    KafkaError._TRANSPORT: (ConnectError, _SERVERS),
    KafkaError._RESOLVE: (ConnectError, _SERVERS),
    KafkaError._TIMED_OUT: (ConnectError, _SERVERS),
    KafkaError._MSG_TIMED_OUT: (DeliveryError, "the cluster is slow; raise delivery_timeout if this goes on"),
    KafkaError.BROKER_NOT_AVAILABLE: (ConnectError, _LATER),
    KafkaError.NETWORK_EXCEPTION: (ConnectError, _LATER),
    KafkaError.LEADER_NOT_AVAILABLE: (DeliveryError, _LATER),
    KafkaError.NOT_LEADER_FOR_PARTITION: (DeliveryError, _LATER),
    KafkaError.REQUEST_TIMED_OUT: (DeliveryError, _LATER),
    KafkaError.NOT_ENOUGH_REPLICAS: (DeliveryError, "start the brokers that hold the topic's replicas"),
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (DeliveryError, "start the brokers that hold the topic's replicas"),
    KafkaError.KAFKA_STORAGE_ERROR: (CapacityError, "free disk space on the broker, or look into its log"),
    KafkaError.THROTTLING_QUOTA_EXCEEDED: (CapacityError, "raise the user's quota"),
    KafkaError._QUEUE_FULL: (CapacityError, "raise queue_bytes"),
    KafkaError._AUTHENTICATION: (AuthError, _CREDENTIALS),
    KafkaError._SSL: (AuthError, _CREDENTIALS),
    KafkaError.SASL_AUTHENTICATION_FAILED: (AuthError, _CREDENTIALS),
    KafkaError.UNSUPPORTED_SASL_MECHANISM: (AuthError, _CREDENTIALS),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (AuthError, _RIGHTS),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (AuthError, _RIGHTS),
    KafkaError._UNKNOWN_TOPIC: (StateError, _TOPIC),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (StateError, _TOPIC),
    KafkaError._UNKNOWN_PARTITION: (DataError, "correct the rows, or give the topic more partitions"),
    KafkaError.MSG_SIZE_TOO_LARGE: (DataError, _LARGE),
    KafkaError.RECORD_LIST_TOO_LARGE: (DataError, _LARGE),
    KafkaError.TOPIC_EXCEPTION: (DataError, "correct the topic; Kafka refuses this name"),
    KafkaError.INVALID_PARTITIONS: (ConfigError, _LAYOUT),
    KafkaError.INVALID_REPLICATION_FACTOR: (ConfigError, _LAYOUT),
    KafkaError.INVALID_CONFIG: (ConfigError, _LAYOUT),
    KafkaError.POLICY_VIOLATION: (ConfigError, _LAYOUT),
    KafkaError._INVALID_ARG: (ConfigError, "correct the destination's settings"),
}
UNREACHABLE = frozenset(code for code, (kind, _) in _ERRORS.items() if kind is ConnectError)
_MISSING = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})


def kafka_error(error: KafkaError, where: str) -> HeadgateError:
    """The headgate error for one of librdkafka's."""
    cls, remedy = _ERRORS.get(error.code(), (DeliveryError, "look the error up in the brokers' log"))
    return cls(f"Kafka: {error.str()}", remedy=remedy, where=where)


def is_missing_topic(error: KafkaError | None) -> bool:
    """Whether a topic is not there, as opposed to any other trouble with it."""
    return error is not None and error.code() in _MISSING
