"""All published tables at one point, as Debezium's `r` events, before the first change of a slot.

The slot is made by the same command that exports the snapshot, so the rows are exactly what the slot's first change
follows on. If that is interrupted, the slot stays where it was, and the rows of a later point are sent in their place:
changes between the two points come again then, in order, and nothing is missed.

Message ids lie right below the slot's position: behind everything that was delivered before it (no commit record is as
short as that), and before everything that comes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import conninfo

from headgate.kernels.frames import count_bytes
from headgate.model import Position, StateError, record
from headgate.model.dead_letter import DeadLetter
from headgate.model.position import origin_of
from headgate.postgres import connect
from headgate.postgres.describe import describe_tables, published_tables
from headgate.postgres.replication import ReplicationConnection
from headgate.postgres.slot import ensure_publications, refuse_failover_before_17, slot_state
from headgate.runtime.files import replace_file
from headgate.sources.postgres_cdc.debezium import frame_of
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_snapshot.connections import connect_pinned, open_raw
from headgate.sources.postgres_snapshot.copying import SnapshotRange, copy_texts
from headgate.sources.postgres_snapshot.plan import SnapshotTable, plan_table
from headgate.sources.postgres_snapshot.points import DEFAULT_TIMEOUT_S, lock_table, new_slot
from headgate.wire.envelope import DebeziumEncoder, schema_version
from headgate.wire.envelope.subject import fill_subject
from headgate.wire.pgoutput import PG_EPOCH_UNIX_US, Begin, Relation, encode_message
from headgate.wire.pgtypes import TypeCatalog

__all__ = ["InitialSnapshot"]

_FILE = "initial.json"
_NAME = "headgate snapshot"
_ROOM = 31  # positions below the slot's that no commit can have: its record takes 34 bytes at least
_BATCH_ROWS = 8192
_BATCH_BYTES = 4 << 20


class _State(msgspec.Struct, frozen=True):
    """How far it has come. `lsn` is the slot's, `attempt` counts from 0."""

    lsn: int
    timeline: int
    attempt: int = 0
    done: bool = False


_Events: TypeAlias = tuple[pa.Array, pa.Array, pa.Array | None]  # topics, payloads and keys


@dataclass(frozen=True, slots=True)
class _Point:
    lsn: int
    snapshot_name: str


class InitialSnapshot:
    """Of one slot. What it has done is beside the spool."""

    def __init__(self, options: CdcOptions) -> None:
        self._options = options
        self._path = options.spool_dir / _FILE
        self._slot_lsn = 0

    def is_due(self, *, is_new: bool) -> bool:
        """Whether rows must be sent: the pipeline is new, or was interrupted while it sent them."""
        if self._options.format != "debezium" or self._options.debezium_options.snapshot_mode != "initial":
            return False
        state = self._read()
        return is_new if state is None else not state.done

    def rows(self, last_ids: list[str]) -> Iterator[pa.RecordBatch]:
        """The delivery columns of every row. `last_ids` are the newest of the destinations: these come behind them."""
        with connect(self._options.url) as catalog:
            ensure_publications(catalog, self._options.publications, self._options.tables)
        link = ReplicationConnection(self._options.url, self._options.slot)
        try:
            server = link.identify()
        finally:
            link.close()
        origin = server.origin(self._options.slot)
        with self._point() as point:
            state = self._begin(server.timeline)
            major = _place(state, origin, last_ids)
            copier = _Copier(self._options, origin, Position(major, 0, state.timeline), point)
            yield from copier.batches()

    def done(self) -> None:
        """All of them are safe."""
        state = self._read()
        assert state is not None
        self._write(msgspec.structs.replace(state, done=True))

    @contextmanager
    def _point(self) -> Iterator[_Point]:
        """A snapshot of all tables, whose shapes are held meanwhile. Makes the slot, if there is none."""
        options = self._options
        with ExitStack() as held:
            locks = held.enter_context(connect_pinned(options.url, _NAME))
            held.enter_context(locks.transaction())
            for table in published_tables(locks, options.publications):
                lock_table(locks, table.schema, table.table, DEFAULT_TIMEOUT_S)
            with connect(options.url) as catalog:
                known = slot_state(catalog, options.slot)
                if options.failover:
                    refuse_failover_before_17(catalog, options.slot)
            holder = held.enter_context(open_raw(options.url, _NAME, replication="database"))
            name = None if known else options.slot
            lsn, snapshot_name = new_slot(holder, locks, DEFAULT_TIMEOUT_S, name, failover=options.failover)
            self._slot_lsn = known.confirmed_lsn if known else lsn
            yield _Point(lsn, snapshot_name)

    def _begin(self, timeline: int) -> _State:
        """Durable before the first row: another attempt must not give other rows the same ids."""
        state = self._read()
        if state is None:
            state = _State(self._slot_lsn, timeline)
        else:
            state = msgspec.structs.replace(state, attempt=state.attempt + 1)
        self._write(state)
        return state

    def _read(self) -> _State | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_State)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise StateError(
                f"what was remembered of the snapshot cannot be read: {error}",
                where=str(self._path),
                remedy="remove the file, and the rows are sent again",
            ) from None

    def _write(self, state: _State) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, msgspec.json.encode(state))


def _place(state: _State, origin: str, last_ids: list[str]) -> int:
    """The commit LSN that stands in the ids of the rows: below the slot's, and behind what is there already."""
    ours = [each for each in last_ids if origin_of(each) == origin]
    last = max((Position.parse(each[len(origin) + 1 :].partition(".")[0]).major for each in ours), default=0)
    major = max(state.lsn - _ROOM + state.attempt, last + 1)
    if major >= state.lsn:
        raise StateError(
            f"the rows of the tables cannot be put before what is in the destination, after {state.attempt} attempts",
            where="debezium.snapshot_mode",
            remedy='begin with a new stream, or set snapshot_mode = "no_data"',
        )
    return major


class _Copier:
    """Reads the tables, one after the other, and writes their rows as events."""

    def __init__(self, options: CdcOptions, origin: str, first: Position, point: _Point) -> None:
        self._options = options
        self._origin = origin
        self._position = self._first = first
        self._encoded = 0  # rows so far
        self._point = point
        settings = conninfo.conninfo_to_dict(options.url)
        self._database = str(settings.get("dbname") or settings.get("user") or "")
        self._now_us = time.time_ns() // 1000

    def batches(self) -> Iterator[pa.RecordBatch]:
        options = self._options
        with connect(options.url) as catalog:
            described = {each["relation_id"]: each for each in describe_tables(catalog, options.publications)}
            names = sorted(each.name for each in published_tables(catalog, options.publications))
        tables = (self._table(name, described) for name in names)
        is_marked = not options.debezium_options.unwrap  # a row alone tells nothing of the snapshot
        for events in _marked(tables) if is_marked else chain.from_iterable(tables):
            yield self._delivery(*events)

    def _table(self, name: tuple[str, str], described: dict[int, dict[str, Any]]) -> Iterator[_Events]:
        planned = plan_table(self._options.url, *name, self._options.publications)
        topic = fill_subject(self._options.subject, *name, "read")
        for batch in self._events(planned, described.get(planned.relation.relation_id)):
            is_row = pc.not_equal(batch.column(record.OP), "message")  # else it stands for one that is set aside
            keys = batch.column(record.PARTITION_KEY) if record.PARTITION_KEY in batch.schema.names else None
            yield pc.if_else(is_row, topic, batch.column(record.TOPIC)), batch.column(record.PAYLOAD), keys

    def _events(self, table: SnapshotTable, description: dict[str, Any] | None) -> Iterator[pa.RecordBatch]:
        # Only who encodes needs the kernels.
        from headgate.kernels.changes import RangeDecoder
        from headgate.kernels.changes.copy_text import CopyText

        def found(relation: Relation) -> dict[str, Any] | None:
            is_same = description is not None and description["version"] == schema_version(relation)
            return description if is_same else None

        def encoder(types: TypeCatalog) -> DebeziumEncoder:
            chosen = replace(self._options.debezium_options, skipped_operations=())
            database, frame = self._database, frame_of(self._options)
            return DebeziumEncoder(types, chosen, database=database, described=found, snapshot=True, frame=frame)

        relation = table.relation
        decoder = RangeDecoder(
            origin=self._origin, relations=[encode_message(relation)], types=TypeCatalog(table.types),
            format="debezium", subject=self._options.subject, debezium=encoder, from_snapshot=True,
            keys=self._options.has_message_keys, batch_rows=_BATCH_ROWS,
            set_aside=self._set_aside if self._options.dead_letter_store else None,
        )  # fmt: skip
        text = CopyText(relation.relation_id, len(relation.columns), _BATCH_ROWS)
        rest = b""
        for part in table.ranges(1):
            range_ = SnapshotRange(table, part, self._point.snapshot_name)
            with closing(copy_texts(self._options.url, range_, _BATCH_ROWS, _BATCH_BYTES)) as pieces:
                for piece in pieces:
                    rest += piece.text
                    while len((inserts := text.inserts(rest)).rows):
                        rest = rest[inserts.taken :]
                        buffer = self._begun(len(inserts.rows)) + inserts.messages.tobytes()
                        yield from decoder.decode([buffer])
                        self._encoded += len(inserts.rows)

    def _set_aside(self, letters: Sequence[DeadLetter]) -> None:
        """Under the ids that their markers get: all rows are counted on."""
        store = self._options.dead_letter_store
        assert store is not None
        renamed = []
        for letter in letters:
            ordinal = self._encoded + Position.parse(letter.position).ordinal
            position = str(self._first._replace(ordinal=ordinal))
            renamed.append(replace(letter, message_id=f"{self._origin}-{position}", position=position))
        store.add(renamed)

    def _begun(self, count: int) -> bytes:
        """What stands before messages in the spool: a transaction at the point, without an id."""
        begin = encode_message(Begin(self._point.lsn, self._now_us - PG_EPOCH_UNIX_US, 0)) + count_bytes(count)
        return struct.pack("<I", len(begin)) + begin

    def _delivery(self, topics: pa.Array, payload: pa.Array, keys: pa.Array | None) -> pa.RecordBatch:
        first, count = self._position.ordinal, len(payload)
        ids = [f"{self._origin}-{self._position._replace(ordinal=first + number)}" for number in range(count)]
        self._position = self._position._replace(ordinal=first + count)
        columns = {
            record.TOPIC: topics,
            record.MESSAGE_ID: pa.array(ids, pa.string()),
            record.PAYLOAD: payload,
        }
        if keys is not None:
            columns[record.PARTITION_KEY] = keys
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _marked(tables: Iterator[Iterator[_Events]]) -> Iterator[_Events]:
    """Events which say that they are the first or last of all, or of their table. One batch is held back.

    A row that is several of these is the last of all, else the first of all, else the last of its table.
    """
    held: _Events | None = None
    for events in tables:
        is_new = True
        for topics, payload, keys in events:
            if held is not None:
                yield (held[0], _ending(held[1], "last_in_data_collection"), held[2]) if is_new else held
            if is_new:
                payload = _with_marker(payload, 0, "first" if held is None else "first_in_data_collection")
            held, is_new = (topics, payload, keys), False
    if held is not None:
        yield held[0], _with_marker(held[1], len(held[1]) - 1, "last"), held[2]


def _ending(payload: pa.Array, marker: str) -> pa.Array:
    is_first_of_all = len(payload) == 1 and _snapshot_text("first") in payload[0].as_py()
    return payload if is_first_of_all else _with_marker(payload, len(payload) - 1, marker)


def _with_marker(payload: pa.Array, row: int, marker: str) -> pa.Array:
    """Behind a row's values stands nothing that could look like this, so its last place is the right one."""
    text: bytes = payload[row].as_py()
    place = text.rfind(b',"snapshot":"')
    end = text.index(b'"', place + len(b',"snapshot":"'))
    changed = text[:place] + _snapshot_text(marker) + text[end + 1 :]
    return pa.concat_arrays([payload.slice(0, row), pa.array([changed], payload.type), payload.slice(row + 1)])


def _snapshot_text(marker: str) -> bytes:
    return f',"snapshot":"{marker}"'.encode()
