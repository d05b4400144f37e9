"""Users that are kept in PostgreSQL: made by Kafka's admin clients or by hand, known to all gateways at once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import admin as untyped

from headgate.gateway.login.deriving import MOST_WAITING
from headgate.gateway.login.keys import Keys, salted
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages import security
from headgate.wire.kafka.messages.cluster import METADATA, MetadataRequest
from headgate.wire.kafka.messages.session import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, running
from tests.integration.gateway.test_gateway_security import MECHANISMS, round_trip, sasl

TIMEOUT_S = 30.0
ROOT = {"root": "root's password"}
SALT = b"s4lt-of-sixteen-"
kafka: Any = untyped  # its stubs leave out most names


@pytest.fixture
def gateway(fresh_database: str) -> Iterator[GatewayThread]:
    with running(fresh_database, users=ROOT) as started:
        yield started


def admin_of(gateway: GatewayThread) -> Any:
    return kafka.AdminClient(sasl(gateway.bootstrap, "SCRAM-SHA-256", "root", ROOT["root"]))


def set_password(gateway: GatewayThread, name: str, password: str, mechanism: str = "SCRAM_SHA_256") -> None:
    info = kafka.ScramCredentialInfo(kafka.ScramMechanism[mechanism], 4096)
    change = kafka.UserScramCredentialUpsertion(name, info, password.encode(), SALT)
    admin = admin_of(gateway)
    admin.alter_user_scram_credentials([change])[name].result(TIMEOUT_S)


def remove(gateway: GatewayThread, name: str) -> None:
    change = kafka.UserScramCredentialDeletion(name, kafka.ScramMechanism.SCRAM_SHA_256)
    admin = admin_of(gateway)
    admin.alter_user_scram_credentials([change])[name].result(TIMEOUT_S)


def plain(client: RawClient, name: str, password: str) -> Any:
    client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
    return client.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=f"\0{name}\0{password}".encode()))


def logs_in(gateway: GatewayThread, name: str, password: str) -> bool:
    with RawClient(gateway.port) as client:
        return bool(plain(client, name, password).error_code == 0)


@pytest.mark.parametrize("name", ["ann", "Grüße=,=2C", "e\u0301lan", "x" * 255], ids=["ascii", "odd", "nfd", "long"])
def test_a_user_made_by_an_admin_logs_in_with_every_mechanism_it_has(
    gateway: GatewayThread, topic: str, name: str
) -> None:
    password = "pässword\u00ad with = and , \u2168"  # SASLprep would change it; Kafka's clients do not
    for mechanism in ("SCRAM_SHA_256", "SCRAM_SHA_512"):
        set_password(gateway, name, password, mechanism)
    for mechanism in MECHANISMS:
        assert round_trip(sasl(gateway.bootstrap, mechanism, name, password), f"{topic}-{mechanism}") == [b"secret"]
    admin = admin_of(gateway)
    described = admin.describe_user_scram_credentials([name])[name].result(TIMEOUT_S)
    assert [each.iterations for each in described.scram_credential_infos] == [4096, 4096]


def test_aiokafka_logs_in(gateway: GatewayThread, topic: str) -> None:
    set_password(gateway, "ann", "correct horse", "SCRAM_SHA_512")

    async def write() -> int:
        async with AIOKafkaProducer(
            bootstrap_servers=gateway.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="ann",
            sasl_plain_password="correct horse",
        ) as producer:
            offset: int = (await producer.send_and_wait(topic, b"x")).offset
            return offset

    assert asyncio.run(write()) == 0


def test_another_gateway_knows_a_user_at_once_and_a_change_too(gateway: GatewayThread, fresh_database: str) -> None:
    with running(fresh_database, users=ROOT) as other:
        assert not logs_in(other, "ann", "first password")
        set_password(gateway, "ann", "first password")
        assert logs_in(other, "ann", "first password")
        set_password(gateway, "ann", "second password")
        assert not logs_in(other, "ann", "first password")
        assert logs_in(other, "ann", "second password")
        remove(other, "ann")
        assert not logs_in(gateway, "ann", "second password")


def test_no_password_and_nothing_like_it_is_in_the_database(gateway: GatewayThread, fresh_database: str) -> None:
    set_password(gateway, "ann", "correct horse")
    with psycopg.connect(fresh_database) as connection:
        row = connection.execute(
            "select salt, iterations, stored_key, server_key, changed_by from kafka.users"
        ).fetchone()
        assert row is not None
        password = salted("SCRAM-SHA-256", "correct horse", SALT, 4096)
        client_key = hmac.digest(password, b"Client Key", "sha256")
        assert row[:3] == (SALT, 4096, hashlib.sha256(client_key).digest())
        assert not {password, client_key} & set(row)
        assert row[4] == "User:root"
        connection.execute("create role nosy")
        connection.execute("grant usage on schema kafka to nosy")
        connection.execute("set local role nosy")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select from kafka.users")
        connection.rollback()


def test_a_connection_of_a_user_who_is_removed_ends(gateway: GatewayThread, fresh_database: str) -> None:
    set_password(gateway, "ann", "correct horse")
    set_password(gateway, "bob", "correct horse")
    with running(fresh_database, users=ROOT) as other, RawClient(other.port) as ann, RawClient(other.port) as bob:
        assert (plain(ann, "ann", "correct horse").error_code, plain(bob, "bob", "correct horse").error_code) == (0, 0)
        remove(gateway, "ann")
        assert ann.receive_frame() is None
        assert bob.ask(METADATA, 9, MetadataRequest()).brokers


def test_users_of_the_configuration_cannot_be_altered_and_win(gateway: GatewayThread, fresh_database: str) -> None:
    with pytest.raises(KafkaException) as caught:
        set_password(gateway, "root", "taken over!")
    assert caught.value.args[0].code() == ErrorCode.UNACCEPTABLE_CREDENTIAL
    with pytest.raises(KafkaException):
        remove(gateway, "root")
    keys = Keys.from_salted("SCRAM-SHA-256", SALT, 4096, salted("SCRAM-SHA-256", "taken over!", SALT, 4096))
    put(fresh_database, "root", keys)
    assert not logs_in(gateway, "root", "taken over!")
    assert logs_in(gateway, "root", ROOT["root"])
    admin = admin_of(gateway)
    everybody = admin.describe_user_scram_credentials().result(TIMEOUT_S)
    assert {name: len(each.scram_credential_infos) for name, each in everybody.items()} == {"root": 2}


def put(url: str, name: str, keys: Keys) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into kafka.users (name, mechanism, salt, iterations, stored_key, server_key)"
            " values (%s, %s, %s, %s, %s, %s)",
            (name, keys.mechanism, keys.salt, keys.iterations, keys.stored_key, keys.server_key),
        )


def root(port: int) -> RawClient:
    client = RawClient(port)
    assert plain(client, "root", ROOT["root"]).error_code == 0
    return client


UPSERT = security.ScramUpsertion(name="a", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"x" * 32)


def changed(**fields: Any) -> security.ScramUpsertion:
    return security.ScramUpsertion(**{name: getattr(UPSERT, name) for name in UPSERT.__struct_fields__} | fields)


@pytest.mark.parametrize(
    ("upsertion", "code"),
    [
        (changed(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(name="x" * 256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(name="nul\0"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(name="line\nbreak"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(iterations=2**31 - 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(salt=b"x" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(salted_password=b"x" * 64), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (changed(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (changed(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else repr(value)[:40],
)
def test_credentials_that_are_refused_leave_the_others_of_the_request_alone(
    gateway: GatewayThread, fresh_database: str, upsertion: security.ScramUpsertion, code: ErrorCode
) -> None:
    with root(gateway.port) as client:
        request = security.AlterUserScramCredentialsRequest(upsertions=(upsertion, changed(name="good")))
        answer = client.ask(security.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    assert {each.user: each.error_code for each in answer.results} == {upsertion.name: code, "good": 0}
    with psycopg.connect(fresh_database) as connection:
        assert connection.execute("select name from kafka.users").fetchall() == [("good",)]


def test_a_user_is_altered_as_a_whole_or_not_at_all(gateway: GatewayThread, fresh_database: str) -> None:
    deletion = security.ScramDeletion(name="a", mechanism=2)
    with root(gateway.port) as client:

        def alter(*deletions: security.ScramDeletion, upsertions: tuple[security.ScramUpsertion, ...]) -> list[int]:
            request = security.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
            answer = client.ask(security.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
            return [each.error_code for each in answer.results]

        assert alter(deletion, upsertions=(UPSERT,)) == [ErrorCode.RESOURCE_NOT_FOUND]
        assert alter(upsertions=(UPSERT, UPSERT)) == [ErrorCode.DUPLICATE_RESOURCE]
        with psycopg.connect(fresh_database) as connection:
            assert connection.execute("select from kafka.users").fetchall() == []
        assert alter(upsertions=(UPSERT,)) == [0]
        twice = security.DescribeUserScramCredentialsRequest(
            users=tuple(security.ScramUserName(name=name) for name in ("a", "a", "b"))
        )
        described = client.ask(security.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, twice)
        codes = {each.user: each.error_code for each in described.results}
        assert codes == {"a": ErrorCode.DUPLICATE_RESOURCE, "b": ErrorCode.RESOURCE_NOT_FOUND}


def test_rows_that_are_nonsense_let_nobody_in_and_stop_nobody(gateway: GatewayThread, fresh_database: str) -> None:
    set_password(gateway, "ann", "correct horse")
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("update kafka.users set iterations = 1")
        for (name,) in connection.execute(
            "select conname from pg_constraint where conrelid = 'kafka.users'::regclass and contype = 'c'"
        ).fetchall():
            connection.execute(f'alter table kafka.users drop constraint "{name}"')
        connection.execute("alter table kafka.users alter salt drop not null, alter stored_key drop not null")
        rows = [
            ("endless", "SCRAM-SHA-256", b"salt", 2**31 - 1, b"x" * 32),
            ("empty", "SCRAM-SHA-256", b"", 4096, b""),
            ("null", "SCRAM-SHA-256", None, 4096, None),
            ("other", "SCRAM-SHA-1", b"salt", 4096, b"x" * 20),
            ("", "", b"", 0, b""),
        ]
        for name, mechanism, salt, iterations, key in rows:
            connection.execute(
                "insert into kafka.users (name, mechanism, salt, iterations, stored_key, server_key)"
                " values (%s, %s, %s, %s, %s, %s)",
                (name, mechanism, salt, iterations, key, b"y" * 32),
            )
    for name, *_ in rows:
        assert not logs_in(gateway, name, "correct horse")
    assert logs_in(gateway, "ann", "correct horse")
    admin = admin_of(gateway)
    assert sorted(admin.describe_user_scram_credentials().result(TIMEOUT_S)) == ["ann", "root"]


def test_one_address_that_logs_in_all_the_time_does_not_make_another_wait(gateway: GatewayThread) -> None:
    """Four hundred logins of one address, of which some are refused at once; another one comes after them."""
    set_password(gateway, "ann", "correct horse")
    users = gateway.gateway.services.logins.users

    async def storm() -> None:
        tasks = [asyncio.create_task(users.proven("ann", f"wrong {each}", "10.0.0.1")) for each in range(400)]
        await asyncio.sleep(0)
        assert await users.proven("ann", "correct horse", "10.0.0.2")
        await users.keys("SCRAM-SHA-256", "ann", "10.0.0.3")
        refused = [task for task in tasks if task.done() and isinstance(task.exception(), TimeoutError)]
        assert len(refused) == 400 - MOST_WAITING
        assert sum(task.done() for task in tasks) - len(refused) < 20
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    gateway.call(storm())
    assert logs_in(gateway, "ann", "correct horse")


def test_the_loop_goes_on_while_passwords_are_derived(gateway: GatewayThread) -> None:
    set_password(gateway, "ann", "correct horse")
    with ThreadPoolExecutor(8) as pool, root(gateway.port) as client:
        logins = [pool.submit(logs_in, gateway, "ann", "correct horse") for _ in range(40)]
        while not all(each.done() for each in logins):
            assert client.ask(METADATA, 9, MetadataRequest()).brokers
        assert all(each.result() for each in logins)


def test_without_postgresql_the_configuration_logs_in_and_others_are_told_to_try_again(
    gateway: GatewayThread, fresh_database: str
) -> None:
    set_password(gateway, "ann", "correct horse")
    with psycopg.connect(fresh_database) as holder:
        holder.execute("lock table kafka.users in access exclusive mode")
        with RawClient(gateway.port) as ann:
            ann.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
            ann.send(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"n,,n=ann,r=abc"))
            assert logs_in(gateway, "root", ROOT["root"])
            assert ann.receive(SASL_AUTHENTICATE, 2)[1].error_code == ErrorCode.REQUEST_TIMED_OUT
            assert ann.receive_frame() is None
    assert logs_in(gateway, "ann", "correct horse")


def test_a_user_removed_between_the_messages_of_its_login_is_not_let_in(gateway: GatewayThread) -> None:
    set_password(gateway, "ann", "correct horse")
    with RawClient(gateway.port) as client:
        client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
        first = client.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"n,,n=ann,r=abc"))
        server_first = bytes(first.auth_bytes).decode()
        nonce, salt, _ = (part[2:] for part in server_first.split(","))
        remove(gateway, "ann")
        password = salted("SCRAM-SHA-256", "correct horse", base64.b64decode(salt), 4096)
        client_key = hmac.digest(password, b"Client Key", "sha256")
        signed = f"n=ann,r=abc,{server_first},c=biws,r={nonce}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        last = SaslAuthenticateRequest(auth_bytes=f"c=biws,r={nonce},p={proof}".encode())
        assert client.ask(SASL_AUTHENTICATE, 2, last).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_two_messages_of_a_login_at_once_are_refused(gateway: GatewayThread) -> None:
    """The second comes while the first is being looked up; it must not find the exchange half done."""
    with RawClient(gateway.port) as client:
        client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        login = SaslAuthenticateRequest(auth_bytes=b"\0ann\0correct horse")
        client.send(SASL_AUTHENTICATE, 2, login)
        client.send(SASL_AUTHENTICATE, 2, login)
        client.send(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        codes = []
        while (frame := client.receive_frame()) is not None:
            codes.append(frame)
        assert len(codes) <= 3
        with RawClient(gateway.port) as again:
            assert plain(again, "root", ROOT["root"]).error_code == 0


def test_a_login_with_the_wrong_password_takes_longer_each_time(gateway: GatewayThread) -> None:
    patience = gateway.gateway.services.logins.patience
    for _ in range(8):
        last_s = patience.failed("127.0.0.1")
    began = time.monotonic()
    assert not logs_in(gateway, "ann", "wrong")
    assert time.monotonic() - began > last_s
    began = time.monotonic()
    assert logs_in(gateway, "root", ROOT["root"])
    assert time.monotonic() - began < last_s


def test_librdkafka_goes_on_when_a_user_is_made_while_it_tries(gateway: GatewayThread, topic: str) -> None:
    failed = threading.Event()

    def note(error: KafkaError) -> None:
        failed.set()

    producer = Producer(sasl(gateway.bootstrap, "SCRAM-SHA-256", "late", "correct horse") | {"error_cb": note})
    while not failed.is_set():
        producer.poll(0.1)
    set_password(gateway, "late", "correct horse")
    producer.produce(topic, b"v")
    assert producer.flush(TIMEOUT_S) == 0


def troubles(gateway: GatewayThread) -> dict[str, Any]:
    found: dict[str, Any] = gateway.gateway.told()["troubles"]
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.05)


def test_a_table_that_is_gone_is_told_and_comes_back(gateway: GatewayThread, fresh_database: str) -> None:
    """Who looks after departures fails in a way that nobody expects, and goes on when it can."""
    set_password(gateway, "ann", "correct horse")
    with psycopg.connect(fresh_database, autocommit=True) as connection, RawClient(gateway.port) as ann:
        assert plain(ann, "ann", "correct horse").error_code == 0
        connection.execute("alter table kafka.users rename to users_of_yesterday")
        connection.execute("notify kafka_users")
        until(lambda: "users" in troubles(gateway), "nobody is told")
        assert not logs_in(gateway, "ann", "correct horse")
        assert logs_in(gateway, "root", ROOT["root"])
        connection.execute("alter table kafka.users_of_yesterday rename to users")
        until(lambda: troubles(gateway) == {}, "it does not go on")
        assert ann.ask(METADATA, 9, MetadataRequest()).brokers
        connection.execute("delete from kafka.users")
        assert ann.receive_frame() is None


def test_a_flood_of_notifications_keeps_nobody_out(gateway: GatewayThread, fresh_database: str) -> None:
    set_password(gateway, "ann", "correct horse")
    is_over = threading.Event()

    def shout() -> None:
        with psycopg.connect(fresh_database, autocommit=True) as connection:
            while not is_over.is_set():
                connection.execute("notify kafka_users")

    with ThreadPoolExecutor(1) as pool:
        shouting = pool.submit(shout)
        try:
            until(lambda: logs_in(gateway, "ann", "correct horse"), "nobody comes in")
            assert logs_in(gateway, "root", ROOT["root"])
        finally:
            is_over.set()
        shouting.result()


def test_users_who_come_and_go_all_the_time(gateway: GatewayThread, fresh_database: str) -> None:
    """A login beside its removal: whoever is in afterwards is a user, and the others are not."""
    names = [f"user-{number}" for number in range(20)]
    keys = Keys.from_salted("SCRAM-SHA-256", SALT, 4096, salted("SCRAM-SHA-256", "correct horse", SALT, 4096))
    for name in names:
        put(fresh_database, name, keys)
    clients = [RawClient(gateway.port) for _ in names]
    with ThreadPoolExecutor(len(names) + 1) as pool:
        logins = [pool.submit(plain, *each, "correct horse") for each in zip(clients, names, strict=True)]
        with psycopg.connect(fresh_database, autocommit=True) as connection:
            for name in names[::2]:
                connection.execute("delete from kafka.users where name = %s", (name,))
        codes = [login.result().error_code for login in logins]
    assert codes[1::2] == [0] * 10
    for number, client in enumerate(clients):
        with client:
            if number % 2:
                assert client.ask(METADATA, 9, MetadataRequest()).brokers
            else:
                assert client.receive_frame() is None
