"""Debezium's own options, with its own defaults.

Specification: Debezium documentation, PostgreSQL connector, "Connector properties".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BinaryMode", "DebeziumOptions", "DecimalMode", "HstoreMode", "IntervalMode", "SnapshotMode", "TimeMode"]

TimeMode = Literal["adaptive", "connect", "isostring"]
DecimalMode = Literal["precise", "double", "string"]
IntervalMode = Literal["numeric", "string"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]
HstoreMode = Literal["json", "map"]
SnapshotMode = Literal["initial", "no_data"]


@dataclass(frozen=True, slots=True)
class DebeziumOptions:
    """Named as in Debezium, with `_` in place of `.`: `time.precision.mode` is `time_precision_mode`."""

    topic_prefix: str = ""
    time_precision_mode: TimeMode = "adaptive"
    decimal_handling_mode: DecimalMode = "precise"
    interval_handling_mode: IntervalMode = "numeric"
    binary_handling_mode: BinaryMode = "bytes"
    hstore_handling_mode: HstoreMode = "json"
    tombstones_on_delete: bool = True
    skipped_operations: tuple[str, ...] = ("t",)  # of c, u, d and t
    schemas_enable: bool = False
    snapshot_mode: SnapshotMode = "initial"
    heartbeat_interval_ms: int = 0  # 0: none
    topic_heartbeat_prefix: str = "__debezium-heartbeat"
    message_keys: bool = True  # messages have the row's primary key as their key
    unwrap: bool = False  # a message is the row alone, and empty for a delete: Debezium's ExtractNewRecordState

    @property
    def heartbeat_topic(self) -> str:
        """Where heartbeats go."""
        return f"{self.topic_heartbeat_prefix}.{self.topic_prefix}"

    @property
    def skipped(self) -> frozenset[str]:
        """The operations that no message is made of: a row alone cannot tell of a TRUNCATE."""
        return frozenset(self.skipped_operations) | (frozenset("t") if self.unwrap else frozenset())

    @property
    def has_tombstones(self) -> bool:
        """Whether another, empty message follows a delete."""
        return self.tombstones_on_delete and not self.unwrap
