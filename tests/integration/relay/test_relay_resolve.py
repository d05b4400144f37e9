"""The resolver and the fetcher below it, with servers that fail, lie and lead astray."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headgate.demo.network.host import SimulatedDirectory
from headgate.demo.network.repository import Repository
from headgate.demo.network.simulate import Network
from headgate.model import ConnectError
from headgate.relay.collections import CollectionIndex
from headgate.relay.net import Fetcher, public_addresses
from headgate.relay.resolve import HIT_S, MISS_S, Resolver
from headgate.wire.atproto import AtprotoError, Reason
from tests.integration.relay.relay_follow import eventually, run


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def resolving(
    clock: Clock, *, size: int = 100, refresh_s: float = 0.0
) -> AsyncIterator[tuple[Resolver, SimulatedDirectory, Repository]]:
    directory, repo = SimulatedDirectory(), Repository("alice", "pds.example")
    directory.documents[repo.did] = repo.document()
    await directory.start()
    async with Fetcher(allow_private=True) as fetcher:
        resolver = Resolver(fetcher, plc_url=directory.url, clock=clock, size=size, refresh_s=refresh_s)
        yield resolver, directory, repo
        await resolver.close()
    await directory.stop()


def test_a_document_is_looked_up_once_for_all_who_ask_and_kept_for_a_day() -> None:
    async def test() -> None:
        clock = Clock()
        async with resolving(clock) as (resolver, directory, repo):
            found = await asyncio.gather(*(resolver.resolve(repo.did) for _ in range(20)))
            assert {one.document.pds for one in found if one.document} == {"pds.example"}
            assert len(directory.requests) == 1
            clock.now += HIT_S
            assert resolver.cached(repo.did) is not None
            clock.now += 1
            assert resolver.cached(repo.did) is None
            await resolver.resolve(repo.did)
            assert len(directory.requests) == 2

    run(test())


def test_a_failure_is_kept_for_two_minutes_and_a_document_outlives_one() -> None:
    async def test() -> None:
        clock = Clock()
        async with resolving(clock) as (resolver, directory, repo):
            directory.failing = 500
            found = await resolver.resolve(repo.did)
            assert found.error is not None
            assert (found.document, found.error.passing, found.error.reason) == (None, True, Reason.UNRESOLVED)
            directory.failing = None
            assert (await resolver.resolve(repo.did)).document is None
            clock.now += MISS_S + 1
            assert (await resolver.resolve(repo.did)).document is not None
            directory.failing = 500
            clock.now += 1
            again = await resolver.refresh(repo.did, clock.now)
            assert again.error is not None
            assert again.document is not None
            kept = resolver.cached(repo.did)
            assert kept is not None
            assert kept.error is None

    run(test())


def test_a_refresh_asks_again_only_for_what_is_older_than_the_event() -> None:
    async def test() -> None:
        clock = Clock()
        async with resolving(clock) as (resolver, directory, repo):
            await resolver.resolve(repo.did)
            assert (await resolver.refresh(repo.did, clock.now)).document is not None
            assert len(directory.requests) == 1
            clock.now += 1
            directory.documents[repo.did] = Repository("alice", "other.example").document()
            await asyncio.gather(*(resolver.refresh(repo.did, clock.now) for _ in range(9)))
            assert len(directory.requests) == 2
            found = resolver.cached(repo.did)
            assert found is not None
            assert found.document is not None
            assert found.document.pds == "other.example"

    run(test())


def test_lookups_of_one_did_keep_their_distance() -> None:
    async def test() -> None:
        clock = Clock()
        async with resolving(clock, refresh_s=0.2) as (resolver, _, repo):
            await resolver.resolve(repo.did)
            clock.now += 0.01
            loop = asyncio.get_running_loop()
            began = loop.time()
            await resolver.refresh(repo.did, clock.now)
            assert loop.time() - began >= 0.15

    run(test())


def test_the_cache_is_bounded() -> None:
    async def test() -> None:
        clock = Clock()
        async with resolving(clock, size=3) as (resolver, directory, _):
            repos = [Repository(f"user{n}", "pds.example") for n in range(5)]
            directory.documents |= {repo.did: repo.document() for repo in repos}
            for repo in repos:
                await resolver.resolve(repo.did)
            assert [resolver.cached(repo.did) is not None for repo in repos] == [False, False, True, True, True]

    run(test())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"", Reason.BAD_DOCUMENT, id="empty"),
        pytest.param(b"[" * 100_000, Reason.BAD_DOCUMENT, id="deep"),
        pytest.param(b"\xff\xfe", Reason.BAD_DOCUMENT, id="no-text"),
        pytest.param(b'{"id":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"}', Reason.BAD_DOCUMENT, id="of-another"),
        pytest.param(b"[]", Reason.BAD_DOCUMENT, id="list"),
        pytest.param(b" " * (1 << 20), Reason.UNRESOLVED, id="too-big"),
    ],
)
def test_hostile_documents_are_errors_with_a_reason(body: bytes, reason: Reason) -> None:
    async def test() -> None:
        async with resolving(Clock()) as (resolver, directory, repo):
            directory.documents[repo.did] = body
            found = await resolver.resolve(repo.did)
            assert found.document is None
            assert found.error is not None
            assert found.error.reason is reason

    run(test())


@pytest.mark.parametrize(
    "change",
    [
        {"verificationMethod": [{"id": "#atproto", "type": 7}], "service": {"id": "#atproto_pds"}},
        {"verificationMethod": None, "service": [{"id": "#atproto_pds", "serviceEndpoint": ["x"]}]},
        {"verificationMethod": [None, 1, "x"], "service": [[]], "alsoKnownAs": [{}, 3]},
        {"service": [{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "http://[::1"}]},
    ],
    ids=["types", "none", "entries", "url"],
)
def test_a_document_with_parts_that_make_no_sense_says_less_and_breaks_nothing(change: dict[str, object]) -> None:
    async def test() -> None:
        async with resolving(Clock()) as (resolver, directory, repo):
            directory.documents[repo.did] = json.dumps(repo.document() | change).encode()
            found = await resolver.resolve(repo.did)
            assert found.document is not None
            assert found.document.pds is None

    run(test())


def test_a_did_web_is_asked_at_its_own_host() -> None:
    async def test() -> None:
        async with resolving(Clock()) as (resolver, directory, repo):
            did = f"did:web:localhost%3A{directory.port}"
            directory.documents[".well-known/did.json"] = repo.document() | {"id": did}
            found = await resolver.resolve(did)
            assert found.document is not None
            assert found.document.handle == "alice.test"

    run(test())


def test_who_gives_up_does_not_end_the_lookup_for_others() -> None:
    async def test() -> None:
        async with resolving(Clock()) as (resolver, _, repo):
            first = asyncio.create_task(resolver.resolve(repo.did))
            second = asyncio.create_task(resolver.resolve(repo.did))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).document is not None
            await eventually(first.done)

    run(test())


class Leading(SimulatedDirectory):
    """Leads every question elsewhere."""

    target = ""

    def get(self, path: str, query: dict[str, str]) -> tuple[int, object]:
        return 302, {}

    def headers(self) -> dict[str, str]:
        return {"Location": self.target}


@pytest.mark.parametrize("target", ["/again", "ftp://localhost/", "http://[broken", "file:///etc/passwd"])
def test_a_redirect_leads_nowhere_bad(target: str) -> None:
    async def test() -> None:
        server = Leading()
        server.target = target
        await server.start()
        async with Fetcher(allow_private=True) as fetcher:
            with pytest.raises(ConnectError):
                await fetcher.get(server.url, limit=100)
        await server.stop()
        assert len(server.requests) <= 4

    run(test())


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:1/", "https://localhost:1/", "https://[::1]:1/", "https://169.254.169.254/", "http://1.1.1.1/"],
)
def test_only_public_addresses_and_only_tls_are_dialled(url: str) -> None:
    async def test() -> None:
        async with Fetcher() as fetcher:
            with pytest.raises(ConnectError, match=r"not public|not https"):
                await fetcher.get(url, limit=100)

    run(test())


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False),
    ],
)
def test_public_is_what_the_internet_can_reach(address: str, public: bool) -> None:
    async def test() -> None:
        if public:
            assert await public_addresses(address, 443) == [address]
        else:
            with pytest.raises(ConnectError):
                await public_addresses(address, 443)

    run(test())


def test_collections_are_filled_in_from_the_host(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=1) as network, Fetcher(allow_private=True) as fetcher:
            repo, host = network.repos[0], network.hosts[0]
            index = CollectionIndex(tmp_path)
            assert await index.backfill(fetcher, host.url, repo.did) == 1
            assert index.collections(repo.did) == ["app.bsky.actor.profile"]
            with pytest.raises(AtprotoError):
                await index.backfill(fetcher, host.url, "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")
            index.close()

    run(test())
