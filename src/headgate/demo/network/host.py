"""The servers of a simulated network: a host of accounts, and a directory of DIDs."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from bisect import bisect_left
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from headgate.demo.network.repository import Repository
from headgate.wire.atproto import cid_text, error_frame

__all__ = ["SimulatedDirectory", "SimulatedHost"]

_STREAM = "/xrpc/com.atproto.sync.subscribeRepos"
_BATCH = 64


class _Loopback:
    """A server on 127.0.0.1 whose port stays the same when it is started again."""

    def __init__(self) -> None:
        self.port = 0
        self._server: Server | None = None
        self.tls: ssl.SSLContext | None = None
        self.requests: list[str] = []

    @property
    def name(self) -> str:
        return f"localhost:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.name}"

    async def start(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._server = await serve(
            self._stream,
            sock=listener,
            ssl=self.tls,
            process_request=self._answer,
            compression=None,
            ping_interval=None,
        )

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close(close_connections=True)
            await self._server.wait_closed()
            self._server = None

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requests.append(request.path)
        parts = urlsplit(request.path)
        if parts.path == _STREAM:
            return None
        status, body = self.get(parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()})
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = Headers({"Content-Length": str(len(raw)), "Connection": "close"} | self.headers())
        return Response(status, HTTPStatus(status).phrase, headers, raw)

    def headers(self) -> dict[str, str]:
        return {}

    def get(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        raise NotImplementedError

    async def _stream(self, connection: ServerConnection) -> None:
        await connection.close()


class SimulatedDirectory(_Loopback):
    """Documents by DID. A document may be bytes, to be sent as they are; `failing` is a status to answer with,
    to all or to the `failing_dids`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.documents: dict[str, dict[str, Any] | bytes] = {}
        self.failing: int | None = None
        self.failing_dids: set[str] = set()

    def get(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if self.failing is not None:
            return self.failing, {}
        did = path.removeprefix("/")
        if did in self.failing_dids:
            return 503, {}
        document = self.documents.get(did)
        return (404, {}) if document is None else (200, document)


class SimulatedHost(_Loopback):
    """A host: its log of frames, and the repositories that it has. Consumers may resume from any number."""

    def __init__(self) -> None:
        super().__init__()
        self.repos: dict[str, Repository] = {}
        self.server_header = "simulated"
        self.described = True
        self.page = 500
        self._seqs: list[int] = []
        self.frames: list[bytes] = []
        self._visible = 0
        self._held = False
        self._grown = asyncio.Event()
        self.next_seq = 1
        self.cursors: list[str | None] = []  # what each connection asked for

    def append(self, frame: bytes) -> None:
        self._seqs.append(self.next_seq)
        self.frames.append(frame)
        self.next_seq += 1
        if not self._held:
            self.release()

    def frame(self, seq: int) -> bytes:
        """What it says, or will say, under a number."""
        return self.frames[bisect_left(self._seqs, seq)]

    def hold(self) -> None:
        """Send nothing new until `release`."""
        self._held = True

    def release(self) -> None:
        self._held = False
        self._visible = len(self.frames)
        self._grown.set()
        self._grown = asyncio.Event()

    def reset(self) -> None:
        """Forget all events and begin to count anew, as a host that was restored from a backup."""
        self._seqs, self.frames, self._visible, self.next_seq = [], [], 0, 1

    def headers(self) -> dict[str, str]:
        return {"Server": self.server_header}

    def get(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        method = path.removeprefix("/xrpc/")
        if method == "com.atproto.server.describeServer" and self.described:
            return 200, {"did": f"did:web:localhost%3A{self.port}", "availableUserDomains": [".test"]}
        if method == "com.atproto.sync.listRepos":
            found = sorted(did for did in self.repos if did > query.get("cursor", ""))
            page = found[: min(self.page, int(query.get("limit", "500")))]
            repos = [self.repos[did] for did in page]
            listed = [{"did": repo.did, "head": cid_text(repo.head or b""), "rev": repo.rev} for repo in repos]
            more = {"cursor": page[-1]} if len(found) > len(page) else {}
            return 200, {"repos": [entry | {"active": True} for entry in listed]} | more
        repo = self.repos.get(query.get("did", query.get("repo", "")))
        if repo is None:
            return 404, {"error": "NotFound", "message": ""}
        if method == "com.atproto.sync.getRepoStatus":
            return 200, {"did": repo.did, "active": True, "rev": repo.rev}
        if method == "com.atproto.sync.getRepo":
            return 200, repo.export()
        if method == "com.atproto.repo.describeRepo":
            return 200, {"did": repo.did, "collections": sorted({path.partition("/")[0] for path in repo.records})}
        return 404, {"error": "NotFound", "message": ""}

    async def _stream(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        cursor = parse_qs(urlsplit(connection.request.path).query).get("cursor", [None])[0]
        self.cursors.append(cursor)
        try:
            if cursor is not None and int(cursor) >= self.next_seq:
                await connection.send(error_frame("FutureCursor", "Cursor in the future."))
                await connection.close(1008, "FutureCursor")
                return
            await self._send_from(connection, self._visible if cursor is None else bisect_left(self._seqs, int(cursor)))
        except ConnectionClosed:
            return

    async def _send_from(self, connection: ServerConnection, position: int) -> None:
        closed = asyncio.ensure_future(connection.wait_closed())
        try:
            while not closed.done():
                grown = self._grown
                for frame in self.frames[position : min(position + _BATCH, self._visible)]:
                    await connection.send(frame)
                    position += 1
                if position >= self._visible:
                    waiting = asyncio.ensure_future(grown.wait())
                    await asyncio.wait((closed, waiting), return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
        finally:
            closed.cancel()
