"""The kernel that walks over a range of the spool and writes one event per change.

A range is messages of pgoutput, each behind its length (u32, little-endian), transaction after transaction. Each
transaction starts with its Begin message; there is no Commit. Nothing is believed: every length is checked against
what is there before anything is read, and a kernel that meets nonsense returns a reason and leaves AT at it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

from numba import types

from headgate.kernels.changes import debezium_form, json_form, layout, msgpack_form
from headgate.kernels.changes.changes import (
    NO_CHANGE,
    AddChange,
    add_change_in,
    add_debezium_change,
    add_message,
    add_truncate,
    change_of,
)
from headgate.kernels.changes.clock import EARLIEST_US, LATEST_US
from headgate.kernels.changes.events import events_in
from headgate.kernels.changes.layout import DEBEZIUM, JSON, Batch, Bytes, State, Tables
from headgate.kernels.changes.text import be32, be64, is_utf8, le32
from headgate.kernels.jit import BYTES_READ, NUMBERS, compile_kernel, inlined, part

__all__ = ["Walk", "walk_kernel"]

Walk: TypeAlias = Callable[[Bytes, State, Tables, Batch], int]
PutTransaction: TypeAlias = Callable[[Bytes, State, Tables], None]
Step: TypeAlias = Callable[[Bytes, int, int, State, Tables, Batch], int]

BEGIN, RELATION, TYPE, ORIGIN, TRUNCATE, MESSAGE, SCHEMA = b"BRYOTMH"
BEGIN_BYTES = 25  # four more than PostgreSQL sends: the number of events


@part
def check_names(src: Bytes, at: int, stop: int, count: int) -> int:
    """Check that `count` texts, each with a zero byte behind it, fill the range exactly."""
    for _ in range(count):
        end = at
        while end < stop and src[end] != 0:
            end += 1
        if end >= stop or not is_utf8(src, at, end):
            return layout.MALFORMED
        at = end + 1
    return layout.DONE if at == stop else layout.MALFORMED


def _begin_in(put_transaction: PutTransaction) -> Step:
    @inlined
    def begin(src: Bytes, start: int, stop: int, state: State, tables: Tables, batch: Batch) -> int:
        if stop - start != BEGIN_BYTES:
            return layout.MALFORMED
        time = be64(src, start + 9)
        if time < EARLIEST_US or time > LATEST_US:
            return layout.NO_SUCH_TIME
        state[layout.TX_LSN] = be64(src, start + 1)
        state[layout.TX_TIME] = time
        state[layout.TX_XID] = be32(src, start + 17)
        state[layout.TX_EVENTS] = be32(src, start + 21)
        state[layout.NEXT_ORDINAL] = 0
        state[layout.IN_TRANSACTION] = 1
        put_transaction(batch.transaction, state, tables)
        return layout.DONE

    return begin


def _step_in(put_transaction: PutTransaction, add_change: AddChange) -> Step:
    """The part that takes one message, for a format."""
    begin = _begin_in(put_transaction)

    @inlined
    def step(src: Bytes, start: int, stop: int, state: State, tables: Tables, batch: Batch) -> int:
        kind = src[start]
        if kind == BEGIN:
            return begin(src, start, stop, state, tables, batch)
        if kind == SCHEMA:
            return layout.SCHEMA
        if state[layout.IN_TRANSACTION] == 0:
            return layout.OUTSIDE
        change = change_of(kind)
        if change != NO_CHANGE:
            return add_change(src, start, stop, change, state, tables, batch)
        if kind == TRUNCATE:
            return add_truncate(src, start, stop, state, tables, batch)
        if kind == MESSAGE:
            return add_message(src, start, stop, state, batch)
        if kind == RELATION:
            return layout.RELATION
        if kind == ORIGIN:  # an LSN and a name, which events have no use for
            return check_names(src, start + 9, stop, 1)
        if kind == TYPE:  # an id and two names; what a type is, the catalog knows
            return check_names(src, start + 5, stop, 2)
        return layout.MISPLACED

    return step


step_msgpack = _step_in(events_in(msgpack_form).put_transaction, add_change_in(msgpack_form))
step_json = _step_in(events_in(json_form).put_transaction, add_change_in(json_form))
step_debezium = _step_in(debezium_form.put_transaction, add_debezium_change)


def _kernel(form: int, sources: int) -> Walk:
    """Closes over numbers only: they are the key to its code on disk."""

    def kernel(src: Bytes, state: State, tables: Tables, batch: Batch) -> int:
        state[layout.COMPILED_FROM] = sources
        end = len(src)
        while state[layout.AT] < end:
            start = state[layout.AT] + 4
            if start >= end or le32(src, start - 4) > end - start or le32(src, start - 4) == 0:
                return layout.CUT_OFF
            stop = start + le32(src, start - 4)
            if form == DEBEZIUM:
                reason = step_debezium(src, start, stop, state, tables, batch)
            elif form == JSON:
                reason = step_json(src, start, stop, state, tables, batch)
            else:
                reason = step_msgpack(src, start, stop, state, tables, batch)
            if reason != layout.DONE:
                return reason
            state[layout.AT] = stop
        return layout.DONE

    return kernel


@cache
def walk_kernel(form: int) -> Walk:
    """The kernel for a format. It goes on at state[AT] and returns why it stopped; `layout` lists the reasons."""
    signature = types.int64(BYTES_READ, NUMBERS, layout.TABLES_TYPE, layout.BATCH_TYPE)
    return compile_kernel(signature, partial(_kernel, form))
