"""The kernel that reads COPY's text gives what a plain reader gives, and refuses what that refuses."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.kernels.changes.copy_text import CopyText
from headgate.kernels.changes.row_encoder import RowEncoder
from headgate.model import ProtocolError
from headgate.wire.envelope import packb
from headgate.wire.envelope.layout import Rows
from headgate.wire.pgoutput import Insert, Relation, RelationColumn, ReplicaIdentity, encode_message
from headgate.wire.pgtypes import TypeCatalog
from tests.property.cdc_decode.spooled import framed

RELATION = 77
ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"\\": b"\\"}
Row = tuple[bytes | None, ...]


def copied(rows: list[Row]) -> bytes:
    """As COPY writes rows."""
    unescape = {value[0]: b"\\" + letter for letter, value in ESCAPES.items()}

    def field(value: bytes | None) -> bytes:
        return b"\\N" if value is None else b"".join(unescape.get(byte, bytes([byte])) for byte in value)

    return b"".join(b"\t".join(map(field, row)) + b"\n" for row in rows)


def unescaped(field: bytes) -> bytes | None:
    if field == b"\\N":
        return None
    value, at = b"", 0
    while at < len(field):
        if field[at : at + 1] == b"\\":
            if field[at + 1 : at + 2] not in ESCAPES:
                raise ProtocolError("an escape that is none")
            value += ESCAPES[field[at + 1 : at + 2]]
            at += 2
        else:
            value += field[at : at + 1]
            at += 1
    return value


def parsed(text: bytes, columns: int) -> tuple[list[Row], int]:
    """The whole lines as rows, and how long they are. A line feed ends a line, whatever stands before it."""
    rows: list[Row] = []
    lines = text.split(b"\n")
    for line in lines[:-1]:
        fields = line.split(b"\t") if columns else ([line] if line else [])
        row = tuple(map(unescaped, fields[:columns]))
        if len(fields) != columns:
            raise ProtocolError("other columns")
        rows.append(row)
    return rows, len(text) - len(lines[-1])


def expected(rows: list[Row]) -> bytes:
    return framed(encode_message(Insert(RELATION, row)) for row in rows)


special = st.sampled_from([b"", b"\\", b"\\N", b"\t", b"\n", b"\\.", b"x" * 7, b"x" * 8, b"1234567\\", b"\x00\x01\x08"])
fields = st.none() | special | st.binary(max_size=40) | st.text(alphabet="ab\t\n\\N", max_size=30).map(str.encode)


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[Row]]:
    columns = draw(st.integers(0, 5))
    return columns, draw(st.lists(st.tuples(*[fields] * columns), max_size=12))


@given(tables())
def test_what_copy_writes(table: tuple[int, list[Row]]) -> None:
    columns, rows = table
    text = copied(rows)
    assert parsed(text, columns) == (rows, len(text))
    found = CopyText(RELATION, columns, 100).inserts(text)
    assert found.messages.tobytes() == expected(rows)
    assert (len(found.rows), found.taken) == (len(rows), len(text))


@given(tables(), st.integers(1, 4), st.data())
def test_pieces_of_any_size(table: tuple[int, list[Row]], batch_rows: int, data: st.DataObject) -> None:
    """Rows that a piece ends in the middle of wait for the next, and none comes twice."""
    columns, rows = table
    text = copied(rows)
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=4).map(sorted))
    described = tuple(RelationColumn(False, f"c{number}", 25, -1) for number in range(columns))
    relation = Relation(RELATION, "s", "t", ReplicaIdentity.NOTHING, described)
    readable = all(value is None or _is_text(value) for row in rows for value in row)
    encoder = RowEncoder(relation, TypeCatalog(), "msgpack", batch_rows)
    found: list[bytes] = []
    with contextlib.nullcontext() if readable else pytest.raises(ProtocolError, match="not UTF-8"):
        for start, stop in itertools.pairwise([0, *places, len(text)]):
            arrays = list(encoder.encode(text[start:stop]))
            assert all(0 < len(array) <= batch_rows for array in arrays)
            found += [value for array in arrays for value in array.to_pylist()]
        encoder.finish()
        assert found == [packb(Rows(TypeCatalog()).values(relation, row)) for row in rows]


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def check(text: bytes, columns: int) -> None:
    wanted: Any = None
    with contextlib.suppress(ProtocolError):
        wanted = parsed(text, columns)
    if wanted is None:
        with pytest.raises(ProtocolError):
            CopyText(RELATION, columns, 100).inserts(text)
    else:
        # What is behind the last line feed was not looked at by the plain reader; the kernel may see that it is bad.
        with contextlib.suppress(ProtocolError):
            found = CopyText(RELATION, columns, 100).inserts(text)
            assert (found.messages.tobytes(), found.taken) == (expected(wanted[0]), wanted[1])
        found = CopyText(RELATION, columns, 100).inserts(text[: wanted[1]])
        assert (found.messages.tobytes(), found.taken) == (expected(wanted[0]), wanted[1])


hostile = st.lists(
    st.sampled_from([b"\\", b"N", b"\t", b"\n", b"x", b"\\N", b"\\n", b"\\x", b"\\1", b"abcdefgh", b"\0"])
)


@given(hostile.map(b"".join), st.integers(0, 4))
@example(b"\\", 1)
@example(b"\\N", 1)
@example(b"\\Nx\n", 1)
@example(b"x\\N\n", 1)
@example(b"\\.\n", 1)
@example(b"a\tb\n", 1)
@example(b"a\n", 2)
@example(b"\n", 0)
def test_hostile_text(text: bytes, columns: int) -> None:
    check(text, columns)


@given(st.binary(max_size=100), st.integers(0, 3))
def test_any_bytes(text: bytes, columns: int) -> None:
    check(text, columns)


@given(tables(), st.data())
def test_mutated_text(table: tuple[int, list[Row]], data: st.DataObject) -> None:
    columns, rows = table
    text = bytearray(copied(rows))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.sampled_from([b"", b"\t", b"\n", b"\\", b"\\q"]))
    check(bytes(text), columns)


def test_a_text_that_ends_in_the_middle_of_a_row_is_refused() -> None:
    relation = Relation(RELATION, "s", "t", ReplicaIdentity.NOTHING, (RelationColumn(False, "a", 25, -1),))
    encoder = RowEncoder(relation, TypeCatalog(), "json")
    (column,) = encoder.encode(b"a\nb\nc")
    assert column.to_pylist() == [b'{"a":"a"}', b'{"a":"b"}']
    with pytest.raises(ProtocolError, match="cut off"):
        encoder.finish()
