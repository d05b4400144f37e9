"""Webhook servers for tests: in this process, or in one of their own that can be killed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headgate.sources.webhook.options import ServerOptions
from headgate.sources.webhook.rows import read_rows
from headgate.sources.webhook.server import WebhookServer
from headgate.spool.marks import Marks


@contextmanager
def serving(spool: Path, **options: Any) -> Iterator[WebhookServer]:
    server = WebhookServer(ServerOptions(spool=spool, **{"path": "/hooks", **options}))
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def process(spool: Path, *, failpoint: str = "", file_bytes: int = 0, **options: Any) -> Iterator[tuple[Any, str]]:
    """A server of its own; `file_bytes` is the largest file that the system lets it write."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({file_bytes}, {file_bytes}));"
    code = f"{limit if file_bytes else ''}from headgate.sources.webhook.server import main; raise SystemExit(main())"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"HEADGATE_FAILPOINT": failpoint} if failpoint else {},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps({"spool": str(spool), "path": "/hooks", **options}).encode() + b"\n")
        child.stdin.flush()
        yield child, child.stdout.readline().decode().strip()
    finally:
        child.communicate(timeout=30)


def raw(url: str, data: bytes = b"", timeout_s: float = 20.0) -> socket.socket:
    """A connection on which the test says byte for byte what it sends."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = socket.create_connection((parts.hostname, parts.port or 80), timeout=timeout_s)
    connection.sendall(data)
    return connection


def everything(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    connection.close()
    return data


def rows(spool: Path) -> list[dict[str, Any]]:
    end = Marks(spool).read_tail() or 0
    return [row for batch in read_rows(spool, 0, end, "text") for row in batch.to_pylist()]


def bodies(spool: Path) -> list[str]:
    return [row["body"] for row in rows(spool)]
