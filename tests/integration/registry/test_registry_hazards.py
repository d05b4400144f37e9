"""Two registries on one database, many clients at once, a database that goes away, and roles with few rights."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headgate.embedded import Endpoints
from headgate.model import AuthError
from headgate.registry.install import install, prepare
from tests.documents import wait_until
from tests.gateway.servers import new_database
from tests.integration.broker.pooler import needs_pgbouncer, pgbouncer


def schema(number: int) -> dict[str, str]:
    fields = [{"name": f"f{number}", "type": "int", "default": 0}]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}


def test_two_registries_give_one_id_to_one_schema_and_versions_without_gaps(serve: Any) -> None:
    urls = [serve().url, serve().url]
    clients, rounds = 8, 6
    barrier = threading.Barrier(clients)

    def work(client: int) -> list[int]:
        with httpx.Client(base_url=urls[client % 2], timeout=120) as http:
            found = []
            for number in range(rounds):
                barrier.wait(60)
                shared = http.post("/subjects/shared/versions", json=schema(number))
                own = http.post(f"/subjects/own-{client}/versions", json=schema(number))
                assert (shared.status_code, own.status_code) == (200, 200), (shared.text, own.text)
                assert shared.json() == own.json()
                found.append(shared.json()["id"])
            return found

    with ThreadPoolExecutor(clients) as pool:
        ids = list(pool.map(work, range(clients)))
    assert all(each == ids[0] for each in ids)
    assert sorted(ids[0]) == list(range(1, rounds + 1))
    assert httpx.get(f"{urls[0]}/subjects/shared/versions").json() == list(range(1, rounds + 1))


def test_different_schemas_at_once_become_consecutive_versions(serve: Any) -> None:
    urls = [serve().url, serve().url]
    count = 12

    def work(number: int) -> int:
        answer = httpx.post(f"{urls[number % 2]}/subjects/s/versions", json=schema(number), timeout=120)
        return int(answer.json()["id"])

    with ThreadPoolExecutor(count) as pool:
        ids = list(pool.map(work, range(count)))
    assert sorted(ids) == list(range(1, count + 1))
    assert httpx.get(f"{urls[0]}/subjects/s/versions").json() == list(range(1, count + 1))


def test_of_two_that_do_not_go_together_one_is_refused(serve: Any) -> None:
    """Each alone may follow the first version, but neither may follow the other."""
    urls = [serve().url, serve().url]
    record = {"type": "record", "name": "R", "fields": []}
    httpx.post(f"{urls[0]}/subjects/s/versions", json={"schema": json.dumps(record)})
    rivals = [record | {"fields": [{"name": "a", "type": kind, "default": value}]} for kind, value in _KINDS]

    def work(number: int) -> int:
        answer = httpx.post(
            f"{urls[number]}/subjects/s/versions", json={"schema": json.dumps(rivals[number])}, timeout=120
        )
        return answer.status_code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(work, range(2))) == [200, 409]


_KINDS: list[tuple[str, Any]] = [("int", 0), ("string", "")]


def test_a_database_that_goes_away_is_told_and_comes_back(serve: Any, database: str) -> None:
    server = serve()
    with httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.get("/subjects").status_code == 200
        name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
        with psycopg.connect(make_conninfo(database, dbname="postgres"), autocommit=True) as admin:
            admin.execute(f"alter database {name} allow_connections false")
            admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
            answer = client.get("/subjects")
            assert (answer.status_code, answer.json()["error_code"]) == (500, 50001)
            wait_until(lambda: "database" in server.metrics().get("troubles", {}), "the trouble is told")
            assert name not in answer.text
            admin.execute(f"alter database {name} allow_connections true")
        wait_until(lambda: client.get("/subjects").status_code == 200, "the database is there again")
        wait_until(lambda: "troubles" not in server.metrics(), "the trouble is over")


def test_installing_again_changes_nothing_and_a_later_version_is_refused(database: str) -> None:
    prepare(database)
    prepare(database)
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from registry.counters").fetchone() == (1,)


def test_a_role_that_may_only_read_and_write_serves(serve: Any, database: str) -> None:
    prepare(database)
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("drop role if exists registry_server")
        admin.execute("create role registry_server login")
        admin.execute("grant usage on schema registry to registry_server")
        admin.execute("grant select, insert, update, delete on all tables in schema registry to registry_server")
    try:
        server = serve(postgres_url=make_conninfo(database, user="registry_server"))
        assert httpx.post(f"{server.url}/subjects/s/versions", json=schema(1)).json() == {"id": 1}
        assert httpx.delete(f"{server.url}/subjects/s").json() == [1]
        with psycopg.connect(make_conninfo(database, user="registry_server")) as connection:
            install(connection)  # there is nothing left to do
    finally:
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute("drop owned by registry_server")


def test_a_role_without_rights_is_told_what_it_lacks(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("drop role if exists registry_nobody")
        admin.execute("create role registry_nobody login")
    with pytest.raises(AuthError, match="registry"):
        prepare(make_conninfo(database, user="registry_nobody"))


@needs_pgbouncer
def test_it_works_behind_a_pooler(serve: Any, endpoints: Endpoints) -> None:
    with ExitStack() as stack:
        database = stack.enter_context(new_database(str(endpoints.postgres_tcp_url)))
        prepare(database)
        url = stack.enter_context(pgbouncer(database, sessions=2))
        server = serve(postgres_url=url)

        def work(number: int) -> int:
            with httpx.Client(base_url=server.url, timeout=120) as client:
                return int(client.post("/subjects/s/versions", json=schema(number)).json()["id"])

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(work, range(8))) == list(range(1, 9))
        assert httpx.get(f"{server.url}/subjects/s/versions").json() == list(range(1, 9))


def test_a_client_that_stops_in_the_middle_of_its_body_holds_nobody_up(serve: Any) -> None:
    server = serve()
    host, port = server.url.removeprefix("http://").split(":")
    with ExitStack() as stack:
        for _ in range(50):
            stalled = stack.enter_context(socket.create_connection((host, int(port))))
            stalled.sendall(b"POST /subjects/s/versions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000\r\n\r\n{")
        assert httpx.post(f"{server.url}/subjects/s/versions", json=schema(1), timeout=60).json() == {"id": 1}
