"""The batches of one append as a parameter of `kafka.append`, in PostgreSQL's binary form.

An array of `kafka.incoming`: for every batch the numbers are packed at once, and the positions of its records are
bytes already. Nothing here is done per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from psycopg.adapt import Dumper
from psycopg.pq import Format

from headgate.commitlog.prepare import Batch

if TYPE_CHECKING:
    from psycopg.abc import AdaptContext, Buffer

__all__ = ["TYPES_SQL", "Incoming", "register"]

Part = bytes | memoryview

# What `register` needs to know of the database: the type of one batch, and of an array of them.
TYPES_SQL = "select 'kafka.incoming'::regtype::oid, 'kafka.incoming[]'::regtype::oid"

_INT2, _INT4, _INT8, _BYTEA, _INT4S, _INT8S = 21, 23, 20, 17, 1007, 1016
_FIELDS = 16
_ARRAY = Struct(">iiIii")  # dimensions, has nulls, type of elements, how many, index of the first
_LENGTH = Struct(">i")
_FIELD = Struct(">Ii")  # type and length of a field
# Number of fields, then type, length and value of each that is a number.
_NUMBERS = Struct(">i" + "Iii" * 3 + "Iih" * 2 + "Iii" + "Iiq" * 3)
_NULL = {oid: _FIELD.pack(oid, -1) for oid in (_INT4S, _INT8S, _BYTEA)}


class Incoming:
    """Batches, each with its partition, as one parameter."""

    __slots__ = ("batches",)

    def __init__(self, batches: Sequence[tuple[int, Batch]]) -> None:
        self.batches = batches

    def dumped(self, oid: int) -> bytes:
        """The array, with `oid` as the type of its elements."""
        parts: list[Part] = [_ARRAY.pack(1, 0, oid, len(self.batches), 1)]
        for part_id, batch in self.batches:
            row = _row(part_id, batch)
            parts.append(_LENGTH.pack(sum(map(len, row))))
            parts += row
        return b"".join(parts)


def _row(part_id: int, batch: Batch) -> list[Part]:
    positions = batch.positions
    row: list[Part] = [
        _NUMBERS.pack(
            _FIELDS,
            *(_INT4, 4, part_id),
            *(_INT4, 4, batch.count),
            *(_INT4, 4, len(batch.data)),
            *(_INT2, 2, batch.attributes),
            *(_INT2, 2, batch.producer_epoch),
            *(_INT4, 4, batch.base_sequence),
            *(_INT8, 8, batch.base_timestamp),
            *(_INT8, 8, batch.max_timestamp),
            *(_INT8, 8, batch.producer_id),
        )
    ]
    if positions is None:
        row += (_NULL[_INT4S],) * 4
        row.append(_NULL[_INT8S])
    else:
        for elements in (positions.key_at, positions.value_len, positions.key_len, positions.ts_delta):
            row += _array(_INT4S, _INT4, batch.count, elements)
        row += _array(_INT8S, _INT8, batch.count, positions.ts_far)
    row += _FIELD.pack(_BYTEA, len(batch.data)), batch.data
    row += (_NULL[_BYTEA],) if batch.plain is None else (_FIELD.pack(_BYTEA, len(batch.plain)), batch.plain)
    return row


def _array(oid: int, element_oid: int, count: int, elements: bytes) -> tuple[Part, ...]:
    if not elements:
        return (_NULL[oid],)
    return _FIELD.pack(oid, _ARRAY.size + len(elements)), _ARRAY.pack(1, 0, element_oid, count, 1), elements


def register(context: AdaptContext, oid: int, array_oid: int) -> None:
    """Teach a connection to send `Incoming`; the two numbers are what `TYPES_SQL` answers."""

    class IncomingDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> Buffer:
            value: Incoming = obj
            return value.dumped(oid)

    IncomingDumper.oid = array_oid
    context.adapters.register_dumper(Incoming, IncomingDumper)
