"""Keep a table on files equal to a table in PostgreSQL: upserts a typed `pgcdc` stream by key.

    apply_changes(changes, "/data/orders", ["id"]).option("checkpointLocation", "/data/orders-checkpoint").start()
    read_applied(spark, "/data/orders")     # the table as of the last batch

    <table>/CURRENT      which version is valid, and up to which position changes are in it
    <table>/v00000007    that version, as Parquet

A batch writes the next version beside the valid one and then replaces `CURRENT` in one step, so a crash leaves the
old table or the new one. A batch that comes again finds its positions applied and changes nothing. The version before
is kept for readers that are still at it.

Cost: every batch that changes something rewrites the table, and holds its changes in the driver's memory. This is for
small and medium tables, on a file system that all of Spark's processes share; for large ones, use the MERGE of Delta
or Iceberg.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

from headgate.model import StateError, UsageError
from headgate.model.record import OP, POSITION
from headgate.runtime.files import replace_file
from headgate.sources.typed import COMMIT_TIME, UNCHANGED, XID

__all__ = ["apply_changes", "merge_batch", "read_applied"]

_RESERVED = (OP, POSITION, COMMIT_TIME, XID, UNCHANGED)
_POINTER = "CURRENT"
_KEPT = "kept"
_IN_TABLE = -1  # instead of a row of the batch: the value that the table has

Key: TypeAlias = tuple[Hashable, ...]
_Taken: TypeAlias = tuple[StructField, pa.Array]


def apply_changes(changes: DataFrame, table: str, keys: Sequence[str]) -> DataStreamWriter:
    """A writer that keeps the directory `table` equal to the source; give it a checkpoint and start it.

    `changes` is a typed `pgcdc` stream, `keys` the source table's primary key or replica identity. One stream owns
    the directory: positions of another server mean nothing in it.
    """
    _check_keys(changes.schema, keys)
    return changes.writeStream.foreachBatch(partial(merge_batch, table=table, keys=tuple(keys)))


def read_applied(spark: SparkSession, table: str) -> DataFrame:
    """The table as of the last batch."""
    current = _current(Path(table))
    if current is None:
        raise StateError("no changes have been applied yet", where=table, remedy="start the query of apply_changes")
    return spark.read.parquet(str(_version_path(Path(table), current.version)))


def merge_batch(batch: DataFrame, batch_id: int, *, table: str, keys: Sequence[str]) -> None:
    """Apply one batch; for `foreachBatch`. Positions decide what is new, so the batch number does not matter."""
    _check_keys(batch.schema, keys)
    directory = Path(table)
    current = _current(directory)
    if current is not None:
        batch = batch.where(sf.col(POSITION) > current.position)
    changes = batch.toArrow()
    if not changes.num_rows:
        return
    fields = [each for each in batch.schema.fields if each.name not in _RESERVED]
    merge = _Merge(batch.sparkSession, fields, keys, changes)
    version = current.version + 1 if current else 1
    path = _version_path(directory, version)
    merged = merge.run(None if current is None else _version_path(directory, current.version))
    merged.write.mode("overwrite").parquet(str(path))
    _make_durable(path)
    _switch(directory, _Current(version, max(changes[POSITION].to_pylist())))


def _check_keys(schema: StructType, keys: Sequence[str]) -> None:
    missing = [name for name in (*keys, OP, POSITION, UNCHANGED) if name not in schema.names]
    if missing or not keys:
        raise UsageError(
            f"the changes have no column {missing[0]}" if missing else "no keys were given",
            where="apply_changes",
            remedy='give a stream of format("pgcdc") with the option table, and its key columns',
        )
    arrays = [name for name in keys if isinstance(schema[name].dataType, ArrayType)]
    if arrays:
        raise UsageError(
            f"the key {arrays[0]} is an array", where="apply_changes", remedy=f'.option("textColumns", "{arrays[0]}")'
        )


# What a batch comes to -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    """A row to write: for every column the row of the batch it comes from, or `_IN_TABLE`.

    `origin` is the row of the batch whose key finds the values that the table has: a row may have moved since.
    """

    sources: list[int]
    origin: int


class _Change(NamedTuple):
    row: int
    op: str
    position: str
    key: Key
    unchanged: list[str]


@dataclass
class _Fold:
    """The last state of every key that a batch touches."""

    names: Sequence[str]
    truncated: bool = False
    entries: dict[Key, _Entry] = field(default_factory=dict)
    touched: dict[Key, int] = field(default_factory=dict)  # and a row of the batch with that key
    _moved: tuple[str, _Entry] | None = None  # by a delete, to whatever has the same position

    def take(self, changes: Iterable[_Change]) -> None:
        """Apply changes in the order of their positions; a change of key is a delete and an update of one position."""
        for change in sorted(changes, key=lambda each: (each.position, each.op != "delete")):
            self._take(change)

    def _take(self, change: _Change) -> None:
        if change.op == "truncate":
            self.truncated = True
            self.entries.clear()
            self.touched.clear()
            return
        self.touched[change.key] = change.row
        if change.op == "delete":
            self._moved = change.position, self.entries.pop(change.key, None) or self._stored(change)
        else:
            self.entries[change.key] = self._written(change)

    def _written(self, change: _Change) -> _Entry:
        before = self.entries.get(change.key) or self._stored(change)
        if self._moved is not None and self._moved[0] == change.position:
            before = self._moved[1]
        pairs = zip(self.names, before.sources, strict=True)
        sources = [source if name in change.unchanged else change.row for name, source in pairs]
        return _Entry(sources, before.origin)

    def _stored(self, change: _Change) -> _Entry:
        return _Entry([_IN_TABLE] * len(self.names), change.row)


class _Merge:
    """One batch with the table. Inside, columns go by number, since real names may hold any character.

    t0, t1 ... are the table's columns, c0, c1 ... the batch's, k0, k1 ... keys by which the table is searched.
    """

    def __init__(self, spark: SparkSession, fields: list[StructField], keys: Sequence[str], changes: pa.Table) -> None:
        self._spark = spark
        self._fields = fields
        self._names = [each.name for each in fields]
        self._keys = [self._names.index(name) for name in keys]
        self._columns = [changes[name].combine_chunks() for name in self._names]
        self._fold = _Fold(self._names)
        self._fold.take(self._changes(changes))

    def _changes(self, changes: pa.Table) -> Iterable[_Change]:
        keys = zip(*(self._columns[index].to_pylist() for index in self._keys), strict=True)
        columns = (changes[name].to_pylist() for name in (OP, POSITION))
        return map(_Change, range(changes.num_rows), *columns, keys, changes[UNCHANGED].to_pylist())

    def run(self, stored: Path | None) -> DataFrame:
        """The table after the batch; `stored` is the version before it."""
        table = None if stored is None or self._fold.truncated else self._read(stored)
        merged = self._upserts(table)
        if table is not None:
            merged = self._untouched(table).unionAll(merged)
        return merged.toDF(*self._names)

    def _read(self, path: Path) -> DataFrame:
        known = {each.name: each.dataType for each in self._spark.read.parquet(str(path)).schema.fields}
        for each in self._fields:
            before = known.get(each.name, each.dataType)
            if before.simpleString() != each.dataType.simpleString():
                raise StateError(
                    f"the column {each.name} was {before.simpleString()} and is now {each.dataType.simpleString()}",
                    where=str(path.parent),
                    remedy="apply the changes to a new directory, from a new snapshot",
                )
        table = self._spark.read.schema(StructType(self._fields)).parquet(str(path))
        return table.toDF(*(f"t{index}" for index in range(len(self._fields))))

    def _untouched(self, table: DataFrame) -> DataFrame:
        """Rows of the table whose key does not occur in the batch."""
        touched = self._frame(self._taken("k", self._keys, [list(self._fold.touched.values())] * len(self._keys)))
        return table.join(sf.broadcast(touched), self._same_key(), "left_anti")

    def _upserts(self, table: DataFrame | None) -> DataFrame:
        """Rows that the batch leaves, completed from the table where it did not have all of their values."""
        entries = list(self._fold.entries.values())
        all_columns = range(len(self._fields))
        columns = self._taken("c", all_columns, [[entry.sources[index] for entry in entries] for index in all_columns])
        kept = [[index for index, row in enumerate(entry.sources) if row == _IN_TABLE] for entry in entries]
        if table is None or not any(kept):
            return self._frame(columns)
        origins = self._taken("k", self._keys, [[entry.origin for entry in entries]] * len(self._keys))
        marks = StructField(_KEPT, ArrayType(IntegerType())), pa.array(kept, pa.list_(pa.int32()))
        completed = self._frame([*columns, *origins, marks]).join(table, self._same_key(), "left")
        return completed.select(
            *(
                sf.when(sf.array_contains(_KEPT, index), sf.col(f"t{index}")).otherwise(sf.col(f"c{index}"))
                for index in all_columns
            )
        )

    def _taken(self, prefix: str, columns: Sequence[int], rows: Sequence[list[int]]) -> list[_Taken]:
        """Columns of the batch, each at rows of its own; NULL for what is not in the batch."""
        return [
            (StructField(f"{prefix}{index}", self._fields[index].dataType), self._columns[index].take(_indices(wanted)))
            for index, wanted in zip(columns, rows, strict=True)
        ]

    def _frame(self, columns: list[_Taken]) -> DataFrame:
        fields = [each for each, _ in columns]
        table = pa.table([array for _, array in columns], names=[each.name for each in fields])
        return self._spark.createDataFrame(table, schema=StructType(fields))

    def _same_key(self) -> Column:
        same = [sf.col(f"t{index}").eqNullSafe(sf.col(f"k{index}")) for index in self._keys]
        return reduce(Column.__and__, same)


def _indices(rows: list[int]) -> pa.Array:
    return pa.array([None if row == _IN_TABLE else row for row in rows], pa.int64())


# Versions --------------------------------------------------------------------------------------------------------


class _Current(msgspec.Struct, frozen=True):
    """What `CURRENT` says."""

    version: int
    position: str


def _version_path(directory: Path, version: int) -> Path:
    return directory / f"v{version:08d}"


def _current(directory: Path) -> _Current | None:
    try:
        return msgspec.json.decode((directory / _POINTER).read_bytes(), type=_Current)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        raise StateError(
            f"{_POINTER} cannot be read", where=str(directory), remedy="restore it, or start anew with a new directory"
        ) from None


def _make_durable(path: Path) -> None:
    """Spark does not sync what it writes, and the slot will soon forget these changes."""
    for each in [*path.iterdir(), path]:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _switch(directory: Path, current: _Current) -> None:
    replace_file(directory / _POINTER, msgspec.json.encode(current))
    valid = {_version_path(directory, version).name for version in (current.version, current.version - 1)}
    for old in directory.glob("v*"):
        if old.name not in valid:
            shutil.rmtree(old, ignore_errors=True)
