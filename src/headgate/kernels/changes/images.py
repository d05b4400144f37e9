"""The kernel for images: key, old row and new row of each event as JSON objects, or rows as MessagePack maps.

A map of MessagePack says first how many entries it has. Those of a whole row are counted, those of a key alone are not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

from numba import types

from headgate.kernels.changes import json_form, layout, msgpack_form
from headgate.kernels.changes.changes import change_of
from headgate.kernels.changes.events import Form, add_gap, events_in
from headgate.kernels.changes.layout import JSON, Bytes, Numbers, State, Table, Tables
from headgate.kernels.changes.text import le32
from headgate.kernels.changes.tuples import NO_ROW, find_rows
from headgate.kernels.jit import BYTES, BYTES_READ, NUMBERS, TABLE, compile_kernel, part

__all__ = ["NO_IMAGE", "ImageKernel", "image_kernel"]

ImageKernel: TypeAlias = Callable[[Bytes, State, Tables, Table, int, Bytes, Numbers, Table], int]
PutImage: TypeAlias = Callable[[Bytes, int, int, int, int, State, Tables, Bytes, Table], int]

NO_IMAGE = -1


def _put_image_in(form: Form) -> PutImage:
    put_row = events_in(form).put_row

    @part
    def put_image(
        src: Bytes, start: int, shape: int, operation: int, which: int, state: State, tables: Tables, out: Bytes,
        gaps: Table,
    ) -> int:  # fmt: skip
        """One image, of a message that the walk has found good. DONE, FULL if it has no room, or NO_IMAGE."""
        stop = start + le32(src, start - 4)
        _, old, old_shown, old_key, new, new_shown = find_rows(src, start, stop, change_of(src[start]), tables, shape)
        if operation == layout.DELETE:
            new = NO_ROW  # also one that stands for half of an update
        if operation == layout.INSERT:
            old = NO_ROW
        of_old = which == layout.BEFORE or (which == layout.KEY and operation == layout.DELETE)
        row, shown = (old, old_shown) if of_old else (new, new_shown)
        if row == NO_ROW or (which == layout.KEY and tables.shapes[shape, layout.KEY_COUNT] == 0):
            return NO_IMAGE
        need = tables.shapes[shape, layout.FIXED] + form.GROWTH * (stop - start)
        is_whole = need > state[layout.MOST_BYTES]
        state[layout.NEED_BYTES] = 0 if is_whole else need
        state[layout.NEED_GAPS] = tables.shapes[shape, layout.COUNT] + 1
        if (
            state[layout.NEED_BYTES] > len(out) - state[layout.SIZE]
            or state[layout.NEED_GAPS] > len(gaps) - state[layout.GAPS]
        ):
            return layout.FULL
        if is_whole:
            add_gap(state, gaps, state[layout.SIZE], layout.WHOLE_EVENT, start, stop)
        else:
            only_key = which == layout.KEY or (of_old and old_key)
            at = state[layout.SIZE]
            state[layout.SIZE] = put_row(out, at, src, row, shown, only_key, shape, tables, state, gaps)
        return layout.DONE

    return put_image


put_json = _put_image_in(json_form)
put_msgpack = _put_image_in(msgpack_form)


def _kernel(form: int, sources: int) -> ImageKernel:
    """Closes over numbers only: they are the key to its code on disk."""

    def kernel(
        src: Bytes, state: State, tables: Tables, rows: Table, which: int, out: Bytes, ends: Numbers, gaps: Table
    ) -> int:
        state[layout.COMPILED_FROM] = sources
        while state[layout.ROWS] < len(rows):
            row = state[layout.ROWS]
            operation, reason = rows[row, layout.OPERATION], NO_IMAGE
            if operation < layout.ROW_OPERATIONS:
                start, shape = rows[row, layout.SOURCE], rows[row, layout.OF_SHAPE]
                if form == JSON:
                    reason = put_json(src, start, shape, operation, which, state, tables, out, gaps)
                else:
                    reason = put_msgpack(src, start, shape, operation, which, state, tables, out, gaps)
            if reason == layout.FULL:
                return reason
            ends[row] = state[layout.SIZE] if reason == layout.DONE else NO_IMAGE
            state[layout.ROWS] = row + 1
        return layout.DONE

    return kernel


@cache
def image_kernel(form: int = JSON) -> ImageKernel:
    """Notes where each row's image ends in `out`, or NO_IMAGE. Goes on at state[ROWS]; FULL if it needs more room."""
    signature = types.int64(BYTES_READ, NUMBERS, layout.TABLES_TYPE, TABLE, types.int64, BYTES, NUMBERS, TABLE)
    return compile_kernel(signature, partial(_kernel, form))
