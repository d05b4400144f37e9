"""The slot in use: opened only where it follows on what was confirmed before, and what is remembered of it.

`continuity` has the rules. This asks the server, refuses or tells what the rules say, and keeps the memory on disk.
"""

from __future__ import annotations

from collections import deque

import msgspec

from headgate.model import ConnectError, HeadgateError
from headgate.postgres import Connection, connect
from headgate.postgres.continuity import Gap, Memory, Now, TimelineHistory, Witness, judge, remember
from headgate.postgres.replication import PublicationAway, ReplicationConnection, ServerIdentity
from headgate.postgres.slot import (
    SlotState,
    create_slot,
    ensure_publications,
    held_lsn,
    mark_gap,
    refuse_failover_before_17,
    slot_state,
)
from headgate.sources.postgres_cdc.control import SpoolControl
from headgate.sources.postgres_cdc.spool import SpoolIndex, Transaction
from headgate.wire.pgoutput import format_lsn

__all__ = ["Lineage"]

_MOST_WITNESSES = 4096


class Lineage:
    """Owned by the reader, for as long as it lives."""

    def __init__(self, control: SpoolControl, url: str, slot: str, publications: tuple[str, ...]) -> None:
        self.history = TimelineHistory(0)
        self.forked_at: int | None = None  # where the server's timeline left the one that was read before
        self.memory: Memory | None = None  # of the slot that is being read
        self._control = control
        self._url = url
        self._slot = slot
        self._publications = publications
        self._expected: Witness | None = None  # must come before anything behind it
        self._witnesses: deque[Witness] = deque(maxlen=_MOST_WITNESSES)  # transactions that are not confirmed yet

    def open(
        self, link: ReplicationConnection, *, protocol: int, failover: bool, create_publication_for: tuple[str, ...]
    ) -> tuple[ServerIdentity, int]:
        """Start the stream; the server, and where the slot stands.

        The slot is looked at twice: before it is made or read, and once more while nobody else can move it.
        """
        server = link.identify()
        self.history = link.history(server.timeline)
        known = self._control.memory()
        self.forked_at = self.history.end_of(known.timeline) if known else None
        with connect(self._url) as catalog:
            slot = slot_state(catalog, self._slot)
            gap = self._compare(known or self._control.previous(), server, slot.confirmed_lsn if slot else None)
            if known is None and gap is None and slot is None and self._control.was_delivered:
                gap = Gap("slot", "changes of this slot were delivered, but it is gone, and so is what was remembered")
            self._refuse(gap if known else None)
            ensure_publications(catalog, self._publications, create_publication_for)
            self._ensure_slot(link, catalog, slot, failover=failover)
            link.start(self._publications, protocol=protocol)
            slot_lsn = self._held(link, catalog)
            self._refuse(self._compare(known, server, slot_lsn))
            self._begin(known, self._now(server, slot_lsn), gap, catalog)
        return server, slot_lsn

    @property
    def confirmed_lsn(self) -> int:
        """What the pipeline has confirmed, as far as the server's history has it."""
        return self.history.here(self._control.confirmed)

    def see(self, transaction: Transaction) -> None:
        """Look at a transaction before it is spooled: where the server sends again what we had, it must be the same."""
        expected = self._expected
        if expected is not None and transaction.end_lsn >= expected.end_lsn:
            if (transaction.end_lsn, transaction.xid) != (expected.end_lsn, expected.xid):
                message = (
                    f"the server does not have the transaction {expected.xid} that ended at "
                    f"{format_lsn(expected.end_lsn)} and was delivered: it was restored from a backup"
                )
                raise Gap("timeline", message).refusal(self._slot)
            self._expected = None
        self._witnesses.append(Witness(transaction.end_lsn, transaction.xid))

    def confirm(self, lsn: int) -> None:
        """Remember what PostgreSQL is about to be told."""
        assert self.memory is not None
        witness = self.memory.witness
        while self._witnesses and self._witnesses[0].end_lsn <= lsn:
            witness = self._witnesses.popleft()
        lsn = max(lsn, self.memory.confirmed_lsn)
        self._remember(msgspec.structs.replace(self.memory, confirmed_lsn=lsn, witness=witness))

    def publication_skipped(self, message: str, lsn: int) -> None:
        """From `lsn` on PostgreSQL leaves out what a publication would have sent.

        While it is away we stop, and confirm nothing. If it is back, this is the past that cannot be had any more:
        it is told, unless it was when we came by here before.
        """
        if self.publication_is_away():
            raise PublicationAway(message, where=f"slot {self._slot}", remedy="create the publication again")
        assert self.memory is not None
        if lsn < self.memory.marked_lsn:
            return
        with connect(self._url) as catalog:
            marked = mark_gap(catalog, "publication", message=message)
        self._remember(msgspec.structs.replace(self.memory, marked_lsn=marked))

    def publication_is_away(self) -> bool:
        """Whether one is missing now, or nobody can tell."""
        try:
            with connect(self._url) as catalog:
                ensure_publications(catalog, self._publications, ())
        except HeadgateError:
            return True
        return False

    def _compare(self, memory: Memory | None, server: ServerIdentity, slot_lsn: int | None) -> Gap | None:
        if memory is None:
            return None
        return judge(memory, self._now(server, slot_lsn), self._handed_lsn())

    def _now(self, server: ServerIdentity, slot_lsn: int | None) -> Now:
        return Now(self._slot, server.system_id, server.database_oid, self.history, server.flush_lsn, slot_lsn)

    def _handed_lsn(self) -> int:
        """The newest transaction that anybody may have seen: the spool of the last run has it still."""
        index = SpoolIndex(self._control.directory)
        index.refresh()
        return index.end_lsn

    def _refuse(self, gap: Gap | None) -> None:
        if gap is not None and not gap.may_go_on:
            raise gap.refusal(self._slot)

    def _ensure_slot(
        self, link: ReplicationConnection, catalog: Connection, slot: SlotState | None, *, failover: bool
    ) -> None:
        if failover:
            refuse_failover_before_17(catalog, self._slot)
        if slot is None:
            create_slot(catalog, self._slot, failover=failover)
        elif failover and not slot.failover:
            link.turn_failover_on()

    def _held(self, link: ReplicationConnection, catalog: Connection) -> int:
        slot_lsn = held_lsn(catalog, self._slot, link.pid)
        if slot_lsn is None:
            raise ConnectError(
                "the slot is not held by the connection that reads it",
                where=f"slot {self._slot}",
                remedy="trying again; do all hosts of the address lead to one server?",
            )
        return slot_lsn

    def _begin(self, known: Memory | None, now: Now, gap: Gap | None, catalog: Connection) -> None:
        """Tell consumers of a gap, then remember from where on there is none."""
        memory = remember(known, now)
        if gap is not None:
            marked = mark_gap(catalog, gap.reason, message=gap.message, timeline=now.history.current)
            memory = msgspec.structs.replace(memory, marked_lsn=marked)
        self._remember(memory)
        self._witnesses.clear()
        assert now.slot_lsn is not None
        witness = memory.witness
        self._expected = witness if witness is not None and witness.end_lsn > now.slot_lsn else None

    def _remember(self, memory: Memory) -> None:
        self._control.remember(memory)
        self.memory = memory
