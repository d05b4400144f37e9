"""The relay's memory, in SQLite or PostgreSQL: see `open_store`."""

from headgate.relay.store.rows import AccountRow, HostRow, HostStatus
from headgate.relay.store.store import Store, open_store

__all__ = ["AccountRow", "HostRow", "HostStatus", "Store", "open_store"]
