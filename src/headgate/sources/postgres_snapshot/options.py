"""Options of the `pgsnapshot` source, as Spark hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self, cast, get_args

from headgate.model import UsageError
from headgate.sources.options import names, parse_options
from headgate.sources.postgres_snapshot.points import Method

__all__ = ["RowFormat", "SnapshotOptions"]

Shape = Literal["typed", "rows", "located"]
RowFormat = Literal["msgpack", "json"]


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """What `spark.read.format("pgsnapshot").option(...)` accepts."""

    url: str = field(repr=False)
    table: str  # without a schema: public
    publication: str
    num_partitions: int = 4  # ranges that are read side by side; fewer for a small table
    shape: str = "typed"  # the table's columns; `rows`: encoded rows; `located`: ranges to be read later in the query
    format: str = "msgpack"  # of encoded rows
    snapshot_name: str = ""  # of a point that somebody holds; without one, a point is taken and held for the query
    method: str = "filter"  # how it is taken
    timeout_seconds: int = 60  # how long taking it may last
    hold_seconds: int = 60  # how long it is held while nobody reads
    text_columns: str = ""  # columns of the typed shape, separated by commas, to read as PostgreSQL's text
    batch_rows: int = 8192
    batch_bytes: int = 4 << 20

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        parsed = parse_options(cls, options, source="pgsnapshot")
        _refuse_unknown("shape", parsed.shape, get_args(Shape))
        _refuse_unknown("format", parsed.format, get_args(RowFormat))
        _refuse_unknown("method", parsed.method, get_args(Method))
        if not parsed.batch_rows or not parsed.batch_bytes:
            raise UsageError(
                "a batch needs room for a row", where='format("pgsnapshot")', remedy="let batchRows be 1 at least"
            )
        return parsed

    @property
    def text_column_names(self) -> tuple[str, ...]:
        return names(self.text_columns)

    @property
    def publications(self) -> tuple[str, ...]:
        return names(self.publication)

    @property
    def row_format(self) -> RowFormat:
        return cast(RowFormat, self.format)

    @property
    def point_method(self) -> Method:
        return cast(Method, self.method)


def _refuse_unknown(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(
            f"the option {name} is {value!r}", where='format("pgsnapshot")', remedy=f"one of: {', '.join(known)}"
        )
