"""The `log` source: messages of the log in PostgreSQL, read from its tables; no gateway need run."""

from __future__ import annotations
