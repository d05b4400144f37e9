"""The `table` destination: partitioned Parquet files, exactly once by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.dataset as ds

from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender
from headgate.destinations.checking import check_directory
from headgate.destinations.table.files import Files, shown_path
from headgate.destinations.table.manifest import BATCHES, complete_batch, completed_parts
from headgate.destinations.table.names import NO_STREAM
from headgate.destinations.table.sender import FILE_SCHEMA, TableSender

__all__ = ["TABLE_SCHEMA", "TableDestination", "open_table"]

TABLE_SCHEMA = pa.schema([*FILE_SCHEMA, ("stream", pa.string()), ("topic", pa.string())])


@dataclass(frozen=True, slots=True)
class TableDestination(Destination):
    """Rows are safe once their files are staged, and visible once their batch is complete."""

    by_batch: ClassVar[bool] = True

    name: str
    path: str = field(repr=False)  # a URL may hold credentials
    compression: Literal["none", "snappy", "lz4", "zstd"] = "zstd"
    has_streams: bool = True  # whether a row can name a stream; if none can, the files lie one level higher

    def __repr__(self) -> str:
        return f"TableDestination({self.name!r}, {shown_path(self.path)!r}, {self.compression!r})"

    def ensure(self) -> None:
        """Make the directory, which also tells whether we may."""
        Files(self.path).make_dir(BATCHES)

    def check(self) -> str:
        return check_directory(self.path) if "://" not in self.path else shown_path(self.path)

    def complete(self, batch_id: int, reports: Sequence[dict[str, Any]]) -> None:
        complete_batch(Files(self.path), batch_id, reports)

    def details(self) -> dict[str, Any]:
        return {"path": shown_path(self.path)}

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        sender = TableSender(self.name, Files(self.path), lane, self.compression, has_streams=self.has_streams)
        try:
            yield sender
        finally:
            sender.abandon()  # nothing is left of a lane that was finished


def open_table(path: str) -> ds.Dataset:
    """The complete batches of a table, and nothing of one that is under way."""
    files = Files(path)
    partitioning = _hive()
    places = [files.path(place) for place, _ in completed_parts(files)]
    return ds.FileSystemDataset.from_paths(
        places,
        schema=TABLE_SCHEMA,
        format=ds.ParquetFileFormat(),
        filesystem=files.system,
        partitions=[partitioning.parse(place.removeprefix(files.root)) for place in places],
    )


def _hive() -> ds.Partitioning:
    names = pa.schema([("stream", pa.string()), ("topic", pa.string())])
    return ds.HivePartitioning(names, null_fallback=NO_STREAM, segment_encoding="uri")
