"""Topics without a gateway, and batches for them."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg
from psycopg.types.json import Jsonb

from headgate.commitlog.configs import retention_class
from headgate.commitlog.prepare import Batch, Rules, prepare
from headgate.wire.kafka import Record, encode_batch

NOW = time.time_ns() // 1_000_000
RULES = Rules(after_max_ms=2**62)


def create(
    connection: psycopg.Connection, name: str, count: int = 1, configs: Mapping[str, str] | None = None
) -> list[int]:
    """A topic; the ids of its partitions."""
    with connection.transaction():
        row = connection.execute(
            "insert into kafka.topics (name, configs) values (%s, %s) returning id", [name, Jsonb(dict(configs or {}))]
        ).fetchone()
        assert row is not None
        rows = connection.execute(
            "insert into kafka.partitions (topic_id, class_id, index)"
            " select %s, kafka.class_of(%s, %s), i from generate_series(0, %s - 1) as i returning part_id",
            [row[0], *retention_class(configs or {}), count],
        )
        return [part_id for (part_id,) in rows]


def batch(*values: bytes, sequence: int = -1, producer: int = -1, epoch: int = -1, at_ms: int = NOW) -> Batch:
    """One batch with these values."""
    records = [Record(index, at_ms, b"k", value) for index, value in enumerate(values)]
    encoded = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    (prepared,) = prepare(encoded, RULES)
    return prepared
