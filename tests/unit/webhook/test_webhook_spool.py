"""The spool: what it promises when things break, and how it stays small."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from headgate.model import CapacityError, OccupiedError, StateError
from headgate.sources.webhook.rows import read_rows
from headgate.spool.frames import Request, encode_frame
from headgate.spool.marks import Marks
from headgate.spool.segments import segment_path, segments
from headgate.spool.spool import Receipt, Spool


def request(number: int, *, key: bool = True, size: int = 100, age_s: float = 0.0) -> Request:
    received_us = int((time.time() - age_s) * 1e6)
    name = number.to_bytes(16, "big") if key else b""
    return Request(received_us, name, None, "/", "text/plain", {}, [b"%d" % number + b"." * size])


def numbers(directory: Path, start: int, end: int) -> list[int]:
    batches = read_rows(directory, start, end, "text")
    return [int(body.split(".")[0]) for batch in batches for body in batch.column("body").to_pylist()]


def test_keys_outlive_their_segments_and_the_server(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=1000)
    for number in range(50):
        spool.append([request(number)])
    assert len(segments(tmp_path)) > 3
    spool.marks.deliver(50)
    spool.release(all_of_it=True)
    assert segments(tmp_path) == [50]
    spool.close()
    again = Spool(tmp_path, segment_bytes=1000)
    assert again.append([request(3), request(99)]) == [Receipt(3, 1, duplicate=True), Receipt(50, 1)]
    again.close()


def test_keys_are_forgotten_after_their_window(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=200, window_s=60)
    old = [request(number, age_s=61) for number in range(5)]
    for each in old:
        spool.append([each])
    spool.marks.deliver(5)
    spool.release(all_of_it=True)
    assert not list(tmp_path.glob("*.keys"))
    assert spool.append([request(1)]) == [Receipt(5, 1)]
    spool.close()


def test_keys_are_bounded_in_number(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=200, max_keys=10)
    for number in range(100):
        spool.append([request(number)])
    spool.marks.deliver(100)
    spool.release(all_of_it=True)
    assert 0 < len(list(tmp_path.glob("*.keys"))) <= 12
    spool.close()
    again = Spool(tmp_path, segment_bytes=200, max_keys=10)
    assert again.append([request(99), request(5)]) == [Receipt(99, 1, duplicate=True), Receipt(100, 1)]
    again.close()


def test_two_of_one_key_in_a_group_are_one_row(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert spool.append([request(1), request(1)]) == [Receipt(0, 1), Receipt(0, 1, duplicate=True)]
    assert spool.append([request(2, key=False), request(2, key=False)]) == [Receipt(1, 1), Receipt(2, 1)]
    spool.close()


def test_a_full_spool_refuses_and_takes_again_once_rows_are_delivered(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=2000)
    receipts = spool.append([request(number) for number in range(30)])
    accepted = [receipt for receipt in receipts if receipt]
    assert 5 < len(accepted) < 20
    assert receipts[-1] is None
    assert spool.append([request(0)]) == [Receipt(0, 1, duplicate=True)]  # a repeat needs no room
    spool.marks.deliver(len(accepted))
    assert spool.append([request(77)]) == [Receipt(len(accepted), 1)]
    assert numbers(tmp_path, len(accepted), len(accepted) + 1) == [77]
    spool.close()


def test_damage_to_what_was_acknowledged_is_not_cut_off(tmp_path: Path) -> None:
    """Numbers would be used again, and Spark would take new rows for old ones."""
    spool = Spool(tmp_path)
    spool.append([request(1)])
    spool.append([request(2)])
    spool.close()
    path = segment_path(tmp_path, 0)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(StateError, match="ends at row 1, but 2 rows were accepted"):
        Spool(tmp_path)
    assert path.read_bytes() == data  # as it was, for whoever wants to rescue it
    path.unlink()  # given up
    Marks(tmp_path).deliver(2)
    fresh = Spool(tmp_path)
    assert fresh.next_row == 2
    fresh.close()


def test_nothing_comes_back_from_behind_a_torn_write(tmp_path: Path) -> None:
    """Pages reach the disk in any order: behind a torn frame there may be a whole one that nobody was told of."""
    spool = Spool(tmp_path)
    spool.append([request(0)])
    spool.close()
    torn, whole = encode_frame(1, request(11)), encode_frame(2, request(22))
    with segment_path(tmp_path, 0).open("ab") as file:
        file.write(bytes(len(torn)) + whole)
    again = Spool(tmp_path)
    assert again.append([request(33)]) == [Receipt(1, 1)]  # just as long as the torn one
    again.close()
    last = Spool(tmp_path)
    assert last.next_row == 2
    last.close()


def test_a_segment_that_is_gone_is_a_typed_error(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=1)
    for number in range(4):
        spool.append([request(number)])
    segment_path(tmp_path, 1).unlink()
    assert numbers(tmp_path, 2, 4) == [2, 3]
    with pytest.raises(StateError, match="does not hold row 1"):
        numbers(tmp_path, 0, 4)
    spool.close()


def test_a_read_beyond_damage_is_a_typed_error(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append([request(number) for number in range(3)])
    spool.close()
    path = segment_path(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:-5])
    assert numbers(tmp_path, 0, 2) == [0, 1]
    with pytest.raises(StateError, match="does not hold row 2"):
        numbers(tmp_path, 0, 3)


def test_one_server_at_a_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with pytest.raises(OccupiedError, match="another server"):
        Spool(tmp_path)
    spool.close()
    Spool(tmp_path).close()


def test_a_disk_that_refuses_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    spool.append([request(1)])
    real = os.write
    written: list[int] = []

    def nearly_full(file: int, data: bytes) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(real(file, bytes(data)[:10]))
        return 10

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", nearly_full)
        with pytest.raises(CapacityError, match="No space left"):
            spool.append([request(2)])
    assert spool.append([request(2)]) == [Receipt(1, 1)]
    spool.close()
    again = Spool(tmp_path)
    assert again.next_row == 2
    assert numbers(tmp_path, 0, 2) == [1, 2]
    again.close()


def test_a_sync_that_fails_leaves_no_ghost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written and not synced is whole, and was refused: its number belongs to another row now."""
    spool = Spool(tmp_path)
    spool.append([request(1)])

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", broken)
        with pytest.raises(CapacityError, match="Input/output error"):
            spool.append([request(2)])
    assert spool.append([request(3)]) == [Receipt(1, 1)]
    assert numbers(tmp_path, 0, 2) == [1, 3]
    spool.close()


def test_the_id_is_made_once(tmp_path: Path) -> None:
    first = Marks(tmp_path / "a").spool_id()
    assert Marks(tmp_path / "a").spool_id() == first
    assert Marks(tmp_path / "b").spool_id() != first
    (tmp_path / "a" / "id").write_bytes(b"\xff\n")
    with pytest.raises(StateError, match="id cannot be read"):
        Marks(tmp_path / "a").spool_id()


def test_marks_never_go_back_and_survive_torn_writes(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    assert (marks.read_tail(), marks.delivered()) == (None, 0)
    marks.deliver(9)
    marks.deliver(4)
    assert marks.delivered() == 9
    (tmp_path / "delivered").write_bytes(b"\x01" * 12)
    assert marks.delivered() == 0
