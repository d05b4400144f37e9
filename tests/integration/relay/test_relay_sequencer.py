"""Numbers that are given once, whatever dies in between; and a store that catches up with the log."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from headgate.demo.network.repository import Repository, create
from headgate.demo.network.simulate import Network
from headgate.model import StateError
from headgate.relay.latest import latest_events
from headgate.relay.service import RelaySettings
from headgate.sources.atproto.datasource import AtprotoStreamReader
from headgate.sources.atproto.options import AtprotoSourceOptions
from headgate.sources.atproto.places import SpoolPlace
from headgate.sources.atproto.subscription import Subscription
from headgate.wire.atproto import Kind, read_frame, resequence
from tests.integration.relay.relay_follow import eventually, run
from tests.integration.relay.relay_serving import NOW_US, POST, commits, frame, serving


def test_numbers_and_times_rise_over_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def numbered(name: str) -> tuple[list[int], list[int]]:
        async with serving(tmp_path) as served:
            seqs = await served.feed(*commits(3, name))
            async with served.listen("/subscribe?cursor=0") as consumer:
                events = [json.loads(await consumer.recv()) for _ in range(3)]
            return seqs, [event["time_us"] for event in events]

    async def test() -> None:
        first, _ = await numbered("alice")
        monkeypatch.setattr("headgate.relay.sequencer.time.time_ns", lambda: 1_000)  # the clock is set back
        second, times = await numbered("bob")
        assert [*first, *second] == sorted({*first, *second})
        assert times == sorted(set(times))

    run(test())


def lose(directory: Path, what: str) -> None:
    if what in ("store", "both"):
        for path in directory.glob("relay.sqlite*"):
            path.unlink()
        (directory / "checkpoint").write_text("0")
    if what in ("checkpoint", "both"):
        (directory / "checkpoint").unlink()


@pytest.mark.parametrize("lost", ["store", "checkpoint", "both"])
def test_what_the_store_lost_is_read_from_the_log(tmp_path: Path, lost: str) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=4) as network:
            for _ in range(20):
                network.commit()
            network.account(network.repos[0], active=False, status="deactivated")
            async with serving(tmp_path, network) as served:
                book = served.relay.parts.ledger.total
                await eventually(lambda: book.accepted >= len(network.honest) and book.pending == 0)
                before = await served.get("/xrpc/com.atproto.sync.listRepos")
            lose(tmp_path, lost)
            # The store's cursors are lost with it: the hosts tell everything again, and nothing of it goes out twice.
            async with serving(tmp_path, network) as served:
                assert served.relay.recovered == len(network.honest)
                assert await served.get("/xrpc/com.atproto.sync.listRepos") == before
                told = network.commit(network.repos[1])
                book = served.relay.parts.ledger.total
                await eventually(lambda: book.accepted > 0 and book.pending == 0)
                async with served.subscribe("?cursor=0") as consumer:
                    found = [await frame(consumer) for _ in range(served.relay.parts.reader.head_seq)]
            revs = [each.body["rev"] for each in found if "ops" in each.body]
            assert len(revs) == len(set(revs))
            assert found[-1].did == told.did or lost != "checkpoint"

    run(test())


def test_a_pipeline_can_read_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*commits(3))
            latest = latest_events(served.relay.parts.reader, 2)
            assert [(event["seq"], event["says"]) for event in latest] == [
                (n, f"create {POST}/{n - 1}") for n in (3, 2)
            ]

    run(test())
    reader = AtprotoStreamReader(AtprotoSourceOptions(path=str(tmp_path / "log"), starting_offsets="earliest"))
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    (part,) = reader.partitions(reader.initialOffset(), end)
    rows = [row for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["seq"], row["collection"], row["rkey"]) for row in rows] == [(n + 1, POST, str(n)) for n in range(3)]


def test_the_source_follows_the_relay_and_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        spool = tmp_path / "spool"
        place = SpoolPlace(spool)
        async with serving(tmp_path / "relay") as served:
            url = served.relay.url.replace("http", "ws", 1)
            wanted = AtprotoSourceOptions(url=url, spool=str(spool), starting_offsets="earliest")
            for count in (3, 5):
                await served.feed(*commits(count - (place.end() or 0), f"user{count}"))
                subscription = Subscription(wanted)
                await eventually(lambda count=count: (place.end() or 0) >= count)  # type: ignore[misc]
                await asyncio.to_thread(subscription.stop)
        assert [read_frame(message).seq for message in place.read(0, 5)] == [1, 2, 3, 4, 5]

    run(test())


def test_a_scrub_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    async def test() -> None:
        ann, bob = (Repository(name, "pds.example") for name in ("ann", "bob"))
        messages = [repo.identity(seq=1, now_us=NOW_US) for repo in (ann, bob, ann)]
        async with serving(tmp_path) as served:
            await served.feed(*messages)
        (tmp_path / "scrubbing").write_text(json.dumps([ann.did]))  # as a crash leaves it
        async with serving(tmp_path) as served, served.subscribe("?cursor=0") as consumer:
            assert (await frame(consumer)).did == bob.did
            assert json.loads((tmp_path / "scrubbing").read_text()) == []
            log = b"".join(path.read_bytes() for path in (tmp_path / "log").glob("evts-*"))
            assert ann.handle.encode() not in log
            assert bob.handle.encode() in log

    run(test())


def test_a_disk_that_fails_stops_the_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "no disk")

    async def test() -> None:
        async with Network(hosts=1, accounts=1) as network, serving(tmp_path, network) as served:
            await eventually(lambda: served.relay.parts.ledger.total.accepted == len(network.honest))
            head = served.relay.parts.reader.head_seq
            async with served.subscribe() as consumer:
                await served.wait_for_listeners(1)
                monkeypatch.setattr(os, "fdatasync", fail)
                network.commit()
                with pytest.raises(StateError, match="cannot be written: no disk"):
                    await asyncio.wait_for(asyncio.shield(served.relay.failed), 10)
                assert served.relay.parts.reader.head_seq == head
                await consumer.close()
            monkeypatch.undo()

    run(test())


def test_nothing_is_heard_before_it_is_durable(tmp_path: Path) -> None:
    async def test() -> None:
        repo = Repository("alice", "pds.example")
        async with serving(tmp_path) as served, served.subscribe() as consumer:
            await served.wait_for_listeners(1)
            waiting = asyncio.create_task(served.feed(repo.commit([create(f"{POST}/1", {})], seq=1, now_us=NOW_US)))
            got = await frame(consumer)
            log = b"".join(path.read_bytes() for path in (tmp_path / "log").glob("evts-*"))
            assert got.raw in log
            assert await waiting == [got.seq]

    run(test())


class Killable:
    """A relay in a process of its own, on a port that stays."""

    def __init__(self, directory: Path, network: Network) -> None:
        self._settings = RelaySettings(
            directory, port=0, crawl=tuple(network.hostnames), options=network.options(save_cursors_s=0.05)
        )
        self._process: Process | None = None
        self.url = ""

    async def start(self) -> None:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headgate.relay", stdin=PIPE, stdout=PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(self._settings, enc_hook=str) + b"\n")
        said: dict[str, Any] = {}
        while "ready" not in said:
            said = json.loads(await process.stdout.readline())
        self._settings = replace(self._settings, port=said["ready"]["port"])
        self.url = said["ready"]["url"]

    async def end(self, number: int) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            os.kill(self._process.pid, number)
        await self._process.communicate()
        return self._process.returncode or 0


@asynccontextmanager
async def killable(directory: Path, network: Network) -> AsyncIterator[Killable]:
    relay = Killable(directory, network)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.end(signal.SIGKILL)


class Following:
    """A consumer that goes on where it was, whatever happens to the relay."""

    def __init__(self, relay: Killable) -> None:
        self._relay = relay
        self.messages: dict[int, bytes] = {}

    async def until(self, count: int) -> None:
        await eventually(lambda: len(self.messages) > count)

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except (OSError, ConnectionClosed, EOFError):
                await asyncio.sleep(0.05)

    async def _follow(self) -> None:
        last = max(self.messages, default=0)
        address = self._relay.url.replace("http", "ws", 1)
        async with connect(
            f"{address}/xrpc/com.atproto.sync.subscribeRepos?cursor={last}", max_size=None, proxy=None
        ) as connection:
            async for message in connection:
                assert isinstance(message, bytes)
                got = read_frame(message)
                assert got.seq, got.body  # no error, no word of anything lost
                # The number that was seen last comes again; it must be the same event.
                assert self.messages.setdefault(got.seq, message) == message
                assert got.seq == max(self.messages)


def test_a_killed_relay_gives_no_number_twice_and_consumers_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=6, seed=5) as network, killable(tmp_path, network) as relay:
            consumer = Following(relay)
            following = asyncio.create_task(consumer.run())
            for round_ in range(3):
                reached = len(consumer.messages)
                writing = asyncio.create_task(_write(network, 60))
                await consumer.until(reached + 10)
                if round_ < 2:
                    await relay.end(signal.SIGKILL)  # in the middle of it
                    await relay.start()
                await writing
            hosts = {host.name: host for host in network.hosts}
            wanted = {_bare(hosts[told.host].frame(told.seq)) for told in network.honest}
            await eventually(lambda: wanted <= set(map(_bare, consumer.messages.values())))
            assert not following.done(), following.exception()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            got = [read_frame(message) for message in consumer.messages.values()]
            assert {_bare(message) for message in consumer.messages.values()} == wanted
            assert {each.kind for each in got} == {Kind.COMMIT, Kind.IDENTITY, Kind.ACCOUNT}
            assert len(consumer.messages) == len(wanted)  # nothing came twice, under whatever number

    run(test())


async def _write(network: Network, count: int) -> None:
    for number in range(count):
        network.commit()
        if number % 5 == 0:
            repo = network.repos[number % len(network.repos)]
            network.account(repo, active=False, status="deactivated")
            network.account(repo)
            network.identity(repo)
        await asyncio.sleep(0.002)


def _bare(message: bytes) -> bytes:
    return resequence(read_frame(message), 1)
