"""Fills the gaps that kernels have left with what the reference writes there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from headgate.kernels.changes import layout
from headgate.kernels.changes.layout import Bytes, Numbers, State, Table
from headgate.kernels.changes.reference import Reference
from headgate.kernels.changes.shapes import Shape
from headgate.model import DataError, HeadgateError, Position, ProtocolError
from headgate.wire.envelope import Event, Operation
from headgate.wire.pgoutput import BinaryValue, Column

__all__ = ["LENGTH_BYTES", "Filled", "Refused", "RowSource", "ValueForm", "fill_gaps", "message_at", "new_state"]

LENGTH_BYTES = 4  # before each message
# No event takes more than this in a buffer of ours, since Arrow's offsets end at twice as much.
MOST_EVENT_BYTES = 2**30
_BINARY = ord("b")

WholeEvent: TypeAlias = Callable[[int], bytes]
Refused: TypeAlias = dict[int, HeadgateError]


class ValueForm(Protocol):
    """The tables of a format, as far as a gap needs them."""

    def value(self, column: int, value: Column, /) -> bytes:
        """A value that a kernel has left out; `column` is its number in the tables."""


class Filled(NamedTuple):
    """Texts one behind the other, and where each ends."""

    text: memoryview | bytes
    ends: Numbers


class RowSource(NamedTuple):
    """The rows of a batch, and what they were made from."""

    src: Bytes
    rows: Table
    position: Bytes
    shapes: Sequence[Shape]
    reference: Reference

    def event(self, row: int) -> Event:
        """A row's event, as the reference reads it."""
        start, shape, operation, xid, time, count, _, _ = self.rows[row].tolist()
        relation = None if shape == layout.NO_SHAPE else self.shapes[shape].relation
        begin = row * layout.POSITION_BYTES
        position = Position.parse(self.position[begin : begin + layout.POSITION_BYTES].tobytes().decode())
        event = self.reference.event(message_at(self.src, start), relation, position, time, xid, count)
        return _half(event, operation) if event.operation is Operation.UPDATE else event

    def value(self, start: int, stop: int) -> Column:
        """A column's value, behind its kind and its length."""
        raw = self.src[start:stop].tobytes()
        return BinaryValue(raw) if self.src[start - LENGTH_BYTES - 1] == _BINARY else raw


def _half(event: Event, operation: int) -> Event:
    """An update that became a delete and a create: the one that is meant."""
    if operation == layout.DELETE:
        return replace(event, operation=Operation.DELETE, data=event.old or (), old=None)
    return replace(event, operation=Operation.INSERT) if operation == layout.INSERT else event


def new_state() -> State:
    """The state of a kernel that has not begun."""
    state = np.zeros(layout.STATE_FIELDS, dtype=np.int64)
    state[layout.MOST_BYTES] = MOST_EVENT_BYTES
    return state


def message_at(src: Bytes, start: int) -> bytes:
    """A message whose length a kernel has checked."""
    size = int.from_bytes(src[start - LENGTH_BYTES : start].tobytes(), "little")
    return src[start : start + size].tobytes()


def fill_gaps(
    filled: Filled,
    gaps: Table,
    source: RowSource,
    form: ValueForm,
    whole: WholeEvent,
    refused: Refused | None = None,
) -> Filled:
    """Put every missing value in its place. `whole` writes what is missing altogether, by the number of its row.

    Rows whose values the reference refuses go into `refused`, if there is one, and get nothing.
    """
    if not len(gaps):
        return filled
    try:
        values = _values(gaps, source, form, whole)
    except (DataError, ProtocolError):
        if refused is None:
            raise
        # Which rows it is: one gap at a time, which takes longer.
        values = [_value_or_none(gaps[n : n + 1], source, form, whole, refused) for n in range(len(gaps))]
    view = memoryview(filled.text)
    parts: list[bytes | memoryview] = []
    taken = 0
    for place, value in zip(gaps[:, layout.PLACE].tolist(), values, strict=True):
        parts += (view[taken:place], value)
        taken = place
    parts.append(view[taken:])
    longer = np.zeros(len(filled.ends), dtype=np.int64)
    np.add.at(longer, gaps[:, layout.GAP_ROW], [len(value) for value in values])
    return Filled(b"".join(parts), filled.ends + np.cumsum(longer))


def _values(gaps: Table, source: RowSource, form: ValueForm, whole: WholeEvent) -> list[bytes]:
    return [
        whole(row) if column == layout.WHOLE_EVENT else form.value(column, source.value(start, stop))
        for _, row, column, start, stop in gaps.tolist()
    ]


def _value_or_none(gap: Table, source: RowSource, form: ValueForm, whole: WholeEvent, refused: Refused) -> bytes:
    try:
        return _values(gap, source, form, whole)[0]
    except (DataError, ProtocolError) as error:
        refused.setdefault(int(gap[0, layout.GAP_ROW]), error)
        return b""
