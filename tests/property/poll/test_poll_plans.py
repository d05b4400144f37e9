"""Plans on disk: read back as they were written, damaged ones refused, and only the right ones committed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import StateError
from headgate.sources.postgres_poll.plans import Late, Place, Plan, PlanBook, Point

PLACES = st.builds(Place, st.text(), st.tuples(st.text(), st.text()))
XIDS = st.integers(3, 2**63 - 1)
POINTS = st.builds(
    Point, st.integers(0, 2**63 - 1), st.none() | PLACES, st.none() | XIDS, st.none() | st.builds(Late, PLACES, XIDS)
)
ROWS = st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=20)


def plan_of(start: Point, rows: list[tuple[str, str, str]]) -> Plan:
    names = ["tracking", "key0", "key1"]
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return Plan.new_rows(start, pa.table(columns, names=names), 7)


@settings(max_examples=40)
@given(POINTS, ROWS)
def test_a_plan_survives_the_disk(start: Point, rows: list[tuple[str, str, str]]) -> None:
    plan = plan_of(start, rows)
    assert Point.from_offset(start.to_offset()) == start
    assert plan.end == Point(start.row + len(rows), Place(rows[-1][0], rows[-1][1:]), 7)
    with tempfile.TemporaryDirectory() as name:
        book = PlanBook(Path(name))
        book.add(plan)
        found = book.at(start)
        assert found is not None
        assert (found.start, found.end, found.rows.to_pydict()) == (start, plan.end, plan.rows.to_pydict())
        assert book.at(Point(start.row, Place("another", ("way", "here")))) is None


@settings(max_examples=40)
@given(ROWS, st.data())
def test_a_damaged_plan_is_refused_or_the_same(rows: list[tuple[str, str, str]], data: st.DataObject) -> None:
    plan = plan_of(Point(7), rows)
    whole = plan.to_bytes()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.plan"
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 9))])
        with pytest.raises(StateError):
            Plan.read(path)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 30))
def test_what_is_committed_is_forgotten_and_nothing_else(sizes: list[int], row: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        book = PlanBook(Path(name))
        point, ends = Point(0), []
        for size in sizes:
            plan = plan_of(point, [("t", str(i), "") for i in range(size)])
            book.add(plan)
            point = plan.end
            ends.append(point.row)
        assert [plan.end.row for plan in book.through(row)] == [end for end in ends if end <= row]
        book.forget(row)
        book.forget(row)
        assert [plan.end.row for plan in book.through(100)] == [end for end in ends if end > row]


@given(
    st.dictionaries(
        st.sampled_from(["row", "after", "seen", "late", "late_until"]), st.integers() | st.text(max_size=3) | st.none()
    )
)
def test_foreign_offsets_are_refused_or_make_sense(offset: dict[str, object]) -> None:
    try:
        point = Point.from_offset(offset)
    except StateError:
        return
    assert isinstance(point.row, int)
