"""Frames with bytes changed by chance: whatever they say, the relay goes on, and its books balance."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from headgate.demo.network.host import SimulatedHost
from headgate.demo.network.repository import Repository
from headgate.demo.network.simulate import Network
from headgate.relay.options import HoldLimits
from headgate.wire.atproto import MAX_FRAME_BYTES, AtprotoError, Kind, read_frame, write_frame
from tests.integration.relay.relay_follow import Sink, eventually, expected, following, run


def damaged(message: bytes, chance: random.Random) -> bytes:
    """The message with some bytes changed, cut out or doubled, and its seq as good as its host's word."""
    raw = bytearray(message)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(raw))
        match chance.randrange(4):
            case 0:
                raw[place] = chance.randrange(256)
            case 1:
                raw[place] ^= 1 << chance.randrange(8)
            case 2:
                del raw[place : place + chance.randint(1, 40)]
            case _:
                raw[place:place] = raw[place : place + chance.randint(1, 40)]
    return bytes(raw) or b"\x00"


@pytest.mark.parametrize("workers", [0, 1])
def test_damaged_frames_are_dropped_one_by_one(tmp_path: Path, workers: int) -> None:
    async def test() -> None:
        sink, chance = Sink(), random.Random(5)
        async with Network(hosts=1, accounts=3, seed=2) as network:
            host = network.hosts[0]
            async with following(network, tmp_path, sink, network.options(workers=workers)) as ingest:
                await sink.until(*network.honest)
                host.hold()
                for _ in range(20):
                    network.commit()
                readable = 0
                for message in [damaged(host.frames[-1 - n % 20], chance) for n in range(400)]:
                    try:
                        frame = read_frame(message)
                    except AtprotoError:
                        continue
                    readable += 1
                    ingest.ledger.received(host.name)
                    await ingest.intake.submit(host.name, frame, message)
                await ingest.intake.settled()
                assert readable > 50
                assert not ingest.intake.failed.done()
                assert ingest.ledger.total.balanced
                assert len(sink.events) < len(network.honest) + 10  # a change of the time, say, is no lie

    run(test())


class InPieces(SimulatedHost):
    """Sends every message in fragments, some of them empty, and text between them that means nothing."""

    async def _send_from(self, connection: ServerConnection, position: int) -> None:
        for frame in self.frames[position:]:
            await connection.send([frame[:7], b"", frame[7:100], frame[100:]])
            await connection.send("no event")
            await connection.ping()
        await connection.wait_closed()


def test_messages_in_fragments_are_put_together(tmp_path: Path) -> None:
    async def test() -> None:
        sink, network = Sink(), Network(hosts=0, accounts=0)
        network.hosts.append(InPieces())
        async with network:
            network.add_account("alice", network.hosts[0])
            for _ in range(5):
                network.commit()
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(*network.honest)
                assert sink.by_did() == expected(network)
                assert ingest.ledger.total.dropped.total() == 0

    run(test())


class TooMuch(SimulatedHost):
    """Its second connection gets more than a frame may have; the first nothing but fragments without an end."""

    async def _send_from(self, connection: ServerConnection, position: int) -> None:
        if len(self.cursors) == 1:
            await connection.send(b"\xa2" for _ in range(11_000))
        elif len(self.cursors) == 2:
            await connection.send(bytes(MAX_FRAME_BYTES + 1))
        else:
            await super()._send_from(connection, position)


def test_a_host_that_sends_too_much_is_left_and_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        sink, network = Sink(), Network(hosts=0, accounts=0)
        host = TooMuch()
        network.hosts.append(host)
        async with network:
            network.add_account("alice", host)
            async with following(network, tmp_path, sink):
                await sink.until(*network.honest)
                assert len(host.cursors) == 3

    run(test())


@pytest.mark.parametrize("pieces", [1, 11_000])
def test_what_cannot_be_read_at_all_does_not_stop_a_host_for_ever(tmp_path: Path, pieces: int) -> None:
    class Blocked(SimulatedHost):
        async def _send_from(self, connection: ServerConnection, position: int) -> None:
            if position < 4:
                for frame in self.frames[position:3]:
                    await connection.send(frame)
                size = (MAX_FRAME_BYTES + pieces) // pieces
                await connection.send(bytes(size) for _ in range(pieces))
            else:
                await super()._send_from(connection, position)

    async def test() -> None:
        sink, network = Sink(), Network(hosts=0, accounts=0)
        host = Blocked()
        network.hosts.append(host)
        async with network:
            repo = network.add_account("alice", host)
            first = list(network.honest)
            missed = network.commit(repo)
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(*first)
                await eventually(lambda: host.cursors[-1] is None and ingest.hosts.connected(host.name))
                told = network.commit(repo)
                await sink.until(told)
                assert (missed.host, missed.seq) not in sink.numbers
                assert sink.events[-1][0].frame.kind is Kind.SYNC  # consumers learn that they missed something
                assert host.cursors == ["0", "3", "3", None]

    run(test())


def test_events_that_wait_take_little_more_memory_than_their_bytes(tmp_path: Path) -> None:
    """An envelope of empty maps takes sixty times its bytes when it is decoded."""

    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=1) as network:
            [repo], [host] = network.repos, network.hostnames
            network.directory.failing = 503
            body = read_frame(repo.commit([], seq=1, now_us=1_700_000_000_000_000)).body
            op: dict[str, Any] = {"action": "delete", "path": "a.b.c/x", "cid": None} | {
                f"{n:x}": {} for n in range(12)
            }
            options = network.options(hold=HoldLimits(host_bytes=4 << 20))
            async with following(network, tmp_path, sink, options, crawl=False) as ingest:
                tracemalloc.start()
                try:
                    for seq in range(1, 201):
                        message = write_frame(Kind.COMMIT, body | {"seq": seq, "ops": [op] * 200})
                        ingest.ledger.received(host)
                        await ingest.intake.submit(host, read_frame(message), message)
                    await eventually(lambda: ingest.ledger.host(host).held == 200)
                    held, _ = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
                assert len(message) * 200 < held < 2 * (4 << 20)

    run(test())


@pytest.mark.parametrize("field", ["later", "ops", "blobs"])
def test_an_envelope_of_many_values_is_refused_before_they_are_made(field: str) -> None:
    """Half a million empty maps were 30 MB and 35 ms of the event loop."""
    repo = Repository("alice", "h.test")
    body = read_frame(repo.commit([], seq=1, now_us=1_700_000_000_000_000)).body
    message = write_frame(Kind.COMMIT, body | {field: [{}] * 480_000})
    tracemalloc.start()
    try:
        with pytest.raises(AtprotoError):
            read_frame(message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20
