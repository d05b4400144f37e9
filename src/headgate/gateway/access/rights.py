"""Which rights each API takes, as Kafka has them.

`whole` is looked at before the handler is called: without it the request fails as a whole. `parts` is what its handler
looks at for every topic, group or other thing that the request names; what a client may not is refused, or left out of
a list, one by one. An API that is not here is not served.

Specification: Apache Kafka documentation, "Operations and Resources on Protocols".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headgate.gateway.access.acls import CLUSTER_NAME, Kind, Operation
from headgate.wire.kafka import Body
from headgate.wire.kafka.messages import (
    cluster,
    commits,
    configs,
    consumer_groups,
    fetch,
    groups,
    leadership,
    membership,
    offsets,
    produce,
    security,
    session,
    storage,
    topics,
    transactions,
)

__all__ = ["RIGHTS", "Need", "Rights"]

Name = Callable[[Any, int], str | None]
"""What a request is about, by its version; None if it needs no such right."""


@dataclass(frozen=True, slots=True)
class Need:
    """A right; one of several operations is enough."""

    operations: tuple[Operation, ...]
    kind: Kind
    name: Name = lambda request, version: CLUSTER_NAME

    def __str__(self) -> str:
        return f"{' or '.join(each.name for each in self.operations)} on {self.kind.name}"


@dataclass(frozen=True, slots=True)
class Rights:
    """What an API takes."""

    whole: tuple[Need, ...] = ()
    parts: tuple[Need, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return "; ".join([*map(str, self.whole), *(f"each: {need}" for need in self.parts)]) or "nothing"


def _need(kind: Kind, *operations: Operation) -> Need:
    return Need(operations, kind)


def _of(field: str, kind: Kind, operation: Operation) -> Need:
    """A right to the one thing that a field names; none if it names nothing."""
    return Need((operation,), kind, lambda request, version: getattr(request, field))


_O, _K = Operation, Kind
_NOTHING = Rights()
_READ_GROUP = _of("group_id", Kind.GROUP, _O.READ)
_WRITE_TRANSACTION = _of("transactional_id", Kind.TRANSACTIONAL_ID, _O.WRITE)
_READ, _WRITE, _DESCRIBE = (_need(_K.TOPIC, each) for each in (_O.READ, _O.WRITE, _O.DESCRIBE))
_MEMBER = Rights((_READ_GROUP,))
_LOOKS, _ALTERS = (Rights((_need(_K.CLUSTER, each),)) for each in (_O.DESCRIBE, _O.ALTER))
_SEVERAL_TRANSACTIONS = 4  # AddPartitionsToTxn's first version for several; brokers ask each other like that


def _one_transaction(request: transactions.AddPartitionsToTxnRequest, version: int) -> str | None:
    return None if version >= _SEVERAL_TRANSACTIONS else request.v3_and_below_transactional_id


def _several_transactions(request: transactions.AddPartitionsToTxnRequest, version: int) -> str | None:
    return CLUSTER_NAME if version >= _SEVERAL_TRANSACTIONS else None


def _idempotent(request: produce.InitProducerIdRequest, version: int) -> str | None:
    return CLUSTER_NAME if request.transactional_id is None else None


RIGHTS: dict[type[Body], Rights] = {
    session.ApiVersionsRequest: _NOTHING,
    session.SaslHandshakeRequest: _NOTHING,
    session.SaslAuthenticateRequest: _NOTHING,
    # topics and what is in them
    produce.ProduceRequest: Rights((_WRITE_TRANSACTION,), (_WRITE,)),
    fetch.FetchRequest: Rights(parts=(_READ,)),
    offsets.ListOffsetsRequest: Rights(parts=(_DESCRIBE,)),
    offsets.OffsetForLeaderEpochRequest: Rights(parts=(_DESCRIBE,)),
    storage.DeleteRecordsRequest: Rights(parts=(_need(_K.TOPIC, _O.DELETE),)),
    cluster.MetadataRequest: Rights(parts=(_DESCRIBE,)),
    cluster.DescribeTopicPartitionsRequest: Rights(parts=(_DESCRIBE,)),
    topics.CreateTopicsRequest: Rights(parts=(_need(_K.TOPIC, _O.CREATE),)),
    topics.DeleteTopicsRequest: Rights(parts=(_need(_K.TOPIC, _O.DELETE),)),
    topics.CreatePartitionsRequest: Rights(parts=(_need(_K.TOPIC, _O.ALTER),)),
    configs.DescribeConfigsRequest: Rights(parts=(_need(_K.TOPIC, _O.DESCRIBE_CONFIGS),)),
    configs.AlterConfigsRequest: Rights(parts=(_need(_K.TOPIC, _O.ALTER_CONFIGS),)),
    configs.IncrementalAlterConfigsRequest: Rights(parts=(_need(_K.TOPIC, _O.ALTER_CONFIGS),)),
    leadership.DescribeProducersRequest: Rights(parts=(_READ,)),
    # groups
    membership.FindCoordinatorRequest: Rights(parts=(_need(_K.GROUP, _O.DESCRIBE),)),
    membership.JoinGroupRequest: _MEMBER,
    membership.SyncGroupRequest: _MEMBER,
    membership.HeartbeatRequest: _MEMBER,
    membership.LeaveGroupRequest: _MEMBER,
    consumer_groups.ConsumerGroupHeartbeatRequest: Rights((_READ_GROUP,), (_DESCRIBE,)),
    commits.OffsetCommitRequest: Rights((_READ_GROUP,), (_READ,)),
    commits.OffsetFetchRequest: Rights(parts=(_need(_K.GROUP, _O.DESCRIBE), _DESCRIBE)),
    commits.OffsetDeleteRequest: Rights((_of("group_id", _K.GROUP, _O.DELETE),), (_READ,)),
    groups.ListGroupsRequest: Rights(parts=(_need(_K.GROUP, _O.DESCRIBE),)),
    groups.DescribeGroupsRequest: Rights(parts=(_need(_K.GROUP, _O.DESCRIBE),)),
    groups.DeleteGroupsRequest: Rights(parts=(_need(_K.GROUP, _O.DELETE),)),
    consumer_groups.ConsumerGroupDescribeRequest: Rights(parts=(_need(_K.GROUP, _O.DESCRIBE), _DESCRIBE)),
    # transactions
    produce.InitProducerIdRequest: Rights(
        (_WRITE_TRANSACTION, Need((_O.IDEMPOTENT_WRITE,), _K.CLUSTER, _idempotent)),
        note="without a transactional id, WRITE on any TOPIC is enough",
    ),
    transactions.AddPartitionsToTxnRequest: Rights(
        (
            Need((_O.WRITE,), _K.TRANSACTIONAL_ID, _one_transaction),
            Need((_O.CLUSTER_ACTION,), _K.CLUSTER, _several_transactions),
        ),
        (_WRITE,),
        note="the one or the other, by the version",
    ),
    transactions.AddOffsetsToTxnRequest: Rights((_WRITE_TRANSACTION, _READ_GROUP)),
    transactions.TxnOffsetCommitRequest: Rights((_WRITE_TRANSACTION, _READ_GROUP), (_READ,)),
    transactions.EndTxnRequest: Rights((_WRITE_TRANSACTION,)),
    transactions.WriteTxnMarkersRequest: Rights((_need(_K.CLUSTER, _O.CLUSTER_ACTION, _O.ALTER),)),
    leadership.ListTransactionsRequest: Rights(parts=(_need(_K.TRANSACTIONAL_ID, _O.DESCRIBE),)),
    leadership.DescribeTransactionsRequest: Rights(parts=(_need(_K.TRANSACTIONAL_ID, _O.DESCRIBE), _DESCRIBE)),
    # the cluster
    cluster.DescribeClusterRequest: Rights(note="what may be done with the cluster is told with DESCRIBE on CLUSTER"),
    storage.DescribeLogDirsRequest: _LOOKS,
    configs.ListConfigResourcesRequest: Rights((_need(_K.CLUSTER, _O.DESCRIBE_CONFIGS),)),
    leadership.DescribeQuorumRequest: _LOOKS,
    leadership.ListPartitionReassignmentsRequest: _LOOKS,
    leadership.AlterPartitionReassignmentsRequest: _ALTERS,
    leadership.ElectLeadersRequest: _ALTERS,
    security.DescribeAclsRequest: _LOOKS,
    security.CreateAclsRequest: _ALTERS,
    security.DeleteAclsRequest: _ALTERS,
    security.DescribeUserScramCredentialsRequest: _LOOKS,
    security.AlterUserScramCredentialsRequest: _ALTERS,
    security.DescribeClientQuotasRequest: Rights((_need(_K.CLUSTER, _O.DESCRIBE_CONFIGS),)),
    security.AlterClientQuotasRequest: Rights((_need(_K.CLUSTER, _O.ALTER_CONFIGS),)),
}
