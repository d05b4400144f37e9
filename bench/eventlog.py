"""The event log: durable appends, replay, and fan-out, each beside the same bytes through a bare file or socket.

CPU is that of the serving process alone; the consumers are threads of another one that only receive.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from bench.harness import Bench
from headgate.eventlog import Entry, EventLog, LogOptions, LogReader, LogWriter
from headgate.eventlog.doors import Message, WebSocketFraming
from headgate.eventlog.fanout import FanOut, FanOutOptions
from headgate.eventlog.records import Record
from headgate.eventlog.topics import TopicDoor
from headgate.runtime.listening import listen

_SIZE = 5000
_CONSUMERS = 50
_GROUP = 100
_OPTIONS = LogOptions(max_age_s=0)
_HANDSHAKE = (
    b"GET /subscribe HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
# Receives on many sockets and throws away; ends with the connections.
_SINK = """
import selectors, socket, sys
port, count, hello = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
waiting, buffer = selectors.DefaultSelector(), bytearray(1 << 20)
for _ in range(count):
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(hello)
    waiting.register(client, selectors.EVENT_READ)
while waiting.get_map():
    for key, _ in waiting.select():
        if not key.fileobj.recv_into(buffer):
            waiting.unregister(key.fileobj)
"""


class _PlainDoor(TopicDoor):
    """Records as they are, as the relay's door sends them."""

    is_text = False

    def messages(self, record: Record) -> list[Message]:
        return [Message(None, record.payload)]


def measure(bench: Bench) -> None:
    events = 10_000 if bench.quick else 50_000
    _append(bench, events)
    _replay(bench, bench.directory / "sync")
    for frames in (1, 16, 32):
        _fan_out(bench, frames, 100 if bench.quick else 400)


def _append(bench: Bench, events: int) -> None:
    payload = os.urandom(_SIZE)
    plain = _seconds(lambda: _plain_file(bench.directory / "plain", payload, events))
    with LogWriter(bench.directory / "sync", _OPTIONS) as writer:
        entries = [Entry(1, 1, payload)] * _GROUP
        ours = _seconds(lambda: [writer.append_all(entries) for _ in range(events // _GROUP)])
    grouped = _seconds(lambda: uvloop.run(_append_async(bench.directory / "async", payload, events)))
    bench.figure("append_plain_file_events_per_s", events / plain)
    bench.figure("append_writer_events_per_s", events / ours)
    bench.figure("append_async_events_per_s", events / grouped)
    bench.check("append_writer_vs_plain_file", plain / ours, 0.7, "higher")


def _plain_file(path: Path, payload: bytes, events: int) -> None:
    """The same bytes, synced as often."""
    data = b"".join([bytes(28) + payload for _ in range(_GROUP)])
    with path.open("wb", buffering=0) as file:
        for _ in range(events // _GROUP):
            file.write(data)
            os.fdatasync(file.fileno())


async def _append_async(path: Path, payload: bytes, events: int) -> None:
    async with EventLog.open(path, _OPTIONS) as log:

        async def work() -> None:
            for _ in range(events // 200):
                await log.append(1, 1, lambda seq: payload)

        await asyncio.gather(*(work() for _ in range(200)))


def _replay(bench: Bench, path: Path) -> None:
    size = sum(file.stat().st_size for file in path.glob("evts-*"))
    plain = min(_seconds(lambda: sum(map(_plain_read, path.glob("evts-*")))) for _ in range(3))
    with LogReader(path) as reader:
        ours = min(_seconds(lambda: sum(len(records) for records in reader.read(0))) for _ in range(3))
    bench.figure("replay_plain_file_mb_per_s", size / plain / 1e6)
    bench.figure("replay_mb_per_s", size / ours / 1e6)
    bench.check("replay_vs_plain_file", plain / ours, 0.3, "higher")


def _plain_read(path: Path) -> int:
    with path.open("rb", buffering=0) as file:
        return sum(len(chunk) for chunk in iter(lambda: file.read(1 << 20), b""))


def _fan_out(bench: Bench, frames: int, ticks: int) -> None:
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(3):
        ours.append(uvloop.run(_served(bench.directory / f"fan-out-{frames}-{len(ours)}", frames, ticks)))
        bare.append(_bare(frames, ticks))
    deliveries = frames * ticks * _CONSUMERS
    best, floor = min(ours), min(bare)
    bench.figure(f"fan_out_{frames}_per_write_us_cpu_per_delivery", best / deliveries * 1e6)
    bench.figure(f"fan_out_{frames}_per_write_deliveries_per_s_of_cpu", deliveries / best)
    bench.figure(f"bare_socket_{frames}_per_write_us_cpu_per_delivery", floor / deliveries * 1e6)
    if frames >= 16:
        bench.check(f"fan_out_{frames}_per_write_us_cpu", best / deliveries * 1e6, 1.8, "lower")


async def _served(path: Path, frames: int, ticks: int) -> float:
    """CPU seconds of the server for so many ticks, with what is new in each; appending is not counted."""
    payload = os.urandom(_SIZE)
    with LogWriter(path, _OPTIONS) as writer, LogReader(path) as reader:
        options = FanOutOptions(tick_s=3600, chunk=1 << 20, write=4 << 20)
        house = FanOut(reader, {"/subscribe": _PlainDoor()}, None, options)
        listener = listen("127.0.0.1", 0, backlog=100, where="port")
        await house.start(listener)
        sink = _sink(listener.getsockname()[1], _HANDSHAKE)
        while house.stats()["listeners"] < _CONSUMERS:  # noqa: ASYNC110 - before the measurement
            await asyncio.sleep(0.01)
        spent = 0.0
        for _ in range(ticks):
            writer.append_all([Entry(1, 1, payload)] * frames)
            began = time.process_time()
            house._publish(house.tail.poll(options.chunk))
            await asyncio.sleep(0)
            while any(each.transport.get_write_buffer_size() for each in house._connections):  # noqa: ASYNC110
                await asyncio.sleep(0)
            spent += time.process_time() - began
        assert house.too_slow == 0
        await house.close()
        sink.wait()
    return spent


def _bare(frames: int, ticks: int) -> float:
    """CPU seconds of a loop that only writes the same bytes to the same number of sockets."""
    frame = WebSocketFraming(2).event(1, os.urandom(_SIZE))
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        sink = _sink(listener.getsockname()[1], b"")
        clients = [listener.accept()[0] for _ in range(_CONSUMERS)]
        data = frame * frames
        began = time.process_time()
        for _ in range(ticks):
            for client in clients:
                client.sendall(data)
        spent = time.process_time() - began
        for client in clients:
            client.close()
    sink.wait()
    return spent


def _sink(port: int, hello: bytes) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _SINK, str(port), str(_CONSUMERS), hello.hex()])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
