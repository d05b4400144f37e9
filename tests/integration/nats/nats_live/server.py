"""A nats-server process on a free loopback port, and a scripted impostor."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from headgate.destinations.nats import NatsOptions

READY_WITHIN_S = 20.0


def find_binary() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "nats-server is not installed"
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class NatsServer:
    """Start, stop, kill and start again on the same port and the same files."""

    directory: Path
    config: str = ""
    jetstream: bool = True
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        path = self.directory / "server.conf"
        store = f'jetstream {{ store_dir: "{self.directory}/store" }}' if self.jetstream else ""
        path.write_text(f"listen: 127.0.0.1:{self.port}\n{store}\n{self.config}\n")
        command = [find_binary(), "-c", str(path)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        ready = threading.Event()
        assert self.process.stderr
        threading.Thread(target=_read_log, args=(self.process.stderr, ready), daemon=True).start()
        assert ready.wait(READY_WITHIN_S), "nats-server did not become ready"
        assert self.process.poll() is None, "nats-server ended"
        return self

    def kill(self) -> None:
        """As `kill -9`: no chance to flush anything."""
        if self.process:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def options(self, stream: str = "S", subjects: tuple[str, ...] = ("s.>",), **more: object) -> NatsOptions:
        return NatsOptions(**{"stream": stream, "subjects": subjects, "url": self.url} | more)  # type: ignore[arg-type]


def _read_log(log: IO[str], ready: threading.Event) -> None:
    with log:
        for line in log:
            if "Server is ready" in line:
                ready.set()
    ready.set()


class Impostor:
    """A TCP server for one connection, whose behaviour is a function of the socket."""

    def __init__(self, behaviour: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._behaviour = behaviour
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def options(self, **more: object) -> NatsOptions:
        url = f"nats://127.0.0.1:{self.port}"
        return NatsOptions(**{"stream": "S", "subjects": ("s.>",), "url": url} | more)  # type: ignore[arg-type]

    def _serve(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(20)
            try:
                self._behaviour(connection)
            except OSError:
                return
