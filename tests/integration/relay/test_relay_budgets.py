"""Hosts that ask for more than their share, beside honest ones: the honest do not wait for them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection

from headgate.demo.network.host import SimulatedHost
from headgate.demo.network.repository import create
from headgate.demo.network.simulate import Network
from headgate.relay.limits import HostBudget
from headgate.relay.workers import LocalJudge, ProcessJudge
from headgate.wire.atproto import Kind, read_frame, write_frame
from tests.integration.relay.relay_follow import Sink, eventually, following, run


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def silent_servers(count: int) -> Iterator[list[int]]:
    """Ports where connections are taken and nothing is ever said."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        yield [listener.getsockname()[1] for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()


def test_names_that_hang_delay_nobody_else(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=2, accounts=0) as network:
            hostile, honest = network.hosts
            repo = network.add_account("alice", hostile)
            body = read_frame(repo.account(seq=1, now_us=1_700_000_000_000_000)).body
            with silent_servers(40) as ports:
                for port in ports:
                    did = f"did:web:localhost%3A{port}"
                    hostile.append(write_frame(Kind.ACCOUNT, body | {"seq": hostile.next_seq, "did": did}))
                options = network.options(lookups=4, host_lookups=2, web_lookups=4, host_web_lookups=2)
                async with following(network, tmp_path, sink, options) as ingest:
                    await eventually(lambda: ingest.ledger.host(hostile.name).held >= 40)
                    late = [network.add_account(f"bob{number}", honest) for number in range(8)]
                    late.append(network.add_account("carol", hostile))  # not even its own accounts, at the directory
                    dids = {repo.did for repo in late}
                    await sink.until(*(told for told in network.honest if told.did in dids))
                    assert ingest.ledger.host(hostile.name).held >= 40
                    assert ingest.ledger.total.dropped.total() == 0

    run(test())


class Repeating(SimulatedHost):
    """Sends the same message again and again, as fast as it is read."""

    def __init__(self, *messages: bytes | str) -> None:
        super().__init__()
        self.messages = messages

    async def _send_from(self, connection: ServerConnection, position: int) -> None:
        for frame in self.frames[position:]:
            await connection.send(frame)
        while True:
            for message in self.messages:
                await connection.send(message)
                await asyncio.sleep(0)  # to a connection that has ended, sending never waits


ACCOUNT = write_frame(Kind.ACCOUNT, {"seq": 1, "did": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"})


@pytest.mark.parametrize("messages", [(ACCOUNT,), (b"\xff",), ("text",)], ids=["repeated", "no frame", "text"])
def test_whatever_a_host_repeats_counts(tmp_path: Path, messages: tuple[bytes | str, ...]) -> None:
    async def test() -> None:
        sink, network = Sink(), Network(hosts=0, accounts=0)
        host = Repeating(*messages)
        network.hosts.append(host)
        async with network:
            network.add_account("alice", host)
            options = network.options(rates=True, account_limit=10)
            async with following(network, tmp_path, sink, options) as ingest:
                await sink.until(*network.honest)
                loop, track = asyncio.get_running_loop(), ingest.intake.track(host.name)
                taken = count_messages(track.budget)
                began = loop.time()
                await eventually(lambda: len(taken) >= 100)
                assert loop.time() - began >= 0.8  # fifty in a second, and as many at once

    run(test())


def count_messages(budget: HostBudget | None) -> list[int]:
    assert budget is not None
    taken: list[int] = []
    take = budget.take

    def counted(size: int) -> float:
        taken.append(size)
        return take(size)

    budget.take = counted  # type: ignore[method-assign]
    return taken


@pytest.mark.parametrize("workers", [0, 1])
def test_a_host_whose_commits_cost_much_waits_and_others_do_not(tmp_path: Path, workers: int) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=2, accounts=2) as network:
            costly, cheap = network.repos
            for number in range(60):
                writes = [create(f"app.test.note/{number}x{n}", {"n": n}) for n in range(100)]
                network._tell(costly, writes)
            for _ in range(50):
                network.commit(cheap)
            options = network.options(rates=True, account_limit=1_000_000, host_cpu_share=0.001, workers=workers)
            async with following(network, tmp_path, sink, options) as ingest:
                await sink.until(*(told for told in network.honest if told.did == cheap.did))
                book = ingest.ledger.host(costly.host)
                assert 0 < book.accepted < 40
                assert book.pending > 0
                assert isinstance(ingest.intake._judges[0], ProcessJudge if workers else LocalJudge)

    run(test())


def test_a_budget_counts_messages_bytes_and_time() -> None:
    clock = Clock()

    def budget(*, trusted: bool = False) -> HostBudget:
        return HostBudget(((10.0, 1.0),), bytes_per_s=1000.0, cpu_share=0.1, trusted=trusted, clock=clock)

    by_count, by_bytes, by_time, trusted = budget(), budget(), budget(), budget(trusted=True)
    assert [by_count.take(0) for _ in range(11)] == [*[0.0] * 10, pytest.approx(0.1)]
    assert by_bytes.take(16_000) == 0.0  # all at once
    assert by_bytes.take(500) == pytest.approx(0.5)
    by_time.spend(3.0)  # two seconds of a tenth of a core are given
    assert by_time.take(1) == 0.0
    assert by_time.debt_s() == pytest.approx(10.0)
    clock.now += 10.0
    assert by_time.debt_s() == pytest.approx(0.0, abs=1e-9)
    trusted.spend(3.0)
    assert (trusted.take(16_500), trusted.debt_s()) == (0.0, 0.0)
