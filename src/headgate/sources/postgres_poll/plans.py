"""Planned batches, kept on disk until they are committed.

A batch is decided once: its plan names every row by key and tracking value, in order, and is durable before Spark
hears of the batch. So a batch that is asked for again has the same rows with the same numbers, and a commit after a
crash still knows which rows to take away.

<directory>/first      the number of the first row; from the clock, so that no later stream uses these numbers again
<directory>/committed  the number before which everything is committed
<directory>/future     rows that wait for their time, as of the last look
<directory>/*.plan     one planned batch: Arrow, one row for each row; named by its first number and its end
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa

from headgate.model import CapacityError, StateError
from headgate.runtime.files import replace_file

__all__ = ["Future", "Late", "Place", "Plan", "PlanBook", "Point"]

TRACKING = "tracking"
_VERSION = 2
_VERSIONS = (1, 2)  # the first one knew nothing of late rows
_META = b"headgate"


class Place(NamedTuple):
    """Where a row stands in the table's order: its tracking value and its key, as PostgreSQL prints them."""

    tracking: str
    key: tuple[str, ...]


class Late(NamedTuple):
    """Late rows that did not fit into a batch: read up to this place, of transactions before `until`."""

    after: Place
    until: int


class Point(NamedTuple):
    """An offset of the stream: the number of the next row, and the last row before it (None: there is none).

    What lies up to `after` and was written by a transaction before `seen` has been read; a row there of a later
    transaction is late.
    """

    row: int
    after: Place | None = None
    seen: int | None = None
    late: Late | None = None

    def to_offset(self) -> dict[str, Any]:
        """Spark's offsets are made of numbers and texts."""
        offset: dict[str, Any] = {"row": self.row, "after": _text(self.after)}
        if self.seen is not None:
            offset["seen"] = self.seen
        if self.late is not None:
            offset |= {"late": _text(self.late.after), "late_until": self.late.until}
        return offset

    @classmethod
    def from_offset(cls, offset: dict[str, Any]) -> Self:
        try:
            seen = int(offset["seen"]) if "seen" in offset else None
            late_after = _place(offset.get("late", ""))
            late = Late(late_after, int(offset["late_until"])) if late_after else None
            return cls(int(offset["row"]), _place(offset["after"]), seen, late)
        except (KeyError, ValueError, TypeError):
            raise StateError(
                "the offset is not one of pgpoll", remedy="use a checkpoint of its own for each source"
            ) from None


def _text(place: Place | None) -> str:
    return "" if place is None else json.dumps([place.tracking, *place.key])


def _place(text: str) -> Place | None:
    if not text:
        return None
    tracking, *key = json.loads(text)
    return Place(tracking, tuple(key))


class Future(NamedTuple):
    """Rows that are dated after the server's clock, of which so many were counted, and the last of them."""

    rows: int = 0
    last: str = ""
    cursor_is_ahead: bool = False  # what is read already goes beyond the clock


@dataclass(frozen=True)
class Plan:
    """One batch: columns `tracking` and one for each part of the key, all text."""

    start: Point
    rows: pa.Table
    end: Point

    @classmethod
    def new_rows(cls, start: Point, rows: pa.Table, seen: int | None = None) -> Self:
        """Rows behind all that were read; of transactions before `seen` there are no others up to the last one."""
        return cls(start, rows, Point(start.row + rows.num_rows, last_place_of(rows), seen))

    @classmethod
    def late_rows(cls, start: Point, rows: pa.Table, seen: int, until: int, *, are_all: bool) -> Self:
        """Rows of transactions from `seen` to before `until`, which came after what lies behind them was read."""
        row = start.row + rows.num_rows
        if are_all:
            return cls(start, rows, Point(row, start.after, until))
        return cls(start, rows, Point(row, start.after, seen, Late(last_place_of(rows), until)))

    def to_bytes(self) -> bytes:
        fields = {"version": _VERSION, "start": self.start.to_offset(), "end": self.end.to_offset()}
        meta = json.dumps(fields).encode()
        table = self.rows.replace_schema_metadata({_META: meta})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def read(cls, path: Path) -> Self:
        """A plan that makes no sense is an error: without it nobody knows which rows the batch had."""
        try:
            with pa.ipc.open_stream(path.read_bytes()) as reader:
                rows = reader.read_all()
            meta = json.loads(rows.schema.metadata[_META])
            if meta["version"] not in _VERSIONS:
                raise ValueError(f"version {meta['version']}")
            start = Point.from_offset(meta["start"])
            return cls(start, rows, Point.from_offset(meta["end"])) if "end" in meta else cls.new_rows(start, rows)
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"the plan of a batch cannot be read: {error}",
                where=str(path),
                remedy="restore it from a backup, or start anew with: headgate reset PIPELINE",
            ) from None


def last_place_of(rows: pa.Table) -> Place:
    tracking, *key = rows.slice(rows.num_rows - 1).to_pylist()[0].values()
    return Place(tracking, tuple(key))


class PlanBook:
    """The plans of one stream. One process writes at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def first_row(self) -> int:
        """Return the number of the first row; stable for as long as the directory lives."""
        found = self._number("first")
        if found is None:
            found = time.time_ns()
            self._write("first", b"%d" % found)
        return found

    @property
    def committed(self) -> int:
        return self._number("committed") or 0

    def at(self, start: Point) -> Plan | None:
        """The plan of the batch that begins here."""
        for first, _, path in self._plans():
            if first == start.row:
                plan = Plan.read(path)
                return plan if plan.start == start else None
        return None

    def add(self, plan: Plan) -> None:
        """Every plan from here on belonged to another way that the stream did not go."""
        for first, _, path in list(self._plans()):
            if first >= plan.start.row:
                path.unlink()
        self._write(f"{plan.start.row:016X}-{plan.end.row:016X}.plan", plan.to_bytes())

    def through(self, row: int) -> Iterator[Plan]:
        """The plans that end at this row or before, oldest first."""
        for _, end, path in self._plans():
            if end <= row:
                yield Plan.read(path)

    def forget(self, row: int) -> None:
        """Everything before this row is committed."""
        ended = [path for _, end, path in self._plans() if end <= row]
        if ended:
            self._write("committed", b"%d" % row)
        for path in ended:
            path.unlink(missing_ok=True)

    def future(self) -> Future:
        """What the last look found."""
        try:
            return Future(*json.loads((self.directory / "future").read_bytes()))
        except (OSError, ValueError, TypeError):
            return Future()

    def note_future(self, found: Future) -> bool:
        """Keep what a look found; whether it is news."""
        if found == self.future():
            return False
        self._write("future", json.dumps(found).encode())
        return True

    def _plans(self) -> Iterator[tuple[int, int, Path]]:
        for path in sorted(self.directory.glob("*.plan")):
            first, _, end = path.stem.partition("-")
            yield int(first, 16), int(end, 16), path

    def _number(self, name: str) -> int | None:
        path = self.directory / name
        try:
            return int(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise StateError(
                "the file is not a number", where=str(path), remedy="start anew with: headgate reset PIPELINE"
            ) from None

    def _write(self, name: str, data: bytes) -> None:
        try:
            replace_file(self.directory / name, data)
        except OSError as error:
            raise CapacityError(
                f"a plan cannot be written: {error.strerror}",
                where=str(self.directory),
                remedy="free disk space or make the directory writable; the batch is tried again",
            ) from None
