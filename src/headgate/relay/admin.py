"""What operators ask and decide, behind a token. Every answer is JSON; errors are as in XRPC.

GET  /admin/status                         the same, and by which limits, rules and intervals the relay goes
GET  /admin/counters                       what was received, sent on and dropped, by reason
GET  /admin/why?did=                       the last events of an account that were dropped, and why
GET  /admin/hosts                          every host with its sums
POST /admin/hosts/crawl|block|unblock      {"hostname": ...}; crawl may say "trusted": true
POST /admin/hosts/limits                   {"hostname": ..., "accountLimit": n or null, "trusted": bool}
GET  /admin/domains                        banned domains
POST /admin/domains/ban|unban              {"domain": ...}
GET  /admin/accounts                       accounts taken down
POST /admin/accounts/takedown|reverse      {"did": ...}; takedown may say "status": "suspended"
GET  /admin/consumers                      who listens
POST /admin/consumers/disconnect           {"id": n}
GET  /admin/backfill                       how far the collection index has been filled, from whom
POST /admin/backfill                       {"hostname": ...}, or {"relay": url, "collection": nsid}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headgate.model import HeadgateError
from headgate.relay.crawl import CrawlError, origin
from headgate.relay.front import Consumer
from headgate.relay.ledger import HostBook
from headgate.relay.metrics import counters
from headgate.relay.parts import Parts
from headgate.relay.store import HostRow
from headgate.relay.xrpc import XrpcError, json_body
from headgate.runtime.access import has_token
from headgate.wire.atproto import is_did, is_nsid

__all__ = ["admin_routes"]

Answer = Callable[[Request], Awaitable[Any]]
_STATUSES = ("takendown", "suspended")
_PAGE = 500


def admin_routes(
    parts: Parts,
    consumers: Callable[[], list[Consumer]],
    listeners: Callable[[], dict[str, int]],
    token: str | None,
) -> list[Route]:
    desk = _Desk(parts, consumers, listeners)
    asked: dict[str, Answer] = {
        "status": desk.status,
        "counters": desk.counters,
        "why": desk.why,
        "hosts": desk.hosts,
        "domains": desk.domains,
        "accounts": desk.accounts,
        "consumers": desk.consumers,
        "backfill": desk.backfills,
    }
    decided: dict[str, Answer] = {
        "hosts/crawl": desk.crawl,
        "hosts/block": desk.block,
        "hosts/unblock": desk.unblock,
        "hosts/limits": desk.limits,
        "domains/ban": desk.ban,
        "domains/unban": desk.unban,
        "accounts/takedown": desk.take_down,
        "accounts/reverse": desk.reverse,
        "consumers/disconnect": desk.disconnect,
        "backfill": desk.backfill,
    }
    return [
        *(Route(f"/admin/{path}", _guarded(answer, token), methods=["GET"]) for path, answer in asked.items()),
        *(Route(f"/admin/{path}", _guarded(answer, token), methods=["POST"]) for path, answer in decided.items()),
    ]


def _guarded(answer: Answer, token: str | None) -> Callable[[Request], Awaitable[Response]]:
    async def check(request: Request) -> Response:
        try:
            if token is None:
                raise XrpcError("AuthMissing", "the relay was started without an admin token", 403)
            if not has_token(request.headers.get("authorization"), token):
                raise XrpcError("AuthMissing", "send the header: Authorization: Bearer TOKEN", 401)
            return JSONResponse(await answer(request))
        except XrpcError as error:
            return error.response()
        except CrawlError as error:
            return XrpcError(error.name, error.message).response()

    return check


class _Desk:
    """One method per question or decision."""

    def __init__(
        self,
        parts: Parts,
        consumers: Callable[[], list[Consumer]],
        listeners: Callable[[], dict[str, int]],
    ) -> None:
        self._parts, self._consumers, self._listeners = parts, consumers, listeners

    async def counters(self, request: Request) -> Any:
        return counters(self._parts, self._listeners())

    async def status(self, request: Request) -> Any:
        options = self._parts.ingest.options
        return {**await self.counters(request), "settings": msgspec.to_builtins(asdict(options))}

    async def why(self, request: Request) -> Any:
        did = request.query_params.get("did", "")
        if not is_did(did):
            raise XrpcError("InvalidRequest", "did is no DID")
        row = await self._parts.store.get(did)
        account = None
        if row is not None:
            active, status = row.combined
            account = {"host": row.host, "rev": row.rev, "active": active, "status": status}
        return {"did": did, "account": account, "drops": [asdict(drop) for drop in self._parts.ledger.why(did)]}

    async def hosts(self, request: Request) -> Any:
        parts = self._parts
        books = parts.ledger.hosts()
        return {"hosts": [_host(parts, row, books.get(row.hostname, HostBook())) for row in parts.store.hosts()]}

    async def crawl(self, request: Request) -> Any:
        body = await json_body(request)
        hostname, trusted = _text(body, "hostname"), body.get("trusted") is True
        if await self._parts.hosts.request_crawl(hostname, trusted=trusted, by_operator=True):
            self._parts.siblings.tell(hostname)
        return {}

    async def block(self, request: Request) -> Any:
        await self._parts.hosts.ban_host(await self._hostname(request))
        return {}

    async def unblock(self, request: Request) -> Any:
        await self._parts.hosts.unban_host(await self._hostname(request))
        return {}

    async def limits(self, request: Request) -> Any:
        body = await json_body(request)
        limit = body.get("accountLimit")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise XrpcError("InvalidRequest", "accountLimit is a number, or null for the usual one")
        parts = self._parts
        row = self._known_host(_text(body, "hostname"))
        trusted = body.get("trusted", row.trusted) is True
        row = await parts.hosts.change_limits(row.hostname, account_limit=limit, trusted=trusted)
        return _host(parts, row, parts.ledger.host(row.hostname))

    async def backfills(self, request: Request) -> Any:
        return {"jobs": msgspec.to_builtins(self._parts.backfill.progress())}

    async def backfill(self, request: Request) -> Any:
        body, jobs = await json_body(request), self._parts.backfill
        if body.keys() == {"hostname"}:
            return msgspec.to_builtins(jobs.ask_host(self._known_host(_text(body, "hostname")).hostname))
        if body.keys() != {"relay", "collection"} or not is_nsid(_text(body, "collection")):
            raise XrpcError("InvalidRequest", 'the body is {"hostname": ...}, or {"relay": url, "collection": nsid}')
        return msgspec.to_builtins(jobs.ask_relay(_text(body, "relay"), _text(body, "collection")))

    async def domains(self, request: Request) -> Any:
        return {"domains": self._parts.store.domain_bans()}

    async def ban(self, request: Request) -> Any:
        await self._parts.hosts.ban_domain(_text(await json_body(request), "domain"))
        return await self.domains(request)

    async def unban(self, request: Request) -> Any:
        await self._parts.store.ban_domain(_text(await json_body(request), "domain"), banned=False)
        return await self.domains(request)

    async def accounts(self, request: Request) -> Any:
        after = request.query_params.get("cursor", "")
        rows = await self._parts.store.list_accounts(after, _PAGE, taken_down=True)
        found = [{"did": row.did, "host": row.host, "status": row.local_status} for row in rows]
        return {"accounts": found} | ({"cursor": rows[-1].did} if len(rows) == _PAGE else {})

    async def take_down(self, request: Request) -> Any:
        """No event of the account goes out from now on, and those in the log are wiped."""
        body = await json_body(request)
        did, status = _text(body, "did"), body.get("status", "takendown")
        if status not in _STATUSES:
            raise XrpcError("InvalidRequest", f"status is one of {', '.join(_STATUSES)}")
        if not await self._parts.intake.set_local_status(did, status):
            raise XrpcError("RepoNotFound", "there was no event of it yet", 404)
        return {"scrubbed": await self._parts.sequencer.scrub(did)}

    async def reverse(self, request: Request) -> Any:
        """The account is carried again. What was wiped stays so; its host says which collections it has."""
        parts, did = self._parts, _text(await json_body(request), "did")
        if not await parts.intake.set_local_status(did, None):
            raise XrpcError("RepoNotFound", "there was no event of it yet", 404)
        row = await parts.store.get(did)
        found = 0
        if row is not None and row.host:
            with suppress(HeadgateError):  # the index fills itself again as the account goes on
                base = origin(row.host, allow_private=parts.fetcher.allow_private)
                found = await parts.index.backfill(parts.fetcher, base, did)
        return {"collections": found}

    async def consumers(self, request: Request) -> Any:
        return {"consumers": [_consumer(each) for each in self._consumers()]}

    async def disconnect(self, request: Request) -> Any:
        number = (await json_body(request)).get("id")
        found = [each for each in self._consumers() if each.number == number]
        for each in found:
            each.disconnect()
        return {"disconnected": len(found)}

    async def _hostname(self, request: Request) -> str:
        return self._known_host(_text(await json_body(request), "hostname")).hostname

    def _known_host(self, name: str) -> HostRow:
        row = self._parts.store.host(name.lower())
        if row is None:
            raise XrpcError("HostNotFound", f"{name[:80]} is not known", 404)
        return row


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise XrpcError("InvalidRequest", f"the body lacks {name}")
    return value


def _host(parts: Parts, row: HostRow, book: HostBook) -> dict[str, Any]:
    return {
        **asdict(row),
        "status": row.status.value,
        "trusted": parts.hosts.is_trusted(row),
        "connected": parts.hosts.connected(row.hostname),
        "received": book.received,
        "accepted": book.accepted,
        "pending": book.pending,
        "dropped": dict(book.dropped),
    }


def _consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        "id": consumer.number,
        "address": consumer.address,
        "path": consumer.path,
        "query": consumer.query,
        "since": consumer.since,
        "waiting_bytes": consumer.connection.transport.get_write_buffer_size(),
    }
