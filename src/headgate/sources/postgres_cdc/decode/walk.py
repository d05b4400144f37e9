"""The walk over the source."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import types

from headgate.sources.postgres_cdc.decode import layout as l
from headgate.sources.postgres_cdc.decode import msgpack_form
from headgate.sources.postgres_cdc.decode.clock import EARLIEST_US, LATEST_US
from headgate.sources.postgres_cdc.decode.jit import SOURCES, compile_kernel, part
from headgate.sources.postgres_cdc.decode.layout import Batch, Bytes, State, Tables
from headgate.sources.postgres_cdc.decode.text import be32, be64, copy, le32, put_hex, is_utf8
from headgate.sources.postgres_cdc.decode.tuples import add_gap, check_tuple

PG_EPOCH_UNIX_US = 946_684_800_000_000
KIND_B, KIND_R, KIND_Y, KIND_O, KIND_I, KIND_U, KIND_D, KIND_T, KIND_M = b"BRYOIUDTM"
NEW_ROW, OLD_KEY, OLD_ROW = b"NKO"


@part
def find_shape(tables: Tables, relation_id: int) -> int:
    low, high = 0, len(tables.ids)
    while low < high:
        middle = (low + high) >> 1
        if tables.ids[middle] < relation_id:
            low = middle + 1
        else:
            high = middle
    return tables.shape_of[low] if low < len(tables.ids) and tables.ids[low] == relation_id else -1


@part
def begin(src, start, stop, state, tables, batch):
    if stop - start != 21:
        return l.MALFORMED
    time = be64(src, start + 9)
    if time < EARLIEST_US or time > LATEST_US:
        return l.NO_TIME
    state[l.TX_LSN] = be64(src, start + 1)
    state[l.TX_TIME] = time
    state[l.TX_XID] = be32(src, start + 17)
    state[l.NEXT_ORDINAL] = 0
    state[l.IN_TRANSACTION] = 1
    out = batch.transaction
    at = msgpack_form.put_head(out, tables, state[l.TX_LSN], time, state[l.TX_XID])
    state[l.HEAD_END] = at
    at = msgpack_form.put_piece(out, at, tables, l.MSG_ID)
    at = put_hex(out, at, state[l.TX_LSN], 16)
    out[at] = 45
    state[l.ID_END] = at + 1
    return l.DONE


@part
def locate(src, start, stop, op, tables, shape):
    """reason, old_at, old_sent, only_key, new_at, new_sent"""
    at = start + 5
    old_at, old_sent, new_at, new_sent, only_key = -1, 0, -1, 0, False
    tag = src[at]
    if op != l.INSERT and tag != NEW_ROW:
        if tag != OLD_KEY and tag != OLD_ROW:
            return l.MALFORMED, 0, 0, False, 0, 0
        only_key = tag == OLD_KEY
        old_at = at + 1
        at, old_sent = check_tuple(src, old_at, stop, tables, shape, only_key)
        if at < 0:
            return -at, 0, 0, False, 0, 0
        tag = src[at] if at < stop else 0
    if op != l.DELETE:
        if tag != NEW_ROW or at >= stop:
            return l.MALFORMED, 0, 0, False, 0, 0
        new_at = at + 1
        at, new_sent = check_tuple(src, new_at, stop, tables, shape, False)
        if at < 0:
            return -at, 0, 0, False, 0, 0
    elif old_at < 0:
        return l.MALFORMED, 0, 0, False, 0, 0
    if at != stop:
        return l.MALFORMED, 0, 0, False, 0, 0
    return l.DONE, old_at, old_sent, only_key, new_at, new_sent


@part
def add_row(src, start, stop, op, state, tables, batch):
    if state[l.IN_TRANSACTION] == 0:
        return l.OUTSIDE
    row = state[l.ROWS]
    if row == len(batch.message):
        return l.FULL
    if stop - start < 6:
        return l.MALFORMED
    shape = find_shape(tables, be32(src, start + 1))
    if shape < 0:
        state[l.RELATION_ID] = be32(src, start + 1)
        return l.UNKNOWN_RELATION
    reason, old_at, old_sent, only_key, new_at, new_sent = locate(src, start, stop, op, tables, shape)
    if reason != l.DONE:
        return reason
    at = state[l.SIZE]
    need = tables.shapes[shape, l.FIXED] + state[l.ID_END] + (stop - start)
    if len(batch.payload) - at < need or len(batch.gaps) - state[l.GAPS] < 2 * tables.shapes[shape, l.COUNT] + 1:
        state[l.NEED] = need
        return l.FULL if row > 0 else l.NO_ROOM
    ordinal = state[l.NEXT_ORDINAL]
    out = batch.payload
    head = l.HEADS + 2 * op
    begin_at = at
    at = copy(out, at, tables.text, tables.shapes[shape, head], tables.shapes[shape, head + 1])
    at = copy(out, at, batch.transaction, 0, state[l.HEAD_END])
    at = msgpack_form.put_int(out, at, ordinal)
    at = copy(out, at, batch.transaction, state[l.HEAD_END], state[l.ID_END])
    at = put_hex(out, at, ordinal, 8)
    # position
    p = row * l.POSITION_BYTES
    copy(batch.position, p, out, at - l.POSITION_BYTES, at)
    at = msgpack_form.put_piece(out, at, tables, l.DATA)
    if op == l.DELETE:
        at = msgpack_form.put_map(out, at, src, old_at, old_sent, only_key, shape, tables, state, batch.gaps)
    else:
        at = msgpack_form.put_map(out, at, src, new_at, new_sent, False, shape, tables, state, batch.gaps)
        if old_at >= 0:
            out[begin_at] += 1
            at = msgpack_form.put_piece(out, at, tables, l.OLD)
            at = msgpack_form.put_map(out, at, src, old_at, old_sent, only_key, shape, tables, state, batch.gaps)
    batch.message[row] = start
    batch.shape[row] = shape
    batch.op[row] = op
    batch.xid[row] = state[l.TX_XID]
    batch.time[row] = state[l.TX_TIME] + PG_EPOCH_UNIX_US
    batch.offsets[row + 1] = at
    state[l.SIZE] = at
    state[l.ROWS] = row + 1
    state[l.NEXT_ORDINAL] = ordinal + 1
    return l.DONE


def _build(form, sources):
    def walk(src, state, tables, batch):
        state[l.COMPILED_FROM] = sources
        at = state[l.AT]
        while at < len(src):
            start = at + 4
            if len(src) - at < 5:
                return l.CUT_OFF
            size = le32(src, at)
            if size == 0 or size > len(src) - start:
                return l.CUT_OFF
            stop = start + size
            kind = src[start]
            reason = l.NOT_A_CHANGE
            if kind == KIND_I:
                reason = add_row(src, start, stop, l.INSERT, state, tables, batch)
            elif kind == KIND_U:
                reason = add_row(src, start, stop, l.UPDATE, state, tables, batch)
            elif kind == KIND_D:
                reason = add_row(src, start, stop, l.DELETE, state, tables, batch)
            elif kind == KIND_B:
                reason = begin(src, start, stop, state, tables, batch)
            if reason != l.DONE:
                return reason
            at = stop
            state[l.AT] = at
        return l.DONE

    return walk


def signature():
    u8 = types.Array(types.uint8, 1, "C")
    u8r = types.Array(types.uint8, 1, "C", readonly=True)
    i64 = types.Array(types.int64, 1, "C")
    i32 = types.Array(types.int32, 1, "C")
    i64m = types.Array(types.int64, 2, "C")
    tables = types.NamedTuple([u8r, i64, i64, i64, i64m, i64m], Tables)
    batch = types.NamedTuple([i64, i32, i32, i64, i64, u8, i32, u8, i64m, u8], Batch)
    return types.int64(u8r, i64, tables, batch)


@cache
def walk_kernel(form: int):
    return compile_kernel(signature(), _build(form, SOURCES))
