"""A server that speaks German: what happens next is decided by SQLSTATE, never by words."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from headgate.embedded.postgres import PostgresServer
from headgate.model import AuthError, StateError
from headgate.sources.postgres_cdc.control import SpoolControl
from headgate.sources.postgres_cdc.process import ReaderProcess
from tests.integration.cdc.conftest import Admin
from tests.integration.cdc.watching import Start, confirm_all, ids, status, wait_until
from tests.stock import STOCK_VERSION, StockPostgres, needs_stock

LOCALE = "de_DE.UTF-8"
TRANSLATIONS = Path(f"/usr/share/locale/de/LC_MESSAGES/postgres-{STOCK_VERSION}.mo")

pytestmark = [
    pytest.mark.timeout(180),
    needs_stock,
    pytest.mark.skipif(not TRANSLATIONS.exists(), reason="the server has no German messages"),
]


class GermanPostgres(StockPostgres):
    """Debian's server with a locale that the machine need not have."""

    def __init__(self, data: Path, run: Path, locales: Path) -> None:
        super().__init__(data, run, settings={"lc_messages": LOCALE})
        self._locales = locales

    def _command(self, port: int) -> list[str]:
        command = super()._command(port)
        program = command.index(str(self.cluster.program("postgres")))
        return [*command[:program], "env", f"LOCPATH={self._locales}", *command[program:]]


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    directory = tmp_path_factory.mktemp("german")
    (directory / "run").mkdir()
    with tempfile.TemporaryDirectory() as made:
        locales = Path(made)
        locales.chmod(0o755)  # the server may run under another account
        try:
            subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(locales / LOCALE)], check=True, timeout=60)
        except (FileNotFoundError, subprocess.CalledProcessError):
            pytest.skip("the locale cannot be made: apt-get install locales")
        server = GermanPostgres(directory / "postgres", directory / "run", locales)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def server(german: PostgresServer) -> PostgresServer:
    return german


def test_it_speaks_german(admin: Admin) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable, match="existiert nicht"):
        admin.execute("select from nowhere")


@contextmanager
def waiting(process: ReaderProcess, spool: Path) -> Iterator[dict[str, str]]:
    """What the reader says while it waits; when the block ends, what it waits for has happened."""
    thread = threading.Thread(target=process.ensure)
    thread.start()
    wait_until(lambda: status(SpoolControl(spool)) == "reconnecting")
    state = SpoolControl(spool).read_state()
    assert state is not None
    assert state.error is not None
    yield state.error
    thread.join(60)
    assert status(SpoolControl(spool)) == "streaming"


def test_a_slot_that_is_held_is_waited_for(admin: Admin, reader: Start, tmp_path: Path) -> None:
    first = reader()
    first.ensure()
    with waiting(reader(spool=str(tmp_path / "second")), tmp_path / "second") as error:
        assert "aktiv" in error["message"]
        assert (error["kind"], "waiting for it to let go" in error["remedy"]) == ("connect", True)
        first.stop()


def test_a_slot_that_was_dropped_is_refused(admin: Admin, reader: Start, spool: Path) -> None:
    process = reader()
    process.ensure()
    admin.execute("insert into t values (1, 'x')")
    wait_until(lambda: ids(spool) == [1])
    confirm_all(admin, spool)
    process.stop()
    admin.execute("select pg_drop_replication_slot('s')")
    with pytest.raises(StateError, match="the slot is gone"):
        reader().ensure()


def test_a_dropped_publication_is_told_from_a_dropped_slot(admin: Admin, reader: Start, spool: Path) -> None:
    reader().ensure()
    admin.execute("drop publication p")
    admin.execute("insert into t values (1, 'x')")
    wait_until(lambda: (state := SpoolControl(spool).read_state()) is not None and state.error is not None)
    state = SpoolControl(spool).read_state()
    assert state is not None
    assert state.error is not None
    assert "Publikation" in state.error["message"]
    assert "create it again" in state.error["remedy"]


def test_a_role_that_may_not_replicate(admin: Admin, reader: Start) -> None:
    admin.execute("alter role bridge noreplication")
    try:
        with pytest.raises(AuthError) as caught:
            reader().ensure()
        assert "REPLICATION" in caught.value.remedy
    finally:
        admin.execute("alter role bridge replication")


def test_a_role_without_a_free_connection_is_waited_for(admin: Admin, reader: Start, spool: Path) -> None:
    admin.execute("alter role bridge connection limit 0")
    try:
        with waiting(reader(), spool) as error:
            assert "Verbindungen" in error["message"]
            assert (error["kind"], "CONNECTION LIMIT" in error["remedy"]) == ("connect", True)
            admin.execute("alter role bridge connection limit -1")
    finally:
        admin.execute("alter role bridge connection limit -1")
