"""What a relay answers over HTTP: hosts, repositories, collections, and who wants to be crawled."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from headgate import __version__
from headgate.model import CapacityError
from headgate.relay.crawl import CrawlError, origin
from headgate.relay.parts import Parts
from headgate.relay.store import AccountRow, HostRow
from headgate.wire.atproto import cid_text, is_did, is_nsid

__all__ = ["XrpcError", "json_body", "xrpc_routes"]

Handler = Callable[[Request], Awaitable[Response]]

_MOST_BODY_BYTES = 16 << 10
_ANYBODY = {"Access-Control-Allow-Origin": "*"}
_WELCOME = """This is a relay of the AT Protocol, made with headgate.

events:    /xrpc/com.atproto.sync.subscribeRepos
jetstream: /subscribe
health:    /_health
"""
# What a repository that is not active answers, by the account's status.
_INACTIVE = {"takendown": "RepoTakendown", "suspended": "RepoSuspended", "deactivated": "RepoDeactivated"}
_DELETED = "deleted"


class XrpcError(Exception):
    """An answer that is an error, by its name in the lexicon."""

    def __init__(self, name: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.name, self.message, self.status = name, message, status

    def response(self) -> Response:
        said = {"error": self.name, "message": self.message}
        return JSONResponse(said, self.status, headers=_ANYBODY)


def xrpc_routes(parts: Parts) -> list[Route]:
    answers = _Answers(parts)
    get = {
        "com.atproto.sync.listHosts": answers.list_hosts,
        "com.atproto.sync.getHostStatus": answers.host_status,
        "com.atproto.sync.listRepos": answers.list_repos,
        "com.atproto.sync.getRepoStatus": answers.repo_status,
        "com.atproto.sync.getLatestCommit": answers.latest_commit,
        "com.atproto.sync.listReposByCollection": answers.by_collection,
        "com.atproto.sync.getRepo": answers.repo,
        "_health": answers.health,
    }
    return [
        Route("/", _welcome, methods=["GET"]),
        Route("/_health", _named(answers.health), methods=["GET"]),
        *(Route(f"/xrpc/{name}", _named(handler), methods=["GET"]) for name, handler in get.items()),
        Route("/xrpc/com.atproto.sync.requestCrawl", _named(answers.request_crawl), methods=["POST"]),
        Route("/xrpc/{method}", _preflight, methods=["OPTIONS"]),
        Route("/xrpc/{method}", _named(_unknown), methods=["GET", "POST"]),
    ]


async def _welcome(request: Request) -> Response:
    return PlainTextResponse(_WELCOME)


async def _preflight(request: Request) -> Response:
    """Pages of all sites may ask: nothing here depends on who a browser's user is."""
    allowed = {
        "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
        "Access-Control-Allow-Headers": "*",
        "Access-Control-Max-Age": "86400",
    }
    return Response(status_code=204, headers=_ANYBODY | allowed)


def _named(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            response = await handler(request)
        except XrpcError as error:
            return error.response()
        response.headers.update(_ANYBODY)
        return response

    return answer


async def _unknown(request: Request) -> Response:
    raise XrpcError("MethodNotImplemented", "a relay has no such method", 501)


class _Answers:
    """One method per method of the protocol."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def health(self, request: Request) -> Response:
        return JSONResponse({"version": f"headgate {__version__}", "seq": self._parts.reader.head_seq})

    async def list_hosts(self, request: Request) -> Response:
        limit, after = _limit(request, 200, 1000), _cursor(request)
        rows = [row for row in self._parts.store.hosts() if row.hostname > after][: limit + 1]
        return _page("hosts", [_host(row) for row in rows[:limit]], rows[limit - 1].hostname if rows[limit:] else "")

    async def host_status(self, request: Request) -> Response:
        name = _wanted(request, "hostname").lower()
        row = self._parts.store.host(name)
        if row is None:
            raise XrpcError("HostNotFound", f"{name[:80]} is not followed", 404)
        return JSONResponse(_host(row))

    async def list_repos(self, request: Request) -> Response:
        limit, after = _limit(request, 500, 1000), _cursor(request)
        rows = await self._parts.store.list_accounts(after, limit)
        # An account of which there was no commit yet has nothing to list.
        repos = [_repo(row) for row in rows if row.head is not None]
        return _page("repos", repos, rows[-1].did if len(rows) == limit else "")

    async def repo_status(self, request: Request) -> Response:
        row = await self._account(request)
        active, status = row.combined
        said: dict[str, Any] = {"did": row.did, "active": active}
        if not active and status:
            said["status"] = status
        return JSONResponse(said | ({"rev": row.rev} if active and row.rev else {}))

    async def latest_commit(self, request: Request) -> Response:
        row = await self._active_account(request)
        if row.head is None or row.rev is None:
            raise XrpcError("RepoNotFound", "there was no commit of it yet", 404)
        return JSONResponse({"cid": cid_text(row.head), "rev": row.rev})

    async def repo(self, request: Request) -> Response:
        """Repositories are where their accounts are."""
        row = await self._active_account(request)
        if not row.host:
            raise XrpcError("RepoNotFound", "its host is not known", 404)
        parts = self._parts
        query = {"did": row.did} | ({"since": request.query_params["since"]} if "since" in request.query_params else {})
        base = origin(row.host, allow_private=parts.fetcher.allow_private)
        return RedirectResponse(f"{base}/xrpc/com.atproto.sync.getRepo?{urlencode(query)}", 302)

    async def by_collection(self, request: Request) -> Response:
        collection = _wanted(request, "collection")
        if not is_nsid(collection):
            raise XrpcError("InvalidRequest", "collection is no NSID")
        limit, after = _limit(request, 500, 2000), _cursor(request)
        dids = self._parts.index.dids(collection, after, limit)
        return _page("repos", [{"did": did} for did in dids], dids[-1] if len(dids) == limit else "")

    async def request_crawl(self, request: Request) -> Response:
        hostname = (await json_body(request)).get("hostname")
        if not isinstance(hostname, str):
            raise XrpcError("InvalidRequest", 'the body is {"hostname": ...}')
        try:
            if await self._parts.hosts.request_crawl(hostname):
                self._parts.siblings.tell(hostname)
        except CrawlError as error:
            raise XrpcError(error.name, error.message) from None
        except CapacityError as error:
            raise XrpcError("RateLimitExceeded", error.message, 429) from None
        return JSONResponse({})

    async def _account(self, request: Request) -> AccountRow:
        did = _wanted(request, "did")
        if not is_did(did):
            raise XrpcError("InvalidRequest", "did is no DID")
        row = await self._parts.store.get(did)
        if row is None:
            raise XrpcError("RepoNotFound", "there was no event of it yet", 404)
        return row

    async def _active_account(self, request: Request) -> AccountRow:
        row = await self._account(request)
        active, status = row.combined
        if not active and status == _DELETED:
            raise XrpcError("RepoNotFound", "the account was deleted", 404)
        if not active:
            raise XrpcError(
                _INACTIVE.get(status or "", "RepoDeactivated"), f"the account is {status or 'inactive'}", 403
            )
        return row


async def json_body(request: Request) -> dict[str, Any]:
    """The body, which must be a small JSON object."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY_BYTES:
            raise XrpcError("InvalidRequest", "the body is too long", 413)
    try:
        said = json.loads(bytes(body))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise XrpcError("InvalidRequest", "the body is no JSON object")
    return said


def _host(row: HostRow) -> dict[str, Any]:
    return {
        "hostname": row.hostname,
        "seq": row.cursor,
        "accountCount": row.account_count,
        "status": row.status.value,
    }


def _repo(row: AccountRow) -> dict[str, Any]:
    assert row.head is not None
    active, status = row.combined
    said = {"did": row.did, "head": cid_text(row.head), "rev": row.rev, "active": active}
    return said if active or not status else said | {"status": status}


def _page(name: str, items: list[dict[str, Any]], cursor: str) -> Response:
    return JSONResponse({name: items} | ({"cursor": cursor} if cursor else {}))


def _wanted(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if not value:
        raise XrpcError("InvalidRequest", f"the parameter {name} is required")
    return value


def _cursor(request: Request) -> str:
    return request.query_params.get("cursor", "")[:2048]


def _limit(request: Request, usual: int, most: int) -> int:
    text = request.query_params.get("limit", str(usual))
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= most):
        raise XrpcError("InvalidRequest", f"limit is a number from 1 to {most}")
    return int(text)
