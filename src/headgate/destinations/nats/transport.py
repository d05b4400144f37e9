"""A non-blocking socket, plain or TLS, with one verb: write what fits and read what has come.

Publishing fills both directions at once. A client that only writes while the server waits to be read from would hang
with it, so every step here does both and waits only when neither is possible.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from typing import TYPE_CHECKING

from headgate.model import AuthError, ConfigError, ConnectError, HeadgateError

if TYPE_CHECKING:
    from headgate.destinations.nats.options import NatsOptions, Server

__all__ = ["Deadline", "Transport", "tls_context"]

_READ_BYTES = 256 * 1024
_LEAST_TIMEOUT_S = 0.001  # 0 would mean a non-blocking handshake
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Transport:
    """A connected socket. Every failure is a `ConnectError` that names the server, or `AuthError` for TLS trust."""

    def __init__(self, server: Server, timeout_s: float) -> None:
        self.where = f"nats {server}"
        self._server = server
        self._socket = self._connect(timeout_s)
        self._buffer = bytearray(_READ_BYTES)
        self._selector = selectors.DefaultSelector()
        self._prepare()

    def start_tls(self, context: ssl.SSLContext, timeout_s: float) -> None:
        """Do the TLS handshake now; the peer must prove to be `server.host`."""
        self._selector.unregister(self._socket)
        try:
            self._socket.settimeout(max(timeout_s, _LEAST_TIMEOUT_S))
            self._socket = context.wrap_socket(self._socket, server_hostname=self._server.host)
        except (OSError, ValueError) as error:
            raise self._failure(error) from None
        self._prepare()

    def exchange(self, out: memoryview | None, timeout_s: float) -> tuple[int, bytes]:
        """Write some of `out` and read what is there; wait only if neither works. `(0, b"")` means the time is up."""
        try:
            written, data = self._step(out)
            if not written and not data and self._wait(bool(out), timeout_s):
                written, data = self._step(out)
        except OSError as error:
            raise self._failure(error) from None
        return written, data

    def close(self) -> None:
        """Close the socket; closing twice is fine."""
        self._selector.close()
        self._socket.close()

    def _connect(self, timeout_s: float) -> socket.socket:
        try:
            return socket.create_connection((self._server.host, self._server.port), timeout_s)
        except (OSError, UnicodeError) as error:
            raise self._failure(error) from None

    def _prepare(self) -> None:
        self._socket.setblocking(False)
        # Many small acknowledgements must not wait for one another.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._wants_write = False

    def _step(self, out: memoryview | None) -> tuple[int, bytes]:
        written = self._write(out) if out else 0
        return written, self._read()

    def _write(self, out: memoryview) -> int:
        try:
            return self._socket.send(out)
        except (*_WOULD_BLOCK, BrokenPipeError, ConnectionResetError):
            # A lost connection shows when reading, after the server's last words, which may say why.
            return 0

    def _read(self) -> bytes:
        try:
            size = self._socket.recv_into(self._buffer)
        except _WOULD_BLOCK:
            return b""
        if not size:
            raise ConnectionResetError("closed by the server")
        return bytes(memoryview(self._buffer)[:size])

    def _wait(self, wants_write: bool, timeout_s: float) -> bool:
        if wants_write != self._wants_write:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants_write else 0)
            self._selector.modify(self._socket, events)
            self._wants_write = wants_write
        return bool(self._selector.select(max(0.0, timeout_s)))

    def _failure(self, error: Exception) -> HeadgateError:
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"cannot trust the server's certificate: {error.verify_message}"
            return AuthError(reason, remedy="set tls_ca to the CA that signed it", where=self.where)
        if isinstance(error, ssl.SSLError) and "certificate required" in str(error).lower():
            return AuthError(
                "the server demands a client certificate", remedy="set tls_cert, tls_key", where=self.where
            )
        return ConnectError(_reason(error), remedy="check the address and that the server is up", where=self.where)


def tls_context(options: NatsOptions) -> ssl.SSLContext:
    """Verification is always on: an unverified connection would hand the credentials to whoever answers."""
    try:
        context = ssl.create_default_context(cafile=options.tls_ca or None)
        if options.tls_cert:
            context.load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        reason = f"cannot load the TLS files: {type(error).__name__}"
        raise ConfigError(
            reason, where="tls_ca, tls_cert, tls_key", remedy="PEM files, readable by this user"
        ) from None
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "cannot resolve the host name"
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    return f"connection lost: {error.strerror or error}" if isinstance(error, OSError) else f"cannot connect: {error}"


class Deadline:
    """A moment on the monotonic clock, asked for as the seconds that are left."""

    def __init__(self, seconds: float) -> None:
        self._moment = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 when it has passed."""
        return max(0.0, self._moment - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left_s == 0.0
