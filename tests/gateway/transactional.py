"""A transactional producer that does what it is told to, also what no client would."""

from __future__ import annotations

import time
from typing import Any

from headgate.wire.kafka import Record, encode_batch, read_records, split_batches
from headgate.wire.kafka.messages.commits import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
)
from headgate.wire.kafka.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from headgate.wire.kafka.messages.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headgate.wire.kafka.messages.produce import (
    INIT_PRODUCER_ID,
    PRODUCE,
    InitProducerIdRequest,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from headgate.wire.kafka.messages.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TransactionTopic,
    TxnCommitPartition,
    TxnCommitTopic,
    TxnOffsetCommitRequest,
)
from tests.gateway.raw import RawClient

__all__ = ["RawProducer", "fetch_committed", "latest", "stored_offset"]

NOW_MS = time.time_ns() // 1_000_000


class RawProducer:
    """One transactional id over one connection. Every call returns the code of the answer."""

    def __init__(self, client: RawClient, name: str, *, timeout_ms: int = 60_000, init_version: int = 4) -> None:
        self.client, self.name = client, name
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        self.given = client.ask(INIT_PRODUCER_ID, init_version, request)
        self.producer_id, self.epoch = self.given.producer_id, self.given.producer_epoch
        self.sequences: dict[tuple[str, int], int] = {}

    def init_again(self, **fields: Any) -> Any:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000, **fields)
        return self.client.ask(INIT_PRODUCER_ID, 4, request)

    def add(self, topic: str, *partitions: int, version: int = 3) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(TransactionTopic(topic, partitions or (0,)),),
        )
        answer = self.client.ask(ADD_PARTITIONS_TO_TXN, version, request)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def write(
        self, topic: str, *values: bytes, partition: int = 0, version: int = 9, key: bytes = b"k", **header: Any
    ) -> int:
        return int(self.written(topic, *values, partition=partition, version=version, key=key, **header).error_code)

    def written(
        self, topic: str, *values: bytes, partition: int = 0, version: int = 9, key: bytes = b"k", **header: Any
    ) -> Any:
        sequence = self.sequences.get((topic, partition), 0)
        fields = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "is_transactional": True,
        }
        batch = encode_batch([Record(at, NOW_MS, key, value) for at, value in enumerate(values)], **fields | header)
        data = ProduceTopic(name=topic, partition_data=(ProducePartition(index=partition, records=batch),))
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=10_000, topic_data=(data,))
        answer = self.client.ask(PRODUCE, version, request).responses[0].partition_responses[0]
        if answer.error_code == 0 and "base_sequence" not in header:
            self.sequences[topic, partition] = sequence + len(values)
        return answer

    def add_offsets(self, group: str) -> int:
        request = AddOffsetsToTxnRequest(self.name, self.producer_id, self.epoch, group)
        return int(self.client.ask(ADD_OFFSETS_TO_TXN, 3, request).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int = 3, **fields: Any) -> int:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=(TxnCommitTopic(topic, (TxnCommitPartition(0, offset),)),),
            **fields,
        )
        answer = self.client.ask(TXN_OFFSET_COMMIT, version, request)
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool, version: int = 3) -> int:
        request = EndTxnRequest(self.name, self.producer_id, self.epoch, commit)
        answer = self.client.ask(END_TXN, version, request)
        if version >= 5 and answer.error_code == 0:
            if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)


def fetch_committed(client: RawClient, topic: str, offset: int = 0, *, wait_ms: int = 0) -> tuple[Any, list[bytes]]:
    """The answer for partition 0 at read_committed, and the values of the records that a client would show."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=(FetchTopic(topic=topic, partitions=(partition,)),),
    )
    answer = client.ask(FETCH, 11, request).responses[0].partitions[0]
    return answer, _shown(answer)


def _shown(answer: Any) -> list[bytes]:
    """As Kafka's clients do it, from what is in the answer alone."""
    aborted = sorted(answer.aborted_transactions or (), key=lambda each: each.first_offset)
    hidden: set[int] = set()
    found: list[bytes] = []
    for header, data in split_batches(answer.records):
        while aborted and aborted[0].first_offset <= header.last_offset:
            hidden.add(aborted.pop(0).producer_id)
        if header.is_control:
            hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            found += [record.value or b"" for record in read_records(data)]
    return found


def latest(client: RawClient, topic: str, *, isolation: int, timestamp: int = -1) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        isolation_level=isolation, topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),)
    )
    return int(client.ask(LIST_OFFSETS, 7, request).topics[0].partitions[0].offset)


def stored_offset(client: RawClient, group: str, topic: str, *, stable: bool = True) -> tuple[int, int]:
    """The code and the offset of partition 0."""
    wanted = OffsetFetchGroup(group, topics=(OffsetFetchGroupTopic(topic, partition_indexes=(0,)),))
    answer = client.ask(OFFSET_FETCH, 8, OffsetFetchRequest(groups=(wanted,), require_stable=stable))
    (found,) = answer.groups[0].topics[0].partitions
    return int(found.error_code), int(found.committed_offset)
