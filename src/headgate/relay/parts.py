"""The parts of a running relay, for whoever answers questions about them."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.eventlog import LogReader
from headgate.eventlog.inspection import Inspection
from headgate.relay.backfill import Backfill
from headgate.relay.collections import CollectionIndex
from headgate.relay.hosts import Hosts
from headgate.relay.ingest import Ingest
from headgate.relay.intake import Intake
from headgate.relay.ledger import Ledger
from headgate.relay.net import Fetcher
from headgate.relay.sequencer import Sequencer
from headgate.relay.siblings import Siblings
from headgate.relay.store import Store

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True)
class Parts:
    """What there is of a relay once it runs."""

    ingest: Ingest
    store: Store
    index: CollectionIndex
    sequencer: Sequencer
    reader: LogReader
    backfill: Backfill
    inspection: Inspection
    siblings: Siblings

    @property
    def hosts(self) -> Hosts:
        return self.ingest.hosts

    @property
    def intake(self) -> Intake:
        return self.ingest.intake

    @property
    def ledger(self) -> Ledger:
        return self.ingest.ledger

    @property
    def fetcher(self) -> Fetcher:
        return self.ingest.fetcher
