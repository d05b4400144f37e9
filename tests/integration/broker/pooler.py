"""PgBouncer, as Debian has it, in front of a server: every transaction may find another session."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

__all__ = ["needs_pgbouncer", "pgbouncer"]

_PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

needs_pgbouncer = pytest.mark.skipif(_PROGRAM is None, reason="PgBouncer is not installed: apt-get install pgbouncer")


@contextmanager
def pgbouncer(url: str, sessions: int = 3) -> Iterator[str]:
    """The address of a pooler in transaction mode, with few sessions, in front of the server at this address."""
    assert _PROGRAM is not None
    server = conninfo_to_dict(url)
    password = Path(str(server["passfile"])).read_text().strip().rpartition(":")[2]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="pooler") as directory:
        file = Path(directory) / "pgbouncer.ini"
        file.write_text(
            f"[databases]\n* = host={server['host']} port={server['port']} user={server['user']} password={password}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 200\n"
        )
        command = [_PROGRAM, "-q", str(file)]
        if os.geteuid() == 0:  # it refuses to run as root
            account = pwd.getpwnam("nobody")
            os.chown(directory, account.pw_uid, account.pw_gid)
            command[1:1] = ["-u", "nobody"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        address = f"host=127.0.0.1 port={port} user={server['user']} dbname={server['dbname']}"
        try:
            _await(address, process)
            yield address
        finally:
            process.terminate()
            process.wait(20)


def _await(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(400):
        assert process.poll() is None, "PgBouncer ended"
        try:
            psycopg.connect(address).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.05)  # it tells nobody when it is ready
    raise AssertionError("PgBouncer does not answer")
