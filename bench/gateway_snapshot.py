"""Appends while a transaction elsewhere stays open, such as a backup's: does each cost what the first did?"""

from __future__ import annotations

import time
from statistics import median

import psycopg

from bench.harness import Bench
from headgate.commitlog.append import append
from headgate.commitlog.install import install
from headgate.commitlog.prepare import Rules, prepare
from headgate.commitlog.topics import ensure_topic
from headgate.embedded import Stack
from headgate.wire.kafka import Record, encode_batch

_RULES = Rules(after_max_ms=2**62)
_PARTS = 4


def measure(bench: Bench) -> None:
    """Each commit has a batch for every partition, of an idempotent producer: all rows that an append changes."""
    commits = 10_000 if bench.quick else 200_000
    with Stack(bench.directory / "stack") as stack:
        assert stack.postgres_url is not None
        with (
            psycopg.connect(stack.postgres_url, autocommit=True) as connection,
            psycopg.connect(stack.postgres_url) as backup,
        ):
            install(connection)
            connection.execute("set synchronous_commit = off")  # what the disk takes is another question
            parts = ensure_topic(connection, "t", _PARTS).parts
            backup.execute("set transaction isolation level repeatable read")
            backup.execute("select from kafka.topics")
            times_ms = [_append_ms(connection, parts, number) for number in range(commits)]
    tenth = commits // 10
    medians = [median(times_ms[at : at + tenth]) for at in range(0, commits, tenth)]
    for number, each in enumerate(medians, start=1):
        bench.figure(f"append_ms_tenth_{number}", each)
    bench.figure("commits", commits)
    bench.check("last tenth / first tenth", medians[-1] / medians[0], 1.2, "lower")


def _append_ms(connection: psycopg.Connection, parts: tuple[int, ...], sequence: int) -> float:
    record = Record(0, 1, b"k", b"value of a message")
    encoded = encode_batch([record], producer_id=1, producer_epoch=0, base_sequence=sequence)
    batches = [(part, prepare(encoded, _RULES)[0]) for part in parts]
    begin = time.perf_counter()
    append(connection, batches)
    return (time.perf_counter() - begin) * 1000
