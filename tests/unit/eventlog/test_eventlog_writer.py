"""The writer: numbers, segments, torn tails, retention."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from headgate.eventlog import Entry, LogOptions, LogReader, LogWriter, Record
from headgate.eventlog.reader import LogCursor
from headgate.eventlog.records import HEADER, MAX_PAYLOAD_BYTES
from headgate.model import DataError, OccupiedError, StateError


def entries(count: int, size: int = 10) -> list[Entry]:
    return [Entry(1, 7, bytes([65 + number % 26]) * size) for number in range(count)]


def stored(path: Path) -> list[Record]:
    with LogReader(path) as reader:
        return [record for records in reader.read(0) for record in records]


def all_of(cursor: LogCursor) -> list[int]:
    found: list[int] = []
    while records := cursor.read():
        found += [record.seq for record in records]
    return found


def names(path: Path) -> list[str]:
    return sorted((each.name for each in path.glob("evts-*")), key=lambda name: int(name[5:]))


def test_numbers_begin_at_one_and_rise(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        assert writer.append_all(entries(3)) == [1, 2, 3]
    with LogWriter(tmp_path) as writer:
        assert writer.append_all(entries(2)) == [4, 5]
    assert [record.seq for record in stored(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_log_can_go_on_where_another_one_ended(tmp_path: Path) -> None:
    with LogWriter(tmp_path, LogOptions(first_seq=5_000)) as writer:
        assert writer.append_all(entries(2)) == [5_000, 5_001]
    with LogWriter(tmp_path, LogOptions(first_seq=4_000)) as writer:  # never back
        assert writer.append_all(entries(1)) == [5_002]
    with LogWriter(tmp_path, LogOptions(first_seq=9_000)) as writer:
        assert writer.append_all(entries(1)) == [9_000]
    assert [record.seq for record in stored(tmp_path)] == [5_000, 5_001, 5_002, 9_000]


def test_the_bytes_are_those_of_the_format(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append_all([Entry(4, 0x0102030405060708, b"body")])
    expected = bytes.fromhex("0c000000 04000000 08000000 0807060504030201 0100000000000000") + b"body"
    assert (tmp_path / "evts-0").read_bytes() == expected + google_crc32c.value(expected).to_bytes(4, "little")


def test_a_log_of_before_checksums_is_read_and_goes_on(tmp_path: Path) -> None:
    old = [HEADER.pack(0, 1, 4, 7, seq) + b"old%d" % seq for seq in (1, 2, 3)]
    LogWriter(tmp_path).close()
    (tmp_path / "evts-0").write_bytes(b"".join(old))
    with LogWriter(tmp_path) as writer:
        writer.append_all([Entry(1, 7, b"new4")])
        assert writer.scrub(lambda record: record.payload == b"old2") == 1
    assert [record.payload for record in stored(tmp_path)] == [b"old1", b"old3", b"new4"]


def test_a_payload_may_hold_its_own_number(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append_all([Entry(1, 1, lambda seq: b"%d" % seq) for _ in range(3)])
    assert [record.payload for record in stored(tmp_path)] == [b"1", b"2", b"3"]


def test_a_payload_that_cannot_be_made_costs_nobody_else(tmp_path: Path) -> None:
    def fail(seq: int) -> bytes:
        raise ZeroDivisionError(seq)

    with LogWriter(tmp_path) as writer:
        first, second, third = writer.append([Entry(1, 1, b"a"), Entry(1, 1, fail), Entry(1, 1, b"b")])
    assert (first, third) == (1, 2)
    assert isinstance(second, ZeroDivisionError)
    assert [record.payload for record in stored(tmp_path)] == [b"a", b"b"]


@pytest.mark.parametrize(
    "entry",
    [Entry(0, 1, b""), Entry(256, 1, b""), Entry(1, -1, b""), Entry(1, 1, bytes(MAX_PAYLOAD_BYTES + 1))],
    ids=["no kind", "kind", "uid", "size"],
)
def test_what_could_not_be_read_back_is_refused(tmp_path: Path, entry: Entry) -> None:
    with LogWriter(tmp_path) as writer, pytest.raises(DataError):
        writer.append_all([entry])
    assert stored(tmp_path) == []


def test_a_segment_ends_by_events_or_by_bytes(tmp_path: Path) -> None:
    with LogWriter(tmp_path, LogOptions(segment_events=4)) as writer:
        writer.append_all(entries(10))
    assert names(tmp_path) == ["evts-0", "evts-5", "evts-9"]
    with LogWriter(tmp_path, LogOptions(segment_bytes=100)) as writer:
        writer.append_all(entries(8))
    assert names(tmp_path) == ["evts-0", "evts-5", "evts-9", "evts-12", "evts-15", "evts-18"]
    assert [record.seq for record in stored(tmp_path)] == list(range(1, 19))


def test_there_is_one_writer(tmp_path: Path) -> None:
    with LogWriter(tmp_path), pytest.raises(OccupiedError, match="another process"):
        LogWriter(tmp_path)
    LogWriter(tmp_path).close()


def test_a_tail_torn_at_any_byte_is_cut_off_and_no_number_comes_back(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append_all([Entry(1, 7, b"x" * size) for size in (0, 9, 30)])
    whole = (tmp_path / "evts-0").read_bytes()
    ends = [32, 32 + 41, len(whole)]
    last_given = 3
    for cut in range(len(whole) + 1):
        (tmp_path / "evts-0").write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends)
        with LogWriter(tmp_path) as writer:
            assert [record.seq for record in stored(tmp_path)] == [1, 2, 3][:kept]
            (seq,) = writer.append_all([Entry(2, 8, b"new")])
        assert seq > last_given
        last_given = seq
        assert stored(tmp_path)[-1] == Record(seq, 2, 8, b"new")


def test_after_a_crash_the_head_is_the_last_record(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    writer.append_all(entries(5))
    writer._release()  # as a crash does: nothing is given back
    with LogWriter(tmp_path) as writer, LogReader(tmp_path) as reader:
        assert reader.head_seq == 5
        (seq,) = writer.append_all(entries(1))
        assert seq > 5
        assert reader.head_seq == seq
        assert [record.seq for records in reader.read(4) for record in records] == [5, seq]


def test_a_tail_of_zeros_is_torn(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append_all(entries(2))
    with (tmp_path / "evts-0").open("ab") as file:
        file.write(bytes(5000))
    with LogWriter(tmp_path) as writer:
        assert writer.append_all(entries(1)) == [3]
    assert len(stored(tmp_path)) == 3


@pytest.mark.parametrize("field", [0, 4, 8, 20], ids=["flags", "kind", "length", "seq"])
def test_a_damaged_middle_is_not_taken_for_a_torn_tail(tmp_path: Path, field: int) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append_all(entries(5))
    path = tmp_path / "evts-0"
    data = bytearray(path.read_bytes())
    data[42 * 2 + field + 3] = 0xFF
    path.write_bytes(data)
    with pytest.raises(StateError) as raised:
        LogWriter(tmp_path)
    assert raised.value.where == f"{path}, offset 84"
    assert path.read_bytes() == data
    with LogReader(tmp_path) as reader, reader.cursor(0) as cursor:
        assert all_of(cursor) == [1, 2, 4, 5]
        assert [(each.offset, each.end, each.after, each.before) for each in cursor.damage] == [(84, 126, 2, 4)]
    path.unlink()
    LogWriter(tmp_path).close()  # the failed attempt let go of the lock


def test_a_damaged_old_segment_is_found_when_its_index_is_gone(tmp_path: Path) -> None:
    with LogWriter(tmp_path, LogOptions(segment_events=3)) as writer:
        writer.append_all(entries(7))
    (tmp_path / "index.json").unlink()
    path = tmp_path / "evts-0"
    path.write_bytes(path.read_bytes()[:-1])
    with LogWriter(tmp_path) as writer:
        assert writer.append_all(entries(1)) == [8]
    with LogReader(tmp_path) as reader, reader.cursor(0) as cursor:
        assert all_of(cursor) == [1, 2, 4, 5, 6, 7, 8]
        assert [(each.after, each.before) for each in cursor.damage] == [(2, 4)]


def test_a_missing_segment_is_said(tmp_path: Path) -> None:
    options = LogOptions(segment_events=3)
    with LogWriter(tmp_path, options) as writer:
        writer.append_all(entries(12))
    (tmp_path / "evts-4").unlink()
    for _ in range(2):  # also when the index was saved since
        with LogWriter(tmp_path, options) as writer:
            writer.append_all(entries(4))
        with LogReader(tmp_path) as reader, reader.cursor(0) as cursor:
            all_of(cursor)
            assert [(Path(each.path).name, each.after, each.before) for each in cursor.damage] == [("evts-0", 3, 7)]


def test_a_last_record_whose_payload_never_reached_the_disk_is_torn(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append_all(entries(3))
    path = tmp_path / "evts-0"
    data = path.read_bytes()
    path.write_bytes(data[:-8] + bytes(8))
    with LogWriter(tmp_path) as writer:
        assert path.stat().st_size == 84
        assert writer.append_all(entries(1)) == [4]
    assert [record.seq for record in stored(tmp_path)] == [1, 2, 4]


def forget(path: Path) -> None:
    path.unlink()


def spoil(path: Path) -> None:
    path.write_bytes(b"[{]")


@pytest.mark.parametrize("harm", [forget, spoil])
def test_the_index_is_made_anew(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    with LogWriter(tmp_path, LogOptions(segment_events=3)) as writer:
        writer.append_all(entries(10))
    harm(tmp_path / "index.json")
    with LogWriter(tmp_path, LogOptions(segment_events=3)) as writer:
        assert writer.append_all(entries(4)) == [11, 12, 13, 14]
    assert [each["start"] for each in json.loads((tmp_path / "index.json").read_text())] == [0, 4, 7, 10, 13]
    assert len(stored(tmp_path)) == 14


def test_segments_go_when_they_are_old(tmp_path: Path) -> None:
    now = [1000.0]
    with LogWriter(tmp_path, LogOptions(segment_events=2, max_age_s=100), clock=lambda: now[0]) as writer:
        writer.append_all(entries(4))
        now[0] = 1050
        writer.append_all(entries(3))
        now[0] = 1120
        assert writer.retain() == 2
        assert [record.seq for record in stored(tmp_path)] == [5, 6, 7]
        with LogReader(tmp_path) as reader:
            assert (reader.oldest_seq, reader.head_seq) == (5, 7)
        now[0] = 2000
        assert writer.retain() == 2
        assert names(tmp_path) == []
        assert writer.append_all(entries(1)) == [8]
    assert names(tmp_path) == ["evts-8"]


def test_numbers_survive_the_removal_of_everything(tmp_path: Path) -> None:
    now = [1000.0]
    options = LogOptions(max_age_s=100)
    with LogWriter(tmp_path, options, clock=lambda: now[0]) as writer:
        writer.append_all(entries(5))
        now[0] = 5000
        writer.retain()
    for _ in range(2):
        with LogWriter(tmp_path, options, clock=lambda: now[0]) as writer:
            assert writer.next_seq == 6
        with LogReader(tmp_path) as reader:
            assert (reader.oldest_seq, reader.head_seq) == (6, 5)
            assert list(reader.read(2)) == []


def test_segments_go_when_they_are_too_many(tmp_path: Path) -> None:
    with LogWriter(tmp_path, LogOptions(segment_events=10, max_bytes=1000)) as writer:
        writer.append_all(entries(100))
        writer.retain()
    assert sum(path.stat().st_size for path in tmp_path.glob("evts-*")) <= 1000
    assert [record.seq for record in stored(tmp_path)] == list(range(81, 101))


def test_a_place_is_found_by_time(tmp_path: Path) -> None:
    now = [1000.0]
    with LogWriter(tmp_path, LogOptions(segment_events=2), clock=lambda: now[0]) as writer:
        for _ in range(4):
            writer.append_all(entries(2))
            now[0] += 10
    with LogReader(tmp_path) as reader:
        assert [reader.seq_at(time) for time in (0, 1000, 1001, 1015, 9999)] == [1, 1, 3, 5, 7]


def test_a_directory_that_cannot_be_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot be written"):
        LogWriter(tmp_path / "file" / "log")


def test_a_spoilt_sequence_is_an_error(tmp_path: Path) -> None:
    LogWriter(tmp_path).close()
    (tmp_path / "sequence").write_text("many")
    with pytest.raises(StateError, match="no sequence number"):
        LogWriter(tmp_path)


@pytest.mark.parametrize("by", ["uid", "function"])
def test_what_is_taken_down_is_wiped_and_passed_by(tmp_path: Path, by: str) -> None:
    with LogWriter(tmp_path, LogOptions(segment_events=4)) as writer:
        writer.append_all([Entry(1, number % 3, b"secret %02d" % number) for number in range(12)])
        assert writer.scrub(1 if by == "uid" else lambda record: record.uid == 1) == 4
        assert [record.uid for record in stored(tmp_path)] == [0, 2] * 4
        assert writer.append_all(entries(1)) == [13]
    LogWriter(tmp_path).close()
    assert len(stored(tmp_path)) == 9
    everything = b"".join(path.read_bytes() for path in tmp_path.glob("evts-*"))
    assert b"secret 00" in everything
    assert not any(b"secret %02d" % number in everything for number in (1, 4, 7, 10))
    flags = [HEADER.unpack_from((tmp_path / "evts-0").read_bytes(), 41 * number)[0] for number in range(4)]
    assert flags == [12, 13, 12, 12]
