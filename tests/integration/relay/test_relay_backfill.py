"""The collection index is filled from hosts and from another relay, page by page, and goes on after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headgate.demo.network.simulate import Network
from headgate.relay.backfill import Backfill
from headgate.relay.collections import CollectionIndex
from tests.integration.relay.relay_follow import Sink, eventually, following, run
from tests.integration.relay.relay_serving import Served, serving

PROFILE = "app.bsky.actor.profile"
SYNC = "/xrpc/com.atproto.sync."


async def listed(served: Served) -> set[str]:
    found = await served.get(f"{SYNC}listReposByCollection?collection={PROFILE}")
    return {repo["did"] for repo in found["repos"]}


async def filled(served: Served, **body: Any) -> dict[str, Any]:
    await served.post("/admin/backfill", **body)

    def jobs() -> list[Any]:
        return served.relay.parts.backfill.progress()

    await eventually(lambda: all(job.done for job in jobs()))
    jobs_ = (await served.get("/admin/backfill"))["jobs"]
    return dict(jobs_[-1])


def test_a_relay_that_comes_late_learns_what_accounts_have(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=8) as network:
            first, second = network.hosts
            first.page = 2
            stranger = network.repos[1]
            first.repos[stranger.did] = stranger  # of another host: nobody believes it
            late = network.options(backlog=False)
            async with serving(tmp_path / "a", network, options=late) as served:
                await eventually(lambda: len(served.relay.parts.store.hosts()) == 2)
                assert await listed(served) == set()
                job = await filled(served, hostname=first.name)
                own = {repo.did for repo in network.repos if repo.host == first.name}
                assert await listed(served) == own
                assert (job["accounts"], job["found"], job["failed"]) == (5, 4, 0)
                await served.post("/admin/backfill", 404, hostname="nobody.example")
                await served.post("/admin/backfill", 400, hostname=first.name, collection=PROFILE)
                async with serving(tmp_path / "b", options=late) as other:
                    await filled(other, relay=served.relay.url, collection=PROFILE)
                    assert await listed(other) == own
                assert second.repos

    run(test())


def test_what_was_reached_is_kept(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=6) as network, following(network, tmp_path, Sink(), crawl=False) as ingest:
            host = network.hosts[0]
            host.page = 2
            index = CollectionIndex(tmp_path / "collections")

            def backfill() -> Backfill:
                path = tmp_path / "backfill.json"
                return Backfill(ingest.store, index, ingest.fetcher, ingest.resolver, path, per_s=1_000)

            first = backfill()
            job = first.ask_host(host.name)
            await eventually(lambda: job.accounts >= 2 and (tmp_path / "backfill.json").exists())
            await first.close()
            second = backfill()
            [resumed] = second.progress()
            assert 0 < resumed.accounts <= 6
            pages = sum("listRepos" in path for path in host.requests)
            second.start()
            await eventually(lambda: second.progress()[0].done)
            assert second.progress()[0].accounts == 6
            assert sum("listRepos" in path for path in host.requests) <= max(pages, 3) + 1  # none from the beginning
            assert len(index.dids(PROFILE)) == 6
            await second.close()
            index.close()

    run(test())
