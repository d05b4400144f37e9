"""Whatever the rows are: what is compressed can be read again, never grows, and hostile bytes are refused."""

from __future__ import annotations

import contextlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import ProtocolError
from headgate.wire.compress import Decompressor, Dictionary, decompress
from headgate.wire.compress.frames import Compressor
from headgate.wire.compress.tables import TableCompressor
from headgate.wire.compress.training import train

MAX = 1 << 16


def _dictionary() -> Dictionary:
    words = " ".join(f"word{number * 31}" for number in range(40))
    found = train([f"a row of the table, with number {n} and name {n * 7919}: {words}".encode() for n in range(300)])
    assert found is not None
    return found


DICTIONARY = _dictionary()
FRAME = Compressor(dictionary=DICTIONARY).compress(b"a row of the table, with number 5 and name 1: word31 word62 " * 4)

words = [b"a row of the table, with number ", b" and name ", b"12345", b"word31 word62 word93 ", b"\x00", b"other"]
pieces = st.sampled_from(words)
payloads = st.binary(max_size=300) | st.lists(pieces, max_size=60).map(b"".join)
dictionaries = st.sampled_from([None, DICTIONARY])


@given(st.lists(payloads, max_size=20), dictionaries, st.integers(0, 5), st.integers(1, 9))
def test_a_column_is_read_back_and_rows_do_not_grow(
    rows: list[bytes], dictionary: Dictionary | None, skipped: int, level: int
) -> None:
    column = pa.array(rows, pa.binary()).slice(skipped)
    compressor = Compressor(level, dictionary)
    made = compressor.compress_column(column)
    made.validate(full=True)
    assert made.type == pa.binary()
    for before, after in zip(column.to_pylist(), made.to_pylist(), strict=True):
        assert after == compressor.compress(before)
        if after != before:
            assert len(after) < len(before)
            assert decompress(after, dictionary.data if dictionary else None, max_bytes=len(before)) == before


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), payloads), max_size=30))
def test_rows_of_many_tables_stay_in_their_order(rows: list[tuple[str, bytes]]) -> None:
    reader = Decompressor(max_bytes=MAX)
    reader.learn(DICTIONARY.id, DICTIONARY.data)
    worker = TableCompressor({"b": DICTIONARY})
    before = [payload for _, payload in rows]
    made, lines = worker.compress(pa.array([t for t, _ in rows], pa.string()), pa.array(before, pa.binary()))
    for (table, payload), after, line in zip(rows, made.to_pylist(), lines.to_pylist(), strict=True):
        assert (b"Headgate-Dictionary" in line) == (bool(line) and table == "b")
        used = DICTIONARY.id if b"Headgate-Dictionary" in line else ""
        assert reader.decompress(after, "zstd" if line else "", used) == payload
    reports = worker.reports()
    assert sum(report.message_count for report in reports) == len(rows)
    assert sum(report.bytes_in for report in reports) == sum(map(len, before))
    total = sum(map(len, made.to_pylist())) + sum(map(len, lines.to_pylist()))
    assert sum(report.bytes_out for report in reports) == total <= sum(map(len, before))


@given(st.binary(max_size=200), dictionaries)
def test_hostile_bytes_are_refused(payload: bytes, dictionary: Dictionary | None) -> None:
    _refused_or_small(payload, dictionary)
    _refused_or_small(b"\x28\xb5\x2f\xfd" + payload, dictionary)


@given(st.integers(0, len(FRAME) - 1), st.integers(0, 255), st.integers(0, len(FRAME)))
def test_a_damaged_frame_is_refused_or_bounded(place: int, value: int, length: int) -> None:
    damaged = bytearray(FRAME)
    damaged[place] = value
    _refused_or_small(bytes(damaged[:length]), DICTIONARY)


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_dictionary_is_refused_or_bounded(junk: bytes, place: int, value: int) -> None:
    damaged = bytearray(DICTIONARY.data)
    damaged[place % len(damaged)] = value
    for data in (junk, b"\x37\xa4\x30\xec" + junk, bytes(damaged)):
        with contextlib.suppress(ProtocolError):
            assert len(decompress(FRAME, data, max_bytes=MAX)) <= MAX


def _refused_or_small(payload: bytes, dictionary: Dictionary | None) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(decompress(payload, dictionary.data if dictionary else None, max_bytes=MAX)) <= MAX
