"""ACLs as a table, and topics as views that roles are granted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from headgate.commitlog.append import append
from tests.integration.commitlog.log_topics import batch, create
from tests.stock import both_servers

ACL = ("TOPIC", "LITERAL", "orders", "User:alice", "*", "READ", "ALLOW")
INSERT_ACL = (
    "insert into kafka.acls (resource_type, pattern_type, resource_name, principal, host, operation, permission)"
    " values (%s, %s, %s, %s, %s, %s, %s)"
)
RIGHTS = "select kind, name, may_read, may_write from kafka.rights_of(%s, %s, %s) order by kind, name"
Role = Callable[[], str]


@pytest.fixture(params=both_servers)
def log_url(request: pytest.FixtureRequest, log_url: str) -> str:
    """On the embedded server and on Debian's."""
    return log_url if request.param == "embedded" else str(request.getfixturevalue("stock_log_url"))


@pytest.fixture
def role(connection: psycopg.Connection) -> Iterator[Role]:
    """Makes roles that the test may grant things to."""
    made: list[str] = []

    def make() -> str:
        made.append(f"role_{uuid4().hex[:8]}")
        connection.execute(sql.SQL("create role {}").format(sql.Identifier(made[-1])))
        return made[-1]

    yield make
    for name in made:
        connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


@contextmanager
def acting_as(connection: psycopg.Connection, role: str) -> Iterator[None]:
    connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
    try:
        yield
    finally:
        connection.execute("reset role")


def share(connection: psycopg.Connection, topic: str, role: str, *rights: str) -> sql.Identifier:
    connection.execute("select kafka.share_topic(%s)", [topic])
    view = sql.Identifier("kafka_topics", topic)
    who = sql.Identifier(role)
    connection.execute(sql.SQL("grant usage on schema kafka, kafka_topics to {}").format(who))
    for right in rights:
        connection.execute(sql.SQL(f"grant {right} on {{}} to {{}}").format(view, who))
    return view


def version(connection: psycopg.Connection) -> int:
    row = connection.execute("select version from kafka.access").fetchone()
    assert row is not None
    return int(row[0])


def test_every_change_of_acls_is_told(connection: psycopg.Connection) -> None:
    connection.execute("listen kafka_access")
    before = version(connection)
    connection.execute(INSERT_ACL, ACL)
    connection.execute("update kafka.acls set host = '10.0.0.1'")
    connection.execute("delete from kafka.acls")
    connection.execute("truncate kafka.acls")
    assert version(connection) == before + 4
    assert [note.channel for note in connection.notifies(timeout=60, stop_after=4)] == ["kafka_access"] * 4


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, "TOPICS"), (1, "MATCH"), (2, ""), (3, "alice"), (4, ""), (5, "ANY"), (6, "MAYBE"), (2, "x" * 1001)],
)
def test_a_row_that_is_no_acl_is_refused(connection: psycopg.Connection, place: int, value: str) -> None:
    row = [*ACL]
    row[place] = value
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(INSERT_ACL, row)


def test_there_is_one_cluster(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(INSERT_ACL, ("CLUSTER", "LITERAL", "other", "User:alice", "*", "READ", "ALLOW"))


def test_who_is_granted_a_topic_reads_and_writes_that_topic(
    connection: psycopg.Connection, topic: str, role: Role
) -> None:
    (part,) = create(connection, topic)
    (other,) = create(connection, f"{topic}-other")
    append(connection, [(part, batch(b"mine")), (other, batch(b"secret"))])
    view = share(connection, topic, alice := role(), "select", "insert")
    connection.execute("select kafka.share_topic(%s)", [f"{topic}-other"])
    with acting_as(connection, alice):
        rows = connection.execute(sql.SQL("select value from {}").format(view)).fetchall()
        assert rows == [(b"mine",)]
        connection.execute(sql.SQL("insert into {} (key, value) values ('k', 'sent')").format(view))
        for refused in ("table kafka.messages", "table kafka.inbox", 'table kafka_topics."' + topic + '-other"'):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(refused.encode())
    sent = connection.execute(
        "select key, value from kafka.inbox where topic_id = (select id from kafka.topics where name = %s)", [topic]
    )
    assert sent.fetchall() == [(b"k", b"sent")]


def test_a_condition_with_a_function_sees_no_other_topic(
    connection: psycopg.Connection, topic: str, role: Role
) -> None:
    """A cheap function in a condition would be called for all rows if the view were no barrier."""
    (part,) = create(connection, topic)
    (other,) = create(connection, f"{topic}-other")
    append(connection, [(part, batch(b"mine")), (other, batch(b"secret"))])
    view = share(connection, topic, alice := role(), "select")
    connection.execute(
        "create or replace function pg_temp.peek(bytea) returns boolean language plpgsql cost 0.0000001 as"
        " $$ begin raise warning '%', $1; return true; end $$"
    )
    seen: list[str] = []
    connection.add_notice_handler(lambda diagnostic: seen.append(diagnostic.message_primary or ""))
    connection.execute(sql.SQL("grant execute on function pg_temp.peek to {}").format(sql.Identifier(alice)))
    with acting_as(connection, alice):
        connection.execute(sql.SQL("select 1 from {} where pg_temp.peek(value)").format(view)).fetchall()
    assert [bytes.fromhex(each.removeprefix("\\x")) for each in seen] == [b"mine"]


def test_what_the_log_gives_cannot_be_forged(connection: psycopg.Connection, topic: str, role: Role) -> None:
    create(connection, topic)
    view = share(connection, topic, alice := role(), "insert")
    with acting_as(connection, alice), pytest.raises(psycopg.errors.GeneratedAlways):
        connection.execute(sql.SQL('insert into {} (value, "offset") values (%s, 7)').format(view), [b"x"])


def test_nobody_writes_through_a_trigger_of_his_own(connection: psycopg.Connection, topic: str, role: Role) -> None:
    """The trigger's function has the owner's rights and writes to the topic that is named as its table is."""
    create(connection, topic)
    mallory = role()
    who = sql.Identifier(mallory)
    connection.execute(sql.SQL("create schema {0} authorization {0}; grant usage on schema kafka to {0}").format(who))
    table = sql.Identifier(mallory, topic)
    columns = 'key bytea, value bytea, headers jsonb, partition int, "offset" bigint, global_offset bigint'
    trigger = sql.SQL("create trigger t before insert on {} for each row execute function kafka.write_shared()")
    with acting_as(connection, mallory):
        connection.execute(sql.SQL(f"create table {{}} ({columns}, timestamp timestamptz)").format(table))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(trigger.format(table))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select kafka.share_topic(%s)", [topic])
    connection.execute(trigger.format(table))  # whoever owns the schema has made it for somebody else
    with (
        acting_as(connection, mallory),
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="not a shared topic"),
    ):
        connection.execute(sql.SQL("insert into {} (value) values ('x')").format(table))


def test_rights_of_roles(connection: psycopg.Connection, topic: str, role: Role) -> None:
    for name in (topic, f"{topic}-2", f"{topic}-3"):
        create(connection, name)
    alice, team = role(), role()
    share(connection, topic, alice, "select")
    share(connection, f"{topic}-2", team, "insert")
    connection.execute(sql.SQL("grant {} to {}").format(sql.Identifier(team), sql.Identifier(alice)))
    names = [alice, f"{alice}.app", f"{alice}2.app", f"{team}.app", "postgres.app", ""]
    topics = [topic, f"{topic}-2", f"{topic}-3", f"{topic}-4"]
    found = {row[:2]: row[2:] for row in connection.execute(RIGHTS, [alice, topics, names]).fetchall()}
    assert found == {
        ("all", ""): (False, False),
        ("some", ""): (False, True),
        ("topic", topic): (True, False),
        ("topic", f"{topic}-2"): (False, True),
        ("topic", f"{topic}-3"): (False, False),
        ("topic", f"{topic}-4"): (False, False),
        **{("name", name): (mine := name.split(".")[0] in (alice, team), mine) for name in names},
    }


def test_a_role_that_is_missing_or_no_longer_granted_has_nothing(
    connection: psycopg.Connection, topic: str, role: Role
) -> None:
    create(connection, topic)
    view = share(connection, topic, alice := role(), "select")
    assert connection.execute(RIGHTS, ["nobody", [topic], ["nobody"]]).fetchall() == []
    # A name of a role has 63 bytes at most: a longer one is not the role that it begins with.
    assert connection.execute(RIGHTS, [alice + "x" * 60, [topic], []]).fetchall() == []
    connection.execute(sql.SQL("revoke all on {} from {}").format(view, sql.Identifier(alice)))
    rows = connection.execute(RIGHTS, [alice, [topic], []]).fetchall()
    assert not any(may_read or may_write for _, _, may_read, may_write in rows)


def test_a_view_of_somebody_else_grants_nothing(connection: psycopg.Connection, topic: str, role: Role) -> None:
    """Whoever may make views there cannot pass them off as topics."""
    create(connection, topic)
    mallory = role()
    share(connection, topic, mallory)
    connection.execute(sql.SQL("grant create on schema kafka_topics to {}").format(sql.Identifier(mallory)))
    with acting_as(connection, mallory):
        view = sql.Identifier("kafka_topics", f"{topic}-2")
        connection.execute(sql.SQL("create view {} as select 1").format(view))
    create(connection, f"{topic}-2")
    rows = connection.execute(RIGHTS, [mallory, [f"{topic}-2"], []]).fetchall()
    assert ("topic", f"{topic}-2", False, False) in rows


def test_rights_to_the_whole_log_count_for_every_topic(connection: psycopg.Connection, topic: str, role: Role) -> None:
    create(connection, topic)
    reader, writer = role(), role()
    connection.execute(sql.SQL("grant select on kafka.messages to {}").format(sql.Identifier(reader)))
    connection.execute(
        sql.SQL("grant insert (topic_id, partition, key, value, headers) on kafka.inbox to {}").format(
            sql.Identifier(writer)
        )
    )
    assert ("topic", topic, True, False) in connection.execute(RIGHTS, [reader, [topic], []]).fetchall()
    assert ("topic", topic, False, True) in connection.execute(RIGHTS, [writer, [topic], []]).fetchall()
    owner = connection.execute("select current_user").fetchone()
    assert owner is not None
    assert ("all", "", True, True) in connection.execute(RIGHTS, [owner[0], [], []]).fetchall()


def test_topics_that_cannot_be_shared(connection: psycopg.Connection, topic: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject):
        connection.execute("select kafka.share_topic('no such topic')")
    create(connection, topic + "x" * 60)
    with pytest.raises(psycopg.errors.NameTooLong):
        connection.execute("select kafka.share_topic(%s)", [topic + "x" * 60])
