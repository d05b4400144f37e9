"""The `postgres-cdc` source of a pipeline: what Spark is told, and how delivery gets back to PostgreSQL."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from headgate.model.dead_letter import UNREADABLE
from headgate.model.plugin import API_VERSION
from headgate.model.position import origin_of
from headgate.postgres.continuity import position_of
from headgate.postgres.replication import ReplicationConnection
from headgate.runtime.wake import ring
from headgate.sources.base import CDC, Follow, InitialRows, MakeRows, Mode, Offset, Pick, Shortcut, Source
from headgate.sources.postgres_cdc.control import SpoolControl
from headgate.sources.postgres_cdc.follow import follow_located
from headgate.sources.postgres_cdc.initial import InitialSnapshot
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.ranges import deliver_located
from headgate.sources.postgres_cdc.slot_monitor import SlotMonitor
from headgate.sources.postgres_cdc.spool import BELL, SpoolIndex
from headgate.wire.pgoutput.lsn import format_lsn

__all__ = ["PostgresCdcSource"]

_log = logging.getLogger(__name__)


class PostgresCdcSource(Source):
    """Every committed change; its rows carry their topic, position and payload."""

    api_version = API_VERSION
    format = "pgcdc"
    has_envelope = True

    def __init__(self, name: str, options: dict[str, str]) -> None:
        self.name = name
        self._texts = options | {"confirm": "pipeline"}
        self._options = CdcOptions.from_spark(self._texts)
        self._control = SpoolControl(self._options.spool_dir)
        self._index = SpoolIndex(self._options.spool_dir)
        self._looking = threading.Lock()  # held while the index is read: batches and the lag ask from different threads
        self._monitor = SlotMonitor(self._options.url, self._options.slot)
        self._set_aside_count = 0
        self.shortcut = Shortcut({"located": "true"}, self._rows, self._follow, {"follow": "true"})

    def _rows(self, picks: Sequence[Pick]) -> MakeRows:
        return partial(deliver_located, options=self._options, picks=tuple(picks))

    def _follow(self, picks: Sequence[Pick]) -> Follow:
        return partial(follow_located, options=self._options, picks=tuple(picks))

    def wake(self) -> None:
        with suppress(OSError):  # without a spool nobody follows it
            ring(self._options.spool_dir / BELL)

    def mode(self) -> Mode:
        return CDC

    def options(self) -> dict[str, str]:
        return self._texts

    def commit(self, end: Offset) -> None:
        """The reader passes it on to PostgreSQL; until then the slot keeps everything."""
        self._control.confirm(position_of(end))
        self._tell_set_aside()

    def _tell_set_aside(self) -> int:
        """How many rows could not become events; says so when they have become more."""
        store = self._options.dead_letter_store
        count = store.counts().get(UNREADABLE, 0) if store and store.path.exists() else 0
        if count > self._set_aside_count:
            _log.error(
                "rows could not be read and are set aside; their tables lack them",
                extra={"source": self.name, "rows": count, "remedy": "headgate dlq list PIPELINE --reason unreadable"},
            )
        self._set_aside_count = count
        return count

    def origin(self) -> str:
        """Which server, database and slot this is."""
        link = ReplicationConnection(self._options.url, self._options.slot)
        try:
            return link.identify().origin(self._options.slot)
        finally:
            link.close()

    def delivered_before(self, message_ids: list[str]) -> None:
        """A destination may know that this slot was read although the memory beside the spool is lost."""
        origin = self.origin() if message_ids else ""
        self._control.note_delivered(any(origin_of(each) == origin for each in message_ids))

    def initial_rows(self, last_ids: list[str], *, is_new: bool) -> InitialRows | None:
        """What the tables hold already, in Debezium's format alone: other consumers ask for snapshots themselves."""
        initial = InitialSnapshot(self._options)
        is_new = is_new and self._control.memory() is None
        return InitialRows(initial.rows(last_ids), initial.done) if initial.is_due(is_new=is_new) else None

    def lag_rows(self, end: Offset, latest: Offset) -> int:
        with self._looking:
            self._index.refresh()
            return self._index.rows_after(self._lsn_here(end))

    def committed_at(self, after: Offset | None) -> float | None:
        with self._looking:
            self._index.refresh()
            return self._index.committed_at(self._lsn_here(after) if after else 0)

    def _lsn_here(self, end: Offset) -> int:
        """Where an offset is on the timeline of the server that is read now."""
        state = self._control.read_state()
        return state.history.here(position_of(end)) if state else int(end["lsn"])

    def reached(self, end: Offset) -> dict[str, Any]:
        return {**end, "lsn": format_lsn(int(end["lsn"]))}

    def describe(self) -> dict[str, Any]:
        names = {"slot": self._options.slot, "publication": ",".join(self._options.publications)}
        return names | self._reader() | self._monitor.look() | {"rows_set_aside": self._tell_set_aside()}

    def _reader(self) -> dict[str, Any]:
        state = self._control.read_state()
        if state is None:
            return {"reader": "starting"}
        return {
            "reader": state.status,
            "received_lsn": state.received_lsn,
            "confirmed_lsn": state.confirmed_lsn,
            "lag_bytes": max(0, max(state.server_lsn, state.received_lsn) - state.confirmed_lsn),
            "spool_bytes": state.spool_bytes,
            "transactions_total": state.transactions_total,
            "changes_total": state.changes_total,
            "reconnects_total": state.reconnects_total,
            "error": state.error,
        }
