"""Frames and LSNs, against bytes written out by hand."""

from __future__ import annotations

import pytest

from headgate.model import ProtocolError
from headgate.wire.pgoutput import (
    PG_EPOCH_UNIX_US,
    Keepalive,
    StandbyStatus,
    XLogData,
    decode_frame,
    encode_status,
    format_lsn,
    parse_lsn,
)

LSN = 0x16B374D848


def test_lsn_text() -> None:
    assert format_lsn(LSN) == "16/B374D848"
    assert format_lsn(0) == "0/0"
    assert format_lsn(2**64 - 1) == "FFFFFFFF/FFFFFFFF"
    assert parse_lsn("16/B374D848") == parse_lsn("16/b374d848") == LSN
    assert parse_lsn("0/00000A") == 10


@pytest.mark.parametrize("text", ["", "/", "16", "16/", "/1", "1/2/3", "g/0", "-1/0", "0/123456789", " 0/0", "0x1/0"])
def test_bad_lsn(text: str) -> None:
    with pytest.raises(ProtocolError, match="not an LSN"):
        parse_lsn(text)


def test_xlog_data() -> None:
    data = bytes.fromhex("77 00000016B374D848 00000016B374D900 0000000000000005") + b"payload"
    assert decode_frame(data) == XLogData(LSN, LSN + 0xB8, 5, b"payload")
    assert decode_frame(memoryview(data)) == decode_frame(data)


def test_keepalive() -> None:
    data = bytes.fromhex("6b 00000016B374D848 FFFFFFFFFFFFFFFF 01")
    assert decode_frame(data) == Keepalive(LSN, -1, reply_requested=True)
    assert decode_frame(data[:-1] + b"\0") == Keepalive(LSN, -1, reply_requested=False)


@pytest.mark.parametrize("data", [b"", b"w", b"k", b"z" * 40, b"w" + bytes(23), b"k" + bytes(16), b"k" + bytes(18)])
def test_bad_frame(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a replication frame"):
        decode_frame(data)


def test_status_update() -> None:
    status = StandbyStatus(written=3, flushed=2, applied=1, sent_at=7, reply_requested=True)
    assert encode_status(status) == bytes.fromhex(
        "72 0000000000000003 0000000000000002 0000000000000001 0000000000000007 01"
    )


def test_epoch() -> None:
    assert PG_EPOCH_UNIX_US == 10957 * 86_400 * 1_000_000
