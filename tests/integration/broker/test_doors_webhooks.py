"""Webhooks: signed, in order, tried again, put aside; none waits for another, and nothing is lost with a worker."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.types.json import Jsonb

from headgate.broker.http.options import BrokerServerOptions
from headgate.broker.http.posting import retry_after_s
from headgate.wire.webhook import Signing

from .doors import Receiver, fetch, opened, publish, receiving, until

SECRET = "whsec_c2VjcmV0IG9mIGEgdGVzdCE="
BY_TOPIC = "s.params @> jsonb_build_object('topic', e.topic)"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


async def register(
    db: psycopg.AsyncConnection[Any], name: str, url: str, *, topic: str = "t", retries: tuple[float, ...] = (0, 0),
    items: int = 100,
) -> None:  # fmt: skip
    statement = "select register_webhook_v1(%s, %s, %s, %s, %s, %s, %s::float8[], %s)"
    values = [name, BY_TOPIC, Jsonb({"topic": topic}), url, SECRET, Jsonb({"x-from": "test"}), list(retries), items]
    await db.execute(statement, values)


async def wait_for_rows(db: psycopg.AsyncConnection[Any], statement: str) -> list[Any]:
    async def there() -> bool:
        return bool(await fetch(db, statement))

    await until(there)
    return await fetch(db, statement)


def test_events_are_posted_in_order_and_signed(database: str, receiver: Receiver) -> None:
    async def story() -> None:
        async with opened(database, allow_private=True) as (_, db):
            await register(db, "crm", receiver.url.replace("127.0.0.1", "localhost"), items=2)
            async with db.transaction():
                await publish(db, "other", 0)
                await publish(db, "t", {"n": 1}, {"n": 2.50}, "drei")
            first, second = [await receiver.next() for _ in range(2)]
            assert first.payloads + second.payloads == [{"n": 1}, {"n": 2.5}, "drei"]
            ids = [
                str(event_id) for (event_id,) in await fetch(db, "select id from events where topic = 't' order by id")
            ]
            assert [item["id"] for item in first.items + second.items] == ids
            assert {item["topic"] for item in first.items} == {"t"}
            signing = Signing("standard", (SECRET,))
            assert signing.verify(first.headers, first.body, now_s=time.time())
            assert not signing.verify(first.headers, first.body + b" ", now_s=time.time())
            assert first.headers["idempotency-key"] == first.key != second.key
            assert first.headers["x-from"] == "test"
            assert first.headers["content-type"] == "application/json"
            assert first.headers["host"].startswith("localhost:")

    asyncio.run(story())


def test_a_failure_is_tried_again_as_it_was(database: str, receiver: Receiver) -> None:
    answers = iter([500, 200, 302, 200])
    receiver.answer = lambda taken: next(answers, 200)

    async def story() -> None:
        async with opened(database, allow_private=True) as (doors, db):
            await register(db, "crm", receiver.url)
            async with db.transaction():
                await publish(db, "t", 1, 2, 3)
            failed = await receiver.next()
            again = await receiver.next()
            assert again.payloads == [1, 2, 3]
            assert (again.key, again.items) == (failed.key, failed.items)
            await publish(db, "t", 4)
            redirected, after = [await receiver.next() for _ in range(2)]  # to itself, had it been followed
            assert redirected.key == after.key

            async def counted() -> bool:
                return bool(doors.metrics()["webhook_events_delivered_total"] == 4)

            await until(counted)
            assert doors.metrics()["webhook_events_retried_total"] == 4
            assert await fetch(db, "select from dead_letters") == []

    asyncio.run(story())


@pytest.mark.parametrize(("status", "attempts"), [(410, 1), (422, 1), (500, 3), (301, 3)])
def test_what_cannot_be_delivered_is_put_aside(database: str, receiver: Receiver, status: int, attempts: int) -> None:
    receiver.answer = lambda taken: status

    async def story() -> None:
        async with opened(database, allow_private=True) as (_, db):
            await register(db, "crm", receiver.url)
            await publish(db, "t", "poison")
            [(number, tried, error, group)] = await wait_for_rows(
                db, "select id, attempts, error, group_id from dead_letters"
            )
            assert (tried, error, group) == (attempts, f"status {status}", "webhook:crm")
            keys = {(await receiver.next()).key for _ in range(attempts)}
            assert receiver.taken.empty()
            receiver.answer = lambda taken: 204
            await publish(db, "t", "next")  # nothing stands in its way
            assert (await receiver.next()).payloads == ["next"]
            await db.execute("select redrive(array[%s]::bigint[])", [number])
            assert keys == {(await receiver.next()).key}

    asyncio.run(story())


def test_nobody_waits_for_a_slow_one(database: str, receiver: Receiver) -> None:
    go_on = threading.Event()
    receiver.answer = lambda taken: 204 if go_on.wait(10) else 500

    async def story() -> None:
        with receiving() as quick:
            async with opened(database, allow_private=True) as (_, db):
                await register(db, "slow", receiver.url)
                await register(db, "quick", quick.url)
                for number in range(5):
                    await publish(db, "t", number)
                    assert (await quick.next()).payloads == [number]
                go_on.set()
                got: list[int] = []
                while len(got) < 5:
                    got += (await receiver.next()).payloads
                assert got == [0, 1, 2, 3, 4]

    asyncio.run(story())


def test_a_killed_worker_leaves_its_batch_to_the_next(
    database: str, db: psycopg.Connection[Any], receiver: Receiver
) -> None:
    """With the same key, although more has come: whoever had it may tell that it is the same."""
    killed = threading.Event()
    receiver.answer = lambda taken: 204 if killed.wait(20) else 500
    db.execute("update config set value = '300 milliseconds' where key = 'lease'")
    options = BrokerServerOptions(postgres_url=database, port=0, allow_private=True)
    worker = subprocess.Popen(
        [sys.executable, "-m", "headgate.broker.http"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(msgspec.json.encode(options) + b"\n")
        worker.stdin.flush()
        assert b"ready" in worker.stdout.readline()

        async def story() -> None:
            connecting = psycopg.AsyncConnection.connect(database, autocommit=True, options="-c search_path=headgate")
            async with await connecting as other:
                await register(other, "crm", receiver.url)
                async with other.transaction():
                    await publish(other, "t", 1, 2)
                lost = await receiver.next()
                worker.send_signal(signal.SIGKILL)
                worker.wait()
                killed.set()
                async with opened(database, allow_private=True):
                    await publish(other, "t", 3)
                    again = await receiver.next()
                    assert (again.key, again.payloads) == (lost.key, [1, 2])
                    assert (await receiver.next()).payloads == [3]

        asyncio.run(story())


def test_private_addresses_are_refused(database: str, receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with opened(database) as (_, db):
            await register(db, "inside", receiver.url, retries=())
            await register(db, "named", receiver.url.replace("127.0.0.1", "localhost"), retries=())
            await publish(db, "t", 1)
            await wait_for_rows(db, "select from (select count(*) as n from dead_letters) as d where n = 2")
            errors = await fetch(db, "select distinct error from dead_letters")
            assert errors == [("the address is not a public one",)]
            assert receiver.taken.empty()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(story())
    assert "not a public one" in caplog.text
    text = " ".join(str(vars(record)) for record in caplog.records)
    assert SECRET not in text
    assert "t0ken" not in text  # of the address, the host is shown and no more


def test_a_webhook_is_changed_and_goes_on(database: str, receiver: Receiver) -> None:
    receiver.answer = lambda taken: 503

    async def story() -> None:
        with receiving() as other:
            async with opened(database, allow_private=True) as (_, db):
                await register(db, "crm", receiver.url, retries=(3600,))
                await publish(db, "t", "kept")
                await wait_for_rows(db, "select from scheduled")
                await register(db, "crm", other.url, topic="u")  # another condition, and what waits goes with it
                await db.execute("update scheduled set due_at = now()")
                assert (await other.next()).payloads == ["kept"]
                await publish(db, "t", "no more")
                await publish(db, "u", "new")
                assert (await other.next()).payloads == ["new"]
                assert await fetch(db, "select count(*) from subscriptions") == [(1,)]
                await db.execute("update webhooks set enabled = false, updated_at = now()")
                assert await fetch(db, "select remove_webhook_v1('crm'), remove_webhook_v1('crm')") == [(True, False)]
                assert await fetch(db, "select from subscription_groups") == []

    asyncio.run(story())


def test_secrets_are_for_the_owner(db: psycopg.Connection[Any]) -> None:
    db.execute("select register_webhook_v1('crm', 'true', '{}', 'https://crm.example/hook?key=t0ken', %s)", [SECRET])
    shown = db.execute("select w::text from webhook_status as w").fetchall()
    assert "https://crm.example" in shown[0][0]
    assert SECRET not in shown[0][0]
    assert "t0ken" not in shown[0][0]
    db.execute("create role doors_observer; select grant_usage('observer', 'doors_observer')")
    try:
        for role in ("headgate_conditions", "doors_observer"):
            db.execute(f"set role {role}".encode())
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute("select secret from headgate.webhooks")
            db.execute("reset role")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("select subscribe('spy', 'exists (select from webhooks)')")
    finally:
        db.execute("drop owned by doors_observer; drop role doors_observer")


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "https://me:secret@host/x", "https://", "https://host/a b", "https://host/#x"]
)
def test_addresses_that_are_none(shared_db: psycopg.Connection[Any], url: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        shared_db.execute("select register_webhook_v1('bad', 'true', '{}', %s, %s)", [url, SECRET])


def test_options_hide_their_secrets() -> None:
    options = BrokerServerOptions(postgres_url="postgres://me:s3cret@host/x", token="s3cret-token")
    assert "s3cret" not in repr(options)
    assert replace(options, port=1).token == "s3cret-token"


def test_a_receiver_is_left_alone_for_as_long_as_it_asks(database: str, receiver: Receiver) -> None:
    """Retry-After is for all requests: neither the one that was refused nor others come before."""
    answers = iter([429])
    receiver.answer = lambda taken: next(answers, 204)
    receiver.headers = lambda status: {"retry-after": "2"} if status == 429 else {}

    async def story() -> None:
        async with opened(database, allow_private=True) as (_, db):
            await register(db, "crm", receiver.url)
            await publish(db, "t", 1)
            assert (await receiver.next()).payloads == [1]
            refused = time.monotonic()
            await publish(db, "t", 2)
            later = await receiver.next()
            assert time.monotonic() - refused > 1.5
            both = later.payloads + (await receiver.next()).payloads
            assert sorted(both) == [1, 2]

    asyncio.run(story())


def test_an_ordered_webhook_waits_for_what_fails(database: str, receiver: Receiver) -> None:
    answers = iter([204, 500, 500, 204])
    receiver.answer = lambda taken: next(answers, 204)

    async def story() -> None:
        async with opened(database, allow_private=True) as (_, db):
            await register(db, "crm", receiver.url, items=1, retries=(0, 0, 0))
            await db.execute("update webhooks set ordered = true, updated_at = clock_timestamp()")
            await db.execute("select pg_notify('headgate_webhooks', '')")
            await publish(db, "t", 1, 2, 3)
            assert [(await receiver.next()).payloads[0] for _ in range(5)] == [1, 2, 2, 2, 3]
            # One that always fails is a dead letter in the end, and the others go on.
            receiver.answer = lambda taken: 500 if taken.payloads == [4] else 204
            await publish(db, "t", 4, 5)
            assert [(await receiver.next()).payloads[0] for _ in range(5)] == [4, 4, 4, 4, 5]
            assert await fetch(db, "select payload, attempts from dead_letters") == [(4, 4)]

    asyncio.run(story())


def test_a_webhook_keeps_the_order_of_each_key(database: str, receiver: Receiver) -> None:
    """Others of the key wait for what fails, also across a restart; other keys go on; the first to come is not lost."""
    failing = {"n": 2}
    receiver.answer = lambda taken: 500 if failing["n"] in [payload["n"] for payload in taken.payloads] else 204
    events = [{"n": n, "by": {"id": "ab"[n % 2]}} for n in range(1, 9)] + [{"n": 9, "by": 3}]

    async def story() -> None:
        taken: list[int] = []

        async def take(until_seen: int) -> None:
            while until_seen not in taken:
                taken.extend(payload["n"] for payload in (await receiver.next()).payloads)

        async with opened(database, allow_private=True) as (_, db):
            await register(db, "crm", receiver.url, items=1, retries=tuple([0.2] * 50))
            await db.execute("update webhooks set order_key = 'by.id', updated_at = clock_timestamp()")
            await db.execute("select pg_notify('headgate_webhooks', '')")
            await publish(db, "t", *events)
            await take(9)
            assert [n for n in taken if n % 2] == [1, 3, 5, 7, 9]
            assert {n for n in taken if not n % 2} == {2}
        async with opened(database, allow_private=True) as (_, db):
            await publish(db, "t", {"n": 10, "by": {"id": "a"}})
            await take(2)
            failing["n"] = 6
            await take(6)
            assert 8 not in taken
            failing["n"] = 0
            await take(10)
            assert list(dict.fromkeys(n for n in taken if not n % 2)) == [2, 4, 6, 8, 10]
            assert taken.count(4) == taken.count(8) == taken.count(10) == 1
            assert await fetch(db, "select from dead_letters") == []
            assert await wait_for_rows(db, "select 1 where not exists (select from webhook_held)") == [(1,)]

    asyncio.run(story())


def test_no_payload_is_too_odd_for_an_order_key(database: str, receiver: Receiver) -> None:
    """Deeper than a parser of ours goes, a number of many digits, a key that no index takes: all are held and come."""
    receiver.answer = lambda taken: 500
    payloads = [
        """'{"k": ' || repeat('[', 3000) || repeat(']', 3000) || '}'""",
        """'{"k": ' || repeat('9', 5000) || '}'""",
        """'{"k": "' || repeat('x', 100000) || '"}'""",
        """'{"k": {"k": null}}'""",
        "'3'",
    ]

    async def story() -> None:
        async with opened(database, allow_private=True) as (doors, db):
            await register(db, "crm", receiver.url, items=1, retries=(0.1,))
            await db.execute("update webhooks set order_key = 'k', updated_at = clock_timestamp()")
            await db.execute("select pg_notify('headgate_webhooks', '')")
            for payload in payloads:
                await db.execute(f"select publish('t', ({payload})::jsonb)".encode())

            async def given_up() -> bool:
                return bool(doors.metrics()["webhook_events_buried_total"] == len(payloads))

            await until(given_up)
            assert await fetch(db, "select from webhook_held") == []

    asyncio.run(story())


def test_what_is_given_up_lets_its_key_go_on(database: str, receiver: Receiver) -> None:
    receiver.answer = lambda taken: 500 if taken.payloads[0]["n"] == 1 else 204

    async def story() -> None:
        async with opened(database, allow_private=True) as (_, db):
            await register(db, "crm", receiver.url, retries=(0.1,), items=1)
            await db.execute("update webhooks set order_key = 'k', updated_at = clock_timestamp()")
            await db.execute("select pg_notify('headgate_webhooks', '')")
            await publish(db, "t", *({"n": n, "k": "x"} for n in (1, 2, 3)))
            assert [(await receiver.next()).payloads[0]["n"] for _ in range(4)] == [1, 1, 2, 3]
            assert await fetch(db, "select payload -> 'n' from dead_letters") == [(1,)]

    asyncio.run(story())


def test_one_event_that_is_refused_takes_no_other_with_it(database: str, receiver: Receiver) -> None:
    """A request of many is refused for good: each of them is asked about alone, in order."""
    receiver.answer = lambda taken: 422 if "bad" in taken.payloads else 204

    async def story() -> None:
        async with opened(database, allow_private=True) as (_, db):
            await register(db, "crm", receiver.url)
            async with db.transaction():
                await publish(db, "t", 1, "bad", 3)
            assert (await receiver.next()).payloads == [1, "bad", 3]
            assert [(await receiver.next()).payloads for _ in range(3)] == [[1], ["bad"], [3]]
            assert await wait_for_rows(db, "select payload from dead_letters") == [("bad",)]

    asyncio.run(story())


def test_an_endless_answer_is_not_read(database: str) -> None:
    async def story() -> None:
        async with endless_answers() as (url, asked), opened(database, allow_private=True) as (_, db):
            await register(db, "crm", url)
            await publish(db, "t", 1)
            async with asyncio.timeout(20):
                assert await asked.get() < 10_000_000
            await publish(db, "t", 2)
            async with asyncio.timeout(20):
                await asked.get()

    asyncio.run(story())


@asynccontextmanager
async def endless_answers() -> AsyncIterator[tuple[str, asyncio.Queue[int]]]:
    """Answers with 200 and never stops; tells how many bytes were taken from it."""
    taken: asyncio.Queue[int] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        size = 0
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                size += 65536
        except OSError:
            taken.put_nowait(size)
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", taken


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("120", 120.0), ("0", 0.0), ("9999999999", 86_400.0), ("-1", None), ("soon", None), ("", None),
     ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0), ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0)],
)  # fmt: skip
def test_what_retry_after_says(text: str, wanted: float | None) -> None:
    assert retry_after_s(text, now_s=10.0) == wanted
