"""The intake makes of any stream what the reference assembler makes of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.kernels.frames import COUNT_AT
from headgate.model import ProtocolError
from headgate.sources.postgres_cdc.intake import Intake
from headgate.sources.postgres_cdc.spool import SpoolIndex, SpoolWriter
from headgate.wire.pgoutput import (
    Begin,
    Commit,
    Decoder,
    Insert,
    LogicalMessage,
    Message,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    encode_message,
)

Open = Callable[[Path], SpoolWriter]

RELATION = Relation(
    relation_id=7,
    schema="public",
    name="t",
    identity=ReplicaIdentity.DEFAULT,
    columns=(RelationColumn(is_key=True, name="id", type_id=23, type_modifier=-1),),
)


def insert(value: bytes, xid: int | None = None) -> Insert:
    return Insert(xid=xid, relation_id=7, new=(value,))


def take_all(writer: SpoolWriter, messages: list[Message]) -> list[tuple[int, list[Message]]]:
    """Feed the messages, then read the spool back: (end LSN, decoded messages) per transaction."""
    intake = Intake(writer)
    for number, message in enumerate(messages):
        intake.take(encode_message(message), 1000 + number)
    writer.flush()
    index = SpoolIndex(writer.directory)
    index.refresh()
    found = []
    start = 0
    while (end := index.end_within(start, 1, None)) != start:
        (part,) = index.slices(start, end)
        data = Path(part.path).read_bytes()[part.offset : part.offset + part.length]
        found.append((end, _split(data)))
        start = end
    return found


def _split(data: bytes) -> list[Message]:
    messages = []
    decoder = Decoder()
    while data:
        (length,) = struct.unpack_from("<I", data)
        message, data = data[4 : 4 + length], data[4 + length :]
        if message[:1] == b"B":
            (count,) = struct.unpack_from("!I", message, COUNT_AT)
            message = message[:COUNT_AT]
        messages.append(decoder.decode(message))
    assert count == sum(isinstance(message, Insert | LogicalMessage) for message in messages)
    return messages


def begin(lsn: int, xid: int) -> Begin:
    return Begin(final_lsn=lsn, commit_time=5, xid=xid)


def commit(lsn: int) -> Commit:
    return Commit(commit_lsn=lsn, end_lsn=lsn + 10, commit_time=5)


def test_a_plain_transaction(open_spool: Open, tmp_path: Path) -> None:
    ((end, messages),) = take_all(
        open_spool(tmp_path), [begin(90, 3), RELATION, insert(b"1"), insert(b"2"), commit(90)]
    )
    assert end == 100
    assert messages == [begin(90, 3), RELATION, insert(b"1"), insert(b"2")]


def test_an_empty_transaction_is_no_news(open_spool: Open, tmp_path: Path) -> None:
    assert take_all(open_spool(tmp_path), [begin(90, 3), commit(90)]) == []


def test_a_streamed_transaction_loses_its_rolled_back_part_but_no_description(open_spool: Open, tmp_path: Path) -> None:
    streamed_relation = Relation(7, "public", "t", ReplicaIdentity.DEFAULT, RELATION.columns, xid=5)
    messages: list[Message] = [
        StreamStart(xid=4, first_segment=True),
        insert(b"1", xid=4),
        streamed_relation,
        insert(b"2", xid=5),
        StreamStop(),
        begin(50, 9),
        insert(b"other"),
        commit(50),
        StreamStart(xid=4, first_segment=False),
        insert(b"3", xid=4),
        StreamStop(),
        StreamAbort(xid=4, subxid=5),
        StreamCommit(xid=4, commit_lsn=90, end_lsn=100, commit_time=5),
    ]
    first, second = take_all(open_spool(tmp_path), messages)
    assert first == (60, [begin(50, 9), insert(b"other")])
    assert second == (100, [begin(90, 4), insert(b"1"), RELATION, insert(b"3")])


def test_a_streamed_transaction_that_is_rolled_back_leaves_nothing(open_spool: Open, tmp_path: Path) -> None:
    messages: list[Message] = [
        StreamStart(xid=4, first_segment=True),
        insert(b"x" * 600_000, xid=4),
        StreamStop(),
        StreamAbort(xid=4, subxid=4),
    ]
    assert take_all(open_spool(tmp_path), messages) == []
    assert list(tmp_path.glob("*.open")) == []


def test_a_large_streamed_transaction_goes_through_its_file(open_spool: Open, tmp_path: Path) -> None:
    rows = [insert(b"%d" % number + b"x" * 5000, xid=4) for number in range(500)]
    messages: list[Message] = [StreamStart(xid=4, first_segment=True), *rows, StreamStop()]
    messages.append(StreamCommit(xid=4, commit_lsn=90, end_lsn=100, commit_time=5))
    ((_, found),) = take_all(open_spool(tmp_path), messages)
    assert [m.new for m in found[1:] if isinstance(m, Insert)] == [row.new for row in rows]


def test_a_message_without_a_transaction_becomes_one(open_spool: Open, tmp_path: Path) -> None:
    message = LogicalMessage(transactional=False, lsn=1000, prefix="p", content=b"c")
    ((end, messages),) = take_all(open_spool(tmp_path), [message])
    assert end == 1001
    assert messages[1] == message


@pytest.mark.parametrize("data", [b"Z123", b"C", b"R", b"c12", encode_message(commit(9))])
def test_nonsense_raises_our_error(open_spool: Open, tmp_path: Path, data: bytes) -> None:
    intake = Intake(open_spool(tmp_path))
    with pytest.raises(ProtocolError):
        intake.take(data, 1)
