"""A CDC source in a pipeline: what Spark is told, and how delivery gets back to PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from headgate.config import Config
from headgate.config.models import PostgresCdcSourceSection
from headgate.pipeline.slot_monitor import SlotMonitor
from headgate.pipeline.spec import Shortcut, SourceSpec
from headgate.sources.postgres_cdc.control import SpoolControl
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.ranges import deliver_located
from headgate.sources.postgres_cdc.replication import ReplicationConnection
from headgate.sources.postgres_cdc.spool import SpoolIndex

__all__ = ["cdc_source", "compile_decoders"]


def cdc_source(name: str, section: PostgresCdcSourceSection, url: str, spool: Path) -> SourceSpec:
    """The source whose rows carry their topic, position and payload."""
    options = {
        "url": url,
        "slot": section.slot,
        "publication": section.publication,
        "spool": spool,
        "format": section.format,
        "subject": section.subject,
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "maxBytesPerTrigger": section.max_bytes_per_batch,
        "maxSpoolBytes": section.max_spool_bytes,
        "createPublicationFor": ",".join(section.tables),
        "failover": str(section.failover).lower(),
        "images": str(section.images).lower(),
        "confirm": "pipeline",
    }
    texts = {key: str(value) for key, value in options.items()}
    control = SpoolControl(spool)
    index = SpoolIndex(spool)
    monitor = SlotMonitor(url, section.slot)

    def lag_rows(end: dict[str, Any], latest: dict[str, Any]) -> int:
        index.refresh()
        return index.rows_after(int(end["lsn"]))

    return SourceSpec(
        name=name,
        format="pgcdc",
        options=texts,
        origin=lambda: _system_id(url, section.slot),
        lag_rows=lag_rows,
        # The reader passes it on to PostgreSQL; until then the slot keeps everything.
        delivered=lambda end: control.confirm(int(end["lsn"])),
        describe=lambda: _describe(control, section) | monitor.look(),
        has_envelope=True,
        shortcut=Shortcut({"located": "true"}, partial(deliver_located, options=CdcOptions.from_spark(texts))),
    )


def compile_decoders(config: Config) -> None:
    """Compile in the background what the executors will decode with: seconds on a new machine, and nothing later.

    A process of its own, because the compiler would keep this one busy and large. If it fails, so will the first
    batch, and that one says why.
    """
    used = {pipeline.source for pipeline in config.pipelines.values() if pipeline.enabled}
    for name in used:
        section = config.sources[name]
        if isinstance(section, PostgresCdcSourceSection):
            command = [sys.executable, "-m", "headgate.sources.postgres_cdc.decode", section.format]
            command += ["images"] if section.images else []
            run = partial(subprocess.run, command, capture_output=True, check=False)
            threading.Thread(target=run, name=f"compile {name}", daemon=True).start()


def _system_id(url: str, slot: str) -> str:
    """Which PostgreSQL cluster this is: the first part of every message id."""
    link = ReplicationConnection(url, slot)
    try:
        return link.identify().system_id
    finally:
        link.close()


def _describe(control: SpoolControl, section: PostgresCdcSourceSection) -> dict[str, Any]:
    state = control.read_state()
    if state is None:
        return {"slot": section.slot, "publication": section.publication, "reader": "starting"}
    return {
        "slot": section.slot,
        "publication": section.publication,
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
