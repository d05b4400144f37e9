"""Looks at a slot now and then: how much WAL does PostgreSQL keep for it? Warns before the disk fills."""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict
from typing import Any

from headgate.model import HeadgateError
from headgate.sources.postgres_cdc.slot import connect, slot_state

__all__ = ["SlotMonitor"]

_log = logging.getLogger(__name__)

_INTERVAL_S = 15.0
WARNING_BYTES = 512 << 20
CRITICAL_BYTES = 1 << 30


class SlotMonitor:
    """A thread that keeps the last look at a slot. It begins with the first question."""

    def __init__(self, url: str, slot: str) -> None:
        self._url = url
        self._slot = slot
        self._lock = threading.Lock()
        self._started = False
        self._seen: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """What was last seen; empty before the first look."""
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name=f"slot-{self._slot}", daemon=True).start()
            return dict(self._seen)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(_INTERVAL_S if self._seen else 1.0):
            seen = self._ask()
            with self._lock:
                self._seen = seen

    def _ask(self) -> dict[str, Any]:
        try:
            with connect(self._url) as connection:
                state = slot_state(connection, self._slot)
        except HeadgateError as error:
            return {"slot_error": error.as_dict()}
        if state is None:
            return {"slot_active": False}
        self._warn(state.retained_bytes)
        fields = asdict(state)
        return {
            "slot_active": state.active_pid is not None,
            "slot_lag_bytes": fields["lag_bytes"],
            "slot_retained_bytes": fields["retained_bytes"],
            "slot_wal_status": fields["wal_status"],
            "slot_level": level(state.retained_bytes),
        }

    def _warn(self, retained: int) -> None:
        if retained < WARNING_BYTES:
            return
        _log.log(
            logging.ERROR if retained >= CRITICAL_BYTES else logging.WARNING,
            "PostgreSQL keeps much WAL for a slot",
            extra={
                "slot": self._slot,
                "retained_bytes": retained,
                "level": level(retained),
                "remedy": "is a destination slow or down? set max_slot_wal_keep_size to protect the disk",
            },
        )


def level(retained_bytes: int) -> str:
    """`ok`, `warning` from 512 MiB, `critical` from 1 GiB."""
    if retained_bytes >= CRITICAL_BYTES:
        return "critical"
    return "warning" if retained_bytes >= WARNING_BYTES else "ok"
