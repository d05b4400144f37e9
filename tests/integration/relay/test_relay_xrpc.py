"""What a relay answers over HTTP, to everybody and to its operator, over a simulated network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.demo.network.simulate import Network
from headgate.wire.atproto import Account, Kind, cid_text, read_event
from tests.integration.relay.relay_follow import eventually, run
from tests.integration.relay.relay_serving import Served, frame, frames, rest, serving

SYNC = "/xrpc/com.atproto.sync."


async def caught_up(served: Served, network: Network) -> None:
    """Until everything honest is in the log and the books, and with those who listen."""
    book = served.relay.parts.ledger.total
    await eventually(lambda: book.accepted >= len(network.honest) and book.pending == 0)
    await served.wait_for_listeners(0)


def test_hosts_and_repositories_are_listed_page_by_page(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=3, accounts=7) as network, serving(tmp_path, network) as served:
            await caught_up(served, network)
            page = await served.get(f"{SYNC}listHosts?limit=2")
            more = await served.get(f"{SYNC}listHosts?limit=2&cursor={page['cursor']}")
            assert "cursor" not in more
            hosts = page["hosts"] + more["hosts"]
            assert [host["hostname"] for host in hosts] == sorted(network.hostnames)
            assert sum(host["accountCount"] for host in hosts) == 7
            status = await served.get(f"{SYNC}getHostStatus?hostname={network.hostnames[0]}")
            named = {host["hostname"]: host["accountCount"] for host in hosts}  # the cursor may have moved on
            assert named[status["hostname"]] == status["accountCount"]
            page = await served.get(f"{SYNC}listRepos?limit=5")
            more = await served.get(f"{SYNC}listRepos?limit=5&cursor={page['cursor']}")
            expected = {repo.did: (cid_text(repo.head or b""), repo.rev, True) for repo in network.repos}
            repos = page["repos"] + more["repos"]
            assert {repo["did"]: (repo["head"], repo["rev"], repo["active"]) for repo in repos} == expected
            assert "cursor" not in more
            found = await served.get(f"{SYNC}listReposByCollection?collection=app.bsky.actor.profile&limit=4")
            more = await served.get(
                f"{SYNC}listReposByCollection?collection=app.bsky.actor.profile&cursor={found['cursor']}"
            )
            assert [each["did"] for each in found["repos"] + more["repos"]] == sorted(expected)
            repo = network.repos[0]
            commit = await served.get(f"{SYNC}getLatestCommit?did={repo.did}")
            assert commit == {"cid": cid_text(repo.head or b""), "rev": repo.rev}
            status = await served.get(f"{SYNC}getRepoStatus?did={repo.did}")
            assert status == {"did": repo.did, "active": True, "rev": repo.rev}
            redirect = await served.client.get(f"{SYNC}getRepo?did={repo.did}&since=abc")
            assert redirect.status_code == 302
            there = await served.client.get(redirect.headers["location"])
            assert there.content == repo.export()

    run(test())


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("getHostStatus?hostname=unknown.example", 404, "HostNotFound"),
        ("getHostStatus", 400, "InvalidRequest"),
        ("getRepoStatus?did=did:plc:unknown", 404, "RepoNotFound"),
        ("getLatestCommit?did=did:plc:unknown", 404, "RepoNotFound"),
        ("getLatestCommit?did=nonsense", 400, "InvalidRequest"),
        ("getRepo?did=did:plc:unknown", 404, "RepoNotFound"),
        ("listRepos?limit=0", 400, "InvalidRequest"),
        ("listRepos?limit=1001", 400, "InvalidRequest"),
        ("listHosts?limit=x", 400, "InvalidRequest"),
        ("listReposByCollection?collection=x", 400, "InvalidRequest"),
        ("getBlob?did=did:plc:unknown", 501, "MethodNotImplemented"),
    ],
)
def test_errors_have_the_names_of_the_lexicon(tmp_path: Path, path: str, status: int, error: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            said = await served.get(SYNC + path, status)
            assert said["error"] == error
            assert said["message"]

    run(test())


def test_an_account_that_is_not_active_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=2) as network, serving(tmp_path, network) as served:
            repo = network.repos[0]
            network.account(repo, active=False, status="deactivated")
            await caught_up(served, network)
            assert (await served.get(f"{SYNC}getLatestCommit?did={repo.did}", 403))["error"] == "RepoDeactivated"
            status = await served.get(f"{SYNC}getRepoStatus?did={repo.did}")
            assert status == {"did": repo.did, "active": False, "status": "deactivated"}
            network.account(repo, active=False, status="deleted")
            await caught_up(served, network)
            assert (await served.get(f"{SYNC}getLatestCommit?did={repo.did}", 404))["error"] == "RepoNotFound"

    run(test())


def test_a_browser_and_a_person_get_an_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            assert (await served.get("/_health"))["seq"] == 0
            assert "subscribeRepos" in (await served.client.get("/")).text
            asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}
            answer = await served.client.options(f"{SYNC}listHosts", headers=asked)
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, "*")
            assert "GET" in answer.headers["access-control-allow-methods"]

    run(test())


def test_hosts_ask_to_be_crawled(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=2) as network, serving(tmp_path, network, crawl=()) as served:
            first, second = network.hostnames
            await served.post(f"{SYNC}requestCrawl", hostname=first)
            await eventually(lambda: served.relay.parts.hosts.connected(first))
            assert [host["hostname"] for host in (await served.get(f"{SYNC}listHosts"))["hosts"]] == [first]
            network.hosts[1].server_header = "x (atproto-relay)"
            said = await served.post(f"{SYNC}requestCrawl", 400, hostname=second)
            assert "is a relay" in said["message"]
            assert (await served.post(f"{SYNC}requestCrawl", 400, hostname=7))["error"] == "InvalidRequest"
            assert (await served.client.post(f"{SYNC}requestCrawl", content=b"x" * 20_000)).status_code == 413
            await served.post("/admin/hosts/block", hostname=first)
            assert (await served.post(f"{SYNC}requestCrawl", 400, hostname=first))["error"] == "HostBanned"
            assert (await served.get(f"{SYNC}getHostStatus?hostname={first}"))["status"] == "banned"
            await served.post("/admin/hosts/unblock", hostname=first)
            await eventually(lambda: served.relay.parts.hosts.connected(first))

    run(test())


def test_a_takedown_silences_an_account_and_scrubs_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=4) as network, serving(tmp_path, network) as served:
            gone = network.repos[0]
            for _ in range(3):
                network.commit(gone)
            await caught_up(served, network)
            async with served.subscribe() as live:
                await served.wait_for_listeners(1)
                scrubbed = await served.post("/admin/accounts/takedown", did=gone.did)
                assert scrubbed == {"scrubbed": 5}  # its #identity and four commits
                told = read_event(await frame(live))
                assert isinstance(told, Account)
                assert (told.did, told.active, told.status) == (gone.did, False, "takendown")
                head = served.relay.parts.reader.head_seq
                async with served.subscribe("?cursor=0") as replay:
                    found = await frames(replay, head - 5)
                assert {each.kind for each in found if each.did == gone.did} == {Kind.ACCOUNT}
                log = b"".join(path.read_bytes() for path in (tmp_path / "log").glob("evts-*"))
                assert gone.handle.encode() not in log
                error = await served.get(f"{SYNC}getLatestCommit?did={gone.did}", 403)
                assert error["error"] == "RepoTakendown"
                dids = await served.get(f"{SYNC}listReposByCollection?collection=app.bsky.actor.profile")
                assert gone.did not in {each["did"] for each in dids["repos"]}

                network.commit(gone)
                after = network.commit(network.repos[1])
                assert (await frame(live)).did == after.did
                why = await served.get(f"/admin/why?did={gone.did}")
                assert why["drops"][0]["reason"] == "taken_down"
                assert why["account"]["status"] == "takendown"
                assert [each["did"] for each in (await served.get("/admin/accounts"))["accounts"]] == [gone.did]

                await served.post("/admin/accounts/reverse", did=gone.did)
                told = read_event(await frame(live))
                assert isinstance(told, Account)
                assert (told.active, told.status) == (True, None)
                dids = await served.get(f"{SYNC}listReposByCollection?collection=app.bsky.actor.profile")
                assert gone.did in {each["did"] for each in dids["repos"]}

    run(test())


def test_why_an_event_was_dropped_can_be_asked(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=2) as network, serving(tmp_path, network) as served:
            repo = network.repos[0]
            await caught_up(served, network)
            network.lie("omitted_op", repo)
            await caught_up(served, network)
            (drop,) = (await served.get(f"/admin/why?did={repo.did}"))["drops"]
            assert (drop["reason"], drop["host"], drop["kind"]) == ("inversion", repo.host, "#commit")
            counters = await served.get("/admin/counters")
            assert counters["dropped"] == {"inversion": 1}
            assert counters["received"] == counters["accepted"] + 1
            metrics = (await served.client.get("/metrics")).text
            assert 'headgate_relay_events_dropped_total{reason="inversion"} 1.0' in metrics
            assert "headgate_relay_unverified_fraction 0.0" in metrics
            for name in ("validation", "durable", "lookup"):
                count = next(line for line in metrics.splitlines() if f"headgate_relay_{name}_seconds_count" in line)
                assert float(count.rpartition(" ")[2]) > 0
            assert f'headgate_relay_host_events_received_total{{host="{network.hostnames[0]}"}}' in metrics
            for name in (
                "headgate_relay_log_bytes",
                "headgate_relay_received_bytes_total",
                "process_cpu_seconds_total",
            ):
                assert any(line.startswith(f"{name} ") and not line.endswith(" 0.0") for line in metrics.splitlines())
            assert (await served.get("/admin/why?did=x", 400))["error"] == "InvalidRequest"

    run(test())


def test_limits_and_domains_are_the_operators(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=2) as network, serving(tmp_path, network) as served:
            await caught_up(served, network)
            name = network.hostnames[0]
            row = await served.post("/admin/hosts/limits", hostname=name, accountLimit=7, trusted=True)
            assert (row["account_limit"], row["trusted"]) == (7, True)
            assert (await served.post("/admin/hosts/limits", 400, hostname=name, accountLimit=-1))["error"]
            assert (await served.post("/admin/hosts/limits", 404, hostname="x.example"))["error"] == "HostNotFound"
            hosts = (await served.get("/admin/hosts"))["hosts"]
            assert [host["hostname"] for host in hosts] == sorted(network.hostnames)
            assert await served.post("/admin/domains/ban", domain="Bad.Example") == {"domains": ["bad.example"]}
            banned = await served.post(f"{SYNC}requestCrawl", 400, hostname="pds.bad.example")
            assert banned["error"] == "HostBanned"
            assert await served.post("/admin/domains/unban", domain="bad.example") == {"domains": []}

    run(test())


def test_consumers_are_listed_and_can_be_sent_away(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            serving(tmp_path) as served,
            served.subscribe() as stays,
            served.listen("/subscribe?wantedCollections=app.bsky.feed.post") as goes,
        ):
            await served.wait_for_listeners(2)
            consumers = (await served.get("/admin/consumers"))["consumers"]
            assert [each["path"] for each in consumers] == ["/xrpc/com.atproto.sync.subscribeRepos", "/subscribe"]
            assert consumers[1]["query"] == "wantedCollections=app.bsky.feed.post"
            assert await served.post("/admin/consumers/disconnect", id=consumers[1]["id"]) == {"disconnected": 1}
            assert await rest(goes) == []
            left = (await served.get("/admin/consumers"))["consumers"]
            assert [each["id"] for each in left] == [consumers[0]["id"]]
            assert stays.close_code is None

    run(test())


@pytest.mark.parametrize("token", ["wrong", None], ids=["wrong", "not-set"])
def test_the_operators_door_has_a_lock(tmp_path: Path, token: str | None) -> None:
    async def test() -> None:
        changes: dict[str, Any] = {"admin_token": None} if token is None else {}
        async with serving(tmp_path, **changes) as served:
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(base_url=served.relay.url, headers=headers, trust_env=False) as client:
                answers = await asyncio.gather(
                    client.get("/admin/counters"), client.post("/admin/accounts/takedown", json={"did": "x"})
                )
                assert {each.status_code for each in answers} == {403 if token is None else 401}
                health = await client.get("/xrpc/_health")
                assert health.status_code == 200
                assert health.headers["server"] == "headgate-relay (atproto-relay)"
                assert health.headers["access-control-allow-origin"] == "*"

    run(test())
