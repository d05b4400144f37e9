"""The doors of a relay, over real sockets: every rule of cursors, filters, and what errors look like."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard
from typer.testing import CliRunner
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from headgate.cli.relay import relay
from headgate.demo.network.repository import Repository, create, delete
from headgate.eventlog import LogOptions
from headgate.eventlog.fanout import FanOutOptions
from headgate.model import ConfigError, StateError
from headgate.relay.dictionary import DICTIONARY, train_dictionary
from headgate.relay.streams import open_streams
from headgate.wire.atproto import Kind, error_frame, read_event, read_frame
from tests.integration.relay.relay_follow import run
from tests.integration.relay.relay_serving import NOW_US, POST, Served, commits, frame, frames, kinds, rest, serving

LIKE = "app.bsky.feed.like"
FOLLOW = "app.bsky.graph.follow"


@pytest.mark.parametrize(
    ("query", "first", "told"),
    [
        ("?cursor=7", 7, False),
        ("?cursor=5", 5, False),
        ("?cursor=2", 5, True),
        ("?cursor=0", 5, False),
        ("?cursor=-5", 5, False),
    ],
    ids=["in-window", "oldest", "too-old", "zero", "negative"],
)
def test_a_cursor_is_where_it_begins(tmp_path: Path, query: str, first: int, told: bool) -> None:
    async def test() -> None:
        async with serving(tmp_path, log=LogOptions(segment_events=4)) as served:
            await served.feed(*commits(10))
            (tmp_path / "log" / "evts-0").unlink()
            async with served.subscribe(query) as consumer:
                if told:
                    note = await frame(consumer)
                    assert (note.kind, note.body["name"]) == (Kind.INFO, "OutdatedCursor")
                assert [each.seq for each in await frames(consumer, 11 - first)] == list(range(first, 11))
                assert await served.feed(*commits(1, "bob")) == [11]
                assert (await frame(consumer)).seq == 11

    run(test())


def test_without_a_cursor_only_what_is_new_comes(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*commits(3))
            await served.wait_for_listeners(0)
            async with served.subscribe() as consumer:
                await served.wait_for_listeners(1)
                repo = Repository("bob", "pds.example")
                sent = repo.identity(seq=2**40, now_us=NOW_US)
                await served.feed(sent)
                got = await frame(consumer)
                assert read_event(got) == read_event(read_frame(repo.identity(seq=4, now_us=NOW_US)))

    run(test())


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("?cursor=4", "FutureCursor"),
        ("?cursor=99999999999999999999", "FutureCursor"),
        ("?cursor=abc", "InvalidRequest"),
    ],
    ids=["next", "huge", "no-number"],
)
def test_a_cursor_that_cannot_be_had_is_an_error_and_the_end(tmp_path: Path, query: str, error: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*commits(3))
            async with served.subscribe(query) as consumer:
                last = await consumer.recv()
                assert isinstance(last, bytes)
                assert read_frame(last).kind is Kind.ERROR
                assert read_frame(last).body["error"] == error
                if error == "FutureCursor":
                    assert last == error_frame("FutureCursor", "Cursor in the future.")
                with pytest.raises(ConnectionClosed) as closed:
                    await consumer.recv()
                assert closed.value.rcvd is not None
                assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, error)

    run(test())


def test_who_does_not_read_is_told_so_and_cut_off(tmp_path: Path) -> None:
    async def test() -> None:
        options = FanOutOptions(any_origin=True, buffer=200_000, write=50_000)
        repo = Repository("alice", "pds.example")
        async with serving(tmp_path, fanout=options) as served, served.subscribe(max_queue=1) as consumer:
            await served.wait_for_listeners(1)
            fanout = served.relay.front.fanout
            number = 0
            while not fanout.too_slow:
                number += 1
                large = create(f"{POST}/{number}", {"text": "x" * 400_000})
                await served.feed(repo.commit([large], seq=number, now_us=NOW_US + number))
                await asyncio.sleep(0)
            found = await rest(consumer)
            assert found[-1].kind is Kind.ERROR
            assert found[-1].body["error"] == "ConsumerTooSlow"
            assert [each.seq for each in found[:-1]] == list(range(1, len(found)))

    run(test())


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /xrpc/com.atproto.sync.subscribeRepos HTTP/1.1", b"426"),
        (b"POST /xrpc/com.atproto.sync.subscribeRepos HTTP/1.1", b"405"),
        (b"GET /nothing HTTP/1.1", b"404"),
        (b"NONSENSE", b"400"),
    ],
    ids=["no-upgrade", "post", "elsewhere", "nonsense"],
)
def test_other_requests_get_an_answer_of_http(tmp_path: Path, request_line: bytes, status: bytes) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            port = int(served.relay.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_line[:5])
            await writer.drain()
            writer.write(request_line[5:] + b"\r\nHost: localhost\r\n\r\n")
            assert (await reader.readline()).split()[1] == status
            writer.close()

    run(test())


def test_a_first_line_without_end_is_not_waited_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            port = int(served.relay.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /" + b"x" * 20_000)
            with suppress(ConnectionError):
                assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
            assert (await served.get("/xrpc/_health"))["seq"] == 0

    run(test())


def test_another_process_can_open_the_same_doors(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*commits(3))
            async with open_streams(tmp_path, "127.0.0.1", 0, FanOutOptions(any_origin=True)) as url:
                address = url.replace("http", "ws", 1)
                async with connect(f"{address}/xrpc/com.atproto.sync.subscribeRepos?cursor=2", proxy=None) as consumer:
                    await served.feed(*commits(1, "bob"))
                    assert [each.seq for each in await frames(consumer, 3)] == [2, 3, 4]

    run(test())


def test_without_a_log_there_is_nothing_to_serve(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(StateError, match="there is no log of a relay"):
            async with open_streams(tmp_path, "127.0.0.1", 0, FanOutOptions()):
                pass

    run(test())


def stories() -> list[bytes]:
    """Two accounts: commits with several ops, a deletion, and events that are no commits."""
    ann, bob = Repository("ann", "pds.example"), Repository("bob", "pds.example")
    return [
        ann.identity(seq=1, now_us=NOW_US),
        ann.commit([create(f"{POST}/1", {"text": "hi"}), create(f"{LIKE}/1", {})], seq=2, now_us=NOW_US + 1),
        bob.commit([create(f"{FOLLOW}/1", {"subject": ann.did})], seq=3, now_us=NOW_US + 2),
        ann.sync(seq=4, now_us=NOW_US + 3),
        ann.commit([delete(f"{LIKE}/1")], seq=5, now_us=NOW_US + 4),
        bob.account(seq=6, now_us=NOW_US + 5, active=False, status="deactivated"),
    ]


ANN, BOB = (Repository(name, "pds.example").did for name in ("ann", "bob"))
EVERYTHING = ["identity", f"create {POST}", f"create {LIKE}", f"create {FOLLOW}", f"delete {LIKE}", "account"]


def named(event: dict[str, Any]) -> str:
    commit = event.get("commit")
    return event["kind"] if commit is None else f"{commit['operation']} {commit['collection']}"


async def texts(consumer: ClientConnection, count: int) -> list[dict[str, Any]]:
    return [json.loads(await asyncio.wait_for(consumer.recv(), 10)) for _ in range(count)]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", EVERYTHING),
        (f"&wantedCollections={POST}", ["identity", f"create {POST}", "account"]),
        ("&wantedCollections=app.bsky.graph.*", ["identity", f"create {FOLLOW}", "account"]),
        (f"&wantedCollections={POST}&wantedCollections=app.bsky.graph.*", [EVERYTHING[i] for i in (0, 1, 3, 5)]),
        (f"&wantedDids={BOB}", [f"create {FOLLOW}", "account"]),
        (f"&wantedDids={ANN}&wantedCollections={LIKE}", ["identity", f"create {LIKE}", f"delete {LIKE}"]),
        ("&maxMessageSizeBytes=230", ["identity", f"delete {LIKE}", "account"]),
    ],
    ids=["all", "collection", "wildcard", "both", "did", "did-and-collection", "size"],
)
def test_jetstream_gives_what_is_wanted(tmp_path: Path, query: str, wanted: list[str]) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served, served.listen(f"/subscribe?cursor=1{query}") as consumer:
            await served.wait_for_listeners(1)
            await served.feed(*stories())
            assert [named(event) for event in await texts(consumer, len(wanted))] == wanted

    run(test())


def test_jetstream_goes_on_from_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*stories())
            async with served.listen("/subscribe?cursor=0") as consumer:
                events = await texts(consumer, 6)
            assert [named(event) for event in events] == EVERYTHING
            times = [event["time_us"] for event in events]
            assert times == sorted(times)
            assert len(set(times)) == 5  # the ops of a commit share theirs
            async with served.listen(f"/subscribe?cursor={times[3]}") as consumer:
                assert await texts(consumer, 3) == events[3:]
            await served.wait_for_listeners(0)
            async with served.listen(f"/subscribe?cursor={times[-1] + 10**12}") as consumer:  # of the future: live
                await served.wait_for_listeners(1)
                await served.feed(Repository("eve", "pds.example").identity(seq=1, now_us=NOW_US))
                assert (await texts(consumer, 1))[0]["identity"]["seq"] == 7

    run(test())


def test_jetstream_can_be_compressed(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*stories())
            headers = {"Socket-Encoding": "zstd"}
            async with served.listen("/subscribe?cursor=0", additional_headers=headers) as consumer:
                assert isinstance(await consumer.recv(), bytes)
            async with served.listen("/subscribe?compress=true&cursor=0") as consumer:
                packed = [await asyncio.wait_for(consumer.recv(decode=False), 10) for _ in range(6)]
            events = [json.loads(zstandard.ZstdDecompressor().decompress(each)) for each in packed]
            assert [named(event) for event in events] == EVERYTHING
            assert events[4]["commit"] | {"rev": ""} == {
                "rev": "",
                "operation": "delete",
                "collection": LIKE,
                "rkey": "1",
            }

    run(test())


def test_jetstream_is_compressed_by_a_dictionary_that_everybody_can_fetch(tmp_path: Path) -> None:
    async def packed(served: Served) -> list[bytes]:
        async with served.listen("/subscribe?compress=true&cursor=0") as consumer:
            return [await asyncio.wait_for(consumer.recv(decode=False), 10) for _ in range(200)]

    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*commits(200))
            before = await packed(served)
            assert (await served.get("/subscribe/dictionary", 404))["error"] == "NotFound"
        trained = CliRunner().invoke(relay, ["dictionary", "--data-dir", str(tmp_path)], catch_exceptions=False)
        assert trained.exit_code == 0
        async with (
            serving(tmp_path) as served,
            open_streams(tmp_path, "127.0.0.1", 0, FanOutOptions(any_origin=True)) as other,
        ):
            after = await packed(served)
            fetched = [(await served.client.get(f"{url}/subscribe/dictionary")).content for url in ("", other)]
        reader = zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(fetched[0]))
        plain = zstandard.ZstdDecompressor()
        assert fetched[0] == fetched[1]
        assert [reader.decompress(each) for each in after] == [plain.decompress(each) for each in before]
        assert sum(map(len, after)) < 0.7 * sum(map(len, before))
        with pytest.raises(zstandard.ZstdError, match=r"[Dd]ictionary"):
            plain.decompress(after[0])

    run(test())


def test_a_dictionary_that_is_none_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*commits(3))
        with pytest.raises(StateError, match="needs 100 or more"):
            train_dictionary(tmp_path)
        (tmp_path / DICTIONARY).write_bytes(b"none")
        with pytest.raises(ConfigError, match="no dictionary of zstd"):
            async with serving(tmp_path):
                pass

    run(test())


@pytest.mark.parametrize(
    "query",
    ["wantedCollections=nonsense", "wantedCollections=*.*", "wantedDids=bob", "cursor=soon", "maxMessageSizeBytes=x"],
)
def test_jetstream_refuses_what_it_cannot_read(tmp_path: Path, query: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served, served.listen(f"/subscribe?{query}") as consumer:
            assert json.loads(await consumer.recv())["error"] == "InvalidRequest"

    run(test())


def options_update(**payload: Any) -> str:
    return json.dumps({"type": "options_update", "payload": payload})


async def applied(consumer: ClientConnection) -> None:
    """Messages are read in order: when a ping behind one is answered, it has been heard."""
    await asyncio.wait_for(await consumer.ping(), 10)


def test_jetstream_listeners_may_change_what_they_want(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served, served.listen(f"/subscribe?wantedDids={BOB}") as consumer:
            await served.wait_for_listeners(1)
            many = [f"did:plc:{number:024d}".replace("0", "a").replace("1", "b") for number in range(9_999)]
            many = [did.translate(str.maketrans("89", "xy")) for did in many]
            await consumer.send(options_update(wantedDids=[*many, ANN], wantedCollections=[LIKE]))
            await applied(consumer)
            await served.feed(*stories())
            wanted = ["identity", f"create {LIKE}", f"delete {LIKE}"]
            assert [named(event) for event in await texts(consumer, 3)] == wanted
            await consumer.send([options_update()[:9], options_update()[9:]])  # in pieces, and everything again
            await applied(consumer)
            await served.feed(Repository("eve", "pds.example").identity(seq=1, now_us=NOW_US))
            assert [named(event) for event in await texts(consumer, 1)] == ["identity"]

    run(test())


def test_jetstream_waits_for_a_hello(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*stories())
            async with served.listen("/subscribe?requireHello=true&cursor=0") as consumer:
                await applied(consumer)
                assert served.relay.front.fanout.stats()["listeners"] == 0
                await consumer.send(options_update(wantedCollections=[POST]))
                wanted = ["identity", f"create {POST}", "account"]
                assert [named(event) for event in await texts(consumer, 3)] == wanted

    run(test())


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        "[]",
        '{"type": "other", "payload": {}}',
        '{"type": "options_update"}',
        options_update(wantedDids=["bob"]),
        options_update(wantedDids=5),
        options_update(wantedCollections=["app.bsky.fo*"]),
        options_update(maxMessageSizeBytes="x"),
        options_update(wantedDids=[ANN] * 10_001),
        "[" * 100_000,
    ],
    ids=range(10),
)
def test_jetstream_refuses_options_that_it_cannot_read(tmp_path: Path, message: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served, served.listen("/subscribe") as consumer:
            await served.wait_for_listeners(1)
            await consumer.send(message)
            assert json.loads(await consumer.recv())["error"] == "InvalidRequest"
            await served.wait_for_listeners(0)

    run(test())


def test_whoever_changes_its_mind_all_the_time_is_sent_away(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served, served.listen("/subscribe") as consumer:
            with suppress(ConnectionClosed):
                for _ in range(1_000):
                    await consumer.send(options_update(wantedDids=[ANN]))
            assert json.loads(await consumer.recv())["error"] == "InvalidRequest"

    run(test())


def test_frames_keep_every_byte_but_their_number(tmp_path: Path) -> None:
    async def test() -> None:
        sent = stories()
        async with serving(tmp_path) as served, served.subscribe("?cursor=0") as consumer:
            await served.feed(*reversed(sent))
            got = await frames(consumer, len(sent))
            assert [each.seq for each in got] == [1, 2, 3, 4, 5, 6]
            assert kinds(got) == [read_frame(message).kind for message in reversed(sent)]
            assert [each.body | {"seq": 0} for each in got] == [
                read_frame(message).body | {"seq": 0} for message in reversed(sent)
            ]

    run(test())
