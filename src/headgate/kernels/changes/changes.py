"""From a message to the rows of a batch: one for an Insert, Update, Delete or logical message, several for a Truncate.

Every function here returns a reason of `layout`: DONE, or why the walk must stop before this message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headgate.kernels.changes import debezium_form, layout
from headgate.kernels.changes.events import Form, add_gap, events_in
from headgate.kernels.changes.layout import Batch, Bytes, State, Tables
from headgate.kernels.changes.shares import has_rows_of, is_first, is_of_key, is_of_table
from headgate.kernels.changes.text import be32, be64, put_hex
from headgate.kernels.changes.tuples import NO_ROW, FoundRows, find_rows
from headgate.kernels.jit import inlined, part

__all__ = ["AddChange", "add_change_in", "add_debezium_change", "add_message", "add_truncate", "change_of"]

AddChange: TypeAlias = Callable[[Bytes, int, int, int, State, Tables, Batch], int]

CHANGE_BYTES = 6  # up to the kind of the first row
TRUNCATE_BYTES = 6  # up to the relation ids
MESSAGE_BYTES = 10  # up to the prefix
DASH = ord("-")
MOST_ORDINAL = 2**32 - 1


INSERT_MESSAGE, UPDATE_MESSAGE, DELETE_MESSAGE = b"IUD"
NO_CHANGE = -1

# The events of a change in Debezium's format, by their numbers: the last two are there if they must be.
FIRST_PART, TOMBSTONE, CREATED, PARTS = range(4)


@inlined
def change_of(kind: int) -> int:
    """The operation of a message with a row."""
    if kind == INSERT_MESSAGE:
        return layout.INSERT
    if kind == UPDATE_MESSAGE:
        return layout.UPDATE
    return layout.DELETE if kind == DELETE_MESSAGE else NO_CHANGE


@part
def find_shape(tables: Tables, relation_id: int) -> int:
    """The shape that is in force for a relation, if it has one yet."""
    low, high = 0, len(tables.relations)
    while low < high:
        middle = (low + high) // 2
        if tables.relations[middle, layout.ID] < relation_id:
            low = middle + 1
        else:
            high = middle
    shape: int = layout.NO_SHAPE
    if low < len(tables.relations) and tables.relations[low, layout.ID] == relation_id:
        shape = tables.relations[low, layout.SHAPE]
    return shape


@part
def find_room(state: State, batch: Batch, need_bytes: int, need_gaps: int) -> int:
    """Whether an event that takes so much at most has room in the batch."""
    if state[layout.NEXT_ORDINAL] > MOST_ORDINAL:
        return layout.TOO_MANY
    room = len(batch.payload) - state[layout.SIZE] - state[layout.OWED]
    gaps = len(batch.gaps) - state[layout.GAPS]
    if state[layout.ROWS] < len(batch.rows) and need_bytes <= room and need_gaps <= gaps:
        return layout.DONE
    state[layout.NEED_BYTES] = need_bytes
    state[layout.NEED_GAPS] = need_gaps
    return layout.FULL if state[layout.ROWS] > 0 else layout.NO_ROOM


@part
def open_row(state: State, batch: Batch, start: int, shape: int, operation: int, lsn: int) -> None:
    """All of a row but its payload."""
    row = state[layout.ROWS]
    batch.rows[row, layout.SOURCE] = start
    batch.rows[row, layout.OF_SHAPE] = shape
    batch.rows[row, layout.OPERATION] = operation
    batch.rows[row, layout.OF_XID] = state[layout.TX_XID]
    batch.rows[row, layout.TIME] = state[layout.TX_TIME]
    batch.rows[row, layout.OF_EVENTS] = state[layout.TX_EVENTS]
    batch.rows[row, layout.PART] = 0
    at = put_hex(batch.position, row * layout.POSITION_BYTES, lsn, layout.LSN_DIGITS)
    batch.position[at] = DASH
    put_hex(batch.position, at + 1, state[layout.NEXT_ORDINAL], layout.ORDINAL_DIGITS)


@inlined
def close_row(state: State, batch: Batch) -> None:
    batch.rows[state[layout.ROWS], layout.PAYLOAD_END] = state[layout.SIZE]
    state[layout.ROWS] += 1
    state[layout.NEXT_ORDINAL] += 1


@part
def add_whole(start: int, stop: int, shape: int, operation: int, lsn: int, state: State, batch: Batch) -> int:
    """A row whose payload the reference writes. It counts as its message, but an empty batch has room for any."""
    size = min(len(batch.payload), stop - start)
    reason = find_room(state, batch, size, layout.GAPS_OF_WHOLE)
    if reason == layout.DONE:
        open_row(state, batch, start, shape, operation, lsn)
        add_gap(state, batch.gaps, state[layout.SIZE], layout.WHOLE_EVENT, start, stop)
        close_row(state, batch)
    return reason


@part
def add_truncate(src: Bytes, start: int, stop: int, state: State, tables: Tables, batch: Batch) -> int:
    """A Truncate message: one event for each of its relations. A batch may end between them."""
    if stop - start < TRUNCATE_BYTES or src[start + 5] > 3:
        return layout.MALFORMED
    count = be32(src, start + 1)
    if 4 * count != stop - start - TRUNCATE_BYTES:
        return layout.MALFORMED
    for number in range(state[layout.TRUNCATED], count):
        state[layout.RELATION_ID] = be32(src, start + TRUNCATE_BYTES + 4 * number)
        shape = find_shape(tables, state[layout.RELATION_ID])
        if shape == layout.NO_SHAPE:
            return layout.UNKNOWN_RELATION
        is_ours = not has_rows_of(state) or is_of_table(state[layout.RELATION_ID], state)
        if not is_ours or state[layout.SKIPPED] >> layout.TRUNCATE & 1:
            state[layout.NEXT_ORDINAL] += 1
        else:
            reason = add_whole(start, stop, shape, layout.TRUNCATE, state[layout.TX_LSN], state, batch)
            if reason != layout.DONE:
                return reason
        state[layout.TRUNCATED] = number + 1
    state[layout.TRUNCATED] = 0
    return layout.DONE


@part
def add_message(src: Bytes, start: int, stop: int, state: State, batch: Batch) -> int:
    """A logical message. One that belongs to no transaction comes in one of its own, without xid and time.

    As in the reference, its position is then the last byte of its own WAL record, where no commit can begin.
    """
    if stop - start < MESSAGE_BYTES:
        return layout.MALFORMED
    alone = src[start + 1] & 1 == 0
    lsn = be64(src, start + 2) - 1 if alone else state[layout.TX_LSN]
    if alone and (state[layout.TX_XID] != 0 or state[layout.NEXT_ORDINAL] != 0 or lsn == -1):
        return layout.NOT_ALONE
    if alone:
        state[layout.TX_TIME] = 0
    if has_rows_of(state) and not is_first(state):
        state[layout.NEXT_ORDINAL] += 1
        reason = layout.DONE
    else:
        reason = add_whole(start, stop, layout.NO_SHAPE, layout.MESSAGE, lsn, state, batch)
    if alone and reason == layout.DONE:
        state[layout.IN_TRANSACTION] = 0
    return reason


@inlined
def is_others(src: Bytes, operation: int, found: FoundRows, shape: int, state: State, tables: Tables) -> bool:
    """Whether another task sends the change: its place in the transaction counts all the same."""
    if not has_rows_of(state):
        return False
    row = found[1] if operation == layout.DELETE else found[4]
    return not is_of_key(src, row, state[layout.RELATION_ID], state, tables, shape)


def add_change_in(form: Form) -> AddChange:
    """The part that adds Insert, Update and Delete messages, for a format."""
    put_event = events_in(form).put_event

    @part
    def add_change(
        src: Bytes, start: int, stop: int, operation: int, state: State, tables: Tables, batch: Batch
    ) -> int:
        if stop - start < CHANGE_BYTES:
            return layout.MALFORMED
        state[layout.RELATION_ID] = be32(src, start + 1)
        shape = find_shape(tables, state[layout.RELATION_ID])
        if shape == layout.NO_SHAPE:
            return layout.UNKNOWN_RELATION
        found = find_rows(src, start, stop, operation, tables, shape)
        if found[0] != layout.DONE:
            return found[0]
        if is_others(src, operation, found, shape, state, tables):
            state[layout.NEXT_ORDINAL] += 1
            return layout.DONE
        need = tables.shapes[shape, layout.FIXED] + state[layout.ID_END] + form.GROWTH * (stop - start)
        if tables.shapes[shape, layout.WHOLE] != 0 or need > state[layout.MOST_BYTES]:
            return add_whole(start, stop, shape, operation, state[layout.TX_LSN], state, batch)
        reason = find_room(state, batch, need, 2 * tables.shapes[shape, layout.COUNT])
        if reason == layout.DONE:
            open_row(state, batch, start, shape, operation, state[layout.TX_LSN])
            put_event(src, operation, found, shape, state, tables, batch)
            close_row(state, batch)
        return reason

    return add_change


@inlined
def has_part(number: int, operation: int, moves: bool, state: State) -> bool:
    if number == FIRST_PART:
        return True
    if number == CREATED:
        return moves
    return (moves or operation == layout.DELETE) and state[layout.TOMBSTONES] != 0


@part
def add_part(
    src: Bytes, start: int, stop: int, operation: int, number: int, found: FoundRows, shape: int, state: State,
    tables: Tables, batch: Batch,
) -> int:  # fmt: skip
    """One event of a change."""
    need = tables.shapes[shape, layout.FIXED] + state[layout.TAIL_END] + debezium_form.GROWTH * (stop - start)
    is_whole = need > state[layout.MOST_BYTES] and number != TOMBSTONE
    if is_whole:
        need = min(len(batch.payload), stop - start)
    reason = find_room(state, batch, need, 2 * tables.shapes[shape, layout.COUNT] + layout.GAPS_OF_WHOLE)
    if reason != layout.DONE:
        return reason
    open_row(state, batch, start, shape, operation, state[layout.TX_LSN])
    batch.rows[state[layout.ROWS], layout.PART] = number
    if is_whole:
        add_gap(state, batch.gaps, state[layout.SIZE], layout.WHOLE_EVENT, start, stop)
    elif number != TOMBSTONE:
        debezium_form.put_event(src, operation, found, shape, state, tables, batch)
    batch.rows[state[layout.ROWS], layout.PAYLOAD_END] = state[layout.SIZE]
    state[layout.ROWS] += 1
    return layout.DONE


@part
def add_debezium_change(
    src: Bytes, start: int, stop: int, operation: int, state: State, tables: Tables, batch: Batch
) -> int:
    """An Insert, Update or Delete message in Debezium's format: one event, or several. A batch may end between them."""
    if stop - start < CHANGE_BYTES:
        return layout.MALFORMED
    state[layout.RELATION_ID] = be32(src, start + 1)
    shape = find_shape(tables, state[layout.RELATION_ID])
    if shape == layout.NO_SHAPE:
        return layout.UNKNOWN_RELATION
    found = find_rows(src, start, stop, operation, tables, shape)
    reason, old, _, only_key, new, _ = found
    if reason != layout.DONE:
        return reason
    if not (state[layout.SKIPPED] >> operation & 1 or is_others(src, operation, found, shape, state, tables)):
        moves = operation == layout.UPDATE and old != NO_ROW
        moves = moves and debezium_form.key_moves(src, old, only_key, new, shape, tables)
        for number in range(state[layout.TRUNCATED], PARTS):
            if has_part(number, operation, moves, state):
                shown = operation
                if moves:
                    shown = layout.INSERT if number == CREATED else layout.DELETE
                reason = add_part(src, start, stop, shown, number, found, shape, state, tables, batch)
                if reason != layout.DONE:
                    return reason
            state[layout.TRUNCATED] = number + 1
        state[layout.TRUNCATED] = 0
    state[layout.NEXT_ORDINAL] += 1
    return layout.DONE
