"""The spool: what is appended is found again by LSN, in order, within limits, until it is released."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import StateError
from headgate.sources.postgres_cdc import spool as module
from headgate.sources.postgres_cdc.spool import SpoolIndex, SpoolWriter, Transaction, relations_before


def transaction(number: int, changes: int = 1) -> Transaction:
    return Transaction(number * 100, number * 100 - 10, 0, number, changes)


def body(number: int, size: int = 10) -> bytes:
    return number.to_bytes(2, "little") * (size // 2)


Open = Callable[[Path], SpoolWriter]


def fill(writer: SpoolWriter, count: int, changes: int = 1) -> SpoolWriter:
    for number in range(1, count + 1):
        writer.append(transaction(number, changes), [body(number)])
    writer.flush()
    return writer


def read(index: SpoolIndex, start: int, end: int) -> bytes:
    parts = []
    for part in index.slices(start, end):
        data = Path(part.path).read_bytes()
        parts.append(data[part.offset : part.offset + part.length])
    return b"".join(parts)


def test_nothing_is_visible_before_a_flush(open_spool: Open, tmp_path: Path) -> None:
    writer = open_spool(tmp_path)
    writer.append(transaction(1), [body(1)])
    index = SpoolIndex(tmp_path)
    index.refresh()
    assert index.end_lsn == 0
    writer.flush()
    index.refresh()
    assert index.end_lsn == 100


@settings(max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.data())
def test_any_range_gives_exactly_its_transactions(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    with pytest.MonkeyPatch.context() as patch, closing(SpoolWriter(directory)) as writer:
        patch.setattr(module, "_SEGMENT_TRANSACTIONS", 4)
        bodies = []
        for number, size in enumerate(sizes, 1):
            bodies.append(body(number, size * 2))
            writer.append(transaction(number), [bodies[-1]])
            if data.draw(st.booleans()):
                writer.flush()
    index = SpoolIndex(directory)
    index.refresh()
    first = data.draw(st.integers(0, len(sizes)))
    last = data.draw(st.integers(first, len(sizes)))
    assert read(index, first * 100, last * 100) == b"".join(bodies[first:last])
    assert index.rows_after(first * 100) == len(sizes) - first


def test_limits_in_rows_and_bytes(open_spool: Open, tmp_path: Path) -> None:
    fill(open_spool(tmp_path), 10, changes=3)
    index = SpoolIndex(tmp_path)
    index.refresh()
    assert index.end_within(0, None, None) == 1000
    assert index.end_within(0, 9, None) == 300
    assert index.end_within(0, 10, None) == 300
    assert index.end_within(200, 6, None) == 400
    assert index.end_within(0, 1, None) == 100  # at least one transaction, however large
    assert index.end_within(0, None, 35) == 300
    assert index.end_within(0, 9, 10) == 100
    assert index.end_within(1000, 9, None) == 1000


def test_release_deletes_whole_segments_only(open_spool: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEGMENT_TRANSACTIONS", 2)
    writer = open_spool(tmp_path)
    for number in range(1, 6):
        writer.append(transaction(number), [body(number)])
        writer.flush()
    index = SpoolIndex(tmp_path)
    index.refresh()
    writer.release(300)
    index.refresh()
    assert read(index, 200, 500) == body(3) + body(4) + body(5)
    assert len(list(tmp_path.glob("*.seg"))) == 2
    writer.release(500)
    assert writer.held_bytes == 0
    writer.append(transaction(6), [body(6)])
    writer.flush()
    index.refresh()
    assert read(index, 500, 600) == body(6)


def test_a_new_writer_begins_anew_and_is_not_mistaken_for_the_old(open_spool: Open, tmp_path: Path) -> None:
    fill(open_spool(tmp_path), 3)
    index = SpoolIndex(tmp_path)
    index.refresh()
    writer = open_spool(tmp_path)
    index.refresh()
    assert index.end_lsn == 0
    writer.append(transaction(2), [b"again"])
    writer.flush()
    index.refresh()
    assert read(index, 0, 200) == b"again"


def test_a_range_that_ends_nowhere_is_refused(open_spool: Open, tmp_path: Path) -> None:
    fill(open_spool(tmp_path), 3)
    index = SpoolIndex(tmp_path)
    index.refresh()
    with pytest.raises(StateError, match="does not hold"):
        index.slices(0, 250)


def test_relations_are_those_before_the_range(open_spool: Open, tmp_path: Path) -> None:
    writer = open_spool(tmp_path)
    writer.add_relation(100, b"Rone")
    writer.add_relation(300, b"Rtwo")
    assert relations_before(tmp_path, 99) == []
    assert relations_before(tmp_path, 200) == [b"Rone"]
    assert relations_before(tmp_path, 300) == [b"Rone", b"Rtwo"]
