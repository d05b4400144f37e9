"""Databases with the broker in them, and with a model of the one that it replaces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headgate.broker import install
from headgate.broker.http.options import BrokerServerOptions
from headgate.broker.http.server import BrokerServer
from headgate.embedded import Endpoints
from tests.integration.broker.brokers import Broker, Headgate, Original
from tests.integration.broker.servers import CHOSEN
from tests.servers import running_server

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture(scope="session")
def embedded_template(endpoints: Endpoints) -> Iterator[tuple[str, str]]:
    """The address of a server, and the name of a database to copy: making one anew takes longer."""
    assert endpoints.postgres_url is not None
    with _installed(endpoints.postgres_url) as name:
        yield endpoints.postgres_url, name


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[str, str]]]:
    """The same of other servers, which are started when they are first asked for."""
    made: dict[str, tuple[str, str]] = {}
    with ExitStack() as running:

        def of(server: str) -> tuple[str, str]:
            if server not in made:
                url = running.enter_context(running_server(server, tmp_path_factory.mktemp("broker")))
                made[server] = url, running.enter_context(_installed(url))
            return made[server]

        yield of


@contextmanager
def _installed(server: str) -> Iterator[str]:
    name = f"broker_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    with psycopg.connect(make_conninfo(server, dbname=name), autocommit=True) as connection:
        install(connection)
        connection.execute(Path(__file__).with_name("original.sql").read_bytes())
    yield name
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture(scope="module")
def template(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The server of a test, and the database that its own is a copy of."""
    server: str | None = getattr(request, "param", CHOSEN)
    if server is None:
        found: tuple[str, str] = request.getfixturevalue("embedded_template")
    else:
        found = request.getfixturevalue("templates")(server)
    return found


@contextmanager
def copy_of(template: tuple[str, str]) -> Iterator[str]:
    server, source = template
    name = f"broker_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        # Copying the files is quicker than logging all pages, for so small a database. Version 14 knows nothing else.
        statement = sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(source))
        admin.execute(statement + sql.SQL(" strategy file_copy" if admin.info.server_version >= 150000 else ""))
        yield make_conninfo(server, dbname=name)
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def database(template: tuple[str, str]) -> Iterator[str]:
    """A database of its own, fresh."""
    with copy_of(template) as url:
        yield url


@pytest.fixture(scope="module")
def shared_db(template: tuple[str, str]) -> Iterator[psycopg.Connection[Any]]:
    """One database for tests that leave nothing behind."""
    with copy_of(template) as url, psycopg.connect(url, autocommit=True, options="-c search_path=headgate") as opened:
        yield opened


@pytest.fixture
def connect(database: str) -> Iterator[Connect]:
    """Opens sessions, which end with the test."""
    with ExitStack() as opened:

        def open_session(**options: Any) -> psycopg.Connection[Any]:
            settings = {"autocommit": True, "options": "-c search_path=headgate", **options}
            return opened.enter_context(psycopg.connect(database, **settings))

        yield open_session


@pytest.fixture
def db(connect: Connect) -> psycopg.Connection[Any]:
    return connect()


@pytest.fixture
def ours(db: psycopg.Connection[Any]) -> Broker:
    return Headgate(db)


@pytest.fixture
def original(db: psycopg.Connection[Any]) -> Broker:
    return Original(db)


@pytest.fixture(scope="module")
def shared_doors(template: tuple[str, str]) -> Iterator[httpx.Client]:
    """Doors with a token, in a thread of their own, for requests that are answered at once."""
    ready: Queue[str] = Queue()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run(url: str) -> None:
        async with BrokerServer.open(BrokerServerOptions(postgres_url=url, port=0, token="t0ken-of-test")) as doors:
            ready.put(doors.url)
            await stop.wait()

    with copy_of(template) as url:
        thread = threading.Thread(target=lambda: loop.run_until_complete(run(url)))
        thread.start()
        with httpx.Client(base_url=ready.get(timeout=20), timeout=20) as client:
            yield client
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
