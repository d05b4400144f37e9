"""A gateway for a judge: the command that users run, on a database of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_S = 90.0
_STOP_S = 30.0


@contextmanager
def gateway(directory: Path, *, postgres_url: str = "embedded", **settings: object) -> Iterator[str]:
    """Runs while the block does; gives the bootstrap address. `settings` are keys of `[gateway]`."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    lines = [f"{key} = {str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()]
    config = directory / "headgate.toml"
    postgres = ["[postgres]", f'url = "{postgres_url}"']
    config.write_text("\n".join([*postgres, "[gateway]", f"port = {port}", *lines, ""]))
    command = [sys.executable, "-m", "headgate", "gateway", "--config", str(config)]
    with (directory / "gateway.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
        try:
            _wait_for(port, process)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(_STOP_S)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)  # nothing tells when another process listens
        else:
            return
    raise SystemExit(f"the gateway did not start; see its log (exit code {process.poll()})")
