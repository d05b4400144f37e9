"""A schema whose changes are recorded, so that a snapshot of it can be held against its stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.kernels.changes import Format, RangeDecoder
from headgate.sources.postgres_cdc.ranges import spool_buffers
from headgate.sources.postgres_cdc.spool import SpoolIndex, relations_before
from headgate.sources.postgres_snapshot.copying import SnapshotRange
from headgate.sources.postgres_snapshot.options import RowFormat, SnapshotOptions
from headgate.sources.postgres_snapshot.plan import SnapshotTable, plan_table
from headgate.sources.postgres_snapshot.points import Method, Point, take_point
from headgate.sources.postgres_snapshot.reading import ROW, read_range
from headgate.wire.envelope import packb
from headgate.wire.pgoutput import parse_lsn
from tests.integration.cdc_decode.recording import Recording

FORMATS: tuple[RowFormat, ...] = ("msgpack", "json")


@dataclass
class Source(Recording):
    """Every table of the schema is published by the publication of its name; a test may choose others."""

    publications: tuple[str, ...] = ()
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.publications = (self.name,)

    def publish(self, name: str, what: str) -> None:
        """One publication more; it and those already made are used from here on."""
        self.made.append(f"{self.name}_{name}")
        self.sql(f"create publication {self.made[-1]} {what}")
        self.publications = tuple(self.made)

    def messages(self) -> list[tuple[int, bytes]]:
        rows = self.sql(
            "select lsn::text, data from pg_logical_slot_peek_binary_changes(%s, null, null,"
            " 'proto_version', '1', 'publication_names', %s, 'messages', 'on')",
            self.name,
            ",".join(self.publications),
        )
        return [(parse_lsn(lsn), bytes(data)) for lsn, data in rows]

    def streamed(self, directory: Path, form: Format, table: str) -> list[bytes]:
        """The events of all inserts into a table."""
        self.spool(directory)
        index = SpoolIndex(directory)
        index.refresh()
        decoder = RangeDecoder(origin="1", relations=relations_before(directory, 0), types=self.types(), format=form)
        batches = decoder.decode(spool_buffers(index.slices(0, index.end_lsn)))
        rows = [row for batch in batches for row in batch.to_pylist()]
        return [row["_payload"] for row in rows if (row["_op"], row["_table"]) == ("insert", table)]

    @contextmanager
    def point(self, table: str, method: Method = "filter", timeout_s: float = 30) -> Iterator[Point]:
        with take_point(self.url, method, self.name, table, timeout_s) as point:
            yield point

    def plan(self, table: str) -> SnapshotTable:
        return plan_table(self.url, self.name, table, self.publications)

    def options(self, table: str, form: RowFormat = "msgpack", **more: Any) -> SnapshotOptions:
        publication = ",".join(self.publications)
        return SnapshotOptions(self.url, f"{self.name}.{table}", publication, format=form, **more)

    def rows(self, table: str, form: RowFormat = "msgpack", *, ranges: int = 1, **more: Any) -> list[bytes]:
        """A snapshot taken now."""
        with self.point(table) as point:
            return self.rows_at(point, table, form, ranges=ranges, **more)

    def rows_at(
        self, point: Point, table: str, form: RowFormat = "msgpack", *, ranges: int = 1, **more: Any
    ) -> list[bytes]:
        plan, options = self.plan(table), self.options(table, form, **more)
        parts = [SnapshotRange(plan, part, point.snapshot_name) for part in plan.ranges(ranges, least_blocks=1)]
        batches = [batch for part in parts for batch in read_range(options, part)]
        return [row for batch in batches for row in batch.column(ROW).to_pylist()]

    def drop(self) -> None:
        for name in self.made:
            self.sql(f"drop publication {name}")
        super().drop()


def data_of(payload: bytes, form: RowFormat) -> bytes:
    """The row inside an Insert event: `data` is its last field."""
    mark, end = (packb("data"), b"") if form == "msgpack" else (b'"data":', b"}")
    head, _, row = payload.partition(mark)
    assert head
    assert row.endswith(end)
    return row[: len(row) - len(end)]
