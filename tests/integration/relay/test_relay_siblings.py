"""Relays of one operator: a host that asks one of them to be crawled is followed by all."""

from __future__ import annotations

import socket
from pathlib import Path

from headgate.demo.network.simulate import Network
from tests.integration.relay.relay_follow import eventually, run
from tests.integration.relay.relay_serving import Served, serving

CRAWL = "/xrpc/com.atproto.sync.requestCrawl"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def told(served: Served) -> dict[str, int]:
    return dict(served.relay.parts.siblings.counts)


def test_siblings_follow_what_one_of_them_is_asked_for_and_come_to_an_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=2) as network:
            port = free_port()
            ours = f"http://127.0.0.1:{port}"
            async with (
                serving(tmp_path / "b", network, crawl=(), siblings=(ours,)) as other,
                serving(tmp_path / "a", network, crawl=(), port=port, siblings=(f"{other.relay.url}/",)) as served,
            ):
                await served.post(CRAWL, hostname=network.hostnames[0])
                await eventually(lambda: told(other) == {"taken": 1})  # it tells us, who know it already
                await served.post("/admin/hosts/crawl", hostname=network.hostnames[1])
                await eventually(lambda: told(other) == {"taken": 2})
                for name in network.hostnames:
                    await served.post(CRAWL, hostname=name)  # nothing new
                assert {row.hostname for row in other.relay.parts.store.hosts()} == set(network.hostnames)
                await eventually(lambda: told(served) == {"taken": 2})
                text = (await served.client.get("/metrics")).text
                assert 'headgate_relay_siblings_told_total{reason="taken"} 2.0' in text

    run(test())


def test_nobody_waits_for_a_sibling(tmp_path: Path) -> None:
    """One says nothing, and one is not there."""

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            siblings = (f"http://127.0.0.1:{silent.getsockname()[1]}", f"http://127.0.0.1:{free_port()}")
            async with (
                Network(hosts=1, accounts=1) as network,
                serving(tmp_path, network, crawl=(), siblings=siblings) as served,
            ):
                await served.post(CRAWL, hostname=network.hostnames[0])
                await eventually(lambda: served.relay.parts.ledger.total.accepted == len(network.honest))
                await eventually(lambda: told(served) == {"unanswered": 1})  # the other is still waited for

    run(test())


def test_a_host_that_is_refused_is_not_told_of(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            Network(hosts=1, accounts=0) as network,
            serving(tmp_path, network, crawl=(), siblings=("http://127.0.0.1:9",)) as served,
        ):
            network.hosts[0].described = False
            await served.post(CRAWL, 400, hostname=network.hostnames[0])
            assert told(served) == {}

    run(test())
