"""The `kafka` source: the messages of topics, in the order of their partitions."""

from __future__ import annotations
