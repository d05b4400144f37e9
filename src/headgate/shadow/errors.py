"""What brokers answer, as errors with a remedy."""

from __future__ import annotations

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
from headgate.wire.kafka.error_codes import ErrorCode

__all__ = ["OUT_OF_SEQUENCE", "REFUSALS", "code_name", "kafka_error"]

_RIGHTS = (
    "grant the user Describe, Create, Write and Read on the topics, Describe and Read on the groups, and "
    "IdempotentWrite on the cluster"
)
_LATER = "the cluster is busy or electing a leader; it is tried again"
_ERRORS: dict[ErrorCode, tuple[type[HeadgateError], str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (AuthError, _RIGHTS),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (AuthError, _RIGHTS),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (AuthError, _RIGHTS),
    ErrorCode.SASL_AUTHENTICATION_FAILED: (AuthError, "check user, password and sasl_mechanism"),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: (AuthError, "set a sasl_mechanism that the cluster has"),
    ErrorCode.ILLEGAL_SASL_STATE: (AuthError, "set a security_protocol that the port speaks"),
    ErrorCode.UNKNOWN_TOPIC_ID: (StateError, "the topic there was deleted or made anew: see docs/shadow.md"),
    ErrorCode.INCONSISTENT_TOPIC_ID: (StateError, "the topic there was made anew: see docs/shadow.md"),
    ErrorCode.KAFKA_STORAGE_ERROR: (CapacityError, "free disk space on the broker, or look into its log"),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (CapacityError, "raise the user's quota"),
    ErrorCode.NETWORK_EXCEPTION: (ConnectError, _LATER),
    ErrorCode.UNSUPPORTED_VERSION: (ConfigError, "the cluster is too old: Apache Kafka 2.1 or newer is needed"),
    ErrorCode.MESSAGE_TOO_LARGE: (DataError, "raise max.message.bytes of the topic there"),
    ErrorCode.RECORD_LIST_TOO_LARGE: (DataError, "raise segment.bytes of the topic there"),
    ErrorCode.INVALID_RECORD: (DataError, "the topic there has settings that the one here has not"),
    ErrorCode.INVALID_TIMESTAMP: (DataError, "raise message.timestamp.before.max.ms of the topic there"),
    ErrorCode.CORRUPT_MESSAGE: (DataError, "look into the broker's log"),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (DataError, "bring the cluster up to Apache Kafka 2.1 or newer"),
    ErrorCode.POLICY_VIOLATION: (ConfigError, "the cluster has a policy against it: ask whoever runs it"),
    ErrorCode.INVALID_REPLICATION_FACTOR: (ConfigError, "set replicas to what the cluster has brokers for"),
}
_OWN: dict[int, tuple[type[HeadgateError], str]] = {  # librdkafka's
    -169: (AuthError, "check user, password and sasl_mechanism"),  # _AUTHENTICATION
    -181: (AuthError, "check security_protocol and the TLS files"),  # _SSL
    -186: (ConfigError, "correct settings of the destination"),  # _INVALID_ARG
}
# A batch is refused for what it is, and would be again.
REFUSALS = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
# The broker expects another sequence number than the one that our count of records gives.
OUT_OF_SEQUENCE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


def code_name(code: int) -> str:
    """Return the protocol's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def kafka_error(code: int, where: str, detail: str | None = None) -> HeadgateError:
    """Return the error for a code, the protocol's or librdkafka's own; one that is not known may pass by itself."""
    if code < -1:
        own, remedy = _OWN.get(code, (ConnectError, "check that the brokers run and answer"))
        return own(f"Kafka: {detail or code}", where=where, remedy=remedy)
    known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
    kind, remedy = _ERRORS.get(known, (DeliveryError, _LATER))
    return kind(f"Kafka: {code_name(code)}{f': {detail}' if detail else ''}", where=where, remedy=remedy)
