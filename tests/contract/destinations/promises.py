"""What each kind of destination promises: one row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["PROMISES", "Promises"]


@dataclass(frozen=True, slots=True)
class Promises:
    """What a kind can do."""

    keeps: Literal["ids and payloads", "payloads", "nothing"]  # what a reader finds
    replay: Literal["dropped", "again"]  # the same rows sent once more
    streams: bool = True  # rows may name a stream
    partitions: bool = False  # rows may name a partition
    whole_batches: bool = False  # nothing of a batch is seen before all of it
    local: bool = False  # inside the driver process


PROMISES = {
    "memory": Promises("ids and payloads", "again", streams=False, local=True),
    "console": Promises("payloads", "again", streams=False, local=True),
    "discard": Promises("nothing", "again"),
    "nats": Promises("ids and payloads", "dropped", partitions=True),
    "nats exclusive": Promises("ids and payloads", "dropped", partitions=True),
    "kafka": Promises("ids and payloads", "again", partitions=True),
    "kafka exclusive": Promises("ids and payloads", "dropped", partitions=True),
    "log": Promises("ids and payloads", "again", partitions=True),
    "log exclusive": Promises("ids and payloads", "dropped", partitions=True),
    "broker": Promises("ids and payloads", "again"),
    "broker exclusive": Promises("ids and payloads", "dropped"),
    "eventlog": Promises("ids and payloads", "again"),
    "eventlog exclusive": Promises("ids and payloads", "dropped"),
    "table": Promises("ids and payloads", "dropped", whole_batches=True),
    "webhook": Promises("ids and payloads", "again"),
    "iggy": Promises("ids and payloads", "again", partitions=True),
}
