"""Loopback ports: is one free, and which one to take."""

from __future__ import annotations

import secrets
import socket

from headgate.model.errors import OccupiedError

__all__ = ["LOOPBACK", "choose", "is_free"]

LOOPBACK = "127.0.0.1"

# Below the range from which the kernel serves outgoing connections (32768 and up on Linux): a port that is
# remembered over a restart would otherwise be lost to any client socket that happened to get it.
_RANGE = range(20_000, 32_000)
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now. Connections of a past server in TIME_WAIT do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def choose(remembered: int | None = None) -> int:
    """The remembered port if it is still free, else another free one."""
    if remembered is not None and is_free(remembered):
        return remembered
    for _ in range(_ATTEMPTS):
        port = secrets.choice(_RANGE)
        if is_free(port):
            return port
    raise OccupiedError(
        f"found no free port between {_RANGE.start} and {_RANGE.stop - 1} on {LOOPBACK}",
        remedy="Stop programs that listen on many ports, or give fixed ports.",
    )
