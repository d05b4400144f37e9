"""Reverse proxies as Debian has them, in front of a relay, each keeping its connections to it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["PROXIES", "proxied"]

_START_S = 60.0
_NGINX = """\
daemon off; master_process off; pid {directory}/pid; error_log stderr;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  upstream relay {{ server 127.0.0.1:{relay}; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://relay;
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}
"""
_HAPROXY = """\
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout tunnel 1h
  option http-keep-alive
  option forwardfor
  http-reuse always
listen relay
  bind 127.0.0.1:{port}
  server relay 127.0.0.1:{relay}
"""


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _nginx(file: str) -> list[str]:
    return ["nginx", "-p", str(Path(file).parent), "-c", file]


def _haproxy(file: str) -> list[str]:
    return ["haproxy", "-db", "-q", "-f", file]


_COMMANDS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "nginx": (_NGINX, _nginx),
    "haproxy": (_HAPROXY, _haproxy),
}
PROXIES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(_program(name) is None, reason=f"{name} is not installed: apt-get install {name}"),
    )
    for name in _COMMANDS
]


@contextmanager
def proxied(name: str, url: str) -> Iterator[str]:
    """The address of the proxy in front of the relay at `url`."""
    text, command = _COMMANDS[name]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="proxy") as directory:
        file = Path(directory) / "proxy.conf"
        file.write_text(text.format(directory=directory, relay=url.rpartition(":")[2], port=port))
        program, *arguments = command(str(file))
        process = subprocess.Popen(
            [str(_program(program)), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _await(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        assert process.poll() is None, "the proxy ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("the proxy does not listen")
