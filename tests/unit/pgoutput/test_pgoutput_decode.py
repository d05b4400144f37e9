"""Every message, from bytes written out by hand as the PostgreSQL documentation lays them out; and bytes that lie."""

from __future__ import annotations

import pytest

from headgate.model import ProtocolError
from headgate.wire.pgoutput import (
    UNCHANGED,
    Begin,
    BinaryValue,
    Commit,
    Decoder,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldKind,
    OldRow,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
    encode_message,
)

L1, L2, T, X = "0000000000000101", "0000000000000202", "0000000000000303", "00000404"
ROW = "0003 74 00000002 6869 6e 75"  # text "hi", NULL, unchanged
COLUMNS = (b"hi", None, UNCHANGED)

VECTORS: dict[str, Message] = {
    f"42 {L1} {T} {X}": Begin(0x101, 0x303, 0x404),
    f"43 00 {L1} {L2} {T}": Commit(0x101, 0x202, 0x303),
    f"4f {L1} 6e6f646500": Origin(0x101, "node"),
    "52 00000010 7300 7400 64 0002 01 696400 00000017 ffffffff 00 766100 00000413 00000006": Relation(
        0x10,
        "s",
        "t",
        ReplicaIdentity.DEFAULT,
        (RelationColumn(True, "id", 23, -1), RelationColumn(False, "va", 1043, 6)),
    ),
    "52 00000010 00 7400 66 0000": Relation(0x10, "pg_catalog", "t", ReplicaIdentity.FULL, ()),
    "59 00004000 7300 6d6f6f6400": Type(0x4000, "s", "mood"),
    f"49 00000010 4e {ROW}": Insert(0x10, COLUMNS),
    "49 00000010 4e 0001 62 00000004 00000007": Insert(0x10, (BinaryValue(b"\0\0\0\7"),)),
    f"55 00000010 4e {ROW}": Update(0x10, None, COLUMNS),
    f"55 00000010 4b {ROW} 4e {ROW}": Update(0x10, OldRow(OldKind.KEY, COLUMNS), COLUMNS),
    f"55 00000010 4f {ROW} 4e {ROW}": Update(0x10, OldRow(OldKind.ROW, COLUMNS), COLUMNS),
    f"44 00000010 4b {ROW}": Delete(0x10, OldRow(OldKind.KEY, COLUMNS)),
    f"44 00000010 4f {ROW}": Delete(0x10, OldRow(OldKind.ROW, COLUMNS)),
    "54 00000002 03 00000010 00000011": Truncate((0x10, 0x11), True, True),
    "54 00000001 01 00000010": Truncate((0x10,), True, False),
    "54 00000001 02 00000010": Truncate((0x10,), False, True),
    f"4d 01 {L1} 7000 00000002 00ff": LogicalMessage(True, 0x101, "p", b"\x00\xff"),
    f"4d 00 {L1} 00 00000000": LogicalMessage(False, 0x101, "", b""),
    f"63 {X} 00 {L1} {L2} {T}": StreamCommit(0x404, 0x101, 0x202, 0x303),
    f"41 {X} 00000405": StreamAbort(0x404, 0x405),
    f"41 {X} 00000405 {L1} {T}": StreamAbort(0x404, 0x405, 0x101, 0x303),
}


@pytest.mark.parametrize(("text", "message"), VECTORS.items(), ids=lambda value: type(value).__name__)
def test_vectors(text: str, message: Message) -> None:
    data = bytes.fromhex(text)
    assert Decoder(4).decode(data) == message
    assert encode_message(message) == data


def test_streamed_block() -> None:
    decoder = Decoder(2)
    assert decoder.decode(bytes.fromhex(f"53 {X} 01")) == StreamStart(0x404, first_segment=True)
    blocks = [decoder.in_block]
    assert decoder.decode(bytes.fromhex(f"4f {L1} 6e00")) == Origin(0x101, "n")  # an origin carries no xid, even here
    for text, expected in {
        "52 00000405 00000010 7300 7400 64 0000": Relation(0x10, "s", "t", ReplicaIdentity.DEFAULT, (), 0x405),
        "59 00000405 00004000 7300 6d00": Type(0x4000, "s", "m", 0x405),
        f"49 00000405 00000010 4e {ROW}": Insert(0x10, COLUMNS, 0x405),
        f"55 00000405 00000010 4e {ROW}": Update(0x10, None, COLUMNS, 0x405),
        f"44 00000405 00000010 4b {ROW}": Delete(0x10, OldRow(OldKind.KEY, COLUMNS), 0x405),
        "54 00000405 00000001 00 00000010": Truncate((0x10,), False, False, 0x405),
        f"4d 00000405 01 {L1} 7000 00000000": LogicalMessage(True, 0x101, "p", b"", 0x405),
    }.items():
        assert decoder.decode(bytes.fromhex(text)) == expected
    assert decoder.decode(b"E") == StreamStop()
    assert [*blocks, decoder.in_block] == [True, False]
    assert decoder.decode(bytes.fromhex(f"49 00000010 4e {ROW}")) == Insert(0x10, COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        "42",
        f"42 {L1} {T} {X} 00",  # a byte too many
        f"43 01 {L1} {L2} {T}",  # flags that do not exist
        f"4f {L1} 6e6f6465",  # a name without its end
        f"4f {L1} ff00",  # a name that is not UTF-8
        "52 00000010 7300 7400 7a 0000",  # no such replica identity
        "52 00000010 7300 7400 64 ffff",  # columns that are not there
        "52 00000010 7300 7400 64 0001 02 696400 00000017 ffffffff",  # no such column flag
        "49 00000010 4b 0000",  # an insert needs a new row
        "49 00000010 4e ffff 6e",  # 65535 columns, one there
        "49 00000010 4e 0001 7a",  # no such kind of column
        "49 00000010 4e 0001 74 ffffffff 61",  # a column of 4 GB, or of -1
        "49 00000010 4e 0001 74 00000002 61",
        "55 00000010 4b 0000",  # no new row
        "55 00000010 4b 0000 4b 0000",
        "55 00000010 58 0000 4e 0000",
        "44 00000010 4e 0000",  # a delete needs an old row
        "54 ffffffff 00 00000010",  # 4 billion tables
        "54 00000002 00 00000010",
        "54 00000001 04 00000010",  # no such truncate flag
        f"4d 02 {L1} 7000 00000000",
        f"4d 01 {L1} 7000 ffffffff 00",
        f"53 {X} 02",
        f"41 {X} 00000405 {L1}",  # an LSN without its time
    ],
)
def test_hostile_bytes(text: str) -> None:
    with pytest.raises(ProtocolError, match="malformed"):
        Decoder(4).decode(bytes.fromhex(text))


@pytest.mark.parametrize(("protocol", "allowed"), [(1, "BCORYIUDTM"), (2, "BCORYIUDTMSEcA")])
def test_messages_of_later_protocols_are_refused(protocol: int, allowed: str) -> None:
    for tag in set("BCORYIUDTMSEcAbPKrp") - set(allowed):
        with pytest.raises(ProtocolError, match=f"no message of protocol {protocol}"):
            Decoder(protocol).decode(tag.encode() + bytes(60))


def test_no_tag() -> None:
    for data in (b"", b"X", b"\xff"):
        with pytest.raises(ProtocolError, match="no message"):
            Decoder(4).decode(data)


def test_unknown_protocol() -> None:
    with pytest.raises(ProtocolError, match="no protocol version 5"):
        Decoder(5)


def test_blocks_do_not_nest_and_do_not_hold_transactions() -> None:
    decoder = Decoder(4)
    with pytest.raises(ProtocolError, match="without Stream Start"):
        decoder.decode(b"E")
    decoder.decode(bytes.fromhex(f"53 {X} 01"))
    for text in (f"53 {X} 01", f"42 {L1} {T} {X}", f"41 {X} {X}", f"63 {X} 00 {L1} {L2} {T}"):
        with pytest.raises(ProtocolError, match="inside a streamed block"):
            decoder.decode(bytes.fromhex(text))
    assert decoder.decode(b"E") == StreamStop()


def test_errors_do_not_show_row_values() -> None:
    with pytest.raises(ProtocolError) as caught:
        Decoder(1).decode(bytes.fromhex("49 00000010 4e 0002 74 00000006") + b"secret")
    assert "secret" not in caught.value.to_text()


def test_encoding_something_else() -> None:
    with pytest.raises(TypeError, match="not a pgoutput message: str"):
        encode_message("Begin")  # type: ignore[arg-type]
