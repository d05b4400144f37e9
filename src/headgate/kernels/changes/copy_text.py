"""COPY's text -> Insert messages, as they would lie in the spool, for the kernels that read those.

COPY ends a row with a line feed and a value with a tab; NULL is `\\N`; the backslash and the control characters that
have a letter of their own are escaped. Nothing is believed here either: what COPY never writes is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numba import types

from headgate.kernels.changes import layout
from headgate.kernels.changes.gaps import new_state
from headgate.kernels.changes.layout import Bytes, State, Table
from headgate.kernels.changes.text import put_be
from headgate.kernels.jit import BYTES, BYTES_READ, NUMBERS, TABLE, compile_kernel, inlined, part
from headgate.kernels.jit import signed as as_signed
from headgate.kernels.memory import read64, write64
from headgate.model import ProtocolError

__all__ = ["CopyText", "Inserts", "copy_text_kernel"]

CopyTextKernel: TypeAlias = Callable[[Bytes, State, int, int, Bytes, Table], int]

TAB, LINE_FEED, BACKSLASH, NULL_LETTER = b"\t\n\\N"
INSERT, NEW_ROW, NULL, TEXT_VALUE = b"INnt"

EACH = np.uint64(0x0101010101010101)
HIGH_BITS = EACH * np.uint64(0x80)
TABS, LINE_FEEDS, BACKSLASHES = (EACH * np.uint64(byte) for byte in b"\t\n\\")
PLACES = np.uint64(0x0001020304050607)  # times a byte's own bit: its place in the word, in the highest byte
NONE, ONE, U7, U56 = (np.uint64(n) for n in (0, 1, 7, 56))

WORD_BYTES = 8
LENGTH_BYTES = 4
HEAD_BYTES = 8  # of a message: kind, relation, kind of row, number of columns
VALUE_BYTES = 5  # before a value: its kind and its length


def _escapes() -> Bytes:
    """The character for a letter behind a backslash; 0 for a letter that COPY does not write."""
    table = np.zeros(256, dtype=np.uint8)
    for letter, character in zip(b"bfnrtv\\", b"\b\f\n\r\t\v\\", strict=True):
        table[letter] = character
    return table


ESCAPES = _escapes()


@inlined
def marks(word: np.uint64) -> np.uint64:
    """The lowest bit that is set belongs to the first tab, line feed or backslash; none is set if there is none."""
    tab, line_feed, backslash = word ^ TABS, word ^ LINE_FEEDS, word ^ BACKSLASHES
    found = ((tab - EACH) & ~tab) | ((line_feed - EACH) & ~line_feed) | ((backslash - EACH) & ~backslash)
    return found & HIGH_BITS


@part
def copy_plain(src: Bytes, at: int, end: int, out: Bytes, to: int) -> int:
    """Copy up to the next tab, line feed or backslash, or the end; where that is. May write a word too much."""
    while at + WORD_BYTES <= end:
        word = read64(src, at)
        write64(out, to, word)
        found = marks(word)
        if found != NONE:
            lowest = (found & (~found + ONE)) >> U7
            return at + as_signed((lowest * PLACES) >> U56)
        at += WORD_BYTES
        to += WORD_BYTES
    while at < end and src[at] != TAB and src[at] != LINE_FEED and src[at] != BACKSLASH:
        out[to] = src[at]
        at += 1
        to += 1
    return at


@part
def put_value(src: Bytes, at: int, end: int, out: Bytes, to: int) -> tuple[int, int]:
    """One value without its escapes. Where it ends in the text, or the negative reason why not, and in `out`."""
    while True:
        stop = copy_plain(src, at, end, out, to)
        to += stop - at
        if stop >= end:
            return -layout.CUT_OFF, to
        if src[stop] != BACKSLASH:
            return stop, to
        if stop + 1 >= end:
            return -layout.CUT_OFF, to
        character = ESCAPES[src[stop + 1]]
        if character == 0:
            may_be_null = src[stop + 1] == NULL_LETTER and stop + 2 == end  # what ends it is still to come
            return -(layout.CUT_OFF if may_be_null else layout.MALFORMED), to
        out[to] = character
        to += 1
        at = stop + 2


@inlined
def is_null(src: Bytes, at: int, end: int) -> bool:
    if at + 2 >= end or src[at] != BACKSLASH or src[at + 1] != NULL_LETTER:
        return False
    return bool(src[at + 2] == TAB or src[at + 2] == LINE_FEED)


@part
def put_columns(src: Bytes, at: int, end: int, columns: int, out: Bytes, to: int) -> tuple[int, int]:
    """The values of a line. Where the next line begins, or the negative reason why not, and where they end in `out`."""
    for column in range(columns):
        if is_null(src, at, end):
            out[to] = NULL
            to += 1
            at += 2
        else:
            begin = to + VALUE_BYTES
            at, stop = put_value(src, at, end, out, begin)
            if at < 0:
                return at, to
            out[to] = TEXT_VALUE
            put_be(out, to + 1, stop - begin, 4)
            to = stop
        if src[at] != (LINE_FEED if column == columns - 1 else TAB):
            return -layout.OTHER_COLUMNS, to
        at += 1
    if columns == 0:
        if at >= end:
            return -layout.CUT_OFF, to
        return (at + 1 if src[at] == LINE_FEED else -layout.OTHER_COLUMNS), to
    return at, to


@inlined
def put_length(out: Bytes, at: int, size: int) -> None:
    for i in range(LENGTH_BYTES):
        out[at + i] = (size >> (8 * i)) & 0xFF


def _kernel(sources: int) -> CopyTextKernel:
    def kernel(src: Bytes, state: State, relation_id: int, columns: int, out: Bytes, rows: Table) -> int:
        state[layout.COMPILED_FROM] = sources
        end = len(src)
        while state[layout.AT] < end:
            row = state[layout.ROWS]
            if row >= len(rows):
                return layout.FULL
            start = state[layout.SIZE] + LENGTH_BYTES
            out[start] = INSERT
            put_be(out, start + 1, relation_id, 4)
            out[start + 5] = NEW_ROW
            put_be(out, start + 6, columns, 2)
            at, stop = put_columns(src, state[layout.AT], end, columns, out, start + HEAD_BYTES)
            if at < 0:
                return -at
            put_length(out, start - LENGTH_BYTES, stop - start)
            rows[row, layout.SOURCE] = start
            state[layout.AT], state[layout.SIZE], state[layout.ROWS] = at, stop, row + 1
        return layout.DONE

    return kernel


@cache
def copy_text_kernel() -> CopyTextKernel:
    """Goes on at state[AT], line by line; DONE, FULL if there are more rows, CUT_OFF if the last line has no end."""
    signature = types.int64(BYTES_READ, NUMBERS, types.int64, types.int64, BYTES, TABLE)
    return compile_kernel(signature, _kernel)


class Inserts(NamedTuple):
    """Insert messages, a table of where each begins, and how much of the text they took."""

    messages: Bytes
    rows: Table
    taken: int


class CopyText:
    """Turns text of one relation into messages. Keeps its memory: what it gave is good until the next call."""

    def __init__(self, relation_id: int, columns: int, batch_rows: int) -> None:
        self._relation_id = relation_id
        self._columns = columns
        self._kernel = copy_text_kernel()
        self._rows = np.zeros((batch_rows, layout.ROW_FIELDS), dtype=np.int64)
        self._rows[:, layout.OPERATION] = layout.INSERT
        self._out = np.empty(0, dtype=np.uint8)

    def inserts(self, text: memoryview | bytes) -> Inserts:
        """The whole lines at the begin of the text, up to `batch_rows`; what is behind them was not taken."""
        src = np.frombuffer(text, dtype=np.uint8) if len(text) else np.empty(0, dtype=np.uint8)
        src.flags.writeable = False
        most_rows = min(len(self._rows), len(src))
        fixed = LENGTH_BYTES + HEAD_BYTES + VALUE_BYTES * self._columns
        # The message that turns out to be cut off, and a word written too much, need room, too.
        room = (most_rows + 1) * fixed + len(src) + WORD_BYTES
        if len(self._out) < room:
            self._out = np.empty(room, dtype=np.uint8)
        state = new_state()
        reason = self._kernel(src, state, self._relation_id, self._columns, self._out, self._rows)
        if reason not in (layout.DONE, layout.FULL, layout.CUT_OFF):
            raise _broken(reason)
        messages = self._out[: state[layout.SIZE]]
        messages.flags.writeable = False
        return Inserts(messages, self._rows[: state[layout.ROWS]], int(state[layout.AT]))


def _broken(reason: int) -> ProtocolError:
    what = "a row with another number of columns" if reason == layout.OTHER_COLUMNS else "an escape that is none"
    return ProtocolError(
        f"{what} in COPY's text", where="COPY", remedy="Read the table again; report it if it comes back."
    )
