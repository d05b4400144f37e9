"""Routes a batch of rows: the rules are asked once per distinct combination of values, never once per row.

Values are turned into numbers by Arrow's hash tables, so 500 routes cost what 5 cost.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import record
from headgate.model.address import Address
from headgate.pipeline.routing.rules import Choice, Keys, Rules
from headgate.sources.base import ABSENT

__all__ = [
    "ABSENT",
    "KEY",
    "KEY_STREAM",
    "KEY_TOPIC",
    "Routed",
    "Router",
    "key_bytes",
    "key_columns",
    "key_number",
    "lookup_column",
]

# What the plan puts beside a row for the router; all strings.
KEY_STREAM = "_route_stream"
KEY_TOPIC = "_route_topic"
KEY = "_route_partition"

_MOST_CHOICES = 50_000  # remembered between batches
_U32 = struct.Struct("<I")
_NUMBER = r"^-?[0-9]{1,18}$"

Indices: TypeAlias = npt.NDArray[np.int64]


def lookup_column(number: int) -> str:
    """The column with the values of one `route`."""
    return f"_route_{number}"


def key_columns(rules: Rules) -> list[str]:
    """The columns that a router of these rules reads."""
    names = [lookup_column(number) for number in range(len(rules.lookups))]
    names += [KEY_STREAM] if rules.by_stream_column else []
    names += [KEY_TOPIC] if rules.by_topic_column else []
    names += [record.SCHEMA, record.TABLE] if rules.by_table else []
    return names


@dataclass(frozen=True, slots=True)
class Routed:
    """Rows with a destination each: `wanted[index[row]]`. A row with several stands there several times."""

    rows: pa.RecordBatch
    wanted: tuple[Address, ...]
    index: Indices
    missing: pa.RecordBatch  # rows that no rule gives a destination
    code: Indices  # of each row: the values that it was routed by are `keys[code[row]]`
    keys: tuple[Keys, ...]
    absent: int = 0  # rows whose change does not carry a routing column
    defaulted: int = 0  # rows that the default caught

    def where(self, keep: npt.NDArray[np.bool_]) -> Routed:
        """The rows that a mask keeps."""
        if keep.all():
            return self
        return replace(self, rows=self.rows.filter(pa.array(keep)), index=self.index[keep], code=self.code[keep])


class Router:
    """Applies rules to batches, and remembers what it learnt of their values."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._names = key_columns(rules)
        self._choices: dict[Keys, Choice] = {}

    def route(self, batch: pa.RecordBatch) -> Routed:
        codes, distinct = self._combinations(batch)
        choices = [self._choose(keys) for keys in distinct]
        wanted = tuple(sorted({target for choice in choices for target in choice.destinations}))
        number = {target: index for index, target in enumerate(wanted)}
        counts = np.array([len(choice.destinations) for choice in choices], dtype=np.int64)
        per_row = counts[codes] if len(counts) else np.zeros(batch.num_rows, dtype=np.int64)
        first = np.array([number[c.destinations[0]] if c.destinations else -1 for c in choices], dtype=np.int64)
        missing = batch.filter(pa.array(per_row == 0)) if (per_row == 0).any() else batch.slice(0, 0)
        is_default = np.array([choice.by_default and bool(choice.destinations) for choice in choices], dtype=np.bool_)
        defaulted = int(is_default[codes].sum()) if len(choices) else 0
        if (per_row == 1).all():
            rows, index = batch, first[codes] if len(counts) else np.zeros(0, dtype=np.int64)
        else:
            rows, index = self._expand(batch, codes, per_row, choices, number)
            codes = np.repeat(codes, per_row)
        return Routed(
            rows=self._delivery(rows, wanted, index),
            wanted=wanted,
            index=index,
            missing=missing,
            code=codes,
            keys=tuple(distinct),
            absent=_count_true(batch, ABSENT),
            defaulted=defaulted,
        )

    def choices(self, batch: pa.RecordBatch) -> list[Choice]:
        """What the rules say of each row."""
        codes, distinct = self._combinations(batch)
        choices = [self._choose(keys) for keys in distinct]
        return [choices[code] for code in codes]

    def _choose(self, keys: Keys) -> Choice:
        choice = self._choices.get(keys)
        if choice is None:
            if len(self._choices) >= _MOST_CHOICES:
                self._choices.clear()
            choice = self._choices[keys] = self.rules.choose(keys)
        return choice

    def _combinations(self, batch: pa.RecordBatch) -> tuple[Indices, list[Keys]]:
        """Each row's combination of values as a number, and what the numbers stand for."""
        codes: Indices = np.zeros(batch.num_rows, dtype=np.int64)
        for name in self._names:
            column = _dictionary(batch.column(name))
            size = len(column.dictionary) + 1
            numbers = pc.fill_null(column.indices.cast(pa.int64()), size - 1).to_numpy(zero_copy_only=False)
            codes = _renumbered(codes * size + numbers)
        first = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
        first[codes[::-1]] = np.arange(batch.num_rows)[::-1]
        return codes, self._keys(batch.select(self._names).take(pa.array(first)))

    def _keys(self, examples: pa.RecordBatch) -> list[Keys]:
        """One row of each combination, as what the rules take."""
        none = pa.nulls(examples.num_rows, pa.string())

        def texts(name: str) -> list[str | None]:
            column = examples.column(name) if name in examples.schema.names else none
            found: list[str | None] = column.to_pylist()
            return found

        lookups = [texts(lookup_column(number)) for number in range(len(self.rules.lookups))]
        values = zip(*lookups, strict=True) if lookups else [()] * examples.num_rows
        names = (record.SCHEMA, record.TABLE, KEY_STREAM, KEY_TOPIC)
        return [Keys(*row) for row in zip(*(texts(name) for name in names), values, strict=True)]

    def _expand(
        self,
        batch: pa.RecordBatch,
        codes: Indices,
        per_row: Indices,
        choices: list[Choice],
        number: dict[Address, int],
    ) -> tuple[pa.RecordBatch, Indices]:
        """Rows once per destination, without those that have none. Copies get message ids of their own."""
        flat = np.array([number[target] for choice in choices for target in choice.destinations], dtype=np.int64)
        ends = np.cumsum([len(choice.destinations) for choice in choices])
        starts = ends - np.array([len(choice.destinations) for choice in choices], dtype=np.int64)
        source = np.repeat(np.arange(batch.num_rows), per_row)
        ordinal = np.arange(len(source)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
        index = flat[starts[codes][source] + ordinal] if len(source) else np.zeros(0, dtype=np.int64)
        rows = batch.take(pa.array(source))
        if (ordinal > 0).any():
            suffixes = pa.array(["", *(f"~{copy}" for copy in range(1, int(ordinal.max()) + 1))])
            ids = pc.binary_join_element_wise(
                rows.column(record.MESSAGE_ID).cast(pa.string()), suffixes.take(pa.array(ordinal)), ""
            )
            at = rows.schema.get_field_index(record.MESSAGE_ID)
            rows = rows.set_column(at, record.MESSAGE_ID, ids)
        return rows, index

    def _delivery(self, rows: pa.RecordBatch, wanted: tuple[Address, ...], index: Indices) -> pa.RecordBatch:
        """The columns a sender takes."""
        at = pa.array(index)
        columns = {
            record.TOPIC: pa.array([target.topic for target in wanted], pa.string()).take(at),
            record.MESSAGE_ID: rows.column(record.MESSAGE_ID),
            record.PAYLOAD: rows.column(record.PAYLOAD),
        }
        if self.rules.partition_key_column:
            columns |= _partition_columns(rows.column(KEY), self.rules.encoding)
        elif record.PARTITION_KEY in rows.schema.names:  # the source's own
            columns[record.PARTITION_KEY] = rows.column(record.PARTITION_KEY)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns), metadata=rows.schema.metadata)


def _partition_columns(values: pa.Array, encoding: str) -> dict[str, pa.Array]:
    """The partition key in its encoding. What is no number there counts as no key, as NULL does."""
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    if encoding == "bytes":
        return {record.PARTITION_KEY: pc.cast(values, pa.binary())}
    numbers = _numbers(values)
    if encoding == "partition_id":
        return {record.PARTITION: numbers}
    return {record.PARTITION_KEY: pa.array([_as_u32(number) for number in numbers.to_pylist()], pa.binary())}


def key_bytes(text: str, encoding: str) -> bytes | None:
    """What `_partition_columns` makes of one value, for `bytes` and `key_u32`."""
    return text.encode() if encoding == "bytes" else _as_u32(key_number(text))


def key_number(text: str) -> int | None:
    """Return the partition number that a value stands for (`partition_id`); None if it is no number."""
    return int(text) if re.fullmatch(_NUMBER, text) else None


def _as_u32(number: int | None) -> bytes | None:
    return None if number is None or number < 0 else _U32.pack(number & 0xFFFFFFFF)


def _numbers(values: pa.Array) -> pa.Array:
    is_number = pc.fill_null(pc.match_substring_regex(values, _NUMBER), False)
    return pc.cast(pc.if_else(is_number, values, pa.scalar(None, pa.string())), pa.int64())


def _renumbered(codes: Indices) -> Indices:
    """Number the groups anew from 0, so that combining columns never overflows."""
    indices: Indices = pa.array(codes).dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return indices


def _dictionary(column: pa.Array) -> pa.DictionaryArray:
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _count_true(batch: pa.RecordBatch, name: str) -> int:
    if name not in batch.schema.names:
        return 0
    return int(pc.sum(batch.column(name)).as_py() or 0)
