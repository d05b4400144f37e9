"""Each rule of the fold, with events made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.model import Position
from headgate.wire.pgoutput import format_lsn
from tests.cdc import Fold, FoldError, KeyedRows, RowBag

KEYED, FULL = ("s", "keyed"), ("s", "full")
KEYS = {KEYED: ("id",), FULL: ()}


def event(lsn: int, ordinal: int, operation: str, data: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An event of the keyed table; `fields` replace or add."""
    position = Position(lsn, ordinal)
    made = {
        "schema": "s",
        "table": "keyed",
        "operation": operation,
        "relation_id": 1,
        "schema_version": "1",
        "subject": "cdc.s.keyed.x",
        "commit_lsn": format_lsn(lsn),
        "commit_time": "2025-01-01T00:00:00.000000Z",
        "xid": lsn,
        "event_count": None,
        "lsn": format_lsn(lsn - 1),
        "ordinal": ordinal,
        "msg_id": f"7-{position}",
        "data": data,
    }
    return {**made, **fields}


def fold_of(events: Iterable[dict[str, Any]]) -> Fold:
    """The fold of events whose transactions are as long as they are here, unless they say otherwise."""
    events = list(events)
    sizes: dict[str, int] = {}
    for event in events:
        sizes[event["commit_lsn"]] = max(sizes.get(event["commit_lsn"], 0), (event["ordinal"] or 0) + 1)
    counted = ({**event, "event_count": event["event_count"] or sizes[event["commit_lsn"]]} for event in events)
    return Fold(KEYS).feed_all(counted)


def keyed(*events: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = fold_of(events).tables[KEYED]
    assert isinstance(rows, KeyedRows)
    return rows.rows


def described(lsn: int) -> dict[str, Any]:
    """A SCHEMA event of the keyed table's second version."""
    made = event(lsn, 0, "SCHEMA", {"version": "2"}, schema_version="2")
    return {**made, "ordinal": None, "msg_id": f"7-{lsn:016X}-/0000000"}


def test_another_shape_after_its_description() -> None:
    assert keyed(INSERT, described(20), event(20, 0, "UPDATE", ROW, schema_version="2")) == {(1,): ROW}


ROW = {"id": 1, "a": "x", "big": "y" * 9000}
INSERT = event(10, 0, "INSERT", ROW)


def test_an_update_keeps_the_columns_it_does_not_send() -> None:
    assert keyed(INSERT, event(20, 0, "UPDATE", {"id": 1, "a": None})) == {(1,): {**ROW, "a": None}}


def test_a_changed_key_moves_the_row_with_the_columns_that_were_not_sent() -> None:
    moved = event(20, 0, "UPDATE", {"id": 2, "a": "z"}, old={"id": 1})
    assert keyed(INSERT, moved) == {(2,): {**ROW, "id": 2, "a": "z"}}


def test_a_deleted_key_can_be_inserted_again() -> None:
    assert keyed(INSERT, event(20, 0, "DELETE", {"id": 1}), event(20, 1, "INSERT", {"id": 1})) == {(1,): {"id": 1}}


def test_truncate_empties_only_its_own_table() -> None:
    other = event(20, 0, "INSERT", {"v": 1}, table="full")
    fold = fold_of([INSERT, other, event(30, 0, "TRUNCATE", {"cascade": True, "restart_identity": False})])
    assert (len(fold.tables[KEYED]), len(fold.tables[FULL])) == (0, 1)
    assert (fold.transactions, fold.position) == (3, Position(30, 0))


def test_rows_without_a_key_are_counted_and_told_apart_exactly() -> None:
    rows: list[dict[str, Any]] = [{"v": value, "big": "y"} for value in (1, 1, 1.0, True, float("nan"), -0.0)]
    inserts = [event(10, number, "INSERT", row, table="full") for number, row in enumerate(rows)]
    update = event(20, 0, "UPDATE", {"v": 5}, old={"v": float("nan"), "big": "y"}, table="full")
    delete = event(20, 1, "DELETE", {"v": 1, "big": "y"}, table="full")
    bag = fold_of([*inserts, update, delete]).tables[FULL]
    assert isinstance(bag, RowBag)
    left = [row["v"] for text, row in bag.rows.items() for _ in range(bag.counts[text])]
    assert sorted(map(repr, left)) == ["-0.0", "1", "1.0", "5", "True"]
    assert all(row["big"] == "y" for row in bag.rows.values())


def test_messages_and_snapshot_rows_are_part_of_the_stream() -> None:
    message = event(5, 0, "MESSAGE", {"prefix": "p"}, schema=None, table=None, xid=None, commit_time=None)
    fold = fold_of([message, event(10, 0, "READ", ROW)])
    assert (len(fold.tables[KEYED]), fold.operations) == (1, {"MESSAGE": 1, "READ": 1})


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([INSERT, INSERT], "duplicate"),
        ([INSERT, event(20, 0, "UPDATE", ROW), INSERT], "duplicate"),
        ([event(20, 0, "INSERT", ROW), event(10, 0, "INSERT", {"id": 2})], "comes after position"),
        ([event(10, 1, "INSERT", ROW)], "before ordinal 1 are missing"),
        ([INSERT, event(10, 2, "UPDATE", ROW)], "between ordinals 0 and 2 are missing"),
        ([INSERT, event(10, 1, "UPDATE", ROW, xid=99)], "xid, commit time or number"),
        ([event(10, 0, "INSERT", ROW, msg_id="7-000000000000000A-00000001")], "not that of position"),
        ([INSERT, event(20, 0, "UPDATE", ROW, msg_id=f"8-{Position(20)}")], "not that of position"),
        ([INSERT, event(20, 0, "INSERT", ROW)], "row (1,) already"),
        ([event(10, 0, "UPDATE", ROW)], "no row (1,)"),
        ([event(10, 0, "DELETE", {"id": 1})], "no row (1,)"),
        ([INSERT, event(20, 0, "INSERT", {"id": 2}), event(30, 0, "UPDATE", {"id": 2}, old={"id": 1})], "(2,) already"),
        ([INSERT, event(20, 0, "UPDATE", {"a": 1})], "key column 'id' is absent"),
        ([event(10, 0, "DELETE", {"v": 1}, table="full")], "no such row"),
        ([event(10, 0, "UPDATE", {"v": 1}, table="full")], "has no old row"),
        ([event(10, 0, "INSERT", {"v": 1}, table="unheard")], "not published"),
        ([event(10, 0, "UPSERT", ROW)], "no such operation"),
        ([event(10, 0, "INSERT", ROW, old={"id": 1})], "the fields are"),
        ([event(10, 0, "INSERT", ROW, extra=1)], "the fields are"),
        ([event(10, 0, "INSERT", ROW, event_count=2), event(20, 0, "UPDATE", ROW)], "ends at ordinal 0 of 2 events"),
        ([INSERT, event(20, 0, "UPDATE", ROW, schema_version="2")], "nothing has described"),
        ([event(20, 0, "INSERT", ROW), described(20)], "after rows of its transaction"),
        ([described(30), described(30)], "duplicate"),
    ],
)
def test_what_cannot_have_happened_is_refused(events: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(FoldError) as caught:
        fold_of(events)
    assert complaint in str(caught.value)
    assert f"{events[-1]['commit_lsn']} #{events[-1]['ordinal']}" in str(caught.value)
