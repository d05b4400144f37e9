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

    @property
    def heartbeat_topic(self) -> str:
        """Where heartbeats go."""
        return f"{self.topic_heartbeat_prefix}.{self.topic_prefix}"
