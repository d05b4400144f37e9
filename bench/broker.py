"""The broker: publish, dispatch, read and end to end, beside plain INSERTs, a queue table of one's own, and a model of
the broker that it replaces.

On the embedded server, and on Debian's with its default settings.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import LiteralString

import psycopg

from bench.broker_load import (
    BY_TOPIC,
    PEERS,
    Ledger,
    Session,
    consume_group,
    consume_queue,
    dispatch_all,
    dispatch_original,
    fresh,
    install_original,
    install_peer,
    keep,
    open_session,
    publish,
    read_chunk,
    read_group,
    read_original,
    read_pgmq,
    read_queue,
    scans_of_events,
)
from bench.harness import Bench
from headgate.broker import BrokerClient, Event, Message, Subscription
from headgate.embedded import Stack
from tests.stock import STOCK_VERSION, StockPostgres, is_installed

_BATCHES = (1, 10, 100, 1000)
_BESIDE = (
    ("original", "publish_1", 1),
    ("original", "publish_100", 1.5),
    ("original", "dispatch", 2),
    ("original", "read", 2),
    ("pgmb", "publish_1", 1),
    ("pgmb", "publish_100", 1.5),
    ("pgmq", "publish_100", 1),
    ("pgmq", "backlog", 1),
)
_PEER_NAMES = {"original": "the model of what it replaces"}
_RATE = 1000  # events per second while latency is measured
_SINGLES = 2000  # events, of 200 in a second


def measure(bench: Bench) -> None:
    with Stack(bench.directory / "stack") as stack:
        assert stack.postgres_url is not None
        _measure(bench, stack.postgres_url)
    _measure_stock(bench)


def _measure(bench: Bench, server: str) -> None:
    rounds = 1 if bench.quick else 3
    _publish(bench, server, rounds)
    _dispatch(bench, server, rounds)
    _read(bench, server, rounds)
    _beside_original(bench, server, rounds)
    _end_to_end(bench, server, rounds)
    _many(bench, server)
    _kept(bench, server)
    _client(bench, server)
    _goals(bench)


def _measure_stock(bench: Bench) -> None:
    """The same on Debian's PostgreSQL with its default settings, where it is installed and there is time."""
    if bench.quick or not is_installed():
        return
    of_stock = Bench(bench.name, bench.directory, bench.quick, bench.rows)
    run = bench.directory / "stock" / "run"
    run.mkdir(parents=True)
    server = StockPostgres(bench.directory / "stock" / "postgres", run, settings={"fsync": "on"})
    server.start()
    try:
        _measure(of_stock, server.url)
    finally:
        server.stop()
    bench.figures |= {f"stock_{name}": value for name, value in of_stock.figures.items()}
    bench.checks += [{**check, "name": f"Debian's {STOCK_VERSION}: {check['name']}"} for check in of_stock.checks]


def _median(bench: Bench, name: str, values: Sequence[float]) -> None:
    bench.figure(name, statistics.median(values))


def _publish(bench: Bench, server: str, rounds: int) -> None:
    """Interleaved, each kind into tables that have grown alike."""
    with fresh(server) as url:
        for batch in _BATCHES:
            events = {1: 8_000, 10: 40_000, 100: 100_000, 1000: 100_000}[batch] // (2 if bench.quick else 1)
            found: dict[str, list[float]] = {"plain": [], "broker": [], "insert": []}
            for _ in range(rounds):
                for kind, rates in found.items():
                    rates.append(publish(url, kind, batch=batch, events=events))
            for kind, rates in found.items():
                _median(bench, f"publish_{kind}_{batch}_ev_s", rates)
        for kind in ("plain", "broker"):
            bench.figure(f"publish_{kind}_1_durable_ev_s", publish(url, kind, batch=1, events=4_000, durable=True))


def _many(bench: Bench, server: str) -> None:
    """A poll of one event beside a thousand conditions, and a group that catches up on batches of one."""
    with fresh(server) as url, open_session(url) as session:
        _subscribe(url, [(f"g{n % 50}", f"(e.payload ->> 'n')::int = {n}", "{}") for n in range(1000)])
        dispatch_all(session)
        polls = []
        for _ in range(10):
            session.execute("select publish('t', '{\"n\": 7}')")
            began = time.perf_counter()
            session.execute("select poll_for_events_v1()").fetchall()
            polls.append((time.perf_counter() - began) * 1000)
        _median(bench, "poll_of_one_beside_1000_conditions_ms", polls)
    with fresh(server) as url, open_session(url) as session:
        _subscribe(url, [("log", "true", "{}"), ("topic", "e.topic = 't'", "{}")])
        for _ in range(1000 if bench.quick else 3000):
            session.execute("select publish('t', '{}')")
            session.execute("select poll_for_events_v1()").fetchall()
        for group in ("log", "topic"):
            bench.figure(f"catch_up_{group}_ev_s", read_group(session, group, 500)[1])


def _kept(bench: Bench, server: str) -> None:
    """Ten million events that were dispatched long ago: what is done with the next ones does not scan them."""
    with fresh(server) as url, open_session(url) as session:
        _subscribe(
            url, [("g", "true", "{}"), ("h", "e.topic = 't'", "{}"), ("c", "(e.payload ->> 'n')::int = 1", "{}")]
        )
        before = _ordinary_work(session)
        keep(url, 1_000_000 if bench.quick else 10_000_000)
        session.execute("analyze")
        began = scans_of_events(session)
        after = _ordinary_work(session)
        bench.figure("work_of_one_event_ms", before)
        bench.figure("work_of_one_event_beside_many_kept_ms", after)
        bench.figure("scans_beside_many_kept", scans_of_events(session) - began)


def _ordinary_work(session: Session) -> float:
    """Milliseconds to publish an event, dispatch it, read it in three groups and look at their status."""
    found = []
    for _ in range(10):
        begin = time.perf_counter()
        session.execute("select publish('t', '{\"n\": 1}')")
        session.execute("select poll_for_events_v1()")
        for group in ("g", "h", "c"):
            assert len(read_chunk(session, group, 100)) == 1
        session.execute("select * from broker_status()")
        found.append((time.perf_counter() - begin) * 1000)
    session.execute("select maintain()")
    return statistics.median(found)


def _subscribe(url: str, subscriptions: Sequence[tuple[str, str, str]]) -> None:
    with open_session(url) as session, session.cursor() as cursor:
        cursor.executemany("select subscribe(%s, %s, %s::jsonb)", subscriptions)


def _routed(count: int) -> list[tuple[str, str, str]]:
    return [("g", BY_TOPIC, f'{{"topic": "t{n}"}}') for n in range(count)]


SCENES: dict[str, list[tuple[str, str, str]]] = {
    "1_sub": [("g", "true", "{}")],
    "100_subs_routed": _routed(100),
    "1000_subs_one_condition": _routed(1000),
    "100_subs_of_a_group_match_all": [("g", "true", f'{{"n": {n}}}') for n in range(100)],
    "100_groups_match_all": [(f"g{n}", "true", "{}") for n in range(100)],
}


def _dispatch(bench: Bench, server: str, rounds: int) -> None:
    events = 50_000 if bench.quick else 100_000
    for name, subscriptions in SCENES.items():
        rates = []
        for _ in range(rounds):
            with fresh(server) as url:
                _subscribe(url, subscriptions)
                publish(url, "insert", batch=1000, events=events)
                with open_session(url) as session:
                    rates.append(dispatch_all(session)[1])
        _median(bench, f"dispatch_{name}_ev_s", rates)


def _read(bench: Bench, server: str, rounds: int) -> None:
    events = 50_000 if bench.quick else 100_000
    found: dict[str, list[float]] = {"1_sub": [], "100_subs_routed": [], "skip_locked": []}
    for _ in range(rounds):
        for name, rates in found.items():
            with fresh(server) as url, open_session(url) as session:
                if name == "skip_locked":
                    publish(url, "queue", batch=1000, events=events)
                    rates.append(read_queue(session, 1000)[1])
                else:
                    _subscribe(url, SCENES[name])
                    publish(url, "insert", batch=1000, events=events)
                    dispatch_all(session)
                    rates.append(read_group(session, "g", 1000)[1])
    for name, rates in found.items():
        _median(bench, f"read_{name}_ev_s", rates)


def _beside_original(bench: Bench, server: str, rounds: int) -> None:
    """Each thing with both, one after the other: their ratio counts, whatever else the machine has to do."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name in ("broker", "original"):
            with fresh(server) as url, open_session(url) as session:
                is_ours, subscriptions = name == "broker", SCENES["100_subs_routed"]
                _subscribe(url, subscriptions) if is_ours else install_original(url, subscriptions)
                _publish_beside(bench, url, name, found)
                dispatched = dispatch_all(session) if is_ours else dispatch_original(session)
                read = read_group(session, "g", 1000) if is_ours else read_original(session, "g", 1000)
                found.setdefault(f"dispatch_{name}", []).append(dispatched[1])
                found.setdefault(f"read_{name}", []).append(read[1])
                found.setdefault(f"backlog_{name}", []).append(1 / (1 / dispatched[1] + 1 / read[1]))
        for name in PEERS:
            with fresh(server) as url, open_session(url) as session:
                if install_peer(url, name):
                    _publish_beside(bench, url, name, found)
                    if name == "pgmq":
                        found.setdefault(f"backlog_{name}", []).append(read_pgmq(session, 1000)[1])
    for name, rates in found.items():
        _median(bench, f"beside_{name}_ev_s", rates)


def _publish_beside(bench: Bench, url: str, name: str, found: dict[str, list[float]]) -> None:
    for batch, count in ((1, 8_000), (100, 30_000 if bench.quick else 60_000)):
        found.setdefault(f"publish_{batch}_{name}", []).append(publish(url, name, batch=batch, events=count))


def _end_to_end(bench: Bench, server: str, rounds: int) -> None:
    found: dict[str, list[float]] = {
        "skip_locked": [],
        "1_sub": [],
        "100_subs_routed": [],
        "1000_subs_one_condition": [],
    }
    wrong = 0
    for _ in range(rounds):
        for name, rates in found.items():
            with fresh(server) as url:
                is_queue = name == "skip_locked"
                if not is_queue:
                    _subscribe(url, SCENES[name])
                rate, missing = _publish_and_consume(bench, url, is_queue)
                rates.append(rate)
                wrong += missing
    for name, rates in found.items():
        _median(bench, f"end_to_end_{name}_ev_s", rates)
    bench.figure("end_to_end_missing_or_doubled", wrong)


def _publish_and_consume(bench: Bench, url: str, is_queue: bool) -> tuple[float, int]:
    """Two publishers, batches of 100, one consumer, at once."""
    events = 60_000 if bench.quick else 150_000
    over = threading.Event()
    ledger = Ledger()
    begin = time.perf_counter()
    consume: Callable[[], None] = (
        (lambda: consume_queue(url, ledger, over.is_set))
        if is_queue
        else (lambda: consume_group(url, "g", ledger, over.is_set))
    )
    consumer = threading.Thread(target=consume)
    consumer.start()
    publish(url, "queue" if is_queue else "broker", batch=100, events=events, connections=2)
    over.set()
    consumer.join()
    seconds = time.perf_counter() - begin
    published = events + 200  # every connection tries its statement once before it begins
    return published / seconds, abs(published - len(ledger.seen)) + ledger.doubled


def _client(bench: Bench, server: str) -> None:
    with fresh(server) as url:
        rate = asyncio.run(_client_rate(url, 52_000 if bench.quick else 152_000))
        bench.figure("client_end_to_end_ev_s", rate)
    with fresh(server) as url:
        delays = sorted(asyncio.run(_client_delays(url, 3 if bench.quick else 10)))
        bench.figure("latency_p50_ms", statistics.median(delays))
        bench.figure("latency_p99_ms", delays[len(delays) * 99 // 100])
    with fresh(server) as url:
        for name, measured in (("latency", _commit_delays), ("notify", _notify_delays)):
            delays = sorted(asyncio.run(measured(url, _SINGLES // 4 if bench.quick else _SINGLES)))
            bench.figure(f"{name}_200_p50_ms", statistics.median(delays))
            bench.figure(f"{name}_200_p99_ms", delays[len(delays) * 99 // 100])
    with fresh(server) as url:
        written, cpu = asyncio.run(_client_idle(url))
        bench.figure("idle_wal_bytes", written)
        bench.figure("idle_client_cpu_percent", cpu)


async def _client_rate(url: str, events: int) -> float:
    """A client as it is, whose handler does nothing but count."""
    seen: set[int] = set()
    complete = asyncio.Event()

    async def count(batch: Sequence[Event]) -> None:
        seen.update(event.id for event in batch)
        if len(seen) == events:
            complete.set()

    async with BrokerClient(url, group="g") as broker:
        await broker.register_reliable_handler(Subscription(), count, name="count")
        await asyncio.to_thread(publish, url, "insert", batch=1000, events=events - 4000)
        begin = time.perf_counter()
        running = asyncio.create_task(broker.run())
        await complete.wait()
        rate = len(seen) / (time.perf_counter() - begin)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return rate


async def _client_delays(url: str, seconds: float) -> list[float]:
    """Milliseconds from before the INSERT to the handler, at a steady rate, with a hundred subscriptions."""
    sent: dict[int, float] = {}
    delays: list[float] = []
    events = int(seconds * _RATE)
    complete = asyncio.Event()

    async def note(batch: Sequence[Event]) -> None:
        now = time.perf_counter()
        delays.extend((now - sent[event.payload["n"]]) * 1000 for event in batch)
        if len(delays) == events:
            complete.set()

    async with BrokerClient(url, group="g") as broker, BrokerClient(url, group="other") as publisher:
        for n in range(100):
            await broker.register_reliable_handler(Subscription.to_topics(f"t{n}"), note, name=f"h{n}")
        running = asyncio.create_task(broker.run())
        begin = time.perf_counter()
        for n in range(events // 10):
            await asyncio.sleep(max(0.0, begin + n * 10 / _RATE - time.perf_counter()))
            for m in range(n * 10, n * 10 + 10):
                sent[m] = time.perf_counter()
            await publisher.publish(*(Message(f"t{m % 100}", {"n": m}) for m in range(n * 10, n * 10 + 10)))
        await complete.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return delays


async def _commit_delays(url: str, events: int) -> list[float]:
    """Milliseconds from a commit to the handler, of single events at 200 in a second."""
    arrived: dict[int, float] = {}
    complete = asyncio.Event()

    async def note(batch: Sequence[Event]) -> None:
        arrived.update((event.payload, time.perf_counter()) for event in batch)
        if len(arrived) == events:
            complete.set()

    async with BrokerClient(url, group="g") as broker:
        await broker.register_reliable_handler(Subscription.to_topics("t"), note, name="h")
        running = asyncio.create_task(broker.run())
        committed = await _publish_singly(url, events, "select headgate.publish('t', to_jsonb(%s::int))")
        await complete.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return [(arrived[n] - committed[n]) * 1000 for n in range(events)]


async def _notify_delays(url: str, events: int) -> list[float]:
    """The same for a bare notification, which is one of the two hops that an event takes."""
    arrived: dict[int, float] = {}

    async def listen() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("listen bench")
            listening.set()
            async for notification in connection.notifies():
                arrived[int(notification.payload)] = time.perf_counter()
                if len(arrived) == events:
                    return

    listening = asyncio.Event()
    task = asyncio.create_task(listen())
    await listening.wait()
    committed = await _publish_singly(url, events, "select pg_notify('bench', %s::text)")
    await task
    return [(arrived[n] - committed[n]) * 1000 for n in range(events)]


async def _publish_singly(url: str, events: int, statement: LiteralString) -> list[float]:
    """Each in a transaction of its own; when its publisher knew that it was committed."""
    committed = []
    async with await psycopg.AsyncConnection.connect(url) as connection:
        begin = time.perf_counter()
        for n in range(events):
            await asyncio.sleep(max(0.0, begin + n / 200 - time.perf_counter()))
            await connection.execute(statement, [n])
            await connection.commit()
            committed.append(time.perf_counter())
    return committed


async def _client_idle(url: str) -> tuple[float, float]:
    """What is written, and what a client takes, while nothing happens."""

    async def nothing(_: Sequence[Event]) -> None: ...

    async with BrokerClient(url, group="g") as broker:
        await broker.register_reliable_handler(Subscription(), nothing, name="nothing")
        running = asyncio.create_task(broker.run())
        await asyncio.sleep(3)
        written, cpu, began = _wal(url), time.process_time(), time.perf_counter()
        await asyncio.sleep(10)
        used = (time.process_time() - cpu) / (time.perf_counter() - began) * 100
        grown = _wal(url) - written
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return grown, used


def _wal(url: str) -> float:
    with psycopg.connect(url) as connection:
        return float(connection.execute("select pg_current_wal_lsn() - '0/0'").fetchall()[0][0])


def _goals(bench: Bench) -> None:
    f = bench.figures
    for batch, goal in zip(_BATCHES, (0.9, 0.9, 0.8, 0.8), strict=True):
        ratio = f[f"publish_broker_{batch}_ev_s"] / f[f"publish_plain_{batch}_ev_s"]
        bench.check(f"publish beside INSERT, batches of {batch}", ratio, goal, "higher")
    ratio = f["publish_broker_1_durable_ev_s"] / f["publish_plain_1_durable_ev_s"]
    bench.check("publish beside INSERT, durable", ratio, 0.9, "higher")
    plain, routed = f["publish_plain_1000_ev_s"], f["dispatch_100_subs_routed_ev_s"]
    bench.check("dispatch to 100 beside INSERT", routed / plain, 0.6, "higher")
    bench.check("dispatch to 1,000 beside 100", f["dispatch_1000_subs_one_condition_ev_s"] / routed, 0.7, "higher")
    copies = f["dispatch_100_subs_of_a_group_match_all_ev_s"] / (plain / 100)
    bench.check("fan-out to 100 beside a copy for each", copies, 10, "higher")
    groups = f["dispatch_100_groups_match_all_ev_s"] / f["dispatch_1_sub_ev_s"]
    bench.check("100 groups that match all beside one", groups, 0.8, "higher")
    for name in ("1_sub", "100_subs_routed"):
        ratio = f[f"read_{name}_ev_s"] / f["read_skip_locked_ev_s"]
        bench.check(f"read beside SKIP LOCKED, {name}", ratio, 1.0, "higher")
        ratio = f[f"end_to_end_{name}_ev_s"] / f["end_to_end_skip_locked_ev_s"]
        bench.check(f"end to end beside SKIP LOCKED, {name}", ratio, 0.7, "higher")
    for peer, name, goal in _BESIDE:
        if f"beside_{name}_{peer}_ev_s" in f:
            ratio = f[f"beside_{name}_broker_ev_s"] / f[f"beside_{name}_{peer}_ev_s"]
            bench.check(f"{name} beside {_PEER_NAMES.get(peer, peer)}", ratio, goal, "higher")
    poll_ms = f["poll_of_one_beside_1000_conditions_ms"]
    bench.check("a poll of one beside 1,000 conditions, ms", poll_ms, 100, "lower")
    bench.check("scans of events beside many that are kept", f["scans_beside_many_kept"], 0, "lower")
    ratio = f["work_of_one_event_beside_many_kept_ms"] / f["work_of_one_event_ms"]
    bench.check("work of one event beside many that are kept", ratio, 2, "lower")
    caught_up = f["catch_up_log_ev_s"] / f["catch_up_topic_ev_s"]
    bench.check("a group that reads all beside one of a topic, batches of one", caught_up, 0.3, "higher")
    bench.check("missing or doubled", f["end_to_end_missing_or_doubled"], 0, "lower")
    bench.check("client beside SQL", f["client_end_to_end_ev_s"] / f["end_to_end_1_sub_ev_s"], 0.5, "higher")
    bench.check("latency p50, ms", f["latency_p50_ms"], 20, "lower")
    bench.check("latency p99, ms", f["latency_p99_ms"], 60, "lower")
    bench.check("latency p50 at 200 a second, ms", f["latency_200_p50_ms"], 3, "lower")
    bench.check("idle client CPU, %", f["idle_client_cpu_percent"], 1, "lower")
