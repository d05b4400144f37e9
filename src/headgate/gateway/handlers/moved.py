"""Topics that have moved to another cluster, as Metadata tells clients of them.

A client that is told brokers of the other cluster goes there, without being configured anew. One that asks for such
topics only is told of those brokers alone, and has left this cluster from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.gateway.context import Context
from headgate.gateway.store.moves import Elsewhere, Move
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.cluster import Broker, MetadataResponse, PartitionMetadata, TopicMetadata
from headgate.wire.kafka.refusal import Refused

__all__ = ["check_readable", "check_writable", "metadata_of", "moved_partitions"]

_NO_LEADER = _NO_EPOCH = -1


def check_readable(move: Move | None) -> None:
    """Refuse readers of a topic whose groups are moving or that has moved: they look for its leader again."""
    if move is not None and move.is_closed:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the topic moves to another cluster")


def check_writable(move: Move | None) -> None:
    """Refuse partitions of a moving topic to a transaction.

    Its producer waits until the topic has moved, and must then begin anew: no transaction spans two clusters.
    """
    if move is not None:
        is_over = move.state == "moved"
        raise Refused(ErrorCode.INVALID_TXN_STATE if is_over else ErrorCode.CONCURRENT_TRANSACTIONS)


def moved_partitions(move: Move, count: int) -> tuple[PartitionMetadata, ...]:
    """Return the partitions of a topic that is closed: led by nobody yet, or by the other cluster's brokers."""
    if move.target is None or move.state != "moved":
        return tuple(
            PartitionMetadata(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=_NO_LEADER,
                leader_epoch=_NO_EPOCH,
            )
            for index in range(count)
        )
    return tuple(
        PartitionMetadata(
            partition_index=index,
            leader_id=each.leader,
            leader_epoch=each.leader_epoch,
            replica_nodes=each.replicas or (each.leader,),
            isr_nodes=each.isr or (each.leader,),
        )
        for index, each in enumerate(move.target.partitions)
    )


def metadata_of(
    context: Context, topics: Sequence[TopicMetadata], targets: Iterable[Elsewhere | None], operations: int
) -> MetadataResponse:
    """Return the answer to Metadata: the topics, and the brokers of the clusters in which they are."""
    found = list(targets)
    elsewhere = {each.cluster_id: each for each in found if each is not None}
    cluster = context.cluster
    here = [Broker(node_id=each.node_id, host=each.host, port=each.port) for each in cluster.live()]
    cluster_id, controller_id = cluster.id, cluster.controller.node_id
    if len(elsewhere) == 1 and None not in found:  # nothing that was asked for is here
        (only,) = elsewhere.values()
        here, cluster_id, controller_id = [], only.cluster_id, only.controller
    there = {
        broker.node_id: Broker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
        for each in elsewhere.values()
        for broker in each.brokers
    }
    return MetadataResponse(
        brokers=(*here, *there.values()),
        cluster_id=cluster_id,
        controller_id=controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=operations,
    )
