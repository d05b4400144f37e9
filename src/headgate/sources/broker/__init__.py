"""The `broker` source: events of the broker in PostgreSQL, as a group of it gets them."""

from __future__ import annotations
