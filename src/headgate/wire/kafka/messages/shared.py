"""Parts that several messages have in common.

Specification: Apache Kafka protocol guide, "The Messages".
"""

from __future__ import annotations

from headgate.wire.kafka.schema import Body, Int32, String

__all__ = ["Cursor", "LeaderIdAndEpoch", "NodeEndpoint"]


class LeaderIdAndEpoch(Body, frozen=True):
    """The leader of a partition now, for clients that asked somebody else (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Body, frozen=True):
    """The address of such a leader."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class Cursor(Body, frozen=True):
    """Where a page of topics begins."""

    topic_name: String = ""
    partition_index: Int32 = 0
