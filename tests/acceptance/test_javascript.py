"""The JavaScript consumer against real NATS, and a bridge that is played by the test, by the contract in snapshots.md.

Every payload goes out in another way: as it is, compressed, compressed with a dictionary, and in parts.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import KeyValueConfig, StreamConfig

from headgate.embedded import Stack
from headgate.wire.compress import Dictionary
from headgate.wire.compress.frames import Compressor
from headgate.wire.compress.training import train

pytestmark = pytest.mark.timeout(120)

EXAMPLE = Path(__file__).parents[2] / "examples" / "javascript"
ENCODERS: dict[str, Callable[[Any], bytes]] = {"msgpack": msgspec.msgpack.encode, "json": msgspec.json.encode}

Row = dict[str, Any]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with its packages installed."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("needs Node.js 20 or newer: node and npm are not on the PATH")
    directory = tmp_path_factory.mktemp("javascript") / "example"
    shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install the packages of the example: {done.stderr[-300:]}")
    return directory


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with Stack(tmp_path / "nats", postgres=False, durable=False) as endpoints:
        assert endpoints.nats_url is not None
        yield endpoints.nats_url


@dataclass
class Bridge:
    """Publishes what a bridge would; `wrap` decides how each payload travels."""

    client: Client
    format: str
    dictionary: Dictionary
    ways: Iterator[str] = field(default_factory=lambda: itertools.cycle(["plain", "zstd", "dictionary", "parts"]))
    used: set[tuple[str, bool]] = field(default_factory=set)  # the way, and whether zstd made it smaller
    checksum: int = 0
    row_count: int = 0
    batch_count: int = 0

    @classmethod
    async def start(cls, client: Client, format_: str) -> Bridge:
        js = client.jetstream()
        await js.add_stream(StreamConfig(name="INIT", subjects=["init.>"]))
        await js.add_stream(StreamConfig(name="CDC", subjects=["cdc.>"]))
        samples = [ENCODERS[format_](event("INSERT", n, row(n), 900 + n)) for n in range(300)]
        dictionary = train(samples)
        assert dictionary is not None
        dictionaries = await js.create_key_value(KeyValueConfig(bucket="dictionaries"))
        await dictionaries.put(dictionary.id, dictionary.data)
        bridge = cls(client, format_, dictionary)
        schemas = await js.create_key_value(KeyValueConfig(bucket="schemas"))
        await schemas.put("public.users", bridge.encode(SHAPE))
        return bridge

    def encode(self, value: object) -> bytes:
        return ENCODERS[self.format](value)

    async def send(self, subject: str, value: object) -> bytes:
        """Publish one payload in the next way; returns the payload itself."""
        payload, way = self.encode(value), next(self.ways)
        size = 250 if way == "parts" else len(payload)
        parts = [payload[start : start + size] for start in range(0, len(payload), size)]
        for number, part in enumerate(parts, 1):
            headers = {"Headgate-Chunk": f"{number}/{len(parts)}"} if way == "parts" else {}
            await self.publish(subject, part, headers, way)
        return payload

    async def publish(self, subject: str, part: bytes, headers: dict[str, str], way: str) -> None:
        dictionary = self.dictionary if way == "dictionary" else None
        sent = part if way == "plain" else Compressor(dictionary=dictionary).compress(part)
        self.used.add((way, sent != part))
        if sent != part:
            headers["Headgate-Encoding"] = "zstd"
            if dictionary:
                headers["Headgate-Dictionary"] = dictionary.id
        await self.client.jetstream().publish(subject, sent, headers=headers)

    async def send_chunk(self, snapshot_id: str, chunk: int, rows: list[Row]) -> None:
        about = {"table": "users", "schema": "public", "operation": "snapshot", "snapshot_id": snapshot_id}
        subject = f"init.snap.users.{snapshot_id}.{chunk}"
        payload = await self.send(subject, {**about, "chunk": chunk, "lsn": "0/500", "data": rows})
        self.checksum += int.from_bytes(hashlib.sha256(payload).digest()[:8], "big")
        self.row_count += len(rows)
        self.batch_count += 1

    async def send_end(self, snapshot_id: str, **changes: object) -> None:
        about = {"table": "users", "schema": "public", "snapshot_id": snapshot_id, "operation": "snapshot_end"}
        place = {"method": "export", "lsn": "0/500", "cdc_stream": "CDC", "cdc_sequence": 0, "replaces": []}
        checksum = f"{self.checksum % 2**64:016x}"
        counts = {"row_count": self.row_count, "batch_count": self.batch_count, "checksum": checksum}
        await self.send("init.meta.users", {**about, **place, **counts, **changes})

    async def change(self, *arguments: Any, **changes: Any) -> None:
        value = event(*arguments, **changes)
        await self.send(value["subject"], value)


SHAPE = {
    "schema": "public", "table": "users", "relation_id": 1, "version": "0123456789abcdef", "lsn": "",
    "replica_identity": "default", "primary_key": ["id"], "key": ["id"], "columns": [],
}  # fmt: skip


def row(number: int, **changes: Any) -> Row:
    return {"id": number, "name": f"user{number}@example.com", "notes": [number, None], "big": "x" * 60, **changes}


def event(
    operation: str, lsn: int, data: Row, xid: int, old: Row | None = None, table: str = "users"
) -> dict[str, Any]:
    about = {"schema": "public", "table": table, "operation": operation, "relation_id": 1}
    place = {"subject": f"cdc.public.{table}.{operation.lower()}", "commit_lsn": f"0/{lsn:X}", "xid": xid}
    return {**about, **place, "lsn": f"0/{lsn:X}", "ordinal": 0, "data": data, **({"old": old} if old else {})}


async def answered(bridge: Bridge, answer: dict[str, Any], snapshot: Callable[[], Awaitable[None]]) -> None:
    """Answer the next request, then make the snapshot."""

    async def reply(message: Msg) -> None:
        await message.respond(json.dumps(answer).encode())
        await snapshot()

    await bridge.client.subscribe("snapshot.request.users", cb=reply)
    await bridge.client.flush()


ACCEPTED = {
    "accepted": True, "snapshot_id": "s1", "schema": "public", "table": "users", "method": "export", "shared": False,
    "stream": "INIT", "subject": "init.snap.users.s1", "meta_subject": "init.meta.users",
}  # fmt: skip


async def consume(example: Path, url: str, until: int) -> tuple[int, str, str]:
    command = ["consumer.mjs", "--server", url, "--table", "users", "--until-sequence", str(until), "--json"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("node", *command, cwd=example, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def run(url: str, format_: str, play: Callable[[Bridge], Awaitable[None]]) -> None:
    async def session() -> None:
        client = await nats.connect(url)
        try:
            await play(await Bridge.start(client, format_))
        finally:
            await client.close()

    asyncio.run(session())


@pytest.mark.parametrize("format_", ["msgpack", "json"])
@pytest.mark.parametrize("method", ["export", "filter"])
def test_snapshot_and_stream_make_the_table(example: Path, url: str, format_: str, method: str) -> None:
    epoch = 3 << 32
    rules: dict[str, dict[str, Any]] = {
        "export": {"method": "export", "lsn": "0/500"},
        "filter": {"method": "filter", "xmin": epoch + 100, "xmax": epoch + 200, "xip": [epoch + 150]},
    }

    async def play(bridge: Bridge) -> None:
        async def snapshot() -> None:
            await bridge.send_chunk("other", 1, [row(99)])
            bridge.checksum = bridge.row_count = bridge.batch_count = 0
            for chunk in range(5):
                await bridge.send_chunk("s1", 7 * chunk, [row(n) for n in range(10 * chunk, 10 * chunk + 10)])
            await bridge.send_end("s1", cdc_sequence=1, **rules[method])

        # Before the snapshot's point: whatever these say is in the rows already, or is old.
        await bridge.change("INSERT", 0x100, row(77), 50)
        await bridge.change("INSERT", 0x4FF, row(78), 99)
        await bridge.change("DELETE", 0x4FF, {"id": 0}, 160)
        await bridge.change("DELETE", 0x4FF, {"id": 5}, 2**32 - 5)  # of the epoch before
        # The snapshot did not see these: from its point on, or running at the time, or later.
        await bridge.change("INSERT", 0x500, row(100, name="größer"), 150)
        await bridge.change("UPDATE", 0x600, {"id": 1, "name": "changed", "notes": None}, 200)  # `big` was not sent
        await bridge.change("UPDATE", 0x700, row(200), 2**31, old={"id": 2})
        await bridge.change("DELETE", 0x800, {"id": 3}, 201)
        await bridge.change("INSERT", 0x900, row(4, name="stranger"), 202, table="strangers")
        until = (await bridge.client.jetstream().stream_info("CDC")).state.last_seq
        await bridge.change("INSERT", 0xA00, row(300), 203)  # behind the end
        await answered(bridge, ACCEPTED, snapshot)
        code, out, err = await consume(example, url, until)
        assert (code, err) == (0, "")
        rows = {found["id"]: found for found in json.loads(out)["rows"]}
        expected = {n: row(n) for n in range(50) if n not in (2, 3)} | {100: row(100, name="größer"), 200: row(200)}
        expected[1] = row(1, name="changed", notes=None)
        assert rows == expected
        assert bridge.used >= {("plain", False), ("zstd", True), ("dictionary", True), ("parts", True)}

    run(url, format_, play)


def test_truncate_large_numbers_bytes_and_a_new_key(example: Path, url: str) -> None:
    async def play(bridge: Bridge) -> None:
        async def snapshot() -> None:
            await bridge.send_chunk("s1", 0, [row(1), row(2)])
            await bridge.send_end("s1")

        await bridge.change("TRUNCATE", 0x600, {"cascade": False, "restart_identity": False}, 1)
        for number in (2**62, 2**62 + 1):
            await bridge.change("INSERT", 0x700, row(number, notes=b"\x00\xff"), 2)
        await bridge.change("SCHEMA", 0x800, {**SHAPE, "primary_key": ["name"], "key": ["name"]}, 3)
        await bridge.change("DELETE", 0x900, {"name": row(2**62)["name"]}, 4)
        until = (await bridge.client.jetstream().stream_info("CDC")).state.last_seq
        await answered(bridge, ACCEPTED, snapshot)
        code, out, err = await consume(example, url, until)
        assert (code, err) == (0, "")
        assert json.loads(out)["rows"] == [{**row(2**62 + 1), "id": str(2**62 + 1), "notes": "AP8="}]

    run(url, "msgpack", play)


def test_a_snapshot_that_stands_for_another(example: Path, url: str) -> None:
    async def play(bridge: Bridge) -> None:
        async def snapshot() -> None:
            await bridge.send_chunk("s1", 0, [row(1)])
            bridge.checksum = bridge.row_count = bridge.batch_count = 0
            await bridge.send_chunk("s2", 0, [row(2)])
            await bridge.send_end("s2", replaces=["s1"])

        await answered(bridge, ACCEPTED, snapshot)
        code, out, err = await consume(example, url, 0)
        assert (code, err) == (0, "")
        assert json.loads(out) == {"snapshot_id": "s2", "rows": [row(2)]}

    run(url, "msgpack", play)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ({"batch_count": 3}, "batch_count is 2, not 3"),
        ({"row_count": 5}, "row_count is 2, not 5"),
        ({"checksum": "0" * 16}, "checksum"),
        ({"operation": "snapshot_failed", "error": {"message": "disk full"}}, "disk full"),
    ],
)
def test_a_snapshot_that_is_not_whole_is_refused(example: Path, url: str, end: Row, error: str) -> None:
    async def play(bridge: Bridge) -> None:
        async def snapshot() -> None:
            await bridge.send_chunk("s1", 0, [row(1)])
            await bridge.send_chunk("s1", 1, [row(2)])
            await bridge.send_end("s1", **end)

        await answered(bridge, ACCEPTED, snapshot)
        code, out, err = await consume(example, url, 0)
        assert (code, out) == (1, "")
        assert error in err

    run(url, "msgpack", play)


def test_a_refusal_is_shown(example: Path, url: str) -> None:
    refusal = {"kind": "config", "message": "the publication shop has no table users", "remedy": "..."}

    async def nothing() -> None:
        return None

    async def play(bridge: Bridge) -> None:
        await answered(bridge, {"accepted": False, "error": refusal}, nothing)
        code, _, err = await consume(example, url, 0)
        assert (code, err) == (1, "error: no snapshot: the publication shop has no table users\n")

    run(url, "msgpack", play)
