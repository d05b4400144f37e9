"""A range of the spool -> Arrow record batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from mmap import mmap
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.kernels.changes import layout
from headgate.kernels.changes.changes import TOMBSTONE
from headgate.kernels.changes.columns import (
    PARTS,
    NameColumns,
    bytes_column,
    number_columns,
    position_column,
    record_schema,
)
from headgate.kernels.changes.debezium_tables import DebeziumTables
from headgate.kernels.changes.gaps import (
    LENGTH_BYTES,
    Filled,
    Refused,
    RowSource,
    fill_gaps,
    message_at,
    new_state,
)
from headgate.kernels.changes.image_columns import ImageColumns
from headgate.kernels.changes.images import image_kernel
from headgate.kernels.changes.layout import Batch, Bytes, State, Table
from headgate.kernels.changes.message_keys import MessageKeys, key_kernel, with_keys
from headgate.kernels.changes.picks import PickColumns, pick_kernel
from headgate.kernels.changes.reference import Format, Reference
from headgate.kernels.changes.set_aside import SetAside, letter_of, marker_of, with_rows
from headgate.kernels.changes.shapes import Shapes
from headgate.kernels.changes.shares import ALL, Share
from headgate.kernels.changes.tables import FormTables
from headgate.kernels.changes.walk import walk_kernel
from headgate.kernels.changes.wording import wording_of
from headgate.kernels.frames import SchemaFrame, TypesFrame
from headgate.model import ProtocolError, UsageError
from headgate.model.position import timeline_text
from headgate.wire.envelope import DEFAULT_SUBJECT, DebeziumEncoder
from headgate.wire.pgtypes import TypeCatalog

__all__ = ["Buffer", "RangeDecoder", "compile_ahead"]

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap | Bytes

MakeDebezium: TypeAlias = Callable[[TypeCatalog], DebeziumEncoder]

_OF_BATCH = [layout.ROWS, layout.SIZE, layout.GAPS, layout.OWED]
_LETTERS = "cudt"  # of operations, in the order of their numbers
_GAPS_PER_ROW = 4  # on average, in a full batch; a row with more ends its batch earlier

_BROKEN = {
    layout.CUT_OFF: "a message is cut off",
    layout.MISPLACED: "a message that has no place in a committed transaction",
    layout.OUTSIDE: "a change outside any transaction",
    layout.MALFORMED: "a malformed message",
    layout.OTHER_COLUMNS: "a row with another number of columns than its relation has",
    layout.NO_SUCH_TIME: "a commit time lies outside the calendar",
    layout.NOT_ALONE: "a non-transactional message inside a transaction, or without an LSN",
    layout.TOO_MANY: "a transaction of more than 2^32 changes",
}


class RangeDecoder:
    """Reads one range of the spool, buffer by buffer, in order.

    `origin` and `timeline` begin every message id. `relations` are the Relation messages that are in force where the
    range begins, oldest first; more may come in the range. `subject` is a template of
    `headgate.wire.envelope.subject_of`. `debezium` makes the encoder of that format. `picks` are columns of changed
    rows. `keys`: also the keys of messages, in Debezium's format; a tombstone has a key and no payload, else an empty
    one. `set_aside` is given rows that cannot become events, before the batch that has markers in their place;
    without it they raise. `from_snapshot`: inserts are rows that were there already, which Debezium tells apart.
    `share`: the changes that are wanted of the range; the others are passed over, and count in message ids as ever.
    A batch ends at `batch_rows` rows, near `batch_bytes` of payload, and at the end of a buffer.
    """

    def __init__(
        self,
        *,
        origin: str,
        relations: Sequence[bytes],
        types: TypeCatalog,
        format: Format = "msgpack",  # noqa: A002 - the word of the configuration
        subject: str = DEFAULT_SUBJECT,
        debezium: MakeDebezium = DebeziumEncoder,
        images: bool = False,
        picks: Sequence[str] = (),
        keys: bool = False,
        timeline: int = 0,
        set_aside: SetAside | None = None,
        from_snapshot: bool = False,
        share: Share = ALL,
        batch_rows: int = 8192,
        batch_bytes: int = 4 << 20,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        if batch_rows < 1 or batch_bytes < 1:
            raise UsageError("a batch needs room for a row", remedy="Let batch_rows and batch_bytes be 1 at least.")
        self._timeline = timeline_text(timeline)
        self._origin = origin
        self._set_aside = set_aside
        self._from_snapshot = from_snapshot
        self._share = share
        self._form = _form_of(format)
        self._types = types

        def prepare(relations: Sequence[bytes]) -> None:
            encoder = debezium(self._types) if format == "debezium" else None
            self._debezium = encoder.options if encoder else None
            self._reference = Reference(origin, self._types, format, subject, timeline, encoder)
            forms: dict[int, FormTables | DebeziumTables] = {}
            if encoder:
                forms[layout.DEBEZIUM] = DebeziumTables(encoder)
            for form in {self._form, *([layout.JSON] if images else [])} - set(forms):
                forms[form] = FormTables(wording_of(form, origin, timeline), self._types)
            self._forms = forms
            self._shapes = Shapes(self._reference, forms, relations)
            self._names = NameColumns()
            self._images = ImageColumns(forms[layout.JSON], self._shapes) if images else None
            self._picks = PickColumns(picks, self._form, self._shapes) if picks else None
            in_keys = forms.get(layout.DEBEZIUM) if keys else None
            self._keys = MessageKeys(in_keys, self._shapes) if isinstance(in_keys, DebeziumTables) else None

        self._clock_us = clock_us
        self._prepare = prepare
        prepare(relations)
        self._schema = record_schema(images=images, picks=picks, keys=self._keys is not None)
        self._walk = walk_kernel(self._form)
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._rows = np.empty((batch_rows, layout.ROW_FIELDS), dtype=np.int64)
        self._gaps = np.empty((_GAPS_PER_ROW * batch_rows, layout.GAP_FIELDS), dtype=np.int64)
        self._transaction = np.empty(self._forms[self._form].transaction_bytes, dtype=np.uint8)

    def decode(self, buffers: Iterable[Buffer]) -> Iterator[pa.RecordBatch]:
        """The changes of the range, one row each. Every buffer holds whole transactions."""
        for buffer in buffers:
            yield from self._decode(_readable(buffer))

    def _decode(self, src: Bytes) -> Iterator[pa.RecordBatch]:
        state = self._new_state()
        reason = layout.FULL
        while reason == layout.FULL:
            state[_OF_BATCH] = 0
            reason, batch = self._fill(src, state)
            if state[layout.ROWS]:
                yield self._record_batch(src, state, batch)
            if reason == layout.SCHEMA:
                yield from self._schema_batch(src, state)
                reason = layout.FULL

    def _new_state(self) -> State:
        state = new_state()
        state[layout.SHARE], state[layout.SHARES], state[layout.BY_KEY] = self._share
        if self._debezium:
            state[layout.NOW_US] = self._clock_us()
            skipped = {_LETTERS.index(letter) for letter in self._debezium.skipped if letter in _LETTERS}
            state[layout.SKIPPED] = sum(1 << operation for operation in skipped)
            state[layout.TOMBSTONES] = int(self._debezium.has_tombstones)
            state[layout.ROW_ONLY] = int(self._debezium.unwrap)
            state[layout.FROM_SNAPSHOT] = int(self._from_snapshot)
        return state

    def _fill(self, src: Bytes, state: State) -> tuple[int, Batch]:
        """One batch, and whether it is FULL, the source is DONE, or a SCHEMA is next."""
        position = np.empty(self._batch_rows * layout.POSITION_BYTES, dtype=np.uint8)
        payload = np.empty(self._batch_bytes, dtype=np.uint8)
        batch = Batch(self._rows, position, payload, self._gaps, self._transaction)
        while True:
            reason = self._walk(src, state, self._shapes.tables(self._form), batch)
            if reason in (layout.DONE, layout.FULL, layout.SCHEMA):
                return reason, batch
            if reason == layout.RELATION:
                message = message_at(src, int(state[layout.AT]) + LENGTH_BYTES)
                self._shapes.learn(message)
                state[layout.AT] += LENGTH_BYTES + len(message)
            elif reason == layout.UNKNOWN_RELATION:
                self._shapes.use(int(state[layout.RELATION_ID]))
            elif reason == layout.NO_ROOM:
                batch = self._larger(batch, state)
            else:
                raise _broken(reason, state)

    def _schema_batch(self, src: Bytes, state: State) -> Iterator[pa.RecordBatch]:
        """The event that describes a table, alone in its batch. Debezium's readers know no such event."""
        message = message_at(src, int(state[layout.AT]) + LENGTH_BYTES)
        state[layout.AT] += LENGTH_BYTES + len(message)
        if (types := TypesFrame.decode(message)) is not None:
            self._types = self._types.with_types(types.types)
            self._prepare(self._shapes.described)
            return
        row = self._reference.schema_row(SchemaFrame.decode(message))
        if row:
            yield pa.RecordBatch.from_pylist([row], schema=self._schema)

    def _larger(self, batch: Batch, state: State) -> Batch:
        """Room for an event that does not fit into an ordinary batch."""
        gaps = max(len(batch.gaps), int(state[layout.NEED_GAPS]))
        self._gaps = np.empty((gaps, layout.GAP_FIELDS), dtype=np.int64)
        payload = np.empty(max(len(batch.payload), int(state[layout.NEED_BYTES])), dtype=np.uint8)
        return batch._replace(payload=payload, gaps=self._gaps)

    def _record_batch(self, src: Bytes, state: State, batch: Batch) -> pa.RecordBatch:
        count, size = int(state[layout.ROWS]), int(state[layout.SIZE])
        rows = batch.rows[:count]
        source = RowSource(src, rows, batch.position, self._shapes.shapes, self._reference)
        message_subjects: dict[int, str] = {}
        message_keys: dict[int, bytes] = {}
        now_us = int(state[layout.NOW_US])

        def whole(row: int) -> bytes:
            event = source.event(row)
            if event.relation is None:
                message_subjects[row] = self._reference.subject(event)
                if self._keys:
                    message_keys[row] = self._reference.key(event) or b""
            return self._reference.encode(event, now_us)

        payload = Filled(batch.payload[:size].data, rows[:, layout.PAYLOAD_END])
        refused: Refused | None = None if self._set_aside is None else {}
        gaps = batch.gaps[: state[layout.GAPS]]
        payload = fill_gaps(payload, gaps, source, self._forms[self._form], whole, refused)
        keys = self._keys.column(source, refused) if self._keys else None
        if refused:
            payload = self._marked(payload, source, refused, message_subjects, message_keys, now_us)
        subjects = [text for _, text in sorted(message_subjects.items())]
        subject, operation, schema, table = self._names.columns(self._shapes.shapes, rows, subjects)
        columns = [
            subject,
            position_column(batch.position, rows, self._timeline),
            operation,
            schema,
            table,
            *number_columns(rows),
            bytes_column(pa.binary(), payload.text, payload.ends, self._have_payload(rows)),
            *(self._images.columns(source) if self._images else ()),
            *(self._picks.columns(source) if self._picks else ()),
            *(() if keys is None else [with_keys(keys, message_keys)]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _have_payload(self, rows: Table) -> npt.NDArray[np.bool_] | None:
        """Which messages are no tombstones, where those are told by their having no payload."""
        if self._keys is None or self._debezium is None:
            return None
        is_empty = rows[:, layout.OPERATION] == layout.DELETE
        if not self._debezium.unwrap:
            is_empty &= rows[:, layout.PART] == TOMBSTONE
        there: npt.NDArray[np.bool_] = ~is_empty
        return there

    def _marked(
        self,
        payload: Filled,
        source: RowSource,
        refused: Refused,
        subjects: dict[int, str],
        keys: dict[int, bytes],
        now_us: int,
    ) -> Filled:
        """Markers in the place of refused rows, which are messages from here on."""
        assert self._set_aside is not None
        letters, markers = [], {}
        for row, error in sorted(refused.items()):
            event = source.event(row)
            marker = marker_of(event, error)
            position = f"{event.position}{PARTS[source.rows[row, layout.PART]]}"
            letters.append(letter_of(event, error, self._origin, position, self._reference.subject(event)))
            markers[row] = self._reference.encode(marker, now_us)
            subjects[row] = self._reference.subject(marker)
            if self._keys:
                keys[row] = self._reference.key(marker) or b""
            source.rows[row, layout.OPERATION] = layout.MESSAGE
            source.rows[row, layout.OF_SHAPE] = layout.NO_SHAPE
        self._set_aside(letters)
        return with_rows(payload, markers)


def compile_ahead(format: Format, *, images: bool = False, picks: bool = False, keys: bool = False) -> None:  # noqa: A002
    """Compile what a decoder will need. It takes seconds once per machine; later calls load it from disk."""
    walk_kernel(_form_of(format))
    if images:
        image_kernel()
    if picks:
        pick_kernel()
    if keys:
        key_kernel()


def _form_of(format: Format) -> int:  # noqa: A002
    return {"msgpack": layout.MSGPACK, "json": layout.JSON, "debezium": layout.DEBEZIUM}[format]


def _readable(buffer: Buffer) -> Bytes:
    """Kernels take read-only arrays only."""
    src = np.frombuffer(buffer, dtype=np.uint8) if len(buffer) else np.empty(0, dtype=np.uint8)
    src.flags.writeable = False
    return src


def _broken(reason: int, state: State) -> ProtocolError:
    return ProtocolError(
        f"{_BROKEN[reason]}, at byte {int(state[layout.AT])} of the range",
        where="pgoutput",
        remedy="Restart the replication connection; report it if it comes back.",
    )
