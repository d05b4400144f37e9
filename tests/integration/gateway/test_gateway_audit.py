"""The audit log: who came, who was turned away, and what administrators changed."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as untyped

from headgate.control.logs import configure_logs
from headgate.gateway.audit import LOGGER
from headgate.runtime.worker_log import own_fields
from headgate.wire.kafka.messages.session import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, running

TIMEOUT_S = 30.0
USERS = {"alice": "correct horse"}
kafka: Any = untyped  # its stubs leave out most names


@pytest.fixture
def guarded(fresh_database: str) -> Iterator[GatewayThread]:
    with running(fresh_database, users=USERS) as gateway:
        yield gateway


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [own_fields(each) for each in caplog.records if each.name == LOGGER and each.getMessage() == event]


def admin_of(gateway: GatewayThread) -> Any:
    return kafka.AdminClient(
        {
            "bootstrap.servers": gateway.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
            "client.id": "auditor",
        }
    )


def fail(gateway: GatewayThread, password: bytes = b"not-the-password") -> None:
    with RawClient(gateway.port) as client:
        client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert client.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + password)).error_code


def test_logins_and_changes_are_told_with_who_and_what(guarded: GatewayThread, lines: pytest.LogCaptureFixture) -> None:
    admin = admin_of(guarded)
    topic = kafka.NewTopic("audited", 1, config={"retention.ms": "3600000"})
    admin.create_topics([topic])["audited"].result(TIMEOUT_S)
    setting = kafka.ConfigEntry("retention.ms", "7200000", incremental_operation=kafka.AlterConfigOpType.SET)
    resource = kafka.ConfigResource("topic", "audited", incremental_configs=[setting])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    admin.delete_topics(["audited"])["audited"].result(TIMEOUT_S)
    login = told(lines, "login")[0]
    assert (login["principal"], login["mechanism"], login["client_id"]) == ("User:alice", "SCRAM-SHA-256", "auditor")
    assert login["address"].startswith("127.0.0.1:")
    changes = [(each["api"], each["kind"], each["what"], each["outcome"]) for each in told(lines, "changed")]
    assert changes == [
        ("CreateTopics", "topic", "audited", "NONE"),
        ("IncrementalAlterConfigs", "topic", "audited", "NONE"),
        ("DeleteTopics", "topic", "audited", "NONE"),
    ]
    assert told(lines, "changed")[1]["settings"] == "retention.ms"
    assert "7200000" not in lines.text


def test_a_change_that_was_refused_says_so(guarded: GatewayThread, lines: pytest.LogCaptureFixture) -> None:
    admin = admin_of(guarded)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        admin.delete_topics(["no-such-topic"])["no-such-topic"].result(TIMEOUT_S)
    (change,) = told(lines, "changed")
    assert (change["what"], change["outcome"]) == ("no-such-topic", "UNKNOWN_TOPIC_OR_PARTITION")


def test_failures_are_told_a_few_times_then_counted_and_show_no_password(
    fresh_database: str, lines: pytest.LogCaptureFixture
) -> None:
    with running(fresh_database, users=USERS) as gateway:
        for _ in range(13):
            fail(gateway)
        failed = told(lines, "login failed")
        assert len(failed) == 10
        assert failed[0]["mechanism"] == "PLAIN"
        assert failed[0]["principal"] == "User:ANONYMOUS"
        assert dict(gateway.gateway.metrics.logins) == {("PLAIN", "failure"): 13}
    (rest,) = told(lines, "more of the same")
    assert (rest["audited"], rest["count"], rest["address"]) == ("login failed", 3, "127.0.0.1")
    assert "not-the-password" not in repr([vars(each) for each in lines.records])


def test_it_can_be_turned_off_and_still_counts(fresh_database: str, lines: pytest.LogCaptureFixture) -> None:
    with running(fresh_database, users=USERS, audit=False) as gateway:
        fail(gateway)
        assert dict(gateway.gateway.metrics.logins) == {("PLAIN", "failure"): 1}
    assert [each for each in lines.records if each.name == LOGGER] == []


def test_lines_that_look_the_same_are_not_folded() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out = io.StringIO()
    try:
        configure_logs("info", "json", out)
        for _ in range(3):
            logging.getLogger(LOGGER).info("login", extra={"principal": "User:alice"})
    finally:
        root.handlers[:], root.level = handlers, level
    assert out.getvalue().count("User:alice") == 3
