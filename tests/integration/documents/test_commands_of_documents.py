"""Commands that the documents show do what stands there, against real servers. Those that need Spark are elsewhere."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headgate.broker import install
from headgate.embedded import Endpoints
from headgate.eventlog import Entry, LogWriter
from tests.documents import ROOT, Terminal, block, blocks, wait_until

pytestmark = pytest.mark.timeout(300)


def free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture
def url(endpoints: Endpoints) -> Iterator[str]:
    """A database of its own."""
    assert endpoints.postgres_url is not None
    name = sql.Identifier(f"documents_{uuid4().hex[:12]}")
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(name))
        yield make_conninfo(endpoints.postgres_url, dbname=name.as_string().strip('"'))
        admin.execute(sql.SQL("drop database {} with (force)").format(name))


def configure(directory: Path, url: str, more: str = "") -> None:
    (directory / "headgate.toml").write_text(f"[postgres]\nurl = {json.dumps(url)}\n{more}")


@pytest.mark.skipif(not shutil.which("psql"), reason="needs psql")
def test_the_broker_is_installed_by_psql(url: str) -> None:
    with Terminal(ROOT, environ={"DATABASE_URL": url}) as terminal:
        terminal.play(block("docs/broker.md", "psql -1 -f"))
    with psycopg.connect(url) as connection:
        assert connection.execute("select headgate.publish('t', '{}')").fetchone()


def test_the_broker_from_the_command_line(url: str, tmp_path: Path) -> None:
    configure(tmp_path, url)
    with psycopg.connect(url, autocommit=True, options="-c search_path=headgate") as connection:
        install(connection)
        connection.execute("update config set value = '1' where key = 'condition_failures'")
        row = connection.execute("select subscribe('mailer', '(e.payload ->> ''n'')::int > 0')").fetchone()
        connection.execute("""select publish('t', '{"n": "x"}')""")  # on which that raises
        connection.execute("select poll_for_events()")
        assert row is not None

        def is_tailing(_: str) -> bool:
            return connection.execute("select count(*) from subscriptions").fetchone() == (2,)

        on_a_screen = "script -qefc 'headgate broker top' /dev/null"  # elsewhere it shows only its last state
        with Terminal(tmp_path, {" 12": f" {row[0]}", "headgate broker top": on_a_screen}) as terminal:
            shown = terminal.play(
                block("docs/broker.md", "headgate broker install"),
                {
                    "headgate broker tail": is_tailing,
                    "headgate broker top": lambda printed: "mailer" in printed and terminal.interrupt(),
                },
            )
            assert '"name": "ann"' in (tmp_path / "headgate broker tail user.created.out").read_text()
        assert "mailer" in shown
        assert connection.execute("select to_regnamespace('headgate')").fetchone() == (None,)


def is_open(port: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(port))).close()
    except ConnectionRefusedError:
        return False
    return True


def test_the_brokers_events_over_http(url: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    configure(tmp_path, url, f"[broker]\nport = {port}\n")
    with psycopg.connect(url, autocommit=True) as connection, Terminal(tmp_path, {"8720": port}) as terminal:

        def is_heard(_: str) -> bool:
            return connection.execute("select count(*) from headgate.subscriptions").fetchone() == (1,)

        terminal.play(
            block("docs/broker.md", "headgate broker serve"),
            {"headgate broker serve": lambda _: is_open(port), "curl": is_heard},
        )
        (heard,) = tmp_path.glob("curl*.out")
        wait_until(lambda: 'data: {"name": "ann"}' in heard.read_text(), "the event")


def test_a_ticket_for_a_page(url: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    configure(tmp_path, url, f'[broker]\nport = {port}\ntoken = "TOKEN"\n')
    with Terminal(tmp_path, {"8720": port}) as terminal:
        terminal.start("headgate broker serve")
        wait_until(lambda: is_open(port), "the server")
        assert "ticket" in json.loads(terminal.play(block("docs/broker.md", "curl -X POST")))


def test_webhooks_of_the_broker(url: str, tmp_path: Path) -> None:
    configure(tmp_path, url)
    with psycopg.connect(url) as connection:
        install(connection)
    with Terminal(tmp_path) as terminal:
        assert "crm.example" in terminal.play(block("docs/broker.md", "headgate broker webhooks add"))


needs_kcat = pytest.mark.skipif(not shutil.which("kcat"), reason="needs kcat")


@needs_kcat
@pytest.mark.parametrize("page", ["README.md", "docs/gateway.md"])
def test_a_gateway_and_kcat(page: str, url: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    configure(tmp_path, url, f"[gateway]\nport = {port}\n")
    served = {"headgate gateway": lambda printed: f"bootstrap.servers=127.0.0.1:{port}" in printed}
    with Terminal(tmp_path, {"9092": port, "kcat ": "kcat -m 60 "}) as terminal:  # on a machine that is busy
        terminal.play(block(page, "headgate gateway"), served)
        if page == "README.md":
            assert terminal.run("kcat -b 127.0.0.1:9092 -t greetings -C -o beginning -e") == "hello\n"
            return
        terminal.play(block(page, "kcat -b 127.0.0.1:9092 -L"))
        (outbox,) = [
            each.text for each in blocks(page) if each.language == "sql" and "create table if not" in each.text
        ]
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(outbox.encode())
        shown = block(page, "kcat -b 127.0.0.1:9092 -t orders -C")
        (message,) = shown.output
        wait_until(lambda: terminal.play(shown) == f"{message}\n", "what the gateway takes out of the outbox")


def test_a_schema_registry(url: str, tmp_path: Path) -> None:
    page = "docs/registry.md"
    (port,) = free_ports(1)
    configure(tmp_path, url, f"[registry]\nport = {port}\n")
    served = {"headgate registry": lambda printed: f"schema.registry.url=http://127.0.0.1:{port}" in printed}
    with Terminal(tmp_path, {"8081": port}) as terminal:
        answers = terminal.play(block(page, "headgate registry"), served)
        assert answers.startswith('{"id":1}{"subject":"users-value","version":1,"id":1,')
        refused = terminal.play(block(page, "curl -s -H 'content-type: application/json' 'http"))
        assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused
    (grants,) = [each.text for each in blocks(page) if each.language == "sql"]
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("create role registry_server")
        admin.execute(grants.encode())
        admin.execute("drop owned by registry_server")
        admin.execute("drop role registry_server")


def test_several_gateways_on_one_database(url: str, tmp_path: Path) -> None:
    first, second = free_ports(2)
    configure(tmp_path, url)
    with Terminal(tmp_path, {"9092": first, "9093": second}) as terminal:
        served = {"headgate gateway": lambda printed: "bootstrap.servers=" in printed}
        terminal.play(block("docs/gateway.md", "headgate gateway --port"), served)


@pytest.mark.parametrize("page", ["README.md", "docs/relay.md"])
def test_a_relay_and_its_network(page: str, tmp_path: Path) -> None:
    with Terminal(tmp_path, {"simulate": "simulate --seconds 2"}) as terminal:
        terminal.play(block(page, "headgate relay simulate"))


def test_an_event_log_is_checked_and_repaired(tmp_path: Path) -> None:
    with LogWriter(tmp_path / ".headgate/relay/log") as writer:
        writer.append_all([Entry(1, 1, b"one"), Entry(1, 1, b"two")])
    with Terminal(tmp_path) as terminal:
        terminal.play(block("docs/eventlog.md", "headgate eventlog check"))


def test_a_server_of_webhooks_by_itself(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with Terminal(tmp_path, {"8730": port, "/var/spool/hooks": str(tmp_path / "hooks")}) as terminal:
        served = {"python -m": lambda printed: port in printed}
        terminal.play(block("docs/sources.md", "echo"), served)
    assert list((tmp_path / "hooks").iterdir())
