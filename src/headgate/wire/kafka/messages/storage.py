"""Room on disk: how much is taken, and how to free it.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-107 (DeleteRecords), KIP-113 (DescribeLogDirs).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import Body, Bool, Int16, Int32, Int64, String, since

__all__ = [
    "DELETE_RECORDS",
    "DESCRIBE_LOG_DIRS",
    "DeleteRecordsPartition",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeletedRecordsPartition",
    "DeletedRecordsTopic",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribedLogDir",
    "DescribedLogDirPartition",
    "DescribedLogDirTopic",
    "LogDirTopic",
]


class LogDirTopic(Body, frozen=True):
    """Partitions of one topic."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribeLogDirsRequest(Body, frozen=True):
    """Ask how much room partitions take; null topics mean all."""

    topics: tuple[LogDirTopic, ...] | None = ()


class DescribedLogDirPartition(Body, frozen=True):
    """A partition in it."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribedLogDirTopic(Body, frozen=True):
    """A topic in it."""

    name: String = ""
    partitions: tuple[DescribedLogDirPartition, ...] = ()


class DescribedLogDir(Body, frozen=True):
    """A directory."""

    error_code: Int16 = 0
    log_dir: String = ""
    topics: tuple[DescribedLogDirTopic, ...] = ()
    total_bytes: Annotated[Int64, since(4)] = -1  # KIP-827
    usable_bytes: Annotated[Int64, since(4)] = -1
    is_cordoned: Annotated[Bool, since(5)] = False


class DescribeLogDirsResponse(Body, frozen=True):
    """The directories."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    results: tuple[DescribedLogDir, ...] = ()


class DeleteRecordsPartition(Body, frozen=True):
    """A partition and the first offset to keep."""

    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Body, frozen=True):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


class DeleteRecordsRequest(Body, frozen=True):
    """Delete records below an offset; -1 means all."""

    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: Int32 = 0


class DeletedRecordsPartition(Body, frozen=True):
    """The first offset that is left."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeletedRecordsTopic(Body, frozen=True):
    """The answer for one topic."""

    name: String = ""
    partitions: tuple[DeletedRecordsPartition, ...] = ()


class DeleteRecordsResponse(Body, frozen=True):
    """What is left."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DeletedRecordsTopic, ...] = ()


DESCRIBE_LOG_DIRS = Api(35, DescribeLogDirsRequest, DescribeLogDirsResponse, first=1, last=5, flexible=2)
DELETE_RECORDS = Api(21, DeleteRecordsRequest, DeleteRecordsResponse, first=0, last=2, flexible=2)
