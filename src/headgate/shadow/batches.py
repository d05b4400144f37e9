"""What becomes of a stored batch on its way to another cluster: mostly nothing but a new stamp on its header.

A batch is written anew, record by record, only if its records cannot go as they are: some were compacted away, the log
dated them, or only a part of the keys is mirrored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

import msgspec

from headgate.wire.kafka.batch import BatchHeader, check_crc, read_batch_header
from headgate.wire.kafka.records import Record, encode_batch, read_records

__all__ = ["Outgoing", "is_chosen", "outgoing"]

ALL = 100


class Outgoing(msgspec.Struct, frozen=True):
    """A batch to send, and which offsets of the log its records had."""

    data: bytes  # without a stamp
    count: int
    runs: tuple[tuple[int, int], ...]  # first offset, and the one behind the last
    mark: int  # all before this offset is done when the batch is


def outgoing(batch: bytes, percent: int = ALL) -> Outgoing | None:
    """Return what is sent for a batch in its place in the log; None if nothing of it is.

    Raises `ProtocolError` for one that is damaged: with a new stamp it would look sound.
    """
    header = read_batch_header(batch)
    check_crc(batch, header)
    mark = header.last_offset + 1
    if percent == ALL and _goes_as_it_is(header):
        return Outgoing(batch, header.count, ((header.base_offset, mark),), mark)
    kept = [record for record in read_records(batch) if percent == ALL or is_chosen(record, percent)]
    if not kept:
        return None
    renumbered = [msgspec.structs.replace(record, offset=index) for index, record in enumerate(kept)]
    return Outgoing(encode_batch(renumbered, codec=header.codec), len(kept), tuple(_runs(kept)), mark)


def is_chosen(record: Record, percent: int) -> bool:
    """Whether a record is among so many of a hundred: all records of a key are, or none."""
    chosen_by = record.value if record.key is None else record.key
    return crc32(chosen_by or b"") % 100 < percent


def _goes_as_it_is(header: BatchHeader) -> bool:
    return header.count == header.last_offset_delta + 1 and not header.is_log_append_time


def _runs(records: Sequence[Record]) -> Iterator[tuple[int, int]]:
    first = end = records[0].offset
    for record in records:
        if record.offset != end:
            yield first, end
            first = record.offset
        end = record.offset + 1
    yield first, end
