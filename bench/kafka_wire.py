"""The Kafka codec: CPU time of the messages that every produce and fetch needs, and of a batch of 100 records."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.harness import Bench
from headgate.wire.kafka import Record, check_crc, encode_batch, placed, read_batch_header, read_records
from headgate.wire.kafka.messages.fetch import FETCH, FetchedPartition, FetchedTopic, FetchResponse
from headgate.wire.kafka.messages.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic

_TURNS = 5


def measure(bench: Bench) -> None:
    batch = encode_batch([Record(number, 1_000 + number, None, b"x" * 100) for number in range(100)])
    produce = _produce(batch)
    answer = FetchResponse(responses=(FetchedTopic(topic="t", partitions=(FetchedPartition(records=batch),)),))
    bench.figure("produce_request_decode_us", _best_us(lambda: PRODUCE.decode_request(produce, 9)))
    bench.figure("fetch_response_encode_us", _best_us(lambda: FETCH.encode_response(answer, 12)))
    bench.figure("batch_header_and_crc_us", _best_us(lambda: check_crc(batch, read_batch_header(batch))))
    bench.figure("batch_placed_us", _best_us(lambda: placed(batch, 5, 0)))
    bench.figure("batch_records_read_us", _best_us(lambda: list(read_records(batch)), 200))


def _produce(batch: bytes) -> bytes:
    topic = ProduceTopic(name="t", partition_data=(ProducePartition(records=batch),))
    return b"".join(PRODUCE.encode_request(ProduceRequest(acks=-1, topic_data=(topic,)), 9))


def _best_us(run: Callable[[], object], count: int = 5_000) -> float:
    return min(_seconds(run, count) for _ in range(_TURNS)) / count * 1e6


def _seconds(run: Callable[[], object], count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        run()
    return time.process_time() - began
