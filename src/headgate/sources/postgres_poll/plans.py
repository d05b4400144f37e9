"""Planned batches, kept on disk until they are committed.

A batch is decided once: its plan names every row by key and tracking value, in order, and is durable before Spark
hears of the batch. So a batch that is asked for again has the same rows with the same numbers, and a commit after a
crash still knows which rows to take away.

<directory>/first      the number of the first row; from the clock, so that no later stream uses these numbers again
<directory>/committed  the number before which everything is committed
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
from headgate.model.files import replace_file

__all__ = ["Place", "Plan", "PlanBook", "Point"]

TRACKING = "tracking"
_VERSION = 1
_META = b"headgate"


class Place(NamedTuple):
    """Where a row stands in the table's order: its tracking value and its key, as PostgreSQL prints them."""

    tracking: str
    key: tuple[str, ...]


class Point(NamedTuple):
    """An offset of the stream: the number of the next row, and the last row before it (None: there is none)."""

    row: int
    after: Place | None = None

    def to_offset(self) -> dict[str, Any]:
        """Spark's offsets are made of numbers and texts."""
        after = "" if self.after is None else json.dumps([self.after.tracking, *self.after.key])
        return {"row": self.row, "after": after}

    @classmethod
    def from_offset(cls, offset: dict[str, Any]) -> Self:
        try:
            tracking, *key = json.loads(offset["after"]) if offset["after"] else ("",)
            return cls(int(offset["row"]), Place(tracking, tuple(key)) if offset["after"] else None)
        except (KeyError, ValueError, TypeError):
            raise StateError(
                "the offset is not one of pgpoll", remedy="use a checkpoint of its own for each source"
            ) from None


@dataclass(frozen=True)
class Plan:
    """One batch: columns `tracking` and one for each part of the key, all text."""

    start: Point
    rows: pa.Table

    @property
    def end(self) -> Point:
        last = self.rows.slice(self.rows.num_rows - 1).to_pylist()[0]
        tracking, *key = last.values()
        return Point(self.start.row + self.rows.num_rows, Place(tracking, tuple(key)))

    def to_bytes(self) -> bytes:
        meta = json.dumps({"version": _VERSION, "start": self.start.to_offset()}).encode()
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
            if meta["version"] != _VERSION:
                raise ValueError(f"version {meta['version']}")
            return cls(Point.from_offset(meta["start"]), rows)
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"the plan of a batch cannot be read: {error}",
                where=str(path),
                remedy="restore it from a backup, or start anew with: headgate reset PIPELINE",
            ) from None


class PlanBook:
    """The plans of one stream. One process writes at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def first_row(self) -> int:
        """The same answer for as long as the directory lives."""
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
