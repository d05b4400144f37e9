"""MessagePack: the edges of every form, and bytes that lie."""

from __future__ import annotations

import msgspec
import pytest

from headgate.model import DataError, ProtocolError
from headgate.wire.envelope import MAX_DEPTH, packb, unpackb
from headgate.wire.pgtypes import Value

EDGES: list[Value] = [
    None, True, False, 0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63, 2**64 - 1,
    -1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63),
    0.0, -0.0, 1.5, float("inf"), "", "a" * 31, "a" * 32, "é" * 128, "a" * 65536, b"", b"x" * 255, b"x" * 256,
    b"x" * 65536, [], [1] * 15, [1] * 16, [None] * 65536, {}, {str(n): n for n in range(15)},
    {str(n): n for n in range(16)}, {str(n): n for n in range(65536)}, [{"a": [b"b", "c"]}],
]  # fmt: skip


@pytest.mark.parametrize("value", EDGES, ids=lambda value: f"{type(value).__name__}-{str(value)[:12]}")
def test_edges_agree_with_another_implementation(value: Value) -> None:
    data = packb(value)
    assert data == msgspec.msgpack.encode(value)
    assert unpackb(data) == value


def test_forms_we_do_not_write_are_read() -> None:
    assert unpackb(bytes.fromhex("ca3fc00000")) == 1.5
    assert unpackb(bytes.fromhex("d300000000000000 05")) == 5
    assert unpackb(bytes.fromhex("db00000001 61")) == "a"


@pytest.mark.parametrize(
    "text",
    [
        "", "c1", "c7 00 01", "d4 00 00", "d8", "a1", "a1 ff", "91", "81 a1 61", "c4 05 00", "dd ffffffff",
        "df ffffffff", "c6 ffffffff 00", "db ffffffff", "cf 00", "81 01 02", "82 a1 61 01 a1 61 02", "00 00",
    ],
)  # fmt: skip
def test_hostile_bytes(text: str) -> None:
    with pytest.raises(ProtocolError):
        unpackb(bytes.fromhex(text))


def test_depth_is_bounded_both_ways() -> None:
    fits = b"\x91" * MAX_DEPTH + b"\x00"
    assert packb(unpackb(fits)) == fits
    with pytest.raises(ProtocolError, match="deeply"):
        unpackb(b"\x91" + fits)
    with pytest.raises(ProtocolError, match="deeply"):
        unpackb(b"\x91" * 1_000_000)
    with pytest.raises(DataError, match="deeply"):
        packb([unpackb(fits)])


def test_integers_are_bounded() -> None:
    for value in (2**64, -(2**63) - 1):
        with pytest.raises(DataError, match="too large"):
            packb(value)


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(DataError, match="not Unicode"):
        packb("\ud800")
