"""Looks at a slot now and then: how much WAL does PostgreSQL keep for it?

Warns before the disk fills, and before `max_slot_wal_keep_size` makes the server drop what the slot still needs.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import psycopg

from headgate.model import HeadgateError, InternalError
from headgate.postgres import connect, postgres_error
from headgate.postgres.slot import SlotState, slot_state

__all__ = ["SlotMonitor"]

_log = logging.getLogger(__name__)

_INTERVAL_S = 15.0
WARNING_BYTES = 512 << 20
CRITICAL_BYTES = 1 << 30
# Of the server's limit: from there on the slot is on its way to being lost.
WARNING_SHARE = 0.5
CRITICAL_SHARE = 0.8


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
        except psycopg.Error as error:
            return {"slot_error": postgres_error(error, f"slot {self._slot}").as_dict()}
        except Exception as error:  # the watch goes on, whatever it meets
            _log.exception("the slot could not be looked at", extra={"slot": self._slot})
            return {"slot_error": InternalError(str(error), remedy="report it").as_dict()}
        if state is None:
            return {"slot_active": False}
        found = level(state)
        self._warn(state, found)
        return {
            "slot_active": state.active_pid is not None,
            "slot_lag_bytes": state.lag_bytes,
            "slot_retained_bytes": state.retained_bytes,
            "slot_safe_wal_bytes": state.safe_wal_bytes,
            "slot_wal_status": state.wal_status,
            "slot_level": found,
        }

    def _warn(self, state: SlotState, found: str) -> None:
        if found == "ok":
            return
        _log.log(
            logging.ERROR if found == "critical" else logging.WARNING,
            "PostgreSQL keeps much WAL for a slot",
            extra={
                "slot": self._slot,
                "retained_bytes": state.retained_bytes,
                "safe_wal_bytes": state.safe_wal_bytes,
                "level": found,
                "remedy": "is a destination slow or down? "
                + (
                    "set max_slot_wal_keep_size to protect the disk"
                    if state.safe_wal_bytes is None
                    else "raise max_slot_wal_keep_size, or the slot is lost once that is used up"
                ),
            },
        )


def level(state: SlotState) -> str:
    """`ok`, `warning` or `critical`: by the server's own limit if it has one, else from 512 MiB and 1 GiB on."""
    if state.wal_status in ("unreserved", "lost"):
        return "critical"
    if state.safe_wal_bytes is None:
        steps = (CRITICAL_BYTES, WARNING_BYTES)
    else:
        limit = state.retained_bytes + max(state.safe_wal_bytes, 0)
        steps = (round(limit * CRITICAL_SHARE), round(limit * WARNING_SHARE))
    if state.retained_bytes >= steps[0]:
        return "critical"
    return "warning" if state.retained_bytes >= steps[1] else "ok"
