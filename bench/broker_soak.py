"""The broker under a steady load for minutes, half of them under a long snapshot: does anything but the log grow?"""

from __future__ import annotations

import statistics
import threading
import time
from typing import NamedTuple

import psycopg

from bench.broker_load import BY_TOPIC, Ledger, fresh, open_session, read_chunk, rows
from bench.harness import Bench
from headgate.embedded import Stack

_EVENTS_A_SECOND, _BATCH = 2_000, 50
_SUBSCRIPTIONS = 100
_SAMPLES = 40
# All that is not the log itself, which retention keeps at its size.
_OTHER_TABLES = """
select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class
where relnamespace = 'headgate'::regnamespace and relkind = 'r'
  and relname !~ '^(events|deliveries|batches)_'
"""
_LOG = """
select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class
where relnamespace = 'headgate'::regnamespace and relkind = 'r' and relname ~ '^(events|deliveries|batches)_'
"""


class _Sample(NamedTuple):
    other_mb: float
    log_mb: float
    dispatch_ms: float


def measure(bench: Bench) -> None:
    seconds = 60 if bench.quick else 1200
    with Stack(bench.directory / "stack") as stack:
        assert stack.postgres_url is not None
        with fresh(stack.postgres_url) as url:
            _prepare(url, seconds)
            _soak(bench, url, seconds)


def _prepare(url: str, seconds: float) -> None:
    """Partitions that last a minute at least, of which some go while the load lasts."""
    with open_session(url) as session:
        for key in ("partition_interval", "partition_retention_period"):
            session.execute("update config set value = '1 minute' where key = %s", [key])
        session.execute("update config set value = %s where key = 'max_lag'", [f"{seconds * 10} seconds"])
        for n in range(_SUBSCRIPTIONS):
            session.execute("select subscribe('g', %s, %s::jsonb, '1 hour')", [BY_TOPIC, f'{{"topic": "t{n}"}}'])


def _soak(bench: Bench, url: str, seconds: float) -> None:
    over = threading.Event()
    ledger = Ledger()
    published = [0]
    dispatches: list[float] = []
    work = [
        threading.Thread(target=_publish, args=(url, over, published)),
        threading.Thread(target=_consume, args=(url, over, ledger, dispatches)),
        threading.Thread(target=_care, args=(url, over)),
    ]
    for thread in work:
        thread.start()
    try:
        samples = _samples(url, seconds, dispatches)
    finally:
        over.set()
        for thread in work:
            thread.join()
    _judge(bench, samples)
    bench.figure("events", published[0])
    bench.check("missing or doubled", abs(published[0] - len(ledger.seen)) + ledger.doubled, 0, "lower")


def _publish(url: str, over: threading.Event, published: list[int]) -> None:
    values = rows(_BATCH, _SUBSCRIPTIONS)
    begin = time.monotonic()
    with open_session(url) as session:
        while not over.wait(max(0.0, begin + published[0] / _EVENTS_A_SECOND - time.monotonic())):
            session.execute("select publish_v1(%s, %s::jsonb[])", values)
            published[0] += _BATCH


def _consume(url: str, over: threading.Event, ledger: Ledger, dispatches: list[float]) -> None:
    """The only one who dispatches; what each dispatch of something takes is noted."""
    with open_session(url) as session:
        while True:
            ending = over.is_set()
            began = time.perf_counter()
            (count,) = session.execute("select dispatched from poll_for_events_v1()").fetchall()[0]
            if count:
                dispatches.append((time.perf_counter() - began) * 1000 / count * _BATCH)
            found = read_chunk(session, "g", 10_000)
            ledger.arrive([row[0] for row in found])
            if not found and over.wait(0.005) and ending:
                return


def _care(url: str, over: threading.Event) -> None:
    """What clients do besides: heartbeats, and maintenance more often than they would."""
    with open_session(url) as session:
        session.execute("select subscribe('g', %s, '{\"topic\": \"t0\"}', '1 hour', 'soak')", [BY_TOPIC])
        while not over.wait(1):
            session.execute("select heartbeat_v1('soak')")
            session.execute("select maintain_v1()")


def _samples(url: str, seconds: float, dispatches: list[float]) -> list[_Sample]:
    """The second half is seen by a transaction that stays open, so that nothing can be vacuumed."""
    begin, samples = time.monotonic(), []
    with open_session(url) as session, psycopg.connect(url) as old:
        for n in range(_SAMPLES):
            if n == _SAMPLES // 2:
                old.execute("set transaction isolation level repeatable read")
                old.execute("select 1")
            first = len(dispatches)
            time.sleep(max(0.0, begin + (n + 1) * seconds / _SAMPLES - time.monotonic()))
            other, log = (session.execute(query).fetchall()[0][0] / 1e6 for query in (_OTHER_TABLES, _LOG))
            samples.append(_Sample(other, log, statistics.median(dispatches[first:])))
        old.rollback()
    return samples


def _judge(bench: Bench, samples: list[_Sample]) -> None:
    quarter = _SAMPLES // 4
    parts = [samples[n : n + quarter] for n in range(0, _SAMPLES, quarter)]
    for name in _Sample._fields:
        for n, part in enumerate(parts, 1):
            bench.figure(f"{name}_quarter_{n}", statistics.median(getattr(sample, name) for sample in part))
    figures = bench.figures
    bench.check(
        "other tables, end of free half beside its begin",
        figures["other_mb_quarter_2"] / figures["other_mb_quarter_1"],
        1.3,
        "lower",
    )
    bench.check(
        "dispatch, last quarter beside the first",
        figures["dispatch_ms_quarter_4"] / figures["dispatch_ms_quarter_1"],
        1.3,
        "lower",
    )
