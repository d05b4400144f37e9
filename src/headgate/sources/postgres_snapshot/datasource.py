"""The Spark batch source `pgsnapshot`: `spark.read.format("pgsnapshot")`.

Three shapes: the table's own columns with the types of `pgcdc`, rows as events carry them, and ranges for a later step
of the same query to read. Every partition is one range of the table; all see the same snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headgate.sources.postgres_snapshot.copying import SnapshotRange
from headgate.sources.postgres_snapshot.holder import HolderOptions, hold_in_background, tell_holder
from headgate.sources.postgres_snapshot.options import SnapshotOptions
from headgate.sources.postgres_snapshot.plan import plan_table, table_name
from headgate.sources.postgres_snapshot.reading import LOCATED_SCHEMA, ROWS_SCHEMA, located, read_range, read_typed
from headgate.sources.typed import TypedTable, describe_table

__all__ = ["SnapshotDataSource", "SnapshotReader"]


class SnapshotDataSource(DataSource):
    """The rows of a published table at one consistent point."""

    @classmethod
    def name(cls) -> str:
        return "pgsnapshot"

    _typed: TypedTable | None = None  # kept when Spark sends this object on, so that schema and reader agree

    def schema(self) -> str:
        options = SnapshotOptions.from_spark(self.options)
        if options.shape == "located":
            return LOCATED_SCHEMA
        if options.shape == "rows":
            return ROWS_SCHEMA
        self._typed = _describe(options)
        return ", ".join(f"{_quoted(column.name)} {column.spark}" for column in self._typed.columns)

    def reader(self, schema: StructType) -> SnapshotReader:
        options = SnapshotOptions.from_spark(self.options)
        if options.shape == "typed" and self._typed is None:  # the user gave the schema
            self._typed = _describe(options)
        return SnapshotReader(options, self._typed)


@dataclass
class _Partition(InputPartition):
    """A range, and how many there are."""

    range_: SnapshotRange
    count: int


class SnapshotReader(DataSourceReader):
    """Plans ranges on the driver's machine, and reads them on the executors."""

    def __init__(self, options: SnapshotOptions, typed: TypedTable | None) -> None:
        self._options = options
        self._typed = typed

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        schema, name = table_name(options.table)
        plan_table(options.url, schema, name, options.publications)  # finds what is wrong, before anything is held
        snapshot = options.snapshot_name or hold_in_background(
            HolderOptions(
                options.url, options.point_method, schema, name, options.timeout_seconds, options.hold_seconds
            )
        )
        table = plan_table(options.url, schema, name, options.publications)
        parts = table.ranges(options.num_partitions)
        return [_Partition(SnapshotRange(table, part, snapshot), len(parts)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition)
        if self._options.shape == "located":
            yield located(partition.range_)
            return
        if self._typed is not None:
            yield from read_typed(self._options, partition.range_, self._typed)
        else:
            yield from read_range(self._options, partition.range_)
        if not self._options.snapshot_name:
            tell_holder(self._options.url, partition.range_, partition.count)


def _describe(options: SnapshotOptions) -> TypedTable:
    schema, name = table_name(options.table)
    return describe_table(
        options.url,
        f"{schema}.{name}",
        publications=options.publications,
        text_columns=options.text_column_names,
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
