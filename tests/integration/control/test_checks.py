"""What `headgate check` says of publications, slots, tables and streams of a file, on several PostgreSQL versions."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headgate.broker import install
from headgate.config import Config, parse
from headgate.control.checks import Check, Outcome, run_checks
from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded import Endpoints
from headgate.embedded.postgres import PostgresServer
from tests.cdc.standby import standby_of, two_hosts
from tests.integration.cdc.conftest import new_server
from tests.integration.cdc.watching import wait_until

DEBIAN = Path("/usr/lib/postgresql/15/bin")
NOBODY = 65534


@contextmanager
def debian_server(*settings: str) -> Iterator[str]:
    """Debian's PostgreSQL 15 with its default settings but those given; yields its address."""
    if not DEBIAN.exists():
        pytest.skip("PostgreSQL 15 of Debian is not installed")
    home = Path(tempfile.mkdtemp(prefix="hg15"))
    account: dict[str, Any] = {}
    if os.getuid() == 0:
        os.chown(home, NOBODY, NOBODY)
        account = {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def run(program: str, *arguments: str) -> None:
        command = [str(DEBIAN / program), "-D", str(home / "data"), *arguments]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=120, **account)
        assert done.returncode == 0, done.stderr

    try:
        run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = " ".join(["-c listen_addresses=''", f"-k {home}", *(f"-c {setting}" for setting in settings)])
        run("pg_ctl", "-l", str(home / "log"), "-o", options, "-w", "start")
        try:
            yield f"host={home} user=postgres dbname=postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def debian_url() -> Iterator[str]:
    with debian_server("wal_level=logical") as url:
        yield url


@pytest.fixture(params=["debian", "shared"])
def admin_url(request: pytest.FixtureRequest, endpoints: Endpoints) -> str:
    """Debian's PostgreSQL 15, then the server of all tests."""
    url = request.getfixturevalue("debian_url") if request.param == "debian" else endpoints.postgres_url
    assert isinstance(url, str)
    return url


@dataclass
class Place:
    """A server, a name for everything of this test, and a role that may do next to nothing."""

    admin: psycopg.Connection[Any]
    url: str
    nats_url: str
    name: str
    directory: Path

    def check(self, source: dict[str, Any] | None = None, destination: dict[str, Any] | None = None) -> list[Check]:
        config = Config.model_validate(
            {
                "project": {"name": "checks", "data_dir": self.directory},
                "postgres": {"url": self.url},
                "nats": {"url": self.nats_url},
                "sources": {
                    "s": {"type": "postgres-cdc", "slot": self.name, "publication": self.name, **(source or {})}
                },
                "destinations": {
                    "d": {"type": "nats", "stream": self.name, "subjects": [f"{self.name}.>"], **(destination or {})}
                },
                "pipelines": {"p": {"source": "s", "destinations": ["d"]}},
            }
        )
        return list(run_checks(config, start_spark=False))

    def fix_all(self, **sections: dict[str, Any]) -> list[Check]:
        """Run every fix of what fails, then check again."""
        for check in self.failures(**sections):
            self.admin.execute(check.fix.encode())
        return self.failures(**sections)

    def failures(self, **sections: dict[str, Any]) -> list[Check]:
        return [check for check in self.check(**sections) if check.outcome is Outcome.FAIL]

    def found(self, subject: str, **sections: dict[str, Any]) -> list[Check]:
        return [check for check in self.check(**sections) if check.subject == subject.format(self.name)]


@pytest.fixture
def place(admin_url: str, endpoints: Endpoints, tmp_path: Path) -> Iterator[Place]:
    name = f"c{uuid.uuid4().hex[:8]}"
    assert endpoints.nats_url is not None
    url = psycopg.conninfo.make_conninfo(admin_url, user=name)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(f"create role {name} login replication; create schema {name}".encode())
        yield Place(admin, url, endpoints.nats_url, name, tmp_path)
        admin.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [name]
        )
        admin.execute(f"drop publication if exists {name}; drop schema {name} cascade".encode())
        admin.execute(f"drop owned by {name}; drop role {name}".encode())


def test_a_missing_publication_is_reported_although_another_exists(place: Place) -> None:
    other = f"{place.name}_other"
    place.admin.execute(f"create publication {other} for all tables".encode())
    try:
        (check,) = place.found("publication {}")
        assert check.outcome is Outcome.FAIL
        assert check.fix.startswith(f'CREATE PUBLICATION "{place.name}" FOR TABLE')
    finally:
        place.admin.execute(f"drop publication {other}".encode())


def test_a_file_whose_parts_are_all_there_is_good(place: Place) -> None:
    place.admin.execute(
        f"""create table {place.name}.t (id int primary key);
            grant usage on schema {place.name} to {place.name}; grant select on {place.name}.t to {place.name};
            create publication {place.name} for table {place.name}.t""".encode()
    )
    place.admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [place.name])
    assert not place.failures()
    assert [check.found for check in place.found("publication {}")] == ["1 tables"]
    (slot,) = place.found("slot {}")
    assert "nobody reads it" in slot.found
    (stream,) = place.found("replication connection")
    assert stream.outcome is Outcome.OK
    assert "timeline 1" in stream.found


def test_rights_are_asked_column_by_column_and_mended_by_the_fix(place: Place) -> None:
    place.admin.execute(
        f"""create table {place.name}."odd Table" (id int primary key, secret text, "Shown" text);
            create publication {place.name} for table {place.name}."odd Table" (id, "Shown")""".encode()
    )
    found = [check for check in place.failures() if check.subject == "table privilege"]
    assert [check.fix for check in found] == [
        f'GRANT USAGE ON SCHEMA "{place.name}" TO "{place.name}";',
        f'GRANT SELECT ("id", "Shown") ON "{place.name}"."odd Table" TO "{place.name}";',
    ]
    assert place.fix_all() == []


def test_a_role_that_may_not_replicate_hears_what_the_server_answered(place: Place) -> None:
    place.admin.execute(f"alter role {place.name} noreplication".encode())
    subjects = {check.subject: check for check in place.failures()}
    assert subjects["replication privilege"].fix == f'ALTER ROLE "{place.name}" REPLICATION;'
    assert "replication" in subjects["replication connection"].found.lower()


def test_tables_of_the_file_that_are_not_published_are_named(place: Place) -> None:
    place.admin.execute(
        f"""create table {place.name}.a (id int primary key); create table {place.name}.b (id int primary key);
            grant usage on schema {place.name} to {place.name};
            grant select on all tables in schema {place.name} to {place.name};
            create publication {place.name} for table {place.name}.a""".encode()
    )
    source = {"tables": [f"{place.name}.a", f"{place.name}.b"]}
    (missing,) = place.failures(source=source)
    assert missing.found == f"does not have the table {place.name}.b"
    assert place.fix_all(source=source) == []


def test_a_publication_that_the_file_lets_headgate_make_needs_its_rights(place: Place) -> None:
    place.admin.execute(f"create table {place.name}.a (id int primary key)".encode())
    source = {"tables": [f"{place.name}.a"]}
    (check,) = place.found("publication {}", source=source)
    assert check.outcome is Outcome.FAIL
    place.admin.execute(
        f"""grant create on database {place.admin.info.dbname} to {place.name};
            grant usage, create on schema {place.name} to {place.name};
            alter table {place.name}.a owner to {place.name}""".encode()
    )
    (check,) = place.found("publication {}", source=source)
    assert (check.outcome, "is created" in check.found) == (Outcome.OK, True)
    known = place.admin.execute("select 1 from pg_publication where pubname = %s", [place.name]).fetchone()
    assert known is None  # looking creates nothing


def test_partitions_identities_operations_and_policies_are_warned_of(place: Place) -> None:
    place.admin.execute(
        f"""create table {place.name}.root (id int) partition by range (id);
            create table {place.name}.leaf partition of {place.name}.root for values from (0) to (9);
            create table {place.name}.hidden (id int primary key);
            alter table {place.name}.hidden enable row level security;
            grant usage on schema {place.name} to {place.name};
            grant select on all tables in schema {place.name} to {place.name};
            create publication {place.name} for table {place.name}.root, {place.name}.hidden
              with (publish = 'insert, update')""".encode()
    )
    warned = {check.subject: check for check in place.check() if check.outcome is Outcome.WARN}
    assert f"{place.name}.leaf" in warned["replica identity"].found
    assert f"{place.name}.hidden" in warned["row security"].found
    publication = place.found("publication {}")
    assert [check.found for check in publication] == [
        "2 tables, only insert and update",
        "partitions are published as tables of their own",
    ]
    for check in [*publication, warned["replica identity"], warned["row security"]]:
        place.admin.execute(check.fix.encode())
    warned = {check.subject: check for check in place.check() if check.outcome is Outcome.WARN}
    assert "row security" not in warned
    assert f"publication {place.name}" not in warned
    assert "replica identity" not in warned  # the leaf has one, and events are named after the root


def test_what_rows_alone_cannot_tell_is_warned_of(place: Place) -> None:
    """Each fix but the one for a key, whose column nobody can guess, ends its warning."""
    name = place.name
    place.admin.execute(
        f"create table {name}.long (id int primary key, note text); create table {name}.bare (id int);"
        f"create table {name}.short (id int primary key, n bigint);"
        f"create publication {name} for table {name}.long, {name}.bare, {name}.short".encode()
    )
    unwrapped = {"source": {"format": "debezium", "debezium": {"unwrap": True}}}

    def warnings() -> list[Check]:
        subjects = ("message key", "replica identity", f"publication {name}")
        found = place.check(**unwrapped)
        return [each for each in found if each.outcome is Outcome.WARN and each.subject in subjects]

    first = [(each.subject, each.found) for each in warnings()]
    assert any(f"update of {name}.long does not send" in found for _, found in first), first
    assert any(subject == "message key" and f"{name}.bare" in found for subject, found in first), first
    assert any("TRUNCATE" in found for _, found in first), first
    assert not any("short" in found for _, found in first), first
    for each in warnings():
        if each.subject != "message key":
            place.admin.execute(each.fix.partition(" -- ")[0].encode())
    place.admin.execute(f"alter table {name}.bare add primary key (id)".encode())
    assert warnings() == []


def test_a_slot_of_another_kind_or_database_is_refused(place: Place) -> None:
    place.admin.execute("select pg_create_physical_replication_slot(%s)", [place.name])
    (check,) = place.found("slot {}")
    assert check.outcome is Outcome.FAIL
    assert "physical" in check.found
    place.admin.execute("select pg_drop_replication_slot(%s)", [place.name])
    place.admin.execute(f"create database {place.name}".encode())
    try:
        elsewhere = psycopg.conninfo.make_conninfo(place.url, dbname=place.name, user=place.admin.info.user)
        with psycopg.connect(elsewhere, autocommit=True) as other:
            other.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [place.name])
        (check,) = place.found("slot {}")
        assert check.outcome is Outcome.FAIL
        assert f"belongs to the database {place.name}" in check.found
        place.admin.execute("select pg_drop_replication_slot(%s)", [place.name])
    finally:
        place.admin.execute(f"drop database {place.name}".encode())


def test_failover_is_asked_of_the_slot_and_the_primary(place: Place) -> None:
    place.admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [place.name])
    source = {"failover": True}
    if place.admin.info.server_version < 170000:
        (check,) = place.found("failover", source=source)
        assert (check.outcome, "17" in check.found) == (Outcome.FAIL, True)
        return
    (slot,) = place.found("failover slot", source=source)
    assert slot.outcome is Outcome.FAIL
    _, command, _ = slot.fix.rsplit("'", 2)
    with psycopg.connect(place.url, replication="database", autocommit=True) as walsender:
        walsender.execute(command.encode())
    (slot,) = place.found("failover slot", source=source)
    assert slot.outcome is Outcome.OK
    (waits,) = place.found("synchronized_standby_slots", source=source)
    assert waits.outcome is Outcome.WARN
    assert "ALTER SYSTEM SET synchronized_standby_slots" in waits.fix


def test_a_standby_of_the_address_is_asked_whether_it_copies_the_slot(endpoints: Endpoints, tmp_path: Path) -> None:
    assert endpoints.nats_url is not None
    (tmp_path / "primary").mkdir()
    primary = new_server(tmp_path / "primary", 18)
    primary.start()
    try:
        with psycopg.connect(primary.url, autocommit=True) as admin:
            admin.execute("create table t (id int primary key); create publication shop for table t")
            admin.execute("select pg_create_logical_replication_slot('shop', 'pgoutput', false, false, true)")
            admin.execute("select pg_create_physical_replication_slot('standby_slot')")
            standby = standby_of(primary, tmp_path / "standby")
            try:
                place = Place(admin, two_hosts(standby, primary, "headgate"), endpoints.nats_url, "shop", tmp_path)
                _ask_standby(place, standby)
            finally:
                standby.stop()
    finally:
        primary.stop()


def _ask_standby(place: Place, standby: PostgresServer) -> None:
    host = psycopg.conninfo.conninfo_to_dict(standby.url)
    subject = f"standby {host['host']}:{host['port']}"
    (asked,) = place.found(subject, source={"failover": True})
    assert asked.outcome is Outcome.WARN
    assert "sync_replication_slots is off" in asked.found
    assert "hot_standby_feedback is off" in asked.found
    with psycopg.connect(standby.url, autocommit=True) as there:
        for statement in asked.fix.split("--")[0].replace("its_slot_on_the_primary", "standby_slot").split(";"):
            if statement.strip():
                there.execute(statement.encode())
    wait_until(lambda: _is_copied(place, standby), 90)
    (asked,) = place.found(subject, source={"failover": True})
    assert (asked.outcome, asked.found) == (Outcome.OK, "copies the slot")
    (waits,) = place.found("synchronized_standby_slots", source={"failover": True})
    for statement in waits.fix.split(";"):
        if statement.strip():
            place.admin.execute(statement.encode())
    wait_until(lambda: _outcome(place, "synchronized_standby_slots") is Outcome.OK, 30)


def _outcome(place: Place, subject: str) -> Outcome:
    return place.found(subject, source={"failover": True})[0].outcome


def _is_copied(place: Place, standby: PostgresServer) -> bool:
    """A copy is complete once the slot has moved past where the standby began."""
    place.admin.execute("select pg_log_standby_snapshot()")
    place.admin.execute("select pg_replication_slot_advance('shop', pg_current_wal_lsn())")
    query = "select 1 from pg_replication_slots where slot_name = 'shop' and synced and not temporary"
    with psycopg.connect(standby.url, autocommit=True) as there:
        return there.execute(query).fetchone() is not None


def test_a_stream_that_differs_is_told_with_the_setting(place: Place) -> None:
    options = NatsOptions(url=place.nats_url, stream=place.name, subjects=(f"{place.name}.>",))
    (check,) = place.found("stream {}")
    assert (check.outcome, "none yet" in check.found) == (Outcome.OK, True)
    with JetStream.open(options) as jetstream:
        assert jetstream.stream_info(place.name) is None  # looking creates nothing
        info = jetstream.ensure_stream(options)
        (check,) = place.found("stream {}", destination={"max_age": "1d"})
        assert "next start changes max_age" in check.found
        jetstream.update_stream({**info.config, "max_msgs_per_subject": 1})
        (check,) = place.found("stream {}")
        assert (check.outcome, "max_msgs_per_subject" in check.found) == (Outcome.FAIL, True)
        (check, _) = place.found("stream {}_2", destination={"stream": f"{place.name}_2"})
        assert f"{place.name} takes {place.name}.> already" in check.found


def test_default_settings_of_debian_are_told_with_their_remedies(tmp_path: Path, endpoints: Endpoints) -> None:
    with debian_server("max_replication_slots=1") as url, psycopg.connect(url, autocommit=True) as admin:
        admin.execute("select pg_create_physical_replication_slot('taken')")
        assert endpoints.nats_url is not None
        place = Place(admin, url, endpoints.nats_url, "shop", tmp_path)
        found = {check.subject: check for check in place.check()}
        assert (found["wal_level"].outcome, found["wal_level"].found) == (Outcome.FAIL, "replica")
        assert found["max_replication_slots"].outcome is Outcome.FAIL
        assert found["max_slot_wal_keep_size"].outcome is Outcome.WARN
        for subject in ("wal_level", "max_replication_slots", "max_slot_wal_keep_size"):
            for statement in found[subject].fix.split("--")[0].split(";"):
                if statement.strip():
                    admin.execute(statement.encode())
        assert json.loads(json.dumps([check.as_dict() for check in place.check()]))


def test_nothing_is_looked_at_that_nothing_uses(tmp_path: Path) -> None:
    """Files into a table: no server is started for it, and none is asked."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("line\n")
    config = parse(FILES_TO_TABLE.format(tmp_path=tmp_path), where=tmp_path / "headgate.toml")
    found = {check.subject: check for check in run_checks(config, start_spark=False)}
    assert not [subject for subject in found if "postgres" in subject or "nats" in subject or "embedded" in subject]
    assert found["source lines"].found == f"1 files in {tmp_path}/in"
    assert found["destination lake"].outcome is Outcome.OK
    (tmp_path / "in" / "a.txt").unlink()
    (tmp_path / "in").rmdir()
    missing = {check.subject: check for check in run_checks(config.model_copy(), start_spark=False)}
    assert missing["source lines"].outcome is Outcome.OK  # its parent is there: it may come
    (tmp_path / "lake").write_text("no directory")
    taken = {check.subject: check for check in run_checks(config, start_spark=False)}
    assert taken["destination lake"].outcome is Outcome.FAIL


FILES_TO_TABLE = """
[sources.lines]
type = "files"
path = "{tmp_path}/in"
format = "text"

[destinations.lake]
type = "table"
path = "{tmp_path}/lake"

[destinations.unused]
type = "nats"
stream = "CDC"
subjects = ["cdc.>"]

[pipelines.p]
source = "lines"
destinations = ["lake"]
topic = "t"
"""

EVERY_KIND = """
[postgres]
url = "{url}"

[sources.polled]
type = "postgres-poll"
table = "{schema}.{table}"
tracking_column = "{column}"
delete_after_read = true

[sources.grouped]
type = "broker"
group = "g"

[sources.topics]
type = "log"
topics = ["nothing"]

[sources.hook]
type = "webhook"
port = {port}

[sources.network]
type = "atproto"
url = "ws://127.0.0.1:{closed}"

[destinations.events]
type = "broker"
broker_schema = "{schema}_broker"

[destinations.log]
type = "log"

[pipelines]
a = {{ source = "polled", destinations = ["events"], topic = "t" }}
b = {{ source = "grouped", destinations = ["log"], topic = "t" }}
c = {{ source = "topics", destinations = ["log"], topic = "t" }}
d = {{ source = "hook", destinations = ["log"], topic = "t" }}
e = {{ source = "network", destinations = ["log"], topic = "t" }}
"""


def test_every_source_and_destination_is_looked_at(endpoints: Endpoints, tmp_path: Path) -> None:
    """As a role that may do little, on a server where half of it is missing: each says so, with the way out."""
    name = f"checked_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(str(endpoints.postgres_url), autocommit=True) as admin, socket.socket() as busy:
        admin.execute(f"create role {name} login".encode())
        admin.execute(f"create database {name}".encode())
        admin.execute(f"revoke create on database {name} from public".encode())
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        try:
            owner = make_conninfo(str(endpoints.postgres_url), dbname=name)
            url = make_conninfo(owner, user=name)
            with psycopg.connect(owner, autocommit=True) as db:
                db.execute(f"create schema {name}; create table {name}.t (id int primary key, v text)".encode())
                db.execute(f"grant usage on schema {name} to {name}; grant select on {name}.t to {name}".encode())
                values = {"url": url, "schema": name, "table": "t", "column": "id", "port": busy.getsockname()[1]}
                found = _checked(EVERY_KIND.format(**values, closed=_closed_port()), tmp_path)
                assert found["postgres connection"].outcome is Outcome.OK
                assert "wal_level" not in found  # no changes are read
                assert "delete" in found["source polled"].found
                assert "install" in found["source grouped"].fix
                assert found["source topics"].outcome is Outcome.FAIL
                assert found["source hook"].outcome is Outcome.WARN
                assert "127.0.0.1" in found["source network"].found
                assert "may not be made" in found["destination events"].found
                assert "GRANT CREATE" in found["destination log"].fix
                db.execute(f"grant delete on {name}.t to {name}".encode())
                install(db)
                db.execute(f"select headgate.grant_usage('consumer', to_role => '{name}')".encode())
                mended = _checked(EVERY_KIND.format(**values, closed=_closed_port()), tmp_path)
                assert mended["source polled"].found == f"table {name}.t, by id"
                assert mended["source grouped"].outcome is Outcome.OK
                wrong = _checked(EVERY_KIND.format(**values | {"column": "no"}, closed=_closed_port()), tmp_path)
                assert "no" in wrong["source polled"].found
        finally:
            admin.execute(f"drop database {name} with (force)".encode())
            admin.execute(f"drop role {name}".encode())


def _checked(text: str, tmp_path: Path) -> dict[str, Check]:
    config = parse(text, where=tmp_path / "headgate.toml")
    return {check.subject: check for check in run_checks(config, start_spark=False)}


def _closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
