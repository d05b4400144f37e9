"""An exact copy of tables in SQLite, DuckDB or PostgreSQL, kept up to date over NATS alone.

    target = open_target("sqlite:///shop.db")
    await Replica(target, "nats://localhost:4222", ["users", "orders"]).run()

`headgate replica` is this on the command line. See docs/replica.md.
"""

from __future__ import annotations

from headgate.replica.open import open_target
from headgate.replica.run import Progress, Replica, stop
from headgate.replica.target import Target
from headgate.replica.verify import Difference, TableReport, verify

__all__ = ["Difference", "Progress", "Replica", "TableReport", "Target", "open_target", "stop", "verify"]
