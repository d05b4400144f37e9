"""Frames of the spool: what is written is read, and whatever is not whole is not taken for a frame."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import StateError
from headgate.spool.frames import Request, decode_request, encode_frame, frame_at, skip_frame
from headgate.spool.keys import Seen, read_keys, write_keys
from headgate.spool.segments import scan_segment, segment_path

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
requests = st.builds(
    Request,
    received_us=st.integers(0, 2**62),
    key=st.one_of(st.just(b""), st.binary(min_size=16, max_size=16)),
    client=st.one_of(st.none(), texts),
    path=texts,
    content_type=st.one_of(st.none(), texts),
    headers=st.dictionaries(texts, texts, max_size=4),
    bodies=st.lists(st.binary(max_size=100), min_size=1, max_size=5),
)


@given(st.integers(0, 2**64 - 1), requests)
def test_a_frame_is_read_as_it_was_written(first_row: int, request: Request) -> None:
    data = b"before" + encode_frame(first_row, request) + b"behind"
    frame = frame_at(data, 6)
    assert frame is not None
    assert (frame.first_row, frame.rows, frame.end) == (first_row, len(request.bodies), len(data) - 6)
    assert decode_request(data, frame) == request


@given(requests, st.data())
def test_a_frame_that_was_cut_or_changed_is_none(request: Request, data: st.DataObject) -> None:
    whole = encode_frame(7, request)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert frame_at(whole[:cut], 0) is None
    place, change = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    damaged = bytearray(whole)
    damaged[place] ^= change
    assert frame_at(damaged, 0) is None


@given(st.binary(max_size=200), st.integers(0, 250))
def test_any_bytes_are_a_frame_or_none(data: bytes, start: int) -> None:
    assert frame_at(data, start) is None  # a checksum that fits by chance would be news
    frame = skip_frame(data, start)
    assert frame is None or frame.end <= len(data)


@given(st.lists(requests, max_size=6), st.binary(max_size=60))
def test_a_segment_is_intact_up_to_its_torn_tail(written: list[Request], torn: bytes) -> None:
    row, data = 10, b""
    for request in written:
        data += encode_frame(row, request)
        row += len(request.bodies)
    with tempfile.TemporaryDirectory() as name:
        segment_path(Path(name), 10).write_bytes(data + torn)
        scan = scan_segment(Path(name), 10)
    assert (scan.next_row, scan.intact_bytes) == (row, len(data))
    assert [key for key, _ in scan.keys] == [request.key for request in written if request.key]


def test_a_frame_with_other_content_is_a_typed_error() -> None:
    good = encode_frame(1, Request(1, b"", None, "/", None, {}, [b"a", b"b"]))
    frame = frame_at(good, 0)
    assert frame is not None
    with pytest.raises(StateError, match="number of rows differs"):
        decode_request(good, frame._replace(rows=3))
    with pytest.raises(StateError, match="cannot be read"):
        decode_request(b"\xc1" * 40, frame._replace(end=40))


@given(
    st.lists(
        st.tuples(
            st.binary(min_size=16, max_size=16),
            st.builds(Seen, st.integers(0, 2**63), st.integers(0, 2**63), st.integers(0, 2**32 - 1)),
        ),
        max_size=5,
    ),
    st.data(),
)
def test_keys_are_read_as_written_or_refused(entries: list[tuple[bytes, Seen]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "1.keys"
        write_keys(path, entries)
        assert list(read_keys(path)) == entries
        damaged = bytearray(path.read_bytes())
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(StateError, match="keys"):
            list(read_keys(path))
