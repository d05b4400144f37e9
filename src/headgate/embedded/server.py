"""What PostgreSQL and NATS share as child processes: port, record, start until ready, stop, kill, restart."""

from __future__ import annotations

import abc
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
import psutil

from headgate.embedded import ports
from headgate.embedded.process import Ladder, ProcessIdentity, end, processes_in
from headgate.model.errors import ConnectError, HeadgateError, OccupiedError, StateError
from headgate.runtime.files import replace_file

__all__ = ["Server", "ServerRecord", "environment", "reap"]

logger = logging.getLogger(__name__)

_KILL: Ladder = ((signal.SIGKILL, 10.0),)
_POLL_S = 0.01
_PORT_ATTEMPTS = 3
_LOG_LIMIT_BYTES = 16 << 20
_TAIL_LINES = 15


def environment() -> dict[str, str]:
    """What a server may see of our environment: no secrets, and no PG* setting that would change its behaviour."""
    kept = {name: os.environ[name] for name in ("PATH", "TZ", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C"}


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What is remembered of a server in `run/<name>.json`: its port for next time, its process while it runs."""

    port: int | None = None
    process: ProcessIdentity | None = None

    @classmethod
    def load(cls, path: Path) -> ServerRecord:
        """The record, or an empty one if there is none that can be read."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (FileNotFoundError, msgspec.DecodeError):
            return cls()

    def save(self, path: Path) -> None:
        """Write the record in one step."""
        replace_file(path, msgspec.json.encode(self), durable=False, private=True)


def reap(server: type[Server], run: Path) -> None:
    """Stop the server that an owner left behind when it was killed."""
    path = run / f"{server.name}.json"
    record = ServerRecord.load(path)
    if record.process is None:
        return
    orphan = record.process.find()
    if orphan is not None:
        logger.warning("stopping %s (process %d), left running by an owner that was killed", server.name, orphan.pid)
        end(orphan, server.stop_ladder)
    ServerRecord(record.port).save(path)


class Server(abc.ABC):
    """A server process below a data directory. The owner calls it from one thread at a time."""

    name: ClassVar[str]
    stop_ladder: ClassVar[Ladder]
    programs: ClassVar[Collection[str]]

    def __init__(self, data: Path, run: Path, *, port: int | None, start_timeout_s: float) -> None:
        self.data = data
        self.log = run / f"{self.name}.log"
        self._record = run / f"{self.name}.json"
        self._port = port
        self._start_timeout_s = start_timeout_s
        self._process: psutil.Popen | None = None
        self._log_start = 0

    @property
    def port(self) -> int:
        """The port in use. Once given out it stays the same, also over `restart`."""
        if self._port is None:
            raise StateError(f"{self.name} has no port yet", remedy="Start it first.")
        return self._port

    @property
    def pid(self) -> int | None:
        """The process id while the server runs."""
        return self._process.pid if self._process is not None and self.alive() else None

    def poll(self) -> int | None:
        """The exit code of a server that has ended (negative for a signal), None while it runs."""
        if self._process is None:
            raise StateError(f"{self.name} was not started", remedy="Start it first.")
        code: int | None = self._process.poll()
        return code

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server and return when it answers. A running server is left as it is."""
        if self.alive():
            return
        self._clear_past()
        self._prepare()
        if self._port is not None:
            self._start_on(self._port)
        else:
            self._start_anywhere()

    def stop(self) -> None:
        """Stop in good order; harsher when that takes too long. Does nothing when the server does not run."""
        self._end(self.stop_ladder)

    def kill(self) -> None:
        """Kill at once, as a crash would."""
        self._end(_KILL)

    def restart(self) -> None:
        """Stop if need be, then start on the same port and data."""
        self.stop()
        self.start()

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Make files and directories, before a port is known."""

    @abc.abstractmethod
    def _command(self, port: int) -> list[str]:
        """The command line that listens on this port."""

    @abc.abstractmethod
    def _ready(self, port: int) -> bool:
        """Whether the server answers as ours on this port."""

    @abc.abstractmethod
    def _leads(self, process: psutil.Process) -> bool:
        """Whether a process found in the data directory is a whole server rather than a remnant of a dead one."""

    def _clear_past(self) -> None:
        """End what a crashed server left behind; refuse to share the data with a server that is not ours."""
        remnants = processes_in(self.data, self.programs)
        for process in remnants:
            if self._leads(process):
                raise OccupiedError(
                    f"another {self.name} server (process {process.pid}) works in {self.data}",
                    remedy=f"Stop it with `kill {process.pid}`, then start again.",
                )
        for process in remnants:
            end(process, _KILL)  # what they were doing died with their server

    def _start_anywhere(self) -> None:
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            port = ports.choose(ServerRecord.load(self._record).port)
            try:
                self._start_on(port)
            except HeadgateError:
                # Somebody may have taken the port between our look and the server's.
                if attempt == _PORT_ATTEMPTS or ports.is_free(port):
                    raise
            else:
                return

    def _start_on(self, port: int) -> None:
        if not ports.is_free(port):
            raise OccupiedError(
                f"port {port} for {self.name} is in use by another program",
                remedy=f"Stop the program that listens on {ports.LOOPBACK}:{port}, or choose another port.",
            )
        self._spawn(port)
        try:
            self._await_ready(port)
        except BaseException:
            self.kill()
            raise
        self._port = port

    def _spawn(self, port: int) -> None:
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._log_start = log.tell()
            # A session of its own: Ctrl-C in a terminal reaches us alone, and we stop the servers in order.
            self._process = psutil.Popen(
                self._command(port),
                cwd=self.data,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
            )
        ServerRecord(port, ProcessIdentity(self._process.pid, self._process.create_time())).save(self._record)

    def _await_ready(self, port: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout_s
        while not self._ready(port):
            with contextlib.suppress(psutil.TimeoutExpired):
                code = self._process.wait(_POLL_S)  # a pause that the server's death cuts short
                raise StateError(
                    f"{self.name} ended with exit code {code} at start. {self._log_tail()}",
                    remedy=f"Mend what the log names, then start again. Whole log: {self.log}",
                )
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"{self.name} did not answer within {self._start_timeout_s:.0f} s. {self._log_tail()}",
                    remedy=f"Try again with a longer start timeout. Whole log: {self.log}",
                )

    def _log_tail(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(["Its last lines:", *lines[-_TAIL_LINES:]]) if lines else "It wrote no log."

    def _end(self, ladder: Ladder) -> None:
        if self._process is None:
            return
        if self.alive():
            end(self._process, ladder)
        self._clear_past()
        ServerRecord(ServerRecord.load(self._record).port).save(self._record)
