"""A rolling hash over what was mirrored: a chain over batches, each of which adds its records as they are on the wire.

Either side can be asked for it again: what lies at the other cluster must give the digest that was noted here.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

from headgate.model import StateError
from headgate.shadow.client import Client, ExtTopic, batches_of
from headgate.wire.kafka.batch import COMPRESSION_BITS, HEADER_BYTES, BatchHeader, read_batch_header

__all__ = ["chained", "digest_of_batch", "digest_there"]

_FACTS = Struct(">iqb")  # how many records, the time that theirs count from, the compression
_BYTES = 32


def chained(digest: bytes, header: BatchHeader, batch: bytes | memoryview) -> bytes:
    """Return the digest behind one more batch. What brokers and producers may change of a header does not count."""
    chain = blake2b(digest, digest_size=_BYTES)
    chain.update(_FACTS.pack(header.count, header.base_timestamp, header.attributes & COMPRESSION_BITS))
    chain.update(batch[HEADER_BYTES : header.size])
    return chain.digest()


def digest_of_batch(digest: bytes, batch: bytes) -> bytes:
    """Return the digest behind one more batch, which is whole."""
    return chained(digest, read_batch_header(batch), batch)


def digest_there(client: Client, topic: ExtTopic, partition: int, start: int, stop: int, digest: bytes = b"") -> bytes:
    """Return the digest of the batches that lie at the other cluster from `start` to before `stop`.

    Raises `StateError` if there are others than whole batches one after the other.
    """
    offset = start
    while offset < stop:
        batches = batches_of(client.fetch(topic, partition, offset))
        for header, batch in batches:
            if offset >= stop:
                break
            if header.base_offset != offset or header.last_offset >= stop:
                raise StateError(f"{topic.name}/{partition} has other batches at {offset}", remedy="see docs/shadow.md")
            digest = chained(digest, header, batch)
            offset = header.last_offset + 1
        if not batches:
            raise StateError(f"{topic.name}/{partition} ends before {stop}", remedy="see docs/shadow.md")
    return digest
