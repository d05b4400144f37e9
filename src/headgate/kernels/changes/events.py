"""An event's bytes: constant pieces, the fields of its transaction, its own, and its rows.

Both formats have the same parts in the same order. `events_in` writes them in terms of what a format's module offers,
so they are compiled once for each format, and only when that is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from headgate.kernels.changes import layout
from headgate.kernels.changes.layout import Batch, Bytes, State, Table, Tables
from headgate.kernels.changes.text import be32, put_hex
from headgate.kernels.changes.tuples import NO_ROW, NULL, TEXT_VALUE, UNCHANGED, FoundRows
from headgate.kernels.jit import inlined, part
from headgate.kernels.memory import copy

__all__ = ["EventParts", "Form", "add_gap", "events_in", "put_piece"]

DASH = ord("-")


class Form(Protocol):
    """What the module of a format offers. `out` is written to from `at` on; what is returned is where that ended."""

    GROWTH: int  # how many bytes one byte of a value may become

    def open_map(self, out: Bytes, at: int, size: int, /) -> int:
        """The begin of a row with so many entries."""

    def begin_entry(self, out: Bytes, at: int, is_first: bool, /) -> int:
        """What stands before a name."""

    def close_map(self, out: Bytes, at: int, /) -> int:
        """The end of a row."""

    def count_entry(self, out: Bytes, begin: int, /) -> None:
        """One entry more in the event that begins there."""

    def put_null(self, out: Bytes, at: int, /) -> int:
        """No value."""

    def put_int(self, out: Bytes, at: int, value: int, /) -> int:
        """An integer of the envelope, which is not negative."""

    def put_time(self, out: Bytes, at: int, time: int, /) -> int:
        """The time of a commit."""

    def put_lsn_text(self, out: Bytes, at: int, lsn: int, /) -> int:
        """An LSN between its pieces."""

    def put_value(self, out: Bytes, at: int, rule: int, src: Bytes, start: int, stop: int, /) -> int:
        """A value by its rule, or -1 if the reference has to read it."""


class EventParts(NamedTuple):
    """What `events_in` makes for a format."""

    put_transaction: Callable[[Bytes, State, Tables], None]
    put_row: Callable[..., int]
    put_event: Callable[..., None]


@inlined
def put_piece(out: Bytes, at: int, tables: Tables, piece: int) -> int:
    return copy(out, at, tables.text, tables.pieces[piece], tables.pieces[piece + 1])


@part
def add_gap(state: State, gaps: Table, place: int, column: int, start: int, stop: int) -> None:
    """Leave a value to the reference. That there is room for it was seen to before the event began."""
    number = state[layout.GAPS]
    gaps[number, layout.PLACE] = place
    gaps[number, layout.GAP_ROW] = state[layout.ROWS]
    gaps[number, layout.GAP_COLUMN] = column
    gaps[number, layout.START] = start
    gaps[number, layout.STOP] = stop
    state[layout.GAPS] = number + 1
    state[layout.OWED] += stop - start


def events_in(form: Form) -> EventParts:
    """The parts that write events in a format."""
    put_row = _row_in(form)
    return EventParts(_transaction_in(form), put_row, _event_in(form, put_row))


def _transaction_in(form: Form) -> Callable[[Bytes, State, Tables], None]:
    @part
    def put_transaction(out: Bytes, state: State, tables: Tables) -> None:
        """What all events of the transaction share: before their ordinal, and behind it."""
        lsn, time, xid = state[layout.TX_LSN], state[layout.TX_TIME], state[layout.TX_XID]
        count = state[layout.TX_EVENTS]
        at = put_piece(out, layout.START_OF_TEXT, tables, layout.COMMIT_LSN)
        at = put_piece(out, form.put_lsn_text(out, at, lsn), tables, layout.COMMIT_TIME)
        at = form.put_null(out, at) if time == 0 else form.put_time(out, at, time)
        at = put_piece(out, at, tables, layout.XID)
        at = form.put_null(out, at) if xid == 0 else form.put_int(out, at, xid)
        at = put_piece(out, at, tables, layout.EVENT_COUNT)
        at = form.put_int(out, at, count)
        at = put_piece(out, at, tables, layout.LSN)
        at = put_piece(out, form.put_lsn_text(out, at, lsn), tables, layout.ORDINAL)
        state[layout.HEAD_END] = at
        at = put_hex(out, put_piece(out, at, tables, layout.MSG_ID), lsn, layout.LSN_DIGITS)
        out[at] = DASH
        state[layout.ID_END] = at + 1

    return put_transaction


def _row_in(form: Form) -> Callable[..., int]:
    @part
    def put_row(
        out: Bytes, at: int, src: Bytes, row: int, shown: int, only_key: bool, shape: int, tables: Tables, state: State,
        gaps: Table,
    ) -> int:  # fmt: skip
        """A row as a map of its shown columns. `find_rows` has checked it and counted them."""
        at = first_entry = form.open_map(out, at, shown)
        first = tables.shapes[shape, layout.FIRST]
        row += 2
        for column in range(first, first + tables.shapes[shape, layout.COUNT]):
            kind = src[row]
            start = stop = row + 1
            if kind != NULL and kind != UNCHANGED:
                start = row + 5
                stop = start + be32(src, row + 1)
            row = stop
            if kind == UNCHANGED or (only_key and tables.columns[column, layout.IS_KEY] == 0):
                continue
            at = form.begin_entry(out, at, at == first_entry)
            at = copy(
                out, at, tables.text, tables.columns[column, layout.NAME], tables.columns[column, layout.NAME_END]
            )
            end = -1
            if kind == NULL:
                end = form.put_null(out, at)
            elif kind == TEXT_VALUE:
                end = form.put_value(out, at, tables.columns[column, layout.RULE], src, start, stop)
            if end < 0:
                add_gap(state, gaps, at, column, start, stop)
            else:
                at = end
        return form.close_map(out, at)

    return put_row


def _event_in(form: Form, put_row: Callable[..., int]) -> Callable[..., None]:
    @inlined
    def put_event(
        src: Bytes, operation: int, found: FoundRows, shape: int, state: State, tables: Tables, batch: Batch
    ) -> None:
        """The payload of an Insert, Update or Delete."""
        _, old, old_shown, only_key, new, new_shown = found
        out, begin = batch.payload, state[layout.SIZE]
        head = layout.HEADS + 2 * operation
        position_end = (state[layout.ROWS] + 1) * layout.POSITION_BYTES
        at = copy(out, begin, tables.text, tables.shapes[shape, head], tables.shapes[shape, head + 1])
        at = copy(out, at, batch.transaction, layout.START_OF_TEXT, state[layout.HEAD_END])
        at = form.put_int(out, at, state[layout.NEXT_ORDINAL])
        at = copy(out, at, batch.transaction, state[layout.HEAD_END], state[layout.ID_END])
        at = copy(out, at, batch.position, position_end - layout.ORDINAL_DIGITS, position_end)
        at = put_piece(out, at, tables, layout.DATA)
        is_delete = operation == layout.DELETE
        data, shown = (old, old_shown) if is_delete else (new, new_shown)
        at = put_row(out, at, src, data, shown, only_key and is_delete, shape, tables, state, batch.gaps)
        if old != NO_ROW and not is_delete:
            form.count_entry(out, begin)
            at = put_piece(out, at, tables, layout.OLD)
            at = put_row(out, at, src, old, old_shown, only_key, shape, tables, state, batch.gaps)
        state[layout.SIZE] = put_piece(out, at, tables, layout.END)

    return put_event
