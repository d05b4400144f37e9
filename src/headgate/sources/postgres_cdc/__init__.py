"""PostgreSQL change data capture: a reader process per slot, a spool on disk, a Spark source over it."""

from __future__ import annotations
