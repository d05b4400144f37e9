"""Doors for pages in browsers: tickets instead of the token, and only pages that were named."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from headgate.broker.http.options import BrokerServerOptions
from headgate.broker.http.tickets import COOKIE, issue, opens
from headgate.model import ConfigError
from tests.integration.broker.doors import Ear, opened, publish

TOKEN = "t0ken-of-test"
BEARER = {"authorization": f"Bearer {TOKEN}"}
PAGE = "https://shop.example"


async def ticket_for(client: httpx.AsyncClient, *topics: str) -> str:
    answer = await client.post("/tickets", json={"topics": topics, "seconds": 60}, headers=BEARER)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return str(answer.json()["ticket"])


@pytest.mark.parametrize("place", ["address", "cookie"])
def test_a_page_listens_with_a_ticket(database: str, place: str) -> None:
    async def story() -> None:
        async with (
            opened(database, token=TOKEN, origins=(PAGE,)) as (doors, db),
            httpx.AsyncClient(base_url=doors.url, timeout=20) as client,
        ):
            ticket = await ticket_for(client, "a", "b")
            params = httpx.QueryParams({"topic": "a"} | ({"ticket": ticket} if place == "address" else {}))
            headers = {"origin": PAGE} | ({"cookie": f"{COOKIE}={ticket}"} if place == "cookie" else {})
            async with client.stream("GET", "/events", params=params, headers=headers) as response:
                assert response.status_code == 200
                assert response.headers["access-control-allow-origin"] == PAGE
                assert response.headers["access-control-allow-credentials"] == "true"
                ear = Ear(response)
                await ear.block()
                await publish(db, "a", 1)
                assert [each.payload for each in await ear.events(1)] == [1]

    asyncio.run(story())


def test_who_is_refused(database: str) -> None:
    async def story() -> None:
        async with (
            opened(database, token=TOKEN, origins=(PAGE,)) as (doors, _),
            httpx.AsyncClient(base_url=doors.url, timeout=20) as client,
        ):
            ticket = await ticket_for(client, "a")
            old = issue(TOKEN, ["a"], int(time.time()) - 1)
            foreign = issue("another token", ["a"], int(time.time()) + 60)

            async def status(query: str, **headers: str) -> int:
                async with client.stream("GET", f"/events?{query}", headers=headers) as response:
                    return response.status_code

            assert await status(f"topic=a&ticket={ticket}") == 200
            assert await status(f"topic=b&ticket={ticket}") == 401
            assert await status(f"topic=a&topic=b&ticket={ticket}") == 401
            assert await status(f"topic=a&ticket={old}") == 401
            assert await status(f"topic=a&ticket={foreign}") == 401
            assert await status(f"topic=a&ticket={ticket[:-2]}") == 401
            assert await status("topic=a&ticket=%00.%00") == 401
            assert await status(f"topic=a&ticket={ticket}", origin="https://evil.example") == 403
            assert (await client.post("/tickets", json={"topics": ["a"]})).status_code == 401
            assert (await client.post(f"/tickets?ticket={ticket}", json={"topics": ["b"]})).status_code == 401

    asyncio.run(story())


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"topics": []}', b'{"topics": ["a"], "second": 9}', b'{"topics": ["a"], "seconds": 0}',
     b'{"topics": ["a"], "seconds": 1e9}', b'{"topics": "a"}', b'{"topics": ["' + b"a" * 70_000 + b'"]}', b"\xff"],
    ids=["nothing", "list", "none", "misspelt", "zero", "for ever", "text", "huge", "bytes"],
)  # fmt: skip
def test_no_ticket_for_what_is_not_understood(shared_doors: httpx.Client, body: bytes) -> None:
    assert shared_doors.post("/tickets", content=body, headers=BEARER).status_code == 400


def test_a_browser_asks_before_it_sends_a_header(database: str) -> None:
    async def story() -> None:
        async with (
            opened(database, token=TOKEN, origins=(PAGE,)) as (doors, _),
            httpx.AsyncClient(base_url=doors.url, timeout=20) as client,
        ):
            asks = {"access-control-request-method": "GET", "access-control-request-headers": "last-event-id"}
            allowed = await client.options("/events", headers={"origin": PAGE, **asks})
            assert allowed.status_code == 204
            assert "last-event-id" in allowed.headers["access-control-allow-headers"]
            refused = await client.options("/events", headers={"origin": "https://evil.example", **asks})
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers

    asyncio.run(story())


def test_without_a_token_only_addresses_are_answered_to(database: str) -> None:
    """A name that was pointed at this machine: DNS rebinding."""

    async def story() -> None:
        async with (
            opened(database) as (doors, _),
            httpx.AsyncClient(base_url=doors.url, timeout=20) as client,
        ):
            answer = await client.get("/events?topic=a", headers={"host": "evil.example:8720"})
            assert answer.status_code == 403
            assert (await client.post("/tickets", json={"topics": ["a"]})).status_code == 409

    asyncio.run(story())


def test_a_ticket_is_for_its_token_its_topics_and_its_time() -> None:
    ticket = issue("t", ["b", "a"], 100)
    assert opens(ticket, "t", ["a"], 99)
    assert not opens(ticket, "t", ["a"], 100)
    assert not opens(ticket, "u", ["a"], 99)
    assert not opens(ticket, "t", ["a", "c"], 99)
    claim, _, signature = ticket.partition(".")
    other, _, _ = issue("t", ["c"], 100).partition(".")
    assert not opens(f"{other}.{signature}", "t", ["c"], 99)
    assert not opens(claim, "t", ["a"], 99)


@pytest.mark.parametrize("origin", ["*", "shop.example", "https://shop.example/", "https://Shop.example", "null"])
def test_an_origin_is_what_a_browser_sends(origin: str) -> None:
    options: dict[str, Any] = {"postgres_url": "", "origins": (origin,)}
    with pytest.raises(ConfigError):
        BrokerServerOptions(**options)
