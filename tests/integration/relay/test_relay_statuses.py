"""The status of accounts that are new to a relay: hosts are asked, and nobody waits for those who do not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from headgate.demo.network.host import SimulatedHost
from headgate.demo.network.repository import Repository
from headgate.demo.network.simulate import Network
from headgate.wire.atproto import Account, Reason
from tests.integration.relay.relay_follow import Sink, eventually, following, run
from tests.integration.relay.relay_serving import serving

METHOD = "/xrpc/com.atproto.sync.getRepoStatus"


class Asked(SimulatedHost):
    """Answers for its accounts, as soon as it may."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: dict[str, Any] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.at_once = self.most_at_once = self.asked = 0

    async def _answer(self, connection: ServerConnection, request: Request) -> Response | None:  # type: ignore[override]
        if request.path.startswith(METHOD):
            self.asked += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                await self.may_answer.wait()
            finally:
                self.at_once -= 1
        return super()._answer(connection, request)

    def get(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        did = query.get("did", "")
        if path == METHOD and did in self.statuses:
            return 200, {"did": did, "active": False, "status": self.statuses[did]}
        return super().get(path, query)


def quiet_account(network: Network, name: str, host: SimulatedHost) -> Repository:
    """One of which the first that a relay hears is a commit."""
    repo = network.add_account(name, host)
    del network.honest[-3:]
    host.reset()
    return repo


def inactive(sink: Sink) -> list[tuple[str, bool, str | None]]:
    events = [accepted.event for accepted, _, _ in sink.events]
    return [(event.did, event.active, event.status) for event in events if isinstance(event, Account)]


@pytest.mark.parametrize("status", ["takendown", "deactivated"])
def test_a_new_account_that_is_not_active_falls_silent(tmp_path: Path, status: str) -> None:
    async def test() -> None:
        sink, network, host = Sink(), Network(hosts=0, accounts=0), Asked()
        network.hosts.append(host)
        async with network:
            repo = quiet_account(network, "alice", host)
            host.statuses[repo.did] = status
            first = network.commit(repo)
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(first)
                await eventually(lambda: inactive(sink) == [(repo.did, False, status)])
                network.commit(repo)
                await eventually(lambda: ingest.ledger.total.dropped[Reason.INACTIVE] == 1)
                back = network.account(repo)
                await sink.until(back, network.commit(repo))  # its host says so itself
                row = ingest.intake.accounts.get(repo.did)
                assert row is not None
                assert (row.active, row.status) == (True, None)
                assert host.asked == 1  # not again for the same account

    run(test())


def test_what_a_host_says_by_itself_is_newer_than_its_answer(tmp_path: Path) -> None:
    async def test() -> None:
        sink, network, host = Sink(), Network(hosts=0, accounts=0), Asked()
        network.hosts.append(host)
        async with network:
            repo = quiet_account(network, "alice", host)
            host.statuses[repo.did] = "deactivated"
            host.may_answer.clear()
            first = network.commit(repo)
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(first)
                await eventually(lambda: host.at_once == 1)
                await sink.until(network.account(repo))
                host.may_answer.set()
                await eventually(lambda: ingest.statuses.counts["deactivated"] == 1)
                await sink.until(network.commit(repo))
                assert inactive(sink) == [(repo.did, True, None)]

    run(test())


@pytest.mark.parametrize(
    "answer",
    [(200, b"["), (200, []), (200, {"did": "did:plc:other", "active": False, "status": "deleted"}), (500, {}),
     (200, {"active": "no"}), (200, b"x" * 100_000), (200, {"active": False, "status": "\ud800 unheard of"})],
    ids=["no json", "no object", "another account", "error", "wrong type", "too long", "unknown status"],
)  # fmt: skip
def test_an_answer_that_is_none_changes_nothing(tmp_path: Path, answer: tuple[int, Any]) -> None:
    async def test() -> None:
        sink, network, host = Sink(), Network(hosts=0, accounts=0), Asked()
        network.hosts.append(host)
        status, body = answer
        async with network:
            repo = quiet_account(network, "alice", host)
            known = SimulatedHost.get
            said = {"did": repo.did} | body if isinstance(body, dict) else body
            host.get = lambda path, query: (status, said) if path == METHOD else known(host, path, query)  # type: ignore[method-assign]
            first = network.commit(repo)
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(first)
                counts = ingest.statuses.counts
                await eventually(lambda: counts["unclear"] + counts["unanswered"] == 1)
                await sink.until(network.commit(repo))
                assert inactive(sink) == []

    run(test())


def test_hosts_that_hang_delay_neither_events_nor_lookups(tmp_path: Path) -> None:
    async def test() -> None:
        sink, network, hanging, honest = Sink(), Network(hosts=0, accounts=0), Asked(), SimulatedHost()
        network.hosts += [hanging, honest]
        hanging.may_answer.clear()
        async with network:
            repos = [quiet_account(network, f"h{number}", hanging) for number in range(150)]
            for repo in repos:
                network.commit(repo)
            options = network.options(lookups=2, host_lookups=1, status_lookups=4, host_status_lookups=2)
            async with following(network, tmp_path, sink, options) as ingest:
                await eventually(lambda: hanging.at_once == 2)
                for number in range(20):
                    network.add_account(f"late{number}", honest)
                await sink.until(*network.honest)
                assert hanging.most_at_once == 2
                assert ingest.ledger.total.dropped.total() == 0
                assert ingest.statuses.counts["not_asked"] == 50  # a hundred of a host wait, and no more
                hanging.may_answer.set()

    run(test())


def test_it_can_be_switched_off_and_is_counted(tmp_path: Path) -> None:
    async def test() -> None:
        for count in (0, 1):
            network, host = Network(hosts=0, accounts=0), Asked()
            network.hosts.append(host)
            async with network:
                network.commit(quiet_account(network, "alice", host))
                options = network.options(status_lookups=count)
                async with serving(tmp_path / str(count), network, options=options) as served:
                    await eventually(lambda: served.relay.parts.ledger.total.accepted == 1)
                    if count:
                        await eventually(lambda: served.relay.parts.ingest.statuses.counts.total() == 1)
                        text = (await served.client.get("/metrics")).text
                        assert 'headgate_relay_status_lookups_total{reason="active"} 1.0' in text
                    assert host.asked == count

    run(test())
