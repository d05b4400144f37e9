"""Serves a spool to executors on other machines, from the reader's own process.

A connection carries one request. The server greets with a challenge; the client answers with the length and the hash of
its request, and a code (HMAC-SHA-256) that only who knows the reader's secret can make of these. A request reads bytes
of a segment, or hands over rows that could not become events, to be kept with the others on the driver's machine.

The secret travels to executors inside Spark's tasks, and changes with every reader. What is read is not encrypted: it
is for the network between a driver and its executors, as Spark's own traffic is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from headgate.model import ConnectError, HeadgateError, ProtocolError
from headgate.model.dead_letter import DeadLetter
from headgate.runtime.listening import listen
from headgate.spool.dead_letters import DeadLetters

__all__ = ["Served", "SpoolServer", "hand_over", "read_served"]

_DIGEST_BYTES = 32  # of a challenge, a body's hash and a code
_HEAD = struct.Struct("!I32s")  # the length of a request's body, and its hash
_LENGTH = struct.Struct("!I")
_SIZE = struct.Struct("!Q")
_REFUSED = 2**64 - 1
_MOST_TOLD_BYTES = 1 << 16
_LETTERS_AT_ONCE = 100
_CONNECTIONS = 64
_TIMEOUT_S = 30.0
_PAUSE_S = 0.1
_SEGMENT = re.compile(r"\d{8}\.seg")


class Served(NamedTuple):
    """Where a spool is served, and the secret that opens it."""

    host: str
    port: int
    secret: str

    def __repr__(self) -> str:
        return f"Served({self.host}:{self.port})"


class _Read(msgspec.Struct, tag="read", frozen=True):
    file: str
    offset: int
    length: int


class _Letters(msgspec.Struct, tag="letters", frozen=True):
    letters: list[DeadLetter]


_request = msgspec.json.Decoder(_Read | _Letters)


class SpoolServer:
    """Answers requests in threads of its own, until it is closed."""

    def __init__(self, directory: Path, host: str, letters: DeadLetters | None = None) -> None:
        self._directory = directory
        self._letters = letters
        self._socket = listen(host, 0, backlog=_CONNECTIONS, where="spark.driver.host")
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        self._is_closed = threading.Event()
        self.served = Served(host, self._socket.getsockname()[1], secrets.token_hex(32))
        threading.Thread(target=self._accept, name="spool-server", daemon=True).start()

    def close(self) -> None:
        self._is_closed.set()
        self._socket.close()

    def _accept(self) -> None:
        """Until it is closed. A want of descriptors or threads passes, and must not end it for good."""
        while not self._is_closed.is_set():
            try:
                self._accept_one()
            except (OSError, RuntimeError):
                self._is_closed.wait(_PAUSE_S)

    def _accept_one(self) -> None:
        connection, _ = self._socket.accept()
        if not self._free.acquire(blocking=False):
            connection.close()
            return
        try:
            threading.Thread(target=self._serve, args=(connection,), name="spool-request", daemon=True).start()
        except RuntimeError:
            self._free.release()
            connection.close()
            raise

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(_TIMEOUT_S)
                with suppress(OSError, ProtocolError):  # whoever asked is gone, or never knew the secret
                    self._answer(connection, _authentic_request(connection, self.served.secret))
        finally:
            self._free.release()

    def _answer(self, connection: socket.socket, body: bytearray) -> None:
        try:
            request = _request.decode(body)
            if isinstance(request, _Read):
                self._send_bytes(connection, request)
            elif self._letters is not None:
                self._letters.add(request.letters)
                connection.sendall(_SIZE.pack(0))
        except HeadgateError as error:
            _refuse(connection, f"headgate-error: {msgspec.json.encode(error.as_dict()).decode()}")
        except (msgspec.MsgspecError, FileNotFoundError) as error:
            _refuse(connection, str(error))

    def _send_bytes(self, connection: socket.socket, request: _Read) -> None:
        if not _SEGMENT.fullmatch(request.file) or request.offset < 0 or request.length <= 0:
            raise ProtocolError("no part of a spool was asked for")
        with (self._directory / request.file).open("rb") as file:
            connection.sendall(_SIZE.pack(request.length))
            connection.sendfile(file, request.offset, request.length)


def _refuse(connection: socket.socket, why: str) -> None:
    told = why.encode()[:_MOST_TOLD_BYTES]
    connection.sendall(_SIZE.pack(_REFUSED) + _LENGTH.pack(len(told)) + told)


def _authentic_request(connection: socket.socket, secret: str) -> bytearray:
    """The body of a request. Nothing of it is read before it is known who sends it."""
    challenge = secrets.token_bytes(_DIGEST_BYTES)
    connection.sendall(challenge)
    head = bytes(_exactly(connection, _HEAD.size))
    if not hmac.compare_digest(_code(secret, challenge, head), _exactly(connection, _DIGEST_BYTES)):
        raise ProtocolError("a request by somebody who does not know the secret")
    length, digest = _HEAD.unpack(head)
    body = _exactly(connection, length)
    if hashlib.sha256(body).digest() != digest:
        raise ProtocolError("a request with another body than announced")
    return body


def _code(secret: str, challenge: bytes, head: bytes) -> bytes:
    return hmac.digest(secret.encode(), challenge + head, "sha256")


def read_served(served: Served, file: str, offset: int, length: int) -> bytearray:
    """Read a part of a segment from the machine that has the spool."""
    with _asked(served, _Read(file, offset, length)) as connection:
        size = _answered(connection, served)
        try:
            return _exactly(connection, size)
        except OSError as error:
            raise _unreachable(served, error) from error


def hand_over(served: Served, letters: Sequence[DeadLetter]) -> None:
    """Have rows kept that could not become events, on the machine that has the others."""
    for start in range(0, len(letters), _LETTERS_AT_ONCE):
        with _asked(served, _Letters(list(letters[start : start + _LETTERS_AT_ONCE]))) as connection:
            _answered(connection, served)


def _asked(served: Served, request: _Read | _Letters) -> socket.socket:
    try:
        connection = socket.create_connection((served.host, served.port), timeout=_TIMEOUT_S)
    except OSError as error:
        raise _unreachable(served, error) from error
    try:
        challenge = bytes(_exactly(connection, _DIGEST_BYTES))
        body = msgspec.json.encode(request)
        head = _HEAD.pack(len(body), hashlib.sha256(body).digest())
        connection.sendall(head + _code(served.secret, challenge, head) + body)
    except OSError as error:
        connection.close()
        raise _unreachable(served, error) from error
    return connection


def _answered(connection: socket.socket, served: Served) -> int:
    try:
        (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
        if size == _REFUSED:
            (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
            told = bytes(_exactly(connection, min(length, _MOST_TOLD_BYTES))).decode(errors="replace")
            raise HeadgateError.from_text(told) or ConnectError(
                f"the reader does not have it any more: {told}",
                where=f"{served.host}:{served.port}",
                remedy="the batch is tried again once the reader has caught up",
            )
    except OSError as error:
        raise _unreachable(served, error) from error
    return int(size)


def _exactly(connection: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view, got = memoryview(data), 0
    while got < length:
        count = connection.recv_into(view[got:])
        if not count:
            raise ConnectionResetError("the connection was closed")
        got += count
    return data


def _unreachable(served: Served, error: OSError) -> ConnectError:
    return ConnectError(
        f"the executor cannot read the spool of the driver's machine: {error}",
        where=f"{served.host}:{served.port}",
        remedy="let executors reach the driver's address (spark.driver.host in [spark.conf]), or set "
        "shared_data_dir = true if they see its files",
    )
