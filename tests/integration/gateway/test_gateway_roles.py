"""What clients may do, by the rights of PostgreSQL's roles."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import LiteralString
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from headgate.embedded import Endpoints
from headgate.gateway.access import RoleAuthority
from headgate.gateway.access.authority import STALE_S
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages import cluster, commits, membership, produce, security, topics
from tests.gateway.access import TIMEOUT_S, USERS, as_user, login
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, new_database, running

FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Roles:
    """Roles of a test, named by users of the gateway."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.gateway: GatewayThread | None = None

    def run(self, statement: LiteralString, *names: str) -> None:
        """Run a statement with names in it; when it is done the gateway looks anew."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            parts = map(sql.Identifier, names)
            connection.execute(sql.SQL(statement).format(*parts))
        if self.gateway is not None:
            authority = self.gateway.gateway.services.authority
            assert isinstance(authority, RoleAuthority)
            authority._roles.clear()

    def share(self, topic: str, role: str, *rights: LiteralString) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("select kafka.share_topic(%s)", [topic])
        for right in rights:
            self.run(f"grant {right} on kafka_topics.{{}} to {{}}", topic, role)


@pytest.fixture(scope="module")
def users() -> dict[str, str]:
    """Roles belong to the whole server: names that no other test has."""
    return {f"{name}_{uuid4().hex[:8]}": password for name, password in USERS.items()}


@pytest.fixture(scope="module")
def roles(endpoints: Endpoints, users: dict[str, str]) -> Iterator[Roles]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        found = Roles(url)
        for user in users:
            if not user.startswith("eve"):  # who can log in and is no role
                found.run("create role {}", user)
        USERS.update(users)
        try:
            with running(url, users=users, authorization="roles") as gateway:
                found.gateway = gateway
                found.run("grant {} to {}", str(conninfo_to_dict(url)["user"]), name(users, "admin"))
                yield found
        finally:
            for user in users:
                USERS.pop(user)
                if not user.startswith("eve"):
                    found.run("drop owned by {0}; drop role {0}", user)


def name(users: dict[str, str], role: str) -> str:
    return next(user for user in users if user.startswith(role))


@pytest.fixture
def gateway(roles: Roles) -> GatewayThread:
    assert roles.gateway is not None
    return roles.gateway


@pytest.fixture
def alice(users: dict[str, str]) -> str:
    return name(users, "alice")


@pytest.fixture
def made(gateway: GatewayThread, users: dict[str, str], topic: str) -> str:
    with login(gateway, name(users, "admin")) as client:
        client.create(topic)
        client.produce(topic, b"secret")
    return topic


def outcome(client: RawClient, topic: str) -> tuple[int, int]:
    """What becomes of a read and of a write."""
    read = client.fetch(topic).responses[0].partitions[0].error_code
    (written,) = client.produce(topic, b"v").responses[0].partition_responses
    return read, written.error_code


def test_grants_are_rights(gateway: GatewayThread, roles: Roles, alice: str, made: str) -> None:
    with login(gateway, alice) as client:
        assert outcome(client, made) == (FAILED, FAILED)
        roles.share(made, alice, "select")
        assert outcome(client, made) == (0, FAILED)
        roles.share(made, alice, "insert")
        assert outcome(client, made) == (0, 0)
        roles.run("revoke select on kafka_topics.{} from {}", made, alice)
        assert outcome(client, made) == (FAILED, 0)
        asked = cluster.MetadataRequest(topics=None)
        assert made in {each.name for each in client.ask(cluster.METADATA, 9, asked).topics}


def test_a_right_to_look_is_no_right_to_change(gateway: GatewayThread, roles: Roles, alice: str, made: str) -> None:
    roles.share(made, alice, "select", "insert")
    with login(gateway, alice) as client:
        (deleted,) = client.ask(topics.DELETE_TOPICS, 5, topics.DeleteTopicsRequest(topic_names=(made,))).responses
        assert deleted.error_code == FAILED
        request = topics.CreateTopicsRequest(topics=(topics.CreatableTopic(f"{made}-2", 1, -1),))
        assert client.ask(topics.CREATE_TOPICS, 5, request).topics[0].error_code == FAILED


def test_groups_and_transactions_belong_to_roles(gateway: GatewayThread, roles: Roles, alice: str, made: str) -> None:
    roles.share(made, alice, "select", "insert")
    with login(gateway, alice) as client:
        for group, code in ((alice, 0), (f"{alice}.eu", 0), (f"{alice}x", 30), ("x", 30), ("a\0b", 30), ("", 30)):
            found = client.ask(membership.FIND_COORDINATOR, 3, membership.FindCoordinatorRequest(key=group))
            assert found.error_code == code, group
        for transaction, code in ((f"{alice}.1", 0), ("other", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)):
            request = produce.InitProducerIdRequest(transactional_id=transaction, transaction_timeout_ms=1000)
            assert client.ask(produce.INIT_PRODUCER_ID, 4, request).error_code == code
    consumer = Consumer(as_user(gateway, alice, **{"group.id": f"{alice}.g", "auto.offset.reset": "earliest"}))
    consumer.subscribe([made])
    (message,) = consumer.consume(1, TIMEOUT_S)
    assert message.value() == b"secret"
    consumer.commit(asynchronous=False)
    consumer.close()


def test_who_is_no_role_gets_nothing(gateway: GatewayThread, users: dict[str, str], made: str) -> None:
    with login(gateway, name(users, "eve")) as client:
        assert outcome(client, made) == (FAILED, FAILED)
        assert client.ask(cluster.METADATA, 9, cluster.MetadataRequest(topics=None)).topics == ()
        request = commits.OffsetFetchRequest(groups=(commits.OffsetFetchGroup(name(users, "eve"), topics=None),))
        (group,) = client.ask(commits.OFFSET_FETCH, 8, request).groups
        assert group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_there_are_no_acls_to_be_seen(gateway: GatewayThread, users: dict[str, str]) -> None:
    with login(gateway, name(users, "admin")) as client:
        answer = client.ask(security.DESCRIBE_ACLS, 3, security.DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    assert answer.error_code == ErrorCode.SECURITY_DISABLED
    assert "GRANT" in answer.error_message


def test_what_was_granted_counts_for_seconds_only(
    gateway: GatewayThread, roles: Roles, alice: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = gateway.gateway.services.authority
    assert isinstance(authority, RoleAuthority)
    roles.share(made, alice, "select")
    with login(gateway, alice) as client, psycopg.connect(roles.url, autocommit=True) as connection:
        assert outcome(client, made)[0] == 0
        revoke = sql.SQL("revoke all on kafka_topics.{} from {}")
        connection.execute(revoke.format(sql.Identifier(made), sql.Identifier(alice)))
        later = time.monotonic() + STALE_S + 0.1
        monkeypatch.setattr(authority, "_clock", lambda: later)
        assert outcome(client, made)[0] == FAILED


def test_a_member_of_a_role_has_its_rights(
    gateway: GatewayThread, roles: Roles, users: dict[str, str], alice: str, made: str
) -> None:
    bob = name(users, "bob")
    roles.share(made, alice, "select")
    with login(gateway, bob) as client:
        assert outcome(client, made)[0] == FAILED
        roles.run("grant {} to {}", alice, bob)
        assert outcome(client, made)[0] == 0
        request = membership.FindCoordinatorRequest(key=f"{alice}.g")
        assert client.ask(membership.FIND_COORDINATOR, 3, request).error_code == 0
