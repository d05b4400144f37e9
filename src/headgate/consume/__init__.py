"""Tables of a bridge for programs: what is in them, then every change, joined without a gap or a repetition.

    async with Consumer("nats://localhost:4222", tables=["users", "shop.orders"]) as consumer:
        async for change in consumer.changes():
            print(change.operation, change.table, change.key, change.data)
            position = consumer.position()      # keep it where you keep the effect; give it back to go on

See docs/consume.md; the wire contract is docs/snapshots.md.
"""

from __future__ import annotations

from headgate.consume.change import (
    CaughtUp,
    Change,
    Changes,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotInfo,
    SnapshotRows,
    Step,
    TableGone,
    Transaction,
)
from headgate.consume.consumer import Consumer
from headgate.consume.schema import Column, Schema
from headgate.consume.snapshots import SnapshotFailed
from headgate.consume.tables import TableName

__all__ = [
    "CaughtUp",
    "Change",
    "Changes",
    "Column",
    "Consumer",
    "Schema",
    "SnapshotBegin",
    "SnapshotEnd",
    "SnapshotFailed",
    "SnapshotInfo",
    "SnapshotRows",
    "Step",
    "TableGone",
    "TableName",
    "Transaction",
]
