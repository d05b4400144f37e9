"""A socket to listen on, or the error that says why not: every server of headgate opens its port here."""

from __future__ import annotations

import socket

from headgate.model.errors import OccupiedError

__all__ = ["address_towards", "listen"]


def listen(host: str, port: int, *, backlog: int, where: str, is_shared: bool = False) -> socket.socket:
    """Listen on an address; `where` is the key of the configuration that names the port. `::` takes IPv4, too.

    With `is_shared` several processes may listen there, and each gets some of the connections.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio would not send small answers at once: each would wait for the client's kernel, 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        listener.bind((host, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise OccupiedError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            where=where,
            remedy=f"stop the other program, or set {where} to another number (0 picks a free one)",
        ) from None
    return listener


def address_towards(host: str) -> str:
    """Return the address that this machine has on the way to another one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
