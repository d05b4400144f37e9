"""PostgreSQL and NATS below one data directory, owned by one process, shared with others.

    <data_dir>/lock            held by the owner with flock, so that it is free the moment the owner is gone
    <data_dir>/stack.json      the owner and its endpoints while all servers run; no secrets
    <data_dir>/postgres-18/    and postgres-18.passfile
    <data_dir>/nats/
    <data_dir>/run/            logs, sockets, remembered ports

A second process calls `Stack.attach` and uses the servers of the first. When an owner is killed its servers go on
running; the next owner stops them in good order and starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headgate.embedded.cluster import DEFAULT_VERSION
from headgate.embedded.directory import DataDirectory, explain_os_errors
from headgate.embedded.nats import DEFAULT_MAX_PAYLOAD_BYTES, DEFAULT_SYNC_INTERVAL, NatsServer
from headgate.embedded.postgres import PostgresServer
from headgate.embedded.process import ProcessIdentity
from headgate.embedded.server import Server, reap
from headgate.model.errors import StateError
from headgate.runtime.files import replace_file

__all__ = ["Endpoints", "Stack"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a running stack can be reached; None for what it does not run. No URL contains a secret."""

    data_dir: Path
    owner_pid: int
    postgres_url: str | None = None
    postgres_tcp_url: str | None = None
    nats_url: str | None = None
    nats_monitor_url: str | None = None


@dataclass(frozen=True, slots=True)
class _StackRecord:
    """`stack.json`."""

    owner: ProcessIdentity
    postgres_url: str | None
    postgres_tcp_url: str | None
    nats_url: str | None
    nats_monitor_url: str | None

    def endpoints(self, data_dir: Path) -> Endpoints:
        return Endpoints(
            data_dir,
            self.owner.pid,
            self.postgres_url,
            self.postgres_tcp_url,
            self.nats_url,
            self.nats_monitor_url,
        )


class Stack:
    """Embedded servers as a context manager; the owner calls it from one thread at a time.

    Ports are chosen once and remembered in the data directory, unless given. `durable=False` trades PostgreSQL's
    safety against power cuts for speed, for tests; `nats_sync_interval` is JetStream's part of it.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        postgres: bool = True,
        nats: bool = True,
        postgres_version: int = DEFAULT_VERSION,
        postgres_port: int | None = None,
        postgres_settings: Mapping[str, str] | None = None,
        nats_port: int | None = None,
        nats_monitor_port: int | None = None,
        nats_max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
        nats_sync_interval: str = DEFAULT_SYNC_INTERVAL,
        durable: bool = True,
        start_timeout_s: float = 60.0,
    ) -> None:
        self._directory = DataDirectory(Path(data_dir))
        self._owner_pid = os.getpid()
        self._running = contextlib.ExitStack()
        self._record: _StackRecord | None = None
        self.postgres: PostgresServer | None = None
        self.nats: NatsServer | None = None
        if postgres:
            self.postgres = PostgresServer(
                self._directory.path / f"postgres-{postgres_version}",
                self._directory.run,
                version=postgres_version,
                port=postgres_port,
                durable=durable,
                settings=postgres_settings,
                start_timeout_s=start_timeout_s,
            )
        if nats:
            self.nats = NatsServer(
                self._directory.path / "nats",
                self._directory.run,
                port=nats_port,
                monitor_port=nats_monitor_port,
                max_payload_bytes=nats_max_payload_bytes,
                sync_interval=nats_sync_interval,
                start_timeout_s=start_timeout_s,
            )

    @classmethod
    def attach(cls, data_dir: Path | str) -> Endpoints | None:
        """The endpoints of the stack that a living process runs on this directory, or None."""
        directory = DataDirectory(Path(data_dir))
        try:
            record = msgspec.json.decode(directory.record.read_bytes(), type=_StackRecord)
        except (OSError, msgspec.DecodeError):
            return None
        return record.endpoints(directory.path) if record.owner.find() is not None else None

    @property
    def endpoints(self) -> Endpoints:
        """Where the servers can be reached, while the stack runs."""
        if self._record is None:
            raise StateError("the embedded stack does not run", remedy="Start it first.")
        return self._record.endpoints(self._directory.path)

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers of this stack in the order of their start."""
        return tuple(server for server in (self.postgres, self.nats) if server is not None)

    def dead(self) -> list[str]:
        """The names of servers that have ended by themselves; each one's `restart` brings it back."""
        return [server.name for server in self.servers if not server.alive()] if self._record is not None else []

    def start(self) -> Endpoints:
        """Become the owner of the directory and start the servers. A running stack is left as it is."""
        if self._record is not None:
            return self.endpoints
        began = time.monotonic()
        self._owner_pid = os.getpid()
        with explain_os_errors(self._directory.path), contextlib.ExitStack() as running:
            self._directory.acquire()
            running.callback(self._directory.release)
            self._clear_past()
            for server in self.servers:
                running.callback(server.stop)
                server.start()
            self._record = self._publish()
            running.callback(self._withdraw)
            self._running = running.pop_all()
        atexit.register(self.stop)
        logger.info("embedded servers ready in %s after %.2f s", self._directory.path, time.monotonic() - began)
        return self.endpoints

    def stop(self) -> None:
        """Stop the servers and give the directory free. Does nothing when the stack does not run."""
        if self._owner_pid != os.getpid():
            return  # a fork of the owner owns nothing
        atexit.unregister(self.stop)
        self._running.close()

    def __enter__(self) -> Endpoints:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _clear_past(self) -> None:
        self._directory.record.unlink(missing_ok=True)
        for server in (PostgresServer, NatsServer):
            reap(server, self._directory.run)
        self._refuse_other_version()

    def _refuse_other_version(self) -> None:
        """An empty database of a new version, where there was a full one, would look like a loss of data."""
        if self.postgres is None or self.postgres.data.exists():
            return
        others = [path.name for path in self._directory.path.glob("postgres-[0-9][0-9]")]
        if others:
            raise StateError(
                f"{self._directory.path} holds {others[0]}, not {self.postgres.data.name}",
                remedy=f"Ask for version {others[0].removeprefix('postgres-')}, or choose another data directory.",
            )

    def _publish(self) -> _StackRecord:
        record = _StackRecord(
            ProcessIdentity.of(self._owner_pid),
            self.postgres.url if self.postgres else None,
            self.postgres.tcp_url if self.postgres else None,
            self.nats.url if self.nats else None,
            self.nats.monitor_url if self.nats else None,
        )
        replace_file(self._directory.record, msgspec.json.encode(record), durable=False, private=True)
        return record

    def _withdraw(self) -> None:
        self._record = None
        self._directory.record.unlink(missing_ok=True)
