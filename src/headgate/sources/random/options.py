"""Options of the `random` source, as Spark hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from headgate.sources.options import parse_options

__all__ = ["RandomOptions"]


@dataclass(frozen=True, slots=True)
class RandomOptions:
    """What `spark.readStream.format("random").option(...)` accepts; names follow Spark's `rate` and Kafka sources."""

    rows_per_second: int = 1000
    num_rows: int = 0
    max_offsets_per_trigger: int = 100_000
    min_partitions: int = 1
    payload_bytes: int = 64
    customers: int = 1000
    seed: int = 0

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        return parse_options(cls, options, source="random")
