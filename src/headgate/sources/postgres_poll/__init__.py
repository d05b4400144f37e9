"""The `postgres-poll` source: the rows of a table in the order of a column that grows."""

from __future__ import annotations
